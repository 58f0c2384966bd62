//! Rules of where a Pod may run: selectors of nodes, tolerations, affinity, spreading.

use std::collections::{HashMap, HashSet};

use crate::resources::FieldError;
use crate::resources::lookup::text;
use crate::resources::metadata;
use crate::resources::names::{label, label_value, qualified_name, subdomain};
use crate::resources::validate::{At, label_selector, label_values};

/// Checks what of a Pod's spec says where it may run.
pub(super) fn check_placement(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = spec.value.as_object() else {
        return;
    };
    if fields.contains_key("nodeSelector") {
        let selector = spec.get("nodeSelector");
        metadata::labels(Some(selector.value), &selector.field, errors);
    }
    if fields.contains_key("tolerations") {
        check_tolerations(&spec.get("tolerations"), errors);
    }
    if fields.contains_key("topologySpreadConstraints") {
        check_spreading(&spec.get("topologySpreadConstraints"), errors);
    }
    if fields.contains_key("affinity") {
        affinity(&spec.get("affinity"), errors);
    }
}

/// Rules of `tolerations`.
pub(super) fn check_tolerations(tolerations: &At<'_>, errors: &mut Vec<FieldError>) {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for toleration in tolerations.items() {
        let (key, operator, effect) = (
            toleration.get("key"),
            toleration.get("operator"),
            toleration.get("effect"),
        );
        if key.is_empty() {
            if operator.text() != "Exists" {
                let detail =
                    "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
                errors.push(FieldError::invalid_text(&operator.field, operator.text(), detail));
            }
        } else {
            key.check(qualified_name(key.text()), errors);
        }
        let value = toleration.get("value");
        match operator.text() {
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(&operator.field, value.value, detail));
            }
            "" | "Equal" => {
                let wrong = label_value(value.text());
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&operator.field, value.value, wrong.join(";")));
                }
            }
            _ => {}
        }
        if toleration.get("tolerationSeconds").present() && effect.text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid_text(&effect.field, effect.text(), detail));
        }
        effect.one_of(EFFECTS, errors);
    }
}

fn check_spreading(constraints: &At<'_>, errors: &mut Vec<FieldError>) {
    const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    // How often each pair is still to come.
    let mut pairs: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in constraints.items() {
        *pairs.entry(pair(&constraint)).or_default() += 1;
    }
    for constraint in constraints.items() {
        let skew = constraint.get("maxSkew");
        if skew.integer().unwrap_or(0) <= 0 {
            errors.push(FieldError::invalid(
                &skew.field,
                &skew.integer().unwrap_or(0).into(),
                NOT_POSITIVE,
            ));
        }
        let (key, action) = pair(&constraint);
        if action.is_empty() {
            let field = constraint.get("whenUnsatisfiable").field;
            errors.push(FieldError::not_supported(field, &"".into(), ACTIONS));
        }
        let left = pairs.entry((key, action)).or_default();
        *left -= 1;
        if *left > 0 {
            let field = format!("{}.{{topologyKey, whenUnsatisfiable}}", constraint.field);
            errors.push(FieldError::duplicate(field, &format!("{{{key}, {action}}}").into()));
        }
        let domains = constraint.get("minDomains");
        if let Some(number) = domains.integer() {
            if number <= 0 {
                errors.push(domains.invalid(NOT_POSITIVE));
            }
            if action != "DoNotSchedule" {
                errors.push(domains.invalid(format_args!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                )));
            }
        }
        let (keys, selector) = (constraint.get("matchLabelKeys"), constraint.get("labelSelector"));
        label_keys(&keys, &selector, errors);
        repeated_keys(&keys, &keys, &selector, errors);
        label_selector(&selector, errors);
    }
}

fn pair<'a>(constraint: &At<'a>) -> (&'a str, &'a str) {
    (
        text(constraint.value, "/topologyKey"),
        text(constraint.value, "/whenUnsatisfiable"),
    )
}

const NOT_POSITIVE: &str = "must be greater than zero";

/// Keys of labels that are added to a selector.
fn label_keys(keys: &At<'_>, selector: &At<'_>, errors: &mut Vec<FieldError>) {
    if keys.is_empty() {
        return;
    }
    if !selector.present() {
        errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
        return;
    }
    for key in keys.items() {
        key.check(qualified_name(key.text()), errors);
    }
}

/// A key that was added to a selector is not in it besides. `shown`: the list that is named.
fn repeated_keys(keys: &At<'_>, shown: &At<'_>, selector: &At<'_>, errors: &mut Vec<FieldError>) {
    if keys.is_empty() {
        return;
    }
    let places: HashMap<&str, usize> = keys.items().enumerate().map(|(i, key)| (key.text(), i)).collect();
    let mut seen: HashSet<&str> = selector.get("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.get("matchExpressions").items() {
        let key = text(expression.value, "/key");
        if !seen.insert(key)
            && let Some(i) = places.get(key)
        {
            let field = format!("{}[{i}]", shown.field);
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid_text(field, key, detail));
        }
    }
}

fn affinity(affinity: &At<'_>, errors: &mut Vec<FieldError>) {
    let node = affinity.get("nodeAffinity");
    for term in node
        .get("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
        .items()
    {
        node_selector_term(&term, true, errors);
    }
    for preferred in node.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, errors);
        node_selector_term(&preferred.get("preference"), false, errors);
    }
    for pods in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(pods);
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution").items() {
            affinity_term(&term, errors);
        }
        for preferred in pods.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
            weight(&preferred, errors);
            affinity_term(&preferred.get("podAffinityTerm"), errors);
        }
    }
}

fn affinity_term(term: &At<'_>, errors: &mut Vec<FieldError>) {
    let selector = term.get("labelSelector");
    label_selector(&selector, errors);
    label_selector(&term.get("namespaceSelector"), errors);
    for namespace in term.get("namespaces").items() {
        let wrong = label(namespace.text()).into_iter();
        let field = term.get("namespace").field;
        errors.extend(wrong.map(|what| FieldError::invalid(&field, namespace.value, what)));
    }
    let (keys, others) = (term.get("matchLabelKeys"), term.get("mismatchLabelKeys"));
    label_keys(&keys, &selector, errors);
    label_keys(&others, &selector, errors);
    repeated_keys(&keys, term, &selector, errors);
    let others: HashSet<&str> = others.items().map(|key| key.text()).collect();
    for key in keys.items() {
        if others.contains(key.text()) {
            errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
        }
    }
}

fn weight(preferred: &At<'_>, errors: &mut Vec<FieldError>) {
    let weight = preferred.get("weight");
    if !(1..=100).contains(&weight.integer().unwrap_or(0)) {
        errors.push(weight.invalid("must be in the range 1-100"));
    }
}

/// `strictly`: what nodes' labels cannot be is refused, too.
pub(in crate::resources) fn node_selector_term(term: &At<'_>, strictly: bool, errors: &mut Vec<FieldError>) {
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
            operator => {
                let field = expression.get("operator").field;
                errors.push(FieldError::invalid_text(
                    field,
                    operator,
                    "not a valid selector operator",
                ));
            }
        }
        let key = expression.get("key");
        let wrong = qualified_name(key.text()).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(&key.field, key.text(), what)));
        if strictly {
            label_values(&values, errors);
        }
    }
    for expression in term.get("matchFields").items() {
        let (key, operator, values) = (
            expression.get("key"),
            expression.get("operator"),
            expression.get("values"),
        );
        if !matches!(operator.text(), "In" | "NotIn") {
            let detail = "not a valid selector operator";
            errors.push(FieldError::invalid_text(&operator.field, operator.text(), detail));
        } else if values.value.as_array().is_none_or(|values| values.len() != 1) {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(values.required(detail));
        }
        if key.text() == "metadata.name" {
            for value in values.items() {
                value.check(subdomain(value.text()), errors);
            }
        } else {
            let detail = "not a valid field selector key";
            errors.push(FieldError::invalid_text(&key.field, key.text(), detail));
        }
    }
}
