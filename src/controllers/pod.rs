//! What controllers of Pods ask of one: whether it counts, whether it is ready, which one goes first; and how one is made from a template.

use std::cmp::Reverse;

use super::metadata::controller_reference;
use crate::tree::{Value, json};

/// Annotation by which a user says which Pods may go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Whether it is neither over nor being deleted.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_over(pod) && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether it is neither running nor going to.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// A time as Unix seconds.
pub(super) fn seconds(time: &Value) -> Option<i64> {
    Some(time.as_str()?.parse::<jiff::Timestamp>().ok()?.as_second())
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether it takes traffic.
pub(super) fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some()
}

/// When it became ready, Unix seconds; `None` when it is not.
fn ready_since(pod: &Value) -> Option<i64> {
    ready_condition(pod).map(|ready| seconds(&ready["lastTransitionTime"]).unwrap_or(0))
}

/// Whether it has been ready for so many seconds.
pub(super) fn is_available(pod: &Value, min_ready_s: i64, now_s: i64) -> bool {
    ready_since(pod).is_some_and(|since| min_ready_s == 0 || since != 0 && since + min_ready_s <= now_s)
}

/// A Pod of a template: its labels, annotations, finalizers and spec, controlled by `owner`, with a name that begins with the owner's.
pub(super) fn of_template(template: &Value, owner: &Value) -> Value {
    let mut pod = json!({"metadata": {}});
    for field in ["labels", "annotations", "finalizers"] {
        let value = &template["metadata"][field];
        if !value.is_null() {
            pod["metadata"][field] = value.clone();
        }
    }
    let name = owner["metadata"]["name"].as_str().unwrap_or("");
    pod["metadata"]["generateName"] = format!("{name}-").into();
    pod["metadata"]["ownerReferences"] = vec![controller_reference(owner)].into();
    pod["spec"] = template["spec"].clone();
    pod
}

/// What decides which of several Pods goes first; the least one does. `on_node` is the number of Pods of the same controller on its
/// node. Rules: `ActivePodsWithRanks` of kube-controller-manager, described under "Scaling a ReplicaSet".
pub(super) fn deletion_order(pod: &Value, on_node: usize, now_s: i64) -> impl Ord + use<> {
    let phase = match pod["status"]["phase"].as_str() {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let cost = pod["metadata"]["annotations"][DELETION_COST]
        .as_str()
        .and_then(|cost| cost.parse::<i32>().ok());
    let restarts: i64 = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|field| pod["status"][*field].as_array().into_iter().flatten())
        .filter_map(|status| status["restartCount"].as_i64())
        .max()
        .unwrap_or(0);
    // Ages count by their magnitude, so that of Pods about as old no particular one goes; the UID decides.
    let magnitude = |since: Option<i64>| {
        since.map_or(0, |since| {
            (now_s - since).max(0).checked_ilog2().map_or(0, |log| log + 1)
        })
    };
    (
        pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()),
        phase,
        is_ready(pod),
        cost.unwrap_or(0),
        Reverse(on_node),
        magnitude(ready_since(pod)),
        Reverse(restarts),
        magnitude(seconds(&pod["metadata"]["creationTimestamp"])),
        pod["metadata"]["uid"].as_str().unwrap_or("").to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100_000;

    fn pod(name: &str, change: impl Fn(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "1970-01-02T00:00:00Z"},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-02T00:00:10Z"}]},
        });
        change(&mut pod);
        pod
    }

    #[test]
    fn the_pod_that_is_missed_least_goes_first() {
        let order = [
            pod("unassigned", |pod| pod["spec"] = json!({})),
            pod("pending", |pod| pod["status"]["phase"] = "Pending".into()),
            pod("unready", |pod| pod["status"]["conditions"] = json!([])),
            pod("cheap", |pod| {
                pod["metadata"]["annotations"] = json!({DELETION_COST: "-5"});
            }),
            pod("crowded", |_| ()),
            pod("ready lately", |pod| {
                pod["status"]["conditions"][0]["lastTransitionTime"] = "1970-01-02T03:46:39Z".into();
            }),
            pod("restarted", |pod| {
                pod["status"]["containerStatuses"] = json!([{"restartCount": 3}]);
            }),
            pod("young", |pod| {
                pod["metadata"]["creationTimestamp"] = "1970-01-02T03:46:00Z".into();
            }),
            pod("usual", |_| ()),
            pod("dear", |pod| {
                pod["metadata"]["annotations"] = json!({DELETION_COST: "7"});
            }),
        ];
        let rank = |pod: &Value| {
            let on_node = if pod["metadata"]["name"] == "crowded" { 2 } else { 1 };
            deletion_order(pod, on_node, NOW)
        };
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        let mut sorted: Vec<Value> = order.iter().rev().cloned().collect();
        sorted.sort_by_key(rank);
        assert_eq!(
            sorted.iter().map(name).collect::<Vec<_>>(),
            order.iter().map(name).collect::<Vec<_>>()
        );
    }

    #[test]
    fn available_is_who_was_ready_long_enough() {
        let pod = pod("p", |_| ());
        assert!(is_ready(&pod) && is_available(&pod, 0, 0));
        assert!(is_available(&pod, 10, 86_420) && !is_available(&pod, 11, 86_420));
    }
}
