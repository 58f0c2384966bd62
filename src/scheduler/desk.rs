//! Where it all comes together: what the log says goes into the picture and the queue, and Pods from the queue are decided on.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::outcome::{Outcome, Outcomes, Subject};
use super::placement::{self, Class, Cluster, Decision, Eviction, Place, PodFacts, PodId, Preemption, Rule, Rules};
use super::queue::Queue;
use super::{PROFILE, uid_of};
use crate::api::Client;
use crate::api::status::Status;
use crate::events::Recorder;
use crate::resources::{self, ResourceRef};
use crate::store::{EventKind, Follower, HistoryError, Object, Range, Selection, View};
use crate::tree::Value;

/// Decisions that are being written at a time: enough that the log's syncs are shared by many.
const WRITING_MAX: usize = 128;
/// Objects of a listing, and events, that are taken at a time.
const RUN_MAX: usize = 256;
/// When to begin anew after what is stored could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// What is done about an object of a resource, or that it is gone.
type See = fn(&mut Desk, &ResourceRef, &Object, bool) -> Result<(), Status>;

const PODS: &str = "pods";
/// What is followed. Pods come last: what they refer to was there before them.
const SOURCES: [(&str, See); 8] = [
    ("namespaces", Desk::see_namespace),
    ("storageclasses.storage.k8s.io", Desk::see_storage_class),
    ("persistentvolumes", Desk::see_volume),
    ("persistentvolumeclaims", Desk::see_claim),
    ("poddisruptionbudgets.policy", Desk::see_budget),
    ("services", Desk::see_service),
    ("nodes", Desk::see_node),
    (PODS, Desk::see_pod),
];

/// A resource that is followed.
struct Source {
    resource: ResourceRef,
    follower: Follower,
    see: See,
}

/// Runs until the server stops.
pub(super) async fn run(client: Client, recorder: Recorder) {
    let Some(pods) = resources::stored(PODS).map(ResourceRef::from) else {
        return;
    };
    let stopping = client.stopping().clone();
    let outcomes = Outcomes { client, recorder, pods };
    let work = async {
        loop {
            let mut desk = Desk {
                outcomes: outcomes.clone(),
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
    /// The Pod has to be tried again if it failed.
    is_needed: bool,
    result: Result<(), Status>,
}

struct Desk {
    outcomes: Outcomes,
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
        let mut sources = Vec::with_capacity(SOURCES.len());
        for (name, see) in SOURCES {
            if let Some(resource) = resources::stored(name).map(ResourceRef::from) {
                self.read_all(&view, &resource, see)?;
                let follower = store.follow(name, None, view.revision())?;
                sources.push(Source {
                    resource,
                    follower,
                    see,
                });
            }
        }
        loop {
            for source in &mut sources {
                self.take(source).await?;
            }
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
                () = changed(&mut sources) => {}
                Some(written) = self.writing.join_next() => self.note(written),
                () = alarm => {}
            }
        }
    }

    /// Reads all objects of a resource as they are now.
    fn read_all(&mut self, view: &Arc<View>, resource: &ResourceRef, see: See) -> Result<(), Interruption> {
        let mut listing = view.list(&resource.storage, Range::default(), &Selection::all());
        while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
            for object in run.objects() {
                see(self, resource, &object, false)?;
            }
        }
        Ok(())
    }

    /// Takes what is new of a resource.
    async fn take(&mut self, source: &mut Source) -> Result<(), Interruption> {
        let mut taken = 0_usize;
        while let Some(event) = source.follower.next()? {
            let is_gone = event.kind == EventKind::Deleted;
            (source.see)(self, &source.resource, &event.object, is_gone)?;
            taken += 1;
            if taken.is_multiple_of(RUN_MAX) {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// The object as a tree; `None` when it is gone.
    fn read(&self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<Option<Value>, Status> {
        if is_gone {
            return Ok(None);
        }
        self.outcomes.client.read(resource, object).map(Some)
    }

    fn see_namespace(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let namespace = self.read(resource, object, is_gone)?;
        self.cluster.set_namespace(object.name(), namespace.as_ref());
        self.wake(&[Rule::InterPodAffinity]);
        Ok(())
    }

    fn see_storage_class(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let class = self.read(resource, object, is_gone)?;
        self.cluster.set_storage_class(object.name(), class.as_ref());
        self.wake(&[Rule::Volumes]);
        Ok(())
    }

    fn see_volume(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let volume = self.read(resource, object, is_gone)?;
        self.cluster.set_volume(object.name(), volume.as_ref());
        self.wake(&[Rule::Volumes]);
        Ok(())
    }

    fn see_claim(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let claim = self.read(resource, object, is_gone)?;
        self.cluster.set_claim(object.key(), claim.as_ref());
        self.wake(&[Rule::Volumes]);
        Ok(())
    }

    fn see_budget(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let budget = self.read(resource, object, is_gone)?;
        self.cluster.set_budget(object.key(), budget.as_ref());
        Ok(())
    }

    fn see_service(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let service = self.read(resource, object, is_gone)?;
        self.cluster.set_service(object.key(), service.as_ref());
        Ok(())
    }

    fn see_node(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        match self.read(resource, object, is_gone)? {
            None => {
                self.cluster.remove_node(object.name());
                self.wake(&[Rule::PodTopologySpread]);
            }
            Some(node) => {
                if let Some(node) = self.cluster.set_node(object.name(), &node) {
                    self.wake_for(node, &[Rule::PodTopologySpread]);
                }
            }
        }
        Ok(())
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

    fn see_pod(&mut self, resource: &ResourceRef, object: &Object, is_gone: bool) -> Result<(), Status> {
        let key = object.key();
        let pod = self.read(resource, object, is_gone)?;
        let pod = pod.filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
        let Some(pod) = pod else {
            self.drop_pod(key);
            return Ok(());
        };
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
        let pod_is_nominated = pod.nominated.is_some();
        let subject = Subject {
            key: pod.key.clone(),
            uid: pod.facts.uid,
        };
        match placement::decide(&self.cluster, id, &mut self.from) {
            Decision::Place(node) => {
                let claims = self.cluster.waiting_claims(id);
                let (to, node) = (node, self.cluster.node_name(node).clone());
                if claims.is_empty() {
                    self.cluster.assume(id, to);
                    self.write(subject, Outcome::Bind { node });
                } else {
                    // Once they are bound, it is decided where the Pod goes with them.
                    let mut rules = Rules::default();
                    rules.add(Rule::Volumes);
                    self.queue.wait(id, rules, now);
                    self.write(subject, Outcome::Select { claims, node });
                }
            }
            Decision::Nowhere(misfit) => {
                self.queue.wait(id, misfit.rules, now);
                if self.cluster.node_count() == 0 {
                    let (message, nominated) = (misfit.to_string(), None);
                    self.write(subject, Outcome::Refuse { message, nominated });
                    return;
                }
                match placement::preempt(&self.cluster, id, &misfit, self.from) {
                    Preemption::Evict(eviction) => self.evict(id, subject, misfit.to_string(), &eviction),
                    Preemption::Not(text, is_under_way) => {
                        let message = format!("{misfit} preemption: {text}");
                        let nominated = (!is_under_way && pod_is_nominated).then_some("");
                        if nominated.is_some() {
                            self.cluster.nominate(id, None);
                        }
                        self.write(subject, Outcome::Refuse { message, nominated });
                    }
                }
            }
        }
    }

    /// Tells Pods to leave a node for one of higher priority.
    fn evict(&mut self, id: PodId, subject: Subject, message: String, eviction: &Eviction) {
        let node = self.cluster.node_name(eviction.node).clone();
        self.cluster.nominate(id, Some(&node));
        let subject_of = |id: &PodId| {
            let pod = self.cluster.pod(*id);
            Subject {
                key: pod.key.clone(),
                uid: pod.facts.uid,
            }
        };
        let victims: Vec<Subject> = eviction.victims.iter().map(subject_of).collect();
        let outcome = Outcome::Evict { message, victims, node };
        self.write(subject, outcome);
    }

    /// Lets an outcome be written while others are decided on.
    fn write(&mut self, subject: Subject, outcome: Outcome) {
        let outcomes = self.outcomes.clone();
        self.writing.spawn(async move {
            let is_needed = !matches!(outcome, Outcome::Refuse { .. });
            let result = outcomes.write(&subject, &outcome).await;
            Written {
                subject,
                is_needed,
                result,
            }
        });
    }

    fn note(&mut self, written: Result<Written, tokio::task::JoinError>) {
        let Ok(Written {
            subject,
            is_needed,
            result,
        }) = written
        else {
            return;
        };
        let Err(status) = result else { return };
        tracing::debug!(pod = %subject.key, %status, "what was decided was refused");
        let id = self.cluster.id(&subject.key);
        let Some(id) = id.filter(|id| self.cluster.pod(*id).facts.uid == subject.uid && is_needed) else {
            return;
        };
        let place = self.cluster.pod(id).place;
        if let Place::Assumed(node) = place {
            self.cluster.forget(id);
            self.queue.retry(id, Instant::now());
            self.wake_for(node, &[Rule::InterPodAffinity, Rule::PodTopologySpread, Rule::Volumes]);
        } else if place == Place::Nowhere {
            self.queue.retry(id, Instant::now());
        }
    }
}

/// Resolves when one of them has something new. Cancel-safe.
async fn changed(sources: &mut [Source]) {
    std::future::poll_fn(|context| {
        let mut is_ready = false;
        for source in &mut *sources {
            is_ready |= source.follower.poll_changed(context).is_ready();
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
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
