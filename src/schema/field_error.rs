//! Fields that break rules.

use std::fmt;

use crate::tree::Value;

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// What sort of rule.
    pub reason: FieldReason,
    /// Path of the field, e.g. `spec.containers[0].name`.
    pub field: String,
    /// The whole message without the path, as a Status cause carries it: `Invalid value: "x": must be …`.
    pub message: String,
}

/// Sorts of broken rules (the API's `CauseType`s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldReason {
    /// A value is missing.
    Required,
    /// Appears twice.
    Duplicate,
    /// Malformed or out of range.
    Invalid,
    /// Not one of the allowed values.
    NotSupported,
    /// Not allowed under the present conditions.
    Forbidden,
    /// Too long.
    TooLong,
    /// Too many items.
    TooMany,
    /// Refers to something that does not exist.
    NotFound,
    /// Of the wrong type.
    TypeInvalid,
    /// Could not be judged.
    Internal,
}

impl FieldError {
    fn new(reason: FieldReason, field: impl Into<String>, what: &str, detail: impl fmt::Display) -> FieldError {
        let detail = detail.to_string();
        let message = if detail.is_empty() {
            what.to_owned()
        } else {
            format!("{what}: {detail}")
        };
        FieldError {
            reason,
            field: field.into(),
            message,
        }
    }

    /// `Required value`, with more to say or `""`.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> FieldError {
        FieldError::new(FieldReason::Required, field, "Required value", detail)
    }

    /// `Invalid value: …`; the value as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> FieldError {
        FieldError::new(
            FieldReason::Invalid,
            field,
            &format!("Invalid value: {}", quoted(value)),
            detail,
        )
    }

    /// `Invalid value: …`; the value as it is shown.
    pub fn invalid_shown(field: impl Into<String>, shown: &str, detail: impl fmt::Display) -> FieldError {
        FieldError::new(FieldReason::Invalid, field, &format!("Invalid value: {shown}"), detail)
    }

    /// `Invalid value: "…"` of a text.
    pub fn invalid_text(field: impl Into<String>, value: &str, detail: impl fmt::Display) -> FieldError {
        FieldError::invalid(field, &Value::from(value), detail)
    }

    /// `Unsupported value: …: supported values: …`.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> FieldError {
        FieldError::not_supported_shown(field, &quoted(value), supported)
    }

    /// `Unsupported value: …: supported values: …`; the value as it is shown.
    pub fn not_supported_shown(field: impl Into<String>, shown: &str, supported: &[&str]) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        let what = format!("Unsupported value: {shown}");
        FieldError::new(FieldReason::NotSupported, field, &what, detail)
    }

    /// `Required value: …`, `Duplicate value: …` and all others, by reason: the value as it is shown, where it is shown.
    pub(crate) fn of(
        reason: FieldReason,
        field: impl Into<String>,
        shown: Option<&str>,
        detail: impl fmt::Display,
    ) -> FieldError {
        let word = match reason {
            FieldReason::Required => "Required value",
            FieldReason::Duplicate => "Duplicate value",
            FieldReason::Invalid | FieldReason::TypeInvalid => "Invalid value",
            FieldReason::NotSupported => "Unsupported value",
            FieldReason::Forbidden => "Forbidden",
            FieldReason::TooLong => "Too long",
            FieldReason::TooMany => "Too many",
            FieldReason::NotFound => "Not found",
            FieldReason::Internal => "Internal error",
        };
        // Of these the value is never shown.
        let shown = shown.filter(|_| !matches!(reason, FieldReason::Required | FieldReason::Forbidden));
        let what = shown.map_or_else(|| word.to_owned(), |shown| format!("{word}: {shown}"));
        FieldError::new(reason, field, &what, detail)
    }

    /// `Invalid value: …` of a value of the wrong type; what is shown of it.
    pub fn type_invalid(field: impl Into<String>, shown: &str, detail: impl fmt::Display) -> FieldError {
        let what = format!("Invalid value: {shown}");
        FieldError::new(FieldReason::TypeInvalid, field, &what, detail)
    }

    /// `Duplicate value: …`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
        FieldError::new(
            FieldReason::Duplicate,
            field,
            &format!("Duplicate value: {}", quoted(value)),
            "",
        )
    }

    /// `Invalid value: ` and what is wrong, without the value.
    pub fn invalid_plain(field: impl Into<String>, detail: impl fmt::Display) -> FieldError {
        FieldError::new(FieldReason::Invalid, field, "Invalid value", detail)
    }

    /// `Duplicate value: …`; the value as it is shown.
    pub fn duplicate_shown(field: impl Into<String>, shown: &str) -> FieldError {
        FieldError::new(FieldReason::Duplicate, field, &format!("Duplicate value: {shown}"), "")
    }

    /// `Forbidden: …`.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> FieldError {
        FieldError::new(FieldReason::Forbidden, field, "Forbidden", detail)
    }

    /// `Too long: may not be more than … bytes`.
    pub fn too_long(field: impl Into<String>, bytes_max: usize) -> FieldError {
        FieldError::new(
            FieldReason::TooLong,
            field,
            "Too long",
            format!("may not be more than {bytes_max} bytes"),
        )
    }

    /// `Too many: …: must have at most … items`.
    pub fn too_many(field: impl Into<String>, count: usize, count_max: usize) -> FieldError {
        let detail = format!("must have at most {count_max} items");
        FieldError::new(FieldReason::TooMany, field, &format!("Too many: {count}"), detail)
    }

    /// `Not found: …`.
    pub fn not_found(field: impl Into<String>, value: &Value) -> FieldError {
        FieldError::new(
            FieldReason::NotFound,
            field,
            &format!("Not found: {}", quoted(value)),
            "",
        )
    }
}

/// A value inside a message: JSON.
fn quoted(value: &Value) -> String {
    value.to_string()
}

impl FieldReason {
    /// The `reason` of a Status cause.
    pub fn as_str(self) -> &'static str {
        match self {
            FieldReason::Required => "FieldValueRequired",
            FieldReason::Duplicate => "FieldValueDuplicate",
            FieldReason::Invalid => "FieldValueInvalid",
            FieldReason::NotSupported => "FieldValueNotSupported",
            FieldReason::Forbidden => "FieldValueForbidden",
            FieldReason::TooLong => "FieldValueTooLong",
            FieldReason::TooMany => "FieldValueTooMany",
            FieldReason::NotFound => "FieldValueNotFound",
            FieldReason::TypeInvalid => "FieldValueTypeInvalid",
            FieldReason::Internal => "InternalError",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
