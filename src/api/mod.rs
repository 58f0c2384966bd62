//! HTTP: connections, routing, verbs, negotiation, response bodies, Status errors, discovery, OpenAPI.

pub mod body;
pub mod negotiate;
mod query;
pub mod read;
pub mod request;
pub mod server;
pub mod status;
mod stopping;

pub use stopping::{Stopper, Stopping};

/// What every handler works with.
#[derive(Debug)]
pub struct Api {
    /// Given when the server ends; watches and long bodies end then.
    pub stopping: Stopping,
    /// Secret of this data directory that authenticates continue tokens; kept over restarts.
    pub continue_key: [u8; 32],
}
