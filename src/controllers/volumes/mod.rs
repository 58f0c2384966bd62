//! Persistent volumes: claims get volumes, volumes are given back, and neither goes while it is used.
//!
//! | file | what it does |
//! | --- | --- |
//! | `matching` | which volume suits a claim |
//! | `candidates` | volumes that nobody has, and claims that wait for one |
//! | `bind` | writes both halves of a binding |
//! | `claims` | the controller of claims: finds a volume, or asks for one to be made |
//! | `lifecycle` | the controller of volumes: phases, and what becomes of one that is given back |
//! | `protect` | the controllers that keep what is used from going |
//! | `ephemeral` | the controller that makes the claims of Pods' ephemeral volumes |
//! | `hollow` | makes volumes for simulated nodes |

mod bind;
mod candidates;
mod claims;
mod ephemeral;
mod hollow;
mod lifecycle;
mod matching;
mod protect;

pub(super) use claims::Claims;
pub(super) use ephemeral::EphemeralVolumes;
pub(super) use hollow::HollowVolumes;
pub(super) use lifecycle::Volumes;
pub(super) use protect::{ClaimProtection, VolumeProtection};

use std::sync::Arc;

use crate::tree::Value;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const CLASSES: &str = "storageclasses.storage.k8s.io";
const PODS: &str = "pods";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// On a claim whose binding was complete once.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On either half of a binding that the controller chose.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: what made it.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: what is to make a volume for it.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim that waits for its first Pod: where that is to run.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The class of a claim or a volume, as it was said once.
const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

/// The class of a claim or a volume; `""` for none.
fn class_of(object: &Value) -> &str {
    annotation(object, CLASS_BETA).unwrap_or_else(|| object["spec"]["storageClassName"].as_str().unwrap_or(""))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

/// The key of the claim that a volume names.
fn claim_of(volume: &Value) -> Option<Arc<str>> {
    let claim = &volume["spec"]["claimRef"];
    let (namespace, name) = (claim["namespace"].as_str()?, claim["name"].as_str()?);
    Some(format!("{namespace}/{name}").into())
}

/// Whether a volume is bound to a claim, or kept for it.
fn is_for(volume: &Value, claim: &Value) -> bool {
    let reference = &volume["spec"]["claimRef"];
    let is_uid = |uid: &str| uid.is_empty() || uid == text(claim, "uid");
    !reference.is_null()
        && reference["name"] == claim["metadata"]["name"]
        && reference["namespace"] == claim["metadata"]["namespace"]
        && is_uid(reference["uid"].as_str().unwrap_or(""))
}
