//! What a Pod gives to a Service: addresses, ports, readiness.

use std::net::IpAddr;

use serde::Deserialize;

use crate::controllers::failure::Failure;
use crate::store::Object;
use crate::tree::{Value, json};

/// The part of a Pod that Services go by. Read without making a tree of the Pod.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Backend {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) node_name: String,
    pub(super) hostname: String,
    pub(super) subdomain: String,
    pub(super) containers: Vec<Container>,
    pub(super) init_containers: Vec<Container>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    restart_policy: Option<String>,
    ports: Vec<Port>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: String,
    container_port: i64,
    protocol: String,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    phase: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<Address>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Address {
    ip: String,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    last_transition_time: Option<String>,
}

impl Backend {
    pub(super) fn of(object: &Object) -> Result<Self, Failure> {
        let read = serde_json::from_slice(object.json()?);
        let mut backend: Self = read.map_err(|error| Failure::Metadata(object.key().to_owned(), error))?;
        // Other conditions come and go without any Service being concerned.
        backend
            .status
            .conditions
            .retain(|condition| condition.r#type == "Ready");
        Ok(backend)
    }

    /// Whether a Service may lead here: neither over nor without an address; a Pod that ends only where that is wanted.
    pub(super) fn counts(&self, with_ending: bool) -> bool {
        let is_over = matches!(self.status.phase.as_str(), "Succeeded" | "Failed");
        !is_over && !self.status.pod_ips.is_empty() && (with_ending || !self.is_ending())
    }

    pub(super) fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|condition| condition.status == "True")
    }

    /// When its readiness changed last, Unix seconds.
    pub(super) fn changed_s(&self) -> Option<i64> {
        let time = self.status.conditions.first()?.last_transition_time.as_deref()?;
        Some(time.parse::<jiff::Timestamp>().ok()?.as_second())
    }

    /// Its addresses of one family.
    pub(super) fn addresses(&self, family: Family) -> impl Iterator<Item = String> {
        let addresses = self.status.pod_ips.iter();
        addresses
            .filter_map(|address| address.ip.parse::<IpAddr>().ok())
            .filter(move |address| address.is_ipv4() == (family == Family::V4))
            .map(|address| address.to_string())
    }

    /// The name under which the Service has it, if it asks for one.
    pub(super) fn hostname(&self, service: &str) -> Option<&str> {
        let has_one = !self.spec.hostname.is_empty() && self.spec.subdomain == service;
        has_one.then_some(&self.spec.hostname)
    }

    /// `targetRef`
    pub(super) fn reference(&self) -> Value {
        let Meta {
            name, namespace, uid, ..
        } = &self.metadata;
        json!({"kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
    }

    /// The ports of a Service on this Pod, as an endpoint's; those that it does not have are left out.
    pub(super) fn ports(&self, service: &Value) -> Vec<Value> {
        let ports = service["spec"]["ports"].as_array();
        ports
            .into_iter()
            .flatten()
            .filter_map(|port| {
                let protocol = port["protocol"].as_str().unwrap_or("TCP");
                let number = self.port(&port["targetPort"], protocol)?;
                let mut endpoint =
                    json!({"name": port["name"].as_str().unwrap_or(""), "port": number, "protocol": protocol});
                if let Some(application) = port["appProtocol"].as_str() {
                    endpoint["appProtocol"] = application.into();
                }
                Some(endpoint)
            })
            .collect()
    }

    fn port(&self, target: &Value, protocol: &str) -> Option<i64> {
        let Some(name) = target.as_str() else {
            return target.as_i64();
        };
        let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let containers = self.spec.containers.iter();
        containers
            .chain(self.spec.init_containers.iter().filter(stays))
            .flat_map(|container| &container.ports)
            .find(|port| port.name == name && port.protocol == protocol)
            .map(|port| port.container_port)
    }
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// As Services and slices write it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// Those of a Service, its first one first.
    pub(super) fn of_service(service: &Value) -> Vec<Family> {
        let families = service["spec"]["ipFamilies"].as_array();
        let named: Vec<Family> = families
            .into_iter()
            .flatten()
            .filter_map(|family| match family.as_str() {
                Some("IPv4") => Some(Family::V4),
                Some("IPv6") => Some(Family::V6),
                _ => None,
            })
            .collect();
        if !named.is_empty() {
            return named;
        }
        match service["spec"]["clusterIP"].as_str().map(str::parse::<IpAddr>) {
            Some(Ok(IpAddr::V4(_))) => vec![Family::V4],
            Some(Ok(IpAddr::V6(_))) => vec![Family::V6],
            _ => vec![Family::V4, Family::V6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_ports_are_those_of_containers_that_stay() {
        let backend: Backend = serde_json::from_str(
            r#"{"spec": {"containers": [{"ports": [{"name": "web", "containerPort": 80, "protocol": "TCP"},
                {"name": "web", "containerPort": 81, "protocol": "UDP"}]}],
                "initContainers": [{"ports": [{"name": "once", "containerPort": 90, "protocol": "TCP"}]},
                {"restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 91, "protocol": "TCP"}]}]}}"#,
        )
        .unwrap();
        let service = json!({"spec": {"ports": [
            {"name": "a", "protocol": "TCP", "targetPort": "web", "appProtocol": "http"},
            {"name": "b", "protocol": "UDP", "targetPort": "web"},
            {"name": "c", "protocol": "TCP", "targetPort": "once"},
            {"name": "d", "protocol": "TCP", "targetPort": "side"},
            {"protocol": "TCP", "targetPort": 5},
        ]}});
        let found = backend.ports(&service);
        let numbers: Vec<_> = found.iter().map(|port| port["port"].as_i64().unwrap()).collect();
        assert_eq!(numbers, [80, 81, 91, 5]);
        assert_eq!(found[0]["appProtocol"], "http");
        assert_eq!(found[3], json!({"name": "", "port": 5, "protocol": "TCP"}));
    }

    #[test]
    fn addresses_are_of_one_family_and_written_one_way() {
        let backend: Backend =
            serde_json::from_str(r#"{"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00:0::1"}, {"ip": "?"}]}}"#)
                .unwrap();
        assert_eq!(backend.addresses(Family::V4).collect::<Vec<_>>(), ["10.0.0.1"]);
        assert_eq!(backend.addresses(Family::V6).collect::<Vec<_>>(), ["fd00::1"]);
        assert!(backend.counts(false));
    }

    #[test]
    fn families_follow_the_service() {
        let of = |spec: Value| Family::of_service(&json!({"spec": spec}));
        assert_eq!(of(json!({"ipFamilies": ["IPv6", "IPv4"]})), [Family::V6, Family::V4]);
        assert_eq!(of(json!({"clusterIP": "fd00::1"})), [Family::V6]);
        assert_eq!(of(json!({"clusterIP": "None"})), [Family::V4, Family::V6]);
    }
}
