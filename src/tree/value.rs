//! Values.

use std::fmt;
use std::ops::{Index, IndexMut};

use serde_json::Number;

use super::{Key, List, Map};

/// Text, shared when it is copied; up to 15 bytes lie in place.
pub type Text = ecow::EcoString;

/// A copy of a text. What `From` does byte by byte is one copy here.
#[inline]
pub fn text_of(text: &str) -> Text {
    let mut copy = Text::with_capacity(text.len());
    copy.push_str(text);
    copy
}

/// A JSON value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number
    Number(Number),
    /// A text
    String(Text),
    /// A list
    Array(List),
    /// An object
    Object(Map),
    /// JSON that was never taken apart, compact. Only what is stored, and nobody looks into, is kept so.
    Raw(Text),
}

static NULL: Value = Value::Null;

impl Value {
    /// The text, if it is one.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is an integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The number, if it is an integer that fits.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// The list, if it is one.
    #[inline]
    pub fn as_array(&self) -> Option<&List> {
        match self {
            Value::Array(list) => Some(list),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_array_mut(&mut self) -> Option<&mut List> {
        match self {
            Value::Array(list) => Some(list),
            _ => None,
        }
    }

    /// The object, if it is one.
    #[inline]
    pub fn as_object(&self) -> Option<&Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Whether it is `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Whether it is a text.
    pub fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    /// Whether it is a list.
    pub fn is_array(&self) -> bool {
        matches!(self, Value::Array(_))
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self, Value::Object(_))
    }

    /// The field or item there, if there is one.
    #[inline]
    pub fn get<P: Place>(&self, place: P) -> Option<&Value> {
        place.of(self)
    }

    /// The field or item there, to be changed.
    pub fn get_mut<P: Place>(&mut self, place: P) -> Option<&mut Value> {
        place.of_mut(self)
    }

    /// The value at a JSON pointer (RFC 6901).
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        tokens(pointer)?.try_fold(self, |value, token| match value {
            Value::Object(map) => map.get(&unescaped(token)),
            Value::Array(list) => list.get(index(token)?),
            _ => None,
        })
    }

    /// The value at a JSON pointer (RFC 6901), to be changed.
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        tokens(pointer)?.try_fold(self, |value, token| match value {
            Value::Object(map) => map.get_mut(&unescaped(token)),
            Value::Array(list) => list.get_mut(index(token)?),
            _ => None,
        })
    }

    /// Takes the value out and leaves `null`.
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// Whether two lists or objects are the same one in memory: then they are equal, and nothing needs to be looked at.
    /// Empty ones are never found to be.
    #[inline]
    pub fn shares(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Array(one), Value::Array(other)) => !one.is_empty() && one.shares(other),
            (Value::Object(one), Value::Object(other)) => !one.is_empty() && one.shares(other),
            _ => false,
        }
    }
}

fn tokens(pointer: &str) -> Option<impl Iterator<Item = &str>> {
    let mut tokens = pointer.split('/');
    (tokens.next() == Some("")).then_some(tokens)
}

fn unescaped(token: &str) -> std::borrow::Cow<'_, str> {
    if token.contains('~') {
        token.replace("~1", "/").replace("~0", "~").into()
    } else {
        token.into()
    }
}

/// A place in a list; `+1` and `01` are none.
fn index(token: &str) -> Option<usize> {
    if token.starts_with('+') || token.starts_with('0') && token.len() > 1 {
        return None;
    }
    token.parse().ok()
}

/// What a value is asked for by: the name of a field or the number of an item.
pub trait Place: private::Sealed {
    #[doc(hidden)]
    fn of(self, value: &Value) -> Option<&Value>;
    #[doc(hidden)]
    fn of_mut(self, value: &mut Value) -> Option<&mut Value>;
    /// The value there, made in an object if there is none.
    #[doc(hidden)]
    fn made(self, value: &mut Value) -> &mut Value;
}

mod private {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for &String {}
    impl Sealed for &crate::tree::Key {}
    impl Sealed for String {}
    impl Sealed for usize {}
}

impl Place for &str {
    #[inline]
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_object()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => &mut map[self],
            _ => panic!("no field {self} in a value that is not an object"),
        }
    }
}

impl Place for &String {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        self.as_str().made(value)
    }
}

impl Place for &Key {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        self.as_str().made(value)
    }
}

impl Place for String {
    fn of(self, value: &Value) -> Option<&Value> {
        self.as_str().of(value)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        self.as_str().of_mut(value)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        self.as_str().made(value)
    }
}

impl Place for usize {
    fn of(self, value: &Value) -> Option<&Value> {
        value.as_array()?.get(self)
    }

    fn of_mut(self, value: &mut Value) -> Option<&mut Value> {
        value.as_array_mut()?.get_mut(self)
    }

    fn made(self, value: &mut Value) -> &mut Value {
        match value {
            Value::Array(list) => &mut list[self],
            _ => panic!("no item {self} in a value that is not a list"),
        }
    }
}

impl<P: Place> Index<P> for Value {
    type Output = Value;

    /// `null` where there is nothing.
    fn index(&self, place: P) -> &Value {
        place.of(self).unwrap_or(&NULL)
    }
}

impl<P: Place> IndexMut<P> for Value {
    /// Fields that are missing are made. Panics where that cannot be.
    fn index_mut(&mut self, place: P) -> &mut Value {
        place.made(self)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::Number(one), Value::Number(other)) => one == other,
            (Value::String(one), Value::String(other)) | (Value::Raw(one), Value::Raw(other)) => one == other,
            (Value::Array(one), Value::Array(other)) => one == other,
            (Value::Object(one), Value::Object(other)) => one == other,
            _ => false,
        }
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<String> for Value {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<Value> for &str {
    fn eq(&self, other: &Value) -> bool {
        other.as_str() == Some(self)
    }
}

impl PartialEq<bool> for Value {
    fn eq(&self, other: &bool) -> bool {
        self.as_bool() == Some(*other)
    }
}

impl PartialEq<i32> for Value {
    fn eq(&self, other: &i32) -> bool {
        self.as_i64() == Some(i64::from(*other))
    }
}

impl PartialEq<i64> for Value {
    fn eq(&self, other: &i64) -> bool {
        self.as_i64() == Some(*other)
    }
}

impl PartialEq<usize> for Value {
    fn eq(&self, other: &usize) -> bool {
        self.as_u64() == Some(*other as u64)
    }
}

impl fmt::Display for Value {
    /// As compact JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text_of(&text)),
            serde_json::Value::Array(items) => Value::Array(items.into_iter().map(Value::from).collect()),
            serde_json::Value::Object(map) => {
                Value::Object(map.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text_of(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text_of(&text))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::String(text_of(text))
    }
}

impl From<Text> for Value {
    fn from(text: Text) -> Value {
        Value::String(text)
    }
}

impl From<std::borrow::Cow<'_, str>> for Value {
    fn from(text: std::borrow::Cow<'_, str>) -> Value {
        Value::String(text_of(&text))
    }
}

impl From<Key> for Value {
    fn from(key: Key) -> Value {
        Value::String(match key {
            Key::Known(name) => text_of(name),
            Key::Sent(name) => name,
        })
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Value {
            fn from(value: $integer) -> Value {
                Value::Number(value.into())
            }
        }
    )*};
}

from_integers!(i32 i64 u16 u32 u64 usize);

impl From<Number> for Value {
    fn from(number: Number) -> Value {
        Value::Number(number)
    }
}

impl From<f64> for Value {
    /// `null` for what JSON has no number for.
    fn from(value: f64) -> Value {
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Value {
        Value::Object(map)
    }
}

impl From<List> for Value {
    fn from(list: List) -> Value {
        Value::Array(list)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        values.into_iter().collect()
    }
}

impl<T: Clone + Into<Value>> From<&[T]> for Value {
    fn from(values: &[T]) -> Value {
        values.iter().cloned().collect()
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Value {
        Value::Array(values.into_iter().map(Into::into).collect())
    }
}
