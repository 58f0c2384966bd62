//! Which Pods belong to a set.

use std::sync::Arc;

use super::{PODS, Replicas};
use crate::api::status::Status;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{Metadata, controller_reference};
use crate::controllers::pod;
use crate::store::{Object, Range, Requirement, Selection, View};
use crate::tree::Value;

/// What becomes of a Pod that a set looks at.
enum Claim {
    Keep,
    /// Nobody controls it, and it is selected.
    Adopt,
    /// It is controlled and no longer selected.
    Release,
    /// It is somebody else's.
    Leave,
}

impl Replicas {
    /// The Pods that the set controls, those over or going included. Takes in what it selects and nobody controls, lets go what it
    /// controls and does not select. A set that is being deleted takes nothing in.
    pub(super) async fn claim(&self, set: &Value, key: &str, view: &Arc<View>) -> Result<Vec<Value>, Failure> {
        let uid = set["metadata"]["uid"].as_str().unwrap_or("");
        let Some(selection) = (self.kind.selection)(&set["spec"]["selector"]) else {
            return Ok(Vec::new());
        };
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(uid.to_owned())],
        };
        let is_deleting = !set["metadata"]["deletionTimestamp"].is_null();
        let namespace = key.split_once('/').map(|(namespace, _)| namespace.to_owned());
        let mut pods = Vec::new();
        // First what it owns, selected or not; then what it selects and does not own.
        for (selector, owned) in [(&owned, true), (&selection, false)] {
            let range = Range {
                namespace: namespace.clone(),
                after: None,
            };
            let mut listing = view.list(PODS, range, selector);
            while let Some(run) = listing.next(64)? {
                for object in run.objects() {
                    if !owned && object.sidecar()?.owners.iter().any(|owner| owner == uid) {
                        continue;
                    }
                    let tree = self.client.read(&self.pods, &object)?;
                    match claim_of(&object, &tree, uid, selection.matches(&object)?, is_deleting)? {
                        Claim::Leave => {}
                        Claim::Keep => pods.push(tree),
                        Claim::Adopt => {
                            if self.adopt(set, &object).await? {
                                pods.push(tree);
                            }
                        }
                        Claim::Release => self.release(&object, uid).await?,
                    }
                }
            }
        }
        Ok(pods)
    }

    /// Whether the Pod is now controlled by the set.
    async fn adopt(&self, set: &Value, pod: &Object) -> Result<bool, Failure> {
        let reference = controller_reference(set);
        let adopted = std::sync::atomic::AtomicBool::new(false);
        let edit = |old: &Value| {
            let owners = old["metadata"]["ownerReferences"].as_array();
            let is_free = !owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
            let is_free = is_free && old["metadata"]["deletionTimestamp"].is_null();
            adopted.store(is_free, std::sync::atomic::Ordering::Relaxed);
            if !is_free {
                return None;
            }
            let mut new = old.clone();
            let mut owners = owners.map_or_else(Vec::new, |owners| owners.to_vec());
            owners.push(reference.clone());
            new["metadata"]["ownerReferences"] = owners.into();
            Some(new)
        };
        gone_is_fine(self.client.change(&self.pods, None, pod.key(), edit).await)?;
        Ok(adopted.into_inner())
    }

    async fn release(&self, pod: &Object, uid: &str) -> Result<(), Failure> {
        let edit = |old: &Value| {
            let mut new = old.clone();
            let owners = new["metadata"]["ownerReferences"].as_array_mut()?;
            owners.retain(|owner| owner["uid"] != uid);
            Some(new)
        };
        Ok(gone_is_fine(
            self.client.change(&self.pods, None, pod.key(), edit).await,
        )?)
    }
}

fn claim_of(object: &Object, pod: &Value, uid: &str, is_selected: bool, is_deleting: bool) -> Result<Claim, Failure> {
    let metadata = Metadata::of(object)?;
    Ok(match metadata.controller() {
        Some(controller) if controller.uid == uid && is_selected => Claim::Keep,
        Some(controller) if controller.uid == uid && is_deleting => Claim::Leave,
        Some(controller) if controller.uid == uid => Claim::Release,
        Some(_) => Claim::Leave,
        None if is_selected && !is_deleting && pod::is_active(pod) => Claim::Adopt,
        None => Claim::Leave,
    })
}

fn gone_is_fine(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.code == 404 => Ok(()),
        other => other,
    }
}
