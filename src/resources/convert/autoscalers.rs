//! Autoscalers: version 1 knows one metric, the use of the processor; the others, the behavior and the conditions travel
//! in annotations, so that nothing is lost on the way there and back.

use crate::tree::{Map, Value, json};

use crate::resources::edit::{object_at, remove_at, set_at};
use crate::resources::lookup::{count, integer, list, present, text};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// From `autoscaling/v2` to `v1`.
pub(super) fn to_v1(scaler: &mut Value) {
    let mut others = Vec::new();
    for metric in list_of(scaler, "/spec", "metrics") {
        match integer(&metric, "/resource/target/averageUtilization") {
            Some(target) if is_processor(&metric) => {
                set_at(scaler, "/spec", "targetCPUUtilizationPercentage", target);
            }
            _ => others.push(old_metric(&metric, &SPEC)),
        }
    }
    annotate(scaler, METRICS, &others);
    let mut others = Vec::new();
    for metric in list_of(scaler, "/status", "currentMetrics") {
        match integer(&metric, "/resource/current/averageUtilization") {
            Some(current) if is_processor(&metric) => {
                set_at(scaler, "/status", "currentCPUUtilizationPercentage", current);
            }
            _ => others.push(old_metric(&metric, &STATUS)),
        }
    }
    annotate(scaler, CURRENT_METRICS, &others);
    let conditions: Vec<String> = list_of(scaler, "/status", "conditions")
        .iter()
        .map(|condition| {
            ordered(
                condition,
                &["type", "status", "lastTransitionTime", "reason", "message"],
            )
        })
        .collect();
    annotate(scaler, CONDITIONS, &conditions);
    if let Some(behavior) = remove_at(scaler, "/spec", "behavior") {
        set_at(scaler, "/metadata/annotations", BEHAVIOR, behavior_text(&behavior));
    }
}

/// From `autoscaling/v1` to `v2`. Annotations that cannot be read are left out, as kube-apiserver does.
pub(super) fn to_v2(scaler: &mut Value) {
    let mut metrics = Vec::new();
    if let Some(target) = remove_at(scaler, "/spec", "targetCPUUtilizationPercentage") {
        metrics.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
        }));
    }
    metrics.extend(
        annotation(scaler, METRICS)
            .iter()
            .map(|metric| new_metric(metric, &SPEC)),
    );
    if !metrics.is_empty() {
        set_at(scaler, "/spec", "metrics", metrics);
    }
    let mut current = Vec::new();
    if let Some(now) = remove_at(scaler, "/status", "currentCPUUtilizationPercentage") {
        current.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": now}}
        }));
    }
    current.extend(
        annotation(scaler, CURRENT_METRICS)
            .iter()
            .map(|metric| new_metric(metric, &STATUS)),
    );
    if !current.is_empty() {
        set_at(scaler, "/status", "currentMetrics", current);
    }
    let conditions = annotation(scaler, CONDITIONS);
    if !conditions.is_empty() {
        set_at(scaler, "/status", "conditions", conditions);
    }
    let behavior = remove_at(scaler, "/metadata/annotations", BEHAVIOR);
    let behavior = behavior
        .as_ref()
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok());
    if let Some(behavior) = behavior.as_ref().and_then(behavior_of) {
        set_at(scaler, "/spec", "behavior", behavior);
    }
    if count(scaler, "/metadata/annotations") == 0 {
        remove_at(scaler, "/metadata", "annotations");
    }
}

/// Takes the list away.
fn list_of(object: &mut Value, parent: &str, field: &str) -> Vec<Value> {
    match remove_at(object, parent, field) {
        Some(Value::Array(list)) => list.to_vec(),
        _ => Vec::new(),
    }
}

fn is_processor(metric: &Value) -> bool {
    text(metric, "/type") == "Resource" && text(metric, "/resource/name") == "cpu"
}

/// Stores items (JSON texts) as a list in an annotation, if there are any.
fn annotate(scaler: &mut Value, name: &'static str, items: &[String]) {
    if !items.is_empty() {
        set_at(scaler, "/metadata/annotations", name, format!("[{}]", items.join(",")));
    }
}

/// Takes the list in an annotation away.
fn annotation(scaler: &mut Value, name: &str) -> Vec<Value> {
    let taken = remove_at(scaler, "/metadata/annotations", name);
    let list = taken
        .as_ref()
        .and_then(Value::as_str)
        .and_then(|text| serde_json::from_str(text).ok());
    list.unwrap_or_default()
}

/// How version 1 names the values of a metric, in a spec and in a status.
struct Wording {
    /// Object of version 2 that holds the values: `target` or `current`.
    values: &'static str,
    /// Value, average value and average utilization in version 1.
    names: [&'static str; 3],
}

const SPEC: Wording = Wording {
    values: "target",
    names: ["targetValue", "targetAverageValue", "targetAverageUtilization"],
};
const STATUS: Wording = Wording {
    values: "current",
    names: ["currentValue", "currentAverageValue", "currentAverageUtilization"],
};

const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("External", "external"),
];

/// A metric as version 1 writes it, fields in the order of its types.
fn old_metric(metric: &Value, wording: &Wording) -> String {
    let kind = text(metric, "/type");
    let source = SOURCES
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or("", |(_, source)| *source);
    let Some(new) = metric.get(source) else {
        return ordered(metric, &["type"]);
    };
    let value = |name: &str| new.pointer(&format!("/{}/{name}", wording.values)).cloned();
    let [plain, average, utilization] = wording.names;
    // An object's average value has no prefix.
    let object_average = "averageValue";
    let mut old = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            old.insert(name.to_owned(), value);
        }
    };
    let metric_name = new.pointer("/metric/name").cloned();
    let selector = new.pointer("/metric/selector").cloned();
    let order: &[&str] = match source {
        "object" => {
            set("target", new.get("describedObject").cloned());
            set("metricName", metric_name);
            set(plain, Some(value("value").unwrap_or_else(|| "0".into())));
            set("selector", selector);
            set(object_average, value("averageValue"));
            &["target", "metricName", plain, "selector", object_average]
        }
        "pods" => {
            set("metricName", metric_name);
            set(average, value("averageValue"));
            set("selector", selector);
            &["metricName", average, "selector"]
        }
        "external" => {
            set("metricName", metric_name);
            set("metricSelector", selector);
            set(plain, value("value"));
            set(average, value("averageValue"));
            &["metricName", "metricSelector", plain, average]
        }
        _ => {
            set("name", new.get("name").cloned());
            set(utilization, value("averageUtilization"));
            set(average, value("averageValue"));
            set("container", new.get("container").cloned());
            &["name", utilization, average, "container"]
        }
    };
    format!(
        "{{\"type\":{},\"{source}\":{}}}",
        Value::from(kind),
        ordered(&Value::Object(old), order)
    )
}

/// The inverse of [`old_metric`].
fn new_metric(metric: &Value, wording: &Wording) -> Value {
    let kind = text(metric, "/type");
    let source = SOURCES
        .iter()
        .find(|(known, _)| *known == kind)
        .map_or("", |(_, source)| *source);
    let Some(old) = metric.get(source) else {
        return metric.clone();
    };
    let [plain, average, utilization] = wording.names;
    let mut values = Map::new();
    let average = if source == "object" { "averageValue" } else { average };
    for (from, to) in [
        (plain, "value"),
        (average, "averageValue"),
        (utilization, "averageUtilization"),
    ] {
        // An object that has an average has a plain value of zero in version 1 only.
        let filler = from == plain && source == "object" && old.get(average).is_some();
        if let Some(value) = old.get(from).filter(|_| !filler) {
            values.insert(to.to_owned(), value.clone());
        }
    }
    if wording.values == "target" {
        let kind = if values.contains_key("averageUtilization") {
            "Utilization"
        } else if values.contains_key("averageValue") {
            "AverageValue"
        } else {
            "Value"
        };
        values.insert("type", kind.into());
    }
    let mut new = json!({});
    set_at(&mut new, "", wording.values, values);
    for (from, parent, to) in [
        ("metricName", "/metric", "name"),
        ("selector", "/metric", "selector"),
        ("metricSelector", "/metric", "selector"),
        ("target", "", "describedObject"),
        ("name", "", "name"),
        ("container", "", "container"),
    ] {
        if let Some(value) = old.get(from) {
            set_at(&mut new, parent, to, value.clone());
        }
    }
    json!({"type": kind, source: new})
}

/// The behavior as kube-apiserver's inner types write it: capitals, and `null` for what is not there.
fn behavior_text(behavior: &Value) -> String {
    let rules = |side: &str| {
        let Some(rules) = behavior.get(side) else {
            return "null".to_owned();
        };
        let policies: Vec<String> = list(rules, "/policies")
            .iter()
            .map(|policy| {
                let field = |name: &str| policy.get(name).unwrap_or(&Value::Null).to_string();
                format!(
                    "{{\"Type\":{},\"Value\":{},\"PeriodSeconds\":{}}}",
                    field("type"),
                    field("value"),
                    field("periodSeconds")
                )
            })
            .collect();
        let policies = if present(rules, "/policies") {
            format!("[{}]", policies.join(","))
        } else {
            "null".to_owned()
        };
        let field = |name: &str| rules.get(name).unwrap_or(&Value::Null).to_string();
        format!(
            "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{policies},\"Tolerance\":{}}}",
            field("stabilizationWindowSeconds"),
            field("selectPolicy"),
            field("tolerance")
        )
    };
    format!(
        "{{\"ScaleUp\":{},\"ScaleDown\":{}}}",
        rules("scaleUp"),
        rules("scaleDown")
    )
}

/// The inverse of [`behavior_text`].
fn behavior_of(behavior: &Value) -> Option<Value> {
    let mut new = json!({});
    for (from, to) in [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")] {
        let Some(rules) = behavior.get(from).filter(|rules| !rules.is_null()) else {
            continue;
        };
        new[to] = small(rules);
    }
    object_at(&mut new, "")
        .filter(|new| !new.is_empty())
        .cloned()
        .map(Value::Object)
}

/// The same with small first letters and without nulls.
fn small(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| {
                    let mut letters = name.chars();
                    let first = letters.next().map(|first| first.to_ascii_lowercase());
                    (first.into_iter().chain(letters).collect::<String>(), small(value))
                });
            Value::Object(fields.collect())
        }
        Value::Array(list) => list.iter().map(small).collect(),
        other => other.clone(),
    }
}

/// JSON of an object with its fields in that order; fields that it does not have are left out.
fn ordered(object: &Value, order: &[&str]) -> String {
    let fields = order
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", object.get(*name)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler() -> Value {
        json!({
            "metadata": {"name": "h"},
            "spec": {
                "maxReplicas": 4, "minReplicas": 1,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                    {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": {"kind": "Service", "name": "s"},
                        "target": {"type": "Value", "value": "20"}}},
                    {"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "Value", "value": "30"}}}
                ],
                "behavior": {
                    "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}]},
                    "scaleDown": {"stabilizationWindowSeconds": 10, "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
                }
            },
            "status": {"desiredReplicas": 4, "currentReplicas": 3, "currentMetrics": [
                {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "5"}}}
            ]}
        })
    }

    /// Recorded from kube-apiserver 1.36.
    #[test]
    fn version_1_keeps_the_rest_in_annotations() {
        let mut old = scaler();
        to_v1(&mut old);
        assert_eq!(integer(&old, "/spec/targetCPUUtilizationPercentage"), Some(50));
        let annotations = old.pointer("/metadata/annotations").unwrap();
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":2,"PeriodSeconds":30}],"Tolerance":null},"ScaleDown":{"StabilizationWindowSeconds":10,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#
        );
        let metrics = annotations[METRICS].as_str().unwrap();
        assert!(
            metrics.starts_with(r#"[{"type":"Pods","pods":{"metricName":"q","targetAverageValue":"1"}},"#),
            "{metrics}"
        );
    }

    #[test]
    fn there_and_back_nothing_is_lost() {
        let mut object = scaler();
        to_v1(&mut object);
        assert!(object.pointer("/spec/metrics").is_none() && object.pointer("/spec/behavior").is_none());
        to_v2(&mut object);
        assert_eq!(object, scaler());
    }

    #[test]
    fn annotations_that_are_no_json_are_dropped() {
        let mut object = json!({"metadata": {"annotations": {METRICS: "{", BEHAVIOR: "[]", "x": "y"}}, "spec": {}});
        to_v2(&mut object);
        assert_eq!(object, json!({"metadata": {"annotations": {"x": "y"}}, "spec": {}}));
    }
}
