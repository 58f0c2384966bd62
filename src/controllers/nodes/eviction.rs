//! Pods go from nodes with `NoExecute` taints that they do not tolerate, at once or after `tolerationSeconds`.
//!
//! A Pod's time runs from the moment when it was first seen beside the taint, as with kube-controller-manager; a server that starts
//! gives every Pod its time anew.
//!
//! Rules: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::lifecycle::evicts;
use super::taints::{self, Stay};
use super::{NODES, PODS, RUN_MAX, pods_on};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::condition;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;

const REASON: &str = "TaintManagerEviction";

/// Pods by key: UID, and since when.
type Waiting = HashMap<Arc<str>, (Box<str>, Instant)>;

pub(in crate::controllers) struct Evictions {
    client: Client,
    recorder: Recorder,
    nodes: ResourceRef,
    pods: ResourceRef,
    /// Pods whose time runs. About 150 bytes each.
    waiting: Mutex<Waiting>,
}

impl Evictions {
    /// `None` if there are no nodes.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            nodes: resources::stored(NODES)?.into(),
            pods: resources::stored(PODS)?.into(),
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when a Pod's time runs; from now on if it did not.
    fn since(&self, key: &str, uid: &str) -> Instant {
        let mut waiting = self.waiting();
        match waiting.get(key) {
            Some((known, since)) if **known == *uid => *since,
            _ => {
                let now = Instant::now();
                waiting.insert(key.into(), (uid.into(), now));
                now
            }
        }
    }

    /// How long a Pod may stay where it is.
    fn stay(&self, view: &View, pod: &Value) -> Result<Stay, Failure> {
        let name = pod["spec"]["nodeName"].as_str().unwrap_or("");
        match view.get(NODES, name)? {
            Some(node) if evicts(&node)? => {
                let node = self.client.read(&self.nodes, &node)?;
                Ok(taints::stay(pod, taints::of(&node)))
            }
            _ => Ok(Stay::Forever),
        }
    }

    fn tell(&self, pod: &Value, what: &str) {
        let metadata = &pod["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or("");
        let message = format!("{what} Pod {}/{}", text("namespace"), text("name"));
        self.recorder.tell(pod, Level::Normal, REASON, message);
    }

    async fn evict(&self, key: &str, pod: &Value) -> Result<(), Failure> {
        self.tell(pod, "Marking for deletion");
        let now_s = jiff::Timestamp::now().as_second();
        let edit = |old: &Value| {
            let is_it = is_same(old, pod) && old["metadata"]["deletionTimestamp"].is_null();
            is_it.then(|| {
                let mut new = old.clone();
                let what = ("True", "DeletionByTaintManager");
                let text = "Taint manager: deleting due to NoExecute taint";
                let generation = &old["metadata"]["generation"];
                condition::set(&mut new["status"], "DisruptionTarget", what, text, generation, now_s);
                new
            })
        };
        gone_is_fine(self.client.change(&self.pods, Some("status"), key, edit).await)?;
        let delete = Delete {
            uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
            ..Delete::default()
        };
        match self.client.delete(&self.pods, key, &delete).await {
            // Another Pod has its name by now.
            Err(status) if status.code == 409 => {}
            other => gone_is_fine(other)?,
        }
        Ok(())
    }
}

fn has_taints(view: &View, pod: &Object) -> Result<bool, Failure> {
    let node = pod.sidecar()?.field("spec.nodeName").map(|name| view.get(NODES, name));
    match node {
        Some(found) => found?.as_ref().map_or(Ok(false), evicts),
        None => Ok(false),
    }
}

impl Controller for Evictions {
    fn resource(&self) -> &'static str {
        PODS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[NODES]
    }

    /// A node's Pods, when it has such taints or had them.
    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let (is, was) = (evicts(change.object)?, change.previous.map_or(Ok(false), evicts)?);
        if !is && !was {
            return Ok(Vec::new());
        }
        let node = self.client.read(&self.nodes, change.object)?;
        if let Some(previous) = change.previous.filter(|_| !change.is_gone) {
            let previous = self.client.read(&self.nodes, previous)?;
            if previous["spec"]["taints"] == node["spec"]["taints"] {
                return Ok(Vec::new());
            }
        }
        pods_on(view, change.object.name())
    }

    /// None but those that `left_over` finds: only Pods on such nodes want a look.
    fn begins_with(&self) -> Selection {
        Selection {
            requirements: vec![Requirement::OwnedBy(String::new())],
        }
    }

    fn is_about(&self, pod: &Object) -> Result<bool, Damaged> {
        if self.waiting().contains_key(pod.key()) {
            return Ok(true);
        }
        // What cannot be read gets its look.
        Ok(has_taints(&self.client.store().view(), pod).unwrap_or(true))
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let mut keys: BTreeSet<Arc<str>> = self.waiting().keys().cloned().collect();
        let mut listing = view.list(NODES, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for node in run.objects() {
                if evicts(&node)? {
                    keys.extend(pods_on(view, node.name())?);
                }
            }
        }
        Ok(keys.into_iter().collect())
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(PODS, key)? else {
            self.waiting().remove(key);
            return Ok(Done::Settled);
        };
        let pod = self.client.read(&self.pods, &object)?;
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            self.waiting().remove(key);
            return Ok(Done::Settled);
        }
        let uid = pod["metadata"]["uid"].as_str().unwrap_or("");
        let wait = match self.stay(&view, &pod)? {
            Stay::Forever => {
                let waited = self.waiting().remove(key);
                if waited.is_some_and(|(known, _)| *known == *uid) {
                    self.tell(&pod, "Cancelling deletion of");
                }
                return Ok(Done::Settled);
            }
            Stay::NotAtAll => Duration::ZERO,
            Stay::For(seconds) => {
                // Longer than anybody waits, and no moment that cannot be told.
                let stay = Duration::from_secs(seconds.min(u64::from(u32::MAX)));
                (self.since(key, uid) + stay).saturating_duration_since(Instant::now())
            }
        };
        if !wait.is_zero() {
            return Ok(Done::After(wait));
        }
        self.evict(key, &pod).await?;
        self.waiting().remove(key);
        Ok(Done::Settled)
    }
}
