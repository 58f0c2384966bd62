//! A set of fields taken apart, for entries that lose or gain some.

use std::collections::BTreeMap;

use super::trail::{Branches, Name};
use crate::tree::{Text, Value, write_text};

/// A set of fields as a tree: what is in it itself, and what is below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields {
    member: bool,
    below: BTreeMap<String, Fields>,
}

impl Fields {
    /// From the value of an entry's `fieldsV1`, taken apart or not.
    pub(super) fn of(value: &Value) -> Fields {
        match value {
            Value::Raw(json) => serde_json::from_str(json)
                .map(|value| Fields::read(&value))
                .unwrap_or_default(),
            value => Fields::read(value),
        }
    }

    /// From the JSON of an entry. A node without children is a member; one with children says so with `"."`.
    fn read(json: &Value) -> Fields {
        let mut set = Fields::default();
        for (key, value) in json.as_object().into_iter().flatten() {
            if key == "." {
                set.member = true;
                continue;
            }
            let mut child = Fields::read(value);
            child.member |= child.below.is_empty();
            set.below.insert(key.to_string(), child);
        }
        set
    }

    /// The value of an entry's `fieldsV1`.
    pub(super) fn write(&self) -> Value {
        let mut json = Vec::with_capacity(512);
        self.write_node(&mut json);
        Value::Raw(Text::from(std::str::from_utf8(&json).unwrap_or("{}")))
    }

    fn write_node(&self, json: &mut Vec<u8>) {
        json.push(b'{');
        if self.member && !self.below.is_empty() {
            json.extend_from_slice(b"\".\":{}");
        }
        for (key, child) in &self.below {
            if json.last() != Some(&b'{') {
                json.push(b',');
            }
            write_text(key, json);
            json.push(b':');
            child.write_node(json);
        }
        json.push(b'}');
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Adds another set.
    pub(super) fn add(&mut self, other: Fields) {
        self.member |= other.member;
        for (key, child) in other.below {
            self.below.entry(key).or_default().add(child);
        }
    }

    /// Adds what a walk found.
    pub(super) fn add_found(&mut self, found: Branches<'_, '_>) {
        for branch in found {
            let child = self.below.entry(key_of(branch.name)).or_default();
            child.member |= branch.member;
            child.add_found(branch.below);
        }
    }

    /// Takes the members of what a walk found out. Tells whether there were any.
    pub(super) fn remove_found(&mut self, found: Branches<'_, '_>) -> bool {
        let mut changed = false;
        for branch in found {
            let key = key_of(branch.name);
            let Some(ours) = self.below.get_mut(&key) else { continue };
            if branch.member {
                changed |= ours.member;
                ours.member = false;
            }
            changed |= ours.remove_found(branch.below);
            if ours.is_empty() {
                self.below.remove(&key);
            }
        }
        changed
    }
}

fn key_of(name: &Name<'_>) -> String {
    match name {
        Name::Field(name) => format!("f:{name}"),
        Name::Element(name) => name.to_string(),
    }
}
