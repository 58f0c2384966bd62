//! What becomes of a decision: a Pod is bound, or told why not.

use super::placement::Name;
use crate::api::status::Status;
use crate::api::{Client, Delete};
use crate::events::{Level, Recorder};
use crate::resources::{self, ResourceRef, condition, time_text};
use crate::tree::{Value, json};

/// What outcomes are written with. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Outcomes {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) pods: ResourceRef,
}

/// A Pod that something was decided of.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) key: Name,
    pub(super) uid: u128,
}

impl Subject {
    fn names(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or(("", &self.key))
    }
}

/// What was decided of a Pod.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It goes to the node.
    Bind { node: Name },
    /// It will go to the node, once these claims are bound for it.
    Select { claims: Vec<String>, node: Name },
    /// There is no place for it, which it is told. `nominated`: see [`Outcomes::refuse`].
    Refuse {
        message: String,
        nominated: Option<&'static str>,
    },
    /// Others have to leave the node for it.
    Evict {
        message: String,
        victims: Vec<Subject>,
        node: Name,
    },
}

impl Outcomes {
    /// Writes what was decided.
    ///
    /// # Errors
    /// When it is refused.
    pub(super) async fn write(&self, subject: &Subject, outcome: &Outcome) -> Result<(), Status> {
        match outcome {
            Outcome::Bind { node } => self.bind(subject, node).await,
            Outcome::Select { claims, node } => self.select(claims, node).await,
            Outcome::Refuse { message, nominated } => self.refuse(subject, message, *nominated).await,
            Outcome::Evict { message, victims, node } => {
                self.refuse(subject, message, Some(node)).await?;
                for victim in victims {
                    self.evict(victim, subject, node).await?;
                }
                Ok(())
            }
        }
    }

    /// Binds the Pod to the node.
    ///
    /// # Errors
    /// When it is not that Pod any more, or the binding is refused.
    async fn bind(&self, subject: &Subject, node: &str) -> Result<(), Status> {
        let (namespace, name) = subject.names();
        let gone = || Status::not_found("", "pods", name);
        let view = self.client.store().view();
        let object = view.get(&self.pods.storage, &subject.key).map_err(Status::internal)?;
        let object = object.ok_or_else(gone)?;
        let uid = object.sidecar().map_err(Status::internal)?.uid.as_str().to_owned();
        if super::uid_of(&uid) != subject.uid {
            return Err(gone());
        }
        self.client.bind(namespace, name, &uid, node).await?;
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
            "namespace": namespace, "name": name, "uid": uid, "resourceVersion": object.revision().to_string()}});
        let text = format!("Successfully assigned {namespace}/{name} to {node}");
        self.recorder.tell(&pod, Level::Normal, "Scheduled", text);
        Ok(())
    }

    /// Tells why no place was found for the Pod, and which node others were told to leave for it: `Some("")` for none any
    /// more, `None` for what was so before.
    async fn refuse(&self, subject: &Subject, message: &str, nominated: Option<&str>) -> Result<(), Status> {
        let view = self.client.store().view();
        let Some(object) = view.get(&self.pods.storage, &subject.key).map_err(Status::internal)? else {
            return Ok(());
        };
        let pod = self.client.read(&self.pods, &object)?;
        if is_subject(&pod, subject) {
            self.recorder
                .tell(&pod, Level::Warning, "FailedScheduling", message.to_owned());
        }
        let time = time_text(jiff::Timestamp::now().as_second());
        let edit = |old: &Value| {
            if !is_subject(old, subject) || old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
                return None;
            }
            let mut new = old.clone();
            if let Some(node) = nominated {
                match new["status"].as_object_mut() {
                    Some(status) if node.is_empty() => drop(status.remove("nominatedNodeName")),
                    _ => new["status"]["nominatedNodeName"] = node.into(),
                }
            }
            set_condition(&mut new, "PodScheduled", ("False", "Unschedulable"), message, &time);
            (new != *old).then_some(new)
        };
        gone_is_fine(self.client.change(&self.pods, Some("status"), &subject.key, edit).await)
    }

    /// Tells claims that wait for it which node was chosen.
    async fn select(&self, claims: &[String], node: &str) -> Result<(), Status> {
        let Some(resource) = resources::find("", "v1", "persistentvolumeclaims").map(ResourceRef::from) else {
            return Ok(());
        };
        for claim in claims {
            let edit = |old: &Value| {
                if old["metadata"]["annotations"][SELECTED_NODE] == node || old["spec"]["volumeName"].is_string() {
                    return None;
                }
                let mut new = old.clone();
                if !new["metadata"]["annotations"].is_object() {
                    new["metadata"]["annotations"] = json!({});
                }
                new["metadata"]["annotations"][SELECTED_NODE] = node.into();
                Some(new)
            };
            gone_is_fine(self.client.change(&resource, None, claim, edit).await)?;
        }
        Ok(())
    }

    /// Deletes a Pod so that another one finds room, and says so in its status first.
    async fn evict(&self, victim: &Subject, preemptor: &Subject, node: &str) -> Result<(), Status> {
        let view = self.client.store().view();
        let get = |key: &str| view.get(&self.pods.storage, key).map_err(Status::internal);
        let (Some(object), Some(preemptor)) = (get(&victim.key)?, get(&preemptor.key)?) else {
            return Ok(());
        };
        let pod = self.client.read(&self.pods, &object)?;
        if !is_subject(&pod, victim) {
            return Ok(());
        }
        let time = time_text(jiff::Timestamp::now().as_second());
        let edit = |old: &Value| {
            if !is_subject(old, victim) {
                return None;
            }
            let mut new = old.clone();
            let text = "default-scheduler: preempting to accommodate a higher priority pod";
            set_condition(
                &mut new,
                "DisruptionTarget",
                ("True", "PreemptionByScheduler"),
                text,
                &time,
            );
            Some(new)
        };
        gone_is_fine(self.client.change(&self.pods, Some("status"), &victim.key, edit).await)?;
        let delete = Delete {
            uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
            ..Delete::default()
        };
        gone_is_fine(self.client.delete(&self.pods, &victim.key, &delete).await)?;
        let uid = preemptor.sidecar().map_err(Status::internal)?.uid.as_str();
        let text = format!("Preempted by pod {uid} on node {node}");
        self.recorder.tell(&pod, Level::Normal, "Preempted", text);
        Ok(())
    }
}

/// The annotation of a claim that names the node that its first consumer goes to.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

fn gone_is_fine(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.code == 404 => Ok(()),
        other => other,
    }
}

fn is_subject(pod: &Value, subject: &Subject) -> bool {
    pod["metadata"]["uid"].as_str().map(super::uid_of) == Some(subject.uid)
}

/// Sets a condition of a Pod; its time is when it came to this state.
fn set_condition(pod: &mut Value, kind: &str, what: (&str, &str), message: &str, time: &str) {
    let (state, reason) = what;
    let since = condition(pod, kind)
        .filter(|old| old["status"] == state)
        .map_or_else(|| time.into(), |old| old["lastTransitionTime"].clone());
    let mut new = json!({"type": kind, "status": state, "reason": reason, "message": message, "lastProbeTime": null});
    new["lastTransitionTime"] = since;
    let mut conditions = pod["status"]["conditions"]
        .as_array()
        .map_or_else(Vec::new, |conditions| conditions.to_vec());
    match conditions.iter_mut().find(|old| old["type"] == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    pod["status"]["conditions"] = conditions.into();
}
