//! Makes volumes for simulated nodes: of a StorageClass whose provisioner is `hollow.flatkube.io`. There is nothing behind them; they
//! let what claims storage run where nothing is stored.

use std::sync::Arc;

use super::matching::requested;
use super::{CLAIMS, CLASSES, PROVISIONED_BY, PROVISIONER, SELECTED_NODE, VOLUMES, annotation, class_of, text};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{is_same, key_of};
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::quantity::Quantity;
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::{Value, json};

/// The provisioner that a StorageClass names.
pub(super) const PROVISIONER_NAME: &str = "hollow.flatkube.io";

pub(in crate::controllers) struct HollowVolumes {
    client: Client,
    recorder: Recorder,
    claims: ResourceRef,
    volumes: ResourceRef,
    classes: ResourceRef,
}

impl HollowVolumes {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            claims: resources::stored(CLAIMS)?.into(),
            volumes: resources::stored(VOLUMES)?.into(),
            classes: resources::stored(CLASSES)?.into(),
        })
    }

    async fn make(&self, view: &View, claim: &Value) -> Result<(), Failure> {
        let Some(class) = view.get(CLASSES, class_of(claim))? else {
            return Ok(());
        };
        let class = self.client.read(&self.classes, &class)?;
        let waits = class["volumeBindingMode"] == "WaitForFirstConsumer" && annotation(claim, SELECTED_NODE).is_none();
        if waits || class["provisioner"] != PROVISIONER_NAME {
            return Ok(());
        }
        let name = format!("pvc-{}", text(claim, "uid"));
        if view.get(VOLUMES, &name)?.is_some() {
            return Ok(());
        }
        let mut volume = json!({
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER_NAME}},
            "spec": {
                "csi": {"driver": PROVISIONER_NAME, "volumeHandle": name},
                "storageClassName": class_of(claim),
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": text(claim, "namespace"),
                    "name": text(claim, "name"),
                    "uid": text(claim, "uid"),
                    "resourceVersion": text(claim, "resourceVersion"),
                },
            },
        });
        let spec = &mut volume["spec"];
        spec["capacity"]["storage"] = claim["spec"]["resources"]["requests"]["storage"].clone();
        spec["accessModes"] = claim["spec"]["accessModes"].clone();
        for (field, value) in [
            ("volumeMode", &claim["spec"]["volumeMode"]),
            ("persistentVolumeReclaimPolicy", &class["reclaimPolicy"]),
            ("mountOptions", &class["mountOptions"]),
        ] {
            if !value.is_null() {
                spec[field] = value.clone();
            }
        }
        match self.client.create(&self.volumes, None, volume).await {
            Ok(_) => {
                let told = format!("Successfully provisioned volume {name}");
                self.recorder.tell(claim, Level::Normal, "ProvisioningSucceeded", told);
                Ok(())
            }
            Err(status) if status.code == 409 => Ok(()),
            Err(status) => {
                let told = format!(
                    "failed to provision volume with StorageClass \"{}\": {}",
                    class_of(claim),
                    status.message
                );
                self.recorder.tell(claim, Level::Warning, "ProvisioningFailed", told);
                Err(status.into())
            }
        }
    }

    /// Gives a claim the size that it asks for.
    async fn grow(&self, view: &View, claim: &Value) -> Result<(), Failure> {
        let nanos = |quantity: &Value| quantity.as_str().and_then(Quantity::parse).map_or(0, Quantity::nanos);
        let name = claim["spec"]["volumeName"].as_str().unwrap_or("");
        if requested(claim) <= nanos(&claim["status"]["capacity"]["storage"]) || claim["status"]["phase"] != "Bound" {
            return Ok(());
        }
        let Some(object) = view.get(VOLUMES, name)? else {
            return Ok(());
        };
        let volume = self.client.read(&self.volumes, &object)?;
        if annotation(&volume, PROVISIONED_BY) != Some(PROVISIONER_NAME) {
            return Ok(());
        }
        let size = claim["spec"]["resources"]["requests"]["storage"].clone();
        let grown = |old: &Value| {
            is_same(old, &volume).then(|| {
                let mut new = old.clone();
                new["spec"]["capacity"]["storage"] = size.clone();
                new
            })
        };
        gone_is_fine(self.client.change(&self.volumes, None, name, grown).await)?;
        let told = |old: &Value| {
            is_same(old, claim).then(|| {
                let mut new = old.clone();
                new["status"]["capacity"]["storage"] = size.clone();
                new
            })
        };
        gone_is_fine(
            self.client
                .change(&self.claims, Some("status"), &key_of(claim), told)
                .await,
        )?;
        let text = "Resize volume succeeded".to_owned();
        self.recorder.tell(claim, Level::Normal, "VolumeResizeSuccessful", text);
        Ok(())
    }

    /// Deletes a volume that was given back, if that is what becomes of it.
    async fn give_up(&self, view: &View, name: &str) -> Result<(), Failure> {
        let Some(object) = view.get(VOLUMES, name)? else {
            return Ok(());
        };
        let volume = self.client.read(&self.volumes, &object)?;
        let is_given_back = annotation(&volume, PROVISIONED_BY) == Some(PROVISIONER_NAME)
            && volume["status"]["phase"] == "Released"
            && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
            && volume["metadata"]["deletionTimestamp"].is_null();
        if is_given_back {
            let delete = Delete {
                uid: Some(text(&volume, "uid").to_owned()),
                ..Delete::default()
            };
            gone_is_fine(self.client.delete(&self.volumes, name, &delete).await)?;
        }
        Ok(())
    }
}

impl Controller for HollowVolumes {
    fn resource(&self) -> &'static str {
        CLAIMS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[VOLUMES]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        // A key without a namespace is a volume's.
        Ok(if change.is_gone {
            Vec::new()
        } else {
            vec![change.object.key().into()]
        })
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let mut listing = view.list(VOLUMES, crate::store::Range::default(), &crate::store::Selection::all());
        let mut names = Vec::new();
        while let Some(run) = listing.next(super::RUN_MAX)? {
            names.extend(run.objects().map(|object| Arc::from(object.key())));
        }
        Ok(names)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        if !key.contains('/') {
            self.give_up(&view, key).await?;
            return Ok(Done::Settled);
        }
        let Some(object) = view.get(CLAIMS, key)? else {
            return Ok(Done::Settled);
        };
        let claim = self.client.read(&self.claims, &object)?;
        if annotation(&claim, PROVISIONER) != Some(PROVISIONER_NAME)
            || !claim["metadata"]["deletionTimestamp"].is_null()
        {
            return Ok(Done::Settled);
        }
        if claim["spec"]["volumeName"].as_str().unwrap_or("").is_empty() {
            self.make(&view, &claim).await?;
        } else {
            self.grow(&view, &claim).await?;
        }
        Ok(Done::Settled)
    }
}
