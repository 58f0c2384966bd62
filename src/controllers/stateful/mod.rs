//! StatefulSets: Pods with numbers, names and volumes that are their own, made, replaced and deleted in order.
//!
//! | file | what it does |
//! | --- | --- |
//! | `identity` | what makes a Pod the one with a certain number |
//! | `plan` | what is to be done next |
//! | `steps` | does it |
//! | `retention` | what becomes of the claims of Pods |
//! | `status` | tells how many there are |

mod identity;
mod plan;
mod retention;
mod status;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use super::claim::{Claimant, Kind, gone_is_fine};
use super::event::{Level, Recorder};
use super::failure::Failure;
use super::history::{History, REVISIONS};
use super::metadata::{is_same, name_of};
use super::pod;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::Value;
use plan::{Pods, Wish};
use steps::{Template, Work};

const SETS: Kind = Kind {
    storage: "statefulsets.apps",
    group: "apps",
    kind: "StatefulSet",
    selection: selector::selection,
};
const PODS: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";
/// Label of revisions with their hash. (Pods have the name of their revision.)
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The controller of StatefulSets.
pub(super) struct StatefulSets {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    pods: ResourceRef,
    claims: ResourceRef,
    revisions: ResourceRef,
}

impl StatefulSets {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(SETS.storage)?.into(),
            pods: resources::stored(PODS)?.into(),
            claims: resources::stored(CLAIMS)?.into(),
            revisions: resources::stored(REVISIONS)?.into(),
        })
    }

    /// Writes the status if it says something new.
    async fn tell_status(
        &self,
        key: &str,
        set: &Value,
        pods: &Pods,
        names: (&str, &str),
        collisions: Option<i64>,
    ) -> Result<(), Failure> {
        let now_s = jiff::Timestamp::now().as_second();
        let edit = |old: &Value| {
            if !is_same(old, set) {
                return None;
            }
            let mut seen = set.clone();
            seen["status"] = old["status"].clone();
            let mut new = old.clone();
            new["status"] = status::status_of(&seen, pods, names, now_s);
            // What was seen is the set that was looked at, which may have changed since.
            new["status"]["observedGeneration"] = set["metadata"]["generation"].clone();
            if let Some(collisions) = collisions {
                new["status"]["collisionCount"] = collisions.into();
            }
            (new["status"] != old["status"]).then_some(new)
        };
        Ok(gone_is_fine(
            self.client.change(&self.resource, Some("status"), key, edit).await,
        )?)
    }
}

impl Controller for StatefulSets {
    fn resource(&self) -> &'static str {
        SETS.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS, REVISIONS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        SETS.concerned(&self.client, &self.resource, change, view)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(SETS.storage, key)? else {
            return Ok(Done::Settled);
        };
        let set = self.client.read(&self.resource, &object)?;
        let Some(selection) = (SETS.selection)(&set["spec"]["selector"]) else {
            return Ok(Done::Settled);
        };
        let claimant = Claimant {
            client: &self.client,
            dependents: &self.pods,
            owner: &set,
            selection: &selection,
            may_adopt: |_| true,
        };
        let is_member = |pod: &Value| identity::ordinal(&set, pod).is_some();
        let pods = claimant.claim_named(&view, &is_member).await?;
        let mut pods = Pods::of(&set, pods);
        if !set["metadata"]["deletionTimestamp"].is_null() {
            let name = |field: &str| set["status"][field].as_str().unwrap_or("");
            let names = (name("currentRevision"), name("updateRevision"));
            self.tell_status(key, &set, &pods, names, None).await?;
            return Ok(Done::Settled);
        }
        let history = History {
            client: &self.client,
            revisions: &self.revisions,
            owner: &set,
            selection: &selection,
            label: HASH_LABEL,
        };
        let revisions = history.sync(&view).await?;
        let update = revisions.current();
        let current = &set["status"]["currentRevision"];
        let current = revisions
            .all
            .iter()
            .find(|revision| revision["metadata"]["name"] == *current);
        let current = current.unwrap_or(update);

        let strategy = &set["spec"]["updateStrategy"];
        let min_ready_s = set["spec"]["minReadySeconds"].as_i64().unwrap_or(0);
        let partition = identity::start(&set) + strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
        let wish = Wish {
            is_parallel: set["spec"]["podManagementPolicy"] == "Parallel",
            update: Some(name_of(update)).filter(|_| strategy["type"] != "OnDelete"),
            partition,
            min_ready_s,
            now_s: jiff::Timestamp::now().as_second(),
        };
        let steps = wish.steps(&pods);
        let work = Work {
            sets: self,
            set: &set,
            before_partition: Template::of(current),
            template: Template::of(update),
            partition,
        };
        let worked = work.on(&mut pods, &steps).await;
        let names = (name_of(current), name_of(update));
        self.tell_status(key, &set, &pods, names, Some(revisions.collisions))
            .await?;
        let is_live = |revision: &Value| {
            let name = name_of(revision);
            name == names.0 || pods.all().any(|pod| identity::revision_of(pod) == name)
        };
        history.forget_old(&revisions, is_live).await?;
        let waits = |pod: &Value| pod::is_ready(pod) && !pod::is_available(pod, min_ready_s, wish.now_s);
        let until_available = pods.all().any(waits).then(|| seconds(min_ready_s));
        let ended_at_once = |pod: &Value| plan::ended_at_once(pod, wish.now_s);
        let until_replaced = pods.all().any(ended_at_once).then(|| seconds(1));
        let next = worked?.into_iter().chain(until_available).chain(until_replaced).min();
        Ok(next.map_or(Done::Settled, Done::After))
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1))
}
