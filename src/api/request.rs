//! What a request is about: verb, resource, object, options, and who asks.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};

use super::Recording;
use super::negotiate::Answer;
pub use super::query::Query;
use crate::auth::User;
use crate::resources::{ResourceRef, SubresourceRef};

/// What is asked for, in the words of RBAC, metrics and audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Events of a collection or of one object.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

/// A request for a resource, after routing, authentication and negotiation.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// What is asked for. `?watch=true` on a list and the legacy `/watch/` paths are [`Verb::Watch`].
    pub verb: Verb,
    /// The resource in the version that the path names.
    pub resource: ResourceRef,
    /// The subresource, if the path names one.
    pub subresource: Option<SubresourceRef>,
    /// Namespace of the path; `None` for cluster-scoped resources and for all namespaces.
    pub namespace: Option<String>,
    /// Name of the path; for a watch of a single object too.
    pub name: Option<String>,
    /// The query.
    pub query: Query,
    /// How to answer.
    pub answer: Answer,
    /// Who asks.
    pub user: Arc<User>,
    /// Whom the connection is with.
    pub peer: SocketAddr,
    /// What records the request; `None`: nothing does.
    pub audit: Option<Arc<Recording>>,
    /// All headers.
    pub headers: HeaderMap<HeaderValue>,
}

impl RequestInfo {
    /// Whether the client is on this machine.
    pub fn loopback(&self) -> bool {
        self.peer.ip().is_loopback()
    }

    /// The `User-Agent` header, or the empty string.
    pub fn user_agent(&self) -> &str {
        self.headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
    }

    /// Name of the subresource, `""` for none.
    pub fn subresource_name(&self) -> &'static str {
        self.subresource.as_ref().map_or("", |sub| sub.name)
    }

    /// The key of the object in the store (`namespace/name`, or the name of a cluster-scoped object).
    pub fn key(&self) -> String {
        self.resource
            .key(self.namespace.as_deref(), self.name.as_deref().unwrap_or(""))
    }
}
