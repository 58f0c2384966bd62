//! Who has to leave so that a Pod with a higher priority finds a place. Rules: kube-scheduler's plugin DefaultPreemption.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::class::Class;
use super::cluster::{Cluster, NodeId, PodId};
use super::cycle::Misfit;
use super::filter::{Question, Why};
use super::labels::Selector;
use super::names::{Name, Names};
use super::node::Node;
use crate::tree::Value;

/// Nodes that are tried: this share of those that may help, and no fewer than the second.
const TRIED_PERCENT: usize = 10;
const TRIED_MIN: usize = 100;

/// A budget of disruptions (`PodDisruptionBudget`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    selector: Option<Selector>,
    /// How many of its Pods may still go.
    allowed: i64,
    /// Pods whose going has been counted already.
    counted: Vec<Name>,
}

impl Budget {
    pub(crate) fn of(budget: &Value, names: &mut Names) -> Self {
        let (spec, status) = (&budget["spec"], &budget["status"]);
        let counted = status["disruptedPods"].as_object().into_iter().flatten();
        Self {
            // One that selects everything protects nothing here, as in kube-scheduler.
            selector: Selector::of(&spec["selector"], names).filter(|selector| !selector.is_everything()),
            allowed: status["disruptionsAllowed"].as_i64().unwrap_or(0),
            counted: counted.map(|(name, _)| names.get(name)).collect(),
        }
    }
}

/// Pods that have to leave a node for another one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    pub(crate) node: NodeId,
    pub(crate) victims: Vec<PodId>,
}

/// What preemption can do for a Pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Preemption {
    Evict(Eviction),
    /// Nothing, for this reason; whether Pods have been told to leave for it already.
    Not(String, bool),
}

/// Who would have to leave a node.
struct Victims {
    node: NodeId,
    pods: Vec<PodId>,
    /// How many of them a budget does not allow to go.
    violations: usize,
}

/// Finds the node where the least is lost by evicting Pods of lower priority, once no place was found. Looks at nodes from `from` on.
pub(crate) fn preempt(cluster: &Cluster, id: PodId, misfit: &Misfit, from: usize) -> Preemption {
    let class: &Class = cluster.class(id);
    if !class.may_preempt {
        return Preemption::Not("not eligible due to preemptionPolicy=Never.".to_owned(), false);
    }
    if let Some(node) = cluster.pod(id).nominated {
        let is_leaving = |other: &PodId| {
            let pod = cluster.pod(*other);
            pod.facts.is_deleting && cluster.class(*other).priority < class.priority
        };
        if cluster.nodes[node as usize].pods.iter().any(is_leaving) {
            let text = "not eligible due to a terminating pod on the nominated node.";
            return Preemption::Not(text.to_owned(), true);
        }
    }
    let none = |text: String| Preemption::Not(text, false);
    let total = misfit.nodes();
    let open = &misfit.open;
    let not_helpful = total - open.len();
    let Ok(question) = Question::of(cluster, id) else {
        return none(reasons(total, BTreeMap::new(), total));
    };
    let tried_max = (open.len() * TRIED_PERCENT / 100).max(TRIED_MIN);
    let start = if open.is_empty() { 0 } else { from % open.len() };
    let (mut found, mut why_not): (Vec<Victims>, BTreeMap<String, usize>) = (Vec::new(), BTreeMap::new());
    for node in open[start..].iter().chain(&open[..start]) {
        match victims_on(cluster, &question, *node) {
            Ok(victims) => found.push(victims),
            Err(None) => *why_not.entry(NO_VICTIMS.to_owned()).or_default() += 1,
            Err(Some(why)) => why.texts(class, &cluster.nodes[*node as usize], |text| {
                *why_not.entry(text.to_owned()).or_default() += 1;
            }),
        }
        // Better ones, that break no budget, are looked for a little longer.
        if found.len() >= tried_max && found.iter().any(|victims| victims.violations == 0) {
            break;
        }
    }
    match found.into_iter().min_by_key(|victims| loss(cluster, victims)) {
        Some(Victims {
            node, pods: victims, ..
        }) => Preemption::Evict(Eviction { node, victims }),
        None => none(reasons(total, why_not, not_helpful)),
    }
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

fn reasons(total: usize, mut counts: BTreeMap<String, usize>, not_helpful: usize) -> String {
    if not_helpful > 0 {
        counts.insert("Preemption is not helpful for scheduling".to_owned(), not_helpful);
    }
    let mut texts: Vec<String> = counts.iter().map(|(text, count)| format!("{count} {text}")).collect();
    texts.sort_unstable();
    format!("0/{total} nodes are available: {}.", texts.join(", "))
}

/// What is lost, the most important first: budgets, the highest priority, all priorities, how many; then whose most important Pods have
/// run the shortest.
fn loss(cluster: &Cluster, victims: &Victims) -> (usize, i64, i128, usize, Reverse<i64>) {
    let priority = |id: &PodId| cluster.class(*id).priority;
    let highest = victims.pods.iter().map(priority).max().unwrap_or(i64::MIN);
    // Each counts, those with negative priorities too.
    let above = i128::from(i32::MAX) + 1;
    let sum = victims.pods.iter().map(|id| i128::from(priority(id)) + above).sum();
    let important = victims.pods.iter().filter(|id| priority(id) == highest);
    let since = important.map(|id| cluster.pod(*id).facts.since_s).min().unwrap_or(0);
    (victims.violations, highest, sum, victims.pods.len(), Reverse(since))
}

/// The fewest Pods of lower priority that have to leave this node; else why that does not help, `None` where there are none.
fn victims_on(cluster: &Cluster, question: &Question<'_>, id: NodeId) -> Result<Victims, Option<Why>> {
    let priority = |pod: &PodId| cluster.class(*pod).priority;
    let mut lower: Vec<PodId> = cluster.nodes[id as usize].pods.clone();
    lower.retain(|pod| priority(pod) < question.class.priority);
    if lower.is_empty() {
        return Err(None);
    }
    let mut node: Node = cluster.nodes[id as usize].clone();
    let mut question = question.clone();
    let expected = |other: &&PodId| {
        **other != question.pod
            && cluster.pod(**other).place.node().is_none()
            && priority(other) >= question.class.priority
    };
    let expected: Vec<PodId> = node.nominated.iter().filter(expected).copied().collect();
    for other in expected {
        node.put(other, cluster.pod(other).class, cluster.class(other));
    }
    for pod in &lower {
        shift(cluster, &mut question, &mut node, *pod, -1);
    }
    if let Some(why) = question.check_node(&node) {
        return Err(Some(why));
    }
    // The most important first, and those first that budgets want to stay.
    lower.sort_by_key(|pod| (Reverse(priority(pod)), cluster.pod(*pod).facts.since_s, *pod));
    let kept_by_budget = cluster.beyond_budgets(&lower);
    let (first, last): (Vec<PodId>, Vec<PodId>) = lower.iter().partition(|pod| kept_by_budget.contains(pod));
    let (mut pods, mut violations) = (Vec::new(), 0);
    for (pod, is_kept_by_budget) in first
        .iter()
        .map(|pod| (pod, true))
        .chain(last.iter().map(|pod| (pod, false)))
    {
        shift(cluster, &mut question, &mut node, *pod, 1);
        if question.check_node(&node).is_some() {
            shift(cluster, &mut question, &mut node, *pod, -1);
            pods.push(*pod);
            violations += usize::from(is_kept_by_budget);
        }
    }
    pods.sort_by_key(|pod| (Reverse(priority(pod)), cluster.pod(*pod).facts.since_s, *pod));
    Ok(Victims {
        node: id,
        pods,
        violations,
    })
}

/// Puts a Pod on the node or takes it away, and counts it so.
fn shift(cluster: &Cluster, question: &mut Question<'_>, node: &mut Node, pod: PodId, by: i64) {
    let (class_id, other) = (cluster.pod(pod).class, cluster.class(pod));
    if by > 0 {
        node.put(pod, class_id, other);
    } else {
        node.take(pod, class_id, other);
    }
    question.affinity.shift(cluster, question.class, other, node, by);
    if !cluster.pod(pod).facts.is_deleting {
        question.spread.shift(question.class, other, node, by);
    }
}

impl Cluster {
    /// Notes a budget; `None`: it is gone.
    pub(crate) fn set_budget(&mut self, key: &str, budget: Option<&Value>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let namespace = self.names.get(namespace);
        match budget {
            Some(budget) => {
                let budget = Budget::of(budget, &mut self.names);
                self.budgets.entry(namespace).or_default().insert(name.into(), budget);
            }
            None => {
                if let Some(budgets) = self.budgets.get_mut(&namespace) {
                    budgets.remove(name);
                    if budgets.is_empty() {
                        self.budgets.remove(&namespace);
                    }
                }
            }
        }
    }

    /// Those of these Pods, in their order, that budgets do not allow to go after those before them.
    fn beyond_budgets(&self, pods: &[PodId]) -> Vec<PodId> {
        if self.budgets.is_empty() {
            return Vec::new();
        }
        let mut gone: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut beyond = Vec::new();
        for id in pods {
            let class = self.class(*id);
            let name = self.pod(*id).key.split_once('/').map_or("", |(_, name)| name);
            let mut is_beyond = false;
            for (budget_name, budget) in self.budgets.get(&class.namespace).into_iter().flatten() {
                let is_about = budget.selector.as_ref().is_some_and(|one| one.selects(&class.labels))
                    && !budget.counted.iter().any(|counted| **counted == *name);
                if is_about {
                    let gone = gone.entry((&class.namespace, budget_name)).or_default();
                    *gone += 1;
                    is_beyond |= *gone > budget.allowed;
                }
            }
            if is_beyond {
                beyond.push(*id);
            }
        }
        beyond
    }
}
