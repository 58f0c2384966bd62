//! What flatkube keeps on disk: log records, sidecars, shelves and manifests, as pure functions over bytes.
//!
//! Nothing here does I/O, keeps state or knows of Kubernetes kinds. Writers make bytes; readers take `&[u8]` from a file
//! that nobody vouches for and return slices of it or a [`FormatError`] that names offset and reason. No input makes a
//! reader panic, and none makes it allocate more than a small multiple of the input's own length. All integers are
//! little-endian. The layouts are written out in `docs/format.md`.
//!
//! | module | what |
//! | --- | --- |
//! | [`object`] | what a writer prepares before the revision is known |
//! | [`sidecar`] | the archive beside an object's JSON: labels, fields, Table row, spans |
//! | [`frame`] | log records |
//! | [`segment`] | a log file: header, records, footer index; torn tails told from bit rot |
//! | [`shelf`] | the snapshot of one resource in list order, one part |
//! | [`manifest`] | the file that names all others |
//! | [`salvage`] | what can be read of a damaged log |

mod bytes;
mod error;
mod footer;
pub mod frame;
pub mod manifest;
pub mod object;
mod posting;
mod record;
mod row;
pub mod salvage;
pub mod segment;
pub mod shelf;
mod shelf_builder;
pub mod sidecar;

pub use error::{FormatError, Reason};

/// What the stored JSON of a sealed (encrypted) object begins with; that of no other object does.
pub const SEALED_HEAD: &[u8] = b"{\"sealed\":\"";

/// Whether stored JSON is the envelope of a sealed object: what its sidecar says of spans is then not true of these bytes.
pub fn is_sealed(json: &[u8]) -> bool {
    json.starts_with(SEALED_HEAD)
}
