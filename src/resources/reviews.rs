//! Questions about callers and about what they may do (`authentication.k8s.io`, `authorization.k8s.io`): which of them
//! cannot be answered.

use crate::tree::Value;

use super::encode::METADATA_ORDER;
use super::validate::{At, capitalized};
use super::{FieldError, Refusal, Resource};

/// What is wrong with a question.
///
/// # Errors
/// [`Refusal::Invalid`] for fields that say too much or too little, [`Refusal::BadRequest`] for a question about nothing.
pub fn check_review(resource: &Resource, review: &Value) -> Result<(), Refusal> {
    let review = At::root(review);
    let mut errors = Vec::new();
    let nothing = |what: &str| Err(Refusal::BadRequest(what.to_owned()));
    match &*resource.kind {
        "TokenReview" if review.get("spec.token").is_empty() => {
            return nothing("token is required for TokenReview in authentication");
        }
        "SelfSubjectRulesReview" if review.get("spec.namespace").is_empty() => {
            return nothing("no namespace on request");
        }
        "SubjectAccessReview" => {
            access(&review, true, &mut errors);
            metadata(&review, "must be empty", &[], &mut errors);
        }
        "SelfSubjectAccessReview" => {
            access(&review, false, &mut errors);
            metadata(&review, "must be empty", &[], &mut errors);
        }
        "LocalSubjectAccessReview" => {
            access(&review, true, &mut errors);
            metadata(
                &review,
                "must be empty except for namespace",
                &["namespace"],
                &mut errors,
            );
            let (asked, other) = (
                review.get("spec.resourceAttributes"),
                review.get("spec.nonResourceAttributes"),
            );
            let namespace = asked.get("namespace");
            if asked.present() && namespace.text() != review.get("metadata.namespace").text() {
                let detail = "must match metadata.namespace";
                errors.push(FieldError::invalid_text(&namespace.field, namespace.text(), detail));
            }
            if other.present() {
                let detail = "disallowed on this kind of request";
                errors.push(FieldError::invalid(&other.field, &capitalized(other.value), detail));
            }
        }
        _ => {}
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(errors))
    }
}

/// Exactly one thing is asked about, of somebody.
fn access(review: &At<'_>, of_others: bool, errors: &mut Vec<FieldError>) {
    let spec = review.get("spec");
    let (asked, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    match (asked.present(), other.present()) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid(&other.field, &capitalized(other.value), detail));
        }
        (false, false) => {
            errors.push(asked.invalid("exactly one of nonResourceAttributes or resourceAttributes must be specified"));
        }
        _ => {}
    }
    let user = spec.get("user");
    if of_others && user.is_empty() && spec.get("groups").is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid_text(&user.field, "", detail));
    }
    for selector in ["fieldSelector", "labelSelector"] {
        let selector = asked.get(selector);
        if selector.present() {
            check_selector(&selector, errors);
        }
    }
}

/// A selector is given in one form; operators that are not known are for newer servers.
fn check_selector(selector: &At<'_>, errors: &mut Vec<FieldError>) {
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => errors.push(raw.invalid("may not specified at the same time as requirements")),
        (true, true) => {
            let field = &selector.field;
            errors.push(requirements.required(&format!(
                "when {field} is specified, requirements or rawSelector is required"
            )));
        }
        _ => {}
    }
    for requirement in requirements.items() {
        let (key, values) = (requirement.get("key"), requirement.get("values"));
        if key.is_empty() {
            errors.push(key.required("must be specified"));
        }
        match requirement.get("operator").text() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            _ => {}
        }
    }
}

fn metadata(review: &At<'_>, detail: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    let metadata = review.get("metadata");
    // Who manages it is noted by the server.
    let says = |(name, field): (&str, At<'_>)| name != "managedFields" && !allowed.contains(&name) && !field.is_empty();
    if metadata.entries().any(says) {
        errors.push(FieldError::invalid_shown(
            &metadata.field,
            &shown(metadata.value),
            detail,
        ));
    }
}

/// Metadata as messages show it: in the order of its Go type.
fn shown(metadata: &Value) -> String {
    const ENTRY: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    let object = |value: &Value, fields: &[&str], text: &dyn Fn(&str, &Value) -> String| {
        let told = fields.iter().filter_map(|field| {
            let value = value.get(*field)?;
            Some(format!("\"{field}\":{}", text(field, value)))
        });
        format!("{{{}}}", told.collect::<Vec<_>>().join(","))
    };
    object(
        metadata,
        METADATA_ORDER,
        &|field, value| match value.as_array().filter(|_| field == "managedFields") {
            Some(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| object(entry, &ENTRY, &|_, value| value.to_string()));
                format!("[{}]", entries.collect::<Vec<_>>().join(","))
            }
            None => value.to_string(),
        },
    )
}
