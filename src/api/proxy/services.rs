//! The backends of a Service.

use std::sync::Arc;

use serde::Deserialize;

use super::Backends;
use super::location::{Location, split};
use super::pods::Pod;
use crate::api::status::Status;
use crate::store::{Object, Range, Requirement, Selection, View};

const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// Endpoints of one Service that are looked at.
const ENDPOINTS_MAX: usize = 4096;

/// What of a Service is asked for.
#[derive(Deserialize, Default)]
pub(in crate::api) struct Service {
    #[serde(default)]
    pub(in crate::api) spec: ServiceSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct ServiceSpec {
    #[serde(default, rename = "type")]
    pub(in crate::api) kind: String,
    #[serde(default)]
    pub(in crate::api) external_name: String,
    #[serde(default)]
    pub(in crate::api) ports: Vec<ServicePort>,
}

#[derive(Deserialize, Clone)]
pub(in crate::api) struct ServicePort {
    #[serde(default)]
    pub(in crate::api) name: String,
    pub(in crate::api) port: i64,
}

#[derive(Deserialize, Default)]
struct Slice {
    #[serde(default)]
    endpoints: Vec<SliceEndpoint>,
    #[serde(default)]
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceEndpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    #[serde(default)]
    target_ref: Option<TargetRef>,
}

#[derive(Deserialize, Default)]
struct Conditions {
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct EndpointPort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

#[derive(Deserialize, Clone)]
struct TargetRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize, Default)]
struct Endpoints {
    #[serde(default)]
    subsets: Vec<Subset>,
}

#[derive(Deserialize)]
struct Subset {
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    ports: Vec<EndpointPort>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    ip: String,
    #[serde(default)]
    target_ref: Option<TargetRef>,
}

/// One backend of a Service under one name of its ports.
struct Endpoint {
    address: String,
    port: u16,
    target: Option<TargetRef>,
}

/// What is known of a Service's backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) enum Known {
    /// No object tells of any.
    Nothing,
    /// None that is ready has the port.
    NoneReady,
    /// Some.
    Some,
}

fn read<T: for<'a> Deserialize<'a>>(object: &Object) -> Result<T, Status> {
    serde_json::from_slice(object.json().map_err(Status::damaged)?).map_err(Status::internal)
}

/// The Service of that name.
///
/// # Errors
/// 404 when there is none.
pub(in crate::api) fn service(view: &View, namespace: &str, name: &str) -> Result<Service, Status> {
    let found = view
        .get("services", &format!("{namespace}/{name}"))
        .map_err(Status::damaged)?;
    read(&found.ok_or_else(|| Status::not_found("", "services", name))?)
}

/// The ready backends of a Service for a port of it, by EndpointSlices, or by Endpoints where there are no slices.
fn ready(view: &Arc<View>, namespace: &str, name: &str, port: &str) -> Result<(Known, Vec<Endpoint>), Status> {
    let selection = Selection {
        requirements: vec![Requirement::LabelIn {
            name: SERVICE_LABEL.into(),
            values: vec![name.into()],
        }],
    };
    let range = Range {
        namespace: Some(namespace.into()),
        after: None,
    };
    let (mut known, mut found) = (Known::Nothing, Vec::new());
    let mut listing = view.list(SLICES, range, &selection);
    while let Some(run) = listing.next(16).map_err(Status::damaged)? {
        for slice in run.objects() {
            known = Known::NoneReady;
            let slice: Slice = read(&slice)?;
            let ports = slice.ports.unwrap_or_default();
            let Some(number) = number_of(&ports, port) else {
                continue;
            };
            for endpoint in slice.endpoints {
                if endpoint.conditions.ready != Some(false)
                    && let Some(address) = endpoint.addresses.into_iter().next()
                    && found.len() < ENDPOINTS_MAX
                {
                    found.push(Endpoint {
                        address,
                        port: number,
                        target: endpoint.target_ref,
                    });
                }
            }
        }
    }
    if known == Known::Nothing {
        let key = format!("{namespace}/{name}");
        if let Some(endpoints) = view.get("endpoints", &key).map_err(Status::damaged)? {
            known = Known::NoneReady;
            for subset in read::<Endpoints>(&endpoints)?.subsets {
                let Some(number) = number_of(&subset.ports, port) else {
                    continue;
                };
                for address in subset.addresses.into_iter().take(ENDPOINTS_MAX - found.len()) {
                    found.push(Endpoint {
                        address: address.ip,
                        port: number,
                        target: address.target_ref,
                    });
                }
            }
        }
    }
    if !found.is_empty() {
        known = Known::Some;
    }
    Ok((known, found))
}

fn number_of(ports: &[EndpointPort], name: &str) -> Option<u16> {
    let named = ports.iter().find(|port| port.name.as_deref().unwrap_or("") == name);
    named.and_then(|port| port.port)
}

/// The name of the port with that number.
///
/// # Errors
/// 503 when the Service has none.
fn port_name<'a>(service: &'a Service, name: &str, number: i64) -> Result<&'a str, Status> {
    let port = service.spec.ports.iter().find(|port| port.port == number);
    port.map(|port| port.name.as_str()).ok_or_else(|| {
        Status::service_unavailable(format!(
            "no service port {number} found for service {}",
            super::quoted(name)
        ))
    })
}

fn none_available(name: &str) -> Status {
    Status::service_unavailable(format!("no endpoints available for service {}", super::quoted(name)))
}

/// Begins at a place that is another each time.
fn turned<T>(mut list: Vec<T>) -> Vec<T> {
    if !list.is_empty() {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8);
        let len = list.len();
        list.rotate_left(seed as usize % len);
    }
    list
}

/// Where a request for `services/ID/proxy` goes: to a ready Pod of the Service in the same namespace. An address that no
/// Pod there has is passed over: who may write EndpointSlices has no say in what this server connects to.
///
/// # Errors
/// 400 for an ID that is none, 404 when there is no such Service, 503 when it has no such port or no such Pod.
pub(super) fn proxied(
    view: &Arc<View>,
    backends: &Backends,
    namespace: &str,
    id: &str,
    path: String,
    query: String,
) -> Result<Location, Status> {
    let (scheme, name, port) =
        split(id).ok_or_else(|| Status::bad_request(format!("invalid service request {}", super::quoted(id))))?;
    let service = service(view, namespace, name)?;
    let port = match port.parse() {
        Ok(number) => port_name(&service, name, number)?,
        Err(_) => port,
    };
    let (_, endpoints) = ready(view, namespace, name, port)?;
    for endpoint in turned(endpoints) {
        let Some(target) = endpoint.target.filter(|target| target.namespace == namespace) else {
            continue;
        };
        let key = format!("{namespace}/{}", target.name);
        let Some(pod) = view.get("pods", &key).map_err(Status::damaged)? else {
            continue;
        };
        if read::<Pod>(&pod)?.has_address(&endpoint.address) {
            let port = endpoint.port.to_string();
            return super::elsewhere(backends, scheme, &endpoint.address, &port, path, query);
        }
    }
    Err(none_available(name))
}

/// A backend of a Service by the number of one of its ports, for an aggregated API: host and port. Whoever makes APIServices
/// has a say in everything: addresses need not be those of Pods.
///
/// # Errors
/// 404 when there is no such Service, 503 when it has no such port or no backend, 500 for a Service of another type.
pub(in crate::api) fn backend(
    view: &Arc<View>,
    namespace: &str,
    name: &str,
    number: i64,
) -> Result<(String, u16), Status> {
    let service = service(view, namespace, name)?;
    if service.spec.kind == "ExternalName" {
        let port = u16::try_from(number).map_err(Status::internal)?;
        return Ok((service.spec.external_name, port));
    }
    let port = port_name(&service, name, number)?;
    let (_, endpoints) = ready(view, namespace, name, port)?;
    let first = turned(endpoints).into_iter().next();
    first
        .map(|endpoint| (endpoint.address, endpoint.port))
        .ok_or_else(|| none_available(name))
}

/// What is known of the backends of a Service for a port.
///
/// # Errors
/// 500 when an object cannot be read.
pub(in crate::api) fn known(view: &Arc<View>, namespace: &str, name: &str, port: &str) -> Result<Known, Status> {
    ready(view, namespace, name, port).map(|(known, _)| known)
}
