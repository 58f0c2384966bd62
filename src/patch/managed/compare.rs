//! What differs between two states of an object, field by field.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::trail::{Name, Trail};
use crate::schema::{Element, ListType, Plan, PlanField, Schema, Shape, Type};
use crate::tree::{Key, List, Map, Text, Value, write_text};

/// What differs between two states.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// Added or with another value.
    pub(super) taken: Trail<'a>,
    /// No longer there.
    pub(super) removed: Trail<'a>,
}

/// How states are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// An update: structs, maps and lists that came or went whole are fields beside those in them.
    Update,
    /// A configuration that is applied: only values, and elements of lists.
    Apply,
}

/// How a value is taken: by the type, and by what its field says about lists and maps.
type Rule = Option<&'static PlanField>;

static NOTHING: Value = Value::Null;
static EMPTY_OBJECT: Value = Value::Object(Map::new());
static EMPTY_TEXT: Value = Value::String(Text::new());

/// Compares two objects of a schema. What both share costs nothing. `counts` says of the fields of the object and of its
/// metadata (the path has one name or two) whether they are anybody's.
pub(super) fn compare<'a>(
    mode: Mode,
    schema: Schema<'static>,
    lhs: Option<&'a Value>,
    rhs: Option<&'a Value>,
    counts: impl Fn(&[&str]) -> bool,
) -> Changes<'a> {
    let mut walk = Walk {
        mode,
        changes: Changes::default(),
    };
    walk.object_of(schema, lhs, rhs, 0, &mut |walk, name, rule, lhs, rhs, here| {
        if !counts(&[name]) {
            return;
        }
        match rule.ty {
            // Metadata itself is nobody's.
            Type::Schema(schema) if name == "metadata" => {
                walk.object_of(schema, lhs, rhs, 1, &mut |walk, name, rule, lhs, rhs, here| {
                    if counts(&["metadata", name]) {
                        walk.value(rule.ty, Some(rule), lhs, rhs, here);
                    }
                });
            }
            ty => walk.value(ty, Some(rule), lhs, rhs, here),
        }
    });
    walk.changes
}

struct Walk<'a> {
    mode: Mode,
    changes: Changes<'a>,
}

/// The nodes of the value that is looked at.
#[derive(Clone, Copy)]
struct Here {
    taken: Option<usize>,
    removed: Option<usize>,
    /// Of what lies below.
    depth: usize,
}

/// What is done with a field that differs.
type Visit<'v, 'a> =
    &'v mut dyn FnMut(&mut Walk<'a>, &'a str, &'static PlanField, Option<&'a Value>, Option<&'a Value>, Here);

impl<'a> Walk<'a> {
    fn below(
        &mut self,
        name: Name<'a>,
        depth: usize,
        (lhs, rhs): (Option<&'a Value>, Option<&'a Value>),
        inner: impl FnOnce(&mut Self, Here),
    ) {
        // Of what was not there, nothing can be removed; of what is not there, nothing taken.
        let removed = lhs.map(|_| self.changes.removed.open(name.clone(), depth));
        let taken = rhs.map(|_| self.changes.taken.open(name, depth));
        inner(
            self,
            Here {
                taken,
                removed,
                depth: depth + 1,
            },
        );
        if let Some(taken) = taken {
            self.changes.taken.close(taken);
        }
        if let Some(removed) = removed {
            self.changes.removed.close(removed);
        }
    }

    fn enter(&mut self, here: Here) {
        if let Some(taken) = here.taken {
            self.changes.taken.enter(taken);
        }
    }

    fn leave(&mut self, here: Here) {
        if let Some(removed) = here.removed {
            self.changes.removed.enter(removed);
        }
    }

    fn object_of(
        &mut self,
        schema: Schema<'static>,
        lhs: Option<&'a Value>,
        rhs: Option<&'a Value>,
        depth: usize,
        visit: Visit<'_, 'a>,
    ) {
        let plan = Plan::of(schema);
        let mut cursor = 0;
        for (key, left, right) in both(lhs, rhs) {
            let Some(number) = plan.find_key(key, &mut cursor) else {
                continue;
            };
            if left == right {
                continue;
            }
            let rule = plan.field(number);
            let hollow = hollow(rule);
            let left = left.or(hollow.filter(|_| lhs.is_some()));
            let right = right.or(hollow.filter(|_| rhs.is_some()));
            // A field that is always written, as null when it is unset, is there in the empty object, too.
            if self.mode == Mode::Update && right.is_some_and(Value::is_null) && left.is_none() && lhs.is_some() {
                continue;
            }
            self.below(Name::Field(key), depth, (left, right), |walk, here| {
                visit(walk, key, rule, left, right, here);
            });
        }
    }

    fn value(&mut self, ty: Type<'static>, rule: Rule, lhs: Option<&'a Value>, rhs: Option<&'a Value>, here: Here) {
        let atomic = rule.is_some_and(|rule| rule.field.map_atomic());
        if atomic || is_hollow(lhs) && is_hollow(rhs) {
            return self.whole(lhs, rhs, here);
        }
        match (ty, rule.and_then(|rule| Some((rule, rule.list?)))) {
            (Type::Schema(schema), _) if is_taken_apart(schema, rule) => {
                self.object_of(schema, lhs, rhs, here.depth, &mut |walk, _, rule, lhs, rhs, here| {
                    walk.value(rule.ty, Some(rule), lhs, rhs, here);
                });
            }
            (Type::Map(element), _) => self.map(element, lhs, rhs, here.depth),
            (Type::List(_), Some((_, ListType::Set))) => self.set(lhs, rhs, here.depth),
            (Type::List(element), Some((rule, ListType::Map))) => self.list(element, rule, lhs, rhs, here.depth),
            _ => return self.whole(lhs, rhs, here),
        }
        // What came or went whole is a field of its own beside those in it.
        if self.mode == Mode::Update {
            if lhs.is_none() {
                self.enter(here);
            } else if rhs.is_none() {
                self.leave(here);
            }
        }
    }

    fn map(&mut self, element: Element<'static>, lhs: Option<&'a Value>, rhs: Option<&'a Value>, depth: usize) {
        for (key, left, right) in both(lhs, rhs) {
            if left != right {
                self.below(Name::Field(key), depth, (left, right), |walk, here| {
                    walk.value(element.ty(), None, left, right, here);
                });
            }
        }
    }

    /// Elements are told apart by their keys; of those that have the same ones, the first on either side belong together.
    fn list(
        &mut self,
        element: Element<'static>,
        rule: &'static PlanField,
        lhs: Option<&'a Value>,
        rhs: Option<&'a Value>,
        depth: usize,
    ) {
        let keyed = |items: &'a [Value]| {
            let mut items: Vec<(Text, &Value)> = items
                .iter()
                .map(|item| (element_key(rule, element, item), item))
                .collect();
            items.sort_by(|(one, _), (other, _)| one.cmp(other));
            items.into_iter().peekable()
        };
        let (mut left, mut right) = (keyed(items_of(lhs)), keyed(items_of(rhs)));
        let mut before: Option<(Text, usize, usize)> = None;
        while let Some((key, lhs, rhs)) = next_of_both(&mut left, &mut right) {
            if lhs == rhs {
                continue;
            }
            let start = (self.changes.taken.len(), self.changes.removed.len());
            self.below(Name::Element(key.clone()), depth, (lhs, rhs), |walk, here| {
                walk.value(element.ty(), None, lhs, rhs, here);
                if walk.mode == Mode::Apply {
                    walk.enter(here);
                }
            });
            // Of elements with the same keys the last one counts.
            if let Some((_, taken, removed)) = before.filter(|(other, ..)| *other == key) {
                if self.changes.taken.len() > start.0 {
                    self.changes.taken.supersede(taken, start.0);
                }
                if self.changes.removed.len() > start.1 {
                    self.changes.removed.supersede(removed, start.1);
                }
                before = Some((key, taken, removed));
            } else {
                before = Some((key, start.0, start.1));
            }
        }
    }

    fn set(&mut self, lhs: Option<&'a Value>, rhs: Option<&'a Value>, depth: usize) {
        let (left, right) = (items_of(lhs), items_of(rhs));
        let only = |these: &'a [Value], others: &'a [Value]| {
            let mut keys: Vec<Text> = these
                .iter()
                .filter(|item| !others.contains(item))
                .map(value_key)
                .collect();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        for key in only(right, left) {
            let place = self.changes.taken.open(Name::Element(key), depth);
            self.changes.taken.enter(place);
        }
        for key in only(left, right) {
            let place = self.changes.removed.open(Name::Element(key), depth);
            self.changes.removed.enter(place);
        }
    }

    /// Two values that are one field.
    fn whole(&mut self, lhs: Option<&Value>, rhs: Option<&Value>, here: Here) {
        if rhs.is_none() && lhs.is_some() {
            self.leave(here);
        } else if lhs != rhs {
            self.enter(here);
        }
    }
}

fn is_taken_apart(schema: Schema<'static>, rule: Rule) -> bool {
    schema.shape() == Shape::Struct && (!schema.map_atomic() || rule.is_some_and(|rule| rule.field.map_granular()))
}

/// What is there of a field that nobody has set: a part that is a value, not a pointer, is always there, if only as an
/// empty one; so are a list that must be and a text that is written even when it is empty.
fn hollow(rule: &PlanField) -> Option<&'static Value> {
    match rule.ty {
        Type::Schema(_) if rule.default_json == Some("{}") => Some(&EMPTY_OBJECT),
        // (The one set that must be, of validation actions, is left out when it is empty.)
        Type::List(_) if rule.field.required() && rule.list != Some(ListType::Set) => Some(&NOTHING),
        Type::String(_) if rule.default_json == Some("\"\"") => Some(&EMPTY_TEXT),
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

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], List::as_slice)
}

/// The entries that either has, in the order of their names.
fn both<'a>(
    lhs: Option<&'a Value>,
    rhs: Option<&'a Value>,
) -> impl Iterator<Item = (&'a Key, Option<&'a Value>, Option<&'a Value>)> {
    let entries = |value: Option<&'a Value>| value.and_then(Value::as_object).into_iter().flatten().peekable();
    let (mut left, mut right) = (entries(lhs), entries(rhs));
    std::iter::from_fn(move || next_of_both(&mut left, &mut right))
}

/// The next name in two rows of names and values, and the values on either side.
fn next_of_both<'a, K: Ord>(
    left: &mut Peekable<impl Iterator<Item = (K, &'a Value)>>,
    right: &mut Peekable<impl Iterator<Item = (K, &'a Value)>>,
) -> Option<(K, Option<&'a Value>, Option<&'a Value>)> {
    let order = match (left.peek(), right.peek()) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some((one, _)), Some((other, _))) => one.cmp(other),
    };
    let left = if order.is_le() { left.next() } else { None };
    let right = if order.is_ge() { right.next() } else { None };
    let (left_value, right_value) = (
        left.as_ref().map(|(_, value)| *value),
        right.as_ref().map(|(_, value)| *value),
    );
    left.or(right).map(|(key, _)| (key, left_value, right_value))
}

/// `v:"value"`.
fn value_key(value: &Value) -> Text {
    let mut key = b"v:".to_vec();
    value.write(&mut key);
    std::str::from_utf8(&key).unwrap_or_default().into()
}

/// `k:{"name":"c"}`: the keys of an element of a list that is a map, by name; a key that is missing has its default.
fn element_key(rule: &PlanField, element: Element<'static>, item: &Value) -> Text {
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
    std::str::from_utf8(&text).unwrap_or_default().into()
}

fn default_of(element: Element<'static>, key: &str) -> Option<&'static str> {
    let Type::Schema(schema) = element.ty() else {
        return None;
    };
    let plan = Plan::of(schema);
    plan.field(plan.find(key, &mut 0)?).default_json
}
