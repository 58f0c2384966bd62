//! One decision: where a Pod goes, or why nowhere.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::cluster::{Cluster, NodeId, PodId};
use super::filter::{Question, Rule, Rules, Why};
use super::score;

/// Fewer nodes than these are always looked at all.
const NODES_MIN: usize = 100;
/// Of more than that, no less than this share.
const SHARE_MIN_PERCENT: usize = 5;

/// What was decided of a Pod.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It goes there.
    Place(NodeId),
    /// There is no place for it.
    Nowhere(Misfit),
}

/// Why there is no place for a Pod.
#[derive(Debug, Default)]
pub(crate) struct Misfit {
    nodes: usize,
    /// What nodes were found wanting for, and how many of them.
    reasons: BTreeMap<String, usize>,
    /// What is wrong whichever the node.
    whole: Option<String>,
    /// What could change that.
    pub(crate) rules: Rules,
    /// Nodes that would do if Pods left them.
    pub(super) open: Vec<NodeId>,
}

impl Misfit {
    pub(super) fn nodes(&self) -> usize {
        self.nodes
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if let Some(text) = &self.whole {
            return write!(f, " {text}.");
        }
        // In the order of the texts, number first.
        let mut texts: Vec<String> = self
            .reasons
            .iter()
            .map(|(text, count)| format!("{count} {text}"))
            .collect();
        texts.sort_unstable();
        write!(f, " {}.", texts.join(", "))
    }
}

/// How many nodes that will do are enough to choose from. Source: `numFeasibleNodesToFind`.
fn enough(nodes: usize) -> usize {
    if nodes < NODES_MIN {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(SHARE_MIN_PERCENT);
    (nodes * percent / 100).max(NODES_MIN)
}

/// Decides where a Pod goes. Looks at nodes from `from` on, which it moves on, so that all have their turn. Costs what the nodes looked at
/// cost, plus what there is of the Pods that the Pod's own rules are about.
pub(crate) fn decide(cluster: &Cluster, id: PodId, from: &mut usize) -> Decision {
    let total = cluster.listed.len();
    let mut misfit = Misfit {
        nodes: total,
        ..Misfit::default()
    };
    if total == 0 {
        // Any node may do.
        misfit.rules.add(Rule::NodeAffinity);
        return Decision::Nowhere(misfit);
    }
    let question = match Question::of(cluster, id) {
        Ok(question) => question,
        Err(text) => {
            misfit.rules.add(Rule::Volumes);
            misfit.whole = Some(text);
            return Decision::Nowhere(misfit);
        }
    };
    // Where others were told to leave for it, or its volumes are being made, it goes if it can.
    let told = question.volumes.selected().and_then(|name| cluster.existing(name));
    for node in cluster.pod(id).nominated.into_iter().chain(told) {
        if cluster.nodes[node as usize].exists && question.check(node).is_none() {
            return Decision::Place(node);
        }
    }
    let named = question.class.named_nodes();
    let candidates: Vec<NodeId> = if let Some(names) = &named {
        let mut ids: Vec<NodeId> = names.iter().filter_map(|name| cluster.existing(name)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    } else {
        let start = *from % total;
        let (before, after) = cluster.listed.split_at(start);
        after.iter().chain(before).copied().collect()
    };
    let enough = enough(candidates.len());
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for node in &candidates {
        seen += 1;
        match question.check(*node) {
            None => fit.push(*node),
            Some(why) => unfit.push((*node, why)),
        }
        if fit.len() >= enough {
            break;
        }
    }
    if named.is_none() {
        *from = (*from + seen) % total;
    }
    match fit.as_slice() {
        [] => {
            explain(&mut misfit, &question, &unfit);
            if candidates.len() < total {
                let others = total - candidates.len();
                misfit.rules.add(Rule::NodeAffinity);
                misfit
                    .reasons
                    .insert("node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned(), others);
            }
            Decision::Nowhere(misfit)
        }
        [one] => Decision::Place(*one),
        several => {
            let points = score::points(cluster, question.class, several);
            let most = points.iter().copied().max().unwrap_or(0);
            let best: Vec<NodeId> = several
                .iter()
                .zip(points)
                .filter(|(_, points)| *points == most)
                .map(|(node, _)| *node)
                .collect();
            // Of equal ones each Pod takes another, by what is random in it: its UID.
            let uid = cluster.pod(id).facts.uid;
            Decision::Place(best[(uid % best.len() as u128) as usize])
        }
    }
}

fn explain(misfit: &mut Misfit, question: &Question<'_>, unfit: &[(NodeId, Why)]) {
    // Texts are made once for nodes that are alike.
    let mut counts: HashMap<Why, usize> = HashMap::new();
    for (node, why) in unfit {
        misfit.rules.add(why.rule());
        if !why.is_final() {
            misfit.open.push(*node);
        }
        let node = &question.cluster.nodes[*node as usize];
        if matches!(why, Why::Taint(_)) {
            why.texts(question.class, node, |text| {
                *misfit.reasons.entry(text.to_owned()).or_default() += 1;
            });
        } else {
            *counts.entry(*why).or_default() += 1;
        }
    }
    let none = super::node::Node::default();
    for (why, count) in counts {
        why.texts(question.class, &none, |text| {
            *misfit.reasons.entry(text.to_owned()).or_default() += count;
        });
    }
}

/// Whether a Pod could go to a node, if need be after others have left it.
pub(crate) fn may_suit(cluster: &Cluster, id: PodId, node: NodeId) -> bool {
    cluster.nodes[node as usize].exists
        && Question::of(cluster, id).is_ok_and(|question| question.check(node).is_none_or(|why| !why.is_final()))
}
