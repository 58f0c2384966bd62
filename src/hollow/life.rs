//! What becomes of a Pod: a function of what is stored of it, and the time.
//!
//! Nothing is remembered from one look to the next, so that a look may be had at any time, after a restart, too. Stored times
//! are whole seconds: a look that comes early, because the Pod was changed, may find something up to a second before its time.

use super::admission::Rejection;
use super::conditions;
use super::containers::Container;
use super::profile::Profile;
use super::program;
use crate::resources::{condition, time_text};
use crate::tree::{List, Value, json};

/// What a look knows besides the Pod.
pub(super) struct Moment<'a> {
    /// Unix milliseconds.
    pub(super) now_ms: i64,
    pub(super) profile: &'a Profile,
    /// The node's name.
    pub(super) host: &'a str,
    pub(super) host_ip: &'a str,
    /// An address for the Pod, if it is to get one now.
    pub(super) pod_ip: Option<&'a str>,
    /// Why the node does not take the Pod.
    pub(super) rejection: Option<Rejection>,
}

/// What comes of a Pod now.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) status: Value,
    /// When it wants its next look, Unix milliseconds.
    pub(super) next_ms: Option<i64>,
    /// It was deleted, and nothing of it runs any more.
    pub(super) may_go: bool,
    /// It can go on when it has an address.
    pub(super) wants_ip: bool,
}

/// A time as Unix milliseconds.
pub(super) fn milliseconds(time: &Value) -> Option<i64> {
    Some(time.as_str()?.parse::<jiff::Timestamp>().ok()?.as_millisecond())
}

fn statuses<'a>(status: &'a Value, list: &str) -> &'a [Value] {
    status[list].as_array().map_or(&[], List::as_slice)
}

/// Whether nothing of these containers is started again.
pub(super) fn is_over(pod: &Value, status: &Value) -> bool {
    containers(pod, "containers")
        .zip(statuses(status, "containerStatuses"))
        .all(|(container, status)| {
            status["state"]["terminated"]["exitCode"]
                .as_i64()
                .is_some_and(|code| !container.restarts_after(code))
        })
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = Container<'a>> + use<'a> {
    let is_init = list == "initContainers";
    let specs = pod["spec"][list].as_array().map_or(&[][..], List::as_slice);
    specs.iter().map(move |spec| Container { pod, spec, is_init })
}

const LISTS: [(&str, &str); 2] = [
    ("initContainers", "initContainerStatuses"),
    ("containers", "containerStatuses"),
];

/// What becomes of the Pod.
pub(super) fn step(pod: &Value, moment: &Moment<'_>) -> Step {
    let mut step = Step {
        status: pod["status"].clone(),
        next_ms: None,
        may_go: false,
        wants_ip: false,
    };
    let is_deleting = !pod["metadata"]["deletionTimestamp"].is_null();
    if matches!(step.status["phase"].as_str(), Some("Succeeded" | "Failed")) {
        step.may_go = is_deleting;
        return step;
    }
    if step.status["startTime"].is_null() {
        if let Some(rejection) = moment.rejection.filter(|_| !is_deleting) {
            step.status["phase"] = "Failed".into();
            step.status["reason"] = rejection.reason.into();
            step.status["message"] = rejection.message.into();
            step.status["startTime"] = time_text(moment.now_ms.div_euclid(1000)).into();
            return step;
        }
        begin(pod, &mut step.status, moment);
        step.next_ms = Some(moment.now_ms + program::start_ms(pod, moment.profile));
        if !is_deleting {
            return step;
        }
    }
    if is_deleting {
        stop(pod, &mut step, moment);
    } else if let Some(end_ms) = deadline_ms(pod, &step.status).filter(|end_ms| *end_ms <= moment.now_ms) {
        end_all(pod, &mut step.status, end_ms);
        step.status["reason"] = "DeadlineExceeded".into();
        step.status["message"] = "Pod was active on the node longer than the specified deadline".into();
        finish(pod, &mut step.status, "Failed", moment);
    } else {
        go_on(pod, &mut step, moment);
        let deadline = deadline_ms(pod, &step.status).filter(|_| step.next_ms.is_some() || !has_ended(&step.status));
        step.next_ms = step.next_ms.into_iter().chain(deadline).min();
    }
    step
}

fn has_ended(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The node has seen the Pod.
fn begin(pod: &Value, status: &mut Value, moment: &Moment<'_>) {
    status["phase"] = "Pending".into();
    status["startTime"] = time_text(moment.now_ms.div_euclid(1000)).into();
    status["hostIP"] = moment.host_ip.into();
    status["hostIPs"] = json!([{"ip": moment.host_ip}]);
    let has_init = containers(pod, "initContainers").next().is_some();
    for (list, field) in LISTS {
        let reason = if has_init {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        let waiting: Vec<Value> = containers(pod, list)
            .map(|container| container.waiting(reason))
            .collect();
        if !waiting.is_empty() {
            status[field] = waiting.into();
        }
    }
    conditions::settle(pod, status, false, !has_init, moment);
}

fn deadline_ms(pod: &Value, status: &Value) -> Option<i64> {
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_i64()?;
    Some(milliseconds(&status["startTime"])? + seconds.saturating_mul(1000))
}

/// Sandbox, init containers in their order, then the others.
fn go_on(pod: &Value, step: &mut Step, moment: &Moment<'_>) {
    let status = &mut step.status;
    if !condition(pod, "PodReadyToStartContainers").is_some_and(|condition| condition["status"] == "True") {
        let begun_ms = milliseconds(&status["startTime"]).unwrap_or(0);
        let due_ms = begun_ms + program::start_ms(pod, moment.profile);
        if due_ms > moment.now_ms {
            step.next_ms = Some(due_ms);
            return;
        }
        let is_on_host = pod["spec"]["hostNetwork"] == true;
        let Some(ip) = moment.pod_ip.or(is_on_host.then_some(moment.host_ip)) else {
            step.wants_ip = true;
            return;
        };
        status["podIP"] = ip.into();
        status["podIPs"] = json!([{"ip": ip}]);
    }
    let mut next: Vec<i64> = Vec::new();
    let mut init = Vec::new();
    let (mut is_turn, mut init_failed) = (true, false);
    for (place, container) in containers(pod, "initContainers").enumerate() {
        let old = match statuses(status, "initContainerStatuses").get(place) {
            Some(old) => old.clone(),
            None => container.waiting("PodInitializing"),
        };
        let was_running = !old["state"]["running"].is_null();
        let mut advanced = if is_turn || was_running {
            container.advance(&old, is_turn, moment)
        } else {
            crate::hollow::containers::Advanced {
                status: old,
                next_ms: None,
            }
        };
        let new = &mut advanced.status;
        let code = new["state"]["terminated"]["exitCode"].as_i64();
        if container.is_sidecar() {
            is_turn &= new["started"] == true;
        } else {
            if code == Some(0) {
                new["ready"] = true.into();
            }
            init_failed |= is_turn && code.is_some_and(|code| code != 0 && !container.restarts_after(code));
            is_turn &= code == Some(0);
        }
        next.extend(advanced.next_ms);
        init.push(advanced.status);
    }
    if !init.is_empty() {
        status["initContainerStatuses"] = init.into();
    }
    let is_initialized = is_turn;
    let mut main = Vec::new();
    for (place, container) in containers(pod, "containers").enumerate() {
        let old = match statuses(status, "containerStatuses").get(place) {
            Some(old) => old.clone(),
            None => container.waiting("ContainerCreating"),
        };
        let advanced = container.advance(&old, is_initialized, moment);
        next.extend(advanced.next_ms);
        main.push(advanced.status);
    }
    status["containerStatuses"] = main.into();
    add_ephemeral(pod, status, moment);
    let phase = conditions::phase(pod, status, is_initialized, init_failed);
    if matches!(phase, "Succeeded" | "Failed") {
        // Sidecars end with the last of the others.
        for (place, _) in containers(pod, "initContainers").enumerate() {
            if !statuses(status, "initContainerStatuses")[place]["state"]["running"].is_null() {
                Container::end(
                    &mut status["initContainerStatuses"][place],
                    0,
                    None,
                    None,
                    moment.now_ms,
                );
            }
        }
        finish(pod, status, phase, moment);
        return;
    }
    status["phase"] = phase.into();
    conditions::settle(pod, status, true, is_initialized, moment);
    step.next_ms = next.into_iter().min();
}

/// Containers that were added to look at the others: they run.
fn add_ephemeral(pod: &Value, status: &mut Value, moment: &Moment<'_>) {
    let mut told = Vec::new();
    for (place, container) in containers(pod, "ephemeralContainers").enumerate() {
        let old = match statuses(status, "ephemeralContainerStatuses").get(place) {
            Some(old) => old.clone(),
            None => container.waiting("ContainerCreating"),
        };
        told.push(if old["state"]["waiting"].is_null() {
            old
        } else {
            container.advance(&old, true, moment).status
        });
    }
    if !told.is_empty() {
        status["ephemeralContainerStatuses"] = told.into();
    }
}

/// The Pod was deleted: what runs of it ends, within its grace.
fn stop(pod: &Value, step: &mut Step, moment: &Moment<'_>) {
    let metadata = &pod["metadata"];
    let grace_ms = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0)
        .max(0)
        .saturating_mul(1000);
    let end_ms = milliseconds(&metadata["deletionTimestamp"]).unwrap_or(0);
    let due_ms = end_ms.saturating_sub(grace_ms) + program::stop_ms(pod, moment.profile).min(grace_ms);
    let is_running = LISTS
        .iter()
        .flat_map(|(_, field)| statuses(&step.status, field))
        .any(|status| !status["state"]["running"].is_null());
    if is_running && due_ms > moment.now_ms {
        step.next_ms = Some(due_ms);
        return;
    }
    end_all(pod, &mut step.status, moment.now_ms);
    let all_well = statuses(&step.status, "containerStatuses")
        .iter()
        .all(|status| status["state"]["terminated"]["exitCode"] == 0);
    finish(
        pod,
        &mut step.status,
        if all_well { "Succeeded" } else { "Failed" },
        moment,
    );
    step.may_go = true;
    step.next_ms = None;
}

/// Ends what runs, and what has not begun.
fn end_all(pod: &Value, status: &mut Value, at_ms: i64) {
    const LOST: &str = "The container could not be located when the pod was terminated";
    for (list, field) in LISTS {
        for (place, container) in containers(pod, list).enumerate() {
            let Some(old) = statuses(status, field).get(place) else {
                continue;
            };
            let (is_running, is_waiting) = (!old["state"]["running"].is_null(), !old["state"]["waiting"].is_null());
            let status = &mut status[field][place];
            if is_running {
                Container::end(status, program::stopped_code(&container), None, None, at_ms);
            } else if is_waiting {
                Container::end(status, 137, Some("ContainerStatusUnknown"), Some(LOST), at_ms);
            }
        }
    }
}

fn finish(pod: &Value, status: &mut Value, phase: &str, moment: &Moment<'_>) {
    status["phase"] = phase.into();
    let is_initialized = condition(pod, "Initialized").is_some_and(|condition| condition["status"] == "True")
        || phase == "Succeeded"
        || statuses(status, "initContainerStatuses")
            .iter()
            .all(|status| status["state"]["terminated"]["exitCode"] == 0);
    conditions::settle(pod, status, false, is_initialized, moment);
}
