//! ResourceClaims of Pods: made of templates, free again when their Pods are done.

use std::sync::Arc;

use super::claim::gone_is_fine;
use super::event::{Level, Recorder};
use super::failure::{Failure, is_terminating};
use super::metadata::{controller_reference, is_same};
use super::pod;
use super::queue::Done;
use super::runtime::{Change, Controller};
use crate::api::{Client, Delete};
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::{Value, json};

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims.resource.k8s.io";
const TEMPLATES: &str = "resourceclaimtemplates.resource.k8s.io";
/// On a claim that was made for a Pod: the name by which the Pod asks for it.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// On a claim that has devices.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

pub(super) struct ResourceClaims {
    client: Client,
    recorder: Recorder,
    pods: ResourceRef,
    claims: ResourceRef,
    templates: ResourceRef,
}

impl ResourceClaims {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            pods: resources::stored(PODS)?.into(),
            claims: resources::stored(CLAIMS)?.into(),
            templates: resources::stored(TEMPLATES)?.into(),
        })
    }

    fn list(&self, view: &Arc<View>, namespace: Option<&str>, selection: &Selection) -> Result<Vec<Value>, Failure> {
        let range = Range {
            namespace: namespace.map(str::to_owned),
            after: None,
        };
        let mut claims = Vec::new();
        let mut listing = view.list(CLAIMS, range, selection);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                claims.push(self.client.read(&self.claims, &object)?);
            }
        }
        Ok(claims)
    }

    /// Sees to it that a Pod's claims are there, and tells it their names.
    async fn make(&self, view: &Arc<View>, key: &str, pod: &Value) -> Result<(), Failure> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("");
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(
                pod["metadata"]["uid"].as_str().unwrap_or("").to_owned(),
            )],
        };
        let own = self.list(view, Some(namespace), &owned)?;
        let mut names = Vec::new();
        for asked in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
            let (Some(name), Some(template)) = (asked["name"].as_str(), asked["resourceClaimTemplateName"].as_str())
            else {
                continue;
            };
            let is_it = |claim: &&Value| claim["metadata"]["annotations"][POD_CLAIM] == name;
            let claim = match own.iter().find(is_it) {
                Some(claim) => claim.clone(),
                None => match self.of_template(view, pod, name, template).await? {
                    Some(claim) => claim,
                    None => return Ok(()),
                },
            };
            names.push(json!({"name": name, "resourceClaimName": claim["metadata"]["name"].as_str()}));
        }
        if names.is_empty() {
            return Ok(());
        }
        let edit = |old: &Value| {
            let told = &old["status"]["resourceClaimStatuses"];
            let is_told = told.as_array().is_some_and(|told| told.as_slice() == names);
            (is_same(old, pod) && !is_told).then(|| {
                let mut new = old.clone();
                new["status"]["resourceClaimStatuses"] = names.clone().into();
                new
            })
        };
        Ok(gone_is_fine(
            self.client.change(&self.pods, Some("status"), key, edit).await,
        )?)
    }

    async fn of_template(
        &self,
        view: &View,
        pod: &Value,
        name: &str,
        template: &str,
    ) -> Result<Option<Value>, Failure> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("");
        let refused = |why: String| {
            let told = format!("PodResourceClaim {name}: {why}");
            self.recorder
                .tell(pod, Level::Warning, "FailedResourceClaimCreation", told);
        };
        let Some(found) = view.get(TEMPLATES, &self.templates.key(Some(namespace), template))? else {
            refused(format!(
                "resource claim template \"{template}\": resourceclaimtemplate.resource.k8s.io \"{template}\" not found"
            ));
            return Ok(None);
        };
        let template = self.client.read(&self.templates, &found)?["spec"].clone();
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or("");
        let mut claim = json!({"metadata": {"generateName": format!("{pod_name}-{name}-"), "namespace": namespace}});
        for field in ["labels", "annotations"] {
            if !template["metadata"][field].is_null() {
                claim["metadata"][field] = template["metadata"][field].clone();
            }
        }
        claim["metadata"]["annotations"][POD_CLAIM] = name.into();
        claim["metadata"]["ownerReferences"] = vec![controller_reference(pod)].into();
        claim["spec"] = template["spec"].clone();
        match self.client.create(&self.claims, Some(namespace), claim).await {
            Ok(made) => Ok(Some(made)),
            Err(status) if is_terminating(&status) => Ok(None),
            Err(status) => {
                refused(format!("create: {}", status.message));
                Err(status.into())
            }
        }
    }

    /// Frees what was kept for a Pod that is done or gone. `uid`: the Pod's, if it is still there.
    async fn free(&self, view: &Arc<View>, key: &str, uid: Option<&str>) -> Result<(), Failure> {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        for claim in self.list(view, Some(namespace), &Selection::all())? {
            let claim_name = claim["metadata"]["name"].as_str().unwrap_or("");
            let claim_key = self.claims.key(Some(namespace), claim_name);
            let is_theirs = |user: &Value| user["resource"] == "pods" && user["name"] == name;
            let users = claim["status"]["reservedFor"].as_array();
            if users.is_some_and(|users| users.iter().any(is_theirs)) {
                let edit = |old: &Value| {
                    let mut new = old.clone();
                    let users = new["status"].get_mut("reservedFor")?.as_array_mut()?;
                    users.retain(|user| !is_theirs(user));
                    if users.is_empty() {
                        let status = new["status"].as_object_mut()?;
                        status.remove("reservedFor");
                        // Devices that nobody uses are free.
                        status.remove("allocation");
                    }
                    Some(new)
                };
                gone_is_fine(self.client.change(&self.claims, Some("status"), &claim_key, edit).await)?;
                let unkept = |old: &Value| {
                    let is_free = old["status"]["allocation"].is_null();
                    let mut new = old.clone();
                    let finalizers = new["metadata"].get_mut("finalizers")?.as_array_mut()?;
                    finalizers.retain(|finalizer| finalizer != FINALIZER);
                    is_free.then_some(new)
                };
                gone_is_fine(self.client.change(&self.claims, None, &claim_key, unkept).await)?;
            }
            // One that was made for a Pod that is done is of no more use; with one that is gone it goes by itself.
            let owners = claim["metadata"]["ownerReferences"].as_array();
            let is_owned = uid.is_some_and(|uid| {
                let mut owners = owners.into_iter().flatten();
                owners.any(|owner| owner["uid"] == uid && owner["controller"] == true)
            });
            if is_owned && claim["metadata"]["deletionTimestamp"].is_null() {
                let delete = Delete {
                    uid: claim["metadata"]["uid"].as_str().map(str::to_owned),
                    ..Delete::default()
                };
                gone_is_fine(self.client.delete(&self.claims, &claim_key, &delete).await)?;
            }
        }
        Ok(())
    }
}

impl Controller for ResourceClaims {
    fn resource(&self) -> &'static str {
        PODS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[TEMPLATES]
    }

    /// Pods that have a node have their claims; of those that are done the claims tell.
    fn begins_with(&self) -> Selection {
        Selection {
            requirements: vec![Requirement::FieldIs {
                name: "spec.nodeName".to_owned(),
                value: String::new(),
            }],
        }
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let mut keys: Vec<Arc<str>> = Vec::new();
        for claim in self.list(view, None, &Selection::all())? {
            let namespace = claim["metadata"]["namespace"].as_str().unwrap_or("");
            let users = claim["status"]["reservedFor"].as_array();
            let owners = claim["metadata"]["ownerReferences"].as_array();
            for user in users.into_iter().flatten().chain(owners.into_iter().flatten()) {
                if let Some(name) = user["name"].as_str() {
                    keys.push(format!("{namespace}/{name}").into());
                }
            }
        }
        Ok(keys)
    }

    fn is_about(&self, pod: &Object) -> Result<bool, Damaged> {
        let json = std::str::from_utf8(pod.json()?).unwrap_or("");
        Ok(json.contains("\"resourceClaims\":["))
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        // A template that Pods may wait for.
        if change.previous.is_some() || change.is_gone {
            return Ok(Vec::new());
        }
        let range = Range {
            namespace: change.object.namespace().map(str::to_owned),
            after: None,
        };
        let mut keys = Vec::new();
        let mut listing = view.list(PODS, range, &self.begins_with());
        while let Some(run) = listing.next(RUN_MAX)? {
            for pod in run.objects() {
                if self.is_about(&pod)? {
                    keys.push(pod.key().into());
                }
            }
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(PODS, key)? else {
            self.free(&view, key, None).await?;
            return Ok(Done::Settled);
        };
        let pod = self.client.read(&self.pods, &object)?;
        if pod::is_over(&pod) {
            self.free(&view, key, pod["metadata"]["uid"].as_str()).await?;
        } else if pod["metadata"]["deletionTimestamp"].is_null() {
            self.make(&view, key, &pod).await?;
        }
        Ok(Done::Settled)
    }
}
