//! The group `autoscaling`.

use crate::tree::{Value, json};

use super::FieldError;
use super::edit::{default_at, default_in, object_at};
use super::kind::Kind;
use super::lookup::{integer, list, present, text};
use super::names::{label, path_segment, qualified_name};
use super::quantity::Quantity;
use super::row::Row;
use super::validate::At;

pub(super) const KINDS: &[Kind] = &[Kind::new("horizontalpodautoscalers.autoscaling")
    .cells(autoscalers)
    .defaults(autoscaler_defaults)
    .validate_create(|scaler, errors| check_autoscaler(None, scaler, errors))
    .validate_update(|old, new, subresource, errors| {
        if subresource.is_none() && old.get("spec") != new.get("spec") {
            check_autoscaler(Some(old), new, errors);
        }
    })];

fn autoscalers(row: &mut Row<'_>) {
    let scaler = row.object;
    let reference = format!(
        "{}/{}",
        text(scaler, "/spec/scaleTargetRef/kind"),
        text(scaler, "/spec/scaleTargetRef/name")
    );
    let least = integer(scaler, "/spec/minReplicas").map_or("<unset>".to_owned(), |replicas| replicas.to_string());
    row.name()
        .text(reference)
        .text(metrics(scaler))
        .text(least)
        .integer_at("/spec/maxReplicas")
        .integer_at("/status/currentReplicas")
        .age();
}

/// Current and target value of the first two metrics.
fn metrics(scaler: &Value) -> String {
    let current = list(scaler, "/status/currentMetrics");
    let metrics = list(scaler, "/spec/metrics").iter().enumerate();
    let shown: Vec<String> = metrics.map(|(i, spec)| metric(spec, current.get(i))).collect();
    match shown.len() {
        0 => "<none>".to_owned(),
        1..=2 => shown.join(", "),
        _ => format!("{} + {} more...", shown[..2].join(", "), shown.len() - 2),
    }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let source = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let Some(metric) = spec.get(source) else {
        return "<unknown type>".to_owned();
    };
    let average = present(metric, "/target/averageValue");
    let current = |field: &str| {
        let value = status.and_then(|status| status.pointer(&format!("/{source}/current/{field}")));
        value.and_then(Value::as_str).unwrap_or("<unknown>")
    };
    match source {
        "pods" => format!("{}/{}", current("averageValue"), text(metric, "/target/averageValue")),
        "external" | "object" if average => {
            format!(
                "{}/{} (avg)",
                current("averageValue"),
                text(metric, "/target/averageValue")
            )
        }
        "external" | "object" => format!("{}/{}", current("value"), text(metric, "/target/value")),
        _ if average => format!(
            "{}: {}/{}",
            text(metric, "/name"),
            current("averageValue"),
            text(metric, "/target/averageValue")
        ),
        _ => {
            let now = status.and_then(|status| integer(status, &format!("/{source}/current/averageUtilization")));
            let now = now.map_or("<unknown>".to_owned(), |percent| format!("{percent}%"));
            let target = integer(metric, "/target/averageUtilization");
            let target = target.map_or("<auto>".to_owned(), |percent| format!("{percent}%"));
            format!("{}: {now}/{target}", text(metric, "/name"))
        }
    }
}

fn autoscaler_defaults(scaler: &mut Value) {
    let processor = json!([{
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    }]);
    default_at(scaler, "/spec", "metrics", processor);
    if !present(scaler, "/spec/behavior") {
        return;
    }
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    if let Some(up) = object_at(scaler, "/spec/behavior/scaleUp") {
        default_in(up, "stabilizationWindowSeconds", 0);
        default_in(up, "selectPolicy", "Max");
        default_in(up, "policies", json!([pods, percent]));
    }
    if let Some(down) = object_at(scaler, "/spec/behavior/scaleDown") {
        default_in(down, "selectPolicy", "Max");
        default_in(down, "policies", json!([percent]));
    }
}

/// Longest period of a scaling policy, in seconds.
const PERIOD_S_MAX: i64 = 1800;
/// Longest window of stabilization, in seconds.
const WINDOW_S_MAX: i64 = 3600;

fn check_autoscaler(old: Option<&Value>, scaler: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(scaler).get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let least_count = least.integer().unwrap_or(1);
    let most_count = most.integer().unwrap_or(0);
    let metrics = spec.get("metrics");
    // Scaling to nothing is behind a feature gate (`HPAScaleToZero`) that is off; who does it already may go on.
    let to_zero = old.is_some_and(|old| integer(old, "/spec/minReplicas") == Some(0));
    let bound = i64::from(!to_zero);
    if least_count < bound {
        errors.push(least.invalid(format_args!("must be greater than or equal to {bound}")));
    }
    let wakes = |metric: At<'_>| matches!(metric.get("type").text(), "Object" | "External");
    if least_count == 0 && !metrics.items().any(wakes) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(metrics.forbidden(detail));
    }
    if most_count < 1 {
        errors.push(most.required("must be set and greater than 0"));
    }
    if most_count < least_count {
        errors.push(most.invalid("must be greater than or equal to `minReplicas`"));
    }
    let target = spec.get("scaleTargetRef");
    check_reference(&target, errors);
    let same = |field: &str| {
        let value = |scaler| text(scaler, &format!("/spec/scaleTargetRef/{field}"));
        old.is_some_and(|old| value(old) == value(scaler))
    };
    // What is in place already is not looked at again. The one kind without a group is let through.
    if !(same("apiVersion") && same("kind")) {
        let grouped = target.get("kind").text() != "ReplicationController";
        check_version(&target, grouped, errors);
    }
    let was_wrong = old.is_some_and(|old| {
        let mut wrong = Vec::new();
        for metric in At::root(old).get("spec.metrics").items() {
            check_version(&metric.get("object.describedObject"), false, &mut wrong);
        }
        !wrong.is_empty()
    });
    for metric in metrics.items() {
        check_metric(&metric, was_wrong, errors);
    }
    for rules in ["scaleUp", "scaleDown"] {
        check_scaling(&spec.get("behavior").get(rules), errors);
    }
}

/// Kind and name of what is scaled or looked at. Absent ones are refused by the table of rules.
fn check_reference(reference: &At<'_>, errors: &mut Vec<FieldError>) {
    for name in ["kind", "name"] {
        let name = reference.get(name);
        name.check(path_segment(name.text(), false), errors);
    }
}

fn check_version(reference: &At<'_>, grouped: bool, errors: &mut Vec<FieldError>) {
    let version = reference.get("apiVersion");
    let shown = version.text();
    let detail = match shown.split_once('/') {
        Some((_, rest)) if rest.contains('/') => format!("unexpected GroupVersion string: {shown}"),
        Some((group, _)) if !group.is_empty() => return,
        _ if !grouped => return,
        _ => "apiVersion must specify API group".to_owned(),
    };
    errors.push(FieldError::invalid_text(&version.field, shown, detail));
}

fn check_scaling(rules: &At<'_>, errors: &mut Vec<FieldError>) {
    let window = rules.get("stabilizationWindowSeconds");
    match window.integer() {
        Some(..0) => errors.push(window.invalid("must be greater than or equal to zero")),
        Some(window_s) if window_s > WINDOW_S_MAX => {
            errors.push(window.invalid(format_args!("must be less than or equal to {WINDOW_S_MAX}")));
        }
        _ => {}
    }
    let tolerance = rules.get("tolerance");
    if Quantity::parse(tolerance.text()).is_some_and(|quantity| quantity.nanos() < 0) {
        errors.push(tolerance.invalid("must be greater than or equal to 0"));
    }
    for policy in rules.get("policies").items() {
        let kind = policy.get("type");
        if kind.is_empty() {
            let shown = Value::from("");
            errors.push(FieldError::not_supported(kind.field, &shown, &["Percent", "Pods"]));
        }
        for field in ["value", "periodSeconds"] {
            let field = policy.get(field);
            if field.integer().unwrap_or(0) <= 0 {
                let shown = Value::from(field.integer().unwrap_or(0));
                errors.push(FieldError::invalid(&field.field, &shown, "must be greater than zero"));
            }
        }
        let period = policy.get("periodSeconds");
        if period.integer().is_some_and(|period_s| period_s > PERIOD_S_MAX) {
            errors.push(period.invalid(format_args!("must be less than or equal to {PERIOD_S_MAX}")));
        }
    }
}

/// Where metrics come from: the type, and the field that has the particulars, in the order in which those are looked at.
const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn check_metric(metric: &At<'_>, any_version: bool, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = metric.get("type");
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric source type"));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind.text());
    if expected.is_none() {
        // Two checks find it.
        let shown = Value::from(kind.text());
        let wrong = FieldError::not_supported(&kind.field, &shown, TYPES);
        errors.extend([wrong.clone(), wrong]);
    }
    let given = SOURCES.iter().filter(|(_, field)| metric.get(*field).present());
    let given: Vec<&str> = given.map(|(_, field)| *field).collect();
    if let Some(first) = given.first() {
        check_source(&metric.get(*first), first, any_version, errors);
    }
    if let Some((_, field)) = expected {
        let source = metric.get(*field);
        if !source.present() {
            errors.push(source.required("must populate information for the given metric source"));
        }
    }
    if given.len() != 1 {
        let others = given
            .iter()
            .filter(|field| expected.is_none_or(|(_, expected)| expected != *field));
        for other in others {
            errors.push(
                metric
                    .get(*other)
                    .forbidden("must populate the given metric source only"),
            );
        }
    }
}

fn check_source(source: &At<'_>, kind: &str, any_version: bool, errors: &mut Vec<FieldError>) {
    let target = source.get("target");
    check_target(&target, errors);
    let [value, average, utilization] = ["value", "averageValue", "averageUtilization"].map(|field| target.get(field));
    if matches!(kind, "resource" | "containerResource") {
        let name = source.get("name");
        if name.is_empty() {
            errors.push(name.required("must specify a resource name"));
        } else if kind == "containerResource" {
            name.check(qualified_name(name.text()), errors);
        }
        let container = source.get("container");
        if kind == "containerResource" && container.is_empty() {
            errors.push(container.required("must specify a container"));
        } else if kind == "containerResource" {
            container.check(label(container.text()), errors);
        }
        match (utilization.present(), average.present()) {
            (false, false) => {
                errors.push(utilization.required("must set either a target raw value or a target utilization"));
            }
            (true, true) => {
                errors.push(average.forbidden("may not set both a target raw value and a target utilization"));
            }
            _ => {}
        }
        return;
    }
    let name = source.get("metric.name");
    if name.is_empty() {
        errors.push(name.required("must specify a metric name"));
    } else {
        name.check(path_segment(name.text(), false), errors);
    }
    let neither = !value.present() && !average.present();
    match kind {
        "object" => {
            let described = source.get("describedObject");
            check_reference(&described, errors);
            if !any_version {
                check_version(&described, false, errors);
            }
            if neither {
                errors.push(average.required("must set either a target value or averageValue"));
            }
        }
        "external" if neither => {
            errors.push(average.required("must set either a target value for metric or a per-pod target"));
        }
        "external" if value.present() && average.present() => {
            errors.push(value.forbidden("may not set both a target value for metric and a per-pod target"));
        }
        "pods" if !average.present() => {
            errors.push(average.required("must specify a positive target averageValue"));
        }
        _ => {}
    }
}

fn check_target(target: &At<'_>, errors: &mut Vec<FieldError>) {
    let kind = target.get("type");
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric target type"));
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid_text(&kind.field, kind.text(), detail));
    }
    for value in ["value", "averageValue"].map(|field| target.get(field)) {
        if Quantity::parse(value.text()).is_some_and(|quantity| quantity.nanos() <= 0) {
            errors.push(value.invalid("must be positive"));
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.integer().is_some_and(|percent| percent < 1) {
        errors.push(utilization.invalid("must be greater than 0"));
    }
}
