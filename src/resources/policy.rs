//! Groups that steer Pods: `policy` and `scheduling.k8s.io`.

use crate::tree::Value;

use super::FieldError;
use super::kind::Kind;
use super::lookup::integer_or_text;
use super::validate::{At, capitalized, conditions, label_selector};
use super::workload_rules::{check_amount, check_at_most_all};

pub(super) const KINDS: &[Kind] = &[
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
        .validate(check_budget)
        .validate_status(|_, budget, errors| conditions(&At::root(budget).get("status.conditions"), errors)),
    Kind::new("priorityclasses.scheduling.k8s.io")
        .generation_stays()
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
