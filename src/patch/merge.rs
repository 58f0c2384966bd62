//! Merge patch, RFC 7386.

use serde_json::{Map, Value};

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
    for (key, value) in patch {
        if value.is_null() {
            object.remove(&key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}
