//! Writes both halves of a binding: the volume first, then its phase, then the claim and its phase. Whoever is interrupted begins anew
//! and finds what was written.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, is_for, text};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{is_same, key_of};
use crate::resources::ResourceRef;
use crate::tree::{Value, json};

/// What writes bindings.
#[derive(Debug)]
pub(super) struct Binder {
    pub(super) client: Client,
    pub(super) claims: ResourceRef,
    pub(super) volumes: ResourceRef,
}

impl Binder {
    /// Binds a volume and a claim. `false`: somebody else was faster, and all is to be looked at anew.
    pub(super) async fn bind(&self, volume: &Value, claim: &Value) -> Result<bool, Failure> {
        let is_bound = AtomicBool::new(false);
        let take = |old: &Value| {
            let is_free = is_same(old, volume) && (old["spec"]["claimRef"].is_null() || is_for(old, claim));
            is_bound.store(is_free, Ordering::Relaxed);
            is_free.then(|| taken(old, claim))
        };
        gone_is_fine(
            self.client
                .change(&self.volumes, None, text(volume, "name"), take)
                .await,
        )?;
        if !is_bound.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.phase_of_volume(volume, "Bound", "").await?;
        let key = key_of(claim);
        is_bound.store(false, Ordering::Relaxed);
        let name = text(volume, "name");
        let complete = |old: &Value| {
            let wanted = old["spec"]["volumeName"].as_str().unwrap_or("");
            let is_free = is_same(old, claim) && (wanted.is_empty() || wanted == name);
            is_bound.store(is_free, Ordering::Relaxed);
            is_free.then(|| completed(old, name))
        };
        gone_is_fine(self.client.change(&self.claims, None, &key, complete).await)?;
        if !is_bound.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.phase_of_claim(claim, "Bound", Some(volume)).await?;
        Ok(true)
    }

    /// Takes a volume back from a claim that has another one.
    pub(super) async fn unbind(&self, volume: &Value) -> Result<(), Failure> {
        let edit = |old: &Value| {
            let mut new = old.clone();
            let is_ours = !old["metadata"]["annotations"][BOUND_BY_CONTROLLER].is_null();
            let field = if is_ours {
                new["spec"].as_object_mut()?
            } else {
                new["spec"]["claimRef"].as_object_mut()?
            };
            field.remove(if is_ours { "claimRef" } else { "uid" });
            if let Some(annotations) = new["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(BOUND_BY_CONTROLLER);
            }
            Some(new)
        };
        gone_is_fine(
            self.client
                .change(&self.volumes, None, text(volume, "name"), edit)
                .await,
        )?;
        self.phase_of_volume(volume, "Available", "").await?;
        Ok(())
    }

    /// Whether the phase is another one than before.
    pub(super) async fn phase_of_volume(&self, volume: &Value, phase: &str, message: &str) -> Result<bool, Failure> {
        let is_new = AtomicBool::new(false);
        let edit = |old: &Value| {
            let is_other = is_same(old, volume) && old["status"]["phase"] != phase;
            is_new.store(is_other, Ordering::Relaxed);
            is_other.then(|| {
                let mut new = old.clone();
                new["status"]["phase"] = phase.into();
                match (message, new["status"].as_object_mut()) {
                    ("", Some(status)) => drop(status.remove("message")),
                    _ => new["status"]["message"] = message.into(),
                }
                new
            })
        };
        gone_is_fine(
            self.client
                .change(&self.volumes, Some("status"), text(volume, "name"), edit)
                .await,
        )?;
        Ok(is_new.into_inner())
    }

    /// Whether the phase is another one than before.
    pub(super) async fn phase_of_claim(
        &self,
        claim: &Value,
        phase: &str,
        volume: Option<&Value>,
    ) -> Result<bool, Failure> {
        let is_new = AtomicBool::new(false);
        let edit = |old: &Value| {
            if !is_same(old, claim) {
                return None;
            }
            let is_other = old["status"]["phase"] != phase;
            is_new.store(is_other, Ordering::Relaxed);
            let mut new = old.clone();
            new["status"]["phase"] = phase.into();
            if let Some(volume) = volume {
                new["status"]["accessModes"] = volume["spec"]["accessModes"].clone();
                // Of one that was bound before, who resizes says how large it is.
                if is_other || old["status"]["capacity"]["storage"].is_null() {
                    new["status"]["capacity"] = volume["spec"]["capacity"].clone();
                }
            } else if let Some(status) = new["status"].as_object_mut() {
                status.remove("accessModes");
                status.remove("capacity");
            }
            (new["status"] != old["status"]).then_some(new)
        };
        gone_is_fine(
            self.client
                .change(&self.claims, Some("status"), &key_of(claim), edit)
                .await,
        )?;
        Ok(is_new.into_inner())
    }
}

/// A volume that is the claim's.
fn taken(volume: &Value, claim: &Value) -> Value {
    let mut new = volume.clone();
    let reference = &volume["spec"]["claimRef"];
    let was_for_it = is_for(volume, claim);
    if !was_for_it || reference["uid"] != claim["metadata"]["uid"] {
        new["spec"]["claimRef"] = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": text(claim, "namespace"),
            "name": text(claim, "name"),
            "uid": text(claim, "uid"),
            "resourceVersion": text(claim, "resourceVersion"),
        });
    }
    if !was_for_it {
        new["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    new
}

/// A claim that has the volume of this name.
fn completed(claim: &Value, volume: &str) -> Value {
    let mut new = claim.clone();
    if claim["spec"]["volumeName"] != volume {
        new["spec"]["volumeName"] = volume.into();
        new["metadata"]["annotations"][BOUND_BY_CONTROLLER] = "yes".into();
    }
    if new["metadata"]["annotations"][BIND_COMPLETED].is_null() {
        new["metadata"]["annotations"][BIND_COMPLETED] = "yes".into();
    }
    new
}
