//! Options of POST, PUT and PATCH, from the query.

use super::object;
use crate::api::request::Query;
use crate::api::status::{Cause, Status};
use crate::schema::FieldValidation;

/// Options of POST, PUT and PATCH.
#[derive(Debug, Clone)]
pub(super) struct WriteOptions {
    /// Answer as if it were done, keep nothing.
    pub dry_run: bool,
    /// What is done about unknown and duplicate fields.
    pub validation: FieldValidation,
}

/// Longest name of a field manager, bytes.
const MANAGER_MAX: usize = 128;

impl WriteOptions {
    /// Reads the query. `kind` is the options' kind for messages: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    ///
    /// # Errors
    /// 422 with a cause for each option that has no valid value.
    pub(super) fn read(query: &Query, kind: &'static str, apply: bool) -> Result<Self, Status> {
        let mut causes = Vec::new();
        let dry_run = dry_run(&query.all("dryRun").map(Into::into).collect::<Vec<_>>(), &mut causes);
        let manager = query.get("fieldManager").unwrap_or_default();
        if manager.len() > MANAGER_MAX {
            causes.push(cause(
                "FieldValueTooLong",
                "fieldManager",
                format!("Too long: may not be more than {MANAGER_MAX} bytes"),
            ));
        } else if manager.chars().any(char::is_control) {
            let text = format!(
                "Invalid value: {}: should only contain printable characters",
                object::quoted(&manager)
            );
            causes.push(cause("FieldValueInvalid", "fieldManager", text));
        } else if apply && manager.is_empty() {
            causes.push(cause(
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch".into(),
            ));
        }
        if kind == "PatchOptions" && !apply && query.get("force").is_some() {
            causes.push(cause(
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch".into(),
            ));
        }
        let asked = query.get("fieldValidation").unwrap_or_default();
        let validation = FieldValidation::parse(&asked);
        if validation.is_none() {
            let text = format!(
                "Unsupported value: {}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                object::quoted(&asked)
            );
            causes.push(cause("FieldValueNotSupported", "fieldValidation", text));
        }
        if causes.is_empty() {
            Ok(Self {
                dry_run,
                validation: validation.unwrap_or_default(),
            })
        } else {
            Err(Status::invalid("meta.k8s.io", kind, "", causes))
        }
    }
}

/// A cause of a Status.
pub(super) fn cause(reason: &'static str, field: &str, message: String) -> Cause {
    Cause {
        reason: reason.into(),
        field: field.into(),
        message,
    }
}

/// Whether this is a dry run; what is wrong with the values is noted.
pub(super) fn dry_run(values: &[String], causes: &mut Vec<Cause>) -> bool {
    if values.iter().any(|value| value != "All") {
        let listed: Vec<String> = values.iter().map(|value| object::quoted(value)).collect();
        let text = format!("Unsupported value: [{}]: supported values: \"All\"", listed.join(","));
        causes.push(cause("FieldValueNotSupported", "dryRun", text));
    }
    !values.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_option_is_a_cause() {
        let query = Query::new("dryRun=Yes&fieldValidation=Sometimes");
        let status = WriteOptions::read(&query, "CreateOptions", false).unwrap_err();
        assert_eq!(status.code, 422);
        let fields: Vec<_> = status
            .details
            .unwrap()
            .causes
            .into_iter()
            .map(|cause| cause.field)
            .collect();
        assert_eq!(fields, ["dryRun", "fieldValidation"]);
    }
}
