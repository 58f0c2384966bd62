//! Trees by serde: from any format, to any format, and as a source of other types.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{Key, List, Map, Value, text_of};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => target.serialize_unit(),
            Value::Bool(value) => target.serialize_bool(*value),
            Value::Number(number) => number.serialize(target),
            Value::String(text) => target.serialize_str(text),
            Value::Array(list) => {
                let mut items = target.serialize_seq(Some(list.len()))?;
                for item in list {
                    items.serialize_element(item)?;
                }
                items.end()
            }
            Value::Object(map) => {
                let mut fields = target.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    fields.serialize_entry(key.as_str(), value)?;
                }
                fields.end()
            }
            Value::Raw(json) => serde_json::from_str::<Value>(json)
                .map_err(S::Error::custom)?
                .serialize(target),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        let mut fields = target.serialize_map(Some(self.len()))?;
        for (key, value) in self {
            fields.serialize_entry(key.as_str(), value)?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Value, D::Error> {
        source.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text_of(text)))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        Deserialize::deserialize(source)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = List::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut failed = None;
        let map = std::iter::from_fn(|| match entries.next_entry::<Key, Value>() {
            Ok(entry) => entry,
            Err(error) => {
                failed = Some(error);
                None
            }
        })
        .collect();
        failed.map_or(Ok(Value::Object(map)), Err)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Key, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(Key::Sent(text_of(name)))
            }
        }
        source.deserialize_str(Name)
    }
}

/// Takes a tree apart for the type that is wanted; the error is that of JSON.
impl<'de> Deserializer<'de> for Value {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_str(&text),
            Value::Array(list) => visitor.visit_seq(Items(list.into_iter())),
            Value::Object(map) => visitor.visit_map(Fields {
                entries: map.into_iter(),
                value: None,
            }),
            Value::Raw(json) => serde_json::from_str::<Value>(&json)?.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            Value::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Items(ecow::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = serde_json::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        self.0.next().map(|value| seed.deserialize(value)).transpose()
    }
}

struct Fields {
    entries: ecow::vec::IntoIter<(Key, Value)>,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = serde_json::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: de::value::StrDeserializer<'_, Self::Error> = de::IntoDeserializer::into_deserializer(key.as_str());
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        seed.deserialize(self.value.take().unwrap_or_default())
    }
}
