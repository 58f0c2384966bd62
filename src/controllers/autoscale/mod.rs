//! HorizontalPodAutoscalers: as many replicas as metrics ask for.
//!
//! | file | what it does |
//! | --- | --- |
//! | `metrics` | asks the metrics APIs |
//! | `calculate` | replicas that a metric asks for |
//! | `behavior` | how fast replicas may change |
//! | `proposals` | what each metric of an autoscaler proposes, and what it tells of it |

mod behavior;
mod calculate;
mod metrics;
mod proposals;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use behavior::{Bounds, Memory};
use proposals::{Chosen, Scaled};

use super::claim::gone_is_fine;
use super::event::{Level, Recorder};
use super::failure::Failure;
use super::kinds::resource_of;
use super::metadata::is_same;
use super::queue::Done;
use super::runtime::Controller;
use crate::api::Client;
use crate::api::status::Status;
use crate::resources::{self, ResourceRef, scale, time_text};
use crate::store::View;
use crate::tree::{Value, json};

const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
/// How often each is looked at.
const PERIOD: Duration = Duration::from_secs(15);

pub(super) struct Autoscalers {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    pods: ResourceRef,
    /// What is remembered of each, by UID: a recommendation each period for as long as its windows are, some 20 of 16 bytes.
    memories: Mutex<HashMap<String, Memory>>,
    /// UIDs by key, so that what is gone can be forgotten.
    uids: Mutex<HashMap<Arc<str>, String>>,
}

/// An autoscaler while it is looked at: as it is stored, and its conditions as they come to be.
struct Look {
    scaler: Value,
    status: Value,
    now_s: i64,
}

impl Look {
    /// Conditions of autoscalers carry no generation.
    fn set(&mut self, kind: &str, state: bool, reason: &str, message: &str) {
        let state = if state { "True" } else { "False" };
        super::condition::set(
            &mut self.status,
            kind,
            (state, reason),
            message,
            &Value::Null,
            self.now_s,
        );
    }

    fn counts(&mut self, current: i64, desired: i64) {
        self.status["currentReplicas"] = current.into();
        self.status["desiredReplicas"] = desired.into();
    }
}

impl Autoscalers {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(AUTOSCALERS)?.into(),
            pods: resources::stored("pods")?.into(),
            memories: Mutex::default(),
            uids: Mutex::default(),
        })
    }

    fn with_memory<T>(&self, scaler: &Value, then: impl FnOnce(&mut Memory) -> T) -> T {
        let uid = scaler["metadata"]["uid"].as_str().unwrap_or("");
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        then(memories.entry(uid.to_owned()).or_default())
    }

    fn forget(&self, key: &str) {
        let uid = self.uids.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(uid) = uid {
            self.memories
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&uid);
        }
    }

    /// What is scaled; or why it cannot be had.
    fn target(&self, view: &View, scaler: &Value) -> Result<Result<Scaled, String>, Failure> {
        let reference = &scaler["spec"]["scaleTargetRef"];
        let text = |field: &str| reference[field].as_str().unwrap_or("");
        let namespace = scaler["metadata"]["namespace"].as_str().unwrap_or("");
        let Some(resource) = resource_of(&self.client, text("apiVersion"), text("kind")) else {
            let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            return Ok(Err(format!(
                "no matches for kind \"{}\" in group \"{group}\"",
                text("kind")
            )));
        };
        let missing = |what: String| Ok(Err(what));
        if resource.subresource("scale").is_none() {
            return missing("the server could not find the requested resource".to_owned());
        }
        let key = resource.key(resource.namespaced.then_some(namespace), text("name"));
        let Some(object) = view.get(&resource.storage, &key)? else {
            return missing(Status::not_found(&resource.group, &resource.plural, text("name")).message);
        };
        let (scale, _) = scale::scale_of(&resource, &self.client.read(&resource, &object)?);
        Ok(Ok(Scaled { resource, key, scale }))
    }

    async fn rescale(&self, target: &Scaled, replicas: i64) -> Result<(), Status> {
        let edit = |old: &Value| {
            let mut wanted = json!({"spec": {"replicas": replicas}});
            wanted["metadata"]["name"] = old["metadata"]["name"].clone();
            scale::apply_scale(&target.resource, old, &wanted).ok()
        };
        self.client
            .change(&target.resource, Some("scale"), &target.key, edit)
            .await
    }

    async fn tell(&self, key: &str, look: &Look) -> Result<(), Failure> {
        let edit = |old: &Value| {
            if !is_same(old, &look.scaler) {
                return None;
            }
            let mut new = old.clone();
            new["status"] = look.status.clone();
            (new["status"] != old["status"]).then_some(new)
        };
        Ok(gone_is_fine(
            self.client.change(&self.resource, Some("status"), key, edit).await,
        )?)
    }

    /// Looks at an autoscaler whose target is there.
    async fn scale(&self, view: &Arc<View>, look: &mut Look, target: &Scaled) -> Result<(), Failure> {
        let spec = look.scaler["spec"].clone();
        let number = |value: &Value, otherwise: i64| value.as_i64().unwrap_or(otherwise);
        let (min, max) = (number(&spec["minReplicas"], 1), number(&spec["maxReplicas"], 1));
        let current = number(&target.scale["spec"]["replicas"], 0);
        let (behavior, now_s) = (&spec["behavior"], look.now_s);
        self.with_memory(&look.scaler, |memory| memory.begin(current, now_s));
        let mut metrics = Value::Null;
        let (desired, reason) = if current == 0 && min != 0 {
            let text = "scaling is disabled since the replica count of the target is zero";
            look.set("ScalingActive", false, "ScalingDisabled", text);
            (0, String::new())
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            let Chosen {
                replicas,
                metric,
                statuses,
            } = match self.proposals(view, look, target).await? {
                Ok(chosen) => chosen,
                Err((why, statuses)) => {
                    let desired = number(&look.status["desiredReplicas"], 0);
                    look.counts(current, desired);
                    set_metrics(&mut look.status, statuses);
                    self.recorder
                        .tell(&look.scaler, Level::Warning, "FailedComputeMetricsReplicas", why);
                    return Ok(());
                }
            };
            metrics = statuses;
            let reason = if replicas > current {
                format!("{metric} above target")
            } else {
                "All metrics below target".to_owned()
            };
            let bounds = Bounds { current, min, max };
            let limited = self.with_memory(&look.scaler, |memory| memory.limit(behavior, replicas, bounds, now_s));
            look.set("AbleToScale", true, limited.able.0, limited.able.1);
            let (is_limited, why, message) = limited.limited;
            look.set("ScalingLimited", is_limited, why, message);
            (limited.replicas, reason)
        };
        if desired != current {
            if let Err(status) = self.rescale(target, desired).await {
                let told = format!("New size: {desired}; reason: {reason}; error: {}", status.message);
                self.recorder.tell(&look.scaler, Level::Warning, "FailedRescale", told);
                let text = format!(
                    "the HPA controller was unable to update the target scale: {}",
                    status.message
                );
                look.set("AbleToScale", false, "FailedUpdateScale", &text);
                let before = number(&look.status["desiredReplicas"], 0);
                look.counts(current, before);
                return Ok(());
            }
            let text = format!("the HPA controller was able to update the target scale to {desired}");
            look.set("AbleToScale", true, "SucceededRescale", &text);
            let told = format!("New size: {desired}; reason: {reason}");
            self.recorder
                .tell(&look.scaler, Level::Normal, "SuccessfulRescale", told);
            self.with_memory(&look.scaler, |memory| memory.scaled(behavior, current, desired, now_s));
            look.status["lastScaleTime"] = time_text(now_s).into();
        }
        look.counts(current, desired);
        set_metrics(&mut look.status, metrics);
        Ok(())
    }
}

fn set_metrics(status: &mut Value, metrics: Value) {
    match (&metrics, status.as_object_mut()) {
        (Value::Null, Some(fields)) => drop(fields.remove("currentMetrics")),
        _ => status["currentMetrics"] = metrics,
    }
}

impl Controller for Autoscalers {
    fn resource(&self) -> &'static str {
        AUTOSCALERS
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(AUTOSCALERS, key)? else {
            self.forget(key);
            return Ok(Done::Settled);
        };
        let scaler = self.client.read(&self.resource, &object)?;
        let uid = scaler["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        self.uids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.into(), uid);
        let status = if scaler["status"].is_object() {
            scaler["status"].clone()
        } else {
            json!({})
        };
        let now_s = jiff::Timestamp::now().as_second();
        let (generation, period_s) = (
            scaler["metadata"]["generation"].as_i64(),
            PERIOD.as_secs().cast_signed(),
        );
        let due = self.with_memory(&scaler, |memory| memory.due(generation.unwrap_or(0), period_s, now_s));
        if let Some(wait_s) = due {
            return Ok(Done::After(Duration::from_secs(wait_s.unsigned_abs())));
        }
        let mut look = Look { scaler, status, now_s };
        match self.target(&view, &look.scaler)? {
            Ok(target) => {
                let text = "the HPA controller was able to get the target's current scale";
                look.set("AbleToScale", true, "SucceededGetScale", text);
                self.scale(&view, &mut look, &target).await?;
            }
            Err(why) => {
                let text = format!("the HPA controller was unable to get the target's current scale: {why}");
                look.set("AbleToScale", false, "FailedGetScale", &text);
                self.recorder.tell(&look.scaler, Level::Warning, "FailedGetScale", why);
            }
        }
        self.tell(key, &look).await?;
        Ok(Done::After(PERIOD))
    }
}
