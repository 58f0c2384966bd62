//! What a Deployment tells of its rollout.

use std::time::Duration;

use super::Deployments;
use super::rollout::{Rollout, name, replicas};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::pod;
use crate::controllers::queue::Done;
use crate::resources::{condition, time_text};
use crate::tree::{Value, json};

/// Whether a look judges how the rollout goes on. It does not while a Deployment is paused or was scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Judged,
    NotJudged,
}

const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
/// The reason of a rollout that has come to its end.
const DONE: &str = "NewReplicaSetAvailable";
pub(super) const TOO_LATE: &str = "ProgressDeadlineExceeded";

/// Deadlines from here on are none.
const NO_DEADLINE: i64 = i32::MAX as i64;

fn deadline_s(deployment: &Value) -> Option<i64> {
    let seconds = deployment["spec"]["progressDeadlineSeconds"].as_i64();
    seconds.filter(|seconds| *seconds < NO_DEADLINE)
}

/// Whether it is told when a rollout takes too long.
pub(super) fn has_deadline(deployment: &Value) -> bool {
    deadline_s(deployment).is_some()
}

fn count(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}

/// Puts a condition (type, status, reason) in the place of the one of its type; the time of its transition stays while its status does,
/// and one that says the same stays as it is.
pub(super) fn set_condition(status: &mut Value, (kind, state, reason): (&str, &str, &str), text: &str, now_s: i64) {
    let now = time_text(now_s);
    let mut conditions = status["conditions"]
        .as_array()
        .map_or_else(Vec::new, |list| list.to_vec());
    let old = conditions.iter().position(|condition| condition["type"] == kind);
    let since = old
        .map(|at| &conditions[at])
        .filter(|old| old["status"] == state)
        .and_then(|old| old["lastTransitionTime"].as_str().map(str::to_owned));
    if let Some(at) = old {
        if conditions[at]["status"] == state && conditions[at]["reason"] == reason && conditions[at]["message"] == text
        {
            return;
        }
        conditions.remove(at);
    }
    conditions.push(json!({"type": kind, "status": state, "reason": reason, "message": text,
        "lastUpdateTime": now, "lastTransitionTime": since.unwrap_or_else(|| now.clone())}));
    status["conditions"] = conditions.into();
}

fn remove_condition(status: &mut Value, kind: &str) {
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != kind);
    }
}

/// Whether all Pods are of the present template and available, and the status says so.
pub(super) fn is_complete(rollout: &Rollout) -> bool {
    let deployment = &rollout.deployment;
    is_complete_by(deployment, &deployment["status"])
        && deployment["status"]["observedGeneration"].as_i64() >= deployment["metadata"]["generation"].as_i64()
}

fn is_complete_by(deployment: &Value, status: &Value) -> bool {
    let wanted = replicas(deployment);
    ["updatedReplicas", "replicas", "availableReplicas"]
        .iter()
        .all(|field| status[*field].as_i64().unwrap_or(0) == wanted)
}

impl Deployments {
    /// Writes the status if it says something new. A rollout with a deadline is looked at again when that is over.
    pub(super) async fn tell(&self, rollout: &Rollout, progress: Progress) -> Result<Done, Failure> {
        let edit = |old: &Value| {
            if !is_same(old, &rollout.deployment) {
                return None;
            }
            let mut new = old.clone();
            new["status"] = status_of(rollout, old, progress);
            (new["status"] != old["status"]).then_some(new)
        };
        let written = self
            .client
            .change(&self.resource, Some("status"), &rollout.key, edit)
            .await;
        gone_is_fine(written)?;
        Ok(until_deadline(rollout, progress).map_or(Done::Settled, Done::After))
    }
}

/// How long until the deadline of a rollout under way.
fn until_deadline(rollout: &Rollout, progress: Progress) -> Option<Duration> {
    if progress == Progress::NotJudged || is_complete(rollout) {
        return None;
    }
    let progressing = condition(&rollout.deployment, PROGRESSING)?;
    if matches!(progressing["reason"].as_str(), Some(DONE | TOO_LATE)) {
        return None;
    }
    let since = pod::seconds(&progressing["lastUpdateTime"])?;
    let left = since + deadline_s(&rollout.deployment)? - rollout.now_s;
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0) + 1))
}

/// The status by what the sets say; `old`: the Deployment as it is stored now.
fn status_of(rollout: &Rollout, old: &Value, progress: Progress) -> Value {
    let (deployment, now_s) = (&rollout.deployment, rollout.now_s);
    let sum = |field: &str| rollout.sets().map(|set| count(set, field)).sum::<i64>();
    let available = sum("availableReplicas");
    let asked = rollout.asked();
    let mut status = old["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    let counts = [
        ("replicas", sum("replicas")),
        (
            "updatedReplicas",
            rollout.new.as_ref().map_or(0, |new| count(new, "replicas")),
        ),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (asked - available).max(0)),
    ];
    for (field, count) in counts {
        match (count, status.as_object_mut()) {
            // None is not told.
            (0, Some(fields)) => drop(fields.remove(field)),
            _ => status[field] = count.into(),
        }
    }
    // What was seen is the Deployment that was looked at, which may have changed since.
    status["observedGeneration"] = deployment["metadata"]["generation"].clone();
    if available >= rollout.goal.replicas - rollout.goal.unavailable {
        let what = (AVAILABLE, "True", "MinimumReplicasAvailable");
        set_condition(&mut status, what, "Deployment has minimum availability.", now_s);
    } else {
        let what = (AVAILABLE, "False", "MinimumReplicasUnavailable");
        set_condition(
            &mut status,
            what,
            "Deployment does not have minimum availability.",
            now_s,
        );
    }
    if progress == Progress::Judged {
        judge(rollout, old, &mut status);
    }
    let failed = rollout
        .new
        .iter()
        .chain(&rollout.old)
        .find_map(|set| condition(set, REPLICA_FAILURE));
    match failed {
        Some(failed) => {
            let text = |field: &str| failed[field].as_str().unwrap_or("");
            let what = (REPLICA_FAILURE, text("status"), text("reason"));
            set_condition(&mut status, what, text("message"), now_s);
        }
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    status
}

/// Says how the rollout goes on.
fn judge(rollout: &Rollout, old: &Value, status: &mut Value) {
    let (deployment, now_s) = (&rollout.deployment, rollout.now_s);
    let Some(deadline_s) = deadline_s(deployment) else {
        return remove_condition(status, PROGRESSING);
    };
    let before = condition(old, PROGRESSING);
    let reason = before.map_or("", |before| before["reason"].as_str().unwrap_or(""));
    let subject = match &rollout.new {
        Some(new) => format!("ReplicaSet \"{}\"", name(new)),
        None => format!("Deployment \"{}\"", name(deployment)),
    };
    // A rollout that was at its end stays there while Pods come and go.
    if status["replicas"] == status["updatedReplicas"] && reason == DONE {
        return;
    }
    let more = |field: &str| status[field].as_i64().unwrap_or(0) > count(old, field);
    let old_left =
        |status: &Value| status["replicas"].as_i64().unwrap_or(0) - status["updatedReplicas"].as_i64().unwrap_or(0);
    let goes_on = more("updatedReplicas")
        || more("readyReplicas")
        || more("availableReplicas")
        || old_left(status) < old_left(&old["status"]);
    if is_complete_by(deployment, status) {
        let text = format!("{subject} has successfully progressed.");
        set_condition(status, (PROGRESSING, "True", DONE), &text, now_s);
    } else if goes_on {
        let text = format!("{subject} is progressing.");
        // Each step begins the deadline anew.
        remove_update_time(status);
        set_condition(status, (PROGRESSING, "True", "ReplicaSetUpdated"), &text, now_s);
    } else if before.is_some_and(|before| is_too_late(before, reason, deadline_s, now_s)) {
        let text = format!("{subject} has timed out progressing.");
        set_condition(status, (PROGRESSING, "False", TOO_LATE), &text, now_s);
    }
}

/// Makes the condition one that says something else, so that it is written with a new time.
fn remove_update_time(status: &mut Value) {
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flat_map(|list| list.iter_mut()) {
        if condition["type"] == PROGRESSING {
            condition["message"] = "".into();
        }
    }
}

fn is_too_late(progressing: &Value, reason: &str, deadline_s: i64, now_s: i64) -> bool {
    match reason {
        DONE => false,
        TOO_LATE => true,
        _ => pod::seconds(&progressing["lastUpdateTime"]).is_some_and(|since| since + deadline_s < now_s),
    }
}
