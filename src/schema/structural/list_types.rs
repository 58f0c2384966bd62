//! Lists whose items occur once: sets and maps (`x-kubernetes-list-type`).

use std::collections::HashMap;

use super::FAULTS_MAX;
use super::arena::{Flags, ListType, Node, Structural};
use super::path::Path;
use crate::schema::FieldError;
use crate::tree::{List, Map, Value};

impl Structural {
    /// What occurs twice in lists that are sets or maps; at most [`FAULTS_MAX`] items are told.
    pub(crate) fn duplicates(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        find(self.root(), object, &Path::ROOT, &mut errors);
        errors
    }
}

fn find(node: Node<'_>, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    // The schema bounds the depth of this.
    if !node.is(Flags::UNIQUE) || errors.len() >= FAULTS_MAX {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(schema) = node.additional_schema() {
                    find(schema, value, &path.bracketed(name), errors);
                }
                if let Some(schema) = node.field(name) {
                    find(schema, value, &path.field(name), errors);
                }
            }
        }
        Value::Array(list) => {
            match node.list_type() {
                ListType::Set => in_set(list, path, errors),
                ListType::Map => in_map(node, list, path, errors),
                ListType::Unset | ListType::Atomic => {}
            }
            if let Some(items) = node.items() {
                for (at, item) in list.iter().enumerate() {
                    find(items, item, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn in_set(list: &List, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let texts = list.iter().map(Value::to_json);
    for at in repeated(texts).take(FAULTS_MAX) {
        errors.push(FieldError::duplicate(path.index(at).to_string(), &list[at]));
    }
}

fn in_map(node: Node<'_>, list: &List, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let odd = list
        .iter()
        .position(|item| !matches!(item, Value::Object(_) | Value::Null));
    if let Some(at) = odd {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(at).to_string(), &list[at], detail));
        return;
    }
    let keys = list.iter().map(|item| key_of(node, item));
    for at in repeated(keys).take(FAULTS_MAX) {
        let field = path.index(at).to_string();
        errors.push(FieldError::duplicate(field, &Value::Object(keys_of(node, &list[at]))));
    }
}

/// The places where something comes for the second time; what comes more often is told once.
fn repeated(texts: impl ExactSizeIterator<Item = String>) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(if texts.len() > 1 { texts.len() } else { 0 });
    let mut found = Vec::new();
    if texts.len() > 1 {
        for (at, text) in texts.enumerate() {
            let times = seen.entry(text).or_default();
            *times += 1;
            if *times == 2 {
                found.push(at);
            }
        }
    }
    found.into_iter()
}

/// What tells an item of a list that is a map from others, as text.
pub(super) fn key_of(node: Node<'_>, item: &Value) -> String {
    Value::Object(keys_of(node, item)).to_json()
}

fn keys_of(node: Node<'_>, item: &Value) -> Map {
    let Some(item) = item.as_object() else {
        return Map::new();
    };
    let keys = node.list_keys();
    keys.filter_map(|name| Some((super::arena::key(name), item.get(name)?.clone())))
        .collect()
}
