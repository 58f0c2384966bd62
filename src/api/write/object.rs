//! Small readers and writers of an object held as a JSON tree.

use crate::tree::{Map, Value};

pub(super) use crate::api::read::quoted;
use crate::api::status::Status;
pub(super) use crate::resources::time_text as time;
use crate::resources::{self, Resource};
use crate::schema::{self, Schema};
use crate::store::Object;

/// A stored object as a tree, with the kind and apiVersion of `shape` (the stored shape).
///
/// # Errors
/// 500 when its bytes are damaged.
pub(super) fn of_stored(object: &Object, shape: &Resource) -> Result<Value, Status> {
    let json = object.json().map_err(Status::damaged)?;
    let mut value = match Schema::of(&shape.group, &shape.version, &shape.kind) {
        Some(schema) => schema::read_stored(json, schema),
        None => serde_json::from_slice(json),
    }
    .map_err(Status::internal)?;
    if shape.custom.is_some() {
        resources::custom::refresh(shape, &mut value);
    }
    if resources::custom::is_of_another_version(shape, &value) {
        return Ok(value);
    }
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind", shape.kind.clone().into());
        fields.insert("apiVersion", shape.api_version().into());
    }
    Ok(value)
}

/// A stored object in the version of the request, with that version's kind and apiVersion. What a webhook converts stays as it is
/// stored.
pub(super) fn in_version(resource: &Resource, stored: Value) -> Value {
    if resource
        .custom
        .as_ref()
        .is_some_and(|custom| custom.conversion.is_some())
    {
        return stored;
    }
    let mut value = resources::from_stored(resource, stored);
    resources::custom::show(resource, &mut value);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind", resource.kind.clone().into());
        fields.insert("apiVersion", resource.api_version().into());
    }
    value
}

/// A text of metadata; empty when absent.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

/// The metadata for writing; made if it is missing.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        _ => unreachable!("made an object above"),
    }
}

/// How messages of admission call a new object: by its name, or what its name will begin with.
pub(super) fn admission_name(object: &Value) -> &str {
    match (meta(object, "name"), meta(object, "generateName")) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    }
}

/// How messages of admission call an object that had no name of its own.
pub(super) fn generated_name(object: &Value) -> &str {
    match meta(object, "generateName") {
        "" => admission_name(object),
        prefix => prefix,
    }
}

/// Takes out references to owners that stand there twice, with a warning. `patched`: the object is the result of a patch, of
/// which kube-apiserver finds them only after its admission.
pub(super) fn dedup_owners(object: &mut Value, patched: bool, warnings: &mut Vec<String>) {
    let gone = resources::dedup_owners(object);
    if gone.is_empty() {
        return;
    }
    let after = if patched {
        " after mutating admission happens"
    } else {
        ""
    };
    warnings.push(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        gone.join(", ")
    ));
}

/// The UID of a stored object.
///
/// # Errors
/// 500 when its sidecar is damaged.
pub(super) fn uid_of(object: &Object) -> Result<String, Status> {
    Ok(object.sidecar().map_err(Status::internal)?.uid.as_str().to_owned())
}

/// Whether deletion was asked for.
pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Puts a condition into the status in place of the one of its type, or at the end.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    if !object["status"].is_object() {
        object["status"] = Value::Object(Map::new());
    }
    match object["status"]["conditions"].as_array_mut() {
        Some(conditions) => match conditions
            .iter_mut()
            .find(|present| present["type"] == condition["type"])
        {
            Some(present) => *present = condition,
            None => conditions.push(condition),
        },
        None => object["status"]["conditions"] = vec![condition].into(),
    }
}

/// Now, unix seconds.
pub(super) fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_with_seconds_in_utc() {
        assert_eq!(time(1_767_323_045), "2026-01-02T03:04:05Z");
    }
}
