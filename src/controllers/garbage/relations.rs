//! Owners and dependents: what objects say of them, and where they are.

use std::sync::Arc;

use super::Place;
use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::controllers::kinds::resource_of;
use crate::controllers::metadata::{Metadata, Owner, is_deleting};
use crate::resources::Propagation;
use crate::store::{Listing, Object, Range, Requirement, Selection, View};

/// The finalizer of an object whose dependents go first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub(super) const ORPHAN: &str = "orphan";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// What is known of an owner.
#[derive(Debug)]
pub(super) enum Standing {
    /// It is there.
    Present,
    /// It is there until its dependents are gone.
    Waiting(Box<Metadata>),
    /// It is not there, or another object has its name.
    Absent,
    /// It cannot be: an object without a namespace names an owner that has one.
    Impossible,
}

/// What metadata says of the garbage collector's finalizers.
pub(super) trait Finalizers {
    /// Whether it waits for its dependents to go first.
    fn waits_for_dependents(&self) -> bool;
    /// Whether its dependents are to be let go before it goes.
    fn orphans_dependents(&self) -> bool;
    /// How it is to be deleted, by what it says itself.
    fn propagation(&self) -> Propagation;
    /// Whether it keeps the owner of this UID from going.
    fn blocks(&self, uid: &str) -> bool;
}

impl Finalizers for Metadata {
    fn waits_for_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(FOREGROUND)
    }

    fn orphans_dependents(&self) -> bool {
        self.is_deleting() && self.has_finalizer(ORPHAN)
    }

    fn propagation(&self) -> Propagation {
        if self.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if self.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    }

    fn blocks(&self, uid: &str) -> bool {
        let mut owners = self.owner_references.iter();
        owners.any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
    }
}

/// Where the owner of an object with this key is.
pub(super) fn standing(client: &Client, view: &View, key: &str, owner: &Owner) -> Result<Standing, Failure> {
    let resource = resource_of(client, &owner.api_version, &owner.kind).ok_or_else(|| Failure::UnknownKind {
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
    if is_deleting(&found)? {
        let metadata = Metadata::of(&found)?;
        if metadata.waits_for_dependents() {
            return Ok(Standing::Waiting(Box::new(metadata)));
        }
    }
    Ok(Standing::Present)
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
    pub(super) fn next(&mut self) -> Result<Option<(Arc<str>, Object)>, Failure> {
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
