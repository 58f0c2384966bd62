//! Why a write is refused.

pub use crate::schema::{FieldError, FieldReason};

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
