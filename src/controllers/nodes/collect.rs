//! Pods that nobody else would take away: those on nodes that are gone or out of service, those that were deleted before they had a
//! node, and the oldest of too many that are over.
//!
//! Sidecars are looked through every 20 seconds, and only if a Pod or a node was written since; of 100,000 Pods that is some
//! milliseconds, and what is kept between is the names of nodes that are gone.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flatkube_format::sidecar::ArchivedSidecar;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{NODES, PODS, RUN_MAX, mentions, taints};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::condition;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::is_same;
use crate::controllers::pod::is_over;
use crate::controllers::settings::Settings;
use crate::resources::{self, DELETING, ResourceRef};
use crate::store::{Range, ResourceState, Selection, View};
use crate::tree::Value;

/// Pods that are taken away side by side: their writes share a sync.
const AT_ONCE: usize = 32;

/// Why a Pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Its node is gone.
    Orphaned,
    /// It was deleted, and no node has it.
    NeverPlaced,
    /// It was deleted, and its node is out of service.
    OutOfService,
    /// There are too many that are over.
    Surplus,
}

struct Collector {
    client: Client,
    pods: ResourceRef,
    nodes: ResourceRef,
    over_max: usize,
    quarantine: Duration,
    /// Nodes that Pods name and that are not there, and since when.
    missing: HashMap<Box<str>, Instant>,
}

/// Looks for such Pods until the server stops.
pub(in crate::controllers) async fn run(client: Client, settings: Settings) {
    let (Some(pods), Some(nodes)) = (resources::stored(PODS), resources::stored(NODES)) else {
        return;
    };
    let stopping = client.stopping().clone();
    let mut collector = Collector {
        client,
        pods: pods.into(),
        nodes: nodes.into(),
        over_max: settings.pods_over_max,
        quarantine: settings.orphan_quarantine,
        missing: HashMap::new(),
    };
    tokio::select! {
        () = stopping.stopped() => {}
        () = collector.go_on(settings.pod_collection_period) => {}
    }
}

impl Collector {
    async fn go_on(&mut self, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        let mut seen = None;
        loop {
            ticks.tick().await;
            let view = self.client.store().view();
            let states = [PODS, NODES].map(|resource| view.state(resource));
            let is_same = seen.as_ref().is_some_and(|seen: &[ResourceState; 2]| {
                seen.iter()
                    .zip([PODS, NODES])
                    .all(|(state, resource)| state.is_of(&view, resource))
            });
            if is_same && self.missing.is_empty() {
                continue;
            }
            match self.collect(&view).await {
                Ok(()) => seen = Some(states),
                Err(error) => {
                    tracing::debug!(%error, "Pods that nobody has cannot be collected");
                    seen = None;
                }
            }
        }
    }

    async fn collect(&mut self, view: &Arc<View>) -> Result<(), Failure> {
        let found = self.find(view)?;
        let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
        for (key, why) in found {
            if tasks.len() >= AT_ONCE
                && let Some(done) = tasks.join_next().await
            {
                done??;
            }
            let (client, pods, view) = (self.client.clone(), self.pods.clone(), view.clone());
            tasks.spawn(async move { take_away(&client, &pods, &view, &key, why).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Keys of the Pods that go. Reads sidecars alone, and the nodes of Pods that are being deleted.
    fn find(&mut self, view: &Arc<View>) -> Result<Vec<(Arc<str>, Why)>, Failure> {
        let now = Instant::now();
        let mut nodes = Nodes::new(view);
        let mut found = Vec::new();
        let mut over = 0_usize;
        let mut missing = HashSet::new();
        let mut listing = view.list(PODS, Range::default(), &Selection::all()).reading_sidecars();
        while let Some(run) = listing.next(RUN_MAX)? {
            for pod in run.objects() {
                let sidecar = pod.sidecar()?;
                let node = sidecar.field("spec.nodeName").unwrap_or("");
                let is_deleting = sidecar.field(DELETING.0).is_some();
                over += usize::from(has_ended(sidecar));
                if node.is_empty() {
                    if is_deleting {
                        found.push((pod.key().into(), Why::NeverPlaced));
                    }
                } else if !nodes.is_there(node)? {
                    let since = *self.missing.entry(node.into()).or_insert(now);
                    missing.insert(Box::<str>::from(node));
                    if now.duration_since(since) >= self.quarantine {
                        found.push((pod.key().into(), Why::Orphaned));
                    }
                } else if is_deleting && nodes.is_out_of_service(node, &self.client, &self.nodes)? {
                    found.push((pod.key().into(), Why::OutOfService));
                }
            }
        }
        self.missing.retain(|node, _| missing.contains(node));
        if over > self.over_max {
            found.extend(
                oldest(view, over - self.over_max)?
                    .into_iter()
                    .map(|key| (key, Why::Surplus)),
            );
        }
        Ok(found)
    }
}

fn has_ended(sidecar: &ArchivedSidecar) -> bool {
    matches!(sidecar.field("status.phase"), Some("Succeeded" | "Failed"))
}

/// So many of the Pods that are over: first those that were evicted, then the oldest. Takes about 100 bytes for each that is over.
fn oldest(view: &Arc<View>, count: usize) -> Result<Vec<Arc<str>>, Failure> {
    let mut over: Vec<(bool, i64, Arc<str>)> = Vec::new();
    let mut listing = view.list(PODS, Range::default(), &Selection::all()).reading_sidecars();
    while let Some(run) = listing.next(RUN_MAX)? {
        for pod in run.objects() {
            let sidecar = pod.sidecar()?;
            if has_ended(sidecar) {
                let created_s = sidecar.created_at().unwrap_or(0);
                over.push((!mentions(&pod, "\"reason\":\"Evicted\"")?, created_s, pod.key().into()));
            }
        }
    }
    over.sort_unstable();
    over.truncate(count);
    Ok(over.into_iter().map(|(_, _, key)| key).collect())
}

/// What is known of nodes during one walk.
struct Nodes<'a> {
    view: &'a View,
    there: HashMap<Box<str>, bool>,
    out_of_service: HashMap<Box<str>, bool>,
}

impl<'a> Nodes<'a> {
    fn new(view: &'a View) -> Self {
        Self {
            view,
            there: HashMap::new(),
            out_of_service: HashMap::new(),
        }
    }

    fn is_there(&mut self, name: &str) -> Result<bool, Failure> {
        if let Some(known) = self.there.get(name) {
            return Ok(*known);
        }
        let is_there = self.view.get(NODES, name)?.is_some();
        self.there.insert(name.into(), is_there);
        Ok(is_there)
    }

    /// Whether somebody said that a node is off, and it is not ready.
    fn is_out_of_service(&mut self, name: &str, client: &Client, nodes: &ResourceRef) -> Result<bool, Failure> {
        if let Some(known) = self.out_of_service.get(name) {
            return Ok(*known);
        }
        let found = self.view.get(NODES, name)?;
        let is_out = match found {
            Some(object) if mentions(&object, taints::OUT_OF_SERVICE)? => {
                let node = client.read(nodes, &object)?;
                let is_tainted = taints::of(&node)
                    .iter()
                    .any(|taint| taint["key"] == taints::OUT_OF_SERVICE);
                is_tainted && taints::readiness(&node) != Some("True")
            }
            _ => false,
        };
        self.out_of_service.insert(name.into(), is_out);
        Ok(is_out)
    }
}

/// Says that a Pod has failed that nobody says anything of any more, and deletes it without grace.
async fn take_away(client: &Client, pods: &ResourceRef, view: &View, key: &str, why: Why) -> Result<(), Failure> {
    let Some(object) = view.get(PODS, key)? else {
        return Ok(());
    };
    let pod = client.read(pods, &object)?;
    let current = client.store().view();
    if why == Why::Orphaned
        && current
            .get(NODES, pod["spec"]["nodeName"].as_str().unwrap_or(""))?
            .is_some()
    {
        return Ok(());
    }
    if !is_over(&pod) {
        let now_s = jiff::Timestamp::now().as_second();
        let edit = |old: &Value| (is_same(old, &pod) && !is_over(old)).then(|| failed(old, why, now_s));
        gone_is_fine(client.change(pods, Some("status"), key, edit).await)?;
    }
    let delete = Delete {
        uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
        grace_s: Some(0),
        ..Delete::default()
    };
    match client.delete(pods, key, &delete).await {
        // Another Pod has its name by now.
        Err(status) if status.code == 409 => {}
        other => gone_is_fine(other)?,
    }
    Ok(())
}

fn failed(pod: &Value, why: Why, now_s: i64) -> Value {
    let mut new = pod.clone();
    new["status"]["phase"] = "Failed".into();
    if why == Why::Orphaned {
        let what = ("True", "DeletionByPodGC");
        let generation = &pod["metadata"]["generation"];
        let text = "PodGC: node no longer exists";
        condition::set(&mut new["status"], "DisruptionTarget", what, text, generation, now_s);
    }
    new
}
