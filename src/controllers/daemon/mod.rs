//! DaemonSets: a Pod of a template on every node that suits it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `place` | which nodes want a Pod, and which may keep theirs; how a Pod is made that runs on one node alone |
//! | `crews` | makes what is missing, deletes what is too much |
//! | `rollout` | replaces Pods of former templates, as many at a time as the strategy allows |
//! | `status` | tells how many there are |

mod crews;
mod place;
mod rollout;
mod status;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::claim::{Claimant, Kind};
use super::crew::Crew;
use super::event::{Level, Recorder};
use super::failure::Failure;
use super::history::{HASH_LABEL, History, REVISIONS};
use super::pod;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Range, Selection, View};
use crate::tree::Value;
use place::Node;

const SETS: Kind = Kind {
    storage: "daemonsets.apps",
    group: "apps",
    kind: "DaemonSet",
    selection: selector::selection,
};
const PODS: &str = "pods";
const NODES: &str = "nodes";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;
/// Pods that one look makes or deletes at most.
const BURST: usize = 250;
/// Failed Pods of a node are replaced after this long, twice as long after each further one.
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_mins(15);

/// The controller of DaemonSets.
pub(super) struct DaemonSets {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    pods: ResourceRef,
    revisions: ResourceRef,
    /// Of set and node: when its last failed Pod was replaced, and how long the next one has to wait. Forgotten after twice the longest
    /// wait.
    failed: Mutex<HashMap<(String, String), (Instant, Duration)>>,
}

impl DaemonSets {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(SETS.storage)?.into(),
            pods: resources::stored(PODS)?.into(),
            revisions: resources::stored(REVISIONS)?.into(),
            failed: Mutex::default(),
        })
    }
}

/// What one look goes by.
struct Look<'a> {
    set: &'a Value,
    /// What the set has, Pods that are being deleted included.
    pods: Vec<Value>,
    nodes: Vec<Node>,
    /// Places in `pods` by the node that each is on, or is meant for.
    by_node: BTreeMap<String, Vec<usize>>,
    /// Of the present template.
    hash: String,
    now_s: i64,
}

impl Look<'_> {
    fn on(&self, node: &str) -> &[usize] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    fn min_ready_s(&self) -> i64 {
        self.set["spec"]["minReadySeconds"].as_i64().unwrap_or(0)
    }

    fn is_available(&self, place: usize) -> bool {
        pod::is_available(&self.pods[place], self.min_ready_s(), self.now_s)
    }

    /// Whether a Pod is of the present template.
    fn is_updated(&self, place: usize) -> bool {
        self.pods[place]["metadata"]["labels"][HASH_LABEL] == self.hash.as_str()
    }

    /// How many Pods there may be above one on each node during a rollout.
    fn surge(&self) -> i64 {
        let update = &self.set["spec"]["updateStrategy"];
        if update["type"] == "OnDelete" {
            return 0;
        }
        super::percent::resolve(&update["rollingUpdate"]["maxSurge"], self.desired(), true)
    }

    /// Nodes that want a Pod.
    fn desired(&self) -> i64 {
        self.nodes.iter().filter(|node| node.runs).count() as i64
    }
}

impl Controller for DaemonSets {
    fn resource(&self) -> &'static str {
        SETS.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS, NODES, REVISIONS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if change.storage != NODES {
            return SETS.concerned(&self.client, &self.resource, change, view);
        }
        if !place::matters(change)? {
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        let mut listing = view.list(SETS.storage, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            keys.extend(run.objects().map(|object| Arc::from(object.key())));
        }
        Ok(keys)
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
        if selection.is_everything() {
            let text = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder
                .tell(&set, Level::Warning, "SelectingAll", text.to_owned());
            return Ok(Done::Settled);
        }
        let is_deleting = !set["metadata"]["deletionTimestamp"].is_null();
        if is_deleting {
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
        let hash = revisions.current()["metadata"]["labels"][HASH_LABEL]
            .as_str()
            .unwrap_or("")
            .to_owned();
        let claimant = Claimant {
            client: &self.client,
            dependents: &self.pods,
            owner: &set,
            selection: &selection,
            may_adopt: pod::is_active,
        };
        let pods = claimant.claim(&view).await?;
        let mut by_node: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (place, pod) in pods.iter().enumerate() {
            if let Some(node) = place::node_of(pod) {
                by_node.entry(node.to_owned()).or_default().push(place);
            }
        }
        let mut look = Look {
            nodes: place::nodes(&view, &set)?,
            set: &set,
            pods,
            by_node,
            hash,
            now_s: jiff::Timestamp::now().as_second(),
        };
        let crew = Crew {
            client: &self.client,
            recorder: &self.recorder,
            pods: &self.pods,
            owner: &set,
        };
        let (mut failed, mut next) = self.man(&crew, &mut look).await;
        if failed.is_none() && set["spec"]["updateStrategy"]["type"] != "OnDelete" {
            failed = self.roll(&crew, &mut look).await;
        }
        let used = |revision: &Value| {
            let hash = &revision["metadata"]["labels"][HASH_LABEL];
            look.pods
                .iter()
                .any(|pod| pod["metadata"]["labels"][HASH_LABEL] == *hash)
        };
        history.forget_old(&revisions, used).await?;
        next = next
            .into_iter()
            .chain(self.tell_status(key, &look, revisions.collisions).await?)
            .min();
        match failed {
            Some(failed) => Err(failed),
            None => Ok(next.map_or(Done::Settled, Done::After)),
        }
    }
}
