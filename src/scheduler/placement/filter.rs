//! Which nodes a Pod can go to, and why not to the others.
//!
//! The rules, their order and their words are those of the plugins of kube-scheduler's default profile; of one node the first
//! rule that it breaks is told.

use super::affinity;
use super::class::{Class, Taint};
use super::cluster::{Cluster, NodeId, PodId};
use super::node::Node;
use super::spread;

/// A rule that a node may break, after the plugin that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    Volumes,
    PodTopologySpread,
    InterPodAffinity,
}

/// A set of rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules(u16);

impl Rules {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.0 |= 1 << rule as u16;
    }

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u16) != 0
    }
}

/// Why a node is no place for a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Why {
    Unschedulable,
    /// The taint at that place in the node's list is not tolerated.
    Taint(u16),
    NodeAffinity,
    Ports,
    Short {
        /// A bit for Pods, cpu, memory, storage, and each other resource that the Pod asks for.
        lacks: u64,
        /// There would not be enough if the node were empty.
        beyond: bool,
    },
    Apart,
    Together,
    KeptOut,
    Spread,
    SpreadLabel,
    ClaimInUse,
    VolumeNode,
    VolumeZone,
    NoVolume,
    VolumeLost,
}

impl Why {
    pub(super) fn rule(self) -> Rule {
        match self {
            Why::Unschedulable => Rule::NodeUnschedulable,
            Why::Taint(_) => Rule::TaintToleration,
            Why::NodeAffinity => Rule::NodeAffinity,
            Why::Ports => Rule::NodePorts,
            Why::Short { .. } => Rule::NodeResourcesFit,
            Why::Apart | Why::Together | Why::KeptOut => Rule::InterPodAffinity,
            Why::Spread | Why::SpreadLabel => Rule::PodTopologySpread,
            Why::ClaimInUse | Why::VolumeNode | Why::VolumeZone | Why::NoVolume | Why::VolumeLost => Rule::Volumes,
        }
    }

    /// Whether it stays so if Pods leave the node.
    pub(super) fn is_final(self) -> bool {
        match self {
            Why::Unschedulable
            | Why::Taint(_)
            | Why::NodeAffinity
            | Why::Together
            | Why::SpreadLabel
            | Why::VolumeNode
            | Why::VolumeZone
            | Why::VolumeLost
            | Why::NoVolume => true,
            Why::Short { beyond, .. } => beyond,
            Why::Ports | Why::Apart | Why::KeptOut | Why::Spread | Why::ClaimInUse => false,
        }
    }

    /// What people are told; several where a node is short of several resources.
    pub(super) fn texts(self, class: &Class, node: &Node, mut tell: impl FnMut(&str)) {
        match self {
            Why::Unschedulable => tell("node(s) were unschedulable"),
            Why::Taint(at) => {
                let none = Taint::default();
                let Taint { key, value, .. } = node.spec.taints.get(usize::from(at)).unwrap_or(&none);
                tell(&format!("node(s) had untolerated taint {{{key}: {value}}}"));
            }
            Why::NodeAffinity => tell("node(s) didn't match Pod's node affinity/selector"),
            Why::Ports => tell("node(s) didn't have free ports for the requested pod ports"),
            Why::Short { lacks, .. } => {
                let named = [
                    "Too many pods",
                    "Insufficient cpu",
                    "Insufficient memory",
                    "Insufficient ephemeral-storage",
                ];
                for (bit, text) in named.iter().enumerate() {
                    if lacks & (1 << bit) != 0 {
                        tell(text);
                    }
                }
                for (at, (name, _)) in class.requests.others.iter().enumerate() {
                    if lacks & (1 << (named.len() + at).min(63)) != 0 {
                        tell(&format!("Insufficient {name}"));
                    }
                }
            }
            Why::Together => tell("node(s) didn't match pod affinity rules"),
            Why::Apart => tell("node(s) didn't match pod anti-affinity rules"),
            Why::KeptOut => tell("node(s) didn't satisfy existing pods anti-affinity rules"),
            Why::Spread => tell("node(s) didn't match pod topology spread constraints"),
            Why::SpreadLabel => tell("node(s) didn't match pod topology spread constraints (missing required label)"),
            Why::ClaimInUse => {
                tell("node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode");
            }
            Why::VolumeNode => tell("node(s) didn't match PersistentVolume's node affinity"),
            Why::VolumeZone => tell("node(s) had no available volume zone"),
            Why::NoVolume => tell("node(s) didn't find available persistent volumes to bind"),
            Why::VolumeLost => tell("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
        }
    }
}

/// What of the cluster matters to Pods of a class, counted once for all nodes.
#[derive(Debug, Clone)]
pub(super) struct Question<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) class: &'a Class,
    pub(super) pod: PodId,
    pub(super) affinity: affinity::Counts,
    pub(super) spread: spread::Counts<'a>,
    pub(super) volumes: super::volumes::Needs<'a>,
}

impl<'a> Question<'a> {
    /// # Errors
    /// What people are told when no node will do, whichever.
    pub(super) fn of(cluster: &'a Cluster, pod: PodId) -> Result<Self, String> {
        let class: &Class = cluster.class(pod);
        Ok(Self {
            cluster,
            class,
            pod,
            affinity: affinity::Counts::of(cluster, class),
            spread: spread::Counts::of(cluster, class),
            volumes: super::volumes::Needs::of(cluster, pod)?,
        })
    }

    /// Why a node is no place for the Pod, Pods included for which others were told to leave; `None`: it is one.
    pub(super) fn check(&self, id: NodeId) -> Option<Why> {
        let node = &self.cluster.nodes[id as usize];
        let before = |other: &PodId| {
            *other != self.pod
                && self.cluster.pod(*other).place.node().is_none()
                && self.cluster.class(*other).priority >= self.class.priority
        };
        let mut expected = node.nominated.iter().copied().filter(before).peekable();
        if expected.peek().is_none() {
            return self.check_node(node);
        }
        let mut full = node.clone();
        for other in expected {
            let pod = self.cluster.pod(other);
            full.put(other, pod.class, self.cluster.class(other));
        }
        self.check_node(&full)
    }

    /// The same of a node as it might be.
    pub(super) fn check_node(&self, node: &Node) -> Option<Why> {
        let class = self.class;
        if node.spec.unschedulable && !class.tolerates(&Taint::unschedulable()) {
            return Some(Why::Unschedulable);
        }
        let repels = |taint: &Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !class.tolerates(taint);
        if let Some(at) = node.spec.taints.iter().position(repels) {
            return Some(Why::Taint(at.min(usize::from(u16::MAX)) as u16));
        }
        if !class.allows_node(&node.name, &node.spec.labels) {
            return Some(Why::NodeAffinity);
        }
        if class
            .ports
            .iter()
            .any(|port| node.ports.iter().any(|other| port.conflicts(other)))
        {
            return Some(Why::Ports);
        }
        short(class, node)
            .or_else(|| self.volumes.check(self.cluster, node))
            .or_else(|| self.spread.check(node))
            .or_else(|| self.affinity.check(class, node))
    }
}

/// Whether the node has too little of something that the Pod asks for.
fn short(class: &Class, node: &Node) -> Option<Why> {
    let (asked, has, taken) = (&class.requests, &node.spec.allocatable, &node.requested);
    let (mut lacks, mut beyond) = (0, false);
    let mut compare = |bit: usize, asked: i64, has: i64, taken: i64| {
        // What is not asked for may be overdrawn.
        if asked > 0 && asked > has.saturating_sub(taken) {
            lacks |= 1 << bit.min(63);
            beyond |= asked > has;
        }
    };
    compare(0, 1, node.spec.pods_max, node.pods.len() as i64);
    compare(1, asked.cpu_milli, has.cpu_milli, taken.cpu_milli);
    compare(2, asked.memory_bytes, has.memory_bytes, taken.memory_bytes);
    compare(3, asked.storage_bytes, has.storage_bytes, taken.storage_bytes);
    for (at, (name, amount)) in asked.others.iter().enumerate() {
        compare(4 + at, *amount, has.other(name), taken.other(name));
    }
    (lacks != 0).then_some(Why::Short { lacks, beyond })
}
