//! Reading what is stored: it was checked when it was written, so nothing is checked again.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::shape::{Schema, Shape, Type};
use crate::tree::{Key, Value, text_of};

/// The schema of the sets of fields in `managedFields`: they are kept as text, as hardly anybody looks into them.
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";

/// Reads the stored JSON of an object of that schema. Linear in its length.
///
/// # Errors
/// When the bytes are not JSON.
pub fn read_stored(json: &[u8], schema: Schema<'_>) -> Result<Value, serde_json::Error> {
    // One check of all bytes is cheaper than one of each text.
    let Ok(text) = std::str::from_utf8(json) else {
        return serde_json::from_slice(json);
    };
    let mut source = serde_json::Deserializer::from_str(text);
    let mut scratch = Scratch::default();
    let value = Stored(Type::Schema(schema), &mut scratch).deserialize(&mut source)?;
    source.end()?;
    Ok(value)
}

/// Whether values of that schema are kept as text.
fn is_kept(ty: Type<'_>) -> bool {
    matches!(ty, Type::Schema(schema) if schema.shape() == Shape::Raw && schema.name() == FIELDS)
}

/// Fields of the objects that are being read, and items of the lists: each list and map is made once its length is known.
#[derive(Default)]
struct Scratch {
    entries: Vec<(Key, Value)>,
    items: Vec<Value>,
}

struct Stored<'a, 's>(Type<'a>, &'s mut Scratch);

impl<'de> DeserializeSeed<'de> for Stored<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Stored<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stored JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let element = match self.0 {
            Type::List(element) => element.ty(),
            _ => Type::Any,
        };
        let first = self.1.items.len();
        while let Some(item) = items.next_element_seed(Stored(element, self.1))? {
            self.1.items.push(item);
        }
        Ok(Value::Array(self.1.items.drain(first..).collect()))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        match self.0 {
            Type::Schema(schema) if schema.shape() == Shape::Struct => fields(schema, self.1, entries),
            Type::Map(element) => map(element.ty(), self.1, entries),
            _ => map(Type::Any, self.1, entries),
        }
    }
}

fn fields<'de, A: MapAccess<'de>>(
    schema: Schema<'_>,
    scratch: &mut Scratch,
    mut entries: A,
) -> Result<Value, A::Error> {
    let first = scratch.entries.len();
    let mut cursor = 0;
    while let Some((key, ty)) = entries.next_key_seed(Name(schema, &mut cursor))? {
        let value = if is_kept(ty) {
            let text: &RawValue = entries.next_value()?;
            Value::Raw(text_of(text.get()))
        } else {
            entries.next_value_seed(Stored(ty, scratch))?
        };
        scratch.entries.push((key, value));
    }
    Ok(Value::Object(scratch.entries.drain(first..).collect()))
}

fn map<'de, A: MapAccess<'de>>(ty: Type<'_>, scratch: &mut Scratch, mut entries: A) -> Result<Value, A::Error> {
    let first = scratch.entries.len();
    while let Some(key) = entries.next_key()? {
        let value = entries.next_value_seed(Stored(ty, scratch))?;
        scratch.entries.push((key, value));
    }
    Ok(Value::Object(scratch.entries.drain(first..).collect()))
}

/// The name of a field, and its type.
struct Name<'a, 'c>(Schema<'a>, &'c mut usize);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a, '_> {
    type Value = (Key, Type<'a>);

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a, '_> {
    type Value = (Key, Type<'a>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.0.known(name, self.1) {
            Some(known) => (known.key, known.ty),
            None => (Key::from(name.to_owned()), Type::Any),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_as_it_is_and_sets_of_fields_stay_text() {
        let pods = Schema::of("", "v1", "Pod").unwrap();
        let json = r#"{"metadata":{"labels":{"b":"1","a":"é\n"},"managedFields":[{"fieldsV1":{"f:spec":{}},"manager":"m"}],"zzz":[1,null]},"other":{"x":-1.5},"spec":{"containers":[{"name":"c"}],"priority":0}}"#;
        let read = read_stored(json.as_bytes(), pods).unwrap();
        assert!(matches!(
            read["metadata"]["managedFields"][0]["fieldsV1"],
            Value::Raw(_)
        ));
        let plain: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(read.to_json(), plain.to_string());
        for broken in ["", "{", "{}x", "{\"metadata\":{\"managedFields\":[{\"fieldsV1\":{]}]}}"] {
            assert!(read_stored(broken.as_bytes(), pods).is_err(), "{broken}");
        }
    }
}
