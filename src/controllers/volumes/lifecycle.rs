//! The controller of volumes: their phases, and what becomes of one that is given back.

use std::sync::Arc;

use super::bind::Binder;
use super::{CLAIMS, PROVISIONED_BY, VOLUMES, annotation, claim_of, text};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources;
use crate::store::View;
use crate::tree::Value;

pub(in crate::controllers) struct Volumes {
    binder: Binder,
    recorder: Recorder,
}

impl Volumes {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        let binder = Binder {
            client,
            claims: resources::stored(CLAIMS)?.into(),
            volumes: resources::stored(VOLUMES)?.into(),
        };
        Some(Self { binder, recorder })
    }

    /// A volume whose claim is gone, or has another one.
    async fn release(&self, volume: &Value) -> Result<(), Failure> {
        let phase = volume["status"]["phase"].as_str();
        if !matches!(phase, Some("Released" | "Failed")) {
            self.binder.phase_of_volume(volume, "Released", "").await?;
        }
        match volume["spec"]["persistentVolumeReclaimPolicy"].as_str() {
            Some("Delete") => self.delete(volume).await,
            // Nothing here can wipe a volume.
            Some("Recycle") => {
                let text = "No recycler plugin found for the volume!";
                self.fail(volume, "VolumeFailedRecycle", text).await
            }
            _ => Ok(()),
        }
    }

    async fn delete(&self, volume: &Value) -> Result<(), Failure> {
        // Who made it from outside deletes it, too.
        let is_external = annotation(volume, PROVISIONED_BY).is_some_and(|by| !by.starts_with("kubernetes.io/"));
        if is_external || !volume["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let why = match volume["spec"]["hostPath"]["path"].as_str() {
            // As kube-controller-manager, whose own directory it would be. What is on a node stays there.
            Some(path) if path.starts_with("/tmp/") && path.len() > "/tmp/".len() => None,
            Some(path) => Some(format!(
                "host_path deleter only supports /tmp/.+ but received provided {path}"
            )),
            None => Some(format!(
                "error getting deleter volume plugin for volume \"{}\": no deletable volume plugin matched",
                text(volume, "name")
            )),
        };
        if let Some(why) = why {
            return self.fail(volume, "VolumeFailedDelete", &why).await;
        }
        let delete = Delete {
            uid: Some(text(volume, "uid").to_owned()),
            ..Delete::default()
        };
        let deleted = self
            .binder
            .client
            .delete(&self.binder.volumes, text(volume, "name"), &delete)
            .await;
        Ok(gone_is_fine(deleted)?)
    }

    async fn fail(&self, volume: &Value, reason: &'static str, why: &str) -> Result<(), Failure> {
        if self.binder.phase_of_volume(volume, "Failed", why).await? {
            self.recorder.tell(volume, Level::Warning, reason, why.to_owned());
        }
        Ok(())
    }
}

impl Controller for Volumes {
    fn resource(&self) -> &'static str {
        VOLUMES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[CLAIMS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let claim = self.binder.client.read(&self.binder.claims, change.object)?;
        let name = claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty());
        Ok(name.map(Arc::from).into_iter().collect())
    }

    async fn look(&self, name: &str) -> Result<Done, Failure> {
        let (client, view) = (&self.binder.client, self.binder.client.store().view());
        let Some(object) = view.get(VOLUMES, name)? else {
            return Ok(Done::Settled);
        };
        let volume = client.read(&self.binder.volumes, &object)?;
        let reference = &volume["spec"]["claimRef"];
        let uid = reference["uid"].as_str().unwrap_or("");
        let Some(key) = claim_of(&volume).filter(|_| !uid.is_empty()) else {
            // Nobody's, or kept for a claim that does not have it yet.
            self.binder.phase_of_volume(&volume, "Available", "").await?;
            return Ok(Done::Settled);
        };
        let claim = match view.get(CLAIMS, &key)? {
            Some(object) if object.sidecar()?.uid == uid => client.read(&self.binder.claims, &object)?,
            _ => {
                self.release(&volume).await?;
                return Ok(Done::Settled);
            }
        };
        match claim["spec"]["volumeName"].as_str().unwrap_or("") {
            // Who looks at the claim completes it.
            "" => {}
            wanted if wanted == name => drop(self.binder.phase_of_volume(&volume, "Bound", "").await?),
            _ => {
                let is_of_no_use = annotation(&volume, PROVISIONED_BY).is_some()
                    && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
                if is_of_no_use {
                    self.release(&volume).await?;
                } else {
                    self.binder.unbind(&volume).await?;
                }
            }
        }
        Ok(Done::Settled)
    }
}
