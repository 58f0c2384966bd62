//! An `IPAddress` for each address of a Service.

use std::net::IpAddr;
use std::sync::Arc;

use super::{ADDRESSES, RUN_MAX, SERVICES};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::{Value, json};

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const MANAGER: &str = "ipallocator.k8s.io";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

pub(in crate::controllers) struct Given {
    client: Client,
    services: ResourceRef,
    addresses: ResourceRef,
}

impl Given {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            services: resources::stored(SERVICES)?.into(),
            addresses: resources::stored(ADDRESSES)?.into(),
        })
    }

    /// The key of the Service that has an address, by what the object says; `None` for one that is nobody's here.
    fn parent(&self, object: &crate::store::Object) -> Result<Option<Arc<str>>, Failure> {
        if object.sidecar()?.label(MANAGED_BY) != Some(MANAGER) {
            return Ok(None);
        }
        let address = self.client.read(&self.addresses, object)?;
        let parent = &address["spec"]["parentRef"];
        let text = |field: &str| parent[field].as_str().filter(|_| parent["resource"] == "services");
        Ok(text("namespace")
            .zip(text("name"))
            .map(|(namespace, name)| format!("{namespace}/{name}").into()))
    }

    /// Deletes what a Service had that is gone.
    async fn take_back(&self, view: &Arc<View>, key: &str) -> Result<(), Failure> {
        let named = format!("\"name\":\"{}\"", key.split_once('/').map_or(key, |(_, name)| name));
        let selection = Selection {
            requirements: vec![Requirement::LabelIn {
                name: MANAGED_BY.to_owned(),
                values: vec![MANAGER.to_owned()],
            }],
        };
        let mut listing = view.list(ADDRESSES, Range::default(), &selection);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                // Most are told apart by their bytes.
                let may_be = std::str::from_utf8(object.json()?).is_ok_and(|json| json.contains(&named));
                if may_be && self.parent(&object)?.as_deref() == Some(key) {
                    let delete = Delete {
                        uid: Some(object.sidecar()?.uid.as_str().to_owned()),
                        ..Delete::default()
                    };
                    gone_is_fine(self.client.delete(&self.addresses, object.key(), &delete).await)?;
                }
            }
        }
        Ok(())
    }
}

/// The addresses of a Service, written one way.
fn addresses_of(service: &Value) -> Vec<IpAddr> {
    let addresses = service["spec"]["clusterIPs"].as_array();
    let all = addresses.into_iter().flatten().filter_map(Value::as_str);
    all.filter_map(|address| address.parse().ok()).collect()
}

impl Controller for Given {
    fn resource(&self) -> &'static str {
        SERVICES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[ADDRESSES]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        // One that is there may be there without reason only at the start.
        if !change.is_gone {
            return Ok(Vec::new());
        }
        Ok(self.parent(change.object)?.into_iter().collect())
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let mut listing = view.list(ADDRESSES, Range::default(), &Selection::all());
        let mut keys = Vec::new();
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                if let Some(key) = self.parent(&object)?
                    && view.get(SERVICES, &key)?.is_none()
                {
                    keys.push(key);
                }
            }
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(SERVICES, key)? else {
            self.take_back(&view, key).await?;
            return Ok(Done::Settled);
        };
        let service = self.client.read(&self.services, &object)?;
        let addresses = addresses_of(&service);
        if addresses.is_empty() {
            // It may have had some before.
            self.take_back(&view, key).await?;
        }
        for address in addresses {
            let name = address.to_string();
            if view.get(ADDRESSES, &name)?.is_some() {
                continue;
            }
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let new = json!({
                "metadata": {"name": name, "labels": {FAMILY: family, MANAGED_BY: MANAGER}},
                "spec": {"parentRef": {
                    "group": "", "resource": "services", "namespace": object.namespace(), "name": object.name(),
                }},
            });
            match self.client.create(&self.addresses, None, new).await {
                Err(status) if status.code == 409 => {}
                other => drop(other?),
            }
        }
        Ok(Done::Settled)
    }
}
