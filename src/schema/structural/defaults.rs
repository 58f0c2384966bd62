//! Defaulting: what the schema says stands where there is nothing.

use super::arena::{Flags, Node, Structural, key};
use crate::schema::FieldError;
use crate::tree::{List, Map, Value};

/// Most bytes of JSON that defaults may add to an object; a request has less room.
const ADDED_MAX: usize = 8 << 20;

impl Structural {
    /// Puts defaults where fields are missing, and where they are null though null is no value of them. Defaults are filled
    /// in turn. What needs no change keeps its memory; costs nothing when there are no defaults.
    ///
    /// # Errors
    /// Defaults within defaults that add more than 8 MiB; the object is as it was then.
    pub fn fill(&self, object: &mut Value) -> Result<(), FieldError> {
        let mut filler = Filler { room: ADDED_MAX };
        let filled = filler.fill(self.root(), object)?;
        if let Some(filled) = filled {
            *object = filled;
        }
        Ok(())
    }
}

/// A value with its defaults; `None` when nothing is missing.
type Filled = Result<Option<Value>, FieldError>;

struct Filler {
    /// Bytes that may still be added.
    room: usize,
}

impl Filler {
    // A schema has no cycles, so it bounds the depth of this.
    fn fill(&mut self, node: Node<'_>, value: &Value) -> Filled {
        if !node.is(Flags::DEFAULTS) {
            return Ok(None);
        }
        match value {
            Value::Object(map) => Ok(self.object(node, map)?.map(Value::Object)),
            Value::Array(list) => Ok(self.list(node, list)?.map(Value::Array)),
            _ => Ok(None),
        }
    }

    /// A default, with what it lacks itself.
    fn default(&mut self, node: Node<'_>, default: &Value) -> Result<Value, FieldError> {
        self.room = self.room.checked_sub(node.default_len()).ok_or_else(|| {
            FieldError::invalid_plain(
                "<nil>",
                format_args!("defaults of its schema add more than {ADDED_MAX} bytes"),
            )
        })?;
        Ok(self.fill(node, default)?.unwrap_or_else(|| default.clone()))
    }

    fn object(&mut self, node: Node<'_>, map: &Map) -> Result<Option<Map>, FieldError> {
        let mut changed: Option<Map> = None;
        for (name, schema) in node.fields() {
            let Some(default) = schema.default() else { continue };
            let missing = map.get(name).is_none_or(|value| value.is_null() && !schema.nullable());
            if missing {
                let default = self.default(schema, default)?;
                changed.get_or_insert_with(|| map.clone()).insert(key(name), default);
            }
        }
        for (name, value) in map {
            let Some(schema) = node.of_field(name) else { continue };
            let filled = match schema.default() {
                // Those of named fields were put there above.
                Some(_) if value.is_null() && !schema.nullable() && node.field(name).is_some() => continue,
                Some(default) if value.is_null() && !schema.nullable() => Some(self.default(schema, default)?),
                _ => self.fill(schema, value)?,
            };
            if let Some(filled) = filled {
                changed.get_or_insert_with(|| map.clone()).insert(name.clone(), filled);
            }
        }
        Ok(changed)
    }

    fn list(&mut self, node: Node<'_>, list: &List) -> Result<Option<List>, FieldError> {
        let Some(items) = node.items() else { return Ok(None) };
        let mut changed: Option<List> = None;
        for (at, item) in list.iter().enumerate() {
            let filled = match items.default() {
                Some(default) if item.is_null() && !items.nullable() => Some(self.default(items, default)?),
                _ => self.fill(items, item)?,
            };
            if let Some(filled) = filled {
                changed.get_or_insert_with(|| list.clone())[at] = filled;
            }
        }
        Ok(changed)
    }
}
