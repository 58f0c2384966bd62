//! Merge patch, RFC 7386.

use crate::tree::{Map, Value};

/// Merges `patch` into `target`: objects merge key by key, null deletes, everything else replaces. O(size of `patch`).
///
/// The depth of recursion is that of `patch`, which its decoder has limited.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    // What comes and what goes is gathered, so that a large map is moved but once.
    let (mut added, mut removed) = (Map::new(), Map::new());
    for (key, value) in patch {
        if value.is_null() {
            removed.insert(key, Value::Null);
        } else if let Some(target) = object.get_mut(&key) {
            merge(target, value);
        } else {
            let mut target = Value::Null;
            merge(&mut target, value);
            added.insert(key, target);
        }
    }
    if !removed.is_empty() {
        object.retain(|key, _| !removed.contains_key(key));
    }
    object.extend(added);
}
