//! Where the kubelet of a node is, and what it takes.

use serde::Deserialize;

use super::Backends;
use super::dial::NOT_ALLOWED;
use super::location::{Location, Reach, Tls, is_proxyable, split};
use crate::api::status::Status;
use crate::store::View;

/// The port of kubelets that tell none.
const KUBELET_PORT: u16 = 10250;
/// What a kubelet declares that takes `v5.channel.k8s.io` and tunnels of SPDY over WebSocket itself (from 1.36 on).
const TAKES_WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

#[derive(Deserialize, Default)]
struct Node {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    daemon_endpoints: Endpoints,
    #[serde(default)]
    declared_features: Vec<String>,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    address: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Endpoints {
    #[serde(default)]
    kubelet_endpoint: Endpoint,
}

#[derive(Deserialize, Default)]
struct Endpoint {
    #[serde(default, rename = "Port")]
    port: i64,
}

/// A kubelet.
#[derive(Debug)]
pub(super) struct Kubelet {
    host: String,
    port: u16,
    /// It takes the newer WebSocket protocols of exec, attach and portforward itself.
    pub(super) takes_websockets: bool,
}

impl Kubelet {
    /// The kubelet of a node.
    ///
    /// # Errors
    /// 404 when there is no such node, 500 when it has no address of a kind that is asked for.
    pub(super) fn of(view: &View, backends: &Backends, name: &str) -> Result<Self, Status> {
        let found = view.get("nodes", name).map_err(Status::damaged)?;
        let found = found.ok_or_else(|| Status::not_found("", "nodes", name))?;
        let node: Node = serde_json::from_slice(found.json().map_err(Status::damaged)?).map_err(Status::internal)?;
        let status = node.status;
        let preferred = backends.address_types.iter().find_map(|kind| {
            let found = status.addresses.iter().find(|address| address.kind == *kind);
            found.map(|address| address.address.clone())
        });
        let Some(host) = preferred.filter(|host| !host.is_empty()) else {
            let known: Vec<String> = status
                .addresses
                .iter()
                .map(|address| format!("{{{} {}}}", address.kind, address.address))
                .collect();
            let text = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
            return Err(Status::plain(500, text));
        };
        Ok(Self {
            host,
            port: u16::try_from(status.daemon_endpoints.kubelet_endpoint.port)
                .ok()
                .filter(|port| *port > 0)
                .unwrap_or(KUBELET_PORT),
            takes_websockets: status
                .declared_features
                .iter()
                .any(|feature| feature == TAKES_WEBSOCKETS),
        })
    }

    /// A place on it. `is_unverified`: whatever certificate it shows.
    pub(super) fn at(&self, backends: &Backends, path: String, query: String, is_unverified: bool) -> Location {
        let config = if is_unverified {
            &backends.kubelet_unverified
        } else {
            &backends.kubelet
        };
        Location {
            tls: Some(Tls {
                config: config.clone(),
                name: self.host.clone(),
            }),
            host: self.host.clone(),
            port: self.port,
            reach: Reach::Any,
            path,
            query,
        }
    }
}

/// Where a request for `nodes/ID/proxy` goes: to the kubelet, or to another port of the node.
///
/// # Errors
/// 400 for an ID or an address that may not be, and those of [`Kubelet::of`].
pub(super) fn proxied(
    view: &View,
    backends: &Backends,
    id: &str,
    path: String,
    query: String,
) -> Result<Location, Status> {
    let (scheme, name, port) =
        split(id).ok_or_else(|| Status::bad_request(format!("invalid node request {}", super::quoted(id))))?;
    let kubelet = Kubelet::of(view, backends, name)?;
    if port.is_empty() || port == kubelet.port.to_string() {
        return Ok(kubelet.at(backends, path, query, false));
    }
    if kubelet.host.parse().is_ok_and(|address| !is_proxyable(address)) {
        return Err(Status::bad_request(NOT_ALLOWED));
    }
    super::elsewhere(backends, scheme, &kubelet.host, port, path, query)
}
