//! The controller of EndpointSlices: the slices of Services that select Pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::backend::{Backend, Family};
use super::hints::Distribution;
use super::packing::{Plan, Wanted, empty_slice, pack, port_key};
use super::selectors::Selectors;
use super::trigger::Triggers;
use super::{
    HEADLESS, MANAGED_BY, NODES, PODS, RUN_MAX, SERVICE_NAME, SERVICES, SLICES, TRIGGER_TIME, carry_out, is_headless,
    owned_by, service_of, slices_of,
};
use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::controllers::selector::selection_of_labels;
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::{Value, json};

/// Who keeps the slices.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Endpoints of a slice.
const ENDPOINTS_MAX: usize = 100;
const ZONE: &str = "topology.kubernetes.io/zone";

pub(in crate::controllers) struct Slices {
    client: Client,
    services: ResourceRef,
    slices: ResourceRef,
    selectors: Selectors,
    triggers: Triggers,
}

impl Slices {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            services: resources::stored(SERVICES)?.into(),
            slices: resources::stored(SLICES)?.into(),
            selectors: Selectors::default(),
            triggers: Triggers::default(),
        })
    }

    /// What a Service wants behind each list of ports. And whether a Pod was left out because its Node is not there.
    fn wanted(
        view: &View,
        service: &Value,
        pods: &[Backend],
        family: Family,
    ) -> Result<(BTreeMap<Vec<String>, Wanted>, bool), Failure> {
        let spec = &service["spec"];
        let publishes_all = spec["publishNotReadyAddresses"] == true;
        let mut wanted: BTreeMap<Vec<String>, Wanted> = BTreeMap::new();
        let mut is_incomplete = false;
        for pod in pods.iter().filter(|pod| pod.counts(true)) {
            let ports = Value::from(pod.ports(service));
            let group = wanted.entry(port_key(&ports)).or_insert_with(|| Wanted::new(ports));
            let node = view.get(NODES, &pod.spec.node_name)?;
            if node.is_none() && !publishes_all {
                is_incomplete = true;
                continue;
            }
            let addresses: Vec<String> = pod.addresses(family).collect();
            if addresses.is_empty() {
                continue;
            }
            let (is_ready, is_ending) = (pod.is_ready(), pod.is_ending());
            let mut endpoint = json!({
                "addresses": addresses,
                "conditions": {
                    "ready": publishes_all || is_ready && !is_ending,
                    "serving": is_ready,
                    "terminating": is_ending,
                },
            });
            endpoint["targetRef"] = pod.reference();
            if !pod.spec.node_name.is_empty() {
                endpoint["nodeName"] = pod.spec.node_name.as_str().into();
            }
            if let Some(node) = &node
                && let Some(zone) = node.sidecar()?.label(ZONE).filter(|zone| !zone.is_empty())
            {
                endpoint["zone"] = zone.into();
            }
            if let Some(hostname) = pod.hostname(service["metadata"]["name"].as_str().unwrap_or("")) {
                endpoint["hostname"] = hostname.into();
            }
            group.insert(endpoint);
        }
        Ok((wanted, is_incomplete))
    }

    /// Plans the slices of one family.
    fn plan(
        view: &View,
        service: &Value,
        pods: &[Backend],
        stored: Vec<Value>,
        family: Family,
    ) -> Result<(Plan, bool), Failure> {
        let labels = labels_of(service);
        let metadata = &service["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or("");
        let owners = owned_by(service, "Service");
        let fresh = empty_slice(text("name"), text("namespace"), family.text(), &labels, owners);
        let (wanted, is_incomplete) = Self::wanted(view, service, pods, family)?;
        let mut plan = Plan::default();
        let mut by_ports: BTreeMap<Vec<String>, Vec<Value>> = BTreeMap::new();
        let count = stored.len();
        for slice in stored {
            if is_owned(&slice, service) {
                by_ports.entry(port_key(&slice["ports"])).or_default().push(slice);
            } else {
                plan.delete.push(slice);
            }
        }
        for (ports, wanted) in wanted {
            let stored = by_ports.remove(&ports).unwrap_or_default();
            pack(wanted, stored, &labels, &fresh, ENDPOINTS_MAX, &mut plan);
        }
        plan.delete.extend(by_ports.into_values().flatten());
        // A Service without endpoints has one slice that says so.
        if count == plan.delete.len() && plan.create.is_empty() {
            let is_such = |slice: &Value| {
                slice["endpoints"]
                    .as_array()
                    .is_none_or(|endpoints| endpoints.is_empty())
                    && port_key(&slice["ports"]).is_empty()
                    && slice["metadata"]["labels"] == labels
                    && is_owned(slice, service)
            };
            if plan.delete.len() == 1 && is_such(&plan.delete[0]) {
                plan.unchanged.append(&mut plan.delete);
            } else {
                plan.create.push(fresh);
            }
        }
        distribute(service, &mut plan);
        plan.recycle(|old| is_owned(old, service));
        Ok((plan, is_incomplete))
    }
}

/// Gives hints to all endpoints of a plan; slices that only lack theirs are written, too.
fn distribute(service: &Value, plan: &mut Plan) {
    let distribution = Distribution::of(service);
    let apply = |slice: &mut Value| {
        let mut is_other = false;
        let endpoints = slice["endpoints"].as_array_mut();
        for endpoint in endpoints.into_iter().flat_map(|list| list.iter_mut()) {
            is_other |= distribution.apply(endpoint);
        }
        is_other
    };
    for slice in plan.create.iter_mut().chain(&mut plan.update) {
        apply(slice);
    }
    let (changed, unchanged) = std::mem::take(&mut plan.unchanged)
        .into_iter()
        .map(|mut slice| (apply(&mut slice), slice))
        .partition::<Vec<_>, _>(|(is_other, _)| *is_other);
    plan.update.extend(changed.into_iter().map(|(_, slice)| slice));
    plan.unchanged.extend(unchanged.into_iter().map(|(_, slice)| slice));
}

/// The labels of a Service's slices: its own, and those that say whose they are.
fn labels_of(service: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].clone();
    if let Some(own) = labels.as_object_mut() {
        own.remove(HEADLESS);
    }
    if is_headless(service) {
        labels[HEADLESS] = "".into();
    }
    labels[SERVICE_NAME] = service["metadata"]["name"].clone();
    labels[MANAGED_BY] = MANAGER.into();
    labels
}

fn is_owned(slice: &Value, service: &Value) -> bool {
    let owners = slice["metadata"]["ownerReferences"].as_array();
    owners
        .into_iter()
        .flatten()
        .any(|owner| owner["uid"] == service["metadata"]["uid"] && owner["kind"] == "Service")
}

/// The Pods that a Service selects.
pub(super) fn pods_of(view: &Arc<View>, service: &Value) -> Result<Option<Vec<Backend>>, Failure> {
    let spec = &service["spec"];
    let selection = selection_of_labels(&spec["selector"]).filter(|_| spec["type"] != "ExternalName");
    let Some(selection) = selection else {
        return Ok(None);
    };
    let range = Range {
        namespace: service["metadata"]["namespace"].as_str().map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(PODS, range, &selection);
    let mut pods = Vec::new();
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            pods.push(Backend::of(&object)?);
        }
    }
    Ok(Some(pods))
}

impl Controller for Slices {
    fn resource(&self) -> &'static str {
        SERVICES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS, SLICES, NODES]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        match change.storage {
            PODS => self.selectors.concerned(change, view),
            SLICES => {
                let now = service_of(change.object, MANAGER)?;
                let before = change.previous.map(|it| service_of(it, MANAGER)).transpose()?.flatten();
                Ok(now.into_iter().chain(before).collect())
            }
            // Pods that were on it before it was there were left out.
            _ if change.previous.is_none() => {
                let selection = Selection {
                    requirements: vec![Requirement::FieldIs {
                        name: "spec.nodeName".to_owned(),
                        value: change.object.name().to_owned(),
                    }],
                };
                let mut listing = view.list(PODS, Range::default(), &selection);
                let mut keys = Vec::new();
                while let Some(run) = listing.next(RUN_MAX)? {
                    for pod in run.objects() {
                        keys.extend(self.selectors.that_select(&pod, None, view)?);
                    }
                }
                Ok(keys)
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(SERVICES, key)? else {
            // Its slices go with it, as its dependents.
            self.triggers.forget(key);
            return Ok(Done::Settled);
        };
        let service = self.client.read(&self.services, &object)?;
        let Some(pods) = pods_of(&view, &service)? else {
            return Ok(Done::Settled);
        };
        let since = self.triggers.since(key, &service, &pods);
        let mut stored = slices_of(&self.client, &self.slices, &view, key, MANAGER)?;
        let mut is_incomplete = false;
        for family in Family::of_service(&service) {
            let (of_family, others) = stored
                .into_iter()
                .partition(|slice| slice["addressType"] == family.text());
            stored = others;
            let (mut plan, lacks_some) = Self::plan(&view, &service, &pods, of_family, family)?;
            is_incomplete |= lacks_some;
            for slice in plan.create.iter_mut().chain(&mut plan.update) {
                match (&since, slice["metadata"]["annotations"].as_object_mut()) {
                    (Some(since), _) => slice["metadata"]["annotations"][TRIGGER_TIME] = since.as_str().into(),
                    (None, Some(annotations)) => drop(annotations.remove(TRIGGER_TIME)),
                    (None, None) => {}
                }
            }
            // With the Service go its slices: none is made meanwhile.
            if !service["metadata"]["deletionTimestamp"].is_null() {
                plan.create.clear();
            }
            carry_out(&self.client, &self.slices, object.namespace().unwrap_or(""), plan).await?;
        }
        // Families that the Service has no more.
        let plan = Plan {
            delete: stored,
            ..Plan::default()
        };
        carry_out(&self.client, &self.slices, object.namespace().unwrap_or(""), plan).await?;
        Ok(if is_incomplete { Done::Again } else { Done::Settled })
    }
}
