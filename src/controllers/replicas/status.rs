//! What a set tells of its Pods.

use super::Replicas;
use super::scale::ScaleFailure;
use crate::api::status::Status;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::pod;
use crate::resources::time_text;
use crate::tree::{Value, json};

impl Replicas {
    /// Writes the status if it says something new. Gives the seconds until a Pod that is ready will count as available.
    pub(super) async fn tell_status(
        &self,
        key: &str,
        set: &Value,
        pods: &[Value],
        failure: Option<&ScaleFailure>,
        now_s: i64,
    ) -> Result<Option<i64>, Failure> {
        let edit = |old: &Value| {
            if !is_same(old, set) {
                return None;
            }
            let mut new = old.clone();
            new["status"] = status_of(old, pods, failure, now_s);
            // What was seen is the set that was looked at, which may have changed since.
            new["status"]["observedGeneration"] = set["metadata"]["generation"].clone();
            (new["status"] != old["status"]).then_some(new)
        };
        match self.client.change(&self.resource, Some("status"), key, edit).await {
            Err(status) if status.code != 404 => return Err(status.into()),
            _ => {}
        }
        let min_ready_s = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let waits = |pod: &&Value| pod::is_ready(pod) && !pod::is_available(pod, min_ready_s, now_s);
        Ok(pods.iter().find(waits).map(|_| min_ready_s))
    }
}

/// The status by what there is; conditions of other types stay.
fn status_of(set: &Value, pods: &[Value], failure: Option<&ScaleFailure>, now_s: i64) -> Value {
    let min_ready_s = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
    let template = set["spec"]["template"]["metadata"]["labels"].as_object();
    let is_fully_labelled = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        template.is_none_or(|template| {
            template
                .iter()
                .all(|(name, value)| labels.get(name.as_str()) == Some(value))
        })
    };
    let active = || pods.iter().filter(|pod| pod::is_active(pod));
    let count = |test: &dyn Fn(&Value) -> bool| active().filter(|pod| test(pod)).count() as i64;
    let mut status = set["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let counts = [
        ("fullyLabeledReplicas", count(&is_fully_labelled)),
        ("readyReplicas", count(&pod::is_ready)),
        (
            "availableReplicas",
            count(&|pod| pod::is_available(pod, min_ready_s, now_s)),
        ),
    ];
    status["replicas"] = count(&|_| true).into();
    for (field, count) in counts {
        match (count, status.as_object_mut()) {
            // None is not told.
            (0, Some(fields)) => drop(fields.remove(field)),
            _ => status[field] = count.into(),
        }
    }
    set_failure(&mut status, failure, now_s);
    status
}

fn set_failure(status: &mut Value, failure: Option<&ScaleFailure>, now_s: i64) {
    let before = status["conditions"]
        .as_array()
        .map_or_else(Vec::new, |conditions| conditions.to_vec());
    let old = before
        .iter()
        .find(|condition| condition["type"] == "ReplicaFailure")
        .cloned();
    let mut conditions: Vec<Value> = before
        .into_iter()
        .filter(|condition| condition["type"] != "ReplicaFailure")
        .collect();
    if let Some(failure) = failure {
        let time = time_text(now_s);
        let same = old.filter(|old| old["reason"] == failure.reason && old["status"] == "True");
        conditions.push(same.unwrap_or_else(|| {
            json!({"type": "ReplicaFailure", "status": "True", "reason": failure.reason,
                "message": text_of(&failure.why), "lastTransitionTime": time})
        }));
    }
    match status.as_object_mut() {
        Some(fields) if conditions.is_empty() => drop(fields.remove("conditions")),
        _ => status["conditions"] = conditions.into(),
    }
}

fn text_of(failure: &Failure) -> String {
    match failure {
        Failure::Refused(Status { message, .. }) => message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_counts_active_pods_and_keeps_what_others_said() {
        let set = json!({
            "spec": {"template": {"metadata": {"labels": {"a": "1", "b": "2"}}}},
            "status": {"replicas": 9, "readyReplicas": 9, "conditions": [{"type": "Mine", "status": "True"}]},
        });
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"}]);
        let pods = [
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "status": {"phase": "Running", "conditions": ready.clone()}}),
            json!({"metadata": {"labels": {"a": "1"}}, "status": {"phase": "Pending"}}),
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "status": {"phase": "Failed", "conditions": ready.clone()}}),
            json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:01Z"}, "status": {"conditions": ready}}),
        ];
        let status = status_of(&set, &pods, None, 50);
        assert_eq!(
            status,
            json!({"replicas": 2, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "conditions": [{"type": "Mine", "status": "True"}]})
        );
        assert_eq!(status_of(&set, &[], None, 50)["readyReplicas"], Value::Null);
    }

    #[test]
    fn a_failure_is_told_once_and_forgotten_when_it_is_over() {
        let failure = ScaleFailure {
            reason: "FailedCreate",
            why: Failure::Refused(Status::plain(403, "no room")),
        };
        let mut set = json!({"spec": {}, "status": {"replicas": 0}});
        set["status"] = status_of(&set, &[], Some(&failure), 50);
        assert_eq!(set["status"]["conditions"][0]["message"], "no room");
        assert_eq!(
            status_of(&set, &[], Some(&failure), 90),
            set["status"],
            "the time of the first stays"
        );
        assert_eq!(status_of(&set, &[], None, 90), json!({"replicas": 0}));
    }
}
