//! Strategic merge patch: a merge that knows from the schema which lists merge and by which key, and that takes
//! directives: `$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`.
//!
//! The order of a merged list: elements that the patch names stand in the patch's order, those that it does not name keep
//! theirs, and the two are interleaved by the order before the patch.

use std::collections::HashSet;

use super::places::{Places, same};
use super::{PatchError, go_format};
use crate::schema::{Field, Schema, Shape, Type};
use crate::tree::{Key, Map, Value};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

type Object = Map;

/// Merges `patch` into `original`.
pub(super) fn apply(original: Value, patch: Object, schema: Schema<'_>) -> Result<Value, PatchError> {
    let original = if let Value::Object(original) = original {
        original
    } else {
        Map::new()
    };
    merge_objects(original, patch, Known::Schema(schema)).map(Value::Object)
}

/// What is known of the keys of an object.
#[derive(Clone, Copy)]
enum Known<'a> {
    Schema(Schema<'a>),
    /// A map: what its values are.
    Values(Type<'a>),
    Nothing,
}

impl<'a> Known<'a> {
    fn of(ty: Type<'a>) -> Known<'a> {
        match ty {
            Type::Schema(schema) if schema.shape() == Shape::Struct => Known::Schema(schema),
            Type::Map(values) => Known::Values(values.ty()),
            _ => Known::Nothing,
        }
    }

    fn field(self, key: &str) -> Option<Field<'a>> {
        match self {
            Known::Schema(schema) => schema.field(key),
            _ => None,
        }
    }

    fn child(self, key: &str) -> Known<'a> {
        match self {
            Known::Schema(schema) => schema.field(key).map_or(Known::Nothing, |field| Known::of(field.ty())),
            Known::Values(ty) => Known::of(ty),
            Known::Nothing => Known::Nothing,
        }
    }

    /// What the elements of the list at `key` are.
    fn element(self, key: &str) -> Known<'a> {
        match self.field(key).map(Field::ty) {
            Some(Type::List(element)) => Known::of(element.ty()),
            _ => Known::Nothing,
        }
    }
}

fn merge_objects(mut original: Object, mut patch: Object, known: Known<'_>) -> Result<Object, PatchError> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Map::new()),
            _ => Err(bad_directive(&directive, patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(&mut original, &mut patch, known)?;
    // What comes and what goes is gathered, so that a large map is moved but once.
    let (mut added, mut removed) = (Map::new(), Map::new());
    for (key, value) in patch {
        let (key, deleting) = match key.strip_prefix(DELETE_FROM) {
            Some(list) => (Key::from(list.to_owned()), true),
            None => (key, false),
        };
        if value.is_null() {
            added.remove(&key);
            removed.insert(key, Value::Null);
            continue;
        }
        let place = match original.get_mut(&key).filter(|_| !removed.contains_key(&key)) {
            Some(place) => place,
            None if deleting => continue,
            None => {
                let value = without_directives(value);
                removed.remove(&key);
                original.remove(&key);
                added.insert(key, value);
                continue;
            }
        };
        let kept = place.take();
        *place = match (kept, value) {
            (Value::Array(list), Value::Array(values)) if deleting => {
                let gone = Places::of(&values, None);
                let is_kept = |item: &Value| gone.find(&values, item).is_none();
                Value::Array(list.into_iter().filter(is_kept).collect())
            }
            (kept, _) if deleting => kept,
            (Value::Object(from), Value::Object(with)) => {
                if known.field(&key).is_some_and(Field::patch_replace) {
                    Value::Object(with)
                } else {
                    Value::Object(merge_objects(from, with, known.child(&key))?)
                }
            }
            (Value::Array(from), Value::Array(with)) => {
                Value::from(merge_field(from.to_vec(), with.to_vec(), known, &key)?)
            }
            (_, value) => without_directives(value),
        };
    }
    if !removed.is_empty() {
        original.retain(|key, _| !removed.contains_key(key));
    }
    original.extend(added);
    Ok(original)
}

/// `$retainKeys`: keys of the original that the list does not name go away; the patch may set no other.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let bad = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(bad)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| keys.contains(key);
    let directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER);
    if patch
        .iter()
        .any(|(key, value)| !value.is_null() && !directive(key) && !named(key))
    {
        return Err(bad());
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// `$setElementOrder/list`: merges the list of that name, if there is one, and puts it in the order given.
///
/// Large maps are moved but once: what is done with is emptied, what is new gathered.
fn set_element_orders(original: &mut Object, patch: &mut Object, known: Known<'_>) -> Result<(), PatchError> {
    if !patch.keys().any(|key| key.starts_with(ELEMENT_ORDER)) {
        return Ok(());
    }
    let (orders, mut rest): (Object, Object) = std::mem::take(patch)
        .into_iter()
        .partition(|(key, _)| key.starts_with(ELEMENT_ORDER));
    let (mut added, mut done) = (Map::new(), Map::new());
    for (directive, order) in orders {
        let key = &directive[ELEMENT_ORDER.len()..];
        let order = list(order)?;
        if rest.get(key).is_some_and(Value::is_null) {
            continue;
        }
        let merge_key = known.field(key).and_then(Field::merge_key);
        let with = rest.get_mut(key).map(|with| list(with.take())).transpose()?;
        if with.is_some() {
            done.insert(key.to_owned(), Value::Null);
        }
        check_order(with.as_deref().unwrap_or_default(), &order, merge_key)?;
        let place = original.get_mut(key);
        let from = place.as_ref().map(|from| list((**from).clone())).transpose()?;
        let before = from.clone().unwrap_or_default();
        let merged = match (from, with) {
            (None, None) => continue,
            (Some(from), None) => from,
            (None, Some(with)) => without_directives_list(with),
            (Some(from), Some(with)) => merge_field(from, with, known, key)?,
        };
        let merged = Value::from(in_order(merged, &order, &before, merge_key)?);
        match place {
            Some(place) => *place = merged,
            None => {
                added.insert(key.to_owned(), merged);
            }
        }
    }
    if !done.is_empty() {
        rest.retain(|key, _| !done.contains_key(key));
    }
    original.extend(added);
    *patch = rest;
    Ok(())
}

/// The elements that the patch sets must come in the order that it asks for.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    let mut rest = order.iter();
    if order.is_empty() {
        return Ok(());
    }
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        if !rest.by_ref().any(|ordered| same(ordered, item, merge_key)) {
            let patch = go_format::value(&Value::from(patch));
            let order = go_format::value(&Value::from(order));
            return Err(PatchError::Internal(format!(
                "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
            )));
        }
    }
    Ok(())
}

/// Merges the list at `key`, by the strategy of the field; without one the patch's list replaces it.
fn merge_field(from: Vec<Value>, with: Vec<Value>, known: Known<'_>, key: &str) -> Result<Vec<Value>, PatchError> {
    let Some(field) = known.field(key).filter(|field| field.patch_merge()) else {
        return Ok(with);
    };
    merge_lists(from, with, field.merge_key(), known.element(key))
}

fn merge_lists(
    mut from: Vec<Value>,
    with: Vec<Value>,
    merge_key: Option<&str>,
    element: Known<'_>,
) -> Result<Vec<Value>, PatchError> {
    let Some(first) = from.first().or(with.first()) else {
        return Ok(from);
    };
    if first.is_array() {
        return Err(PatchError::NotApplicable("lists of lists are not supported".to_owned()));
    }
    if from.iter().chain(&with).any(|item| sort_of(item) != sort_of(first)) {
        let lists = Value::from(vec![Value::from(from.as_slice()), Value::from(with.as_slice())]);
        let lists = go_format::value(&lists);
        return Err(PatchError::Internal(format!(
            "list element types are not identical: {lists}"
        )));
    }
    if !first.is_object() {
        let mut merged: Vec<Value> = Vec::with_capacity(from.len() + with.len());
        let mut places = Places::of(&merged, None);
        for item in from.iter().chain(&with) {
            if places.find(&merged, item).is_none() {
                merged.push(item.clone());
                places.pushed(&merged);
            }
        }
        return in_order(merged, &with, &from, None);
    }
    let Some(key) = merge_key else {
        return Err(PatchError::Internal("cannot merge lists without merge key".to_owned()));
    };
    let mut replace = false;
    let mut deleted = Vec::new();
    let mut patch = Vec::with_capacity(with.len());
    for item in with {
        match item.get(PATCH) {
            None => patch.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    item.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                    deleted.push(item);
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    let text = "merging lists cannot yet be specified in the patch".to_owned();
                    return Err(PatchError::Internal(text));
                }
                _ => return Err(unknown_directive(directive, &item)),
            },
        }
    }
    if replace {
        return Ok(patch);
    }
    if !deleted.is_empty() {
        let gone = Places::of(&deleted, Some(key));
        from.retain(|have| gone.find(&deleted, have).is_none());
    }
    let before = from.clone();
    let mut places = Places::of(&from, Some(key));
    for item in &patch {
        item.get(key).ok_or_else(|| no_merge_key(item, key))?;
        if let (Some(place), Value::Object(with)) = (places.find(&from, item), item) {
            let have = from[place].take();
            let have = if let Value::Object(have) = have {
                have
            } else {
                Map::new()
            };
            from[place] = Value::Object(merge_objects(have, with.clone(), element)?);
        } else {
            from.push(without_directives(item.clone()));
            places.pushed(&from);
        }
    }
    in_order(from, &patch, &before, Some(key))
}

/// What sort of value an element of a list is: those of one list are all of one.
fn sort_of(item: &Value) -> std::mem::Discriminant<Value> {
    match item {
        // What was not looked into is an object, too.
        Value::Raw(_) => std::mem::discriminant(&Value::Object(Map::new())),
        item => std::mem::discriminant(item),
    }
}

/// Puts a merged list in order: what `order` names, in that order; the rest in the order of `before`; interleaved by it.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = merge_key
        && let Some(item) = merged
            .iter()
            .chain(order)
            .chain(before)
            .find(|item| item.get(key).is_none())
    {
        return Err(no_merge_key(item, key));
    }
    let (in_order, in_before) = (Places::of(order, merge_key), Places::of(before, merge_key));
    let (ordered, stood) = (
        |item: &Value| in_order.find(order, item),
        |item: &Value| in_before.find(before, item),
    );
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|item| ordered(item).is_some());
    named.sort_by_cached_key(ordered);
    rest.sort_by_cached_key(|item| stood(item).unwrap_or(usize::MAX));
    let mut list = Vec::with_capacity(named.len() + rest.len());
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    loop {
        let rest_first = match (rest.peek(), named.peek()) {
            (None, None) => return Ok(list),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                matches!((stood(left), stood(right)), (Some(left), Some(right)) if left < right)
            }
        };
        list.extend(if rest_first { rest.next() } else { named.next() });
    }
}

/// A value that nothing was there to merge with: directives and nulls in it mean nothing and go away.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .filter(|(key, value)| !is_directive(key) && !value.is_null())
                .map(|(key, value)| (key, without_directives(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(without_directives_list(items.to_vec()).into()),
        other => other,
    }
}

fn without_directives_list(items: Vec<Value>) -> Vec<Value> {
    items
        .into_iter()
        .filter(|item| item.get(PATCH).is_none())
        .map(without_directives)
        .collect()
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(DELETE_FROM) || key.starts_with(ELEMENT_ORDER)
}

fn list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items.to_vec()),
        other => Err(PatchError::Internal(format!(
            "expected a []interface {{}}, but received a {}",
            match other {
                Value::Object(_) => "map[string]interface {}",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(_) => "int64",
                _ => "<nil>",
            }
        ))),
    }
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    let item = go_format::value(item);
    PatchError::Internal(format!("map: {item} does not contain declared merge key: {key}"))
}

fn unknown_directive(directive: &Value, item: &Value) -> PatchError {
    let (directive, item) = (go_format::value(directive), go_format::value(item));
    PatchError::Internal(format!("unknown patch type: {directive} in map: {item}"))
}

fn bad_directive(directive: &Value, mut patch: Object) -> PatchError {
    patch.insert(PATCH.to_owned(), directive.clone());
    unknown_directive(directive, &Value::Object(patch))
}
