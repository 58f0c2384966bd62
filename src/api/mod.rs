//! HTTP: connections, routing, verbs, negotiation, response bodies, Status errors, discovery, OpenAPI.

use std::sync::Arc;

pub mod body;
mod connection;
mod converted;
mod discovery;
mod health;
mod metrics;
pub mod negotiate;
mod path;
mod query;
pub mod read;
pub mod request;
mod router;
pub mod server;
pub mod status;
mod stopping;
mod stream;
mod version;
mod write;
mod yaml;

pub use stopping::{Stopper, Stopping};

use crate::auth::{Tokens, User};
use connection::Limits;

/// What every handler works with.
#[derive(Debug)]
pub struct Api {
    /// Given when the server ends; watches and long bodies end then.
    pub stopping: Stopping,
    /// Secret of this data directory that authenticates continue tokens; kept over restarts.
    pub continue_key: [u8; 32],
    limits: Limits,
    tokens: Tokens,
    anonymous: Arc<User>,
    metrics: metrics::Metrics,
    /// Writes that are worked on; see [`Limits::writes`].
    writing: tokio::sync::Semaphore,
}

impl Api {
    fn store_is_open(&self) -> bool {
        true
    }
}
