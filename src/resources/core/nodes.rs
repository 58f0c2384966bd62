//! Nodes.

use crate::tree::{Value, json};

use crate::resources::edit::{default_at, object_at, remove_at, set_at};
use crate::resources::lookup::{boolean, condition, list, map, present, text};
use crate::resources::row::{Row, or_none};

pub(super) fn cells(row: &mut Row<'_>) {
    let node = row.object;
    let kernel = match (
        text(node, "/status/nodeInfo/kernelVersion"),
        text(node, "/status/nodeInfo/architecture"),
    ) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    row.name()
        .text(status(node))
        .text(roles(node))
        .age()
        .text_at("/status/nodeInfo/kubeletVersion")
        .text(address(node, "InternalIP"))
        .text(address(node, "ExternalIP"))
        .text_or("/status/nodeInfo/osImage", "<unknown>")
        .text(kernel)
        .text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>");
}

fn status(node: &Value) -> String {
    let ready = match condition(node, "Ready").map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = boolean(node, "/spec/unschedulable") == Some(true);
    if cordoned {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.to_owned()
    }
}

/// Roles come from labels: `node-role.kubernetes.io/ROLE` with any value, `kubernetes.io/role` with the role as value.
fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = map(node, "/metadata/labels")
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| match name.as_str() {
            "kubernetes.io/role" => value.as_str(),
            name => name.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    or_none(roles.join(","))
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = list(node, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == kind);
    found.map_or("<none>", |address| text(address, "/address"))
}

/// The first range of addresses for Pods stands in a field of its own, too.
pub(super) fn defaults(node: &mut Value) {
    let one = text(node, "/spec/podCIDR").to_owned();
    match list(node, "/spec/podCIDRs").first().cloned() {
        Some(first) => set_at(node, "/spec", "podCIDR", first),
        None if !one.is_empty() => set_at(node, "/spec", "podCIDRs", json!([one])),
        None => {}
    }
}

/// Configuration of kubelets through the API is a feature that was removed.
pub(super) fn drop_removed(old: Option<&Value>, node: &mut Value) {
    for (parent, field, pointer) in [
        ("/spec", "configSource", "/spec/configSource"),
        ("/status", "config", "/status/config"),
    ] {
        if present(node, pointer) && !old.is_some_and(|old| present(old, pointer)) {
            remove_at(node, parent, field);
        }
    }
}

/// A new node takes no Pods before it is ready.
pub(super) fn prepare_create(node: &mut Value) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    drop_removed(None, node);
    object_at(node, "/spec");
    default_at(node, "/spec", "taints", json!([]));
    if let Some(Value::Array(taints)) = node.pointer_mut("/spec/taints")
        && !taints
            .iter()
            .any(|taint| text(taint, "/key") == NOT_READY && text(taint, "/effect") == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
