//! Which objects belong to a controller object (a ReplicaSet's Pods, a Deployment's ReplicaSets): those that it controls and selects.
//! What it selects and nobody controls is taken in; what it controls and no longer selects is let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatkube_format::sidecar::ArchivedSidecar;

use super::failure::Failure;
use super::metadata::{Metadata, controller_reference};
use super::runtime::Change;
use crate::api::Client;
use crate::api::status::Status;
use crate::resources::ResourceRef;
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;

/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// An object that claims others.
pub(super) struct Claimant<'a> {
    pub(super) client: &'a Client,
    /// The resource of what it claims.
    pub(super) dependents: &'a ResourceRef,
    /// With its kind and apiVersion.
    pub(super) owner: &'a Value,
    pub(super) selection: &'a Selection,
    /// Whether one that nobody controls is worth being taken in.
    pub(super) may_adopt: fn(&Value) -> bool,
}

/// How dependents are kept whose end must not be missed.
pub(super) struct Tracking {
    /// What is taken in gets this finalizer, and what is let go loses it.
    pub(super) finalizer: &'static str,
    /// Whether nothing is to be learned of one that is owned and selected: it is passed over without being parsed.
    pub(super) is_settled: fn(&Object) -> Result<bool, Damaged>,
}

/// What becomes of an object.
enum Claim {
    Keep,
    /// Nobody controls it, and it is selected.
    Adopt,
    /// It is controlled and no longer selected.
    Release,
    /// It is somebody else's.
    Leave,
}

impl Claimant<'_> {
    /// What the owner controls, objects that are being deleted included. An owner that is being deleted takes nothing in and lets
    /// nothing go.
    pub(super) async fn claim(&self, view: &Arc<View>) -> Result<Vec<Value>, Failure> {
        self.claim_all(view, None, &|_| true).await
    }

    /// The same of dependents that belong to their owner by their names, too.
    pub(super) async fn claim_named(
        &self,
        view: &Arc<View>,
        is_member: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Vec<Value>, Failure> {
        self.claim_all(view, None, is_member).await
    }

    /// The same of dependents that have a finalizer until their end is noted.
    pub(super) async fn claim_tracked(&self, view: &Arc<View>, tracking: &Tracking) -> Result<Vec<Value>, Failure> {
        self.claim_all(view, Some(tracking), &|_| true).await
    }

    async fn claim_all(
        &self,
        view: &Arc<View>,
        tracking: Option<&Tracking>,
        is_member: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Vec<Value>, Failure> {
        let finalizer = tracking.map(|tracking| tracking.finalizer);
        let metadata = &self.owner["metadata"];
        let uid = metadata["uid"].as_str().unwrap_or("");
        let is_deleting = !metadata["deletionTimestamp"].is_null();
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(uid.to_owned())],
        };
        let mut claimed = Vec::new();
        // First what it owns, selected or not; then what it selects and does not own.
        for (selector, is_owned) in [(&owned, true), (self.selection, false)] {
            let range = Range {
                namespace: metadata["namespace"].as_str().map(str::to_owned),
                after: None,
            };
            let mut listing = view.list(&self.dependents.storage, range, selector);
            while let Some(run) = listing.next(RUN_MAX)? {
                for object in run.objects() {
                    if !is_owned && object.sidecar()?.owners.iter().any(|owner| owner == uid) {
                        continue;
                    }
                    if let Some(tracking) = tracking.filter(|_| is_owned)
                        && (tracking.is_settled)(&object)?
                        && self.selection.matches(&object)?
                    {
                        continue;
                    }
                    let tree = self.client.read(self.dependents, &object)?;
                    let is_selected = is_member(&tree) && self.selection.matches(&object)?;
                    match self.claim_of(&object, &tree, is_selected, is_deleting)? {
                        Claim::Leave => {}
                        Claim::Keep => claimed.push(tree),
                        Claim::Adopt => {
                            if self.adopt(&object, finalizer).await? {
                                claimed.push(self.taken_in(&tree, finalizer));
                            }
                        }
                        Claim::Release => self.release(&object, uid, finalizer).await?,
                    }
                }
            }
        }
        Ok(claimed)
    }

    fn claim_of(&self, object: &Object, tree: &Value, is_selected: bool, is_deleting: bool) -> Result<Claim, Failure> {
        let metadata = Metadata::of(object)?;
        let uid = self.owner["metadata"]["uid"].as_str().unwrap_or("");
        Ok(match metadata.controller() {
            Some(controller) if controller.uid != uid => Claim::Leave,
            Some(_) if is_selected => Claim::Keep,
            Some(_) if is_deleting => Claim::Leave,
            Some(_) => Claim::Release,
            None if is_selected && !is_deleting && (self.may_adopt)(tree) => Claim::Adopt,
            None => Claim::Leave,
        })
    }

    /// An object as the owner's.
    fn taken_in(&self, object: &Value, finalizer: Option<&'static str>) -> Value {
        let mut new = object.clone();
        let list = |list: &Value| list.as_array().map_or_else(Vec::new, |list| list.to_vec());
        let reference = controller_reference(self.owner);
        let mut owners = list(&object["metadata"]["ownerReferences"]);
        owners.retain(|owner| owner["uid"] != reference["uid"]);
        owners.push(reference);
        new["metadata"]["ownerReferences"] = owners.into();
        let mut finalizers = list(&object["metadata"]["finalizers"]);
        if let Some(finalizer) = finalizer.filter(|finalizer| !finalizers.iter().any(|other| *other == *finalizer)) {
            finalizers.push(finalizer.into());
            new["metadata"]["finalizers"] = finalizers.into();
        }
        new
    }

    /// Whether the object is now controlled by the owner.
    async fn adopt(&self, object: &Object, finalizer: Option<&'static str>) -> Result<bool, Failure> {
        let adopted = AtomicBool::new(false);
        let uid = object.sidecar()?.uid.as_str().to_owned();
        let edit = |old: &Value| {
            if old["metadata"]["uid"] != uid.as_str() {
                return None;
            }
            let owners = old["metadata"]["ownerReferences"].as_array();
            let is_controlled = owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
            let is_free = !is_controlled && old["metadata"]["deletionTimestamp"].is_null();
            adopted.store(is_free, Ordering::Relaxed);
            is_free.then(|| self.taken_in(old, finalizer))
        };
        gone_is_fine(self.client.change(self.dependents, None, object.key(), edit).await)?;
        Ok(adopted.into_inner())
    }

    async fn release(&self, object: &Object, uid: &str, finalizer: Option<&'static str>) -> Result<(), Failure> {
        let edit = |old: &Value| {
            let mut new = old.clone();
            if let Some(finalizers) = new["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|other| finalizer.is_none_or(|finalizer| *other != *finalizer));
            }
            let owners = new["metadata"]["ownerReferences"].as_array_mut()?;
            owners.retain(|owner| owner["uid"] != uid);
            Some(new)
        };
        Ok(gone_is_fine(
            self.client.change(self.dependents, None, object.key(), edit).await,
        )?)
    }
}

/// A kind of controller object, and how it selects.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name in the store.
    pub(super) storage: &'static str,
    /// API group.
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    /// The selection that its `spec.selector` means.
    pub(super) selection: fn(&Value) -> Option<Selection>,
}

impl Kind {
    /// The key of the object of this kind that controls another one.
    pub(super) fn controller_of(&self, dependent: &Object) -> Result<Option<Arc<str>>, Failure> {
        if dependent.sidecar()?.owners.is_empty() {
            return Ok(None);
        }
        let metadata = Metadata::of(dependent)?;
        let owner = metadata.controller().filter(|owner| {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            owner.kind == self.kind && group == self.group
        });
        Ok(owner
            .zip(dependent.namespace())
            .map(|(owner, namespace)| format!("{namespace}/{}", owner.name).into()))
    }

    /// The keys of the objects of this kind that a change of a dependent matters to: who controls it or did, and if nobody does, who would
    /// take it in.
    pub(super) fn concerned(
        &self,
        client: &Client,
        resource: &ResourceRef,
        change: &Change<'_>,
        view: &Arc<View>,
    ) -> Result<Vec<Arc<str>>, Failure> {
        let now = self.controller_of(change.object)?;
        let before = change.previous.map(|object| self.controller_of(object)).transpose()?;
        let mut keys: Vec<Arc<str>> = now.into_iter().chain(before.flatten()).collect();
        keys.dedup();
        if change.is_gone || Metadata::of(change.object)?.controller().is_some() {
            return Ok(keys);
        }
        // Who would take it in depends on its labels and owners alone.
        if let Some(previous) = change.previous {
            let (old, new) = (previous.sidecar()?, change.object.sidecar()?);
            let labels = |sidecar: &'_ ArchivedSidecar| -> Vec<(String, String)> {
                let pairs = sidecar.labels.iter();
                pairs
                    .map(|pair| (pair.name.to_string(), pair.value.to_string()))
                    .collect()
            };
            if old.owners.iter().eq(new.owners.iter()) && labels(old) == labels(new) {
                return Ok(keys);
            }
        }
        let range = Range {
            namespace: change.object.namespace().map(str::to_owned),
            after: None,
        };
        let mut listing = view.list(self.storage, range, &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let tree = client.read(resource, &object)?;
                if let Some(selection) = (self.selection)(&tree["spec"]["selector"])
                    && selection.matches(change.object)?
                {
                    keys.push(object.key().into());
                }
            }
        }
        Ok(keys)
    }
}

/// What has gone needs nothing more.
pub(super) fn gone_is_fine(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.code == 404 => Ok(()),
        other => other,
    }
}
