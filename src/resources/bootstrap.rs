//! Objects that the API server itself makes: namespaces, the Service `kubernetes`, system priority classes, flow control.

use std::net::IpAddr;

use crate::tree::{Value, json};

use super::lookup::text;
use super::{Context, Resource, find, prepare_create};

/// The objects of `facts/bootstrap.jsonl`, ready to be written where they are missing, in an order in which each can be
/// written: namespaces first. With uid and creation time; status included.
pub fn bootstrap(now_s: i64) -> Vec<(&'static Resource, Value)> {
    include_str!("facts/bootstrap.jsonl")
        .lines()
        .filter_map(|line| object(line, now_s))
        .collect()
}

/// The roles and bindings of `facts/bootstrap-rbac.jsonl` (43 KB, read at the start alone), as they are where nobody changed
/// them: what controllers, nodes and clients of every kind need.
pub fn bootstrap_rbac(now_s: i64) -> Vec<(&'static Resource, Value)> {
    include_str!("facts/bootstrap-rbac.jsonl")
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .flat_map(|line: Value| roles_and_bindings(&line))
        .filter_map(|object| made(object, now_s))
        .collect()
}

/// What a line stands for. A controller's role is bound to the controller's service account.
fn roles_and_bindings(line: &Value) -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let named = |kind: &str| {
        let mut metadata = json!({
            "name": text(line, "/name"),
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        });
        if let Some(Value::Object(labels)) = line.get("labels") {
            for (label, value) in labels {
                metadata["labels"][label] = value.clone();
            }
        }
        if let Some(namespace) = line.get("namespace") {
            metadata["namespace"] = namespace.clone();
        }
        let plural = format!("{}s", kind.to_ascii_lowercase());
        json!({"resource": [GROUP, "v1", plural], "object": {"metadata": metadata}})
    };
    let binding = |kind: &str, role: &str, subjects: Option<Value>| {
        let mut made = named(kind);
        let role_kind = kind.trim_end_matches("Binding");
        made["object"]["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
        if let Some(subjects) = subjects {
            made["object"]["subjects"] = subjects;
        }
        made
    };
    let (kind, name) = (text(line, "/kind"), text(line, "/name"));
    if kind.ends_with("Binding") {
        return vec![binding(kind, text(line, "/role"), line.get("subjects").cloned())];
    }
    let mut role = named(kind);
    for field in ["rules", "aggregationRule"] {
        if let Some(value) = line.get(field) {
            role["object"][field] = value.clone();
        }
    }
    let mut made = vec![role];
    if let (Some(controller), "ClusterRole") = (name.strip_prefix("system:controller:"), kind) {
        let account = json!([{"kind": "ServiceAccount", "name": controller, "namespace": "kube-system"}]);
        made.push(binding("ClusterRoleBinding", name, Some(account)));
    }
    made
}

/// The Endpoints and the EndpointSlice of the Service `default/kubernetes`: where this server is reached.
pub fn own_endpoints(now_s: i64, address: IpAddr, port: u16) -> Vec<(&'static Resource, Value)> {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let address = address.to_string();
    let endpoints = json!({
        "resource": ["", "v1", "endpoints"],
        "object": {
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
        },
    });
    let slice = json!({
        "resource": ["discovery.k8s.io", "v1", "endpointslices"],
        "object": {
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": ports,
        },
    });
    [endpoints, slice]
        .into_iter()
        .filter_map(|line| made(line, now_s))
        .collect()
}

/// The `APIService` of a version of this server's own custom resources.
pub fn own_api_service(now_s: i64, group: &str, version: &str) -> Option<(&'static Resource, Value)> {
    let status = json!({"conditions": [{
        "type": "Available",
        "status": "True",
        "reason": "Local",
        "message": "Local APIServices are always available",
    }]});
    let line = json!({
        "resource": ["apiregistration.k8s.io", "v1", "apiservices"],
        "object": {
            "metadata": {
                "name": format!("{version}.{group}"),
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
            },
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
            "status": status,
        },
    });
    made(line, now_s)
}

fn object(line: &str, now_s: i64) -> Option<(&'static Resource, Value)> {
    made(serde_json::from_str(line).ok()?, now_s)
}

fn made(mut line: Value, now_s: i64) -> Option<(&'static Resource, Value)> {
    let resource = find(
        text(&line, "/resource/0"),
        text(&line, "/resource/1"),
        text(&line, "/resource/2"),
    )?;
    let mut object = line.get_mut("object")?.take();
    let mut status = object.get("status").cloned();
    if let Some(Value::Array(conditions)) = status.as_mut().and_then(|status| status.get_mut("conditions")) {
        for condition in conditions {
            condition["lastTransitionTime"] = super::strategy::time_text(now_s).into();
        }
    }
    let namespace = text(&object, "/metadata/namespace").to_owned();
    let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
    prepare_create(
        resource,
        &mut object,
        &Context {
            now_s,
            namespace,
            name: None,
            asked: None,
        },
    )
    .ok()?;
    if let Some(status) = status {
        object["status"] = status;
    }
    Some((resource, object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_table_is_made() {
        let objects = bootstrap(1_767_300_000);
        assert_eq!(objects.len(), include_str!("facts/bootstrap.jsonl").lines().count());
        let (resource, first) = &objects[0];
        assert_eq!(
            (&*resource.kind, text(first, "/metadata/name")),
            ("Namespace", "default")
        );
        for (resource, object) in &objects {
            super::super::encode(resource, object).unwrap();
        }
        let roles = bootstrap_rbac(1_767_300_000);
        let lines = include_str!("facts/bootstrap-rbac.jsonl").lines();
        let controllers = lines
            .clone()
            .filter(|line| line.contains(r#""ClusterRole","name":"system:controller:"#));
        assert_eq!(roles.len(), lines.count() + controllers.count());
        for (resource, object) in &roles {
            super::super::encode(resource, object).unwrap();
        }
    }
}
