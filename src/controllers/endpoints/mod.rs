//! Where Services lead: the addresses of the Pods that a Service selects, as `Endpoints` and as `EndpointSlices`, and slices of
//! `Endpoints` that somebody else wrote.
//!
//! | file | what it does |
//! | --- | --- |
//! | `backend` | what a Pod gives to a Service: addresses, ports, readiness |
//! | `selectors` | which Services a Pod concerns |
//! | `trigger` | since when a change waits to be told |
//! | `packing` | spreads endpoints over slices, rewriting as few as it can |
//! | `hints` | whom an endpoint is meant for, by the Service's `trafficDistribution` |
//! | `slices` | the controller of EndpointSlices |
//! | `subsets` | groups the addresses of an `Endpoints` object by their ports |
//! | `classic` | the controller of Endpoints |
//! | `mirror` | the controller that mirrors Endpoints without a selector |

mod backend;
mod classic;
mod hints;
mod mirror;
mod packing;
mod selectors;
mod slices;
mod subsets;
mod trigger;

pub(super) use classic::ClassicEndpoints;
pub(super) use mirror::Mirror;
pub(super) use slices::Slices;

use std::sync::Arc;

use super::claim::gone_is_fine;
use super::failure::{Failure, is_terminating};
use crate::api::{Client, Delete};
use crate::resources::ResourceRef;
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::{Value, json};
use packing::{Plan, key_of_slice};

const SERVICES: &str = "services";
const PODS: &str = "pods";
const NODES: &str = "nodes";
const ENDPOINTS: &str = "endpoints";
const SLICES: &str = "endpointslices.discovery.k8s.io";

/// The label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of a slice that says who keeps it.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of what belongs to a Service without an address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation that says when the change happened that an object tells of.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// Whether a Service has no address of its own.
fn is_headless(service: &Value) -> bool {
    matches!(service["spec"]["clusterIP"].as_str(), None | Some("" | "None"))
}

/// The slices of a Service that this manager keeps.
fn slices_of(
    client: &Client,
    resource: &ResourceRef,
    view: &Arc<View>,
    key: &str,
    manager: &str,
) -> Result<Vec<Value>, Failure> {
    let Some((namespace, name)) = key.split_once('/') else {
        return Ok(Vec::new());
    };
    let label = |label: &str, value: &str| Requirement::LabelIn {
        name: label.to_owned(),
        values: vec![value.to_owned()],
    };
    let selection = Selection {
        requirements: vec![label(SERVICE_NAME, name), label(MANAGED_BY, manager)],
    };
    let range = Range {
        namespace: Some(namespace.to_owned()),
        after: None,
    };
    let mut listing = view.list(SLICES, range, &selection);
    let mut slices = Vec::new();
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            slices.push(client.read(resource, &object)?);
        }
    }
    Ok(slices)
}

/// Writes what was planned. What others changed meanwhile is left: it brings another look.
async fn carry_out(client: &Client, resource: &ResourceRef, namespace: &str, plan: Plan) -> Result<(), Failure> {
    for slice in plan.create {
        match client.create(resource, Some(namespace), slice).await {
            Err(status) if is_terminating(&status) => return Ok(()),
            other => drop(other?),
        }
    }
    for new in plan.update {
        let edit = |old: &Value| {
            let is_as_seen = old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"];
            is_as_seen.then(|| new.clone())
        };
        gone_is_fine(client.change(resource, None, &key_of_slice(&new), edit).await)?;
    }
    for slice in plan.delete {
        let delete = Delete {
            uid: slice["metadata"]["uid"].as_str().map(str::to_owned),
            ..Delete::default()
        };
        gone_is_fine(client.delete(resource, &key_of_slice(&slice), &delete).await)?;
    }
    Ok(())
}

/// The entry of `metadata.ownerReferences` for a slice of this Service or Endpoints object.
fn owned_by(owner: &Value, kind: &str) -> Value {
    json!([{
        "apiVersion": "v1",
        "kind": kind,
        "name": owner["metadata"]["name"].as_str(),
        "uid": owner["metadata"]["uid"].as_str(),
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// The key of the Service that a slice names, if this manager keeps the slice.
fn service_of(object: &crate::store::Object, manager: &str) -> Result<Option<Arc<str>>, Failure> {
    let sidecar = object.sidecar()?;
    if sidecar.label(MANAGED_BY) != Some(manager) {
        return Ok(None);
    }
    let service = sidecar.label(SERVICE_NAME);
    Ok(object
        .namespace()
        .zip(service)
        .map(|(namespace, name)| format!("{namespace}/{name}").into()))
}
