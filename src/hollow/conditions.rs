//! Phase and conditions of a Pod, of the states of its containers. Rules:
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>.

use super::life::{Moment, is_over};
use crate::resources::{condition, time_text};
use crate::tree::{List, Value, json};

/// A condition as it should be.
struct Wanted<'a> {
    kind: &'a str,
    holds: bool,
    reason: &'a str,
    message: String,
}

/// Brings the conditions of `status` up to date with everything else in it.
pub(super) fn settle(pod: &Value, status: &mut Value, has_sandbox: bool, is_initialized: bool, moment: &Moment<'_>) {
    let phase = status["phase"].as_str().unwrap_or("").to_owned();
    let over = match phase.as_str() {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => None,
    };
    let unready = names(status, "containerStatuses", |status| status["ready"] == true);
    let incomplete = names(status, "initContainerStatuses", |status| {
        status["state"]["terminated"]["exitCode"] == 0 || status["started"] == true && status["ready"] == true
    });
    let is_ready = over.is_none() && is_initialized && unready.is_empty();
    let unready_text = match unready.as_slice() {
        [] => String::new(),
        names => format!("containers with unready status: [{}]", names.join(" ")),
    };
    let gates = failing_gates(pod, status);
    let mut wanted = vec![
        Wanted {
            kind: "PodReadyToStartContainers",
            holds: has_sandbox && over.is_none(),
            reason: "",
            message: String::new(),
        },
        Wanted {
            kind: "Initialized",
            holds: is_initialized || phase == "Succeeded",
            reason: match over {
                Some("PodCompleted") => "PodCompleted",
                _ if is_initialized => "",
                _ => "ContainersNotInitialized",
            },
            message: if is_initialized || phase == "Succeeded" {
                String::new()
            } else {
                format!("containers with incomplete status: [{}]", incomplete.join(" "))
            },
        },
    ];
    let not_ready = |kind| Wanted {
        kind,
        holds: false,
        reason: over.unwrap_or("ContainersNotReady"),
        message: if over.is_some() {
            String::new()
        } else {
            unready_text.clone()
        },
    };
    let holds = |kind| Wanted {
        kind,
        holds: true,
        reason: "",
        message: String::new(),
    };
    wanted.push(match (is_ready, gates.is_empty()) {
        (true, true) => holds("Ready"),
        (true, false) => Wanted {
            kind: "Ready",
            holds: false,
            reason: "ReadinessGatesNotReady",
            message: gates.join(", "),
        },
        _ => not_ready("Ready"),
    });
    wanted.push(if is_ready {
        holds("ContainersReady")
    } else {
        not_ready("ContainersReady")
    });
    if condition(pod, "PodScheduled").is_none() {
        wanted.push(holds("PodScheduled"));
    }
    let generation = &pod["metadata"]["generation"];
    for wanted in wanted {
        set(status, &wanted, generation, moment);
    }
    if !generation.is_null() {
        status["observedGeneration"] = generation.clone();
    }
}

/// Names of the containers of which something does not hold.
fn names(status: &Value, list: &str, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    let statuses = status[list].as_array().map_or(&[][..], List::as_slice);
    let failing = statuses.iter().filter(|status| !holds(status));
    failing
        .filter_map(|status| status["name"].as_str().map(str::to_owned))
        .collect()
}

/// What is to be said of the readiness gates that do not hold.
fn failing_gates(pod: &Value, status: &Value) -> Vec<String> {
    let mut failing = Vec::new();
    for gate in pod["spec"]["readinessGates"].as_array().into_iter().flatten() {
        let kind = gate["conditionType"].as_str().unwrap_or("");
        let present = status["conditions"].as_array().map_or(&[][..], List::as_slice);
        match present.iter().find(|condition| condition["type"] == kind) {
            None => failing.push(format!(
                "corresponding condition of pod readiness gate \"{kind}\" does not exist."
            )),
            Some(present) if present["status"] != "True" => failing.push(format!(
                "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                present["status"].as_str().unwrap_or("")
            )),
            Some(_) => {}
        }
    }
    failing
}

fn set(status: &mut Value, wanted: &Wanted<'_>, generation: &Value, moment: &Moment<'_>) {
    let text = if wanted.holds { "True" } else { "False" };
    let conditions = status["conditions"].as_array().map_or(&[][..], List::as_slice);
    let place = conditions.iter().position(|condition| condition["type"] == wanted.kind);
    let mut condition = json!({"type": wanted.kind, "status": text, "lastProbeTime": null});
    let present = place.map(|place| &conditions[place]);
    condition["lastTransitionTime"] = match present.filter(|present| present["status"] == text) {
        Some(present) => present["lastTransitionTime"].clone(),
        None => time_text(moment.now_ms.div_euclid(1000)).into(),
    };
    if !wanted.reason.is_empty() {
        condition["reason"] = wanted.reason.into();
    }
    if !wanted.message.is_empty() {
        condition["message"] = wanted.message.as_str().into();
    }
    if !generation.is_null() {
        condition["observedGeneration"] = generation.clone();
    }
    if let Some(place) = place {
        status["conditions"][place] = condition;
        return;
    }
    if !status["conditions"].is_array() {
        status["conditions"] = Value::Array(List::default());
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.push(condition);
    }
}

/// The phase that containers in these states make.
pub(super) fn phase(pod: &Value, status: &Value, is_initialized: bool, init_failed: bool) -> &'static str {
    if init_failed {
        return "Failed";
    }
    if !is_initialized {
        return "Pending";
    }
    let statuses = status["containerStatuses"].as_array().map_or(&[][..], List::as_slice);
    let is = |status: &Value, state: &str| !status["state"][state].is_null();
    let has_ended = |status: &Value| is(status, "terminated") || !status["lastState"]["terminated"].is_null();
    if statuses
        .iter()
        .any(|status| is(status, "waiting") && !has_ended(status))
    {
        return "Pending";
    }
    if statuses.iter().any(|status| !is(status, "terminated")) || !is_over(pod, status) {
        return "Running";
    }
    if statuses
        .iter()
        .all(|status| status["state"]["terminated"]["exitCode"] == 0)
    {
        "Succeeded"
    } else {
        "Failed"
    }
}
