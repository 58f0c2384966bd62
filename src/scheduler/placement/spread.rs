//! How Pods are spread over zones, nodes and the like. Rules: KEP-895, KEP-3022, KEP-3094.

use std::collections::HashMap;

use super::class::{Class, Spread, Taint};
use super::cluster::{Cluster, Kin, NodeId};
use super::filter::Why;
use super::labels::Selector;
use super::names::Name;
use super::node::Node;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the hard constraints of a class depend on.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts<'a> {
    hard: Vec<Hard<'a>>,
}

#[derive(Debug, Clone)]
struct Hard<'a> {
    constraint: &'a Spread,
    /// Pods that are selected, by the label's value; all values that nodes have are there.
    domains: HashMap<Name, i64>,
    /// Of all domains.
    least: i64,
    /// 1 if the Pod itself is selected.
    own: i64,
}

impl Hard<'_> {
    fn find_least(&mut self) {
        let least = self.domains.values().copied().min().unwrap_or(0);
        let are_too_few = (self.domains.len() as i64) < self.constraint.domains_min;
        self.least = if are_too_few { 0 } else { least };
    }
}

impl Spread {
    fn selects(&self, class: &Class) -> bool {
        self.selector
            .as_ref()
            .is_some_and(|selector| selector.selects(&class.labels))
    }

    /// Whether Pods on the node count.
    fn counts(&self, class: &Class, node: &Node) -> bool {
        let repels = |taint: &Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !class.tolerates(taint);
        (!self.honors_affinity || class.allows_node(&node.name, &node.spec.labels))
            && (!self.honors_taints || !node.spec.taints.iter().any(repels))
    }
}

impl<'a> Counts<'a> {
    pub(super) fn of(cluster: &Cluster, class: &'a Class) -> Self {
        let hard: Vec<&Spread> = class.spread.iter().filter(|constraint| constraint.is_hard).collect();
        if hard.is_empty() {
            return Self::default();
        }
        let has_all = |node: &Node| hard.iter().all(|one| node.spec.labels.get(&one.topology).is_some());
        let mut counts = Vec::with_capacity(hard.len());
        for constraint in &hard {
            let mut domains: HashMap<Name, i64> = HashMap::new();
            for node in &cluster.listed {
                let node = &cluster.nodes[*node as usize];
                if let Some(value) = node.spec.labels.get(&constraint.topology)
                    && !domains.contains_key(value)
                    && has_all(node)
                    && constraint.counts(class, node)
                {
                    domains.insert(value.clone(), 0);
                }
            }
            for kin in cluster.kins(&class.namespace) {
                if !constraint.selects(&kin.class) {
                    continue;
                }
                for (node, count) in &kin.on {
                    let node = &cluster.nodes[*node as usize];
                    if let Some(value) = node.spec.labels.get(&constraint.topology)
                        && has_all(node)
                        && constraint.counts(class, node)
                    {
                        *domains.entry(value.clone()).or_default() += i64::from(count.live);
                    }
                }
            }
            let mut hard = Hard {
                constraint,
                domains,
                least: 0,
                own: i64::from(constraint.selects(class)),
            };
            hard.find_least();
            counts.push(hard);
        }
        Self { hard: counts }
    }

    /// Counts so many more Pods of another class on a node.
    pub(super) fn shift(&mut self, class: &Class, other: &Class, node: &Node, by: i64) {
        for at in 0..self.hard.len() {
            let hard = &self.hard[at];
            let has_all = self
                .hard
                .iter()
                .all(|one| node.spec.labels.get(&one.constraint.topology).is_some());
            if other.namespace == class.namespace
                && has_all
                && hard.constraint.selects(other)
                && hard.constraint.counts(class, node)
                && let Some(value) = node.spec.labels.get(&hard.constraint.topology)
            {
                let hard = &mut self.hard[at];
                *hard.domains.entry(value.clone()).or_default() += by;
                hard.find_least();
            }
        }
    }

    pub(super) fn check(&self, node: &Node) -> Option<Why> {
        for hard in &self.hard {
            let Some(value) = node.spec.labels.get(&hard.constraint.topology) else {
                return Some(Why::SpreadLabel);
            };
            let there = hard.domains.get(value).copied().unwrap_or(0);
            if there + hard.own - hard.least > hard.constraint.skew_max {
                return Some(Why::Spread);
            }
        }
        None
    }
}

/// A wish to be spread, for scores.
struct Wish {
    topology: Name,
    skew_max: i64,
    selector: Selector,
    /// Pods by the label's value; `None` for hosts, which are counted one by one.
    domains: Option<HashMap<Name, i64>>,
    weight: f64,
}

/// Points of nodes that are left to choose from, 0 to 100; `None` where nothing is wished for.
///
/// Pods whose template says nothing of it are spread over hosts and zones as far as their Services and the set that made them
/// tell which Pods are like them.
pub(super) fn points(cluster: &Cluster, class: &Class, among: &[NodeId]) -> Option<Vec<i64>> {
    let own: Vec<&Spread> = class.spread.iter().filter(|constraint| !constraint.is_hard).collect();
    let is_default = class.spread.is_empty();
    let mut wishes: Vec<Wish> = if is_default {
        let selector = cluster.likes(class)?;
        [(HOSTNAME, 3), (ZONE, 5)]
            .map(|(topology, skew_max)| Wish {
                topology: topology.into(),
                skew_max,
                selector: selector.clone(),
                domains: None,
                weight: 0.0,
            })
            .into()
    } else {
        let wish = |constraint: &&Spread| {
            Some(Wish {
                topology: constraint.topology.clone(),
                skew_max: constraint.skew_max,
                selector: constraint.selector.clone()?,
                domains: None,
                weight: 0.0,
            })
        };
        own.iter().filter_map(wish).collect()
    };
    if wishes.is_empty() {
        return None;
    }
    let node = |id: NodeId| &cluster.nodes[id as usize];
    let topologies: Vec<Name> = wishes.iter().map(|wish| wish.topology.clone()).collect();
    let has_all = |node: &Node| topologies.iter().all(|key| node.spec.labels.get(key).is_some());
    let is_ignored = |node: &Node| !is_default && !has_all(node);
    for (at, wish) in wishes.iter_mut().enumerate() {
        let left = among.iter().filter(|id| !is_ignored(node(**id)));
        if &*wish.topology == HOSTNAME {
            wish.weight = ((left.count() + 2) as f64).ln();
            continue;
        }
        let mut domains: HashMap<Name, i64> = HashMap::new();
        for id in left {
            if let Some(value) = node(*id).spec.labels.get(&wish.topology) {
                domains.entry(value.clone()).or_default();
            }
        }
        wish.weight = ((domains.len() + 2) as f64).ln();
        for kin in cluster.kins(&class.namespace) {
            if !wish.selector.selects(&kin.class.labels) {
                continue;
            }
            for (id, count) in &kin.on {
                let node = node(*id);
                if let Some(value) = node.spec.labels.get(&wish.topology)
                    && let Some(domain) = domains.get_mut(value)
                    && !is_ignored(node)
                    && (is_default && class.allows_node(&node.name, &node.spec.labels)
                        || !is_default && own.get(at).is_some_and(|one| one.counts(class, node)))
                {
                    *domain += i64::from(count.live);
                }
            }
        }
        wish.domains = Some(domains);
    }
    let on_host: Vec<Vec<&Kin>> = wishes
        .iter()
        .map(|wish| {
            let kins = cluster.kins(&class.namespace).filter(|_| wish.domains.is_none());
            kins.filter(|kin| wish.selector.selects(&kin.class.labels)).collect()
        })
        .collect();
    let raw = among.iter().map(|id| {
        let node = node(*id);
        if is_ignored(node) {
            return None;
        }
        let mut sum = 0.0;
        for (wish, kins) in wishes.iter().zip(&on_host) {
            if let Some(value) = node.spec.labels.get(&wish.topology) {
                let count = match &wish.domains {
                    None => kins
                        .iter()
                        .filter_map(|kin| kin.on.get(id))
                        .map(|count| i64::from(count.live))
                        .sum(),
                    Some(domains) => domains.get(value).copied().unwrap_or(0),
                };
                sum += count as f64 * wish.weight + (wish.skew_max - 1) as f64;
            }
        }
        Some(sum.round() as i64)
    });
    let raw: Vec<Option<i64>> = raw.collect();
    let most = raw.iter().flatten().copied().max().unwrap_or(0);
    let least = raw.iter().flatten().copied().min().unwrap_or(0);
    let point = |raw: &Option<i64>| match raw {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(raw) => 100 * (most + least - raw) / most,
    };
    Some(raw.iter().map(point).collect())
}
