//! Rules that workloads share: selectors and templates, how they are rolled out, counters in their status.

use crate::tree::{Value, json};

use super::FieldError;
use super::core::pod_rules::{capitalized, check_pod_spec};
use super::lookup::{self, integer};
use super::metadata;
use super::validate::{At, label_selector, selects};

/// Checks the Pod template at that path.
pub(super) fn check_template(workload: &Value, path: &'static str, errors: &mut Vec<FieldError>) {
    let template = At::root(workload).get(path);
    check_pod_spec(&template.get("spec"), errors);
    check_template_labels(workload, path, errors);
}

/// Checks the labels of the Pod template at that path.
pub(super) fn check_template_labels(workload: &Value, path: &'static str, errors: &mut Vec<FieldError>) {
    let template = At::root(workload).get(path);
    metadata::labels(
        Some(template.get("metadata.labels").value),
        &format!("{path}.labels"),
        errors,
    );
}

/// Pods of these workloads are always restarted.
pub(super) fn check_restarts(workload: &Value, errors: &mut Vec<FieldError>) {
    let policy = At::root(workload).get("spec.template.spec.restartPolicy");
    if matches!(policy.text(), "OnFailure" | "Never") {
        errors.push(policy.not_supported(&["Always"]));
    }
}

/// Pods of Jobs end.
pub(super) fn check_endings(workload: &Value, template: &str, errors: &mut Vec<FieldError>) {
    let policy = At::root(workload).get(format!("{template}.spec.restartPolicy"));
    if policy.text() == "Always" {
        errors.push(policy.required("valid values: \"OnFailure\", \"Never\""));
    }
}

/// The selector must be sound and select the template. An absent one is refused by the table of rules.
pub(super) fn check_selector(workload: &Value, kind: &str, errors: &mut Vec<FieldError>) {
    let selector = At::root(workload).get("spec.selector");
    let known = errors.len();
    label_selector(&selector, errors);
    if selector.present() && selector.is_empty() {
        errors.push(selector.invalid(format_args!("empty selector is invalid for {kind}")));
        return;
    }
    let labels = At::root(workload).get("spec.template.metadata.labels");
    match selects(selector.value, labels.value) {
        Some(matches) if errors.len() == known => {
            if !matches || !selector.present() {
                errors.push(labels.invalid("`selector` does not match template `labels`"));
            }
        }
        _ => errors.push(selector.invalid("invalid label selector")),
    }
}

/// A number or percentage; what is wrong with it.
pub(super) fn check_amount(amount: &At<'_>, errors: &mut Vec<FieldError>) {
    match amount.value {
        Value::Number(_) => amount.not_negative(errors),
        Value::String(text) if percent(text).is_none() => errors.push(amount.invalid(
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
             for validation is '[0-9]+%')",
        )),
        _ => {}
    }
}

/// A percentage may not be above 100.
pub(super) fn check_at_most_all(amount: &At<'_>, errors: &mut Vec<FieldError>) {
    if percent(amount.text()).is_some_and(|percent| percent > 100) {
        errors.push(amount.invalid("must not be greater than 100%"));
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

fn is_zero(amount: &At<'_>) -> bool {
    amount.integer() == Some(0) || percent(amount.text()) == Some(0)
}

/// How a Deployment or DaemonSet is rolled out.
pub(super) fn check_rollout(workload: &Value, path: &'static str, types: &[&str], errors: &mut Vec<FieldError>) {
    let strategy = At::root(workload).get(path);
    let kind = strategy.get("type").text();
    if !types.contains(&kind) {
        // As the inner type shows it, in the order of its fields.
        let rolling = capitalized(strategy.get("rollingUpdate").value);
        let shown = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind));
        let supported: Vec<String> = types.iter().map(|kind| format!("\"{kind}\"")).collect();
        errors.push(FieldError {
            reason: super::FieldReason::NotSupported,
            field: strategy.field.to_string(),
            message: format!("Unsupported value: {shown}: supported values: {}", supported.join(", ")),
        });
        return;
    }
    let rolling = strategy.get("rollingUpdate");
    if kind == "Recreate" && rolling.present() {
        errors.push(rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"));
    }
    if kind != "RollingUpdate" {
        return;
    }
    let (surge, unavailable) = (rolling.get("maxSurge"), rolling.get("maxUnavailable"));
    check_amount(&unavailable, errors);
    check_amount(&surge, errors);
    check_at_most_all(&unavailable, errors);
    match (is_zero(&surge), is_zero(&unavailable)) {
        (true, true) if path == "spec.strategy" => {
            errors.push(unavailable.invalid("may not be 0 when `maxSurge` is 0"));
        }
        (true, true) => errors.push(unavailable.required("cannot be 0 when maxSurge is 0")),
        (false, false) if path == "spec.updateStrategy" => {
            errors.push(surge.invalid("may not be set when maxUnavailable is non-zero"));
        }
        _ => {}
    }
}

/// Counters of a status that may not be above `replicas`.
pub(super) fn check_counters(workload: &Value, counters: &[&str], errors: &mut Vec<FieldError>) {
    let replicas = integer(workload, "/status/replicas").unwrap_or(0);
    let count = |name: &str| integer(workload, &format!("/status/{name}")).unwrap_or(0);
    for name in counters {
        if count(name) > replicas {
            let detail = "cannot be greater than status.replicas";
            errors.push(FieldError::invalid(
                format!("status.{name}"),
                &json!(count(name)),
                detail,
            ));
        }
    }
    let available = count("availableReplicas");
    if counters.contains(&"availableReplicas") && available > count("readyReplicas") {
        let detail = "cannot be greater than readyReplicas";
        errors.push(FieldError::invalid(
            "status.availableReplicas",
            &json!(available),
            detail,
        ));
    }
}

/// What a change of a StatefulSet may touch.
const STATEFUL_SET_CHANGES: &[&str] = &[
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
];

/// The rest of a StatefulSet's spec stays as it is.
pub(super) fn check_stateful_set_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let rest = |set: &Value| {
        let mut spec = lookup::map(set, "/spec").cloned().unwrap_or_default();
        spec.retain(|name, _| !STATEFUL_SET_CHANGES.contains(&name.as_str()));
        spec
    };
    if rest(old) != rest(new) {
        errors.push(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}
