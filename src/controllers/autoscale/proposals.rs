//! What each metric of an autoscaler proposes, and what it tells of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::calculate::{Aim, Proposal, Tolerance, millis, of_pods, of_share, of_whole, requests};
use super::metrics::Metrics;
use super::{Autoscalers, Look};
use crate::api::Client;
use crate::controllers::event::Level;
use crate::controllers::failure::Failure;
use crate::controllers::kinds::resource_of;
use crate::controllers::pod::is_ready;
use crate::controllers::selector;
use crate::resources::ResourceRef;
use crate::resources::quantity::Quantity;
use crate::store::{Range, View};
use crate::tree::{Value, json};

/// How far from its target a metric may be, unless the autoscaler says something else.
const TOLERANCE: f64 = 0.1;
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// What is scaled.
pub(super) struct Scaled {
    pub(super) resource: ResourceRef,
    pub(super) key: String,
    /// Its Scale.
    pub(super) scale: Value,
}

/// The proposal that counts.
pub(super) struct Chosen {
    pub(super) replicas: i64,
    /// What Events call the metric.
    pub(super) metric: String,
    /// `status.currentMetrics`
    pub(super) statuses: Value,
}

/// What one metric comes to: the proposal, what Events call it, its status; or the reason and the texts of a condition and of the whole.
type Outcome = Result<(Proposal, String, Value), (&'static str, String, String)>;

/// What all metrics are looked at with.
struct Of<'a> {
    metrics: Metrics<'a>,
    pods: Vec<Value>,
    /// Labels of the Pods, as a query has them.
    selector: &'a str,
    current: i64,
    present: i64,
    tolerance: Tolerance,
    now_s: i64,
}

impl Autoscalers {
    /// What the metrics of an autoscaler propose; or why nothing can be said, with what is known of them.
    pub(super) async fn proposals(
        &self,
        view: &Arc<View>,
        look: &mut Look,
        target: &Scaled,
    ) -> Result<Result<Chosen, (String, Value)>, Failure> {
        let namespace = look.scaler["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        let selector = target.scale["status"]["selector"].as_str().unwrap_or("").to_owned();
        let selection = Client::selection(&selector).filter(|_| !selector.is_empty());
        let Some(selection) = selection else {
            let text = "selector is required";
            self.recorder
                .tell(&look.scaler, Level::Warning, "SelectorRequired", text.to_owned());
            let message = "the HPA target's scale is missing a selector";
            look.set("ScalingActive", false, "InvalidSelector", message);
            return Ok(Err((text.to_owned(), Value::Null)));
        };
        let range = Range {
            namespace: Some(namespace.clone()),
            after: None,
        };
        let mut pods = Vec::new();
        let mut listing = view.list("pods", range, &selection);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                pods.push(self.client.read(&self.pods, &object)?);
            }
        }
        let spec = look.scaler["spec"].clone();
        let tolerance = |field: &str| {
            let text = spec["behavior"][field]["tolerance"].as_str();
            text.and_then(Quantity::parse)
                .map_or(TOLERANCE, |it| it.nanos() as f64 / 1e9)
        };
        let of = Of {
            metrics: Metrics {
                client: &self.client,
                namespace: &namespace,
            },
            pods,
            selector: &selector,
            current: target.scale["spec"]["replicas"].as_i64().unwrap_or(0),
            present: target.scale["status"]["replicas"].as_i64().unwrap_or(0),
            tolerance: Tolerance {
                up: tolerance("scaleUp"),
                down: tolerance("scaleDown"),
            },
            now_s: look.now_s,
        };
        let all = spec["metrics"].as_array().map_or(&[][..], |metrics| metrics.as_slice());
        let (mut chosen, mut statuses, mut invalid, mut first) = (None::<(i64, String)>, Vec::new(), 0, None);
        for metric in all {
            match self.one(&of, metric).await {
                Ok((proposal, name, status)) => {
                    statuses.push(status);
                    if chosen
                        .as_ref()
                        .is_none_or(|(replicas, _)| proposal.replicas > *replicas)
                    {
                        chosen = Some((proposal.replicas, name));
                    }
                }
                Err((reason, condition, whole)) => {
                    // An empty one keeps the others in their places.
                    statuses.push(json!({"type": ""}));
                    self.recorder
                        .tell(&look.scaler, Level::Warning, reason, condition.clone());
                    invalid += 1;
                    first.get_or_insert((reason, condition, whole));
                }
            }
        }
        let statuses = if invalid == all.len() {
            Value::Null
        } else {
            Value::from(statuses)
        };
        let is_down = chosen.as_ref().is_none_or(|(replicas, _)| *replicas < of.current);
        match (chosen, first) {
            (Some((replicas, metric)), first) if first.is_none() || !is_down => {
                let text = format!("the HPA was able to successfully calculate a replica count from {metric}");
                look.set("ScalingActive", true, "ValidMetricFound", &text);
                Ok(Ok(Chosen {
                    replicas,
                    metric,
                    statuses,
                }))
            }
            (_, Some((reason, condition, whole))) => {
                let text = format!("the HPA was unable to compute the replica count: {condition}");
                look.set("ScalingActive", false, reason, &text);
                let all = all.len();
                let text = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {whole}");
                Ok(Err((text, statuses)))
            }
            _ => Ok(Err(("no metrics are asked for".to_owned(), Value::Null))),
        }
    }

    async fn one(&self, of: &Of<'_>, metric: &Value) -> Outcome {
        match metric["type"].as_str().unwrap_or("") {
            "Resource" => of.resource(&metric["resource"], None).await,
            "ContainerResource" => {
                let source = &metric["containerResource"];
                of.resource(source, Some(source["container"].as_str().unwrap_or("")))
                    .await
            }
            "Pods" => of.pods(&metric["pods"]).await,
            "Object" => self.object(of, &metric["object"]).await,
            "External" => of.external(&metric["external"]).await,
            other => {
                let text = format!("unknown metric source type \"{other}\"");
                Err(("InvalidMetricSourceType", text.clone(), text))
            }
        }
    }

    async fn object(&self, of: &Of<'_>, source: &Value) -> Outcome {
        let described = &source["describedObject"];
        let text = |field: &str| described[field].as_str().unwrap_or("");
        let (metric, selector) = identity(source);
        let failed = |why: String| {
            let whole = format!("failed to get object metric value: {why}");
            ("FailedGetObjectMetric", why, whole)
        };
        let resource = resource_of(&self.client, text("apiVersion"), text("kind"));
        let resource = resource.map_or_else(|| text("kind").to_lowercase(), |resource| resource.qualified());
        let value = of
            .metrics
            .of_object(&metric, &resource, text("name"), &selector)
            .await
            .map_err(|why| {
                failed(format!(
                    "unable to get metric {metric}: {} on {} {why}",
                    text("kind"),
                    of.metrics.namespace
                ))
            })?;
        let (proposal, current) = of.shared(value, &source["target"]);
        let mut status = json!({"type": "Object"});
        status["object"]["describedObject"] = described.clone();
        status["object"]["metric"] = source["metric"].clone();
        status["object"]["current"] = current;
        Ok((proposal, format!("{} metric {metric}", text("kind")), status))
    }
}

impl Of<'_> {
    async fn resource(&self, source: &Value, container: Option<&str>) -> Outcome {
        let (name, target) = (source["name"].as_str().unwrap_or(""), &source["target"]);
        let kind = if container.is_some() {
            "container resource"
        } else {
            "resource"
        };
        let aim = match (target["averageUtilization"].as_i64(), quantity(&target["averageValue"])) {
            (_, Some(average)) => Aim::Average(average),
            (Some(percent), None) => Aim::Utilization(percent),
            (None, None) => Aim::Utilization(0),
        };
        let reason = if container.is_some() {
            "FailedGetContainerResourceMetric"
        } else {
            "FailedGetResourceMetric"
        };
        let what = if matches!(aim, Aim::Average(_)) {
            "usage"
        } else {
            "utilization"
        };
        let failed = |why: String| {
            let condition = format!("failed to get {name} {what}: {why}");
            let whole = format!("failed to get {name} {kind} metric value: {condition}");
            (reason, condition, whole)
        };
        let samples = self
            .metrics
            .resource(name, container, self.selector)
            .await
            .map_err(failed)?;
        let requested = match aim {
            Aim::Average(_) => BTreeMap::new(),
            Aim::Utilization(_) => requests(&self.pods, name, container).map_err(failed)?,
        };
        let aim = (aim, name == "cpu");
        let proposal = of_pods(
            self.current,
            &self.pods,
            samples,
            &requested,
            aim,
            self.tolerance,
            self.now_s,
        )
        .map_err(failed)?;
        let mut current = json!({"averageValue": written(proposal.millis)});
        let mut shown = format!("{name} {kind}");
        if let Some(percent) = proposal.utilization {
            current["averageUtilization"] = percent.into();
            shown += " utilization (percentage of request)";
        }
        let (kind, field) = if container.is_some() {
            ("ContainerResource", "containerResource")
        } else {
            ("Resource", "resource")
        };
        let mut status = json!({"type": kind});
        status[field] = json!({"name": name});
        if let Some(container) = container {
            status[field]["container"] = container.into();
        }
        status[field]["current"] = current;
        Ok((proposal, shown, status))
    }

    async fn pods(&self, source: &Value) -> Outcome {
        let (metric, selector) = identity(source);
        let failed = |why: String| {
            let whole = format!("failed to get pods metric value: {why}");
            ("FailedGetPodsMetric", why, whole)
        };
        let samples = self
            .metrics
            .of_pods(&metric, self.selector, &selector)
            .await
            .map_err(failed)?;
        let aim = Aim::Average(quantity(&source["target"]["averageValue"]).unwrap_or(1));
        let none = BTreeMap::new();
        let proposal = of_pods(
            self.current,
            &self.pods,
            samples,
            &none,
            (aim, false),
            self.tolerance,
            self.now_s,
        )
        .map_err(failed)?;
        let mut status = json!({"type": "Pods"});
        status["pods"]["metric"] = source["metric"].clone();
        status["pods"]["current"]["averageValue"] = written(proposal.millis).into();
        Ok((proposal, format!("pods metric {metric}"), status))
    }

    async fn external(&self, source: &Value) -> Outcome {
        let (metric, selector) = identity(source);
        let value = self.metrics.external(&metric, &selector).await.map_err(|why| {
            let namespace = self.metrics.namespace;
            let shown = if source["metric"]["selector"].is_null() {
                "nil".to_owned()
            } else {
                selector::go_text(&source["metric"]["selector"])
            };
            let condition = format!("unable to get external metric {namespace}/{metric}/{shown}: {why}");
            let whole = format!(
                "failed to get {metric} external metric value: failed to get {metric} external metric: {condition}"
            );
            ("FailedGetExternalMetric", condition, whole)
        })?;
        let (proposal, current) = self.shared(value, &source["target"]);
        let mut status = json!({"type": "External"});
        status["external"]["metric"] = source["metric"].clone();
        status["external"]["current"] = current;
        let shown = if source["metric"]["selector"].is_null() {
            "nil".to_owned()
        } else {
            selector::go_text(&source["metric"]["selector"])
        };
        Ok((proposal, format!("external metric {metric}({shown})"), status))
    }

    /// What one value for all Pods asks for, and how it is told.
    fn shared(&self, value: i64, target: &Value) -> (Proposal, Value) {
        if let Some(average) = quantity(&target["averageValue"]) {
            let proposal = of_share(self.present, value, average, self.tolerance);
            return (proposal, json!({"averageValue": written(proposal.millis)}));
        }
        let is_running = |pod: &&Value| pod["status"]["phase"] == "Running" && is_ready(pod);
        let ready = self.pods.iter().filter(is_running).count() as i64;
        let whole = quantity(&target["value"]).unwrap_or(1);
        let proposal = of_whole(self.current, ready, value, whole, self.tolerance);
        (proposal, json!({"value": written(proposal.millis)}))
    }
}

/// The name of a metric, and its selector as a query has it.
fn identity(source: &Value) -> (String, String) {
    let metric = &source["metric"];
    let name = metric["name"].as_str().unwrap_or("").to_owned();
    (name, selector::query(&metric["selector"]))
}

fn quantity(value: &Value) -> Option<i64> {
    millis(value.as_str()?)
}

/// Thousandths as a quantity.
fn written(millis: i64) -> String {
    let text = format!("{millis}m");
    Quantity::parse(&text).map_or(text, Quantity::canonical)
}
