//! What holds after an apply, as tests and fuzzers ask for it.

use super::super::managed::Typed;
use super::super::managed::fields::Fields;
use super::super::managed::keys::item_key;
use super::super::managed::typed::{Form, Member};
use crate::schema::ListType;
use crate::tree::Value;

/// A value that a configuration names and the object does not have, as JSON. There is none after it was applied.
pub fn unmet(typed: Typed<'_>, object: Option<&Value>, configuration: &Value) -> Option<String> {
    match typed.form(Some(configuration)) {
        Form::Map(map) if !map.atomic => {
            let mut cursor = 0;
            let mut fields = configuration.as_object().into_iter().flatten();
            fields.find_map(|(key, value)| match map.member(key, &mut cursor) {
                Member::Field(typed) | Member::Key(typed) => {
                    let object = object.and_then(|object| object.get(key));
                    unmet(typed, object, value)
                }
                Member::Unknown => None,
            })
        }
        Form::List(list) if list.kind != ListType::Atomic => {
            let mut items = configuration.as_array().into_iter().flatten();
            items.find_map(|item| {
                let key = item_key(list, item);
                let mut all = object.and_then(Value::as_array).into_iter().flatten();
                unmet(list.item, all.find(|other| item_key(list, other) == key), item)
            })
        }
        _ => (object != Some(configuration)).then(|| configuration.to_json()),
    }
}

/// A field of the set of an entry of `managedFields` that the object does not have: its name and what it would be in. There
/// is none after an apply.
pub fn beyond(typed: Typed<'_>, object: &Value, entry: &Value) -> Option<String> {
    not_in(typed, object, &mut Fields::of(&entry["fieldsV1"]))
}

fn not_in(typed: Typed<'_>, object: &Value, set: &mut Fields) -> Option<String> {
    let mut found = None;
    set.each(|name, below| {
        let part = match (typed.form(Some(object)), object) {
            (Form::Map(map), Value::Object(fields)) if !map.atomic => {
                let key = name.strip_prefix("f:").unwrap_or(name);
                match (map.member(key, &mut 0), fields.get(key)) {
                    (Member::Field(typed) | Member::Key(typed), Some(value)) => Some((typed, value)),
                    _ => None,
                }
            }
            (Form::List(list), Value::Array(items)) => {
                let mut items = items.iter();
                let item = items.find(|item| item_key(list, item).is_ok_and(|key| key == name));
                item.map(|item| (list.item, item))
            }
            _ => None,
        };
        let missing = match part {
            Some((typed, value)) => not_in(typed, value, below),
            None => Some(format!("{name} in {object}")),
        };
        found = found.take().or(missing);
        false
    });
    found
}
