//! The controller of Endpoints: one object for each Service that selects Pods.

use std::sync::Arc;

use super::backend::{Backend, Family};
use super::selectors::Selectors;
use super::slices::pods_of;
use super::subsets::Subsets;
use super::trigger::Triggers;
use super::{ENDPOINTS, HEADLESS, PODS, RUN_MAX, SERVICES, TRIGGER_TIME, is_headless};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::{Failure, is_terminating};
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::{Value, json};

/// The label of objects that this controller keeps.
const KEPT_BY: &str = "endpoints.kubernetes.io/managed-by";
const NAME: &str = "endpoint-controller";
/// The annotation of an object that lacks addresses because there are too many.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

pub(in crate::controllers) struct ClassicEndpoints {
    client: Client,
    recorder: Recorder,
    services: ResourceRef,
    endpoints: ResourceRef,
    selectors: Selectors,
    triggers: Triggers,
}

impl ClassicEndpoints {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            services: resources::stored(SERVICES)?.into(),
            endpoints: resources::stored(ENDPOINTS)?.into(),
            selectors: Selectors::default(),
            triggers: Triggers::default(),
        })
    }

    async fn write(&self, key: &str, service: &Value, wanted: &Wanted) -> Result<(), Failure> {
        let view = self.client.store().view();
        let namespace = service["metadata"]["namespace"].as_str().unwrap_or("");
        let (told, reason, text) = if view.get(ENDPOINTS, key)?.is_some() {
            let changed = self
                .client
                .change(&self.endpoints, None, key, |old| wanted.over(old))
                .await;
            (changed, "FailedToUpdateEndpoint", format!("update endpoint {key}"))
        } else {
            let new = json!({"metadata": {"name": service["metadata"]["name"].as_str(), "namespace": namespace}});
            let new = wanted.over(&new).unwrap_or(new);
            let made = self
                .client
                .create(&self.endpoints, Some(namespace), new)
                .await
                .map(drop);
            (
                made,
                "FailedToCreateEndpoint",
                format!("create endpoint for service {key}"),
            )
        };
        match told {
            Ok(()) => Ok(()),
            Err(status) if is_terminating(&status) || status.code == 404 => Ok(()),
            Err(status) => {
                let mut about = json!({"apiVersion": "v1", "kind": "Endpoints"});
                about["metadata"] = json!({"name": service["metadata"]["name"].as_str(), "namespace": namespace});
                let text = format!("Failed to {text}: {}", status.message);
                self.recorder.tell(&about, Level::Warning, reason, text);
                Err(status.into())
            }
        }
    }
}

/// What an object is to say.
struct Wanted {
    subsets: Vec<Value>,
    is_over: bool,
    labels: Value,
    since: Option<String>,
}

impl Wanted {
    fn of(service: &Value, pods: &[Backend], since: Option<String>) -> Self {
        let spec = &service["spec"];
        let publishes_all = spec["publishNotReadyAddresses"] == true;
        let name = service["metadata"]["name"].as_str().unwrap_or("");
        let family = Family::of_service(service).first().copied().unwrap_or(Family::V4);
        let has_ports = spec["ports"].as_array().is_some_and(|ports| !ports.is_empty());
        let mut subsets = Subsets::default();
        for pod in pods.iter().filter(|pod| pod.counts(publishes_all)) {
            let Some(ip) = pod.addresses(family).next() else {
                continue;
            };
            let mut address = json!({"ip": ip});
            address["targetRef"] = pod.reference();
            if !pod.spec.node_name.is_empty() {
                address["nodeName"] = pod.spec.node_name.as_str().into();
            }
            if let Some(hostname) = pod.hostname(name) {
                address["hostname"] = hostname.into();
            }
            let is_ready = publishes_all || pod.is_ready();
            if has_ports {
                for port in pod.ports(service) {
                    subsets.add(&address, Some(&port), is_ready);
                }
            } else if is_headless(service) {
                subsets.add(&address, None, is_ready);
            }
        }
        let (subsets, is_over) = subsets.pack();
        let mut labels = service["metadata"]["labels"].clone();
        if let Some(labels) = labels.as_object_mut() {
            labels.remove(HEADLESS);
        }
        if is_headless(service) {
            labels[HEADLESS] = "".into();
        }
        labels[KEPT_BY] = NAME.into();
        Self {
            subsets,
            is_over,
            labels,
            since,
        }
    }

    /// What is to be stored in place of `old`; `None` when that says it already.
    fn over(&self, old: &Value) -> Option<Value> {
        let annotations = &old["metadata"]["annotations"];
        let has = old["subsets"].as_array().map_or(&[][..], |subsets| subsets.as_slice());
        let is_same = has == self.subsets
            && old["metadata"]["labels"] == self.labels
            && annotations[OVER_CAPACITY].is_null() != self.is_over;
        if is_same {
            return None;
        }
        let mut new = old.clone();
        new["subsets"] = self.subsets.clone().into();
        new["metadata"]["labels"] = self.labels.clone();
        let marks = [
            (TRIGGER_TIME, self.since.as_deref()),
            (OVER_CAPACITY, self.is_over.then_some("truncated")),
        ];
        for (name, value) in marks {
            match (
                value,
                new["metadata"].get_mut("annotations").and_then(Value::as_object_mut),
            ) {
                (Some(value), _) => new["metadata"]["annotations"][name] = value.into(),
                (None, Some(annotations)) => drop(annotations.remove(name)),
                (None, None) => {}
            }
        }
        Some(new)
    }
}

impl Controller for ClassicEndpoints {
    fn resource(&self) -> &'static str {
        SERVICES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS, ENDPOINTS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if change.storage == PODS {
            return self.selectors.concerned(change, view);
        }
        // One without a Service is somebody else's; one that is gone may be wanted.
        let has_service = view.get(SERVICES, change.object.key())?.is_some();
        Ok(has_service.then(|| change.object.key().into()).into_iter().collect())
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let selection = Selection {
            requirements: vec![Requirement::LabelIn {
                name: KEPT_BY.to_owned(),
                values: vec![NAME.to_owned()],
            }],
        };
        let mut listing = view.list(ENDPOINTS, Range::default(), &selection);
        let mut keys = Vec::new();
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                if view.get(SERVICES, object.key())?.is_none() {
                    keys.push(object.key().into());
                }
            }
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(SERVICES, key)? else {
            self.triggers.forget(key);
            gone_is_fine(self.client.delete(&self.endpoints, key, &Delete::default()).await)?;
            return Ok(Done::Settled);
        };
        let service = self.client.read(&self.services, &object)?;
        let Some(pods) = pods_of(&view, &service)? else {
            return Ok(Done::Settled);
        };
        let since = self.triggers.since(key, &service, &pods);
        let wanted = Wanted::of(&service, &pods, since);
        self.write(key, &service, &wanted).await?;
        Ok(Done::Settled)
    }
}
