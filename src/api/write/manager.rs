//! Who writes, in the words of `managedFields`.

use std::borrow::Cow;

use crate::tree::Value;

use super::object;
use crate::api::request::RequestInfo;
use crate::api::{Api, conversion};
use crate::patch::apply::keep_times;
use crate::patch::managed::{self, Request, Typed, Versions};
use crate::resources::{self, Resource, ResourceRef};
use crate::schema::Schema;
use crate::schema::structural::Structural;

/// Longest name of a manager taken from a User-Agent, bytes.
const NAME_MAX: usize = 128;

/// The field manager of a request.
#[derive(Debug, Clone)]
pub(super) struct Manager {
    name: String,
    resource: ResourceRef,
    subresource: &'static str,
    /// Whether it applies: then `managedFields` are made before, of what is applied, and not of what changes.
    applies: bool,
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
            applies: false,
        }
    }

    /// A manager that is a part of the server.
    pub(super) fn named(name: &str, resource: ResourceRef, subresource: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            resource,
            subresource,
            applies: false,
        }
    }

    /// The manager of a server-side apply.
    pub(super) fn applying(info: &RequestInfo) -> Self {
        Self {
            applies: true,
            ..Self::of(info)
        }
    }

    /// Notes in `new` what this manager changed of `live`. Both are in the stored shape; fields are told in the version of
    /// the request.
    pub(super) fn note(&self, live: Option<&Value>, new: &mut Value) {
        // What a webhook converts was noted in the version of the request already (`note_shown`).
        let custom = self.resource.custom.as_ref();
        if let Some(stored) = custom
            .filter(|custom| custom.conversion.is_some())
            .and_then(|custom| custom.stored.clone())
        {
            let manager = Self {
                resource: stored,
                ..self.clone()
            };
            return manager.note(live, new);
        }
        if self.applies {
            if let Some(live) = live {
                keep_times(live, new);
            }
            return;
        }
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

    /// Notes in `new` what this manager changed of `live`, both in the version of the request: they are yet to be converted by
    /// a webhook. Entries of other versions are asked about the objects in those, for which the webhook is called, too.
    pub(super) async fn note_shown(&self, api: &Api, live: Option<&Value>, new: &mut Value) {
        if self.applies {
            return;
        }
        let Some(typed) = typed(&self.resource) else { return };
        let others = Converted::of(api, &self.resource, live, new).await;
        self.with_request(&self.resource.api_version(), |request| {
            managed::update_among(typed, &others, live, new, request);
        });
    }

    /// Whether what it writes of objects that a webhook converts is noted before they are ([`Manager::note_shown`]).
    pub(super) fn notes_shown(&self) -> bool {
        let custom = self.resource.custom.as_ref();
        !self.applies && custom.is_some_and(|custom| custom.conversion.is_some() && custom.stored.is_some())
    }

    fn note_in_version(&self, live: Option<&Value>, new: &mut Value) {
        let Some(typed) = typed(&self.resource) else { return };
        self.with_request(&self.resource.api_version(), |request| {
            managed::update_among(typed, &KindVersions(&self.resource), live, new, request);
        });
    }

    /// Runs `run` with what `managedFields` must know of the request; `api_version` is the version that its body is in.
    pub(super) fn with_request<T>(&self, api_version: &str, run: impl FnOnce(&Request<'_>) -> T) -> T {
        run(&Request {
            manager: &self.name,
            api_version,
            subresource: self.subresource,
            now: &object::time(object::now_s()),
            resets: resets(&self.resource, self.subresource),
        })
    }
}

/// The top-level fields that a request cannot change: they are nobody's by it.
fn resets(resource: &Resource, subresource: &str) -> &'static [&'static str] {
    match (&*resource.plural, subresource) {
        // What is asked for is the requester's, and nobody's field.
        ("certificatesigningrequests", "") => &["spec", "status"],
        ("certificatesigningrequests", "approval") => &["spec"],
        (_, "status" | "scale") => &[],
        _ if resource.subresource("status").is_some() => &["status"],
        _ => &[],
    }
}

/// What objects of the resource are to merging.
pub(super) fn typed(resource: &Resource) -> Option<Typed<'_>> {
    if let Some(custom) = &resource.custom {
        return Some(of_schema(custom.schema.as_deref()));
    }
    Schema::of(&resource.group, &resource.version, &resource.kind).map(Typed::from)
}

/// Without a schema that can be used, everything is kept as it is.
fn of_schema(schema: Option<&Structural>) -> Typed<'_> {
    schema.map_or(Typed::DEDUCED, Typed::from)
}

/// The versions of a kind whose objects a webhook converts, with two states of one object in those that its managers speak of.
struct Converted<'a> {
    names: KindVersions<'a>,
    states: [Value; 2],
    in_versions: Vec<(String, Vec<Value>)>,
}

impl<'a> Converted<'a> {
    async fn of(api: &Api, resource: &'a Resource, live: Option<&Value>, new: &Value) -> Self {
        let mut others = Self {
            names: KindVersions(resource),
            states: [live.cloned().unwrap_or_default(), new.clone()],
            in_versions: Vec::new(),
        };
        if live.is_none() {
            return others;
        }
        let own = resource.api_version();
        let mut wanted: Vec<String> = Vec::new();
        for entry in others.states[0]["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let version = entry["apiVersion"].as_str().unwrap_or("");
            if version != own && others.names.has(version) && !wanted.iter().any(|known| known == version) {
                wanted.push(version.to_owned());
            }
        }
        for version in wanted {
            // What cannot be converted is taken for what it is in the version of the request.
            if let Ok(states) = conversion::to_version(api, resource, &version, others.states.to_vec()).await {
                others.in_versions.push((version, states));
            }
        }
        others
    }
}

impl Versions for Converted<'_> {
    fn in_version(&self, object: &Value, api_version: &str) -> Option<(Typed<'_>, Value)> {
        let (typed, renamed) = self.names.in_version(object, api_version)?;
        let found = self.in_versions.iter().find(|(version, _)| version == api_version);
        let state = self.states.iter().position(|state| state.shares(object));
        let converted = found.zip(state).and_then(|((_, states), at)| states.get(at).cloned());
        Some((typed, converted.unwrap_or(renamed)))
    }

    fn has(&self, api_version: &str) -> bool {
        self.names.has(api_version)
    }
}

/// The versions in which the objects of a resource are served.
pub(super) struct KindVersions<'a>(pub(super) &'a Resource);

impl KindVersions<'_> {
    /// The resource that shows the same objects in that version.
    fn find(&self, api_version: &str) -> Option<&Resource> {
        if self.0.api_version() == api_version {
            return Some(self.0);
        }
        resources::all().iter().find(|other| {
            other.storage == self.0.storage && other.kind == self.0.kind && other.api_version() == api_version
        })
    }
}

impl Versions for KindVersions<'_> {
    fn in_version(&self, object: &Value, api_version: &str) -> Option<(Typed<'_>, Value)> {
        if let Some(custom) = &self.0.custom {
            let mut versions = custom.versions.iter();
            let version = versions.find(|version| version.api_version == api_version)?;
            // Versions differ in what they are called, and in what lists and maps are to merging.
            let mut object = object.clone();
            object["apiVersion"] = api_version.into();
            return Some((of_schema(version.schema.as_deref()), object));
        }
        let from = self.find(object["apiVersion"].as_str().unwrap_or(""))?;
        let to = self.find(api_version)?;
        let stored = resources::to_stored(from, object.clone());
        Some((typed(to)?, object::in_version(to, stored)))
    }

    fn has(&self, api_version: &str) -> bool {
        if let Some(custom) = &self.0.custom {
            return custom.versions.iter().any(|version| version.api_version == api_version);
        }
        self.find(api_version).is_some()
    }
}
