//! What becomes of the claims of a Pod when its set is scaled down or deleted: the garbage collector sees to that, by the owners that
//! claims are given here.
//!
//! Rules: KEP-1847, <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention>.

use super::identity;
use crate::controllers::metadata::{controller_reference, name_of};
use crate::tree::{Value, json};

/// Of whom claims may be, beside what the policy says.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a> {
    /// With its kind and apiVersion.
    pub(super) set: &'a Value,
    pub(super) pod: &'a Value,
}

/// Whose a claim should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Nobody,
    Set,
    Pod,
}

fn is_deleted(set: &Value, when: &str) -> bool {
    set["spec"]["persistentVolumeClaimRetentionPolicy"][when] == "Delete"
}

/// Whether claims of Pods that are scaled away go with them.
pub(super) fn deletes_scaled(set: &Value) -> bool {
    is_deleted(set, "whenScaled")
}

/// Whether a claim is still that of an earlier Pod of the same name, with which it will go.
pub(super) fn is_stale(claim: &Value, pod_name: &str) -> bool {
    // A Pod that is still to be made has no UID that could be the right one.
    owners_of(claim).any(|owner| refers(owner, "v1", "Pod", pod_name))
}

fn owners_of(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn refers(owner: &Value, api_version: &str, kind: &str, name: &str) -> bool {
    owner["apiVersion"] == *api_version && owner["kind"] == *kind && owner["name"] == *name
}

impl Owners<'_> {
    fn uid(object: &Value) -> &Value {
        &object["metadata"]["uid"]
    }

    fn is_set(&self, owner: &Value) -> bool {
        refers(owner, "apps/v1", "StatefulSet", name_of(self.set))
    }

    fn is_pod(&self, owner: &Value) -> bool {
        refers(owner, "v1", "Pod", name_of(self.pod))
    }

    fn wanted(&self) -> Owner {
        let is_scaled_away =
            identity::ordinal(self.set, self.pod).is_none_or(|ordinal| !identity::is_in_range(self.set, ordinal));
        match (is_deleted(self.set, "whenScaled"), is_deleted(self.set, "whenDeleted")) {
            (true, _) if is_scaled_away => Owner::Pod,
            (_, true) => Owner::Set,
            _ => Owner::Nobody,
        }
    }

    /// Whether somebody else controls a claim, so that the policy cannot.
    pub(super) fn has_other_controller(&self, claim: &Value) -> bool {
        if !is_deleted(self.set, "whenScaled") && !is_deleted(self.set, "whenDeleted") {
            return false;
        }
        owners_of(claim).any(|owner| {
            if self.is_set(owner) {
                owner["uid"] != *Self::uid(self.set)
            } else if self.is_pod(owner) {
                owner["uid"] != *Self::uid(self.pod)
            } else {
                owner["controller"] == true
            }
        })
    }

    /// The owners that a claim should have; `None` when it has them, and when it is left alone because an earlier set or Pod of that name
    /// is among them.
    pub(super) fn corrected(&self, claim: &Value) -> Option<Value> {
        let is_stale = |owner: &Value| {
            self.is_set(owner) && owner["uid"] != *Self::uid(self.set)
                || self.is_pod(owner) && owner["uid"] != *Self::uid(self.pod)
        };
        if owners_of(claim).any(is_stale) {
            return None;
        }
        let mut owners: Vec<Value> = owners_of(claim)
            .filter(|owner| !self.is_set(owner) && !self.is_pod(owner))
            .cloned()
            .collect();
        if !self.has_other_controller(claim) {
            match self.wanted() {
                Owner::Nobody => {}
                Owner::Set => owners.push(controller_reference(self.set)),
                Owner::Pod => owners.push(json!({"apiVersion": "v1", "kind": "Pod", "name": name_of(self.pod),
                    "uid": Self::uid(self.pod).clone(), "controller": true, "blockOwnerDeletion": true})),
            }
        }
        // In whatever order they stand.
        let is_same = owners.len() == owners_of(claim).count()
            && owners
                .iter()
                .all(|owner| owners_of(claim).any(|other| is_same_owner(owner, other)));
        (!is_same).then(|| owners.into())
    }
}

fn is_same_owner(one: &Value, other: &Value) -> bool {
    let controls = |owner: &Value| owner["controller"] == true;
    one["uid"] == other["uid"] && controls(one) == controls(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(scaled: &str, deleted: &str) -> Value {
        json!({"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "web", "uid": "set"},
            "spec": {"replicas": 1, "persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted}}})
    }

    fn pod(ordinal: i64) -> Value {
        json!({"metadata": {"name": format!("web-{ordinal}"), "uid": "pod"}})
    }

    fn claim(owners: &[Value]) -> Value {
        json!({"metadata": {"ownerReferences": owners.to_vec()}})
    }

    fn corrected(set: &Value, ordinal: i64, owners: &[Value]) -> Option<Vec<String>> {
        let pod = pod(ordinal);
        let owners = Owners { set, pod: &pod }.corrected(&claim(owners))?;
        let owners = owners.as_array()?.iter();
        Some(owners.map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn claims_are_of_whom_they_go_with() {
        let of_set = controller_reference(&set("Delete", "Delete"));
        let of_pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-5", "uid": "pod", "controller": true});
        let own = |uid: &str| Some(vec![uid.to_owned()]);
        for (scaled, deleted, inside, outside) in [
            ("Retain", "Retain", None, None),
            ("Retain", "Delete", own("set"), own("set")),
            ("Delete", "Retain", None, own("pod")),
            ("Delete", "Delete", own("set"), own("pod")),
        ] {
            let set = set(scaled, deleted);
            assert_eq!(corrected(&set, 0, &[]), inside, "{scaled} {deleted}");
            assert_eq!(corrected(&set, 5, &[]), outside, "{scaled} {deleted}");
        }
        let both = set("Delete", "Delete");
        assert_eq!(corrected(&both, 5, std::slice::from_ref(&of_set)), own("pod"));
        assert_eq!(corrected(&both, 5, std::slice::from_ref(&of_pod)), None);
        assert_eq!(corrected(&both, 0, std::slice::from_ref(&of_set)), None);
        assert_eq!(corrected(&set("Retain", "Retain"), 0, &[of_set]), Some(vec![]));
    }

    #[test]
    fn claims_of_somebody_else_are_left_alone() {
        let both = set("Delete", "Delete");
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c", "controller": true});
        assert_eq!(corrected(&both, 0, std::slice::from_ref(&other)), None);
        assert_eq!(
            corrected(&both, 0, &[other, controller_reference(&both)]),
            Some(vec!["c".to_owned()]),
            "one controller is enough"
        );
        let earlier = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-5", "uid": "earlier", "controller": true});
        assert_eq!(corrected(&both, 5, std::slice::from_ref(&earlier)), None);
        assert!(is_stale(&claim(std::slice::from_ref(&earlier)), "web-5") && !is_stale(&claim(&[earlier]), "web-4"));
    }
}
