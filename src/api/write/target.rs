//! The object that a write is about.

use std::sync::Arc;

use crate::api::audited::Recording;
use crate::api::request::{Query, RequestInfo, Verb};
use crate::api::status::Status;
use crate::auth::User;
use crate::resources::{Context, ResourceRef};

use super::manager::Manager;
use super::object;

/// Who asks for a change, as admission is told of it.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub user: Arc<User>,
    /// The query, for the options in it.
    pub query: Query,
    /// What records the request, if anything does.
    pub audit: Option<Arc<Recording>>,
    /// Whether a whole collection is deleted: then no single object was named.
    pub collection: bool,
}

impl Asker {
    pub(super) fn of(info: &RequestInfo) -> Self {
        Self {
            user: info.user.clone(),
            query: info.query.clone(),
            audit: info.audit.clone(),
            collection: info.verb == Verb::DeleteCollection,
        }
    }

    /// A part of this program.
    pub(super) fn own(user: Arc<User>) -> Self {
        Self {
            user,
            query: Query::new(""),
            audit: None,
            collection: false,
        }
    }
}

/// An object by its place, with the subresource that is written, if any.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub resource: ResourceRef,
    pub subresource: Option<&'static str>,
    pub namespace: Option<String>,
    pub name: String,
    /// Who is to be noted as the manager of what changes; the server itself is not.
    pub manager: Option<Manager>,
    /// The change is the server's own (a binding): it is written as it is, without what strategies do to clients' changes.
    pub own: bool,
    /// Who asks; the server itself asks nobody whether it may.
    pub asker: Option<Asker>,
}

impl Target {
    /// What a request for one object names.
    pub(super) fn of(info: &RequestInfo) -> Self {
        Self {
            resource: info.resource.clone(),
            subresource: info.subresource.as_ref().map(|sub| sub.name),
            namespace: info.namespace.clone(),
            name: info.name.clone().unwrap_or_default(),
            manager: Some(Manager::of(info)),
            own: false,
            asker: Some(Asker::of(info)),
        }
    }

    /// The object of `resource` under this key of the store.
    pub(super) fn at(resource: &ResourceRef, key: &str) -> Self {
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, key),
        };
        Self {
            resource: resource.clone(),
            subresource: None,
            namespace,
            name: name.to_owned(),
            manager: None,
            own: false,
            asker: None,
        }
    }

    /// Its key in the store.
    pub(super) fn key(&self) -> String {
        self.resource.key(self.namespace.as_deref(), &self.name)
    }

    /// What strategies may know.
    pub(super) fn context(&self) -> Context<'_> {
        Context {
            now_s: object::now_s(),
            namespace: self.namespace.as_deref(),
            name: Some(&self.name),
            asked: Some(&self.resource),
        }
    }

    pub(super) fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    pub(super) fn modified(&self) -> Status {
        Status::modified(&self.resource.group, &self.resource.plural, &self.name)
    }
}
