//! What differs between two states of an object, field by field.

use serde_json::{Map, Value};

use super::fields::{Fields, element_key, field_key, value_key};
use crate::schema::{Element, Field, ListType, Schema, Shape, Type};

/// What differs between two states.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Added or with another value.
    pub(super) taken: Fields,
    /// No longer there.
    pub(super) removed: Fields,
}

impl Changes {
    /// Puts what differs below `key` into place; costs nothing when nothing does.
    fn put(&mut self, key: impl FnOnce() -> String, below: Changes) {
        match (below.taken.is_empty(), below.removed.is_empty()) {
            (true, true) => {}
            (false, true) => self.taken.put(key(), below.taken),
            (true, false) => self.removed.put(key(), below.removed),
            (false, false) => {
                let key = key();
                self.taken.put(key.clone(), below.taken);
                self.removed.put(key, below.removed);
            }
        }
    }
}

/// How states are compared.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    /// An update: structs, maps and lists that came or went whole are fields beside those in them.
    Update,
    /// A configuration that is applied: only values, and elements of lists.
    Apply,
}

/// How a value is taken: by the type, and by what its field says about lists and maps.
#[derive(Clone, Copy, Default)]
struct Rule<'a> {
    field: Option<Field<'a>>,
    atomic: bool,
}

impl Mode {
    /// Compares two objects of a schema.
    pub(super) fn object(self, schema: Schema<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
        let (left, right) = (fields_of(lhs), fields_of(rhs));
        let mut changes = Changes::default();
        for name in names(left, right) {
            let Some(field) = schema.field(name) else { continue };
            let (left, right) = (
                left.and_then(|left| left.get(name)),
                right.and_then(|right| right.get(name)),
            );
            if left == right {
                continue;
            }
            let hollow = hollow(field);
            let left = left.or(hollow.as_ref().filter(|_| lhs.is_some()));
            let right = right.or(hollow.as_ref().filter(|_| rhs.is_some()));
            // A field that is always written, as null when it is unset, is there in the empty object, too.
            if matches!(self, Mode::Update) && right == Some(&Value::Null) && left.is_none() && lhs.is_some() {
                continue;
            }
            let rule = Rule {
                field: Some(field),
                atomic: field.map_atomic(),
            };
            changes.put(|| field_key(name), self.value(field.ty(), rule, left, right));
        }
        changes
    }

    fn value(self, ty: Type<'_>, rule: Rule<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
        if rule.atomic || is_hollow(lhs) && is_hollow(rhs) {
            return whole(lhs, rhs);
        }
        let mut changes = match (ty, rule.field.and_then(|field| Some((field, field.list_type()?)))) {
            (Type::Schema(schema), _) if is_taken_apart(schema, rule) => self.object(schema, lhs, rhs),
            (Type::Map(element), _) => self.map(element, lhs, rhs),
            (Type::List(_), Some((_, ListType::Set))) => set(lhs, rhs),
            (Type::List(element), Some((field, ListType::Map))) => self.list(element, field, lhs, rhs),
            _ => return whole(lhs, rhs),
        };
        // What came or went whole is a field of its own beside those in it.
        if matches!(self, Mode::Update) {
            if lhs.is_none() {
                changes.taken.enter();
            } else if rhs.is_none() {
                changes.removed.enter();
            }
        }
        changes
    }

    fn map(self, element: Element<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
        let (left, right) = (fields_of(lhs), fields_of(rhs));
        let mut changes = Changes::default();
        for name in names(left, right) {
            let (left, right) = (
                left.and_then(|left| left.get(name)),
                right.and_then(|right| right.get(name)),
            );
            if left != right {
                changes.put(
                    || field_key(name),
                    self.value(element.ty(), Rule::default(), left, right),
                );
            }
        }
        changes
    }

    fn list(self, element: Element<'_>, field: Field<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
        let mut changes = Changes::default();
        let mut left: Vec<(String, &Value)> = items_of(lhs)
            .iter()
            .map(|item| (element_key(field, element, item), item))
            .collect();
        for item in items_of(rhs) {
            let key = element_key(field, element, item);
            let found = left
                .iter()
                .position(|(other, _)| *other == key)
                .map(|at| left.swap_remove(at).1);
            if found == Some(item) {
                continue;
            }
            let mut below = self.value(element.ty(), Rule::default(), found, Some(item));
            if matches!(self, Mode::Apply) {
                below.taken.enter();
            }
            changes.put(|| key, below);
        }
        for (key, item) in left {
            changes.put(|| key, self.value(element.ty(), Rule::default(), Some(item), None));
        }
        changes
    }
}

fn is_taken_apart(schema: Schema<'_>, rule: Rule<'_>) -> bool {
    schema.shape() == Shape::Struct && (!schema.map_atomic() || rule.field.is_some_and(Field::map_granular))
}

/// Two values that are one field.
fn whole(lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    if rhs.is_none() && lhs.is_some() {
        changes.removed.enter();
    } else if lhs != rhs {
        changes.taken.enter();
    }
    changes
}

fn set(lhs: Option<&Value>, rhs: Option<&Value>) -> Changes {
    let (left, right) = (items_of(lhs), items_of(rhs));
    let mut changes = Changes::default();
    for item in right.iter().filter(|item| !left.contains(item)) {
        changes.put(|| value_key(item), whole(None, Some(item)));
    }
    for item in left.iter().filter(|item| !right.contains(item)) {
        changes.put(|| value_key(item), whole(Some(item), None));
    }
    changes
}

/// What is there of a field that nobody has set: a part that is a value, not a pointer, is always there, if only as an
/// empty one; so are a list that must be and a text that is written even when it is empty.
fn hollow(field: Field<'_>) -> Option<Value> {
    match field.ty() {
        Type::Schema(_) if field.default_json() == Some("{}") => Some(Value::Object(Map::new())),
        Type::List(_) if field.required() => Some(Value::Null),
        Type::String(_) if field.default_json() == Some("\"\"") => Some(Value::String(String::new())),
        _ => None,
    }
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}

fn fields_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The names that either has.
fn names<'a>(
    left: Option<&'a Map<String, Value>>,
    right: Option<&'a Map<String, Value>>,
) -> impl Iterator<Item = &'a str> {
    let only_left = left
        .into_iter()
        .flatten()
        .filter(move |(name, _)| right.is_none_or(|right| !right.contains_key(*name)));
    right
        .into_iter()
        .flatten()
        .chain(only_left)
        .map(|(name, _)| name.as_str())
}
