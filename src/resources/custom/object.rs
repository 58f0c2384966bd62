//! What a write does to a custom object by the schema of its definition.

use super::ScalePaths;
use crate::resources::{FieldError, Resource, structural_rules};
use crate::tree::Value;

/// Prunes what the schema does not know and fills in its defaults. The paths of what went come back, bare: `spec.foo`.
///
/// # Errors
/// What cannot be an object of this schema at all.
pub fn settle(resource: &Resource, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schema.as_ref()) else {
        return Ok(Vec::new());
    };
    let unknown = schema.prune(object)?;
    schema.fill(object)?;
    Ok(unknown)
}

/// Brings a stored object up to date with the schema of the version that is stored: what came later is pruned and filled in. Does
/// nothing for other kinds.
pub fn refresh(stored: &Resource, object: &mut Value) {
    if is_of_another_version(stored, object) {
        return;
    }
    // What cannot be pruned or filled stays as it is: it is stored, and has to be shown.
    let _ = settle(stored, object);
}

/// Brings an object that is up to date from the stored version into that of `resource`, whose schema may know less of it.
pub fn show(resource: &Resource, object: &mut Value) {
    let Some(custom) = &resource.custom else { return };
    if custom.conversion.is_some() {
        return;
    }
    if let (true, Some(schema)) = (custom.reads.by_schema, &custom.schema) {
        let _ = schema.prune(object);
    }
    set_version(resource, object);
}

/// Brings an object from the version of `resource` into the one that is stored.
pub fn store(resource: &Resource, object: &mut Value) {
    let Some(custom) = &resource.custom else { return };
    let Some(stored) = &custom.stored else { return };
    let schema = stored.custom.as_ref().and_then(|stored| stored.schema.as_ref());
    if let (true, Some(schema)) = (custom.reads.by_schema, schema) {
        let _ = schema.prune(object);
    }
}

/// Whether an object has yet to be converted into the version of `resource` by a webhook.
pub fn is_of_another_version(resource: &Resource, object: &Value) -> bool {
    let custom = resource.custom.as_ref();
    custom.is_some_and(|custom| custom.conversion.is_some()) && object["apiVersion"] != *resource.api_version()
}

fn set_version(resource: &Resource, object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion", resource.api_version().into());
        fields.insert("kind", resource.kind.clone().into());
    }
}

/// What is wrong with a custom object, new or changed, beside its metadata. `resource` is the version that it was sent in. Does
/// nothing for other kinds. Warnings come back: rules that are broken where nothing changed.
pub fn validate(
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
    subresource: Option<&str>,
    errors: &mut Vec<FieldError>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(custom) = &resource.custom else {
        return warnings;
    };
    let kind = new["kind"].as_str().unwrap_or("");
    if kind != resource.kind {
        errors.push(FieldError::invalid_text(
            "kind",
            kind,
            format_args!("must be {}", resource.kind),
        ));
    }
    if let Some(schema) = &custom.schema {
        errors.extend(structural_rules::check(schema, old, new, subresource, &mut warnings));
    }
    if let Some(scale) = &custom.scale {
        replicas(scale, new, errors);
    }
    warnings
}

/// Replicas are integers that are not negative, wherever the definition says that they are.
fn replicas(scale: &ScalePaths, object: &Value, errors: &mut Vec<FieldError>) {
    for path in [&scale.spec, &scale.status] {
        let Some(value) = along(object, path) else { continue };
        let count = value.as_i64();
        if count.is_none_or(|count| count < 0) {
            let field = format!(".{}", path.join("."));
            errors.push(FieldError::invalid(field, value, "should be a non-negative integer"));
        } else if count.is_some_and(|count| count > i64::from(i32::MAX)) {
            let field = format!(".{}", path.join("."));
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(field, value, detail));
        }
    }
}

/// The value to which these names lead.
pub(crate) fn along<'a>(object: &'a Value, names: &[String]) -> Option<&'a Value> {
    names
        .iter()
        .try_fold(object, |value, name| value.as_object()?.get(name))
}
