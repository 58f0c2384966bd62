//! Reading values of an object by JSON pointer, with Go's zero value where something is absent.

use crate::tree::{List, Map, Value};

/// The value at that pointer. As `Value::pointer`, but for pointers without escapes, of which no copies are made.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    debug_assert!(!pointer.contains('~'), "{pointer} has escapes");
    match pointer.strip_prefix('/') {
        Some(tokens) => along(value, tokens, b'/'),
        None => pointer.is_empty().then_some(value),
    }
}

/// The text of a field by its path: `spec.nodeName`; `""` when there is none.
pub(super) fn field_text<'a>(value: &'a Value, path: &str) -> &'a str {
    along(value, path, b'.').and_then(Value::as_str).unwrap_or("")
}

fn along<'a>(mut value: &'a Value, tokens: &str, separator: u8) -> Option<&'a Value> {
    let mut rest = Some(tokens);
    while let Some(tokens) = rest {
        // Tokens are short: looking at each byte is quicker than a search.
        let end = tokens.bytes().position(|byte| byte == separator);
        let token = &tokens[..end.unwrap_or(tokens.len())];
        rest = end.map(|end| &tokens[end + 1..]);
        value = match value {
            Value::Object(map) => map.get(token)?,
            Value::Array(list) => list.get(token.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// The text at that pointer, `""` when there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).and_then(Value::as_str).unwrap_or("")
}

/// The integer at that pointer, if there is one.
pub(super) fn integer(value: &Value, pointer: &str) -> Option<i64> {
    at(value, pointer).and_then(Value::as_i64)
}

/// The boolean at that pointer, if there is one.
pub(super) fn boolean(value: &Value, pointer: &str) -> Option<bool> {
    at(value, pointer).and_then(Value::as_bool)
}

/// The items of the list at that pointer, none when there is no list.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).and_then(Value::as_array).map_or(&[], List::as_slice)
}

/// The texts of the list at that pointer.
pub(super) fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(value, pointer).iter().filter_map(Value::as_str).collect()
}

/// The map at that pointer, if there is one.
pub(super) fn map<'a>(value: &'a Value, pointer: &str) -> Option<&'a Map> {
    at(value, pointer).and_then(Value::as_object)
}

/// How many entries the map or list at that pointer has.
pub(super) fn count(value: &Value, pointer: &str) -> i64 {
    match at(value, pointer) {
        Some(Value::Object(map)) => map.len() as i64,
        Some(Value::Array(list)) => list.len() as i64,
        _ => 0,
    }
}

/// Whether something other than `null` is at that pointer.
pub(super) fn present(value: &Value, pointer: &str) -> bool {
    at(value, pointer).is_some_and(|found| !found.is_null())
}

/// An integer or text (`IntOrString`) as text, if there is one.
pub(super) fn integer_or_text(value: &Value, pointer: &str) -> Option<String> {
    match at(value, pointer)? {
        Value::String(text) => Some(text.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The condition of that type in `status.conditions`.
pub fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    list(value, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

/// Whether the condition of that type is there with status `True`.
pub(super) fn condition_true(value: &Value, kind: &str) -> bool {
    condition(value, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Unix seconds of the RFC 3339 time at that pointer.
pub fn time_s(value: &Value, pointer: &str) -> Option<i64> {
    text(value, pointer)
        .parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_second)
}
