//! What a kubelet tells of a Pod in Events: what follows from two states of its status.

use super::program::full_image;
use crate::events::Level;
use crate::tree::{List, Value};

/// An Event about a container of a Pod, or about the Pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) level: Level,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// `spec.containers{NAME}`
    pub(super) field: Option<String>,
}

const LISTS: [(&str, &str); 3] = [
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

/// What is to be told when the status of a Pod becomes `new`.
pub(super) fn between(pod: &Value, new: &Value) -> Vec<Told> {
    let old = &pod["status"];
    let mut told = Vec::new();
    for (list, field) in LISTS {
        for status in items(&new[field]) {
            let before = items(&old[field])
                .iter()
                .find(|before| before["name"] == status["name"])
                .unwrap_or(&Value::Null);
            let name = status["name"].as_str().unwrap_or("");
            let path = format!("spec.{list}{{{name}}}");
            of_container(pod, before, status, |level, reason, message| {
                told.push(Told {
                    level,
                    reason,
                    message,
                    field: Some(path.clone()),
                });
            });
        }
    }
    if new["reason"] == "DeadlineExceeded" && old["reason"] != "DeadlineExceeded" {
        told.push(Told {
            level: Level::Normal,
            reason: "DeadlineExceeded",
            message: new["message"].as_str().unwrap_or("").to_owned(),
            field: None,
        });
    }
    told
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], List::as_slice)
}

fn of_container(pod: &Value, old: &Value, new: &Value, mut tell: impl FnMut(Level, &'static str, String)) {
    let name = new["name"].as_str().unwrap_or("");
    let is_running = |status: &Value| !status["state"]["running"].is_null();
    let waits = |status: &Value| status["state"]["waiting"]["reason"].as_str().unwrap_or("").to_owned();
    if is_running(new) && (!is_running(old) || old["restartCount"] != new["restartCount"]) {
        let image = image_of(pod, name);
        let present = format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
        tell(Level::Normal, "Pulled", present);
        tell(Level::Normal, "Created", "Container created".to_owned());
        tell(Level::Normal, "Started", "Container started".to_owned());
    }
    let is_deleting = !pod["metadata"]["deletionTimestamp"].is_null();
    if is_running(old) && !is_running(new) && is_deleting {
        tell(Level::Normal, "Killing", format!("Stopping container {name}"));
    }
    let (before, now) = (waits(old), waits(new));
    if before == now {
        return;
    }
    let image = image_of(pod, name);
    match now.as_str() {
        "ErrImagePull" => {
            let why = new["state"]["waiting"]["message"].as_str().unwrap_or("");
            tell(Level::Normal, "Pulling", format!("Pulling image \"{image}\""));
            tell(
                Level::Warning,
                "Failed",
                format!("Failed to pull image \"{}\": {why}", full_image(image)),
            );
            tell(Level::Warning, "Failed", "Error: ErrImagePull".to_owned());
        }
        "ImagePullBackOff" => {
            tell(Level::Normal, "BackOff", format!("Back-off pulling image \"{image}\""));
            tell(Level::Warning, "Failed", "Error: ImagePullBackOff".to_owned());
        }
        "CrashLoopBackOff" => {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or("");
            let (pod, namespace, uid) = (text("name"), text("namespace"), text("uid"));
            let message = format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
            tell(Level::Warning, "BackOff", message);
        }
        _ => {}
    }
}

fn image_of<'a>(pod: &'a Value, container: &str) -> &'a str {
    let specs = LISTS.iter().flat_map(|(list, _)| items(&pod["spec"][*list]));
    let mut images = specs
        .filter(|spec| spec["name"] == *container)
        .map(|spec| &spec["image"]);
    images.next().and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn reasons(deleted: bool, old: Value, new: Value) -> Vec<&'static str> {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"containerStatuses": [{"name": "c", "restartCount": 0, "state": old}]}});
        if deleted {
            pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
        }
        let new = json!({"containerStatuses": [{"name": "c", "restartCount": 0, "state": new}]});
        between(&pod, &new).iter().map(|told| told.reason).collect()
    }

    #[test]
    fn a_container_that_starts_waits_or_is_stopped_is_told_of_once() {
        let (creating, running) = (
            json!({"waiting": {"reason": "ContainerCreating"}}),
            json!({"running": {}}),
        );
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        assert_eq!(
            reasons(false, creating.clone(), running.clone()),
            ["Pulled", "Created", "Started"]
        );
        assert!(reasons(false, running.clone(), running.clone()).is_empty());
        assert_eq!(
            reasons(false, creating, waiting("ErrImagePull")),
            ["Pulling", "Failed", "Failed"]
        );
        assert_eq!(
            reasons(false, waiting("ErrImagePull"), waiting("ImagePullBackOff")),
            ["BackOff", "Failed"]
        );
        assert_eq!(
            reasons(false, json!({"terminated": {}}), waiting("CrashLoopBackOff")),
            ["BackOff"]
        );
        assert_eq!(reasons(true, running.clone(), json!({"terminated": {}})), ["Killing"]);
        assert!(reasons(false, running, json!({"terminated": {}})).is_empty());
    }
}
