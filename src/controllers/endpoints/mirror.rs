//! The controller that mirrors Endpoints of Services that select nothing: somebody else wrote them, and who reads slices alone finds them
//! there, too.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::packing::{Plan, Wanted, empty_slice, pack, port_key};
use super::{
    ENDPOINTS, MANAGED_BY, SERVICE_NAME, SERVICES, SLICES, TRIGGER_TIME, carry_out, owned_by, service_of, slices_of,
};
use crate::api::Client;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::{Value, json};

/// Who keeps the slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Addresses of a subset that are mirrored.
const ADDRESSES_MAX: usize = 1000;
/// Annotations that say something of the one object alone.
const NOT_MIRRORED: [&str; 2] = [TRIGGER_TIME, "kubectl.kubernetes.io/last-applied-configuration"];

pub(in crate::controllers) struct Mirror {
    client: Client,
    recorder: Recorder,
    endpoints: ResourceRef,
    services: ResourceRef,
    slices: ResourceRef,
}

impl Mirror {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            endpoints: resources::stored(ENDPOINTS)?.into(),
            services: resources::stored(SERVICES)?.into(),
            slices: resources::stored(SLICES)?.into(),
        })
    }

    /// The Endpoints object with this key, if it is to be mirrored.
    fn mirrored(&self, view: &View, key: &str) -> Result<Option<Value>, Failure> {
        let (Some(endpoints), Some(service)) = (view.get(ENDPOINTS, key)?, view.get(SERVICES, key)?) else {
            return Ok(None);
        };
        if endpoints.sidecar()?.label("endpointslice.kubernetes.io/skip-mirror") == Some("true") {
            return Ok(None);
        }
        let service = self.client.read(&self.services, &service)?;
        let selects = service["spec"]["selector"]
            .as_object()
            .is_some_and(|selector| !selector.is_empty());
        let endpoints = self.client.read(&self.endpoints, &endpoints)?;
        // What leaders of old were elected by.
        let is_leaders = !endpoints["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"].is_null();
        Ok((!selects && !is_leaders).then_some(endpoints))
    }

    /// What the slices are to say, by family and ports.
    fn wanted(&self, endpoints: &Value) -> BTreeMap<(&'static str, Vec<String>), Wanted> {
        let mut wanted: BTreeMap<(&'static str, Vec<String>), Wanted> = BTreeMap::new();
        let (mut invalid, mut skipped) = (0_usize, 0_usize);
        for subset in endpoints["subsets"].as_array().into_iter().flatten() {
            let ports: Value = subset["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(mirrored_port)
                .collect();
            let mut taken = 0;
            for (field, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
                for address in subset[field].as_array().into_iter().flatten() {
                    if taken == ADDRESSES_MAX {
                        skipped += 1;
                        continue;
                    }
                    let Some(ip) = address["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()) else {
                        invalid += 1;
                        continue;
                    };
                    taken += 1;
                    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
                    let group = wanted
                        .entry((family, port_key(&ports)))
                        .or_insert_with(|| Wanted::new(ports.clone()));
                    group.insert(mirrored_endpoint(address, ip, is_ready));
                }
            }
        }
        if invalid > 0 {
            let text = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.tell(endpoints, Level::Warning, "InvalidIPAddress", text);
        }
        if skipped > 0 {
            let text = format!(
                "A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were \
                 skipped"
            );
            self.recorder
                .tell(endpoints, Level::Warning, "TooManyAddressesToMirror", text);
        }
        wanted
    }

    fn plan(&self, endpoints: &Value, stored: Vec<Value>) -> Plan {
        let metadata = &endpoints["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or("");
        let mut labels = metadata["labels"].clone();
        labels[SERVICE_NAME] = metadata["name"].clone();
        labels[MANAGED_BY] = MANAGER.into();
        let mut annotations = metadata["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|name, _| !NOT_MIRRORED.contains(&name.as_str()));
        }
        if annotations.as_object().is_some_and(crate::tree::Map::is_empty) {
            annotations = Value::Null;
        }
        let mut plan = Plan::default();
        let mut groups: BTreeMap<(String, Vec<String>), Vec<Value>> = BTreeMap::new();
        for slice in stored {
            let family = slice["addressType"].as_str().unwrap_or("").to_owned();
            groups
                .entry((family, port_key(&slice["ports"])))
                .or_default()
                .push(slice);
        }
        for ((family, ports), wanted) in self.wanted(endpoints) {
            let mut stored = groups.remove(&(family.to_owned(), ports)).unwrap_or_default();
            // One slice a subset.
            plan.delete.extend(stored.split_off(stored.len().min(1)));
            let mut fresh = empty_slice(
                text("name"),
                text("namespace"),
                family,
                &labels,
                owned_by(endpoints, "Endpoints"),
            );
            if !annotations.is_null() {
                fresh["metadata"]["annotations"] = annotations.clone();
            }
            pack(wanted, stored, &labels, &fresh, usize::MAX, &mut plan);
        }
        plan.delete.extend(groups.into_values().flatten());
        for mut slice in std::mem::take(&mut plan.unchanged) {
            if slice["metadata"]["annotations"] != annotations {
                slice["metadata"]["annotations"] = annotations.clone();
                plan.update.push(slice);
            }
        }
        for slice in &mut plan.update {
            slice["metadata"]["annotations"] = annotations.clone();
        }
        plan.recycle(|_| true);
        plan
    }
}

fn mirrored_port(port: &Value) -> Value {
    let mut new = port.clone();
    if new["name"].is_null() {
        new["name"] = "".into();
    }
    new
}

fn mirrored_endpoint(address: &Value, ip: IpAddr, is_ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": is_ready}});
    for field in ["hostname", "nodeName", "targetRef"] {
        if !address[field].is_null() {
            endpoint[field] = address[field].clone();
        }
    }
    endpoint
}

impl Controller for Mirror {
    fn resource(&self) -> &'static str {
        ENDPOINTS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[SERVICES, SLICES]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if change.storage == SERVICES {
            let is_there = view.get(ENDPOINTS, change.object.key())?.is_some();
            return Ok(is_there.then(|| change.object.key().into()).into_iter().collect());
        }
        let now = service_of(change.object, MANAGER)?;
        let before = change.previous.map(|it| service_of(it, MANAGER)).transpose()?.flatten();
        Ok(now.into_iter().chain(before).collect())
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let stored = slices_of(&self.client, &self.slices, &view, key, MANAGER)?;
        let plan = match self.mirrored(&view, key)? {
            Some(endpoints) if endpoints["metadata"]["deletionTimestamp"].is_null() => self.plan(&endpoints, stored),
            _ => Plan {
                delete: stored,
                ..Plan::default()
            },
        };
        if !plan.is_empty() {
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            carry_out(&self.client, &self.slices, namespace, plan).await?;
        }
        Ok(Done::Settled)
    }
}
