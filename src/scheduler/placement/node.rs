//! A node as decisions see it.

use super::amounts::{self, Amounts};
use super::class::{Class, Port, Taint};
use super::cluster::PodId;
use super::labels::Labels;
use super::names::{Name, Names};
use crate::tree::Value;

/// A node and what is on it. About 500 bytes, 32 for each label, 16 for each image, 12 for each class of Pods and 4 for each Pod: with 12 labels,
/// 20 images and 20 Pods 1.5 KB, so that 5,000 such nodes are 7.5 MB.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) name: Name,
    /// Whether there is such a node, or Pods that name it alone.
    pub(super) exists: bool,
    pub(super) spec: NodeSpec,
    pub(super) requested: Amounts,
    pub(super) assumed: Amounts,
    pub(super) ports: Vec<Port>,
    pub(super) pods: Vec<PodId>,
    /// How many Pods of which class.
    pub(super) classes: Vec<(u32, u32)>,
    /// Pods that others were told to leave it for.
    pub(super) nominated: Vec<PodId>,
}

/// What a node says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NodeSpec {
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Amounts,
    pub(super) pods_max: i64,
    /// Images that it has, sorted by name.
    pub(super) images: Vec<(Name, i64)>,
}

/// Images of one node that are looked at.
const IMAGES_MAX: usize = 100;

impl NodeSpec {
    pub(super) fn of(node: &Value, names: &mut Names) -> Self {
        let (spec, status) = (&node["spec"], &node["status"]);
        let list = |value: &Value| value.as_array().map_or_else(Vec::new, |list| list.as_slice().to_vec());
        let taints = list(&spec["taints"])
            .iter()
            .map(|taint| {
                let mut text = |field: &str| names.get(taint[field].as_str().unwrap_or(""));
                Taint {
                    key: text("key"),
                    value: text("value"),
                    effect: text("effect"),
                }
            })
            .collect();
        let mut images = Vec::new();
        for image in list(&status["images"]) {
            let bytes = image["sizeBytes"].as_i64().unwrap_or(0);
            for name in list(&image["names"]) {
                if let Some(name) = name.as_str().filter(|_| images.len() < IMAGES_MAX) {
                    images.push((names.get(name), bytes));
                }
            }
        }
        images.sort();
        images.dedup_by(|one, other| one.0 == other.0);
        let allocatable = match &status["allocatable"] {
            none if none.is_null() => &status["capacity"],
            some => some,
        };
        Self {
            labels: Labels::of(&node["metadata"]["labels"], names),
            taints,
            unschedulable: spec["unschedulable"] == true,
            allocatable: Amounts::of(allocatable, names),
            pods_max: amounts::pods_max(allocatable),
            images,
        }
    }
}

impl Node {
    pub(super) fn put(&mut self, pod: PodId, class_id: u32, class: &Class) {
        self.requested.add(&class.requests);
        self.assumed.add(&class.assumed);
        self.ports.extend(class.ports.iter().cloned());
        self.pods.push(pod);
        match self.classes.iter_mut().find(|(id, _)| *id == class_id) {
            Some((_, count)) => *count += 1,
            None => self.classes.push((class_id, 1)),
        }
    }

    pub(super) fn take(&mut self, pod: PodId, class_id: u32, class: &Class) {
        self.requested.subtract(&class.requests);
        self.assumed.subtract(&class.assumed);
        for port in &class.ports {
            if let Some(at) = self.ports.iter().position(|other| other == port) {
                self.ports.swap_remove(at);
            }
        }
        if let Some(at) = self.pods.iter().position(|other| *other == pod) {
            self.pods.swap_remove(at);
        }
        if let Some(at) = self.classes.iter().position(|(id, _)| *id == class_id) {
            self.classes[at].1 -= 1;
            if self.classes[at].1 == 0 {
                self.classes.swap_remove(at);
            }
        }
    }

    pub(super) fn image_bytes(&self, image: &str) -> Option<i64> {
        let at = self.spec.images.binary_search_by(|(name, _)| (**name).cmp(image));
        at.ok().map(|at| self.spec.images[at].1)
    }
}
