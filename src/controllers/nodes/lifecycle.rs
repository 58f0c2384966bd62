//! Nodes that fall silent are unreachable, and conditions of nodes become taints.
//!
//! A node lives while its Lease is renewed or its `Ready` condition has new heartbeats. A node that rests costs a look in a table when its
//! time is over, and nothing is read of it.
//!
//! Rules: <https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::health::{Healths, Said};
use super::{NODES, PODS, mentions, pods_on, taints};
use crate::api::Client;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::event::{Level, Recorder};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{is_same, name_of};
use crate::controllers::pod::{is_ready, seconds};
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::controllers::settings::Settings;
use crate::resources::{self, ResourceRef, condition, time_text};
use crate::store::{Object, View};
use crate::tree::{Value, json};

const LEASES: &str = "leases.coordination.k8s.io";
const NODE_LEASES: &str = "kube-node-lease/";
/// Conditions that are not known of a node that is silent.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Labels that older clients know under other names.
const LABELS: [(&str, &str); 2] = [
    ("kubernetes.io/os", "beta.kubernetes.io/os"),
    ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
];

pub(in crate::controllers) struct Lifecycle {
    client: Client,
    recorder: Recorder,
    nodes: ResourceRef,
    pods: ResourceRef,
    grace: Duration,
    startup_grace: Duration,
    period: Duration,
    healths: Mutex<Healths>,
}

impl Lifecycle {
    /// `None` if there are no nodes.
    pub(in crate::controllers) fn new(client: Client, recorder: Recorder, settings: &Settings) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            nodes: resources::stored(NODES)?.into(),
            pods: resources::stored(PODS)?.into(),
            grace: settings.node_monitor_grace,
            startup_grace: settings.node_startup_grace,
            period: settings.node_monitor_period,
            healths: Mutex::default(),
        })
    }

    fn healths(&self) -> MutexGuard<'_, Healths> {
        self.healths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, name: &str, uid: &str, reason: &'static str, what: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}});
        self.recorder
            .tell(&node, Level::Normal, reason, format!("Node {name} {what}"));
    }

    fn forget(&self, name: &str) {
        let forgotten = self.healths().forget(name);
        if let Some(uid) = forgotten {
            let what = format!("event: Removing Node {name} from Controller");
            self.tell(name, &uid, "RemovingNode", &what);
        }
    }

    /// Whether a node has been silent for too long.
    fn is_silent(&self, node: &Value, heard: Instant, now: Instant, now_s: i64) -> bool {
        if taints::readiness(node).is_some() {
            return now.duration_since(heard) >= self.grace;
        }
        let age_s = now_s - seconds(&node["metadata"]["creationTimestamp"]).unwrap_or(now_s);
        age_s >= self.startup_grace.as_secs() as i64
    }

    /// Pods on a node of which nothing is heard take no traffic any more.
    async fn lose_pods(&self, view: &Arc<View>, node: &str) -> Result<(), Failure> {
        for key in pods_on(view, node)? {
            let Some(object) = view.get(PODS, &key)? else { continue };
            let pod = self.client.read(&self.pods, &object)?;
            if !is_ready(&pod) {
                continue;
            }
            let now_s = jiff::Timestamp::now().as_second();
            let edit = |old: &Value| (is_same(old, &pod) && is_ready(old)).then(|| unready(old, now_s));
            gone_is_fine(self.client.change(&self.pods, Some("status"), &key, edit).await)?;
            self.recorder
                .tell(&pod, Level::Warning, "NodeNotReady", "Node is not ready".to_owned());
        }
        Ok(())
    }

    /// Which taint with `NoExecute` a node should have; zones decide when it gets one.
    fn evicting(&self, node: &Value) -> Option<&'static str> {
        let wanted = taints::of_readiness(taints::readiness(node))?;
        let mut healths = self.healths();
        if healths.zones.are_all_lost() {
            return None;
        }
        let is_begun = [taints::NOT_READY, taints::UNREACHABLE]
            .iter()
            .any(|key| taints::has(node, key, "NoExecute"));
        let zone = healths.zone(name_of(node))?;
        (is_begun || healths.zones.permit(&zone, Instant::now())).then_some(wanted)
    }
}

fn unready(pod: &Value, now_s: i64) -> Value {
    let mut new = pod.clone();
    let conditions = new["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flat_map(|list| list.iter_mut()) {
        if condition["type"] == "Ready" {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = time_text(now_s).into();
        }
    }
    new
}

/// What a node's status says when nothing was heard of it; `None`: it says so.
fn unknown(node: &Value, now_s: i64) -> Option<Value> {
    let mut new = node.clone();
    let mut conditions = node["status"]["conditions"]
        .as_array()
        .map_or_else(Vec::new, |list| list.to_vec());
    for kind in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            None => conditions.push(json!({
                "type": kind,
                "status": "Unknown",
                "lastHeartbeatTime": node["metadata"]["creationTimestamp"].as_str(),
                "lastTransitionTime": time_text(now_s),
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            })),
            Some(known) if known["status"] != "Unknown" => {
                known["status"] = "Unknown".into();
                known["lastTransitionTime"] = time_text(now_s).into();
                known["reason"] = "NodeStatusUnknown".into();
                known["message"] = "Kubelet stopped posting node status.".into();
            }
            Some(_) => {}
        }
    }
    new["status"]["conditions"] = conditions.into();
    (new != *node).then_some(new)
}

/// A node with the labels of older clients; `None`: it has them.
fn labelled(node: &Value) -> Option<Value> {
    let labels = &node["metadata"]["labels"];
    let mut new = None;
    for (label, older) in LABELS {
        if let Some(value) = labels[label].as_str()
            && labels[older] != *value
        {
            let new = new.get_or_insert_with(|| node.clone());
            new["metadata"]["labels"][older] = value.into();
        }
    }
    new
}

/// The zone of a node, with its region, as one text.
fn zone(node: &Value) -> String {
    let labels = &node["metadata"]["labels"];
    let label = |name: &str| labels[name].as_str().unwrap_or("");
    format!(
        "{}/{}",
        label("topology.kubernetes.io/region"),
        label("topology.kubernetes.io/zone")
    )
}

/// When a Lease says that it was renewed, as it is written. Costs a search of its bytes.
fn renewal(lease: &Object) -> Option<&str> {
    const FIELD: &str = "\"renewTime\":\"";
    let json = std::str::from_utf8(lease.json().ok()?).ok()?;
    let (_, rest) = json.split_once(FIELD)?;
    rest.split('"').next()
}

impl Controller for Lifecycle {
    fn resource(&self) -> &'static str {
        NODES
    }

    fn watches(&self) -> &'static [&'static str] {
        &[LEASES]
    }

    /// A Lease is noted; its node wants no look for that.
    fn concerned(&self, change: &Change<'_>, _view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if let Some(name) = change.object.key().strip_prefix(NODE_LEASES)
            && !change.is_gone
            && let Some(renewal) = renewal(change.object)
        {
            self.healths().renewed(name, renewal, Instant::now());
        }
        Ok(Vec::new())
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(NODES, key)? else {
            self.forget(key);
            return Ok(Done::Settled);
        };
        let (now, now_s) = (Instant::now(), jiff::Timestamp::now().as_second());
        let rest = self.healths().rest(key, object.revision(), self.grace, now);
        if let Some(rest) = rest {
            return Ok(Done::After(rest));
        }
        let node = self.client.read(&self.nodes, &object)?;
        let readiness = taints::readiness(&node);
        let uid = node["metadata"]["uid"].as_str().unwrap_or("");
        let said = Said {
            uid,
            zone: &zone(&node),
            is_ready: readiness.map(|readiness| readiness == "True"),
            heartbeat: condition(&node, "Ready").map_or("", |ready| ready["lastHeartbeatTime"].as_str().unwrap_or("")),
        };
        let (heard, is_new) = self.healths().note(key, &said, now);
        if is_new {
            let what = format!("event: Registered Node {key} in Controller");
            self.tell(key, uid, "RegisteredNode", &what);
        }
        if self.is_silent(&node, heard, now, now_s) {
            let edit = |old: &Value| is_same(old, &node).then(|| unknown(old, now_s)).flatten();
            gone_is_fine(self.client.change(&self.nodes, Some("status"), key, edit).await)?;
            if readiness == Some("True") {
                self.tell(key, uid, "NodeNotReady", "status is now: NodeNotReady");
            }
        }
        let view = self.client.store().view();
        let Some(object) = view.get(NODES, key)? else {
            return Ok(Done::Again);
        };
        let node = self.client.read(&self.nodes, &object)?;
        let readiness = taints::readiness(&node);
        let evicting = self.evicting(&node);
        let edit = |old: &Value| {
            let is_so = is_same(old, &node) && taints::readiness(old) == readiness;
            let taints = taints::settled(old, evicting, now_s).filter(|_| is_so);
            let labelled = labelled(old);
            match (taints, labelled) {
                (None, labelled) => labelled,
                (Some(taints), labelled) => {
                    let mut new = labelled.unwrap_or_else(|| old.clone());
                    new["spec"]["taints"] = taints;
                    Some(new)
                }
            }
        };
        let is_settled = edit(&node).is_none();
        if !is_settled {
            gone_is_fine(self.client.change(&self.nodes, None, key, edit).await)?;
        }
        if readiness == Some("Unknown") {
            self.lose_pods(&view, key).await?;
        }
        if readiness != Some("True") {
            return Ok(Done::After(self.period));
        }
        if is_settled {
            self.healths().settle(key, object.revision());
        }
        let left = (heard + self.grace).saturating_duration_since(Instant::now());
        Ok(Done::After(left.max(Duration::from_millis(1))))
    }
}

/// Whether a node has taints that Pods go for, by its text.
pub(super) fn evicts(node: &Object) -> Result<bool, Failure> {
    mentions(node, "\"NoExecute\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_silent_node_said_is_unknown_and_what_it_never_said_too() {
        let node = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "1970-01-01T00:00:09Z"},
            {"type": "NetworkUnavailable", "status": "False"}]}});
        let new = unknown(&node, 100).unwrap();
        let told = |kind| condition(&new, kind).unwrap();
        assert_eq!(told("Ready")["status"], "Unknown");
        assert_eq!(told("Ready")["reason"], "NodeStatusUnknown");
        assert_eq!(told("Ready")["lastHeartbeatTime"], "1970-01-01T00:00:09Z");
        assert_eq!(told("Ready")["lastTransitionTime"], "1970-01-01T00:01:40Z");
        assert_eq!(told("PIDPressure")["reason"], "NodeStatusNeverUpdated");
        assert_eq!(told("PIDPressure")["lastHeartbeatTime"], "1970-01-01T00:00:01Z");
        assert_eq!(told("NetworkUnavailable")["status"], "False");
        assert_eq!(unknown(&new, 200), None);
    }

    #[test]
    fn older_labels_follow_the_newer() {
        let node = json!({"metadata": {"labels": {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows"}}});
        let new = labelled(&node).unwrap();
        assert_eq!(new["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
        assert_eq!(labelled(&new), None);
    }
}
