//! Groups that steer other objects: `policy`, `autoscaling`, `scheduling.k8s.io`, `flowcontrol.apiserver.k8s.io`.

use crate::tree::{Value, json};

use super::FieldError;
use super::core::pod_rules::capitalized;
use super::edit::{default_at, default_in, object_at};
use super::kind::Kind;
use super::lookup::{condition, integer, integer_or_text, list, present, text};
use super::row::Row;
use super::validate::{At, label_selector};
use super::workload_rules::{check_amount, check_at_most_all};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("flowschemas.flowcontrol.apiserver.k8s.io")
        .cells(|row| {
            let dangling = condition(row.object, "Dangling").map_or("?", |condition| text(condition, "/status"));
            row.name()
                .text_at("/spec/priorityLevelConfiguration/name")
                .integer_at("/spec/matchingPrecedence")
                .text_or("/spec/distinguisherMethod/type", "<none>")
                .age()
                .text(dangling);
        })
        .validate(check_flow_schema),
    Kind::new("horizontalpodautoscalers.autoscaling")
        .cells(autoscalers)
        .defaults(autoscaler_defaults)
        .validate(check_autoscaler),
    Kind::new("poddisruptionbudgets.policy")
        .cells(|row| {
            let bound = |pointer| integer_or_text(row.object, pointer).unwrap_or_else(|| "N/A".to_owned());
            let (least, most) = (bound("/spec/minAvailable"), bound("/spec/maxUnavailable"));
            row.name()
                .text(least)
                .text(most)
                .integer_at("/status/disruptionsAllowed")
                .age();
        })
        .validate(check_budget),
    Kind::new("priorityclasses.scheduling.k8s.io")
        .cells(|row| {
            row.name()
                .integer_at("/value")
                .boolean_at("/globalDefault", false)
                .age()
                .text_at("/preemptionPolicy");
        })
        .validate_create(check_priority_class)
        .validate_update(|old, new, _, errors| {
            for field in ["value", "preemptionPolicy"] {
                if old.get(field) != new.get(field) {
                    errors.push(FieldError::forbidden(field, "may not be changed in an update."));
                }
            }
        }),
    Kind::new("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io")
        .cells(|row| {
            let queuing = "/spec/limited/limitResponse/queuing";
            row.name()
                .text_at("/spec/type")
                .integer_or("/spec/limited/nominalConcurrencyShares", "<none>");
            for field in ["queues", "handSize", "queueLengthLimit"] {
                row.integer_or(&format!("{queuing}/{field}"), "<none>");
            }
            row.age();
        })
        .validate(check_priority_level),
];

/// Highest priority of a class that is not the system's.
const PRIORITY_MAX: i64 = 1_000_000_000;

fn check_priority_class(class: &Value, errors: &mut Vec<FieldError>) {
    let class = At::root(class);
    let (name, value) = (class.get("metadata.name"), class.get("value"));
    let number = value.integer().unwrap_or(0);
    if name.text().starts_with("system-") {
        let known = [
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ];
        let is_default = class.get("globalDefault").value.as_bool() == Some(true);
        let wrong = match known.iter().find(|(known, _)| *known == name.text()) {
            None => format!("{} is not a known system priority class", name.text()),
            Some((known, wanted)) if *wanted != number => format!("value of {known} PriorityClass must be {wanted}"),
            Some((known, _)) if is_default => format!("globalDefault of {known} PriorityClass must be false"),
            Some(_) => return,
        };
        errors.push(name.forbidden(&format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {wrong}"
        )));
    } else if number > PRIORITY_MAX {
        errors.push(value.forbidden(&format!(
            "maximum allowed value of a user defined priority is {PRIORITY_MAX}"
        )));
    }
}

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

fn check_budget(budget: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(budget).get("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.present() && most.present() {
        let shown = capitalized(spec.value);
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid(&spec.field, &shown, detail));
    }
    for bound in [least, most] {
        check_amount(&bound, errors);
        check_at_most_all(&bound, errors);
    }
    label_selector(&spec.get("selector"), errors);
}

fn check_autoscaler(scaler: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(scaler).get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let least_count = least.integer().unwrap_or(1);
    let metrics = spec.get("metrics");
    let to_zero = metrics
        .items()
        .any(|metric| matches!(metric.get("type").text(), "Object" | "External"));
    if least_count < 1 {
        errors.push(least.invalid("must be greater than or equal to 1"));
        if !to_zero {
            let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
            errors.push(metrics.forbidden(detail));
        }
    }
    if most.integer().unwrap_or(0) < 1 {
        errors.push(most.required("must be set and greater than 0"));
    }
    if most.integer().unwrap_or(0) < least_count {
        errors.push(most.invalid("must be greater than or equal to `minReplicas`"));
    }
    let target = spec.get("scaleTargetRef");
    for name in ["kind", "name"] {
        let field = target.get(name);
        for character in ['/', '%'] {
            if field.text().contains(character) {
                errors.push(field.invalid(format_args!("may not contain '{character}'")));
            }
        }
    }
    let version = target.get("apiVersion");
    match version.text().matches('/').count() {
        0 if version.is_empty() => {
            errors.push(FieldError::invalid_text(
                &version.field,
                "",
                "apiVersion must specify API group",
            ));
        }
        0 | 1 => {}
        _ => errors.push(version.invalid(format_args!("unexpected GroupVersion string: {}", version.text()))),
    }
    for metric in metrics.items() {
        check_metric(&metric, errors);
    }
    for rules in ["scaleUp", "scaleDown"] {
        let window = spec.get("behavior").get(rules).get("stabilizationWindowSeconds");
        window.not_negative(errors);
        if window.integer().is_some_and(|window_s| window_s > 3600) {
            errors.push(window.invalid("must be less than or equal to 3600"));
        }
    }
}

fn check_metric(metric: &At<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
    let kind = metric.get("type");
    if !TYPES.contains(&kind.text()) {
        // Two checks find it.
        errors.extend([kind.not_supported(TYPES), kind.not_supported(TYPES)]);
        return;
    }
    let mut letters = kind.text().chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    let name: String = first.into_iter().chain(letters).collect();
    let source = metric.get(name.clone());
    if !source.present() {
        errors.push(source.required("must populate information for the given metric source"));
        return;
    }
    let target = source.get("target");
    let (average, utilization) = (target.get("averageValue"), target.get("averageUtilization"));
    match name.as_str() {
        "resource" | "containerResource" if !average.present() && !utilization.present() => {
            errors.push(utilization.required("must set either a target raw value or a target utilization"));
        }
        "pods" if !average.present() => {
            errors.push(average.required("must specify a positive target averageValue"));
        }
        _ => {}
    }
    let metric_name = source.get("metric.name");
    if !name.ends_with("esource") && metric_name.is_empty() {
        errors.push(metric_name.required("must specify a metric name"));
    }
}

fn check_flow_schema(schema: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(schema).get("spec");
    let precedence = spec.get("matchingPrecedence");
    match precedence.integer().unwrap_or(0) {
        ..=0 => errors.push(precedence.invalid("must be a positive value")),
        10_001.. => errors.push(precedence.invalid("must not be greater than 10000")),
        _ => {}
    }
    let method = spec.get("distinguisherMethod.type");
    if method.present() && !matches!(method.text(), "ByNamespace" | "ByUser") {
        let shown = json!({"Type": method.text()});
        errors.push(FieldError::not_supported(
            method.field,
            &shown,
            &["ByNamespace", "ByUser"],
        ));
    }
    for rule in spec.get("rules").items() {
        let resources = rule.get("resourceRules");
        if resources.is_empty() && rule.get("nonResourceRules").is_empty() {
            errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
        }
        for resource in resources.items() {
            let namespaces = resource.get("namespaces");
            if namespaces.is_empty() && resource.get("clusterScope").value.as_bool() != Some(true) {
                let detail = "resource rules that are not cluster scoped must supply at least one namespace";
                errors.push(namespaces.required(detail));
            }
        }
    }
}

fn check_priority_level(level: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(level).get("spec");
    let kind = spec.get("type");
    let exempt = text(level, "/metadata/name") == "exempt";
    match kind.text() {
        "Exempt" | "Limited" => {
            if (kind.text() == "Exempt") != exempt {
                let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
                errors.push(kind.invalid(detail));
            }
        }
        _ => errors.push(FieldError::not_supported(
            kind.field.clone(),
            &json!(kind.text()),
            &["Exempt", "Limited"],
        )),
    }
    let limited = spec.get("limited");
    match kind.text() {
        "Exempt" if limited.present() => errors.push(limited.forbidden("must be nil if the type is not Limited")),
        "Limited" if !limited.present() => errors.push(limited.required("must not be empty when type is Limited")),
        _ => {}
    }
    let shares = limited.get("nominalConcurrencyShares");
    if shares.integer().is_some_and(|shares| shares < 0) {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
    let queuing = limited.get("limitResponse.queuing");
    if limited.get("limitResponse.type").text() == "Queue" && !queuing.present() {
        errors.push(queuing.required("must not be empty if limitResponse.type is Queue"));
    }
    let (queues, hand) = (queuing.get("queues").integer(), queuing.get("handSize"));
    if let (Some(queues), Some(size)) = (queues, hand.integer())
        && size > queues
    {
        errors.push(hand.invalid(format_args!("should not be greater than queues ({queues})")));
    }
}
