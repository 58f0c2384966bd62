//! PodDisruptionBudgets: how many of the Pods that a budget selects may be evicted now.
//!
//! | file | what it does |
//! | --- | --- |
//! | `expected` | how many Pods there should be, by what controls them |
//! | `status` | counts, and says what is allowed |
//! | `stale` | the controller that takes back what Pods say of a disruption that came to nothing |

mod expected;
mod stale;
mod status;

pub(super) use stale::StaleDisruptions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::claim::gone_is_fine;
use super::event::{Level, Recorder};
use super::failure::Failure;
use super::metadata::{Metadata, is_same};
use super::pod::seconds;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Object, Range, Selection, View};
use crate::tree::{Value, json};

const BUDGETS: &str = "poddisruptionbudgets.policy";
const PODS: &str = "pods";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;
/// How long a Pod that may be evicted counts as one that goes, until it is taken for one that stays, seconds.
const DELETION_S: i64 = 2 * 60;

pub(super) struct Budgets {
    client: Client,
    recorder: Recorder,
    budgets: ResourceRef,
}

/// The part of a Pod that budgets go by.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    status: PodStatus,
    #[serde(skip)]
    metadata: Metadata,
    #[serde(skip)]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

impl Pod {
    fn of(object: &Object) -> Result<Self, Failure> {
        let read = serde_json::from_slice(object.json()?);
        let mut pod: Self = read.map_err(|error| Failure::Metadata(object.key().to_owned(), error))?;
        pod.metadata = Metadata::of(object)?;
        object.name().clone_into(&mut pod.name);
        Ok(pod)
    }

    fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.r#type == "Ready" && condition.status == "True")
    }
}

impl Budgets {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        let budgets = resources::stored(BUDGETS)?.into();
        Some(Self {
            client,
            recorder,
            budgets,
        })
    }

    /// The Pods that a budget selects.
    fn pods(view: &Arc<View>, budget: &Value) -> Result<Vec<Pod>, Failure> {
        let Some(selection) = selector::selection(&budget["spec"]["selector"]) else {
            return Ok(Vec::new());
        };
        let range = Range {
            namespace: budget["metadata"]["namespace"].as_str().map(str::to_owned),
            after: None,
        };
        let mut pods = Vec::new();
        let mut listing = view.list(PODS, range, &selection);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                pods.push(Pod::of(&object)?);
            }
        }
        Ok(pods)
    }

    /// Pods that may be evicted by what was granted and that are not gone yet, with the time of the grant; and in how many seconds the
    /// first of them will count as one that stays.
    fn disrupted(&self, budget: &Value, pods: &[Pod], now_s: i64) -> (BTreeMap<String, Value>, Option<i64>) {
        let (mut left, mut soonest) = (BTreeMap::new(), None);
        let granted = &budget["status"]["disruptedPods"];
        for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
            let Some(since_s) = seconds(&granted[pod.name.as_str()]) else {
                continue;
            };
            let wait_s = since_s + DELETION_S - now_s;
            if wait_s < 0 {
                let namespace = budget["metadata"]["namespace"].as_str().unwrap_or("");
                let mut about = json!({"apiVersion": "v1", "kind": "Pod"});
                about["metadata"] = json!({"name": pod.name, "namespace": namespace, "uid": pod.metadata.uid});
                let name = budget["metadata"]["name"].as_str().unwrap_or("");
                let text = format!("Pod was expected by PDB {namespace}/{name} to be deleted but it wasn't");
                self.recorder.tell(&about, Level::Warning, "NotDeleted", text);
            } else {
                soonest = Some(soonest.map_or(wait_s, |soonest: i64| soonest.min(wait_s)));
                left.insert(pod.name.clone(), granted[pod.name.as_str()].clone());
            }
        }
        (left, soonest)
    }
}

impl Controller for Budgets {
    fn resource(&self) -> &'static str {
        BUDGETS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let range = Range {
            namespace: change.object.namespace().map(str::to_owned),
            after: None,
        };
        let mut keys = Vec::new();
        let mut listing = view.list(BUDGETS, range, &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for budget in run.objects() {
                let tree = self.client.read(&self.budgets, &budget)?;
                let Some(selection) = selector::selection(&tree["spec"]["selector"]) else {
                    continue;
                };
                let did = change
                    .previous
                    .map(|previous| selection.matches(previous))
                    .transpose()?;
                if did == Some(true) || selection.matches(change.object)? {
                    keys.push(budget.key().into());
                }
            }
        }
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(BUDGETS, key)? else {
            return Ok(Done::Settled);
        };
        let budget = self.client.read(&self.budgets, &object)?;
        let pods = Self::pods(&view, &budget)?;
        if pods.is_empty() {
            let text = "No matching pods found".to_owned();
            self.recorder.tell(&budget, Level::Normal, "NoPods", text);
        }
        let now_s = jiff::Timestamp::now().as_second();
        let (disrupted, soonest_s) = self.disrupted(&budget, &pods, now_s);
        let counts = expected::of(&self.client, &view, &budget, &pods)?;
        match &counts {
            Ok(counts) if counts.has_unmanaged => {
                let text = format!(
                    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the \
                     PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
                     \".spec.minAvailable\" field of the PDB to an integer value.",
                    selector::go_text(&budget["spec"]["selector"])
                );
                self.recorder.tell(&budget, Level::Warning, "UnmanagedPods", text);
            }
            Ok(_) => {}
            Err(why) => {
                let text = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder
                    .tell(&budget, Level::Warning, "CalculateExpectedPodCountFailed", text);
            }
        }
        let is_healthy =
            |pod: &&Pod| pod.is_ready() && !pod.metadata.is_deleting() && !disrupted.contains_key(&pod.name);
        let healthy = pods.iter().filter(is_healthy).count() as i64;
        let edit = |old: &Value| {
            // What was granted since is not taken back.
            let is_as_seen =
                is_same(old, &budget) && old["status"]["disruptedPods"] == budget["status"]["disruptedPods"];
            if !is_as_seen {
                return None;
            }
            let status = match &counts {
                Ok(counts) => {
                    let generation = &budget["metadata"]["generation"];
                    status::of(&old["status"], counts, healthy, &disrupted, generation, now_s)
                }
                Err(why) => status::failed(&old["status"], why, now_s),
            };
            let mut new = old.clone();
            new["status"] = status;
            (new["status"] != old["status"]).then_some(new)
        };
        gone_is_fine(self.client.change(&self.budgets, Some("status"), key, edit).await)?;
        Ok(soonest_s.map_or(Done::Settled, |wait_s| {
            Done::After(Duration::from_secs(wait_s.unsigned_abs() + 1))
        }))
    }
}
