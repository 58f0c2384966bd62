//! Which of the nodes that will do is the best.
//!
//! Each plugin gives 0 to 100 points, weighed as in kube-scheduler's default profile.

use super::affinity;
use super::class::{Class, Taint};
use super::cluster::{Cluster, NodeId};
use super::node::Node;
use super::spread;

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const POD_AFFINITY: i64 = 2;

/// Images smaller than the first are not worth minding; nor is what a container's images are larger than the second.
const IMAGE_BYTES_MIN: i64 = 23 << 20;
const IMAGE_BYTES_MAX: i64 = 1000 << 20;

/// The points of nodes that will do, in the same order.
pub(super) fn points(cluster: &Cluster, class: &Class, among: &[NodeId]) -> Vec<i64> {
    let node = |id: &NodeId| &cluster.nodes[*id as usize];
    let mut sums: Vec<i64> = among
        .iter()
        .map(|id| {
            let node = node(id);
            least_allocated(class, node) + balance(class, node) + images(cluster, class, node)
        })
        .collect();
    let mut add = |weight: i64, points: Vec<i64>| {
        for (sum, points) in sums.iter_mut().zip(points) {
            *sum += weight * points;
        }
    };
    let avoided = |taint: &&Taint| &*taint.effect == "PreferNoSchedule" && !class.tolerates(taint);
    let taints = |id| node(id).spec.taints.iter().filter(avoided).count() as i64;
    let taints = share_of_most(among.iter().map(taints).collect());
    add(TAINTS, taints.into_iter().map(|share| 100 - share).collect());
    if !class.preferred_nodes.is_empty() {
        let liked = |id| {
            let node = node(id);
            let terms = class.preferred_nodes.iter();
            let held = terms.filter(|(_, term)| term.holds(&node.name, &node.spec.labels));
            held.map(|(weight, _)| *weight).sum()
        };
        add(NODE_AFFINITY, share_of_most(among.iter().map(liked).collect()));
    }
    if let Some(points) = spread::points(cluster, class, among) {
        add(SPREAD, points);
    }
    let wishes = affinity::wishes(cluster, class);
    if !wishes.is_empty() {
        let liked = |id| {
            let labels = &node(id).spec.labels;
            let weights = wishes
                .iter()
                .filter_map(|(topology, weights)| weights.get(labels.get(topology)?));
            weights.sum::<i64>()
        };
        let raw: Vec<i64> = among.iter().map(liked).collect();
        let least = raw.iter().copied().min().unwrap_or(0);
        let range = raw.iter().copied().max().unwrap_or(0) - least;
        let point = |raw: i64| if range > 0 { 100 * (raw - least) / range } else { 0 };
        add(POD_AFFINITY, raw.into_iter().map(point).collect());
    }
    sums
}

fn share_of_most(raw: Vec<i64>) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return raw;
    }
    raw.into_iter().map(|raw| 100 * raw / most).collect()
}

/// The more would be left, the better.
fn least_allocated(class: &Class, node: &Node) -> i64 {
    let (has, taken, asked) = (&node.spec.allocatable, &node.assumed, &class.assumed);
    let left = |has: i64, taken: i64| {
        if has == 0 || taken > has {
            0
        } else {
            (i128::from(has - taken) * 100 / i128::from(has)) as i64
        }
    };
    let mut sum = 0;
    let mut of = 0;
    for (has, taken) in [
        (has.cpu_milli, taken.cpu_milli.saturating_add(asked.cpu_milli)),
        (has.memory_bytes, taken.memory_bytes.saturating_add(asked.memory_bytes)),
    ] {
        if has > 0 {
            sum += left(has, taken);
            of += 1;
        }
    }
    if of == 0 { 0 } else { sum / of }
}

/// The more alike the used shares of processors and memory would be, the better. For Pods that ask for neither it does not matter.
fn balance(class: &Class, node: &Node) -> i64 {
    let (has, taken, asked) = (&node.spec.allocatable, &node.requested, &class.requests);
    if asked.cpu_milli == 0 && asked.memory_bytes == 0 {
        return 0;
    }
    let mut shares = Vec::with_capacity(2);
    for (has, taken) in [
        (has.cpu_milli, taken.cpu_milli.saturating_add(asked.cpu_milli)),
        (has.memory_bytes, taken.memory_bytes.saturating_add(asked.memory_bytes)),
    ] {
        if has > 0 {
            shares.push((taken as f64 / has as f64).min(1.0));
        }
    }
    let deviation = match shares.as_slice() {
        [one, other] => ((one - other) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * 100.0) as i64
}

/// The more bytes of its images are there already, the better; images that few nodes have count for less, so that not all
/// Pods go there.
fn images(cluster: &Cluster, class: &Class, node: &Node) -> i64 {
    let total = cluster.listed.len().max(1) as f64;
    let sum: i64 = class
        .images
        .iter()
        .filter_map(|image| {
            let bytes = node.image_bytes(image)?;
            let nodes = cluster.images.get(image).copied().unwrap_or(0);
            Some((bytes as f64 * f64::from(nodes) / total) as i64)
        })
        .sum();
    let most = IMAGE_BYTES_MAX * class.images.len() as i64;
    let sum = sum.clamp(IMAGE_BYTES_MIN, most.max(IMAGE_BYTES_MIN));
    if most > IMAGE_BYTES_MIN {
        100 * (sum - IMAGE_BYTES_MIN) / (most - IMAGE_BYTES_MIN)
    } else {
        0
    }
}
