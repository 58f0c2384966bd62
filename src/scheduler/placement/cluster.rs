//! The picture of the cluster that decisions are made from, kept up to date change by change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::class::{Class, PodTerm};
use super::labels::{Labels, Requirement, Selector};
use super::names::{Name, Names};
use super::node::{Node, NodeSpec};
use super::preempt::Budget;
use super::volumes::Storage;
use crate::tree::Value;

/// A number for a Pod, while it is in the picture.
pub(crate) type PodId = u32;
/// A number for a node, while it or Pods of it are in the picture.
pub(crate) type NodeId = u32;
pub(super) type ClassId = u32;

/// All nodes, and all Pods that have not ended.
///
/// A Pod costs about 200 bytes: its numbers, its key and their places in tables; 100,000 Pods of 1,000 templates are 22 MB, and 5,000 nodes 8 MB
/// more (see [`Node`]).
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(super) names: Names,
    pub(super) nodes: Vec<Node>,
    by_name: HashMap<Name, NodeId>,
    free_nodes: Vec<NodeId>,
    /// Those that exist, in the order in which they came.
    pub(super) listed: Vec<NodeId>,
    pub(super) classes: Vec<Option<Kin>>,
    class_ids: HashMap<Arc<Class>, ClassId>,
    free_classes: Vec<ClassId>,
    in_namespace: HashMap<Name, BTreeSet<ClassId>>,
    /// Classes with terms about other Pods, some of whose Pods have a node.
    pub(super) with_terms: BTreeSet<ClassId>,
    pods: Vec<Option<Pod>>,
    ids: HashMap<Name, PodId>,
    free_pods: Vec<PodId>,
    pub(super) namespaces: HashMap<Name, Labels>,
    /// By namespace and name.
    pub(super) budgets: HashMap<Name, BTreeMap<Name, Budget>>,
    /// Selectors of Services, by namespace and name.
    services: HashMap<Name, BTreeMap<Name, Selector>>,
    pub(super) storage: Storage,
    /// How many nodes have an image.
    pub(super) images: HashMap<Name, u32>,
}

/// Labels that no two Pods of a StatefulSet have alike.
const LABELS_OF_ONE: [&str; 2] = ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"];

/// The Pods of a class.
#[derive(Debug)]
pub(super) struct Kin {
    pub(super) class: Arc<Class>,
    pods: u32,
    /// How many are on which node.
    pub(super) on: BTreeMap<NodeId, Count>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) all: u32,
    /// Without those that are being deleted.
    pub(super) live: u32,
}

/// Where a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Nowhere,
    /// It was told to go there, and the store does not say so yet.
    Assumed(NodeId),
    Bound(NodeId),
}

impl Place {
    pub(crate) fn node(self) -> Option<NodeId> {
        match self {
            Place::Nowhere => None,
            Place::Assumed(node) | Place::Bound(node) => Some(node),
        }
    }
}

/// What is known of one Pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) key: Name,
    pub(super) class: ClassId,
    pub(crate) facts: PodFacts,
    pub(crate) place: Place,
    /// The node that others were told to leave for it.
    pub(crate) nominated: Option<NodeId>,
}

/// What one Pod has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PodFacts {
    pub(crate) uid: u128,
    /// Unix seconds at which it was created, or, once it has, started.
    pub(crate) since_s: i64,
    pub(crate) is_deleting: bool,
}

impl Cluster {
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    pub(crate) fn id(&self, key: &str) -> Option<PodId> {
        self.ids.get(key).copied()
    }

    /// Panics when there is no such Pod: numbers come from this picture.
    pub(crate) fn pod(&self, id: PodId) -> &Pod {
        self.pods[id as usize].as_ref().expect("a Pod of this picture")
    }

    pub(crate) fn class(&self, id: PodId) -> &Arc<Class> {
        &self.kin(self.pod(id).class).class
    }

    pub(super) fn kin(&self, id: ClassId) -> &Kin {
        self.classes[id as usize].as_ref().expect("a class with Pods")
    }

    pub(crate) fn node_name(&self, id: NodeId) -> &Name {
        &self.nodes[id as usize].name
    }

    /// The node of that name, if it exists.
    pub(super) fn existing(&self, name: &str) -> Option<NodeId> {
        let id = self.by_name.get(name).copied()?;
        self.nodes[id as usize].exists.then_some(id)
    }

    pub(crate) fn node_count(&self) -> usize {
        self.listed.len()
    }

    /// Notes a Pod, or what changed of it. `node` is where the store says it is. Gives its number.
    pub(crate) fn set_pod(&mut self, key: &str, class: Class, facts: PodFacts, node: Option<&str>) -> PodId {
        if let Some(id) = self.id(key) {
            let pod = self.pod(id);
            // What was assumed stays so until the store says otherwise.
            let stays = match (pod.place, node) {
                (_, Some(node)) => pod
                    .place
                    .node()
                    .is_some_and(|id| *self.nodes[id as usize].name == *node),
                (Place::Assumed(_), None) => pod.facts.uid == facts.uid,
                (Place::Nowhere, None) => true,
                (Place::Bound(_), None) => false,
            };
            if stays && pod.facts == facts && **self.class(id) == class {
                if let (Some(_), Place::Assumed(node)) = (node, self.pod(id).place) {
                    self.pod_mut(id).place = Place::Bound(node);
                }
                return id;
            }
            let place = self.pod(id).place;
            self.remove_pod(id);
            // The place that has just become free is taken: its number stays.
            let id = self.insert(key, class, facts);
            match (node, place) {
                (Some(node), _) => self.put(id, node),
                (None, Place::Assumed(node)) if stays => self.assume(id, node),
                (None, _) => {}
            }
            return id;
        }
        let id = self.insert(key, class, facts);
        if let Some(node) = node {
            self.put(id, node);
        }
        id
    }

    fn insert(&mut self, key: &str, class: Class, facts: PodFacts) -> PodId {
        let class = self.enter(class);
        let key: Name = key.into();
        let pod = Pod {
            key: key.clone(),
            class,
            facts,
            place: Place::Nowhere,
            nominated: None,
        };
        let id = take_slot(&mut self.pods, &mut self.free_pods, Some(pod));
        self.ids.insert(key, id);
        id
    }

    /// Forgets a Pod.
    pub(crate) fn remove_pod(&mut self, id: PodId) {
        self.unplace(id);
        self.nominate(id, None);
        let pod = self.pods[id as usize].take().expect("a Pod of this picture");
        self.ids.remove(&pod.key);
        self.free_pods.push(id);
        self.leave(pod.class);
    }

    /// Decides that a Pod goes to a node, before the store knows.
    pub(crate) fn assume(&mut self, id: PodId, node: NodeId) {
        self.unplace(id);
        self.place(id, node);
        self.pod_mut(id).place = Place::Assumed(node);
    }

    /// Takes back what was assumed, if the store has not confirmed it.
    pub(crate) fn forget(&mut self, id: PodId) {
        if matches!(self.pod(id).place, Place::Assumed(_)) {
            self.unplace(id);
        }
    }

    fn put(&mut self, id: PodId, node: &str) {
        let node = self.node_id(node);
        self.place(id, node);
        self.pod_mut(id).place = Place::Bound(node);
    }

    fn pod_mut(&mut self, id: PodId) -> &mut Pod {
        self.pods[id as usize].as_mut().expect("a Pod of this picture")
    }

    fn place(&mut self, id: PodId, node: NodeId) {
        let (class_id, live) = (self.pod(id).class, u32::from(!self.pod(id).facts.is_deleting));
        let kin = self.classes[class_id as usize].as_mut().expect("a class with Pods");
        let count = kin.on.entry(node).or_default();
        count.all += 1;
        count.live += live;
        self.nodes[node as usize].put(id, class_id, &kin.class);
        if kin.class.has_terms() {
            self.with_terms.insert(class_id);
        }
    }

    fn unplace(&mut self, id: PodId) {
        let pod = self.pod(id);
        let (class_id, live) = (pod.class, u32::from(!pod.facts.is_deleting));
        let Some(node) = pod.place.node() else { return };
        self.pod_mut(id).place = Place::Nowhere;
        let kin = self.classes[class_id as usize].as_mut().expect("a class with Pods");
        if let Some(count) = kin.on.get_mut(&node) {
            count.all -= 1;
            count.live -= live;
            if count.all == 0 {
                kin.on.remove(&node);
            }
        }
        if kin.on.is_empty() {
            self.with_terms.remove(&class_id);
        }
        let class = kin.class.clone();
        self.nodes[node as usize].take(id, class_id, &class);
        self.drop_node_if_unused(node);
    }

    /// Notes that others were told to leave a node for this Pod.
    pub(crate) fn nominate(&mut self, id: PodId, node: Option<&str>) {
        let node = node.and_then(|node| self.by_name.get(node).copied());
        let before = self.pod(id).nominated;
        if before == node {
            return;
        }
        self.pod_mut(id).nominated = node;
        if let Some(node) = node {
            self.nodes[node as usize].nominated.push(id);
        }
        if let Some(before) = before {
            self.nodes[before as usize].nominated.retain(|other| *other != id);
            self.drop_node_if_unused(before);
        }
    }

    fn enter(&mut self, class: Class) -> ClassId {
        if let Some(id) = self.class_ids.get(&class) {
            let id = *id;
            self.classes[id as usize].as_mut().expect("a class with Pods").pods += 1;
            return id;
        }
        let class = Arc::new(class);
        let kin = Kin {
            class: class.clone(),
            pods: 1,
            on: BTreeMap::new(),
        };
        let id = take_slot(&mut self.classes, &mut self.free_classes, Some(kin));
        self.in_namespace.entry(class.namespace.clone()).or_default().insert(id);
        self.class_ids.insert(class, id);
        id
    }

    fn leave(&mut self, id: ClassId) {
        let kin = self.classes[id as usize].as_mut().expect("a class with Pods");
        kin.pods -= 1;
        if kin.pods > 0 {
            return;
        }
        let class = kin.class.clone();
        self.classes[id as usize] = None;
        self.free_classes.push(id);
        self.class_ids.remove(&class);
        self.with_terms.remove(&id);
        if let Some(ids) = self.in_namespace.get_mut(&class.namespace) {
            ids.remove(&id);
            if ids.is_empty() {
                self.in_namespace.remove(&class.namespace);
            }
        }
    }

    fn node_id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let name = self.names.get(name);
        let node = Node {
            name: name.clone(),
            ..Node::default()
        };
        let id = take_slot(&mut self.nodes, &mut self.free_nodes, node);
        self.by_name.insert(name, id);
        id
    }

    /// Notes a node, or what changed of it. Whether anything that matters did.
    pub(crate) fn set_node(&mut self, name: &str, node: &Value) -> Option<NodeId> {
        let spec = NodeSpec::of(node, &mut self.names);
        let id = self.node_id(name);
        let is_new = !self.nodes[id as usize].exists;
        if !is_new && self.nodes[id as usize].spec == spec {
            return None;
        }
        if is_new {
            self.listed.push(id);
        }
        self.count_images(id, false);
        let node = &mut self.nodes[id as usize];
        (node.exists, node.spec) = (true, spec);
        self.count_images(id, true);
        Some(id)
    }

    /// Forgets a node; Pods that name it stay.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(id) = self.by_name.get(name).copied() else {
            return;
        };
        self.count_images(id, false);
        self.listed.retain(|other| *other != id);
        let node = &mut self.nodes[id as usize];
        (node.exists, node.spec) = (false, NodeSpec::default());
        self.drop_node_if_unused(id);
    }

    fn count_images(&mut self, id: NodeId, has: bool) {
        for (image, _) in &self.nodes[id as usize].spec.images {
            let count = self.images.entry(image.clone()).or_default();
            if has {
                *count += 1;
            } else {
                *count = count.saturating_sub(1);
            }
            if *count == 0 {
                self.images.remove(image);
            }
        }
    }

    fn drop_node_if_unused(&mut self, id: NodeId) {
        let node = &mut self.nodes[id as usize];
        if !node.exists && node.pods.is_empty() && node.nominated.is_empty() && !node.name.is_empty() {
            let name = std::mem::take(&mut node.name);
            self.by_name.remove(&name);
            self.free_nodes.push(id);
        }
    }

    /// Notes the labels of a namespace; `None`: it is gone.
    pub(crate) fn set_namespace(&mut self, name: &str, namespace: Option<&Value>) {
        match namespace {
            None => drop(self.namespaces.remove(name)),
            Some(namespace) => {
                let labels = Labels::of(&namespace["metadata"]["labels"], &mut self.names);
                let name = self.names.get(name);
                self.namespaces.insert(name, labels);
            }
        }
    }

    /// Whether a term is about Pods of this namespace.
    pub(super) fn is_about(&self, term: &PodTerm, namespace: &Name) -> bool {
        term.namespaces.contains(namespace)
            || term.namespace_selector.as_ref().is_some_and(|selector| {
                // A namespace that is not known has no labels.
                match self.namespaces.get(namespace) {
                    Some(labels) => selector.selects(labels),
                    None => selector.is_everything(),
                }
            })
    }

    /// Notes the selector of a Service; `None`: it is gone.
    pub(crate) fn set_service(&mut self, key: &str, service: Option<&Value>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let namespace = self.names.get(namespace);
        let selector = service.map(|service| Selector::of_map(&service["spec"]["selector"], &mut self.names));
        match selector.filter(|selector| !selector.is_everything()) {
            Some(selector) => {
                self.services
                    .entry(namespace)
                    .or_default()
                    .insert(name.into(), selector);
            }
            None => {
                if let Some(services) = self.services.get_mut(&namespace) {
                    services.remove(name);
                }
            }
        }
    }

    /// What selects the Pods that are like those of a class: its Services, and the labels that the set which made them gave
    /// them. `None`: nothing tells.
    pub(super) fn likes(&self, class: &Class) -> Option<Selector> {
        let mut likes = Selector::default();
        for service in self
            .services
            .get(&class.namespace)
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            if service.selects(&class.labels) {
                likes.and(service);
            }
        }
        let sets = ["ReplicaSet", "ReplicationController", "StatefulSet"];
        if class
            .controller
            .as_ref()
            .is_some_and(|(kind, _)| sets.contains(&&**kind))
        {
            for (key, value) in class.labels.iter().filter(|(key, _)| !LABELS_OF_ONE.contains(&&**key)) {
                likes.require(Requirement::equal(key.clone(), value.clone()));
            }
        }
        (!likes.is_everything()).then_some(likes)
    }

    /// The classes of a namespace.
    pub(super) fn kins(&self, namespace: &str) -> impl Iterator<Item = &Kin> {
        let ids = self.in_namespace.get(namespace).into_iter().flatten();
        ids.map(|id| self.kin(*id))
    }

    /// The classes that a term is about.
    pub(super) fn selected<'a>(&'a self, term: &'a PodTerm) -> impl Iterator<Item = &'a Kin> {
        let namespaces = self.in_namespace.iter();
        namespaces
            .filter(|(namespace, _)| self.is_about(term, namespace))
            .flat_map(|(_, ids)| ids.iter().map(|id| self.kin(*id)))
            .filter(|kin| term.selects(&kin.class.labels))
    }
}

/// Puts an item where one is free.
fn take_slot<T>(slots: &mut Vec<T>, free: &mut Vec<u32>, item: T) -> u32 {
    if let Some(id) = free.pop() {
        slots[id as usize] = item;
        return id;
    }
    slots.push(item);
    slots.len() as u32 - 1
}
