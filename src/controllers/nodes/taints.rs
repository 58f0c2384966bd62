//! Which taints a node's conditions ask for, and what Pods tolerate of them.
//!
//! Rules: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use crate::resources::{condition, time_text};
use crate::tree::{Value, json};

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Set by a person who knows that a machine is off.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Conditions whose truth keeps new Pods off.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

pub(super) fn of(node: &Value) -> &[Value] {
    node["spec"]["taints"]
        .as_array()
        .map_or(&[], |taints| taints.as_slice())
}

/// What a node says of itself, as `Ready` has it: `True`, `False`, `Unknown`; `None` before its first word.
pub(super) fn readiness(node: &Value) -> Option<&str> {
    condition(node, "Ready").map(|ready| ready["status"].as_str().unwrap_or("Unknown"))
}

/// The key of the taint that a node that is not ready has; `None` for one that is, or has not said.
pub(super) fn of_readiness(readiness: Option<&str>) -> Option<&'static str> {
    match readiness? {
        "True" => None,
        "False" => Some(NOT_READY),
        _ => Some(UNREACHABLE),
    }
}

pub(super) fn has(node: &Value, key: &str, effect: &str) -> bool {
    of(node)
        .iter()
        .any(|taint| taint["key"] == key && taint["effect"] == effect)
}

fn wants(node: &Value, key: &str) -> bool {
    let is_true = |kind: &str| condition(node, kind).is_some_and(|condition| condition["status"] == "True");
    match key {
        UNSCHEDULABLE => node["spec"]["unschedulable"] == true,
        NOT_READY | UNREACHABLE => of_readiness(readiness(node)) == Some(key),
        _ => PRESSURES.iter().any(|(kind, taint)| *taint == key && is_true(kind)),
    }
}

/// The taints that a node should have: those of its conditions with the effect `NoSchedule`, and with `NoExecute` that one alone of
/// [`NOT_READY`] and [`UNREACHABLE`] that is `evicting`. Others stay. `None`: it has them.
pub(super) fn settled(node: &Value, evicting: Option<&str>, now_s: i64) -> Option<Value> {
    let own = || {
        [UNSCHEDULABLE, NOT_READY, UNREACHABLE]
            .into_iter()
            .chain(PRESSURES.map(|(_, key)| key))
    };
    let mut taints: Vec<Value> = of(node).to_vec();
    taints.retain(|taint| {
        let key = taint["key"].as_str().unwrap_or("");
        match taint["effect"].as_str() {
            Some("NoSchedule") => !own().any(|own| own == key) || wants(node, key),
            Some("NoExecute") if matches!(key, NOT_READY | UNREACHABLE) => evicting == Some(key),
            _ => true,
        }
    });
    let mut add = |key: &str, effect: &str| {
        let is_it = |taint: &Value| taint["key"] == key && taint["effect"] == effect;
        if !taints.iter().any(is_it) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": time_text(now_s)}));
        }
    };
    own()
        .filter(|key| wants(node, key))
        .for_each(|key| add(key, "NoSchedule"));
    if let Some(key) = evicting {
        add(key, "NoExecute");
    }
    (taints != of(node)).then(|| taints.into())
}

/// How long a Pod may stay with these taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stay {
    Forever,
    /// From the moment when it was seen with them, seconds.
    For(u64),
    /// It tolerates one of them not at all.
    NotAtAll,
}

/// How long a Pod may stay on a node with these taints, of which those with `NoExecute` count. Of several tolerations the first that
/// fits a taint counts; of several taints the shortest time.
pub(super) fn stay(pod: &Value, taints: &[Value]) -> Stay {
    let tolerations = pod["spec"]["tolerations"]
        .as_array()
        .map_or(&[][..], |list| list.as_slice());
    let mut shortest: Option<u64> = None;
    for taint in taints.iter().filter(|taint| taint["effect"] == "NoExecute") {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Stay::NotAtAll;
        };
        if let Some(seconds) = toleration["tolerationSeconds"].as_i64() {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    shortest.map_or(Stay::Forever, Stay::For)
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let fits = |field: &str| {
        let wanted = text(&toleration[field]);
        wanted.is_empty() || taint[field] == *wanted
    };
    let (own, other) = (text(&toleration["value"]), text(&taint["value"]));
    let numbers = || Some((other.parse::<i64>().ok()?, own.parse::<i64>().ok()?));
    fits("effect")
        && fits("key")
        && match toleration["operator"].as_str().unwrap_or("") {
            "" | "Equal" => own == other,
            "Exists" => true,
            "Gt" => numbers().is_some_and(|(taint, bound)| taint > bound),
            "Lt" => numbers().is_some_and(|(taint, bound)| taint < bound),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &Value, taints: &Value, unschedulable: bool) -> Value {
        json!({"spec": {"taints": taints, "unschedulable": unschedulable}, "status": {"conditions": conditions}})
    }

    fn keys(taints: &Value) -> Vec<String> {
        let list = taints.as_array().unwrap().iter();
        list.map(|taint| {
            format!(
                "{}:{}",
                taint["key"].as_str().unwrap(),
                taint["effect"].as_str().unwrap()
            )
        })
        .map(|text| text.replace("node.kubernetes.io/", ""))
        .collect()
    }

    #[test]
    fn conditions_become_taints_and_others_stay() {
        let ready = json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]);
        let old = json!([
            {"key": "mine", "effect": "NoSchedule"},
            {"key": NOT_READY, "effect": "NoSchedule"},
            {"key": UNREACHABLE, "effect": "NoExecute"},
        ]);
        let found = settled(&node(&ready, &old, true), None, 0).unwrap();
        assert_eq!(
            keys(&found),
            [
                "mine:NoSchedule",
                "unschedulable:NoSchedule",
                "disk-pressure:NoSchedule"
            ]
        );
        assert_eq!(settled(&node(&ready, &found, true), None, 9), None);

        let unknown = json!([{"type": "Ready", "status": "Unknown"}]);
        let found = settled(
            &node(&unknown, &json!([{"key": NOT_READY, "effect": "NoExecute"}]), false),
            Some(UNREACHABLE),
            0,
        );
        assert_eq!(
            keys(&found.unwrap()),
            ["unreachable:NoSchedule", "unreachable:NoExecute"]
        );
        let silent = node(&json!([]), &json!([{"key": NOT_READY, "effect": "NoSchedule"}]), false);
        assert_eq!(settled(&silent, None, 0).unwrap(), json!([]));
    }

    #[test]
    fn a_pod_stays_as_long_as_the_shortest_of_its_first_fitting_tolerations() {
        let taints = json!([
            {"key": "a", "value": "1", "effect": "NoExecute"},
            {"key": "b", "effect": "NoExecute"},
            {"key": "c", "effect": "NoSchedule"},
        ]);
        let taints = taints.as_array().unwrap().as_slice();
        let stay = |tolerations: Value| stay(&json!({"spec": {"tolerations": tolerations}}), taints);
        assert_eq!(stay(json!([])), Stay::NotAtAll);
        assert_eq!(stay(json!([{"operator": "Exists"}])), Stay::Forever);
        assert_eq!(
            stay(json!([{"key": "a", "value": "1"}, {"key": "b", "operator": "Exists", "tolerationSeconds": 9}])),
            Stay::For(9)
        );
        assert_eq!(
            stay(json!([{"key": "a", "value": "2"}, {"key": "b", "operator": "Exists"}])),
            Stay::NotAtAll
        );
        let first = json!([
            {"operator": "Exists", "tolerationSeconds": -4},
            {"operator": "Exists", "tolerationSeconds": 60},
        ]);
        assert_eq!(stay(first), Stay::For(0));
        assert_eq!(super::stay(&json!({}), &taints[2..]), Stay::Forever);
    }
}
