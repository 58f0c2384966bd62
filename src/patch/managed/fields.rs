//! A set of fields, as `FieldsV1` writes it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::{Element, Field, Type};

/// A set of fields as a tree: what is in it itself, and what is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields {
    member: bool,
    below: BTreeMap<String, Fields>,
}

impl Fields {
    /// From the JSON of an entry. A node without children is a member; one with children says so with `"."`.
    pub(super) fn read(json: &Value) -> Fields {
        let mut set = Fields::default();
        for (key, value) in json.as_object().into_iter().flatten() {
            if key == "." {
                set.member = true;
                continue;
            }
            let mut child = Fields::read(value);
            child.member |= child.below.is_empty();
            set.below.insert(key.clone(), child);
        }
        set
    }

    /// The JSON of an entry.
    pub(super) fn write(self) -> Value {
        let mut json = Map::new();
        if self.member && !self.below.is_empty() {
            json.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (key, child) in self.below {
            json.insert(key, child.write());
        }
        Value::Object(json)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Puts a node below.
    pub(super) fn put(&mut self, key: String, below: Fields) {
        self.below.insert(key, below);
    }

    pub(super) fn child(&mut self, key: &str) -> Option<&mut Fields> {
        self.below.get_mut(key)
    }

    /// Makes this node a member.
    pub(super) fn enter(&mut self) {
        self.member = true;
    }

    /// Makes this node no member; what is below stays.
    pub(super) fn leave(&mut self) {
        self.member = false;
    }

    /// Takes a child with everything below it out.
    pub(super) fn take(&mut self, key: &str) {
        self.below.remove(key);
    }

    /// Takes all other children out.
    pub(super) fn keep_only(&mut self, keys: &[&str]) {
        self.below.retain(|key, _| keys.contains(&key.as_str()));
    }

    /// Takes nodes out that hold nothing any more.
    pub(super) fn prune(&mut self) {
        self.below.retain(|_, child| {
            child.prune();
            !child.is_empty()
        });
    }

    /// Adds another set.
    pub(super) fn add(&mut self, other: Fields) {
        self.member |= other.member;
        for (key, child) in other.below {
            self.below.entry(key).or_default().add(child);
        }
    }

    /// Takes the members of another set out. Tells whether there were any.
    pub(super) fn remove(&mut self, other: &Fields) -> bool {
        let mut changed = self.member && other.member;
        self.member &= !other.member;
        for (key, theirs) in &other.below {
            let Some(ours) = self.below.get_mut(key) else { continue };
            changed |= ours.remove(theirs);
            if ours.is_empty() {
                self.below.remove(key);
            }
        }
        changed
    }
}

/// `f:name`.
pub(super) fn field_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + 2);
    key.push_str("f:");
    key.push_str(name);
    key
}

/// `v:"value"`.
pub(super) fn value_key(value: &Value) -> String {
    format!("v:{value}")
}

/// `k:{"name":"c"}`: the keys of an element of a list that is a map, by name; a key that is missing has its default.
pub(super) fn element_key(field: Field<'_>, element: Element<'_>, item: &Value) -> String {
    let mut keys: Vec<&str> = field.map_keys().collect();
    keys.sort_unstable();
    let mut json = Map::new();
    for key in keys {
        let value = item.get(key).cloned().or_else(|| default_of(element, key));
        json.insert(key.to_owned(), value.unwrap_or(Value::Null));
    }
    format!("k:{}", Value::Object(json))
}

fn default_of(element: Element<'_>, key: &str) -> Option<Value> {
    let Type::Schema(schema) = element.ty() else {
        return None;
    };
    serde_json::from_str(schema.field(key)?.default_json()?).ok()
}
