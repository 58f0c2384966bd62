//! Keeps what is used from going: a claim that a Pod on a node has, and a volume that is bound.

use std::sync::Arc;

use super::{CLAIMS, PODS, RUN_MAX, VOLUMES};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::Metadata;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Object, Range, Requirement, Selection, View};
use crate::tree::{List, Value};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Whether a Pod has the claim of this name as a volume; one that was made for it counts, too.
pub(super) fn names_claim(pod: &Value, claim: &str) -> bool {
    claims_of(pod).any(|name| name == claim)
}

fn claims_of(pod: &Value) -> impl Iterator<Item = String> {
    let volumes = pod["spec"]["volumes"].as_array();
    volumes.into_iter().flatten().filter_map(|volume| {
        if let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return Some(name.to_owned());
        }
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        (!volume["ephemeral"].is_null())
            .then(|| format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"])))
    })
}

/// Puts a finalizer on what has none, and takes it off what is being deleted.
async fn set(
    client: &Client,
    resource: &ResourceRef,
    key: &str,
    finalizer: &str,
    is_kept: bool,
) -> Result<(), Failure> {
    let edit = |old: &Value| {
        let is_deleting = !old["metadata"]["deletionTimestamp"].is_null();
        if is_deleting == is_kept {
            return None;
        }
        let mut new = old.clone();
        match new["metadata"].get_mut("finalizers").and_then(Value::as_array_mut) {
            Some(finalizers) if is_kept => finalizers.push(finalizer.into()),
            Some(finalizers) => finalizers.retain(|other| other != finalizer),
            None if is_kept => {
                let finalizers: List = std::iter::once(Value::from(finalizer)).collect();
                new["metadata"]["finalizers"] = finalizers.into();
            }
            None => return None,
        }
        Some(new)
    };
    Ok(gone_is_fine(client.change(resource, None, key, edit).await)?)
}

/// Keeps claims that Pods have.
pub(in crate::controllers) struct ClaimProtection {
    client: Client,
    claims: ResourceRef,
    pods: ResourceRef,
}

impl ClaimProtection {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            claims: resources::stored(CLAIMS)?.into(),
            pods: resources::stored(PODS)?.into(),
        })
    }

    /// Whether a Pod that was given a node has the claim. One that has none cannot have begun to use it, and will not.
    fn is_used(&self, view: &Arc<View>, claim: &Object) -> Result<bool, Failure> {
        let range = Range {
            namespace: claim.namespace().map(str::to_owned),
            after: None,
        };
        let on_nodes = Selection {
            requirements: vec![Requirement::FieldIsNot {
                name: "spec.nodeName".to_owned(),
                value: String::new(),
            }],
        };
        let mut listing = view.list(PODS, range, &on_nodes);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                if names_claim(&self.client.read(&self.pods, &object)?, claim.name()) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl Controller for ClaimProtection {
    fn resource(&self) -> &'static str {
        CLAIMS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if !change.is_gone {
            return Ok(Vec::new());
        }
        let pod = self.client.read(&self.pods, change.object)?;
        let namespace = change.object.namespace().unwrap_or("");
        Ok(claims_of(&pod)
            .map(|name| format!("{namespace}/{name}").into())
            .collect())
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(claim) = view.get(CLAIMS, key)? else {
            return Ok(Done::Settled);
        };
        let metadata = Metadata::of(&claim)?;
        let (is_deleting, is_kept) = (metadata.is_deleting(), metadata.has_finalizer(CLAIM_FINALIZER));
        if is_deleting && is_kept && !self.is_used(&view, &claim)? || !is_deleting && !is_kept {
            set(&self.client, &self.claims, key, CLAIM_FINALIZER, !is_deleting).await?;
        }
        Ok(Done::Settled)
    }
}

/// Keeps volumes that are bound.
pub(in crate::controllers) struct VolumeProtection {
    client: Client,
    volumes: ResourceRef,
}

impl VolumeProtection {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        let volumes = resources::stored(VOLUMES)?.into();
        Some(Self { client, volumes })
    }
}

impl Controller for VolumeProtection {
    fn resource(&self) -> &'static str {
        VOLUMES
    }

    async fn look(&self, name: &str) -> Result<Done, Failure> {
        let Some(volume) = self.client.store().view().get(VOLUMES, name)? else {
            return Ok(Done::Settled);
        };
        let metadata = Metadata::of(&volume)?;
        let (is_deleting, is_kept) = (metadata.is_deleting(), metadata.has_finalizer(VOLUME_FINALIZER));
        let is_bound =
            || -> Result<bool, Failure> { Ok(self.client.read(&self.volumes, &volume)?["status"]["phase"] == "Bound") };
        if is_deleting && is_kept && !is_bound()? || !is_deleting && !is_kept {
            set(&self.client, &self.volumes, name, VOLUME_FINALIZER, !is_deleting).await?;
        }
        Ok(Done::Settled)
    }
}
