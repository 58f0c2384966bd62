//! The read path: get, list and watch, answered from sidecars and slices.
//!
//! Nothing here parses stored JSON, and nothing here knows a JSON value: a body is made of mapped bytes and a few constant
//! strings. Versions of a kind that have another shape than the stored one are converted outside, in
//! `converted.rs`.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `options`, `labels`, `fields` | what is asked for |
//! | `state`, `token` | which revision is shown, where a page begins |
//! | `form`, `table` | how one object is written |
//! | `get`, `list`, `watch` | the answers |
//! | `protobuf` | the same two in protobuf |
//! | `chunks`, `gzip` | how bytes become frames |
//! | `notice` | how long an answer may keep an old state |

mod chunks;
mod fields;
mod form;
mod get;
mod gzip;
mod labels;
mod list;
mod notice;
mod options;
mod protobuf;
mod quote;
mod state;
mod table;
mod token;
mod watch;

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};

pub(super) use fields::parse as field_selector;
pub(super) use form::{Include, What};
pub use get::{get, object_answer};
pub(super) use labels::parse as label_selector;
pub(super) use list::check_options;
pub use list::{list, list_with_keys};
pub use notice::Notice;
pub(super) use notice::{Begun, overstayed};
pub(super) use quote::quoted;
pub(super) use table::{column_definitions, head as table_head};
pub(super) use token::Position;
pub use watch::watch;

use super::Stopping;
use super::body::{Body, Response};
use crate::store::Store;

/// What reads work with.
#[derive(Clone)]
pub struct Reader {
    /// Where the objects are.
    pub store: Arc<Store>,
    /// Ends watches.
    pub stopping: Stopping,
    /// Secret of this data directory that authenticates continue tokens; kept over restarts.
    pub continue_key: [u8; 32],
    /// Whose large bodies are compressed.
    pub compress: Compress,
    /// Ends answers that keep too much of the past on the disk.
    pub notice: Notice,
}

/// For which of the clients that take gzip large bodies are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compress {
    /// All: right behind a proxy or a tunnel on this machine whose far end is far away.
    Always,
    /// Those on other machines. To one on this machine, compressing takes longer than the bytes it saves.
    #[default]
    Remote,
    /// None: right where CPU is scarcer than the network.
    Never,
}

impl Compress {
    /// Whether to compress for a client that takes gzip and is (`loopback`) or is not on this machine.
    fn applies(self, loopback: bool) -> bool {
        match self {
            Compress::Always => true,
            Compress::Remote => !loopback,
            Compress::Never => false,
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the secret nor the store's insides belong into a log.
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

fn answer(code: StatusCode, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_on_this_machine_gets_compressed_bodies_only_where_all_do() {
        let applies = |compress: Compress| [compress.applies(true), compress.applies(false)];
        assert_eq!(applies(Compress::Always), [true, true]);
        assert_eq!(applies(Compress::Remote), [false, true]);
        assert_eq!(applies(Compress::Never), [false, false]);
    }
}
