//! Whether a node takes a Pod that was sent to it: somebody may have given it the node past the scheduler.

use super::work::Node;
use crate::api::status::Status;
use crate::resources::{ResourceRef, host_ports};
use crate::store::{Range, Requirement, Selection};
use crate::tree::Value;

/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// Why a Pod is not taken, as its status says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: &'static str,
    pub(super) message: &'static str,
}

/// What a kubelet calls a conflict of host ports.
const PORTS: Rejection = Rejection {
    reason: "NodePorts",
    message: "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
};

/// Whether a node refuses a Pod that it sees for the first time. Costs a look at the Pods of the node if the Pod wants ports of it,
/// else nothing.
///
/// # Errors
/// 500 when what is stored is damaged.
pub(super) fn rejection(node: &Node, pods: &ResourceRef, pod: &Value) -> Result<Option<Rejection>, Status> {
    let is_new = pod["status"]["startTime"].is_null() && pod["metadata"]["deletionTimestamp"].is_null();
    if !is_new || host_ports(pod).next().is_none() {
        return Ok(None);
    }
    let on_node = Selection {
        requirements: vec![Requirement::FieldIs {
            name: "spec.nodeName".to_owned(),
            value: node.name.clone(),
        }],
    };
    let view = node.client.store().view();
    let mut listing = view.list("pods", Range::default(), &on_node);
    while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
        for object in run.objects() {
            if is_in_the_way(pod, &node.client.read(pods, &object)?) {
                return Ok(Some(PORTS));
            }
        }
    }
    Ok(None)
}

/// Whether another Pod of the node has a port that this one wants. Of two that have not begun it is the older one that does.
fn is_in_the_way(pod: &Value, other: &Value) -> bool {
    let age = |pod: &Value| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or("").to_owned();
        (text("creationTimestamp"), text("uid"))
    };
    let is_over = matches!(other["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let is_before = !other["status"]["startTime"].is_null() || age(other) < age(pod);
    pod["metadata"]["uid"] != other["metadata"]["uid"]
        && !is_over
        && is_before
        && host_ports(pod).any(|port| host_ports(other).any(|taken| taken.conflicts(&port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn pod(uid: &str, port: i64, status: &Value) -> Value {
        json!({"metadata": {"uid": uid, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"containers": [{"ports": [{"hostPort": port}]}]}, "status": status.clone()})
    }

    #[test]
    fn a_port_is_its_first_pods_until_that_is_over() {
        let new = pod("b", 80, &json!({}));
        let started = json!({"startTime": "2020-01-01T00:00:00Z", "phase": "Running"});
        let over = json!({"startTime": "2020-01-01T00:00:00Z", "phase": "Failed"});
        assert!(is_in_the_way(&new, &pod("c", 80, &started)));
        assert!(!is_in_the_way(&new, &pod("c", 81, &started)));
        assert!(!is_in_the_way(&new, &pod("c", 80, &over)));
        assert!(!is_in_the_way(&new, &pod("b", 80, &started)));
        assert!(is_in_the_way(&new, &pod("a", 80, &json!({}))));
        assert!(!is_in_the_way(&new, &pod("c", 80, &json!({}))));
    }
}
