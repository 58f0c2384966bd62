//! Rules that workloads share: selectors and templates, how they are rolled out, counters in their status.

use std::borrow::Cow;

use crate::tree::{Value, json};

use super::core::pods::rules::check_pod_template;
use super::core::pods::warnings::warn_pod_template;
use super::core::volumes::claim_spec;
use super::label_selector::selects;
use super::lookup::{self, integer};
use super::validate::{At, capitalized, label_selector};
use super::{FieldError, FieldReason, metadata, names};

/// Checks a Pod template.
pub(super) fn check_template(template: &At<'_>, errors: &mut Vec<FieldError>) {
    check_pod_template(template, errors);
    let labels = template.get("metadata.labels").value;
    metadata::labels(Some(labels), &template.get("labels").field, errors);
    let annotations = template.get("metadata.annotations").value.as_object();
    metadata::annotations(annotations, &template.get("annotations").field, errors);
}

/// Pods of these workloads are always restarted and have no deadline.
pub(super) fn check_restarts(template: &At<'_>, kind: &str, errors: &mut Vec<FieldError>) {
    let policy = template.get("spec.restartPolicy");
    if policy.text() != "Always" {
        let shown = Value::from(policy.text());
        errors.push(FieldError::not_supported(&policy.field, &shown, &["Always"]));
    }
    let deadline = template.get("spec.activeDeadlineSeconds");
    if deadline.present() {
        errors.push(deadline.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}

/// Checks the selector of a workload and that it selects the labels of the template. An absent one is refused by the table
/// of rules. `unsound` is what is said of one that cannot be a selector, if anything.
pub(super) fn check_selector(workload: &Value, kind: &str, unsound: Option<&str>, errors: &mut Vec<FieldError>) {
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
        _ => errors.extend(unsound.map(|what| selector.invalid(what))),
    }
}

/// Checks what a ReplicationController selects, and its template.
pub(super) fn check_replication_controller(controller: &Value, errors: &mut Vec<FieldError>) {
    let template = At::root(controller).get("spec.template");
    if !template.present() {
        return;
    }
    let labels = template.get("metadata.labels");
    let selector = json!({"matchLabels": controller.pointer("/spec/selector")});
    if selects(&selector, labels.value) == Some(false) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    check_template(&template, errors);
    check_restarts(&template, "ReplicationController", errors);
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
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // What no number holds is above 100 all the same.
    whole.then(|| digits.parse().unwrap_or(u64::MAX))
}

fn is_zero(amount: &At<'_>) -> bool {
    amount.integer() == Some(0) || percent(amount.text()) == Some(0)
}

/// How a Deployment or DaemonSet is rolled out.
pub(super) fn check_rollout(workload: &Value, path: &'static str, types: &[&str], errors: &mut Vec<FieldError>) {
    let strategy = At::root(workload).get(path);
    let kind = strategy.get("type").text();
    if !types.contains(&kind) {
        let shown = inner_strategy(&strategy);
        let supported: Vec<String> = types.iter().map(|kind| format!("\"{kind}\"")).collect();
        errors.push(FieldError {
            reason: FieldReason::NotSupported,
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
    if path == "spec.updateStrategy" {
        check_at_most_all(&surge, errors);
    }
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

/// A strategy as the inner type shows it, in the order of its fields.
fn inner_strategy(strategy: &At<'_>) -> String {
    let kind = Value::from(strategy.get("type").text());
    let rolling = capitalized(strategy.get("rollingUpdate").value);
    format!("{{\"Type\":{kind},\"RollingUpdate\":{rolling}}}")
}

/// A Deployment must have more time to come forward than a Pod needs to be available.
pub(super) fn check_progress(deployment: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(deployment).get("spec");
    let deadline = spec.get("progressDeadlineSeconds");
    let ready_after_s = spec.get("minReadySeconds").integer().unwrap_or(0);
    if deadline.integer().is_some_and(|deadline_s| deadline_s <= ready_after_s) {
        errors.push(deadline.invalid("must be greater than minReadySeconds"));
    }
}

/// Counters of a status that may not be above `replicas`; `ready` names the counter that `availableReplicas` may not be
/// above.
pub(super) fn check_counters(workload: &Value, counters: &[&str], ready: &str, errors: &mut Vec<FieldError>) {
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
    if available > count("readyReplicas") {
        let detail = format!("cannot be greater than {ready}");
        errors.push(FieldError::invalid(
            "status.availableReplicas",
            &json!(available),
            detail,
        ));
    }
}

/// Collisions of names are counted upwards.
pub(super) fn check_collisions(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let count = |workload: &Value| integer(workload, "/status/collisionCount");
    if let Some(before) = count(old)
        && count(new).is_none_or(|now| now < before)
    {
        let shown = json!(count(new).unwrap_or(0));
        errors.push(FieldError::invalid(
            "status.collisionCount",
            &shown,
            "cannot be decremented",
        ));
    }
}

/// Checks the spec of a StatefulSet.
pub(super) fn check_stateful_set(set: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(set).get("spec");
    let policy = spec.get("podManagementPolicy");
    if !matches!(policy.text(), "OrderedReady" | "Parallel") {
        errors.push(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
    }
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" if rolling.present() => {
            let shown = capitalized(rolling.value);
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(FieldError::invalid(&rolling.field, &shown, detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let unavailable = rolling.get("maxUnavailable");
            check_amount(&unavailable, errors);
            if is_zero(&unavailable) {
                errors.push(unavailable.invalid("cannot be 0"));
            }
            check_at_most_all(&unavailable, errors);
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid_shown(
                &strategy.field,
                &inner_strategy(&strategy),
                detail,
            ));
        }
    }
    check_selector(set, "statefulset", Some(""), errors);
    let whole = spec.get("template");
    let template = At {
        value: &with_claims(&whole, &spec.get("volumeClaimTemplates")),
        field: whole.field.clone(),
    };
    check_template(&template, errors);
    check_restarts(&template, "StatefulSet", errors);
}

/// The template of a StatefulSet as its Pods have it: each claim is a volume, before the others and instead of one of the
/// same name.
fn with_claims<'a>(template: &At<'a>, claims: &At<'a>) -> Cow<'a, Value> {
    let mut volumes: Vec<Value> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for claim in claims.items() {
        let name = claim.get("metadata.name").text();
        if !names.contains(&name) {
            names.push(name);
            volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    if volumes.is_empty() {
        return Cow::Borrowed(template.value);
    }
    let own = template.get("spec.volumes");
    let rest = own.items().filter(|volume| !names.contains(&volume.get("name").text()));
    volumes.extend(rest.map(|volume| volume.value.clone()));
    let mut template = template.value.clone();
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("volumes", volumes.into_iter().collect::<Value>());
    }
    Cow::Owned(template)
}

/// What only a new StatefulSet is asked: a Service that can be one, claims that can be made.
pub(super) fn check_new_stateful_set(set: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(set).get("spec");
    let service = spec.get("serviceName");
    if !service.is_empty() {
        service.check(names::label(service.text()), errors);
    }
    for claim in spec.get("volumeClaimTemplates").items() {
        claim_spec(&claim.get("spec"), errors);
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

/// Warnings about the template of a workload.
pub(super) fn warn_template(workload: &Value) -> Vec<String> {
    warn_pod_template(&At::root(workload).get("spec.template"))
}

/// Warns of the name of a workload whose Pods are named after it.
pub(super) fn warn_name(workload: &Value) -> Vec<String> {
    let wrong = names::label(lookup::text(workload, "/metadata/name"));
    if wrong.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        wrong.join(" ")
    )]
}
