//! HTTP: connections, routing, verbs, negotiation, response bodies, Status errors, discovery, OpenAPI.

use std::sync::{Arc, OnceLock, Weak};

mod aggregation;
#[doc(hidden)]
pub mod attack;
mod audited;
mod authenticate;
mod authorize;
pub(crate) mod backup;
pub mod body;
mod bootstrap;
pub(crate) mod compact;
mod connection;
mod conversion;
mod converted;
mod discovery;
mod fairness;
mod health;
mod impersonate;
mod legacy_tokens;
mod metrics;
pub mod negotiate;
mod openapi;
mod openid;
mod path;
mod peer;
mod protobuf;
pub(crate) mod proxy;
mod query;
pub mod read;
mod renewal;
pub mod request;
mod router;
pub mod server;
pub mod status;
mod stopping;
mod stream;
mod tls;
mod unstored;
mod version;
mod webhooks;
mod write;
mod yaml;
mod yaml_text;

pub use audited::Recording;
pub(crate) use proxy::Simulated;
pub use stopping::{Stopper, Stopping};
pub use write::{Client, Delete, Stillness};

use crate::admission::{Family, Policies};
use crate::audit::Audit;
use crate::auth::Authenticator;
use crate::resources::custom::Registry;
use connection::Limits;

/// What every handler works with.
#[derive(Debug)]
pub struct Api {
    /// What reads work with, the store first of all.
    pub reader: read::Reader,
    limits: Limits,
    authenticator: Authenticator,
    /// Who may do what.
    authorizer: crate::auth::authorization::Authorizer,
    /// The custom resources that are served.
    custom: Arc<Registry>,
    discovery: discovery::Discovery,
    /// The OpenAPI document of everything that is served.
    openapi: openapi::WholeCache,
    /// Addresses and ports of Services.
    services: write::Services,
    /// Webhooks that change what is written, and that judge it.
    mutating: webhooks::Webhooks,
    validating: webhooks::Webhooks,
    trusted: webhooks::Trusted,
    /// Built-in plugins that change and judge writes.
    plugins: crate::admission::plugins::Plugins,
    quotas: write::Quotas,
    /// Policies that judge writes.
    policies: crate::admission::Policies,
    /// Policies that change what is written.
    mutations: crate::admission::Policies,
    /// Records requests; `None`: none.
    audit: Option<Arc<Audit>>,
    metrics: metrics::Metrics,
    fairness: Arc<fairness::Fairness>,
    /// What other API servers serve.
    aggregation: aggregation::Aggregation,
    /// How kubelets and the like are reached; `None`: not at all.
    backends: Option<proxy::Backends>,
    /// Nodes that are simulated within this process, if there are any: they hold this, and so it does not hold them.
    simulated: OnceLock<Weak<dyn Simulated>>,
}

impl Api {
    /// An API that serves what `reader` reads.
    ///
    /// # Errors
    /// When a stored Service cannot be read.
    fn new(
        reader: read::Reader,
        authenticator: Authenticator,
        limits: Limits,
        backends: Option<proxy::Backends>,
        custom: Arc<Registry>,
        plugins: crate::admission::plugins::Plugins,
        audit: Option<Arc<Audit>>,
    ) -> Result<Self, String> {
        let metrics = metrics::Metrics::new();
        Ok(Self {
            custom,
            discovery: discovery::Discovery::default(),
            openapi: openapi::WholeCache::default(),
            mutating: webhooks::Webhooks::default(),
            validating: webhooks::Webhooks::default(),
            trusted: webhooks::Trusted::default(),
            plugins,
            quotas: write::Quotas::default(),
            policies: Policies::new(Family::Validating),
            mutations: Policies::new(Family::Mutating),
            services: write::Services::open(&reader.store)?,
            fairness: Arc::new(fairness::Fairness::new(&limits, metrics.recorder())),
            reader,
            limits,
            authenticator,
            authorizer: crate::auth::authorization::Authorizer::default(),
            audit,
            metrics,
            aggregation: aggregation::Aggregation::default(),
            backends,
            simulated: OnceLock::new(),
        })
    }

    /// How kubelets and the like are reached.
    ///
    /// # Errors
    /// 503 where there is no such way.
    fn backends(&self) -> Result<&proxy::Backends, status::Status> {
        let backends = self.backends.as_ref();
        backends.ok_or_else(|| status::Status::service_unavailable("backends are out of reach"))
    }

    /// The nodes that are simulated within this process, if this is one of them.
    fn simulated(&self, node: &str) -> Option<Arc<dyn Simulated>> {
        let nodes = self.simulated.get()?.upgrade()?;
        nodes.has(node).then_some(nodes)
    }

    /// Whether the store takes writes.
    fn store_is_open(&self) -> bool {
        !self.reader.stopping.is_stopping()
    }
}
