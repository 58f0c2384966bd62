//! Whole API objects within a custom object (`x-kubernetes-embedded-resource`): their heads have the types that heads have,
//! and their metadata is what metadata can be.

use super::arena::{Flags, Node, Structural};
use super::path::Path;
use crate::schema::FieldError;
use crate::schema::metadata_of;
use crate::tree::{List, Map, Value};

/// Checks and cleans the heads of all embedded resources of an object. Returns the paths of unknown fields of metadata.
pub(super) fn coerce(schema: &Structural, object: &mut Value) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    if let Some(coerced) = value(schema.root(), object, &Path::ROOT, &mut unknown)? {
        *object = coerced;
    }
    Ok(unknown)
}

impl Structural {
    /// Tells `visit` each embedded resource of an object, with its path.
    pub(crate) fn embedded_resources(&self, object: &Value, visit: &mut dyn FnMut(String, &Map)) {
        self.root().embedded_resources(object, visit);
    }
}

impl Node<'_> {
    /// Tells `visit` each embedded resource in a value of this schema, with its path from there.
    pub(crate) fn embedded_resources(self, value: &Value, visit: &mut dyn FnMut(String, &Map)) {
        each(self, value, &Path::ROOT, visit);
    }

    /// Checks and cleans the heads of embedded resources in a value of this schema, as those of objects are on a write.
    ///
    /// # Errors
    /// A head that cannot be read; the path begins at the value.
    pub(crate) fn coerce(self, object: &Value) -> Result<Option<Value>, FieldError> {
        value(self, object, &Path::ROOT, &mut Vec::new())
    }
}

fn value(
    node: Node<'_>,
    value: &Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<Option<Value>, FieldError> {
    // The schema bounds the depth of this.
    if !node.is(Flags::EMBEDS) {
        return Ok(None);
    }
    match value {
        Value::Object(map) => Ok(object(node, map, path, unknown)?.map(Value::Object)),
        Value::Array(list) => {
            let Some(items) = node.items() else { return Ok(None) };
            let mut changed: Option<List> = None;
            for (at, item) in list.iter().enumerate() {
                if let Some(coerced) = self::value(items, item, &path.index(at), unknown)? {
                    changed.get_or_insert_with(|| list.clone())[at] = coerced;
                }
            }
            Ok(changed.map(Value::Array))
        }
        _ => Ok(None),
    }
}

fn object(node: Node<'_>, map: &Map, path: &Path<'_>, unknown: &mut Vec<String>) -> Result<Option<Map>, FieldError> {
    let mut changed: Option<Map> = None;
    for (at, (name, value)) in map.iter().enumerate() {
        let here = path.field(name);
        let mut new = None;
        if node.embedded() {
            match name.as_str() {
                "apiVersion" | "kind" if !value.is_string() => {
                    return Err(FieldError::invalid(here.to_string(), value, "must be a string"));
                }
                "metadata" => {
                    let (metadata, found) =
                        metadata_of(value).map_err(|why| FieldError::invalid(here.to_string(), value, why))?;
                    unknown.extend(found.into_iter().map(|field| format!("{here}.{field}")));
                    if metadata != *value {
                        new = Some(metadata);
                    }
                }
                _ => {}
            }
        }
        let (schema, here) = match node.field(name) {
            Some(schema) => (Some(schema), here),
            None => (node.additional_schema(), path.bracketed(name)),
        };
        if let Some(schema) = schema
            && let Some(coerced) = self::value(schema, new.as_ref().unwrap_or(value), &here, unknown)?
        {
            new = Some(coerced);
        }
        if let Some(new) = new {
            *changed.get_or_insert_with(|| map.clone()).value_at_mut(at) = new;
        }
    }
    Ok(changed)
}

fn each(node: Node<'_>, value: &Value, path: &Path<'_>, visit: &mut dyn FnMut(String, &Map)) {
    if !node.is(Flags::EMBEDS) {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded() {
                visit(path.to_string(), map);
            }
            for (name, value) in map {
                if let Some(schema) = node.field(name) {
                    each(schema, value, &path.field(name), visit);
                } else if let Some(schema) = node.additional_schema() {
                    each(schema, value, &path.bracketed(name), visit);
                }
            }
        }
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                if let Some(items) = node.items() {
                    each(items, item, &path.index(at), visit);
                }
            }
        }
        _ => {}
    }
}
