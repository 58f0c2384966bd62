//! Where it all comes together: what the log says goes into the picture and the queue, and Pods from the queue are decided on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::outcome::{Outcomes, Subject};
use super::placement::{self, Class, Cluster, Decision, Place, PodFacts, PodId, Rule};
use super::queue::Queue;
use super::{PROFILE, uid_of};
use crate::api::Client;
use crate::api::status::Status;
use crate::events::Recorder;
use crate::resources::{self, ResourceRef};
use crate::store::{Event, EventKind, Follower, HistoryError, Object, Range, Selection, View};
use crate::tree::Value;

/// Decisions that are being written at a time: enough that the log's syncs are shared by many.
const WRITING_MAX: usize = 128;
/// Objects of a listing, and events, that are taken at a time.
const RUN_MAX: usize = 256;
/// When to begin anew after what is stored could not be read.
const AGAIN: Duration = Duration::from_secs(1);

const PODS: &str = "pods";
const NODES: &str = "nodes";
const NAMESPACES: &str = "namespaces";

/// Runs until the server stops.
pub(super) async fn run(client: Client, recorder: Recorder) {
    let kind = |name| resources::stored(name).map(ResourceRef::from);
    let (Some(pods), Some(nodes), Some(namespaces)) = (kind(PODS), kind(NODES), kind(NAMESPACES)) else {
        return;
    };
    let stopping = client.stopping().clone();
    let outcomes = Outcomes { client, recorder, pods };
    let work = async {
        loop {
            let mut desk = Desk {
                outcomes: outcomes.clone(),
                nodes: nodes.clone(),
                namespaces: namespaces.clone(),
                cluster: Cluster::default(),
                queue: Queue::default(),
                from: 0,
                writing: JoinSet::new(),
            };
            match desk.work().await {
                // Behind the retained history: begins anew from what is stored.
                Interruption::Behind => tracing::debug!("begins anew from what is stored"),
                Interruption::Unreadable(status) => {
                    tracing::warn!(%status, "Pods or nodes cannot be read");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = stopping.stopped() => {}
    }
}

/// Why a picture cannot be kept up to date.
enum Interruption {
    Behind,
    Unreadable(Status),
}

impl From<HistoryError> for Interruption {
    fn from(_: HistoryError) -> Self {
        Self::Behind
    }
}

impl From<Status> for Interruption {
    fn from(status: Status) -> Self {
        Self::Unreadable(status)
    }
}

/// What became of what was written.
struct Written {
    subject: Subject,
    /// It was bound, or was to be.
    is_binding: bool,
    result: Result<(), Status>,
}

struct Desk {
    outcomes: Outcomes,
    nodes: ResourceRef,
    namespaces: ResourceRef,
    cluster: Cluster,
    queue: Queue,
    /// Which node is looked at first.
    from: usize,
    writing: JoinSet<Written>,
}

impl Desk {
    async fn work(&mut self) -> Interruption {
        match self.keep_up().await {
            Ok(never) => match never {},
            Err(interruption) => {
                // What is being written is not given up half done.
                while self.writing.join_next().await.is_some() {}
                interruption
            }
        }
    }

    async fn keep_up(&mut self) -> Result<std::convert::Infallible, Interruption> {
        let store = self.outcomes.client.store().clone();
        let view = store.view();
        let follow = |resource: &str| store.follow(resource, None, view.revision());
        let (mut nodes, mut namespaces, mut pods) = (follow(NODES)?, follow(NAMESPACES)?, follow(PODS)?);
        self.read_all(&view)?;
        loop {
            // Nodes before Pods: who was bound to a new node was so after it came.
            self.take(&mut namespaces, |desk, event| desk.see_namespace(event))
                .await?;
            self.take(&mut nodes, |desk, event| desk.see_node(event)).await?;
            self.take(&mut pods, |desk, event| desk.see_pod(event)).await?;
            while let Some(written) = self.writing.try_join_next() {
                self.note(written);
            }
            let now = Instant::now();
            if self.writing.len() < WRITING_MAX
                && let Some(id) = self.queue.pop(now)
            {
                self.decide(id, now);
                // Others are let in between.
                tokio::task::yield_now().await;
                continue;
            }
            let is_full = self.writing.len() >= WRITING_MAX;
            let due = self.queue.due().filter(|_| !is_full);
            let alarm = async move {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pods.changed() => {}
                () = nodes.changed() => {}
                () = namespaces.changed() => {}
                Some(written) = self.writing.join_next() => self.note(written),
                () = alarm => {}
            }
        }
    }

    /// Reads everything as it is now.
    fn read_all(&mut self, view: &Arc<View>) -> Result<(), Interruption> {
        let each = |storage: &str, see: &mut dyn FnMut(Object) -> Result<(), Status>| -> Result<(), Interruption> {
            let mut listing = view.list(storage, Range::default(), &Selection::all());
            while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
                for object in run.objects() {
                    see(object)?;
                }
            }
            Ok(())
        };
        each(NAMESPACES, &mut |object| self.set_namespace(&object))?;
        each(NODES, &mut |object| self.set_node(&object).map(drop))?;
        each(PODS, &mut |object| self.set_pod(&object))
    }

    /// Takes what is new of a resource.
    async fn take(
        &mut self,
        follower: &mut Follower,
        see: impl Fn(&mut Self, &Event) -> Result<(), Status>,
    ) -> Result<(), Interruption> {
        let mut taken = 0_usize;
        while let Some(event) = follower.next()? {
            see(self, &event)?;
            taken += 1;
            if taken.is_multiple_of(RUN_MAX) {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn see_namespace(&mut self, event: &Event) -> Result<(), Status> {
        if event.kind == EventKind::Deleted {
            self.cluster.set_namespace(event.object.name(), None);
            return Ok(());
        }
        self.set_namespace(&event.object)?;
        self.wake(&[Rule::InterPodAffinity]);
        Ok(())
    }

    fn set_namespace(&mut self, object: &Object) -> Result<(), Status> {
        let namespace = self.outcomes.client.read(&self.namespaces, object)?;
        self.cluster.set_namespace(object.name(), Some(&namespace));
        Ok(())
    }

    fn see_node(&mut self, event: &Event) -> Result<(), Status> {
        if event.kind == EventKind::Deleted {
            self.cluster.remove_node(event.object.name());
            self.wake(&[Rule::PodTopologySpread]);
            return Ok(());
        }
        if let Some(node) = self.set_node(&event.object)? {
            self.wake_for(node, &[Rule::PodTopologySpread]);
        }
        Ok(())
    }

    /// The node, if something that matters of it has changed.
    fn set_node(&mut self, object: &Object) -> Result<Option<u32>, Status> {
        let node = self.outcomes.client.read(&self.nodes, object)?;
        Ok(self.cluster.set_node(object.name(), &node))
    }

    fn see_pod(&mut self, event: &Event) -> Result<(), Status> {
        if event.kind == EventKind::Deleted {
            self.drop_pod(event.object.key());
            return Ok(());
        }
        self.set_pod(&event.object)
    }

    /// A Pod is no more, or has ended: there is room where it was.
    fn drop_pod(&mut self, key: &str) {
        let Some(id) = self.cluster.id(key) else { return };
        let node = self.cluster.pod(id).place.node();
        self.queue.remove(id);
        self.cluster.remove_pod(id);
        if let Some(node) = node {
            self.wake_for(node, &[Rule::InterPodAffinity, Rule::PodTopologySpread, Rule::Volumes]);
        }
    }

    fn set_pod(&mut self, object: &Object) -> Result<(), Status> {
        let key = object.key();
        let pod = self.outcomes.client.read(&self.outcomes.pods, object)?;
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            self.drop_pod(key);
            return Ok(());
        }
        let class = Class::of(&pod, self.cluster.names());
        let facts = facts_of(&pod);
        let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        let before = self.cluster.id(key).map(|id| {
            let before = self.cluster.pod(id);
            (before.place, before.facts.uid, self.cluster.class(id).clone())
        });
        // Another Pod under the same name.
        if before.as_ref().is_some_and(|(_, uid, _)| *uid != facts.uid) {
            self.drop_pod(key);
        }
        let before = before.filter(|(_, uid, _)| *uid == facts.uid);
        let is_same = before.as_ref().is_some_and(|(_, _, before)| **before == class);
        let priority = class.priority;
        let is_gated = !class.gates.is_empty();
        let is_own = *class.scheduler == *PROFILE;
        let id = self.cluster.set_pod(key, class, facts, node);
        if node.is_some() {
            self.queue.remove(id);
            self.cluster.nominate(id, None);
            let was_there = before.is_some_and(|(place, ..)| place.node().is_some());
            if !was_there || !is_same {
                self.wake(&[Rule::InterPodAffinity, Rule::PodTopologySpread]);
            }
            return Ok(());
        }
        let nominated = pod["status"]["nominatedNodeName"].as_str();
        self.cluster.nominate(id, nominated.filter(|node| !node.is_empty()));
        if !is_own || facts.is_deleting {
            self.queue.remove(id);
        } else if self.cluster.pod(id).place == Place::Nowhere && (!self.queue.holds(id) || !is_same) {
            self.queue.add(id, priority, is_gated);
        }
        Ok(())
    }

    /// Gives those another chance that failed by one of these rules.
    fn wake(&mut self, rules: &[Rule]) {
        if self.queue.is_waiting() {
            self.queue
                .wake(Instant::now(), |_, failed| rules.iter().any(|rule| failed.has(*rule)));
        }
    }

    /// The same, and those that could go to this node now.
    fn wake_for(&mut self, node: u32, rules: &[Rule]) {
        if !self.queue.is_waiting() {
            return;
        }
        let mut known: HashMap<*const Class, bool> = HashMap::new();
        let cluster = &self.cluster;
        self.queue.wake(Instant::now(), |id, failed| {
            rules.iter().any(|rule| failed.has(*rule))
                || *known
                    .entry(Arc::as_ptr(cluster.class(id)))
                    .or_insert_with(|| placement::may_suit(cluster, id, node))
        });
    }

    fn decide(&mut self, id: PodId, now: Instant) {
        let pod = self.cluster.pod(id);
        let subject = Subject {
            key: pod.key.clone(),
            uid: pod.facts.uid,
        };
        let outcomes = self.outcomes.clone();
        match placement::decide(&self.cluster, id, &mut self.from) {
            Decision::Place(node) => {
                self.cluster.assume(id, node);
                let name = self.cluster.node_name(node).clone();
                self.writing.spawn(async move {
                    let result = outcomes.bind(&subject, &name).await;
                    let is_binding = true;
                    Written {
                        subject,
                        is_binding,
                        result,
                    }
                });
            }
            Decision::Nowhere(misfit) => {
                self.queue.wait(id, misfit.rules, now);
                let message = misfit.to_string();
                self.writing.spawn(async move {
                    let result = outcomes.refuse(&subject, &message, None).await;
                    let is_binding = false;
                    Written {
                        subject,
                        is_binding,
                        result,
                    }
                });
            }
        }
    }

    fn note(&mut self, written: Result<Written, tokio::task::JoinError>) {
        let Ok(Written {
            subject,
            is_binding,
            result,
        }) = written
        else {
            return;
        };
        let Err(status) = result else { return };
        tracing::debug!(pod = %subject.key, %status, "what was decided was refused");
        let id = self.cluster.id(&subject.key);
        let Some(id) = id.filter(|id| self.cluster.pod(*id).facts.uid == subject.uid && is_binding) else {
            return;
        };
        let place = self.cluster.pod(id).place;
        if let Place::Assumed(node) = place {
            self.cluster.forget(id);
            self.queue.retry(id, Instant::now());
            self.wake_for(node, &[Rule::InterPodAffinity, Rule::PodTopologySpread, Rule::Volumes]);
        }
    }
}

fn facts_of(pod: &Value) -> PodFacts {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let time = |text: &Value| {
        text.as_str()?
            .parse::<jiff::Timestamp>()
            .ok()
            .map(jiff::Timestamp::as_second)
    };
    PodFacts {
        uid: uid_of(metadata["uid"].as_str().unwrap_or("")),
        since_s: time(&status["startTime"])
            .or_else(|| time(&metadata["creationTimestamp"]))
            .unwrap_or(0),
        is_deleting: !metadata["deletionTimestamp"].is_null(),
    }
}
