//! What a budget tells: counts, and what is allowed.

use std::collections::BTreeMap;

use super::expected::Counts;
use crate::controllers::condition;
use crate::tree::{Value, json};

const ALLOWED: &str = "DisruptionAllowed";

/// The status by what there is. `generation`: that of the budget that was looked at.
pub(super) fn of(
    old: &Value,
    counts: &Counts,
    healthy: i64,
    disrupted: &BTreeMap<String, Value>,
    generation: &Value,
    now_s: i64,
) -> Value {
    // Without Pods nothing is allowed: the first ones must not find a budget that is out of date.
    let allowed = if counts.expected <= 0 {
        0
    } else {
        (healthy - counts.desired).max(0)
    };
    let mut status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": counts.desired,
        "expectedPods": counts.expected,
        "disruptionsAllowed": allowed,
    });
    status["observedGeneration"] = generation.clone();
    if !disrupted.is_empty() {
        let pods = disrupted.iter();
        pods.for_each(|(name, since)| status["disruptedPods"][name.as_str()] = since.clone());
    }
    status["conditions"] = old["conditions"].clone();
    let what = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    condition::set(&mut status, ALLOWED, what, "", generation, now_s);
    status
}

/// The status when nothing can be told: nothing is allowed.
pub(super) fn failed(old: &Value, why: &str, now_s: i64) -> Value {
    let mut status = if old.is_object() { old.clone() } else { json!({}) };
    for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        if status[count].is_null() || count == "disruptionsAllowed" {
            status[count] = 0.into();
        }
    }
    let generation = status["observedGeneration"].clone();
    condition::set(&mut status, ALLOWED, ("False", "SyncFailed"), why, &generation, now_s);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_what_is_healthy_beyond_what_must_be() {
        let counts = |expected, desired| Counts {
            expected,
            desired,
            has_unmanaged: false,
        };
        let none = BTreeMap::new();
        let allowed = |counts: &Counts, healthy| of(&Value::Null, counts, healthy, &none, &1.into(), 0);
        assert_eq!(allowed(&counts(3, 2), 3)["disruptionsAllowed"], 1);
        assert_eq!(allowed(&counts(3, 2), 1)["disruptionsAllowed"], 0);
        let empty = allowed(&counts(0, 0), 0);
        assert_eq!(empty["conditions"][0]["reason"], "InsufficientPods");
        let failed = failed(&allowed(&counts(3, 2), 3), "no", 9);
        assert_eq!(
            (failed["disruptionsAllowed"].as_i64(), failed["expectedPods"].as_i64()),
            (Some(0), Some(3))
        );
        assert_eq!(failed["conditions"][0]["reason"], "SyncFailed");
        assert_eq!(failed["conditions"][0]["message"], "no");
    }
}
