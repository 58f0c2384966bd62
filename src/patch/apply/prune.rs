//! What goes because its applier no longer names it: fields, elements of lists and keys of maps that nobody else manages.
//!
//! As in structured-merge-diff, in three steps: everything that was named goes; what anybody still manages comes back, with
//! what holds it; what went and had not been named comes back. A struct that a schema names is named by what is in it, here.

use super::super::managed::fields::Fields;
use super::super::managed::keys::item_key;
use super::super::managed::typed::{Form, Listed, Mapped, Member, Typed};
use crate::schema::ListType;
use crate::tree::{List, Map, Value};

/// What is done with a part of a value.
enum Part {
    Stays,
    Goes,
    Becomes(Value),
}

/// A part of a value: of which type, at which name of a set, and whether the schema names it.
struct Place<'a> {
    typed: Typed<'a>,
    name: &'a str,
    is_field: bool,
}

/// Whether a set has the place itself, or, of a field that the schema names, anything in it.
fn names(set: Option<&Fields>, place: &Place<'_>) -> bool {
    set.is_some_and(|set| set.is_member() || place.is_field && set.has_below())
}

/// The value without the members of a set. What becomes empty stays, empty.
pub(super) fn without(typed: Typed<'_>, value: &Value, set: &Fields) -> Value {
    let changed = changed(typed, value, &mut |place, value| {
        let below = set_below(set, place);
        let Some(below) = below else { return Part::Stays };
        if names(Some(below), place) {
            return Part::Goes;
        }
        Part::Becomes(without(place.typed, value, below))
    });
    changed.unwrap_or_else(|| value.clone())
}

/// `whole` without what is neither in `pruned`, an earlier state that has less, nor in the set `managed`.
pub(super) fn restored(typed: Typed<'_>, whole: &Value, pruned: Option<&Value>, managed: Option<&Fields>) -> Value {
    if pruned.is_some_and(|pruned| pruned == whole) {
        return whole.clone();
    }
    let parts = Parts::of(typed, pruned);
    let changed = changed(typed, whole, &mut |place, value| {
        let pruned = parts.get(place);
        let managed = managed.and_then(|managed| set_below(managed, place));
        if pruned.is_none() && !names(managed, place) {
            return Part::Goes;
        }
        Part::Becomes(restored(place.typed, value, pruned, managed))
    });
    changed.unwrap_or_else(|| whole.clone())
}

/// `whole` without what is in the set and not in `pruned`, a state of it that has less. `None`: nothing goes.
pub(super) fn dropped(typed: Typed<'_>, whole: &Value, pruned: Option<&Value>, set: &Fields) -> Option<Value> {
    let parts = Parts::of(typed, pruned);
    changed(typed, whole, &mut |place, value| {
        let Some(below) = set_below(set, place) else {
            return Part::Stays;
        };
        let pruned = parts.get(place);
        if pruned.is_none() && names(Some(below), place) && !is_empty_list(place.typed, value) {
            return Part::Goes;
        }
        match dropped(place.typed, value, pruned, below) {
            Some(value) => Part::Becomes(value),
            None => Part::Stays,
        }
    })
}

/// A list of elements that are told apart counts by its elements: without any, it is in no set.
fn is_empty_list(typed: Typed<'_>, value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.is_empty())
        && matches!(typed.form(Some(value)), Form::List(list) if list.kind != ListType::Atomic)
}

fn set_below<'s>(set: &'s Fields, place: &Place<'_>) -> Option<&'s Fields> {
    match place.name.strip_prefix("f:") {
        Some(name) => set.field(name),
        None => set.get(place.name),
    }
}

/// The value with its parts as `change` says; `None` when all stay. What is one value has no parts.
fn changed(typed: Typed<'_>, value: &Value, change: &mut dyn FnMut(&Place<'_>, &Value) -> Part) -> Option<Value> {
    match (typed.form(Some(value)), value) {
        (Form::Map(map), Value::Object(fields)) if !map.atomic => changed_map(map, fields, change),
        (Form::List(list), Value::Array(items)) if list.kind != ListType::Atomic => changed_list(list, items, change),
        _ => None,
    }
}

fn changed_map(map: Mapped<'_>, fields: &Map, change: &mut dyn FnMut(&Place<'_>, &Value) -> Part) -> Option<Value> {
    let mut changed: Option<Map> = None;
    let mut cursor = 0;
    let mut name = String::from("f:");
    for (number, (key, value)) in fields.iter().enumerate() {
        let (typed, is_field) = match map.member(key, &mut cursor) {
            Member::Field(typed) => (typed, true),
            Member::Key(typed) => (typed, false),
            Member::Unknown => (Typed::DEDUCED, false),
        };
        name.truncate(2);
        name.push_str(key);
        let place = Place {
            typed,
            name: &name,
            is_field,
        };
        let part = change(&place, value);
        if matches!(part, Part::Stays) && changed.is_none() {
            continue;
        }
        // Entries come in order, so each is put at the end.
        let kept = changed.get_or_insert_with(|| {
            let mut kept = Map::with_capacity(fields.len());
            kept.extend(
                fields
                    .iter()
                    .take(number)
                    .map(|(key, value)| (key.clone(), value.clone())),
            );
            kept
        });
        match part {
            Part::Stays => kept.insert(key.clone(), value.clone()),
            Part::Goes => None,
            Part::Becomes(value) => kept.insert(key.clone(), value),
        };
    }
    changed.map(Value::Object)
}

fn changed_list(list: Listed<'_>, items: &List, change: &mut dyn FnMut(&Place<'_>, &Value) -> Part) -> Option<Value> {
    let mut kept = List::with_capacity(items.len());
    let mut same = true;
    for item in items {
        let Ok(name) = item_key(list, item) else {
            kept.push(item.clone());
            continue;
        };
        let place = Place {
            typed: list.item,
            name: &name,
            is_field: false,
        };
        match change(&place, item) {
            Part::Stays => kept.push(item.clone()),
            Part::Goes => same = false,
            Part::Becomes(item) => {
                same = false;
                kept.push(item);
            }
        }
    }
    (!same).then_some(Value::Array(kept))
}

/// The parts of a value by their names.
enum Parts<'v> {
    None,
    Map(&'v Map),
    List(std::collections::HashMap<crate::tree::Text, &'v Value>),
}

impl<'v> Parts<'v> {
    fn of(typed: Typed<'_>, value: Option<&'v Value>) -> Self {
        match (typed.form(value), value) {
            (Form::Map(_), Some(Value::Object(fields))) => Parts::Map(fields),
            (Form::List(list), Some(Value::Array(items))) if list.kind != ListType::Atomic => Parts::List(
                items
                    .iter()
                    .filter_map(|item| Some((item_key(list, item).ok()?, item)))
                    .collect(),
            ),
            _ => Parts::None,
        }
    }

    fn get(&self, place: &Place<'_>) -> Option<&'v Value> {
        match self {
            Parts::None => None,
            Parts::Map(fields) => fields.get(place.name.strip_prefix("f:")?),
            Parts::List(items) => items.get(place.name).copied(),
        }
    }
}
