//! Conditions of Pods that the server itself notes.

use crate::tree::{Value, json};

use super::object;
/// Notes a condition that holds from now on, if it did not before.
pub(super) fn set_condition(pod: &mut Value, kind: &str, reason: &str, message: &str) {
    let present = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|present| present["type"] == kind && present["status"] == "True");
    let since = present.map_or_else(
        || object::time(object::now_s()).into(),
        |present| present["lastTransitionTime"].clone(),
    );
    let mut condition = json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": since,
    });
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    object::set_condition(pod, condition);
}
