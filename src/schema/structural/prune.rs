//! Pruning: what the schema does not name is dropped, as are nulls that may not be there.

use super::arena::{Flags, Node, Structural};
use super::path::Path;
use super::{DEPTH_MAX, UNKNOWN_MAX};
use crate::schema::FieldError;
use crate::tree::{List, Map, Value};

/// Fields that every API object has; no schema prunes them.
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// An object that is nested deeper than any schema is not followed further.
pub(super) const VALUE_DEPTH_MAX: usize = 10 * DEPTH_MAX;

impl Structural {
    /// Drops the fields of an object that the schema does not name, and nulls where null is no value and there is no default;
    /// writes whole numbers as such; brings the metadata of embedded resources into the form that it has. `apiVersion`, `kind` and `metadata` of the
    /// object itself are left alone. What needs no change keeps its memory.
    ///
    /// Returns the paths of what was dropped because it was unknown, sorted: `spec.foo`, `spec.list[0].bar`; at most
    /// `UNKNOWN_MAX` of them.
    ///
    /// # Errors
    /// Metadata of an embedded resource that cannot be read as such.
    pub fn prune(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        let mut pruner = Pruner {
            unknown: Vec::new(),
            depth: 0,
        };
        if let Some(pruned) = pruner.prune(Some(self.root()), true, object, &Path::ROOT) {
            *object = pruned;
        }
        if let Some(changed) = without_nulls(Some(self.root()), object, 0) {
            *object = changed;
        }
        if let Some(changed) = super::numbers::with_whole(object, 0) {
            *object = changed;
        }
        pruner.unknown.sort_unstable();
        if self.root().is(Flags::EMBEDS) {
            let mut found = super::embedded::coerce(self, object)?;
            let room = UNKNOWN_MAX - pruner.unknown.len().min(UNKNOWN_MAX);
            found.truncate(room);
            pruner.unknown.append(&mut found);
        }
        Ok(pruner.unknown)
    }

    /// Whether a value of a schema within has fields that the schema does not name. `root`: it is a whole API object.
    pub(crate) fn has_unknown(node: Node<'_>, root: bool, value: &Value) -> bool {
        let mut pruner = Pruner {
            unknown: Vec::new(),
            depth: 0,
        };
        pruner.prune(Some(node), root, value, &Path::ROOT).is_some()
    }
}

struct Pruner {
    unknown: Vec<String>,
    depth: usize,
}

impl Pruner {
    /// The value pruned; `None` when it stays as it is.
    fn prune(&mut self, node: Option<Node<'_>>, root: bool, value: &Value, path: &Path<'_>) -> Option<Value> {
        let keeps = node.is_some_and(Node::preserves_unknown);
        self.value(node, keeps, root, value, path)
    }

    /// `keeps`: what the schema does not name stays, and only what it names is pruned.
    fn value(
        &mut self,
        node: Option<Node<'_>>,
        keeps: bool,
        root: bool,
        value: &Value,
        path: &Path<'_>,
    ) -> Option<Value> {
        if self.depth > VALUE_DEPTH_MAX || keeps && node.is_none() {
            return None;
        }
        self.depth += 1;
        let pruned = match value {
            Value::Object(map) => self.object(node, keeps, root, map, path).map(Value::Object),
            Value::Array(list) => self.list(node, keeps, list, path).map(Value::Array),
            _ => None,
        };
        self.depth -= 1;
        pruned
    }

    fn object(&mut self, node: Option<Node<'_>>, keeps: bool, root: bool, map: &Map, path: &Path<'_>) -> Option<Map> {
        let whole = root || node.is_some_and(Node::embedded);
        let mut changed: Option<Map> = None;
        let mut gone: Vec<usize> = Vec::new();
        for (at, (name, value)) in map.iter().enumerate() {
            if whole && HEAD.contains(&name.as_str()) {
                continue;
            }
            let path = path.field(name);
            let schema = match node.and_then(|node| node.field(name)) {
                Some(known) => Some(known),
                None if node.is_some_and(|node| node.additional().is_some()) => node.and_then(Node::additional_schema),
                None if keeps => continue,
                None => {
                    if self.unknown.len() < UNKNOWN_MAX {
                        self.unknown.push(path.to_string());
                    }
                    gone.push(at);
                    continue;
                }
            };
            if let Some(pruned) = self.prune(schema, false, value, &path) {
                *changed.get_or_insert_with(|| map.clone()).value_at_mut(at) = pruned;
            }
        }
        if gone.is_empty() {
            return changed;
        }
        let mut changed = changed.unwrap_or_else(|| map.clone());
        let (mut at, mut gone) = (0, gone.into_iter().peekable());
        changed.retain(|_, _| {
            let keep = gone.next_if_eq(&at).is_none();
            at += 1;
            keep
        });
        Some(changed)
    }

    fn list(&mut self, node: Option<Node<'_>>, keeps: bool, list: &List, path: &Path<'_>) -> Option<List> {
        let items = node.and_then(Node::items);
        let mut changed: Option<List> = None;
        for (at, item) in list.iter().enumerate() {
            let path = path.index(at);
            let keeps = keeps || items.is_some_and(Node::preserves_unknown);
            if let Some(pruned) = self.value(items, keeps, false, item, &path) {
                changed.get_or_insert_with(|| list.clone())[at] = pruned;
            }
        }
        changed
    }
}

/// The value without nulls where null is no value and there is no default to take their place; `None` when there are none.
fn without_nulls(node: Option<Node<'_>>, value: &Value, depth: usize) -> Option<Value> {
    let node = node?;
    if depth > VALUE_DEPTH_MAX {
        return None;
    }
    match value {
        Value::Object(map) => {
            let goes = |name: &str, value: &Value| {
                value.is_null()
                    && node
                        .of_field(name)
                        .is_some_and(|schema| !schema.nullable() && schema.default().is_none())
            };
            let mut changed: Option<Map> = None;
            let mut any_gone = false;
            for (at, (name, value)) in map.iter().enumerate() {
                if goes(name, value) {
                    any_gone = true;
                } else if let Some(below) = without_nulls(node.of_field(name), value, depth + 1) {
                    *changed.get_or_insert_with(|| map.clone()).value_at_mut(at) = below;
                }
            }
            if any_gone {
                changed
                    .get_or_insert_with(|| map.clone())
                    .retain(|name, value| !goes(name, value));
            }
            changed.map(Value::Object)
        }
        Value::Array(list) => {
            let mut changed: Option<List> = None;
            for (at, item) in list.iter().enumerate() {
                if let Some(below) = without_nulls(node.items(), item, depth + 1) {
                    changed.get_or_insert_with(|| list.clone())[at] = below;
                }
            }
            changed.map(Value::Array)
        }
        _ => None,
    }
}
