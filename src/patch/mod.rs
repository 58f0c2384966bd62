//! Patches of the three kinds that the API takes beside server-side apply: JSON Patch (RFC 6902), merge patch (RFC 7386)
//! and strategic merge patch, which reads merge keys and strategies from the schema.

pub mod apply;
mod go_format;
mod json_patch;
pub mod managed;
mod merge;
mod places;
mod strategic;

use crate::schema::{FieldValidation, Misfit, Schema, check, coerce, decode_object, decode_value, fits, go_word};
use crate::tree::Value;

pub use merge::merge;

/// The kind of a patch, by its media type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchKind {
    /// `application/json-patch+json`, RFC 6902.
    Json,
    /// `application/merge-patch+json`, RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
}

/// What a patch made of an object: of the object's kind, unknown fields gone.
#[derive(Clone, PartialEq, Debug)]
pub struct Patched {
    /// The object after the patch.
    pub value: Value,
    /// Texts for Warning headers, in order; empty unless the validation is `Warn`.
    pub warnings: Vec<String>,
}

/// Why a patch is refused, by the Status that kube-apiserver answers with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatchError {
    /// 400 `BadRequest` with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 413 `RequestEntityTooLarge` with this message.
    #[error("{0}")]
    TooLarge(String),
    /// A patch that cannot be applied to this object: 422 `Invalid` with the message "the server rejected our request due
    /// to an error in our request" and empty details. The text says why; kube-apiserver keeps it to itself.
    #[error("{0}")]
    NotApplicable(String),
    /// The patched object is not one of its kind: 422 `Invalid` of no kind and no name, with one cause of the field
    /// `patch`: "Invalid value: {object}: {detail}", reason `FieldValueInvalid`.
    #[error("patch: Invalid value: {object}: {detail}")]
    InvalidResult {
        /// The patched object (for a strategic patch: the patch) as the message shows it, quotes included.
        object: String,
        /// What is wrong with it.
        detail: String,
    },
    /// 500 with this message and no reason.
    #[error("{0}")]
    Internal(String),
}

/// Applies `patch`, the body of the request, to `original` (with its `apiVersion` and `kind`), whose schema is `schema`,
/// and decodes the result as that kind. O(size of both).
///
/// # Errors
/// [`PatchError`], by the Status to answer with.
pub fn apply(
    kind: PatchKind,
    original: &Value,
    patch: &[u8],
    schema: Schema<'static>,
    validation: FieldValidation,
) -> Result<Patched, PatchError> {
    let attentive = validation != FieldValidation::Ignore;
    let (mut patched, mut findings) = merged(kind, original, patch, Some(schema), attentive)?;
    // Most patches of most objects leave one of its kind: that is told without a pass.
    let head = |field: &str| patched.get(field) == original.get(field);
    if findings.is_empty() && head("kind") && head("apiVersion") && fits(schema, &mut patched, original) {
        return Ok(Patched {
            value: patched,
            warnings: Vec::new(),
        });
    }
    let invalid = |detail: String| PatchError::InvalidResult {
        object: shown(kind, original, patch, schema, attentive),
        detail,
    };
    let from_maps = kind == PatchKind::Strategic;
    // Findings of the patch come before those of the result, and Strict refuses for either.
    let asked = if validation == FieldValidation::Ignore {
        validation
    } else {
        FieldValidation::Warn
    };
    let decoded = check(patched, schema, asked, from_maps).map_err(|Misfit(detail)| invalid(detail))?;
    findings.extend(decoded.warnings);
    match validation {
        FieldValidation::Strict if !findings.is_empty() => {
            Err(invalid(format!("strict decoding error: {}", findings.join(", "))))
        }
        FieldValidation::Warn => Ok(Patched {
            value: decoded.value,
            warnings: findings,
        }),
        _ => Ok(Patched {
            value: decoded.value,
            warnings: Vec::new(),
        }),
    }
}

/// Applies `patch` to an object of a custom resource and brings metadata into its shape. The rest is as the patch left it:
/// what its schema says is for the caller. Findings come with it, about fields of the patch and of metadata.
///
/// # Errors
/// [`PatchError`]; strategic patches need a schema of a built-in kind and are refused as not applicable.
pub fn apply_untyped(
    kind: PatchKind,
    original: &Value,
    patch: &[u8],
    attentive: bool,
) -> Result<(Value, Vec<String>), PatchError> {
    let (mut patched, mut findings) = merged(kind, original, patch, None, attentive)?;
    let invalid = |detail: String, patched: &Value| PatchError::InvalidResult {
        object: go_format::quote(&patched.to_string()),
        detail,
    };
    for field in ["kind", "apiVersion"] {
        if patched.get(field) != original.get(field) {
            let detail = format!("{field} of the patched object is not that of the resource");
            return Err(invalid(detail, &patched));
        }
    }
    findings.extend(coerce(&mut patched, attentive).map_err(|detail| invalid(detail, original))?);
    Ok((patched, findings))
}

/// The object after the patch, not yet checked, and findings about the patch itself.
fn merged(
    kind: PatchKind,
    original: &Value,
    patch: &[u8],
    schema: Option<Schema<'_>>,
    attentive: bool,
) -> Result<(Value, Vec<String>), PatchError> {
    let mut patched = original.clone();
    Ok(match kind {
        PatchKind::Json => {
            let (operations, findings) = json_patch::decode(patch, attentive)?;
            (json_patch::apply(patched, &operations)?, findings)
        }
        PatchKind::Merge => {
            let (patch, findings) = merge_patch(patch, attentive)?;
            merge(&mut patched, patch);
            (patched, findings)
        }
        PatchKind::Strategic => {
            let (patch, findings) = decode_object(patch).map_err(PatchError::BadRequest)?;
            let schema = schema.ok_or_else(|| PatchError::NotApplicable("no schema to merge by".to_owned()))?;
            (strategic::apply(patched, patch, schema)?, findings)
        }
    })
}

/// Decodes a merge patch. Nothing but objects come through, or lists if unknown fields are of no interest: those make a list of
/// the object, which is refused for that.
fn merge_patch(body: &[u8], attentive: bool) -> Result<(Value, Vec<String>), PatchError> {
    let invalid = || PatchError::BadRequest("Invalid JSON Patch".to_owned());
    let bad = |text: String| PatchError::BadRequest(format!("error decoding patch: {text}"));
    match decode_value(body) {
        Ok((Value::Null, _)) => Err(invalid()),
        Ok((patch @ Value::Object(_), findings)) => Ok((patch, findings)),
        Ok((patch @ Value::Array(_), _)) if !attentive => Ok((patch, Vec::new())),
        Ok(_) | Err(_) if !attentive => Err(invalid()),
        Ok((other, _)) => Err(bad(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_word(&other)
        ))),
        Err(text) => Err(bad(text)),
    }
}

/// What the message of a refusal shows: the patched object, or the patch if it is a strategic one. Made from the start again,
/// so that patches which are not refused do not pay for it.
fn shown(kind: PatchKind, original: &Value, patch: &[u8], schema: Schema<'_>, attentive: bool) -> String {
    let text = match kind {
        PatchKind::Strategic => decode_object(patch).map(|(patch, _)| go_format::value(&Value::Object(patch))),
        _ => merged(kind, original, patch, Some(schema), attentive)
            .map(|(patched, _)| patched.to_string())
            .map_err(|error| error.to_string()),
    };
    go_format::quote(&text.unwrap_or_default())
}

#[cfg(test)]
mod differences;
#[cfg(test)]
mod tests;
