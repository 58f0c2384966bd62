//! What becomes of a decision: a Pod is bound, or told why not.

use super::placement::Name;
use crate::api::Client;
use crate::api::status::Status;
use crate::events::{Level, Recorder};
use crate::resources::{ResourceRef, condition, time_text};
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

impl Outcomes {
    /// Binds the Pod to the node.
    ///
    /// # Errors
    /// When it is not that Pod any more, or the binding is refused.
    pub(super) async fn bind(&self, subject: &Subject, node: &str) -> Result<(), Status> {
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
    pub(super) async fn refuse(&self, subject: &Subject, message: &str, nominated: Option<&str>) -> Result<(), Status> {
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
}

pub(super) fn gone_is_fine(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if status.code == 404 => Ok(()),
        other => other,
    }
}

fn is_subject(pod: &Value, subject: &Subject) -> bool {
    pod["metadata"]["uid"].as_str().map(super::uid_of) == Some(subject.uid)
}

/// Sets a condition of a Pod; its time is when it came to this state.
pub(super) fn set_condition(pod: &mut Value, kind: &str, what: (&str, &str), message: &str, time: &str) {
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
