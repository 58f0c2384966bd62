//! Rules of where a Pod may run: selectors of nodes, tolerations, affinity, spreading.

use crate::resources::FieldError;
use crate::resources::metadata;
use crate::resources::names::qualified_name;
use crate::resources::validate::{At, label_selector};

/// Checks what of a Pod's spec says where it may run.
pub(super) fn check_placement(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let selector = spec.get("nodeSelector");
    metadata::labels(Some(selector.value), &selector.field, errors);
    for toleration in spec.get("tolerations").items() {
        let (key, operator, effect) = (
            toleration.get("key"),
            toleration.get("operator"),
            toleration.get("effect"),
        );
        if key.is_empty() {
            if operator.text() != "Exists" {
                let detail =
                    "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
                errors.push(operator.invalid(detail));
            }
        } else {
            key.check(qualified_name(key.text()), errors);
        }
        let value = toleration.get("value");
        if operator.text() == "Exists" && !value.is_empty() {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(&operator.field, value.value, detail));
        }
        if toleration.get("tolerationSeconds").present() && effect.text() != "NoExecute" {
            errors.push(effect.invalid("effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        effect.one_of(EFFECTS, errors);
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let skew = constraint.get("maxSkew");
        if skew.integer().unwrap_or(0) <= 0 {
            errors.push(skew.invalid("must be greater than zero"));
        }
        label_selector(&constraint.get("labelSelector"), errors);
    }
    affinity(&spec.get("affinity"), errors);
}

fn affinity(affinity: &At<'_>, errors: &mut Vec<FieldError>) {
    let node = affinity.get("nodeAffinity");
    for term in node
        .get("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
        .items()
    {
        node_selector_term(&term, errors);
    }
    for preferred in node.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, errors);
        node_selector_term(&preferred.get("preference"), errors);
    }
    for pods in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(pods);
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution").items() {
            label_selector(&term.get("labelSelector"), errors);
        }
        for preferred in pods.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&preferred, errors);
            label_selector(&preferred.get("podAffinityTerm.labelSelector"), errors);
        }
    }
}

fn weight(preferred: &At<'_>, errors: &mut Vec<FieldError>) {
    let weight = preferred.get("weight");
    if !(1..=100).contains(&weight.integer().unwrap_or(0)) {
        errors.push(weight.invalid("must be in the range 1-100"));
    }
}

fn node_selector_term(term: &At<'_>, errors: &mut Vec<FieldError>) {
    for expression in term.get("matchExpressions").items() {
        let values = expression.get("values");
        match expression.get("operator").text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Gt" | "Lt" if values.value.as_array().is_none_or(|values| values.len() != 1) => {
                errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => errors.push(expression.get("operator").invalid("not a valid selector operator")),
        }
        let key = expression.get("key");
        key.check(qualified_name(key.text()), errors);
    }
}
