//! What differs between two states of an object, field by field.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::sync::LazyLock;

use super::keys::{element_key, item_key, value_key};
use super::trail::{Name, Trail};
use super::typed::{Form, Kind, Member, Typed, is_whole};
use crate::schema::{Element, ListType, Plan, PlanField, Schema, Shape, Type};
use crate::tree::{Key, List, Map, Text, Value};

/// What differs between two states.
#[derive(Debug, Default)]
pub(in crate::patch) struct Changes<'a> {
    /// Added or with another value.
    pub(in crate::patch) taken: Trail<'a>,
    /// No longer there.
    pub(in crate::patch) removed: Trail<'a>,
}

/// How a value is taken: by the type, and by what its field says about lists and maps.
type Rule = Option<&'static PlanField>;

static NOTHING: Value = Value::Null;
static EMPTY_OBJECT: Value = Value::Object(Map::new());
static EMPTY_TEXT: Value = Value::String(Text::new());
static FALSE: Value = Value::Bool(false);
static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());

/// Compares two objects of a type. What both share costs nothing. `counts` says of the fields of the object and of its
/// metadata (the path has one name or two) whether they are anybody's.
pub(in crate::patch) fn compare<'a>(
    typed: Typed<'_>,
    lhs: &'a Value,
    rhs: &'a Value,
    counts: impl Fn(&[&str]) -> bool,
) -> Changes<'a> {
    let mut walk = Walk::default();
    let (lhs, rhs) = (Some(lhs), Some(rhs));
    let Kind::BuiltIn(Type::Schema(schema), _) = typed.0 else {
        walk.object(typed, lhs, rhs, &counts);
        return walk.changes;
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

#[derive(Default)]
struct Walk<'a> {
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
            if right.is_some_and(Value::is_null) && left.is_none() && lhs.is_some() {
                continue;
            }
            self.below(Name::from(key), depth, (left, right), |walk, here| {
                visit(walk, key, rule, left, right, here);
            });
        }
    }

    fn value(&mut self, ty: Type<'static>, rule: Rule, lhs: Option<&'a Value>, rhs: Option<&'a Value>, here: Here) {
        let atomic = rule.is_some_and(|rule| rule.map_atomic);
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
            (Type::Any | Type::Object, _) => return self.other(Typed::DEDUCED, lhs, rhs, here),
            _ => return self.whole(lhs, rhs, here),
        }
        self.whole_too(lhs, rhs, here);
    }

    /// What came or went whole is a field of its own beside those in it.
    fn whole_too(&mut self, lhs: Option<&Value>, rhs: Option<&Value>, here: Here) {
        if lhs.is_none() {
            self.enter(here);
        } else if rhs.is_none() {
            self.leave(here);
        }
    }

    fn map(&mut self, element: Element<'static>, lhs: Option<&'a Value>, rhs: Option<&'a Value>, depth: usize) {
        for (key, left, right) in both(lhs, rhs) {
            if left != right {
                self.below(Name::from(key), depth, (left, right), |walk, here| {
                    walk.value(element.ty(), None, left, right, here);
                });
            }
        }
    }

    fn list(
        &mut self,
        element: Element<'static>,
        rule: &'static PlanField,
        lhs: Option<&'a Value>,
        rhs: Option<&'a Value>,
        depth: usize,
    ) {
        let key = |item: &Value| element_key(rule, element, item);
        self.items(key, lhs, rhs, depth, |walk, lhs, rhs, here| {
            walk.value(element.ty(), None, lhs, rhs, here);
        });
    }

    fn set(&mut self, lhs: Option<&'a Value>, rhs: Option<&'a Value>, depth: usize) {
        self.items(value_key, lhs, rhs, depth, Self::whole);
    }

    /// Elements that are told apart by keys. Those that have the same keys are one value, which nobody can tell apart.
    fn items(
        &mut self,
        key: impl Fn(&Value) -> Text,
        lhs: Option<&'a Value>,
        rhs: Option<&'a Value>,
        depth: usize,
        each: impl Fn(&mut Self, Option<&'a Value>, Option<&'a Value>, Here),
    ) {
        let keyed = |items: &'a [Value]| {
            let mut items: Vec<(Text, &Value)> = items.iter().map(|item| (key(item), item)).collect();
            items.sort_by(|(one, _), (other, _)| one.cmp(other));
            items
        };
        let (left, right) = (keyed(items_of(lhs)), keyed(items_of(rhs)));
        let (mut left, mut right) = (&left[..], &right[..]);
        while let Some((first, _)) = match (left.first(), right.first()) {
            (Some(one), Some(other)) => Some(if one.0 <= other.0 { one } else { other }),
            (one, other) => one.or(other),
        } {
            let name = first.clone();
            let same = |items: &[(Text, &Value)]| items.iter().take_while(|(key, _)| *key == name).count();
            let (of_left, rest) = left.split_at(same(left));
            left = rest;
            let (of_right, rest) = right.split_at(same(right));
            right = rest;
            let mut compare = |lhs: Option<&'a Value>, rhs: Option<&'a Value>| {
                if lhs != rhs {
                    self.below(Name::Element(name.clone()), depth, (lhs, rhs), |walk, here| {
                        each(walk, lhs, rhs, here);
                    });
                }
            };
            let only = |items: &[(Text, &'a Value)]| items.first().map(|(_, item)| *item);
            match (of_left.len(), of_right.len()) {
                (0 | 1, 0 | 1) => compare(only(of_left), only(of_right)),
                (0 | 1, _) => {
                    compare(only(of_left), None);
                    self.changes.taken.add(Name::Element(name), depth);
                }
                (_, 0 | 1) => {
                    compare(None, only(of_right));
                    self.changes.removed.add(Name::Element(name), depth);
                }
                _ if of_left != of_right => self.changes.taken.add(Name::Element(name), depth),
                _ => {}
            }
        }
    }

    /// An object that is not of a built-in schema. Its metadata is nobody's, but for what is in it.
    fn object(
        &mut self,
        typed: Typed<'_>,
        lhs: Option<&'a Value>,
        rhs: Option<&'a Value>,
        counts: &impl Fn(&[&str]) -> bool,
    ) {
        let Form::Map(fields) = typed.form(rhs) else { return };
        let mut cursor = 0;
        for (key, lhs, rhs) in both(lhs, rhs) {
            if lhs == rhs || !counts(&[key]) {
                continue;
            }
            let (Member::Field(typed) | Member::Key(typed)) = fields.member(key, &mut cursor) else {
                continue;
            };
            let metadata = if &**key == "metadata" {
                typed.form(rhs)
            } else {
                typed.form(None)
            };
            self.below(Name::from(key), 0, (lhs, rhs), |walk, here| match metadata {
                Form::Map(fields) if &**key == "metadata" => {
                    let mut cursor = 0;
                    for (key, lhs, rhs) in both(lhs, rhs) {
                        if lhs == rhs || !counts(&["metadata", key]) {
                            continue;
                        }
                        if let Member::Field(typed) | Member::Key(typed) = fields.member(key, &mut cursor) {
                            walk.below(Name::from(key), here.depth, (lhs, rhs), |walk, here| {
                                walk.other(typed, lhs, rhs, here);
                            });
                        }
                    }
                }
                _ => walk.other(typed, lhs, rhs, here),
            });
        }
    }

    /// A value of any type.
    fn other(&mut self, typed: Typed<'_>, lhs: Option<&'a Value>, rhs: Option<&'a Value>, here: Here) {
        if let Kind::BuiltIn(ty, rule) = typed.0 {
            return self.value(ty, rule, lhs, rhs, here);
        }
        match (lhs, rhs) {
            (Some(left), Some(right)) => {
                // What has become something else went and came.
                let (before, after) = (typed.form(Some(left)), typed.form(Some(right)));
                if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
                    self.formed(before, lhs, rhs, here);
                }
                self.formed(after, lhs, rhs, here);
            }
            (left, right) => self.formed(typed.form(left.or(right)), lhs, rhs, here),
        }
    }

    fn formed(&mut self, form: Form<'_>, lhs: Option<&'a Value>, rhs: Option<&'a Value>, here: Here) {
        match form {
            Form::List(list)
                if list.kind != ListType::Atomic && !(items_of(lhs).is_empty() && items_of(rhs).is_empty()) =>
            {
                match list.kind {
                    ListType::Set => self.set(lhs, rhs, here.depth),
                    _ => self.items(
                        |item| item_key(list, item).unwrap_or_default(),
                        lhs,
                        rhs,
                        here.depth,
                        |walk, lhs, rhs, here| walk.other(list.item, lhs, rhs, here),
                    ),
                }
            }
            Form::Map(map) if !(map.atomic || entries_of(lhs) == 0 && entries_of(rhs) == 0) => {
                let mut cursor = 0;
                for (key, lhs, rhs) in both(lhs, rhs) {
                    if lhs == rhs {
                        continue;
                    }
                    if let Member::Field(typed) | Member::Key(typed) = map.member(key, &mut cursor) {
                        self.below(Name::from(key), here.depth, (lhs, rhs), |walk, here| {
                            walk.other(typed, lhs, rhs, here);
                        });
                    }
                }
            }
            _ => return self.whole(lhs, rhs, here),
        }
        self.whole_too(lhs, rhs, here);
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
    schema.shape() == Shape::Struct && !is_whole(schema, rule)
}

/// What is there of a field that nobody has set: a part that is a value, not a pointer, is always there, if only as an
/// empty one; so are a list that must be, and a text, a number and a boolean that are written whatever they are.
fn hollow(rule: &PlanField) -> Option<&'static Value> {
    match rule.ty {
        Type::Schema(_) if rule.default_json == Some("{}") => Some(&EMPTY_OBJECT),
        // (The one set that must be, of validation actions, is left out when it is empty.)
        Type::List(_) if rule.required && rule.list != Some(ListType::Set) => Some(&NOTHING),
        Type::String(_) if rule.default_json == Some("\"\"") => Some(&EMPTY_TEXT),
        Type::Integer(_) if rule.required && rule.default_json == Some("0") => Some(&ZERO),
        Type::Boolean if rule.required && rule.default_json == Some("false") => Some(&FALSE),
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

fn entries_of(value: Option<&Value>) -> usize {
    value.and_then(Value::as_object).map_or(0, Map::len)
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
