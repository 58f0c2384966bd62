//! Custom objects on their way in: read, pruned and filled in by the schema of their definition.

use super::commit;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::patch::{self, PatchError, PatchKind, Patched};
use crate::resources::{Resource, custom};
use crate::schema::{self, Decoded, Expected, FieldValidation, Syntax};
use crate::tree::Value;

/// Reads an object of the custom resource that the path names.
///
/// # Errors
/// 400 for what is no object of it, and with strict validation for unknown fields and those that come twice; 415 for protobuf.
pub(super) fn decode(
    info: &RequestInfo,
    syntax: Syntax,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    if syntax == Syntax::Protobuf {
        return Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml",
        ));
    }
    let expected = expected(&info.resource);
    let (mut value, mut findings) = schema::decode_custom(body, syntax, &expected, validation)
        .map_err(|rejected| Status::bad_request(rejected.message))?;
    findings.extend(settle(&info.resource, &mut value)?);
    if validation == FieldValidation::Strict && !findings.is_empty() {
        return Err(Status::bad_request(
            schema::refuse_findings(&expected, &findings).message,
        ));
    }
    Ok(Decoded {
        value,
        warnings: told(findings, validation),
    })
}

/// What a patch makes of a custom object that is shown in the version of the path.
///
/// # Errors
/// As for other kinds; 415 for a strategic merge patch, which needs a schema of a built-in kind.
pub(super) fn patched(
    info: &RequestInfo,
    kind: PatchKind,
    shown: &Value,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Patched, Status> {
    if kind == PatchKind::Strategic {
        return Err(super::payload::no_patch());
    }
    let (mut value, mut findings) = patch::apply_untyped(kind, shown, body, validation != FieldValidation::Ignore)
        .map_err(super::update::patch_refused)?;
    findings.extend(settle(&info.resource, &mut value)?);
    if validation == FieldValidation::Strict && !findings.is_empty() {
        let refused = PatchError::InvalidResult {
            object: super::object::quoted(&value.to_string()),
            detail: format!("strict decoding error: {}", findings.join(", ")),
        };
        return Err(super::update::patch_refused(refused));
    }
    Ok(Patched {
        value,
        warnings: told(findings, validation),
    })
}

/// A custom object that came out of an apply, in the form that an object has which was sent.
///
/// # Errors
/// 422 for what cannot be an object of its schema, 400 for metadata of a wrong type.
pub(super) fn applied(resource: &Resource, mut value: Value) -> Result<Value, Status> {
    schema::coerce(&mut value, false).map_err(Status::bad_request)?;
    settle(resource, &mut value)?;
    Ok(value)
}

/// Checks an object in the version that it was sent in, before a webhook converts it.
///
/// # Errors
/// 422.
pub(super) fn check(
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
    subresource: Option<&str>,
) -> Result<(), Status> {
    let mut errors = Vec::new();
    custom::validate(resource, old, new, subresource, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    let name = super::object::meta(new, "name");
    Err(commit::refused(
        resource,
        name,
        crate::resources::Refusal::Invalid(errors),
    ))
}

fn expected(resource: &Resource) -> Expected<'_> {
    Expected {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
    }
}

/// Prunes and fills in; tells what went.
fn settle(resource: &Resource, value: &mut Value) -> Result<Vec<String>, Status> {
    let name = super::object::meta(value, "name").to_owned();
    let unknown = custom::settle(resource, value).map_err(|error| commit::refused(resource, &name, error.into()))?;
    Ok(unknown
        .into_iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect())
}

fn told(findings: Vec<String>, validation: FieldValidation) -> Vec<String> {
    if validation == FieldValidation::Warn {
        findings
    } else {
        Vec::new()
    }
}
