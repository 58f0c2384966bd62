//! What is wrong with a custom object: its schema, the heads of embedded resources, lists that are sets or maps, its rules.
//!
//! The order, and what is compared with the old object, are those of apiextensions' `registry/customresource`.

use crate::cel::rules::{Broken, Reason};
use crate::schema::structural::{Structural, Under};
use crate::tree::{Map, Value};

use super::names::dns_1035_label;
use super::{FieldError, FieldReason, find, metadata};

/// Rules that a stored object breaks and that are told with a change of it.
const TOLERATED_MAX: usize = 100;
/// Said in place of rules that were not looked at.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
    errors to complete validation";

/// What is wrong with a new custom object (`old` is `None`) or a changed one, beside its metadata and replica counts.
/// Values that did not change are not complained of; rules that they break come as `warnings`. A change of `status` is judged by the schema of the status alone.
pub(crate) fn check(
    schema: &Structural,
    old: Option<&Value>,
    new: &Value,
    subresource: Option<&str>,
    warnings: &mut Vec<String>,
) -> Vec<FieldError> {
    let mut errors = if subresource == Some("status") {
        status(schema, old, new)
    } else {
        let mut errors = schema.validate(old, new);
        schema.embedded_resources(new, &mut |path, resource| {
            check_embedded(&path, resource, &mut errors);
        });
        errors
    };
    let duplicates = schema.duplicates(new);
    if !duplicates.is_empty() && old.is_none_or(|old| schema.duplicates(old).is_empty()) {
        errors.extend(duplicates);
    }
    if let Some(rules) = schema.rules() {
        if errors.iter().any(blocks_rules) {
            errors.push(FieldError::invalid_shown("<nil>", "null", NOT_CHECKED));
        } else {
            let verdict = rules.validate(old, new);
            errors.extend(verdict.broken.into_iter().map(told));
            // What was wrong before and did not change may stay, but is told.
            let tolerated = verdict.tolerated.into_iter().take(TOLERATED_MAX);
            warnings.extend(tolerated.map(|broken| told(broken).to_string()));
        }
    }
    errors
}

/// Rules expect an object of the right form.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.reason,
        FieldReason::NotSupported
            | FieldReason::Required
            | FieldReason::TooLong
            | FieldReason::TooMany
            | FieldReason::TypeInvalid
    )
}

/// A broken rule as an error of its field.
pub(super) fn told(broken: Broken) -> FieldError {
    let reason = match broken.reason {
        Reason::Invalid => FieldReason::Invalid,
        Reason::Forbidden => FieldReason::Forbidden,
        Reason::Required => FieldReason::Required,
        Reason::Duplicate => FieldReason::Duplicate,
        Reason::NotSupported => FieldReason::NotSupported,
        Reason::Internal => FieldReason::Internal,
    };
    let field = if broken.path.is_empty() {
        "<nil>".to_owned()
    } else {
        broken.path
    };
    FieldError::of(reason, field, broken.shown.as_deref(), broken.detail)
}

fn status(schema: &Structural, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let (Some(node), Some(status)) = (schema.root().field("status"), new.get("status")) else {
        return Vec::new();
    };
    let under = Under {
        base: "status".to_owned(),
        ..Under::default()
    };
    node.validate(old.and_then(|old| old.get("status")), status, &under)
}

/// What is wrong with the head of an embedded resource. `path`: where it stands.
pub(super) fn check_embedded(path: &str, resource: &Map, errors: &mut Vec<FieldError>) {
    let field = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    for name in ["apiVersion", "kind"] {
        match resource.get(name) {
            None => errors.push(FieldError::required(field(name), "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid_text(field(name), text, "must not be empty"));
            }
            Some(Value::String(text)) if name == "kind" => {
                let wrong = dns_1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let wrong = wrong.join(",");
                    let detail = format!("may have mixed case, but should otherwise match: {wrong}");
                    errors.push(FieldError::invalid_text(field(name), text, detail));
                }
            }
            Some(Value::String(text)) => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid_text(field(name), text, detail));
                }
            }
            Some(other) => errors.push(FieldError::invalid(field(name), other, "must be a string")),
        }
    }
    let Some(metadata) = resource.get("metadata").and_then(Value::as_object) else {
        return;
    };
    let mut metadata = metadata.clone();
    let text = |metadata: &Map, name: &str| metadata[name].as_str().unwrap_or("").to_owned();
    if text(&metadata, "name").is_empty() {
        // It may be without a name.
        metadata.insert("name", Value::from("fakename"));
    }
    // Its name may be whatever a URL can hold, as those of roles.
    let namespaced = !text(&metadata, "namespace").is_empty();
    let plural = if namespaced { "roles" } else { "clusterroles" };
    let Some(like) = find("rbac.authorization.k8s.io", "v1", plural) else {
        return;
    };
    let object: Map = [("metadata", Value::Object(metadata))].into_iter().collect();
    let mut found = Vec::new();
    metadata::validate(like, &Value::Object(object), &mut found);
    errors.extend(found.into_iter().map(|error| FieldError {
        field: field(&error.field),
        ..error
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn rules_judge_what_is_of_the_right_form() {
        let schema = Structural::compile(&json!({"type": "object", "properties": {"spec": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            "x-kubernetes-validations": [{
                "rule": "self.name.startsWith('w-')", "message": "must start with w-", "reason": "FieldValueForbidden", "fieldPath": ".name",
            }],
        }}}))
        .unwrap();
        let errors = |old: Option<&Value>, new: &Value, warnings: &mut Vec<String>| -> Vec<String> {
            let errors = check(&schema, old, new, None, warnings);
            errors.iter().map(ToString::to_string).collect()
        };
        let mut warnings = Vec::new();
        let bad = json!({"spec": {"name": "x", "n": 1}});
        assert_eq!(
            errors(None, &bad, &mut warnings),
            ["spec.name: Forbidden: must start with w-"]
        );
        assert_eq!(
            errors(None, &json!({"spec": {"n": "1"}}), &mut warnings),
            [
                "spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\"".to_owned(),
                "spec.name: Required value".to_owned(),
                format!("<nil>: Invalid value: null: {NOT_CHECKED}"),
            ]
        );
        assert!(warnings.is_empty());
        let mut same = bad.clone();
        same["status"] = json!({"changed": true});
        assert_eq!(errors(Some(&bad), &same, &mut warnings), Vec::<String>::new());
        assert_eq!(warnings, ["spec.name: Forbidden: must start with w-"]);
    }
}
