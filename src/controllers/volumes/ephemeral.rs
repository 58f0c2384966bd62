//! Makes the claims of Pods' ephemeral volumes: each is the Pod's, and goes with it.

use super::{CLAIMS, PODS, text};
use crate::api::Client;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::{Failure, is_terminating};
use crate::controllers::metadata::controller_reference;
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Requirement, Selection, View};
use crate::tree::{Value, json};

pub(in crate::controllers) struct EphemeralVolumes {
    client: Client,
    recorder: Recorder,
    claims: ResourceRef,
    pods: ResourceRef,
}

impl EphemeralVolumes {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            claims: resources::stored(CLAIMS)?.into(),
            pods: resources::stored(PODS)?.into(),
        })
    }

    async fn make(&self, view: &View, pod: &Value, volume: &Value) -> Result<(), Failure> {
        let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
        let volume_name = volume["name"].as_str().unwrap_or("");
        let claim_name = format!("{name}-{volume_name}");
        let refused = |why: String| {
            let told = format!("ephemeral volume {volume_name}: {why}");
            self.recorder.tell(pod, Level::Warning, "FailedBinding", told);
        };
        if let Some(claim) = view.get(CLAIMS, &self.claims.key(Some(namespace), &claim_name))? {
            if !claim.sidecar()?.owners.iter().any(|owner| owner == text(pod, "uid")) {
                refused(format!(
                    "PVC {namespace}/{claim_name} was not created for pod {namespace}/{name} (pod is not owner)"
                ));
            }
            return Ok(());
        }
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let mut claim = json!({"metadata": {"name": claim_name, "namespace": namespace}});
        claim["metadata"]["ownerReferences"] = vec![controller_reference(pod)].into();
        for field in ["annotations", "labels"] {
            if !template["metadata"][field].is_null() {
                claim["metadata"][field] = template["metadata"][field].clone();
            }
        }
        claim["spec"] = template["spec"].clone();
        match self.client.create(&self.claims, Some(namespace), claim).await {
            Err(status) if is_terminating(&status) => Ok(()),
            Err(status) => {
                refused(format!("create PVC {claim_name}: {}", status.message));
                Err(status.into())
            }
            Ok(_) => Ok(()),
        }
    }
}

impl Controller for EphemeralVolumes {
    fn resource(&self) -> &'static str {
        PODS
    }

    /// A Pod that was given a node had its claims before.
    fn begins_with(&self) -> Selection {
        Selection {
            requirements: vec![Requirement::FieldIs {
                name: "spec.nodeName".to_owned(),
                value: String::new(),
            }],
        }
    }

    fn is_about(&self, pod: &Object) -> Result<bool, Damaged> {
        let json = std::str::from_utf8(pod.json()?).unwrap_or("");
        Ok(json.contains("\"ephemeral\":{"))
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(PODS, key)? else {
            return Ok(Done::Settled);
        };
        let pod = self.client.read(&self.pods, &object)?;
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Done::Settled);
        }
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            if !volume["ephemeral"].is_null() {
                self.make(&view, &pod, volume).await?;
            }
        }
        Ok(Done::Settled)
    }
}
