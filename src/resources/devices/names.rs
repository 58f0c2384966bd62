//! Names of pools, attributes and capacities, and what devices tolerate.

use crate::resources::FieldError;
use crate::resources::names::{label_value, qualified_name, subdomain};
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::{At, FieldPath};
use crate::tree::Value;

/// Longest name of a pool, and of an attribute, in bytes.
const POOL_LEN_MAX: usize = 253;
const ID_LEN_MAX: usize = 32;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const IDENTIFIER_RULE: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
    alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
    '[A-Za-z_][A-Za-z0-9_]*')";

/// One or more subdomains with slashes between them.
pub(super) fn pool(name: &At<'_>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    if name.text().len() > POOL_LEN_MAX {
        errors.push(FieldError::too_long(&name.field, POOL_LEN_MAX));
    }
    for part in name.text().split('/') {
        let wrong = subdomain(part).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(&name.field, part, what)));
    }
}

/// The name of an attribute or capacity: an identifier, perhaps behind the domain of who gave it.
pub(super) fn qualified(name: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, field, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.push(FieldError::invalid_text(field, "", "the domain must not be empty"));
            } else {
                let value = Value::from(domain);
                let field = FieldPath::made(field.to_string());
                driver_name(&At { value: &value, field }, errors);
            }
            if id.is_empty() {
                errors.push(FieldError::invalid_text(field, "", "the name must not be empty"));
            } else {
                identifier(id, field, errors);
            }
        }
        _ => errors.push(FieldError::invalid_text(
            field,
            name,
            "must not contain more than one slash",
        )),
    }
}

/// As [`qualified`], and there is a domain.
pub(super) fn fully_qualified(name: &At<'_>, errors: &mut Vec<FieldError>) {
    qualified(name.text(), &name.field, errors);
    if !name.text().contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(name.invalid(detail));
    }
}

fn identifier(id: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if id.len() > ID_LEN_MAX {
        errors.push(FieldError::too_long(field, ID_LEN_MAX));
    }
    let fine = id.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !fine {
        errors.push(FieldError::invalid_text(field, id, IDENTIFIER_RULE));
    }
}

/// A taint of a device.
pub(super) fn taint(taint: &At<'_>, errors: &mut Vec<FieldError>) {
    let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
    key.check(label_name(&key), errors);
    value.check(label_value(value.text()), errors);
    if effect.is_empty() {
        errors.push(effect.required(""));
    } else {
        effect.one_of(EFFECTS, errors);
    }
}

/// What taints of a device do not matter to a request.
pub(super) fn toleration(toleration: &At<'_>, errors: &mut Vec<FieldError>) {
    let (key, value, operator) = (
        toleration.get("key"),
        toleration.get("value"),
        toleration.get("operator"),
    );
    if !key.is_empty() {
        key.check(label_name(&key), errors);
    }
    match operator.text() {
        "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => value.check(label_value(value.text()), errors),
        "" => errors.push(operator.required("")),
        _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
    }
    toleration.get("effect").one_of(EFFECTS, errors);
}

fn label_name(key: &At<'_>) -> Vec<String> {
    qualified_name(key.text())
}

/// Conditions that devices are bound by: each once, and none in both lists, and neither list without the other.
pub(super) fn binding(parent: &At<'_>, errors: &mut Vec<FieldError>) {
    const MAX: usize = 4;
    let (bound, failed) = (parent.get("bindingConditions"), parent.get("bindingFailureConditions"));
    let mut all_looked_at = true;
    for conditions in [&bound, &failed] {
        if super::is_too_long(conditions, MAX, errors) {
            all_looked_at = false;
        } else {
            for condition in conditions.items() {
                condition.check(label_name(&condition), errors);
            }
        }
        super::refuse_repeated(conditions, At::text, errors);
    }
    for condition in failed.items().filter(|_| all_looked_at) {
        if bound.items().any(|other| other.text() == condition.text()) {
            errors.push(condition.invalid("bindingFailureConditions must not overlap with bindingConditions"));
        }
    }
    match (bound.is_empty(), failed.is_empty()) {
        (true, false) => errors.push(bound.invalid("bindingConditions are required to use bindingFailureConditions")),
        (false, true) => errors.push(failed.invalid("bindingFailureConditions are required to use bindingConditions")),
        _ => {}
    }
}
