//! Who writes, in the words of `managedFields`.

use std::borrow::Cow;

use crate::tree::Value;

use super::object;
use crate::api::request::RequestInfo;
use crate::patch::managed::{self, Request};
use crate::resources::{self, ResourceRef};
use crate::schema::Schema;

/// Longest name of a manager taken from a User-Agent, bytes.
const NAME_MAX: usize = 128;

/// The field manager of a request.
#[derive(Debug, Clone)]
pub(super) struct Manager {
    name: String,
    resource: ResourceRef,
    subresource: &'static str,
    /// What was applied, for a server-side apply.
    applied: Option<Value>,
}

impl Manager {
    /// `fieldManager` of the query, else the first part of the User-Agent.
    pub(super) fn of(info: &RequestInfo) -> Self {
        let name = info
            .query
            .get("fieldManager")
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| {
                let agent = info.user_agent().split('/').next().unwrap_or("");
                let printable: String = agent.chars().filter(|letter| !letter.is_control()).collect();
                let mut end = printable.len().min(NAME_MAX);
                while !printable.is_char_boundary(end) {
                    end -= 1;
                }
                Cow::Owned(printable[..end].to_owned())
            });
        Self {
            name: name.into_owned(),
            resource: info.resource.clone(),
            subresource: info.subresource_name(),
            applied: None,
        }
    }

    /// A manager that is a part of the server.
    pub(super) fn named(name: &str, resource: ResourceRef, subresource: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            resource,
            subresource,
            applied: None,
        }
    }

    /// The manager of a server-side apply that creates.
    pub(super) fn applying(info: &RequestInfo, configuration: Value) -> Self {
        Self {
            applied: Some(configuration),
            ..Self::of(info)
        }
    }

    /// Notes in `new` what this manager changed of `live`. Both are in the stored shape; fields are told in the version of
    /// the request.
    pub(super) fn note(&self, live: Option<&Value>, new: &mut Value) {
        if !resources::has_other_shape(&self.resource) {
            return self.note_in_version(live, new);
        }
        let live = live.map(|live| object::in_version(&self.resource, live.clone()));
        let mut shown = object::in_version(&self.resource, new.clone());
        self.note_in_version(live.as_ref(), &mut shown);
        let noted = shown["metadata"]["managedFields"].take();
        let metadata = object::metadata_mut(new);
        if noted.is_null() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields", noted);
        }
    }

    fn note_in_version(&self, live: Option<&Value>, new: &mut Value) {
        let resource = &self.resource;
        let Some(schema) = Schema::of(&resource.group, &resource.version, &resource.kind) else {
            return;
        };
        let resets: &[&str] = match (&*resource.plural, self.subresource) {
            // What is asked for is the requester's, and nobody's field.
            ("certificatesigningrequests", "") => &["spec", "status"],
            ("certificatesigningrequests", "approval") => &["spec"],
            (_, "status") => &[],
            _ if resource.subresource("status").is_some() => &["status"],
            _ => &[],
        };
        let request = Request {
            manager: &self.name,
            api_version: &resource.api_version(),
            subresource: self.subresource,
            now: &object::time(object::now_s()),
            resets,
        };
        match &self.applied {
            None => managed::update(schema, live, new, &request),
            Some(configuration) => {
                let entry = managed::applied(schema, configuration, &request);
                object::metadata_mut(new).insert("managedFields", vec![entry].into());
            }
        }
    }
}
