//! HTTP: connections, routing, verbs, negotiation, response bodies, Status errors, discovery, OpenAPI.

use std::sync::Arc;

pub(crate) mod backup;
pub mod body;
mod bootstrap;
mod connect;
mod connection;
mod converted;
mod discovery;
mod fairness;
mod health;
mod metrics;
pub mod negotiate;
mod openapi;
mod path;
mod query;
pub mod read;
pub mod request;
mod router;
pub mod server;
pub mod status;
mod stopping;
mod stream;
mod unstored;
mod version;
mod write;
mod yaml;

pub use stopping::{Stopper, Stopping};

use crate::auth::{Tokens, User};
use connection::Limits;

/// What every handler works with.
#[derive(Debug)]
pub struct Api {
    /// What reads work with, the store first of all.
    pub reader: read::Reader,
    limits: Limits,
    tokens: Tokens,
    /// Addresses and ports of Services.
    services: write::Services,
    anonymous: Arc<User>,
    metrics: metrics::Metrics,
    fairness: Arc<fairness::Fairness>,
}

impl Api {
    /// Whether the store takes writes.
    fn store_is_open(&self) -> bool {
        !self.reader.stopping.is_stopping()
    }
}
