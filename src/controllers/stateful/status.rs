//! What a set tells of its Pods.

use super::identity;
use super::plan::{Pods, is_deleting};
use crate::controllers::pod;
use crate::tree::{Value, json};

/// The status by what there is; conditions stay. `current` and `update` are names of revisions.
pub(super) fn status_of(set: &Value, pods: &Pods, (current, update): (&str, &str), now_s: i64) -> Value {
    let min_ready_s = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let count = |test: &dyn Fn(&Value) -> bool| pods.all().filter(|pod| test(pod)).count() as i64;
    let is_of = |revision: &str| count(&|pod| !is_deleting(pod) && identity::revision_of(pod) == revision);
    let is_ready = |pod: &Value| pod["status"]["phase"] == "Running" && pod::is_ready(pod);
    let replicas = count(&|_| true);
    let ready = count(&is_ready);
    let available = count(&|pod| is_ready(pod) && pod::is_available(pod, min_ready_s, now_s));
    let updated = is_of(update);
    let wanted = identity::replicas(set);
    // The rollout is over.
    let is_over = set["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        && [replicas, ready, updated].iter().all(|count| *count == wanted);
    let (current, current_replicas) = if is_over {
        (update, updated)
    } else {
        (current, is_of(current))
    };
    let mut status = set["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    for (field, count) in [
        ("readyReplicas", ready),
        ("currentReplicas", current_replicas),
        ("updatedReplicas", updated),
    ] {
        match (count, status.as_object_mut()) {
            // None is not told.
            (0, Some(fields)) => drop(fields.remove(field)),
            _ => status[field] = count.into(),
        }
    }
    status["replicas"] = replicas.into();
    status["availableReplicas"] = available.into();
    status["currentRevision"] = current.into();
    status["updateRevision"] = update.into();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, revision: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "labels": {"controller-revision-hash": revision}}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-01T00:00:10Z"}]}})
    }

    fn status(set: &Value, pods: Vec<Value>) -> Value {
        status_of(set, &Pods::of(set, pods), ("s-old", "s-new"), 50)
    }

    #[test]
    fn a_rollout_is_over_when_all_are_new_and_ready() {
        let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}},
            "status": {"conditions": [{"type": "Mine", "status": "True"}], "currentReplicas": 2}});
        let (old, new) = (pod("s-0", "s-old", true), pod("s-1", "s-new", true));
        assert_eq!(
            status(&set, vec![old.clone(), new.clone()]),
            json!({"conditions": [{"type": "Mine", "status": "True"}], "replicas": 2, "readyReplicas": 2,
                "availableReplicas": 2, "currentReplicas": 1, "updatedReplicas": 1, "currentRevision": "s-old",
                "updateRevision": "s-new"})
        );
        let done = status(&set, vec![pod("s-0", "s-new", true), new.clone()]);
        assert_eq!(
            (&done["currentRevision"], &done["currentReplicas"]),
            (&json!("s-new"), &json!(2))
        );
        let unready = status(&set, vec![pod("s-0", "s-new", false), new.clone()]);
        assert_eq!(
            (&unready["currentRevision"], &unready["currentReplicas"]),
            (&json!("s-old"), &Value::Null)
        );
        let shrinking = status(&set, vec![pod("s-0", "s-new", true), new, pod("s-2", "s-new", true)]);
        assert_eq!(shrinking["currentRevision"], "s-old");
        let mut going = old;
        going["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:20Z".into();
        let going = status(&set, vec![going]);
        assert_eq!(
            (&going["replicas"], &going["currentReplicas"], &going["readyReplicas"]),
            (&json!(1), &Value::Null, &json!(1))
        );
    }
}
