//! What tells the elements of a list apart, as `FieldsV1` names them.

use super::typed::Listed;
use crate::schema::{Element, ListType, Plan, PlanField, Type};
use crate::tree::{Text, Value, text_of, write_text};

/// `v:"value"`.
pub(in crate::patch) fn value_key(value: &Value) -> Text {
    let mut key = b"v:".to_vec();
    value.write(&mut key);
    text_of(std::str::from_utf8(&key).unwrap_or_default())
}

/// `k:{"name":"c"}`: the keys of an element of a list that is a map, by name; a key that is missing has its default.
pub(in crate::patch) fn element_key(rule: &PlanField, element: Element<'static>, item: &Value) -> Text {
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(b"k:{");
    for (i, &key) in rule.map_keys.iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        write_text(key, &mut text);
        text.push(b':');
        match (item.get(key), default_of(element, key)) {
            (Some(value), _) => value.write(&mut text),
            (None, default) => text.extend_from_slice(default.unwrap_or("null").as_bytes()),
        }
    }
    text.push(b'}');
    text_of(std::str::from_utf8(&text).unwrap_or_default())
}

fn default_of(element: Element<'static>, key: &str) -> Option<&'static str> {
    let Type::Schema(schema) = element.ty() else {
        return None;
    };
    let plan = Plan::of(schema);
    plan.field(plan.find(key, &mut 0)?).default_json
}

/// The name of an element of a list that is a set or a map.
///
/// # Errors
/// Upstream's text for an element that cannot be told apart.
pub(in crate::patch) fn item_key(list: Listed<'_>, item: &Value) -> Result<Text, String> {
    if list.kind == ListType::Set {
        return match item {
            Value::Object(_) | Value::Raw(_) => {
                Err("associative list without keys has an element that's a map type".into())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            _ => Ok(value_key(item)),
        };
    }
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(b"k:{");
    for (i, key) in list.keys.names().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        write_text(key, &mut text);
        text.push(b':');
        match (fields.get(key), list.item.default_of(key)) {
            (Some(value), _) => value.write(&mut text),
            (None, Some(default)) => text.extend_from_slice(default.as_bytes()),
            (None, None) => {
                return Err(format!(
                    "associative list with keys has an element that omits key field \"{key}\" (and doesn't have default value)"
                ));
            }
        }
    }
    text.push(b'}');
    Ok(text_of(std::str::from_utf8(&text).unwrap_or_default()))
}
