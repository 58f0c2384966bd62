//! What becomes of one container: a function of its status as stored and the time.
//!
//! Restarts wait as kubelet's do: the first comes at once, the next after 10 seconds, then twice as long each time, 5 minutes at most
//! (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restarts>).

use super::life::{Moment, milliseconds};
use super::program::{self, Outcome};
use crate::resources::time_text;
use crate::tree::{Value, json};

/// The first wait of a container that crashes again, and the longest, seconds.
const BACKOFF_FIRST_S: i64 = 10;
const BACKOFF_MAX_S: i64 = 300;
/// Until the end of a container is noticed for the first time and it is started again, milliseconds.
const NOTICED_MS: i64 = 1000;
/// A container that ran so long begins anew with short waits, seconds.
const STEADY_S: i64 = 600;

/// A container of a Pod.
pub(super) struct Container<'a> {
    pub(super) pod: &'a Value,
    /// Its entry in the Pod's spec.
    pub(super) spec: &'a Value,
    pub(super) is_init: bool,
}

/// What comes of a container now.
pub(super) struct Advanced {
    pub(super) status: Value,
    /// When there will be more to say, Unix milliseconds.
    pub(super) next_ms: Option<i64>,
}

impl<'a> Container<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.spec["name"].as_str().unwrap_or("")
    }

    /// An init container that stays beside the others.
    pub(super) fn is_sidecar(&self) -> bool {
        self.is_init && self.spec["restartPolicy"] == "Always"
    }

    /// Whether one that ended with this code is started again.
    pub(super) fn restarts_after(&self, exit_code: i64) -> bool {
        for rule in self.spec["restartPolicyRules"].as_array().into_iter().flatten() {
            let codes = &rule["exitCodes"];
            let is_listed = codes["values"]
                .as_array()
                .is_some_and(|values| values.iter().any(|value| *value == exit_code));
            if is_listed == (codes["operator"] == "In") {
                return true;
            }
        }
        let own = self.spec["restartPolicy"].as_str();
        match own.or(self.pod["spec"]["restartPolicy"].as_str()) {
            // An init container that did what it was for is done.
            Some("Always") => own.is_some() || !self.is_init || exit_code != 0,
            Some("OnFailure") => exit_code != 0,
            _ => false,
        }
    }

    /// The status of one that has not been started.
    pub(super) fn waiting(&self, reason: &str) -> Value {
        let mut status = json!({
            "name": self.name(),
            "image": self.spec["image"].as_str().unwrap_or(""),
            "imageID": "",
            "ready": false,
            "started": false,
            "restartCount": 0,
            "lastState": {},
            "state": {"waiting": {"reason": reason}},
        });
        self.mounts(&mut status);
        status
    }

    /// What becomes of it. `may_start`: its turn has come.
    pub(super) fn advance(&self, old: &Value, may_start: bool, moment: &Moment<'_>) -> Advanced {
        let mut status = old.clone();
        let mut next_ms = None;
        // From one state to the next one; a container that ends as soon as it starts is seen running before.
        if let Some(since_ms) = milliseconds(&old["state"]["running"]["startedAt"]) {
            let outcome = self.outcome(old, moment);
            match outcome.runs_ms.map(|runs_ms| since_ms + runs_ms) {
                Some(end_ms) if end_ms <= moment.now_ms => {
                    Self::end(&mut status, outcome.exit_code, None, outcome.message.as_deref(), end_ms);
                    next_ms = Some(moment.now_ms);
                }
                end_ms => {
                    next_ms = end_ms;
                    for later_ms in self.check_probes(&mut status, since_ms, moment) {
                        next_ms = Some(next_ms.map_or(later_ms, |next_ms| next_ms.min(later_ms)));
                    }
                    self.resources(&mut status);
                }
            }
        } else if let Some(ended) = ended(old) {
            let is_waiting = old["state"]["terminated"].is_null();
            if is_waiting || self.restarts_after(ended["exitCode"].as_i64().unwrap_or(0)) {
                let restarts = old["restartCount"].as_i64().unwrap_or(0);
                let at_ms = Self::restart_ms(ended, restarts);
                if at_ms <= moment.now_ms {
                    status["lastState"] = json!({"terminated": ended});
                    next_ms = self.start(&mut status, restarts + 1, moment);
                } else {
                    next_ms = Some(at_ms);
                    if restarts > 0 && !is_waiting {
                        self.wait_for_restart(&mut status, ended, restarts);
                    }
                }
            }
        } else if may_start {
            if program::has_image(self.spec, self.pod) {
                next_ms = self.start(&mut status, 0, moment);
            } else {
                next_ms = self.fail_to_pull(&mut status, moment);
            }
        }
        Advanced { status, next_ms }
    }

    fn outcome(&self, status: &Value, moment: &Moment<'_>) -> Outcome {
        program::outcome(self, status["restartCount"].as_i64().unwrap_or(0), moment.host)
    }

    fn start(&self, status: &mut Value, restarts: i64, moment: &Moment<'_>) -> Option<i64> {
        let uid = self.pod["metadata"]["uid"].as_str().unwrap_or("");
        let image = program::full_image(self.spec["image"].as_str().unwrap_or(""));
        let id = program::digest(&[uid, self.name(), &restarts.to_string()]);
        status["state"] = json!({"running": {"startedAt": time_text(moment.now_ms.div_euclid(1000))}});
        status["imageID"] = program::image_id(&image).into();
        status["image"] = image.into();
        status["containerID"] = format!("containerd://{id}").into();
        status["restartCount"] = restarts.into();
        status["ready"] = false.into();
        status["started"] = false.into();
        self.resources(status);
        let end_ms = self
            .outcome(status, moment)
            .runs_ms
            .map(|runs_ms| moment.now_ms + runs_ms);
        let probes = self.check_probes(status, moment.now_ms, moment);
        probes.chain(end_ms).min()
    }

    /// Ends it with that code.
    pub(super) fn end(status: &mut Value, exit_code: i64, reason: Option<&str>, message: Option<&str>, at_ms: i64) {
        let reason = reason.unwrap_or(if exit_code == 0 { "Completed" } else { "Error" });
        let at = time_text(at_ms.div_euclid(1000));
        let mut ended = json!({"exitCode": exit_code, "reason": reason, "finishedAt": at});
        let started = status["state"]["running"]["startedAt"].clone();
        // One that never ran has no beginning.
        ended["startedAt"] = if started.is_null() { at.into() } else { started };
        if let Some(message) = message {
            ended["message"] = message.into();
        }
        if let Some(id) = status["containerID"].as_str().filter(|id| !id.is_empty()) {
            ended["containerID"] = id.into();
        }
        status["state"] = json!({"terminated": ended});
        status["ready"] = false.into();
        status["started"] = false.into();
    }

    /// When one that ended so is started again, after so many restarts.
    fn restart_ms(ended: &Value, restarts: i64) -> i64 {
        let at_ms = milliseconds(&ended["finishedAt"]).unwrap_or(0);
        at_ms
            + match Self::backoff_s(ended, restarts) {
                0 => NOTICED_MS,
                seconds => seconds * 1000,
            }
    }

    fn backoff_s(ended: &Value, restarts: i64) -> i64 {
        let times = [&ended["startedAt"], &ended["finishedAt"]].map(|time| milliseconds(time).unwrap_or(0));
        if restarts == 0 || times[1] - times[0] >= STEADY_S * 1000 {
            return 0;
        }
        let doubled = (restarts - 1).clamp(0, 10);
        (BACKOFF_FIRST_S << doubled).min(BACKOFF_MAX_S)
    }

    fn wait_for_restart(&self, status: &mut Value, ended: &Value, restarts: i64) {
        let seconds = Self::backoff_s(ended, restarts);
        if seconds == 0 {
            return;
        }
        let text = |field: &str| self.pod["metadata"][field].as_str().unwrap_or("");
        let message = format!(
            "back-off {}restarting failed container={} pod={}_{}({})",
            match (seconds / 60, seconds % 60) {
                (0, seconds) => format!("{seconds}s "),
                (minutes, seconds) => format!("{minutes}m{seconds}s "),
            },
            self.name(),
            text("name"),
            text("namespace"),
            text("uid"),
        );
        status["lastState"] = json!({"terminated": ended});
        status["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
    }

    /// An image that is not to be had: the wait for it is told in turns, as kubelet does.
    fn fail_to_pull(&self, status: &mut Value, moment: &Moment<'_>) -> Option<i64> {
        let image = self.spec["image"].as_str().unwrap_or("");
        let is_known = status["state"]["waiting"]["reason"] == "ErrImagePull";
        if status["state"]["waiting"]["reason"] == "ImagePullBackOff" {
            return None;
        }
        status["state"] = if is_known {
            json!({"waiting": {"reason": "ImagePullBackOff", "message": format!("Back-off pulling image \"{image}\"")}})
        } else {
            let why = format!(
                "failed to pull and unpack image \"{}\": not found",
                program::full_image(image)
            );
            json!({"waiting": {"reason": "ErrImagePull", "message": why}})
        };
        (!is_known).then_some(moment.now_ms + 1000)
    }

    /// Whether it is started and ready by now; gives when that changes.
    fn check_probes(
        &self,
        status: &mut Value,
        since_ms: i64,
        moment: &Moment<'_>,
    ) -> impl Iterator<Item = i64> + use<> {
        let initial_ms = |probe: &str| {
            let probe = &self.spec[probe];
            probe["initialDelaySeconds"].as_i64().unwrap_or(0).clamp(0, 86_400) * 1000
        };
        let has = |probe: &str| !self.spec[probe].is_null();
        let started_ms = since_ms
            + if has("startupProbe") {
                initial_ms("startupProbe")
            } else {
                0
            };
        let ready_ms = match program::ready_after_ms(self, moment.host) {
            program::Ready::Never => None,
            program::Ready::After(delay_ms) => Some(since_ms + delay_ms),
            program::Ready::Usual => {
                let usual_ms = if self.is_init && !self.is_sidecar() {
                    0
                } else {
                    i64::from(moment.profile.ready_ms)
                };
                Some(started_ms.max(since_ms + initial_ms("readinessProbe")) + usual_ms)
            }
        };
        let is_started = started_ms <= moment.now_ms;
        let is_ready = is_started && ready_ms.is_some_and(|at_ms| at_ms <= moment.now_ms);
        status["started"] = is_started.into();
        // Of an init container it means that it is done.
        status["ready"] = (is_ready && (!self.is_init || self.is_sidecar())).into();
        let is_waited_for = !self.is_init || self.is_sidecar();
        let ready_ms = ready_ms.filter(|_| !is_ready && is_waited_for);
        [
            (!is_started).then_some(started_ms),
            ready_ms.map(|at_ms| at_ms.max(started_ms)),
        ]
        .into_iter()
        .flatten()
    }

    /// What it was given: what its spec asks for, at once when that changes.
    fn resources(&self, status: &mut Value) {
        let asked = &self.spec["resources"];
        let requests = &asked["requests"];
        if requests.as_object().is_some_and(|requests| !requests.is_empty()) {
            status["allocatedResources"] = requests.clone();
        } else if let Some(status) = status.as_object_mut() {
            status.remove("allocatedResources");
        }
        let mut given = json!({});
        for field in ["limits", "requests"] {
            if asked[field].is_object() {
                given[field] = asked[field].clone();
            }
        }
        status["resources"] = given;
    }

    fn mounts(&self, status: &mut Value) {
        let mut mounts = Vec::new();
        for mount in self.spec["volumeMounts"].as_array().into_iter().flatten() {
            let mut told = json!({"name": mount["name"].as_str(), "mountPath": mount["mountPath"].as_str()});
            if mount["readOnly"] == true {
                told["readOnly"] = true.into();
                told["recursiveReadOnly"] = "Disabled".into();
            }
            mounts.push(told);
        }
        if !mounts.is_empty() {
            status["volumeMounts"] = mounts.into();
        }
    }
}

/// How a container ended last that does not run.
fn ended(status: &Value) -> Option<&Value> {
    [&status["state"]["terminated"], &status["lastState"]["terminated"]]
        .into_iter()
        .find(|ended| !ended.is_null())
}
