//! Kinds that are served in two shapes: Events (core and `events.k8s.io`) and HorizontalPodAutoscalers (`autoscaling/v1` and
//! `v2`). One shape is stored; objects of the other are converted when they are written and read.
//!
//! What `autoscaling/v1` has no fields for travels in annotations, as upstream's conversion does
//! (`k8s.io/kubernetes/pkg/apis/autoscaling/v1`), so that a client of the old version does not lose it.

use serde_json::{Map, Value, json};

use super::Resource;

/// From the stored shape to that of `resource`. Other resources' objects come back as they are.
pub fn from_stored(resource: &Resource, stored: Value) -> Value {
    match stored {
        Value::Object(fields) if is_newer_event(resource) => Value::Object(event_from_core(fields)),
        Value::Object(fields) if is_older_autoscaler(resource) => Value::Object(autoscaler_from_v2(fields)),
        other => other,
    }
}

/// From the shape of `resource` to the stored one. Other resources' objects come back as they are.
pub fn to_stored(resource: &Resource, object: Value) -> Value {
    match object {
        Value::Object(fields) if is_newer_event(resource) => Value::Object(event_to_core(fields)),
        Value::Object(fields) if is_older_autoscaler(resource) => Value::Object(autoscaler_to_v2(fields)),
        other => other,
    }
}

/// Whether objects of `resource` are stored in another shape than its own.
pub fn has_other_shape(resource: &Resource) -> bool {
    is_newer_event(resource) || is_older_autoscaler(resource)
}

fn is_newer_event(resource: &Resource) -> bool {
    resource.group == "events.k8s.io" && resource.kind == "Event"
}

fn is_older_autoscaler(resource: &Resource) -> bool {
    resource.group == "autoscaling" && resource.version == "v1" && resource.kind == "HorizontalPodAutoscaler"
}

/// Names of one field in the core group and in `events.k8s.io`; the other fields have one name.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn event_from_core(mut event: Map<String, Value>) -> Map<String, Value> {
    for (core, newer) in EVENT_FIELDS {
        rename(&mut event, core, newer);
    }
    for field in ["reportingController", "reportingInstance"] {
        if event.get(field).is_some_and(|text| text == "") {
            event.remove(field);
        }
    }
    event.entry("deprecatedSource").or_insert_with(|| json!({}));
    for field in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        event.entry(field).or_insert(Value::Null);
    }
    event
}

fn event_to_core(mut event: Map<String, Value>) -> Map<String, Value> {
    for (core, newer) in EVENT_FIELDS {
        rename(&mut event, newer, core);
    }
    for field in ["involvedObject", "source"] {
        event.entry(field).or_insert_with(|| json!({}));
    }
    for field in ["reportingComponent", "reportingInstance"] {
        event.entry(field).or_insert_with(|| json!(""));
    }
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        event.entry(field).or_insert(Value::Null);
    }
    event
}

fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

/// Metrics of `v2` besides the one that `targetCPUUtilizationPercentage` stands for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// Scaling behaviour of `v2`.
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn autoscaler_from_v2(mut object: Map<String, Value>) -> Map<String, Value> {
    let mut annotations = Vec::new();
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        let mut others = Vec::new();
        if let Some(Value::Array(metrics)) = spec.remove("metrics") {
            for metric in metrics {
                match cpu_utilization(&metric).filter(|_| !spec.contains_key("targetCPUUtilizationPercentage")) {
                    Some(percent) => {
                        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
                    }
                    None => others.push(metric_from_v2(&metric)),
                }
            }
        }
        if !others.is_empty() {
            annotations.push((METRICS, Value::Array(others).to_string()));
        }
        if let Some(behavior) = spec.remove("behavior") {
            annotations.push((BEHAVIOR, capitalized(behavior).to_string()));
        }
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        status.remove("conditions");
        if let Some(Value::Array(metrics)) = status.remove("currentMetrics") {
            let percent = metrics.iter().find_map(|metric| {
                let resource = metric.get("resource").filter(|resource| resource["name"] == "cpu")?;
                resource.pointer("/current/averageUtilization").cloned()
            });
            if let Some(percent) = percent {
                status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
            }
        }
        for count in ["currentReplicas", "desiredReplicas"] {
            status.entry(count).or_insert_with(|| json!(0));
        }
    }
    if let (false, Some(Value::Object(metadata))) = (annotations.is_empty(), object.get_mut("metadata")) {
        let all = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (name, text) in annotations {
            all[name] = Value::String(text);
        }
    }
    object
}

fn autoscaler_to_v2(mut object: Map<String, Value>) -> Map<String, Value> {
    let metrics = take_annotation(&mut object, METRICS);
    let behavior = take_annotation(&mut object, BEHAVIOR);
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        let mut all: Vec<Value> = Vec::new();
        if let Some(Value::Array(metrics)) = metrics {
            all.extend(metrics.iter().map(metric_to_v2));
        }
        if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !all.is_empty() {
            spec.insert("metrics".to_owned(), Value::Array(all));
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), uncapitalized(behavior));
        }
    }
    if let Some(Value::Object(status)) = object.get_mut("status")
        && let Some(percent) = status.remove("currentCPUUtilizationPercentage")
    {
        let current = json!({"averageUtilization": percent, "averageValue": "0"});
        status.insert(
            "currentMetrics".to_owned(),
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]),
        );
    }
    object
}

/// The parsed text of an annotation, which is taken away; one that is not JSON stays.
fn take_annotation(object: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let value = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    annotations.remove(name);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(value)
}

fn cpu_utilization(metric: &Value) -> Option<Value> {
    let resource = metric.get("resource").filter(|_| metric["type"] == "Resource")?;
    (resource["name"] == "cpu").then(|| resource.pointer("/target/averageUtilization").cloned())?
}

/// One metric between `v2` (a `metric` and a `target`) and the flat form of the annotation.
const SOURCES: [(&str, &str); 5] = [
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("Pods", "pods"),
    ("Object", "object"),
    ("External", "external"),
];

/// Fields of a flat source and where `v2` has them; the first that applies to a source is the one meant.
fn flat_fields(source: &str) -> &'static [(&'static str, &'static str)] {
    match source {
        "resource" | "containerResource" => &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
            ("container", "/container"),
        ],
        "pods" => &[
            ("metricName", "/metric/name"),
            ("targetAverageValue", "/target/averageValue"),
            ("selector", "/metric/selector"),
        ],
        "object" => &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("targetValue", "/target/value"),
            ("selector", "/metric/selector"),
            ("averageValue", "/target/averageValue"),
        ],
        _ => &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    }
}

fn metric_from_v2(metric: &Value) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (_, source) in SOURCES {
        let Some(value) = metric.get(source) else { continue };
        for (flat, pointer) in flat_fields(source) {
            if let Some(found) = value.pointer(pointer) {
                out[source][*flat] = found.clone();
            }
        }
    }
    out
}

fn metric_to_v2(metric: &Value) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (_, source) in SOURCES {
        let Some(value) = metric.get(source) else { continue };
        for (flat, pointer) in flat_fields(source) {
            let Some(found) = value.get(flat) else { continue };
            let mut place = &mut out[source];
            for step in pointer.split('/').skip(1) {
                place = &mut place[step];
            }
            *place = found.clone();
            let kind = match *pointer {
                "/target/averageUtilization" => "Utilization",
                "/target/averageValue" => "AverageValue",
                "/target/value" => "Value",
                _ => continue,
            };
            out[source]["target"]["type"] = json!(kind);
        }
    }
    out
}

/// Field names of upstream's internal type, which is what the annotation holds.
fn capitalized(value: Value) -> Value {
    renamed(value, &|name| name[..1].to_ascii_uppercase() + &name[1..])
}

fn uncapitalized(value: Value) -> Value {
    renamed(value, &|name| name[..1].to_ascii_lowercase() + &name[1..])
}

fn renamed(value: Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(name, value)| name.is_ascii() && !name.is_empty() && !value.is_null())
                .map(|(name, value)| (rename(&name), renamed(value, rename)))
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(|item| renamed(item, rename)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    #[test]
    fn an_event_changes_its_field_names_and_back() {
        let newer = find("events.k8s.io", "v1", "events").unwrap();
        let core = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "reason": "R", "message": "m", "source": {},
            "firstTimestamp": null, "lastTimestamp": null, "type": "Normal", "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let event = json!({
            "metadata": {"name": "e"}, "eventTime": null, "reason": "R", "regarding": {"kind": "Pod"}, "note": "m",
            "type": "Normal", "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        });
        assert_eq!(from_stored(newer, core.clone()), event);
        assert_eq!(to_stored(newer, event), core);
        let stored = find("", "v1", "events").unwrap();
        assert_eq!(from_stored(stored, core.clone()), core);
        assert!(has_other_shape(newer) && !has_other_shape(stored));
    }

    #[test]
    fn an_autoscaler_of_the_old_version_loses_nothing_of_the_new_one() {
        let older = find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let stored = json!({
            "metadata": {"name": "h"},
            "spec": {
                "minReplicas": 1, "maxReplicas": 4,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                ],
                "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}]}},
            },
            "status": {"currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 45, "averageValue": "0"}}}
            ], "currentReplicas": 3, "desiredReplicas": 3},
        });
        let seen = from_stored(older, stored.clone());
        assert_eq!(
            seen["spec"],
            json!({"minReplicas": 1, "maxReplicas": 4, "targetCPUUtilizationPercentage": 50})
        );
        assert_eq!(seen["status"]["currentCPUUtilizationPercentage"], 45);
        assert_eq!(
            seen["metadata"]["annotations"][METRICS],
            r#"[{"pods":{"metricName":"q","targetAverageValue":"1"},"type":"Pods"}]"#
        );
        assert_eq!(to_stored(older, seen), stored);
    }
}
