//! The controller of claims: finds a volume for each, or asks for one to be made.

use std::sync::Arc;

use super::bind::Binder;
use super::candidates::Candidates;
use super::matching::{best, mismatch};
use super::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, CLAIMS, CLASS_BETA, CLASSES, PODS, PROVISIONER, PROVISIONER_BETA, RUN_MAX,
    SELECTED_NODE, VOLUMES, annotation, claim_of, class_of, is_for, text,
};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::key_of;
use crate::controllers::pod;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Selection, View};
use crate::tree::Value;

/// The annotation of the class that claims get which name none.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];

pub(in crate::controllers) struct Claims {
    binder: Binder,
    recorder: Recorder,
    classes: ResourceRef,
    pods: ResourceRef,
    candidates: Candidates,
}

impl Claims {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            binder: Binder {
                client,
                claims: resources::stored(CLAIMS)?.into(),
                volumes: resources::stored(VOLUMES)?.into(),
            },
            recorder,
            classes: resources::stored(CLASSES)?.into(),
            pods: resources::stored(PODS)?.into(),
            candidates: Candidates::default(),
        })
    }

    fn client(&self) -> &Client {
        &self.binder.client
    }

    fn volume(&self, view: &View, name: &str) -> Result<Option<Value>, Failure> {
        let object = view.get(VOLUMES, name)?;
        Ok(object
            .map(|object| self.client().read(&self.binder.volumes, &object))
            .transpose()?)
    }

    fn class(&self, view: &View, name: &str) -> Result<Option<Value>, Failure> {
        let object = view.get(CLASSES, name)?;
        Ok(object
            .map(|object| self.client().read(&self.classes, &object))
            .transpose()?)
    }

    async fn bind(&self, volume: &Value, claim: &Value) -> Result<Done, Failure> {
        Ok(if self.binder.bind(volume, claim).await? {
            self.candidates.waits_no_more(&key_of(claim));
            Done::Settled
        } else {
            Done::Again
        })
    }

    /// A claim that was bound once: finds its volume, or is lost.
    async fn bound(&self, view: &View, claim: &Value) -> Result<Done, Failure> {
        let lost = match claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty()) {
            None => (
                "ClaimLost",
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            ),
            Some(name) => match self.volume(view, name)? {
                None => (
                    "ClaimLost",
                    "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
                ),
                Some(volume) => {
                    let reference = &volume["spec"]["claimRef"];
                    if reference.is_null() || reference["uid"] == claim["metadata"]["uid"] {
                        return self.bind(&volume, claim).await;
                    }
                    (
                        "ClaimMisbound",
                        "Two claims are bound to the same volume, this one is bound incorrectly",
                    )
                }
            },
        };
        if self.binder.phase_of_claim(claim, "Lost", None).await? {
            self.recorder.tell(claim, Level::Warning, lost.0, lost.1.to_owned());
        }
        Ok(Done::Settled)
    }

    /// A claim that names the volume that it wants.
    async fn wanting(&self, view: &View, claim: &Value, name: &str) -> Result<Done, Failure> {
        if let Some(volume) = self.volume(view, name)? {
            if is_for(&volume, claim) {
                return self.bind(&volume, claim).await;
            }
            if volume["spec"]["claimRef"].is_null() {
                match mismatch(claim, &volume) {
                    None => return self.bind(&volume, claim).await,
                    Some(why) => {
                        let text = format!("Cannot bind to requested volume \"{name}\": {why}");
                        self.recorder.tell(claim, Level::Warning, "VolumeMismatch", text);
                    }
                }
            } else if annotation(claim, BOUND_BY_CONTROLLER).is_none() {
                let text = format!("volume \"{name}\" already bound to a different claim.");
                self.recorder.tell(claim, Level::Warning, "FailedBinding", text);
            }
        }
        // One of this name that comes brings the claim back.
        self.candidates.wait(class_of(claim), &key_of(claim));
        self.binder.phase_of_claim(claim, "Pending", None).await?;
        Ok(Done::Settled)
    }

    /// A claim that takes any volume that suits.
    async fn searching(&self, view: &Arc<View>, claim: &Value) -> Result<Done, Failure> {
        if let Some(done) = self.assign_class(view, claim).await? {
            return Ok(done);
        }
        let class_name = class_of(claim);
        let class = if class_name.is_empty() {
            None
        } else {
            self.class(view, class_name)?
        };
        let waits = class
            .as_ref()
            .is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
        // First, so that a volume that comes from now on brings the claim back.
        self.candidates.wait(class_name, &key_of(claim));
        let volumes = self.candidates.volumes(self.client(), &self.binder.volumes)?;
        if let Some(volume) = best(claim, &volumes, waits) {
            return self.bind(volume, claim).await;
        }
        if waits && annotation(claim, SELECTED_NODE).is_none() {
            self.tell_what_it_waits_for(view, claim)?;
        } else if !class_name.is_empty() {
            return self.ask_provisioner(claim, class_name, class.as_ref()).await;
        } else {
            let text = "no persistent volumes available for this claim and no storage class is set".to_owned();
            self.recorder.tell(claim, Level::Normal, "FailedBinding", text);
        }
        self.binder.phase_of_claim(claim, "Pending", None).await?;
        Ok(Done::Settled)
    }

    /// Gives a claim that says nothing of a class the default one (KEP-3333).
    async fn assign_class(&self, view: &Arc<View>, claim: &Value) -> Result<Option<Done>, Failure> {
        if !claim["spec"]["storageClassName"].is_null() || annotation(claim, CLASS_BETA).is_some() {
            return Ok(None);
        }
        let mut newest: Option<(String, String)> = None;
        let mut listing = view.list(CLASSES, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let class = self.client().read(&self.classes, &object)?;
                if DEFAULT_CLASS
                    .iter()
                    .any(|name| annotation(&class, name) == Some("true"))
                {
                    // Of several the newest, and of those made in one second the first by name.
                    let made = text(&class, "creationTimestamp").to_owned();
                    if newest.as_ref().is_none_or(|(newest, _)| made > *newest) {
                        newest = Some((made, text(&class, "name").to_owned()));
                    }
                }
            }
        }
        let Some((_, name)) = newest else {
            return Ok(None);
        };
        let edit = |old: &Value| {
            old["spec"]["storageClassName"].is_null().then(|| {
                let mut new = old.clone();
                new["spec"]["storageClassName"] = name.as_str().into();
                new
            })
        };
        let key = key_of(claim);
        gone_is_fine(self.client().change(&self.binder.claims, None, &key, edit).await)?;
        // The change brings it back.
        Ok(Some(Done::Settled))
    }

    fn tell_what_it_waits_for(&self, view: &Arc<View>, claim: &Value) -> Result<(), Failure> {
        let range = Range {
            namespace: Some(text(claim, "namespace").to_owned()),
            after: None,
        };
        let unscheduled = Selection {
            requirements: vec![crate::store::Requirement::FieldIs {
                name: "spec.nodeName".to_owned(),
                value: String::new(),
            }],
        };
        let mut names = Vec::new();
        let mut listing = view.list(PODS, range, &unscheduled);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let pod = self.client().read(&self.pods, &object)?;
                if pod::is_active(&pod) && super::protect::names_claim(&pod, text(claim, "name")) {
                    names.push(text(&pod, "name").to_owned());
                }
            }
        }
        let (reason, told) = match &names[..] {
            [] => (
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding".to_owned(),
            ),
            [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
            names => (
                "WaitForPodScheduled",
                format!("waiting for pods {} to be scheduled", names.join(",")),
            ),
        };
        self.recorder.tell(claim, Level::Normal, reason, told);
        Ok(())
    }

    /// Notes in the claim who is to make a volume for it.
    async fn ask_provisioner(&self, claim: &Value, class_name: &str, class: Option<&Value>) -> Result<Done, Failure> {
        let Some(class) = class else {
            let text = format!("storageclass.storage.k8s.io \"{class_name}\" not found");
            self.recorder.tell(claim, Level::Warning, "ProvisioningFailed", text);
            return Ok(Done::Settled);
        };
        let provisioner = class["provisioner"].as_str().unwrap_or("");
        // Nothing here makes volumes of the kinds that Kubernetes once had built in.
        if provisioner.starts_with("kubernetes.io/") {
            let text = format!("no volume plugin matched name: {provisioner}");
            self.recorder.tell(claim, Level::Warning, "ProvisioningFailed", text);
            return Ok(Done::Settled);
        }
        let edit = |old: &Value| {
            let names = [PROVISIONER, PROVISIONER_BETA];
            let is_noted = names.iter().all(|name| annotation(old, name) == Some(provisioner));
            (!is_noted).then(|| {
                let mut new = old.clone();
                for name in names {
                    new["metadata"]["annotations"][name] = provisioner.into();
                }
                new
            })
        };
        gone_is_fine(
            self.client()
                .change(&self.binder.claims, None, &key_of(claim), edit)
                .await,
        )?;
        if provisioner != super::hollow::PROVISIONER_NAME {
            let text = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
                 administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.recorder.tell(claim, Level::Normal, "ExternalProvisioning", text);
        }
        Ok(Done::Settled)
    }
}

impl Controller for Claims {
    fn resource(&self) -> &'static str {
        CLAIMS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[VOLUMES, CLASSES]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if change.storage == CLASSES {
            let mut keys = self.candidates.waiting(change.object.name());
            keys.extend(self.candidates.waiting(""));
            return Ok(keys);
        }
        let volume = self.client().read(&self.binder.volumes, change.object)?;
        self.candidates
            .note(change.object.name(), Some(&volume).filter(|_| !change.is_gone));
        if let Some(claim) = claim_of(&volume) {
            return Ok(vec![claim]);
        }
        let previous = change
            .previous
            .map(|it| self.client().read(&self.binder.volumes, it))
            .transpose()?;
        let before = previous.as_ref().and_then(claim_of);
        let is_free = !change.is_gone && volume["status"]["phase"] == "Available";
        let mut keys: Vec<Arc<str>> = before.into_iter().collect();
        if is_free {
            keys.extend(self.candidates.waiting(class_of(&volume)));
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client().store().view();
        let Some(object) = view.get(CLAIMS, key)? else {
            self.candidates.waits_no_more(key);
            return Ok(Done::Settled);
        };
        let claim = self.client().read(&self.binder.claims, &object)?;
        if annotation(&claim, BIND_COMPLETED).is_some() {
            return self.bound(&view, &claim).await;
        }
        match claim["spec"]["volumeName"].as_str().filter(|name| !name.is_empty()) {
            Some(name) => self.wanting(&view, &claim, name).await,
            None => self.searching(&view, &claim).await,
        }
    }
}
