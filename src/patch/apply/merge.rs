//! The merge of a configuration into an object: what it names takes its values, nothing else changes.

use std::collections::HashMap;

use super::super::managed::fields::push_element;
use super::super::managed::keys::item_key;
use super::super::managed::typed::{Form, Listed, Mapped, Member, Typed};
use crate::schema::ListType;
use crate::tree::{Key, List, Map, Text, Value};

/// `live` with what `configuration` names. `None`: that is what it has already. What does not change stays shared with `live`.
///
/// Elements of lists that are told apart keep the order of `live`, but for those that the configuration names: they come in its
/// order, and new ones stand where they stand there. Null counts as a value, but for maps and lists that have something in
/// them. Linear in the size of the configuration and of the lists that it names.
///
/// # Errors
/// The path of a list and what keeps its elements from being told apart.
pub(super) fn merge(typed: Typed<'_>, live: &Value, configuration: &Value) -> Result<Option<Value>, String> {
    if live == configuration {
        return Ok(None);
    }
    match typed.form(Some(configuration)) {
        Form::Map(map) if !map.atomic => merge_maps(map, live, configuration),
        Form::List(list) if list.kind != ListType::Atomic => merge_lists(list, live, configuration),
        _ => Ok(Some(configuration.clone())),
    }
}

/// How deep a configuration is looked into.
const DEPTH_MAX: usize = 128;

/// The path of the first part of a configuration that is an atomic list or map.
pub(super) fn atomic(typed: Typed<'_>, configuration: &Value, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return Some(String::new());
    }
    match (typed.form(Some(configuration)), configuration) {
        (Form::Map(map), Value::Object(_)) if map.atomic => Some(String::new()),
        (Form::List(list), Value::Array(_)) if list.kind == ListType::Atomic => Some(String::new()),
        (Form::Map(map), Value::Object(fields)) => {
            let mut cursor = 0;
            fields
                .iter()
                .find_map(|(key, value)| match map.member(key, &mut cursor) {
                    Member::Field(typed) | Member::Key(typed) => {
                        atomic(typed, value, depth + 1).map(|rest| format!(".{key}{rest}"))
                    }
                    Member::Unknown => None,
                })
        }
        (Form::List(list), Value::Array(items)) => items.iter().find_map(|item| atomic(list.item, item, depth + 1)),
        _ => None,
    }
}

/// Puts the name of what was merged before an error.
fn at<T>(name: &str, merged: Result<T, String>) -> Result<T, String> {
    merged.map_err(|error| {
        let mut path = String::new();
        push_element(&mut path, name);
        path + &error
    })
}

fn merge_maps(map: Mapped<'_>, live: &Value, configuration: &Value) -> Result<Option<Value>, String> {
    let named = configuration.as_object().filter(|named| !named.is_empty());
    let (live, named) = match (live.as_object().filter(|live| !live.is_empty()), named) {
        (Some(live), Some(named)) => (live, named),
        // Nothing is named: what is there stays.
        (Some(_), None) => return Ok(None),
        (None, _) => return Ok(Some(configuration.clone())),
    };
    if named.len() > PUT_IN_MAX {
        return merge_many(map, live, named);
    }
    let mut merged: Option<Map> = None;
    let mut cursor = 0;
    for (key, value) in named {
        if let Some(value) = merge_member(map, key, live.get(key), value, &mut cursor)? {
            merged.get_or_insert_with(|| live.clone()).insert(key.clone(), value);
        }
    }
    Ok(merged.map(Value::Object))
}

/// Up to so many names are put into a map one by one.
const PUT_IN_MAX: usize = 64;

/// [`merge_maps`] in one go along both.
fn merge_many(map: Mapped<'_>, live: &Map, named: &Map) -> Result<Option<Value>, String> {
    let mut merged = Map::with_capacity(live.len().max(named.len()));
    let (mut old, mut cursor, mut same) = (live.iter().peekable(), 0, true);
    for (key, value) in named {
        while let Some((key, value)) = old.next_if(|(other, _)| *other < key) {
            merged.insert(key.clone(), value.clone());
        }
        let old = old.next_if(|(other, _)| *other == key).map(|(_, value)| value);
        let value = merge_member(map, key, old, value, &mut cursor)?;
        same &= value.is_none();
        if let Some(value) = value.or_else(|| old.cloned()) {
            merged.insert(key.clone(), value);
        }
    }
    merged.extend(old.map(|(key, value)| (key.clone(), value.clone())));
    Ok((!same).then_some(Value::Object(merged)))
}

fn merge_member(
    map: Mapped<'_>,
    key: &Key,
    live: Option<&Value>,
    value: &Value,
    cursor: &mut usize,
) -> Result<Option<Value>, String> {
    let (Member::Field(typed) | Member::Key(typed)) = map.member(key, cursor) else {
        return Ok(None);
    };
    match live {
        None => Ok(Some(value.clone())),
        Some(live) => merge(typed, live, value).map_err(|error| format!(".{key}{error}")),
    }
}

fn merge_lists(list: Listed<'_>, live: &Value, configuration: &Value) -> Result<Option<Value>, String> {
    let items = |value: &'_ Value| value.as_array().filter(|items| !items.is_empty()).cloned();
    let (live, named) = match (items(live), items(configuration)) {
        (Some(live), Some(named)) => (live, named),
        (Some(_), None) => return Ok(None),
        (None, _) => return Ok(Some(configuration.clone())),
    };
    let keys = |items: &List| -> Result<Vec<Text>, String> {
        let keys = items
            .iter()
            .enumerate()
            .map(|(number, item)| item_key(list, item).map_err(|error| format!(": element {number}: {error}")));
        keys.collect()
    };
    let (live_keys, named_keys) = (keys(&live)?, keys(&named)?);
    if live_keys == named_keys && !has_doubles(&live_keys) {
        return merge_pairs(list, &live, &named, &named_keys);
    }
    let merged = Merge::new(&live_keys, &named_keys).run();
    let mut items = List::with_capacity(merged.len());
    let mut same = merged.len() == live.len();
    for (place, from) in merged.into_iter().enumerate() {
        let item = match from {
            From::Live(number) => live[number].clone(),
            From::Named(number) => named[number].clone(),
            From::Both(number, other) => {
                let merged = at(&named_keys[other], merge(list.item, &live[number], &named[other]))?;
                same &= merged.is_none();
                merged.unwrap_or_else(|| live[number].clone())
            }
        };
        same &= match from {
            From::Live(number) | From::Both(number, _) => number == place,
            From::Named(_) => false,
        };
        items.push(item);
    }
    Ok((!same).then_some(Value::Array(items)))
}

fn has_doubles(keys: &[Text]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(keys.len());
    !keys.iter().all(|key| seen.insert(key))
}

/// Merges the elements of two lists that stand at the same places.
fn merge_pairs(list: Listed<'_>, live: &List, named: &List, keys: &[Text]) -> Result<Option<Value>, String> {
    let mut merged: Option<List> = None;
    for (place, (old, new)) in live.iter().zip(named).enumerate() {
        if let Some(item) = at(&keys[place], merge(list.item, old, new))? {
            merged.get_or_insert_with(|| live.clone())[place] = item;
        }
    }
    Ok(merged.map(Value::Array))
}

/// Where an element of a merged list comes from.
#[derive(Clone, Copy)]
enum From {
    Live(usize),
    Named(usize),
    Both(usize, usize),
}

/// The order of the elements of a merged list, as structured-merge-diff has it since its version 4.3.
struct Merge<'a> {
    live: &'a [Text],
    named: &'a [Text],
    /// Places in `live`; none for those that come twice there, which are replaced.
    in_live: HashMap<&'a str, Option<usize>>,
    /// Places in `named`, where each comes once.
    in_named: HashMap<&'a str, usize>,
    /// Whether an element of `named` is in the result.
    done: Vec<bool>,
    merged: Vec<From>,
}

impl<'a> Merge<'a> {
    fn new(live: &'a [Text], named: &'a [Text]) -> Self {
        let mut in_live = HashMap::with_capacity(live.len());
        for (place, key) in live.iter().enumerate() {
            in_live
                .entry(key.as_str())
                .and_modify(|place| *place = None)
                .or_insert(Some(place));
        }
        Merge {
            live,
            named,
            in_live,
            in_named: named
                .iter()
                .enumerate()
                .map(|(place, key)| (key.as_str(), place))
                .collect(),
            done: vec![false; named.len()],
            merged: Vec::with_capacity(live.len().max(named.len())),
        }
    }

    fn take(&mut self, number: usize) {
        self.done[number] = true;
        self.merged.push(match self.in_live.get(self.named[number].as_str()) {
            Some(&Some(place)) => From::Both(place, number),
            _ => From::Named(number),
        });
    }

    fn run(mut self) -> Vec<From> {
        // Elements that both have come in the order of `named`: this is the next of them.
        let shared: Vec<usize> = (0..self.named.len())
            .filter(|&number| self.in_live.contains_key(self.named[number].as_str()))
            .collect();
        let mut shared = shared.into_iter().peekable();
        let (mut left, mut right) = (0, 0);
        while left < self.live.len() || right < self.named.len() {
            let of_left = self.live.get(left).map(|key| self.in_named.get(key.as_str()).copied());
            if let (Some(of_left), true) = (of_left, right < self.named.len()) {
                if of_left == Some(right) {
                    self.take(right);
                    left += 1;
                    right += 1;
                    shared.next();
                    continue;
                }
                if of_left.is_some() && shared.peek().is_some_and(|&next| of_left != Some(next)) {
                    // Both have it, and it is not its turn.
                    left += 1;
                    continue;
                }
            }
            match of_left {
                Some(None) => {
                    self.merged.push(From::Live(left));
                    left += 1;
                    continue;
                }
                Some(Some(number)) if self.done[number] => left += 1,
                _ => {}
            }
            if right < self.named.len() {
                self.take(right);
                if shared.peek() == Some(&right) {
                    shared.next();
                }
                right += 1;
            }
        }
        self.merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use crate::tree::json;

    fn order(live: &[&str], named: &[&str]) -> Vec<String> {
        let keys = |names: &[&str]| names.iter().map(|&name| Text::from(name)).collect::<Vec<_>>();
        let (live, named) = (keys(live), keys(named));
        let merged = Merge::new(&live, &named).run();
        let name = |from: From| match from {
            From::Live(place) => live[place].to_string(),
            From::Named(place) | From::Both(_, place) => named[place].to_string(),
        };
        merged.into_iter().map(name).collect()
    }

    #[test]
    fn elements_that_are_named_come_in_the_order_of_the_configuration() {
        for (live, named, merged) in [
            (&["a", "b", "c"][..], &["b"][..], &["a", "b", "c"][..]),
            (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
            (&["a", "b"], &["x", "b"], &["a", "x", "b"]),
            (&["a", "b"], &["b", "x", "a"], &["b", "x", "a"]),
            (&["a"], &["b", "c"], &["a", "b", "c"]),
            (&["a", "b", "c", "d"], &["d", "b"], &["a", "c", "d", "b"]),
            // What came twice and is named comes once.
            (&["a", "a", "b"], &["a"], &["a", "b"]),
            (&["a", "a", "b"], &["b"], &["a", "a", "b"]),
        ] {
            assert_eq!(order(live, named), merged, "{live:?} {named:?}");
        }
    }

    #[test]
    fn a_merge_that_changes_nothing_says_so() {
        let pods = Schema::of("", "v1", "Pod").unwrap().into();
        let live = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x", "y"]}, "spec": {"containers": [
            {"name": "a", "image": "i", "resources": {}}, {"name": "b", "image": "j"}], "tolerations": [{"key": "t"}]}});
        let of = |configuration: Value| merge(pods, &live, &configuration).unwrap();
        for nothing in [
            json!({}),
            json!({"metadata": {"labels": null, "finalizers": ["y"]}}),
            json!({"metadata": {"labels": {}, "finalizers": []}, "spec": null}),
            json!({"spec": {"containers": [{"name": "b"}], "tolerations": [{"key": "t"}]}}),
        ] {
            assert_eq!(of(nothing.clone()), None, "{nothing}");
        }
        let changed =
            of(json!({"spec": {"containers": [{"name": "b", "image": "k"}, {"name": "c"}], "tolerations": []}}))
                .unwrap();
        assert_eq!(
            changed["spec"],
            json!({"containers": [{"name": "a", "image": "i", "resources": {}}, {"name": "b", "image": "k"}, {"name": "c"}],
                "tolerations": []})
        );
        assert!(changed["metadata"].shares(&live["metadata"]));
        assert_eq!(
            of(json!({"spec": {"nodeName": null}})).unwrap()["spec"]["nodeName"],
            Value::Null
        );
    }
}
