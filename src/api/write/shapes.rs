//! Kinds that are served in two shapes and stored in one.

use serde_json::Value;

use crate::resources::Resource;

/// From the version of the request to the stored shape.
pub(super) fn to_stored(resource: &Resource, value: Value) -> Value {
    let _ = resource;
    value
}

/// From the stored shape to the version of the request, with that version's kind and apiVersion.
pub(super) fn from_stored(resource: &Resource, value: Value) -> Value {
    let _ = resource;
    value
}
