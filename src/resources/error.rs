//! Why a write is refused.

use std::fmt;

/// Why an object may not be written as it is. The API turns it into a Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// 422 `Invalid`: fields that break rules.
    Invalid(Vec<FieldError>),
    /// 400 `BadRequest`: the object does not fit the request.
    BadRequest(String),
    /// 403 `Forbidden`; the text after `…is forbidden: `.
    Forbidden(String),
    /// 409 `Conflict`; the text after `Operation cannot be fulfilled on …: `.
    Conflict(String),
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Refusal::Invalid(vec![error])
    }
}

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
