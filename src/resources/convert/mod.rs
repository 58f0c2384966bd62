//! Kinds that the API shows in two shapes: Events of the core group and of `events.k8s.io`, autoscalers of
//! `autoscaling/v2` and `v1`. One shape is stored ([`Resource::stored_shape`]); the other is made on the way in and out.

mod autoscalers;
mod events;

use crate::tree::Value;

use super::{Resource, canonicalize, stored};

/// Whether objects of this resource are stored in another shape.
pub fn has_other_shape(resource: &Resource) -> bool {
    resource.custom.is_none() && stored(&resource.storage).is_some_and(|stored| !std::ptr::eq(stored, resource))
}

/// Brings an object from the shape of `resource` into the stored one. Other resources' objects come back as they are.
pub fn to_stored(resource: &Resource, mut object: Value) -> Value {
    match (&*resource.group, &*resource.version, &*resource.plural) {
        ("events.k8s.io", "v1", "events") => events::to_core(&mut object),
        ("autoscaling", "v1", "horizontalpodautoscalers") => autoscalers::to_v2(&mut object),
        _ => return object,
    }
    set_type(stored(&resource.storage), &mut object);
    object
}

/// Brings an object from the stored shape into that of `resource`. Other resources' objects come back as they are.
pub fn from_stored(resource: &Resource, mut object: Value) -> Value {
    match (&*resource.group, &*resource.version, &*resource.plural) {
        ("events.k8s.io", "v1", "events") => events::from_core(&mut object),
        ("autoscaling", "v1", "horizontalpodautoscalers") => autoscalers::to_v1(&mut object),
        _ => return object,
    }
    canonicalize(resource, &mut object);
    set_type(Some(resource), &mut object);
    object
}

fn set_type(resource: Option<&Resource>, object: &mut Value) {
    if let (Some(resource), Some(fields)) = (resource, object.as_object_mut())
        && fields.contains_key("apiVersion")
    {
        fields.insert("apiVersion", resource.api_version().into());
    }
}
