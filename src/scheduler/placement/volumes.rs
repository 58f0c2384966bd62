//! What a Pod's claims on volumes ask of its node.
//!
//! A claim that is bound holds the Pod to nodes that reach its volume. One that waits for its first consumer
//! (`volumeBindingMode: WaitForFirstConsumer`) is bound for the node that is chosen: a volume that fits must be there, or a
//! provisioner that can make one there.

use std::collections::HashMap;

use super::amounts::storage_bytes;
use super::class::Class;
use super::cluster::{Cluster, PodId};
use super::filter::Why;
use super::labels::{Labels, NodeTerm, Selector, node_terms};
use super::names::{Name, Names};
use super::node::Node;
use crate::tree::Value;

/// Claims, volumes and classes of storage: about 200 bytes each.
#[derive(Debug, Default)]
pub(super) struct Storage {
    /// By namespace and name, joined.
    claims: HashMap<Name, Claim>,
    volumes: HashMap<Name, Volume>,
    classes: HashMap<Name, StorageClass>,
}

#[derive(Debug, PartialEq)]
struct Claim {
    /// The volume that it is bound to.
    volume: Option<Name>,
    /// The node that it was told.
    selected: Option<Name>,
    class: Name,
    modes: Vec<Name>,
    selector: Selector,
    bytes: i64,
    is_deleting: bool,
}

#[derive(Debug, PartialEq)]
struct Volume {
    /// Nodes that reach it; `None`: all.
    terms: Option<Vec<NodeTerm>>,
    labels: Labels,
    /// The claim that it is for.
    claim: Option<Name>,
    class: Name,
    modes: Vec<Name>,
    bytes: i64,
}

#[derive(Debug, PartialEq)]
struct StorageClass {
    /// Claims wait for their first consumer.
    waits: bool,
    /// Volumes can be made.
    provisions: bool,
    /// Where; empty: everywhere.
    topologies: Vec<Selector>,
}

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Labels of volumes that hold them to nodes with the same.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
/// One Pod alone may use such a claim.
const ONE_POD: &str = "ReadWriteOncePod";

fn texts(list: &Value, names: &mut Names) -> Vec<Name> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| Some(names.get(text.as_str()?))).collect()
}

impl Cluster {
    /// Notes a claim; `None`: it is gone.
    pub(crate) fn set_claim(&mut self, key: &str, claim: Option<&Value>) {
        let Some(claim) = claim else {
            self.storage.claims.remove(key);
            return;
        };
        let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
        let names = &mut self.names;
        let volume = spec["volumeName"].as_str().filter(|volume| !volume.is_empty());
        let claim = Claim {
            volume: volume
                .filter(|_| claim["status"]["phase"] != "Pending")
                .map(|volume| names.get(volume)),
            selected: metadata["annotations"]["volume.kubernetes.io/selected-node"]
                .as_str()
                .map(|node| names.get(node)),
            class: names.get(spec["storageClassName"].as_str().unwrap_or("")),
            modes: texts(&spec["accessModes"], names),
            selector: Selector::of(&spec["selector"], names).unwrap_or_default(),
            bytes: storage_bytes(&spec["resources"]["requests"]),
            is_deleting: !metadata["deletionTimestamp"].is_null(),
        };
        self.storage.claims.insert(key.into(), claim);
    }

    /// Notes a volume; `None`: it is gone.
    pub(crate) fn set_volume(&mut self, name: &str, volume: Option<&Value>) {
        let Some(volume) = volume else {
            self.storage.volumes.remove(name);
            return;
        };
        let spec = &volume["spec"];
        let names = &mut self.names;
        let claim = &spec["claimRef"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let volume = Volume {
            terms: node_terms(&spec["nodeAffinity"]["required"], names),
            labels: Labels::of(&volume["metadata"]["labels"], names),
            claim: claim
                .is_object()
                .then(|| names.get(&format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])))),
            class: names.get(spec["storageClassName"].as_str().unwrap_or("")),
            modes: texts(&spec["accessModes"], names),
            bytes: storage_bytes(&spec["capacity"]),
        };
        self.storage.volumes.insert(name.into(), volume);
    }

    /// Notes a class of storage; `None`: it is gone.
    pub(crate) fn set_storage_class(&mut self, name: &str, class: Option<&Value>) {
        let Some(class) = class else {
            self.storage.classes.remove(name);
            return;
        };
        let topologies = class["allowedTopologies"].as_array().into_iter().flatten();
        let names = &mut self.names;
        let class = StorageClass {
            waits: class["volumeBindingMode"] == "WaitForFirstConsumer",
            provisions: class["provisioner"] != NO_PROVISIONER,
            topologies: topologies
                .map(|term| Selector::of_topology(&term["matchLabelExpressions"], names))
                .collect(),
        };
        self.storage.classes.insert(name.into(), class);
    }

    /// Claims of a Pod, by their keys, that wait for a node to be chosen.
    pub(crate) fn waiting_claims(&self, pod: PodId) -> Vec<String> {
        let class = self.class(pod);
        let keys = class.claims.iter().map(|claim| format!("{}/{claim}", class.namespace));
        keys.filter(|key| {
            self.storage
                .claims
                .get(key.as_str())
                .is_some_and(|claim| claim.volume.is_none())
        })
        .collect()
    }

    /// Whether Pods other than this one use a claim of its namespace.
    fn is_used(&self, pod: PodId, class: &Class, claim: &Name) -> bool {
        let own = u32::from(self.pod(pod).place.node().is_some());
        let users = self
            .kins(&class.namespace)
            .filter(|kin| kin.class.claims.contains(claim));
        let on_nodes: u32 = users.flat_map(|kin| kin.on.values()).map(|count| count.all).sum();
        on_nodes > own
    }
}

/// What the claims of one Pod need.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs<'a> {
    bound: Vec<&'a Volume>,
    waiting: Vec<(String, &'a Claim)>,
    /// A claim is bound to a volume that is not there.
    is_lost: bool,
    /// A claim that one Pod alone may use is used.
    is_used: bool,
}

impl<'a> Needs<'a> {
    /// # Errors
    /// What people are told when no node will do.
    pub(super) fn of(cluster: &'a Cluster, pod: PodId) -> Result<Self, String> {
        let class = cluster.class(pod);
        let storage = &cluster.storage;
        let mut needs = Self::default();
        for name in &class.claims {
            let key = format!("{}/{name}", class.namespace);
            let Some(claim) = storage.claims.get(key.as_str()) else {
                return Err(format!("persistentvolumeclaim \"{name}\" not found"));
            };
            if claim.is_deleting {
                return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            if claim.modes.iter().any(|mode| **mode == *ONE_POD) {
                needs.is_used |= cluster.is_used(pod, class, name);
            }
            match &claim.volume {
                Some(volume) => match storage.volumes.get(volume) {
                    Some(volume) => needs.bound.push(volume),
                    None => needs.is_lost = true,
                },
                None if storage.classes.get(&claim.class).is_some_and(|class| class.waits) => {
                    needs.waiting.push((key, claim));
                }
                None => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            }
        }
        Ok(needs)
    }

    /// The node that a claim was told: volumes are being made there.
    pub(super) fn selected(&self) -> Option<&'a Name> {
        self.waiting.iter().find_map(|(_, claim)| claim.selected.as_ref())
    }

    pub(super) fn check(&self, cluster: &Cluster, node: &Node) -> Option<Why> {
        if self.is_used {
            return Some(Why::ClaimInUse);
        }
        if self.is_lost {
            return Some(Why::VolumeLost);
        }
        if !self.bound.iter().all(|volume| volume.is_reached(node)) {
            return Some(Why::VolumeNode);
        }
        if !self
            .waiting
            .iter()
            .all(|(key, claim)| can_be_bound(cluster, key, claim, node))
        {
            return Some(Why::NoVolume);
        }
        if !self.bound.iter().all(|volume| volume.is_in_zone(node)) {
            return Some(Why::VolumeZone);
        }
        None
    }
}

impl Volume {
    fn is_reached(&self, node: &Node) -> bool {
        self.terms
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term.holds(&node.name, &node.spec.labels)))
    }

    /// Its labels may name several zones, joined by `__`.
    fn is_in_zone(&self, node: &Node) -> bool {
        ZONES.iter().all(|key| match self.labels.get(key) {
            None => true,
            Some(zones) => {
                let own = node.spec.labels.get(key);
                own.is_some_and(|own| zones.split("__").any(|zone| zone == &**own))
            }
        })
    }

    fn serves(&self, key: &str, claim: &Claim) -> bool {
        match &self.claim {
            Some(owner) => **owner == *key,
            None => {
                self.class == claim.class
                    && self.bytes >= claim.bytes
                    && claim.modes.iter().all(|mode| self.modes.contains(mode))
                    && claim.selector.selects(&self.labels)
            }
        }
    }
}

fn can_be_bound(cluster: &Cluster, key: &str, claim: &Claim, node: &Node) -> bool {
    let storage = &cluster.storage;
    let provisioned = || {
        storage.classes.get(&claim.class).is_some_and(|class| {
            class.provisions
                && (class.topologies.is_empty() || class.topologies.iter().any(|one| one.selects(&node.spec.labels)))
        })
    };
    let mut volumes = storage.volumes.values();
    provisioned() || volumes.any(|volume| volume.serves(key, claim) && volume.is_reached(node))
}
