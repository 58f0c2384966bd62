//! Affinity and anti-affinity between Pods.

use std::collections::HashMap;

use super::class::{Class, PodTerm};
use super::cluster::Cluster;
use super::filter::Why;
use super::names::Name;
use super::node::Node;

/// Pods that matter, by the values of their nodes' labels.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// For each required term of affinity: Pods that meet all of them.
    together: Vec<HashMap<Name, i64>>,
    /// For each required term of anti-affinity: Pods that it is about.
    apart: Vec<HashMap<Name, i64>>,
    /// Labels (key, value) of nodes where Pods want none of this class.
    kept_out: HashMap<Name, HashMap<Name, i64>>,
    /// Pods of the class would meet its own terms of affinity.
    suits_itself: bool,
}

impl Counts {
    pub(super) fn of(cluster: &Cluster, class: &Class) -> Self {
        let mut counts = Self {
            together: vec![HashMap::new(); class.affinity.len()],
            apart: vec![HashMap::new(); class.anti_affinity.len()],
            kept_out: HashMap::new(),
            suits_itself: meets_all(cluster, class, class),
        };
        if let Some(first) = class.affinity.first() {
            for kin in cluster.selected(first) {
                if meets_all(cluster, class, &kin.class) {
                    for (node, count) in &kin.on {
                        let node = &cluster.nodes[*node as usize];
                        add(&class.affinity, &mut counts.together, node, i64::from(count.all));
                    }
                }
            }
        }
        for (term, counts) in class.anti_affinity.iter().zip(&mut counts.apart) {
            for kin in cluster.selected(term) {
                for (node, count) in &kin.on {
                    count_at(counts, term, &cluster.nodes[*node as usize], i64::from(count.all));
                }
            }
        }
        for id in &cluster.with_terms {
            let kin = cluster.kin(*id);
            for term in terms_against(cluster, &kin.class, class) {
                let counts = counts.kept_out.entry(term.topology.clone()).or_default();
                for (node, count) in &kin.on {
                    count_at(counts, term, &cluster.nodes[*node as usize], i64::from(count.all));
                }
            }
        }
        counts
    }

    /// Counts so many more Pods of another class on a node.
    pub(super) fn shift(&mut self, cluster: &Cluster, class: &Class, other: &Class, node: &Node, by: i64) {
        if meets_all(cluster, class, other) {
            add(&class.affinity, &mut self.together, node, by);
        }
        for (term, counts) in class.anti_affinity.iter().zip(&mut self.apart) {
            if meets(cluster, term, other) {
                count_at(counts, term, node, by);
            }
        }
        for term in terms_against(cluster, other, class) {
            count_at(self.kept_out.entry(term.topology.clone()).or_default(), term, node, by);
        }
    }

    pub(super) fn check(&self, class: &Class, node: &Node) -> Option<Why> {
        let labels = &node.spec.labels;
        let some = |counts: &HashMap<Name, i64>, value: &Name| counts.get(value).is_some_and(|count| *count > 0);
        if !class.affinity.is_empty() {
            let (mut has_labels, mut has_pods) = (true, true);
            for (term, counts) in class.affinity.iter().zip(&self.together) {
                match labels.get(&term.topology) {
                    Some(value) => has_pods &= some(counts, value),
                    None => has_labels = false,
                }
            }
            // The first of Pods that want to be together has to go somewhere.
            let is_first = || {
                let none = |counts: &HashMap<Name, i64>| counts.values().all(|count| *count <= 0);
                self.suits_itself && self.together.iter().all(none)
            };
            if !has_labels || !has_pods && !is_first() {
                return Some(Why::Together);
            }
        }
        for (term, counts) in class.anti_affinity.iter().zip(&self.apart) {
            if labels.get(&term.topology).is_some_and(|value| some(counts, value)) {
                return Some(Why::Apart);
            }
        }
        for (topology, counts) in &self.kept_out {
            if labels.get(topology).is_some_and(|value| some(counts, value)) {
                return Some(Why::KeptOut);
            }
        }
        None
    }
}

fn meets(cluster: &Cluster, term: &PodTerm, other: &Class) -> bool {
    term.selects(&other.labels) && cluster.is_about(term, &other.namespace)
}

/// Whether Pods of the other class meet all terms of affinity; where there are none, they do not.
fn meets_all(cluster: &Cluster, class: &Class, other: &Class) -> bool {
    !class.affinity.is_empty() && class.affinity.iter().all(|term| meets(cluster, term, other))
}

fn terms_against<'a>(cluster: &Cluster, other: &'a Class, class: &Class) -> impl Iterator<Item = &'a PodTerm> {
    let about = move |term: &&PodTerm| meets(cluster, term, class);
    other.anti_affinity.iter().filter(about)
}

fn add(terms: &[PodTerm], counts: &mut [HashMap<Name, i64>], node: &Node, by: i64) {
    for (term, counts) in terms.iter().zip(counts) {
        count_at(counts, term, node, by);
    }
}

fn count_at(counts: &mut HashMap<Name, i64>, term: &PodTerm, node: &Node, by: i64) {
    if let Some(value) = node.spec.labels.get(&term.topology) {
        *counts.entry(value.clone()).or_default() += by;
    }
}

/// What Pods would like, as weights of labels (key, value) of nodes: what this one would like, and what those that are there
/// would like of it. Those that require it count for a little more than nothing.
pub(super) fn wishes(cluster: &Cluster, class: &Class) -> HashMap<Name, HashMap<Name, i64>> {
    let mut weights: HashMap<Name, HashMap<Name, i64>> = HashMap::new();
    for (weight, term) in &class.preferred_pods {
        for kin in cluster.selected(term) {
            let weights = weights.entry(term.topology.clone()).or_default();
            for (node, count) in &kin.on {
                let by = weight * i64::from(count.all);
                count_at(weights, term, &cluster.nodes[*node as usize], by);
            }
        }
    }
    for id in &cluster.with_terms {
        let kin = cluster.kin(*id);
        let required = kin.class.affinity.iter().map(|term| (1, term));
        let preferred = kin.class.preferred_pods.iter().map(|(weight, term)| (*weight, term));
        for (weight, term) in required.chain(preferred) {
            if meets(cluster, term, class) {
                let weights = weights.entry(term.topology.clone()).or_default();
                for (node, count) in &kin.on {
                    let by = weight * i64::from(count.all);
                    count_at(weights, term, &cluster.nodes[*node as usize], by);
                }
            }
        }
    }
    weights
}
