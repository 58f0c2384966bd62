//! Kinds that the API shows in two shapes: Events of the core group and of `events.k8s.io`, autoscalers of
//! `autoscaling/v2` and `v1`. One shape is stored ([`Resource::stored_shape`]); the other is made on the way in and out.

mod autoscalers;
mod events;

use serde_json::Value;

use super::{EncodeError, Resource, canonicalize};

/// Whether objects of this resource are stored in another shape.
pub fn converts(resource: &Resource) -> bool {
    resource
        .stored_shape()
        .is_some_and(|stored| !std::ptr::eq(stored, resource))
}

/// Brings an object from the shape of `resource` into the stored one; nothing to do for most kinds.
pub fn to_stored(resource: &Resource, object: &mut Value) {
    match (resource.group, resource.version, resource.plural) {
        ("events.k8s.io", "v1", "events") => events::to_core(object),
        ("autoscaling", "v1", "horizontalpodautoscalers") => autoscalers::to_v2(object),
        _ => return,
    }
    set_type(resource.stored_shape(), object);
}

/// Brings an object from the stored shape into that of `resource`; nothing to do for most kinds.
pub fn from_stored(resource: &Resource, object: &mut Value) {
    match (resource.group, resource.version, resource.plural) {
        ("events.k8s.io", "v1", "events") => events::from_core(object),
        ("autoscaling", "v1", "horizontalpodautoscalers") => autoscalers::to_v1(object),
        _ => return,
    }
    canonicalize(resource, object);
    set_type(Some(resource), object);
}

/// [`from_stored`] on the JSON of a stored object, which is read and written again: `{"metadata":{…`, as items of lists
/// are.
pub fn from_stored_json(resource: &Resource, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let malformed = |_| EncodeError::Malformed {
        offset: 0,
        expected: "JSON",
    };
    let mut object: Value = serde_json::from_slice(json).map_err(malformed)?;
    from_stored(resource, &mut object);
    let fields = object.as_object_mut().ok_or(EncodeError::NotAnObject)?;
    let metadata = fields
        .remove("metadata")
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut out = b"{\"metadata\":".to_vec();
    out.extend_from_slice(metadata.to_string().as_bytes());
    for (name, value) in fields {
        if name != "kind" && name != "apiVersion" {
            out.push(b',');
            out.extend_from_slice(Value::from(name.as_str()).to_string().as_bytes());
            out.push(b':');
            out.extend_from_slice(value.to_string().as_bytes());
        }
    }
    out.push(b'}');
    Ok(out)
}

fn set_type(resource: Option<&Resource>, object: &mut Value) {
    if let (Some(resource), Some(fields)) = (resource, object.as_object_mut())
        && fields.contains_key("apiVersion")
    {
        fields.insert("apiVersion".to_owned(), resource.api_version().into());
    }
}
