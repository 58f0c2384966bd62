//! A look at a Pod: what is stored, what comes next, what is written.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::addresses::{self, Pool};
use super::admission;
use super::life::{self, Moment};
use super::profile::Profile;
use super::told;
use crate::api::server::Server;
use crate::api::status::Status;
use crate::api::{Client, Delete};
use crate::events::Recorder;
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, View};
use crate::tree::Value;

/// How long a node waits for a range of addresses before its Pods get others, milliseconds.
const RANGE_WAIT_MS: i64 = 3000;
/// When to look again at what could not be written, milliseconds.
const AGAIN_MS: i64 = 1000;
/// When to look again at a Pod on a node that is stopped, milliseconds.
const STOPPED_MS: i64 = 5000;
/// The annotation of a Node that stops it, with `true`: it renews no Lease, says nothing, and its Pods stay as they are.
const STOPPED: &str = "\"hollow.flatkube.io/stopped\":\"true\"";

/// The simulated part of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) profile: Profile,
    pub(super) pods: ResourceRef,
    recorder: Recorder,
    /// When it began, Unix milliseconds.
    begun_ms: i64,
}

/// A simulated node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) ip: String,
    number: usize,
    addresses: Mutex<Addresses>,
}

/// How a node is, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Somebody deleted it.
    Gone,
    /// Somebody stopped it.
    Stopped,
    /// It was taken for dead, or for not ready.
    Doubted,
    Well,
}

impl Node {
    /// By its text: costs a search of some kilobytes.
    pub(super) fn standing(&self, view: &View) -> Result<Standing, Damaged> {
        let Some(object) = view.get("nodes", &self.name)? else {
            return Ok(Standing::Gone);
        };
        let text = std::str::from_utf8(object.json()?).unwrap_or("");
        Ok(if text.contains(STOPPED) {
            Standing::Stopped
        } else if text.contains("\"reason\":\"KubeletReady\"") {
            Standing::Well
        } else {
            Standing::Doubted
        })
    }
}

#[derive(Debug, Default)]
struct Addresses {
    /// Where the range of its Pods begins, once that is known.
    first: Option<Ipv4Addr>,
    pool: Pool,
}

fn lock(addresses: &Mutex<Addresses>) -> MutexGuard<'_, Addresses> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Now, Unix milliseconds.
pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Cluster {
    /// `None` if there are no Pods.
    pub(super) fn new(server: &Server, count: usize, profile: Profile, recorder: Recorder) -> Option<Self> {
        let node = |number| {
            let name = format!("hollow-{number:05}");
            Node {
                client: server.client(&format!("system:node:{name}"), "kubelet"),
                name,
                ip: addresses::of_node(number).to_string(),
                number,
                addresses: Mutex::default(),
            }
        };
        Some(Self {
            nodes: (1..=count).map(node).collect(),
            profile,
            pods: resources::stored("pods")?.into(),
            recorder,
            begun_ms: now_ms(),
        })
    }

    /// The simulated node that a Pod is on, by its sidecar.
    pub(super) fn node_of(&self, pod: &Object) -> Option<&Node> {
        self.named(pod.sidecar().ok()?.field("spec.nodeName")?)
    }

    /// The simulated node of a name.
    pub(super) fn named(&self, name: &str) -> Option<&Node> {
        let digits = name.strip_prefix("hollow-").filter(|digits| digits.len() == 5)?;
        let number: usize = digits.parse().ok()?;
        self.nodes.get(number.checked_sub(1)?)
    }

    /// Notes that the address of a Pod is in use, or no more.
    pub(super) fn note_address(&self, pod: &Object, is_taken: bool) {
        let Some(node) = self.node_of(pod) else { return };
        let Ok(sidecar) = pod.sidecar() else { return };
        let Some(address) = sidecar.field("status.podIP").filter(|address| *address != node.ip) else {
            return;
        };
        let mut addresses = lock(&node.addresses);
        let known = addresses.first;
        let first = known.or_else(|| {
            // The range is the one that it lies in.
            let address: Ipv4Addr = address.parse().ok()?;
            Some(Ipv4Addr::from_bits(address.to_bits() & !255))
        });
        if let Some(first) = first {
            addresses.first = Some(first);
            addresses.pool.note(first, address, is_taken);
        }
    }

    /// An address for a Pod; `None`: not yet.
    fn address(&self, node: &Node, now_ms: i64) -> Option<String> {
        let mut addresses = lock(&node.addresses);
        if addresses.first.is_none() {
            let view = node.client.store().view();
            let found = view.get("nodes", &node.name).ok().flatten();
            let object = found.and_then(|object| {
                let resource: ResourceRef = resources::stored("nodes")?.into();
                node.client.read(&resource, &object).ok()
            });
            let range = object.and_then(|object| addresses::first_of(object["spec"]["podCIDR"].as_str()?));
            let waited = now_ms - self.begun_ms > RANGE_WAIT_MS;
            addresses.first = range.or_else(|| waited.then(|| addresses::unassigned(node.number)));
        }
        let first = addresses.first?;
        let place = addresses.pool.take();
        Some(Ipv4Addr::from_bits(first.to_bits() + u32::from(place)).to_string())
    }

    /// Looks at a Pod and writes what comes of it. Gives when it wants its next look, Unix milliseconds.
    pub(super) async fn look(self: Arc<Self>, key: Arc<str>) -> Option<i64> {
        match self.try_look(&key).await {
            Ok(next_ms) => next_ms,
            Err(status) if status.code == 404 => None,
            Err(error) => {
                tracing::debug!(%key, %error, "a look at a Pod is tried again");
                Some(now_ms() + AGAIN_MS)
            }
        }
    }

    async fn try_look(&self, key: &str) -> Result<Option<i64>, Status> {
        let now_ms = now_ms();
        let stored = |client: &Client| client.store().view().get("pods", key).map_err(Status::internal);
        let Some(client) = self.nodes.first().map(|node| &node.client) else {
            return Ok(None);
        };
        let Some(object) = stored(client)? else { return Ok(None) };
        let Some(node) = self.node_of(&object) else {
            return Ok(None);
        };
        let view = client.store().view();
        if matches!(node.standing(&view).map_err(Status::internal)?, Standing::Stopped) {
            return Ok(Some(now_ms + STOPPED_MS));
        }
        let pod = node.client.read(&self.pods, &object)?;
        let mut moment = Moment {
            now_ms,
            profile: &self.profile,
            host: &node.name,
            host_ip: &node.ip,
            pod_ip: None,
            rejection: admission::rejection(node, &self.pods, &pod)?,
        };
        let mut step = life::step(&pod, &moment);
        let mut address = None;
        if step.wants_ip {
            address = self.address(node, now_ms);
            if address.is_none() {
                return Ok(Some(now_ms + 100));
            }
            moment.pod_ip = address.as_deref();
            step = life::step(&pod, &moment);
        }
        if step.status != pod["status"] {
            let edit = |old: &Value| {
                if old["metadata"]["uid"] != pod["metadata"]["uid"] {
                    return None;
                }
                let mut new = old.clone();
                new["status"] = life::step(old, &moment).status;
                Some(new)
            };
            let changed = node.client.change(&self.pods, Some("status"), key, edit).await;
            if changed.is_err()
                && let Some(address) = &address
            {
                let mut addresses = lock(&node.addresses);
                if let Some(first) = addresses.first {
                    addresses.pool.note(first, address, false);
                }
            }
            changed?;
            let told = self.profile.events.then(|| told::between(&pod, &step.status));
            for told in told.into_iter().flatten() {
                let what = (told.level, told.reason, told.message);
                self.recorder.tell_from(&node.name, &pod, told.field.as_deref(), what);
            }
        }
        let grace_s = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let holds = pod["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if step.may_go && (grace_s > 0 || !holds) {
            let delete = Delete {
                uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
                grace_s: Some(0),
                ..Delete::default()
            };
            node.client.delete(&self.pods, key, &delete).await?;
            return Ok(None);
        }
        Ok(step.next_ms.map(|next_ms| next_ms.max(now_ms + 1)))
    }
}
