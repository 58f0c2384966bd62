//! Filling in values of an object by JSON pointer.

use super::lookup;
use crate::tree::{Key, List, Map, Text, Value};

/// Sets a field of the object at `parent` unless it is there already. Nothing happens where there is no object.
pub(super) fn default_at(object: &mut Value, parent: &str, field: &'static str, value: impl Into<Value>) {
    // Looked at first: what is shared with another state of the object is not to be copied for nothing.
    let there = lookup::at(object, parent).and_then(Value::as_object);
    if there.is_some_and(|fields| fields.get(field).is_none_or(Value::is_null))
        && let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        fields.insert(field, value.into());
    }
}

/// Sets a field unless it is there already.
pub(super) fn default_in(fields: &mut Map, field: impl Into<Key>, value: impl Into<Value>) {
    let field = field.into();
    if fields.get(&field).is_none_or(Value::is_null) {
        fields.insert(field, value.into());
    }
}

/// Sets a field of the object at `parent`, which is made if need be.
pub(super) fn set_at(object: &mut Value, parent: &str, field: &'static str, value: impl Into<Value>) {
    if let Some(fields) = object_at(object, parent) {
        fields.insert(field, value.into());
    }
}

/// The object at `pointer`, made (with those above it) if there is none; `None` where something else is in the way.
pub(super) fn object_at<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Map> {
    let mut at = object;
    for name in pointer.split('/').skip(1) {
        let fields = at.as_object_mut()?;
        at = fields.entry(Text::from(name)).or_insert(Value::Null);
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
    }
    at.as_object_mut()
}

/// Removes a field of the object at `parent`.
pub(super) fn remove_at(object: &mut Value, parent: &str, field: &str) -> Option<Value> {
    object.pointer_mut(parent)?.as_object_mut()?.remove(field)
}

/// The items of the list at that pointer.
pub(super) fn items_mut<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .pointer_mut(pointer)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Adds a finalizer to metadata unless it is there.
pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(metadata) = object_at(object, "/metadata") {
        default_in(metadata, "finalizers", Value::Array(List::new()));
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers")
            && !finalizers.iter().any(|known| known == finalizer)
        {
            finalizers.push(finalizer.into());
        }
    }
}
