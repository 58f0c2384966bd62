//! Ports of a node that a Pod takes for itself.

use crate::resources::lookup::list;
use crate::tree::Value;

/// A port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPort<'a> {
    /// The node's address; `0.0.0.0` is all of them.
    pub ip: &'a str,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: &'a str,
    /// The port.
    pub number: i64,
}

impl HostPort<'_> {
    /// Whether both cannot be had on one node.
    pub fn conflicts(&self, other: &HostPort<'_>) -> bool {
        let every = |port: &HostPort<'_>| port.ip == "0.0.0.0";
        self.number == other.number
            && self.protocol == other.protocol
            && (self.ip == other.ip || every(self) || every(other))
    }
}

/// What the containers of a Pod and its sidecars take of their node.
pub fn host_ports(pod: &Value) -> impl Iterator<Item = HostPort<'_>> {
    let sidecars = list(pod, "/spec/initContainers").iter();
    let sidecars = sidecars.filter(|container| container["restartPolicy"] == "Always");
    let containers = list(pod, "/spec/containers").iter().chain(sidecars);
    containers
        .flat_map(|container| list(container, "/ports"))
        .filter_map(|port| {
            Some(HostPort {
                ip: port["hostIP"].as_str().filter(|ip| !ip.is_empty()).unwrap_or("0.0.0.0"),
                protocol: port["protocol"].as_str().unwrap_or("TCP"),
                number: port["hostPort"].as_i64().filter(|number| *number > 0)?,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_port_is_had_once_per_protocol_and_address() {
        let port = |ip, protocol, number| HostPort { ip, protocol, number };
        let all = port("0.0.0.0", "TCP", 80);
        assert!(all.conflicts(&port("127.0.0.1", "TCP", 80)) && all.conflicts(&all));
        assert!(!port("127.0.0.2", "TCP", 80).conflicts(&port("127.0.0.1", "TCP", 80)));
        assert!(!all.conflicts(&port("0.0.0.0", "UDP", 80)) && !all.conflicts(&port("0.0.0.0", "TCP", 81)));
        let pod = json!({"spec": {
            "initContainers": [{"ports": [{"hostPort": 1}]}, {"restartPolicy": "Always", "ports": [{"hostPort": 2}]}],
            "containers": [{"ports": [{"containerPort": 5}, {"hostPort": 80, "hostIP": "", "protocol": "UDP"}]}]}});
        let ports: Vec<HostPort<'_>> = host_ports(&pod).collect();
        assert_eq!(ports, [port("0.0.0.0", "UDP", 80), port("0.0.0.0", "TCP", 2)]);
    }
}
