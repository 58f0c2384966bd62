//! Which old value a new one is compared with, and whether they are the same: errors of what did not change are not told
//! (KEP-4008, CRD validation ratcheting).

use std::collections::HashMap;

use super::arena::{ListType, Node};
use super::list_types::key_of;
use crate::tree::{List, Value};

/// Up to so many items are looked through one by one.
const LOOKED_THROUGH_MAX: usize = 16;

/// The old items of a list, to be found by what the new ones say.
pub(super) struct OldItems<'o> {
    node: Node<'o>,
    old: &'o List,
    by_key: Option<HashMap<String, usize>>,
}

impl<'o> OldItems<'o> {
    /// None for lists whose items cannot be told apart: sets and atomic ones.
    pub(super) fn of(node: Node<'o>, old: Option<&'o Value>) -> Option<OldItems<'o>> {
        let old = old?.as_array()?;
        let by_key = match node.list_type() {
            ListType::Atomic | ListType::Set => return None,
            ListType::Map if old.len() > LOOKED_THROUGH_MAX => {
                let mut by_key = HashMap::with_capacity(old.len());
                for (at, item) in old.iter().enumerate() {
                    by_key.entry(key_of(node, item)).or_insert(at);
                }
                Some(by_key)
            }
            _ => None,
        };
        Some(OldItems { node, old, by_key })
    }

    /// The old item that a new one, at a place of the new list, is compared with.
    pub(super) fn of_new(&self, at: usize, item: &Value) -> Option<&'o Value> {
        let found = match (self.node.list_type(), &self.by_key) {
            (ListType::Map, Some(by_key)) => by_key.get(&key_of(self.node, item)).and_then(|at| self.old.get(*at)),
            (ListType::Map, None) => {
                let key = key_of(self.node, item);
                self.old.iter().find(|old| key_of(self.node, old) == key)
            }
            _ => self.old.get(at),
        };
        let told_apart = self.node.list_type() != ListType::Map || item.is_object();
        found.filter(|found| told_apart && !found.is_null())
    }
}

/// Whether a value is the one that it was, for its schema: items of a list that is a map may have moved; fields that the
/// schema does not name are never the same.
pub(super) fn is_same(node: Node<'_>, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old_items), Value::Array(new_items)) => {
            if old_items.len() != new_items.len() {
                return false;
            }
            let (Some(items), Some(found)) = (node.items(), OldItems::of(node, Some(old))) else {
                return old == new;
            };
            let by_key = node.list_type() == ListType::Map;
            for (at, item) in new_items.iter().enumerate() {
                match found.of_new(at, item) {
                    Some(old) if is_same(items, old, item) => {}
                    Some(_) => return false,
                    None if by_key => return false,
                    None => return old == new,
                }
            }
            true
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && new.iter().all(|(name, value)| {
                    let same = |schema| old.get(name).is_some_and(|old| is_same(schema, old, value));
                    node.of_field(name).is_some_and(same)
                })
        }
        _ => old == new,
    }
}
