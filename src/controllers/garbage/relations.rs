//! Owners and dependents: what objects say of them, and where they are.

use std::sync::Arc;

use serde::Deserialize;

use super::Place;
use crate::api::Client;
use crate::resources::{self, DELETING, Propagation, ResourceRef};
use crate::store::{Damaged, Listing, Object, Range, Requirement, Selection, View};

/// The finalizer of an object whose dependents go first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub(super) const ORPHAN: &str = "orphan";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// The part of `metadata` that decides about garbage.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) uid: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) finalizers: Vec<String>,
    pub(super) owner_references: Vec<Owner>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) block_owner_deletion: Option<bool>,
}

/// What is known of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there.
    Present,
    /// It is there until its dependents are gone.
    Waiting,
    /// It is not there, or another object has its name.
    Absent,
    /// It cannot be: an object without a namespace names an owner that has one.
    Impossible,
}

/// Why it cannot be told yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    /// No such kind is served, now.
    #[error("no resource of kind {kind} in {api_version} is served")]
    Kind {
        /// `apps/v1`
        api_version: String,
        /// `Deployment`
        kind: String,
    },
    /// Stored bytes are damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// Stored metadata is no metadata.
    #[error("metadata of {0} cannot be read: {1}")]
    Metadata(String, serde_json::Error),
}

impl Metadata {
    pub(super) fn of(object: &Object) -> Result<Self, Unknown> {
        serde_json::from_slice(object.metadata()?).map_err(|error| Unknown::Metadata(object.key().to_owned(), error))
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|other| other == finalizer)
    }

    /// Whether it waits for its dependents to go first.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has(FOREGROUND)
    }

    /// Whether its dependents are to be let go before it goes.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.is_deleting() && self.has(ORPHAN)
    }

    /// How it is to be deleted, by what it says itself.
    pub(super) fn propagation(&self) -> Propagation {
        if self.has(ORPHAN) {
            Propagation::Orphan
        } else if self.has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    }

    /// Whether it keeps the owner of this UID from going.
    pub(super) fn blocks(&self, uid: &str) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
    }
}

/// Whether an object is being deleted, by its sidecar.
pub(super) fn is_deleting(object: &Object) -> Result<bool, Damaged> {
    Ok(object.sidecar()?.field(DELETING.0).is_some())
}

/// Where the owner of an object with this key is.
pub(super) fn standing(client: &Client, view: &View, key: &str, owner: &Owner) -> Result<Standing, Unknown> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let resource = resource_of(client, group, version, &owner.kind).ok_or_else(|| Unknown::Kind {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
    })?;
    let namespace = key.split_once('/').map(|(namespace, _)| namespace);
    if resource.namespaced && namespace.is_none() {
        return Ok(Standing::Impossible);
    }
    let Some(found) = view.get(&resource.storage, &resource.key(namespace, &owner.name))? else {
        return Ok(Standing::Absent);
    };
    if found.sidecar()?.uid != owner.uid.as_str() {
        return Ok(Standing::Absent);
    }
    if is_deleting(&found)? && Metadata::of(&found)?.waits_for_dependents() {
        return Ok(Standing::Waiting);
    }
    Ok(Standing::Present)
}

/// The stored resource of a kind.
fn resource_of(client: &Client, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
    let is_it = |resource: &ResourceRef| resource.kind == kind && !resource.storage.is_empty();
    let built_in = resources::all()
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
        .map(ResourceRef::from);
    built_in.into_iter().find(is_it).or_else(|| {
        let served = client.custom().served();
        served
            .version(group, version)?
            .values()
            .find(|found| is_it(found))
            .cloned()
    })
}

/// The stored shape of a resource by its name in the store.
pub(super) fn stored(client: &Client, storage: &str) -> Option<ResourceRef> {
    match resources::stored(storage) {
        Some(resource) => Some(resource.into()),
        None => client.custom().served().stored(storage).cloned(),
    }
}

/// The dependents of one object, in one view. They are found by postings: walking them costs what there is of them.
pub(super) struct Dependents {
    view: Arc<View>,
    selection: Selection,
    /// Resources that were not looked through yet.
    storages: Vec<Arc<str>>,
    listing: Option<(Arc<str>, Listing)>,
    /// Of the last run, the next one last.
    found: Vec<Object>,
}

impl Dependents {
    /// Those of the object with this UID in these resources.
    pub(super) fn new(view: Arc<View>, storages: Vec<Arc<str>>, uid: &str) -> Self {
        Self {
            view,
            selection: Selection {
                requirements: vec![Requirement::OwnedBy(uid.to_owned())],
            },
            storages,
            listing: None,
            found: Vec::new(),
        }
    }

    /// The next one, with the name of its resource in the store.
    pub(super) fn next(&mut self) -> Result<Option<(Arc<str>, Object)>, Unknown> {
        loop {
            if let Some((storage, listing)) = &mut self.listing {
                if let Some(object) = self.found.pop() {
                    return Ok(Some((storage.clone(), object)));
                }
                if let Some(run) = listing.next(RUN_MAX)? {
                    self.found.extend(run.objects());
                    self.found.reverse();
                    continue;
                }
            }
            let Some(storage) = self.storages.pop() else {
                return Ok(None);
            };
            let listing = self.view.list(&storage, Range::default(), &self.selection);
            self.listing = Some((storage, listing));
        }
    }
}

impl Place {
    pub(super) fn of(storage: &Arc<str>, object: &Object) -> Self {
        Self {
            storage: storage.clone(),
            key: object.key().into(),
        }
    }
}
