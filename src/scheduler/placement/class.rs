//! What Pods of one template have in common, as far as it matters where they go.

use super::amounts::{self, Amounts};
use super::labels::{Labels, NodeTerm, Requirement, Selector, node_terms};
use super::names::{Name, Names};
use crate::resources::{HostPort, host_ports};
use crate::tree::Value;

/// What matters of a Pod besides its name, its place and its age. About 600 bytes and its lists; one for all Pods of a template (those of a
/// DaemonSet and of a StatefulSet, which differ in affinity or labels, have one each).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    pub(crate) namespace: Name,
    pub(crate) labels: Labels,
    /// `spec.schedulerName`
    pub(crate) scheduler: Name,
    pub(crate) priority: i64,
    /// `preemptionPolicy` is not `Never`.
    pub(crate) may_preempt: bool,
    pub(super) requests: Amounts,
    /// For comparing nodes: containers that ask for nothing need a little too.
    pub(super) assumed: Amounts,
    pub(super) node_selector: Selector,
    /// `None`: no affinity to nodes is required.
    pub(super) node_terms: Option<Vec<NodeTerm>>,
    pub(super) preferred_nodes: Vec<(i64, NodeTerm)>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) ports: Vec<Port>,
    pub(super) affinity: Vec<PodTerm>,
    pub(super) anti_affinity: Vec<PodTerm>,
    /// With their weights: negative ones are of anti-affinity.
    pub(super) preferred_pods: Vec<(i64, PodTerm)>,
    pub(super) spread: Vec<Spread>,
    pub(super) images: Vec<Name>,
    /// Claims in its namespace.
    pub(crate) claims: Vec<Name>,
    /// Kind and name of the object that controls it.
    pub(crate) controller: Option<(Name, Name)>,
    pub(crate) gates: Vec<Name>,
}

/// A port on its node that a Pod wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Port {
    ip: Name,
    protocol: Name,
    number: i64,
}

impl Port {
    /// Whether both cannot be had.
    pub(super) fn conflicts(&self, other: &Port) -> bool {
        self.shown().conflicts(&other.shown())
    }

    fn shown(&self) -> HostPort<'_> {
        HostPort {
            ip: &self.ip,
            protocol: &self.protocol,
            number: self.number,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Taint {
    pub(super) key: Name,
    pub(super) value: Name,
    pub(super) effect: Name,
}

impl Taint {
    /// What a cordoned node counts as having.
    pub(super) fn unschedulable() -> Self {
        Self {
            key: "node.kubernetes.io/unschedulable".into(),
            value: Name::default(),
            effect: "NoSchedule".into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Toleration {
    /// Empty: every key.
    key: Name,
    value: Name,
    operator: Name,
    /// Empty: every effect.
    effect: Name,
}

impl Toleration {
    pub(super) fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let numbers = || Some((taint.value.parse::<i64>().ok()?, self.value.parse::<i64>().ok()?));
        effect
            && key
            && match &*self.operator {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                "Gt" => numbers().is_some_and(|(taint, bound)| taint > bound),
                "Lt" => numbers().is_some_and(|(taint, bound)| taint < bound),
                _ => false,
            }
    }
}

/// A term of (anti-)affinity to Pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PodTerm {
    pub(super) topology: Name,
    selector: Option<Selector>,
    pub(super) namespaces: Vec<Name>,
    pub(super) namespace_selector: Option<Selector>,
}

impl PodTerm {
    fn of(term: &Value, namespace: &Name, names: &mut Names) -> Self {
        let listed = term["namespaces"].as_array().into_iter().flatten();
        let mut namespaces: Vec<Name> = listed.filter_map(|name| Some(names.get(name.as_str()?))).collect();
        let namespace_selector = Selector::of(&term["namespaceSelector"], names);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(namespace.clone());
        }
        Self {
            topology: names.get(term["topologyKey"].as_str().unwrap_or("")),
            selector: Selector::of(&term["labelSelector"], names),
            namespaces,
            namespace_selector,
        }
    }

    /// Whether it is about Pods with these labels, in whatever namespace.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.selects(labels))
    }
}

/// A constraint on how Pods are spread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Spread {
    pub(super) skew_max: i64,
    pub(super) topology: Name,
    /// `DoNotSchedule`, else `ScheduleAnyway`.
    pub(super) is_hard: bool,
    pub(super) selector: Option<Selector>,
    pub(super) domains_min: i64,
    /// Nodes that the Pod's own node affinity leaves out do not count.
    pub(super) honors_affinity: bool,
    /// Nor do nodes with taints that it does not tolerate.
    pub(super) honors_taints: bool,
}

impl Spread {
    fn of(constraint: &Value, labels: &Labels, names: &mut Names) -> Self {
        let mut selector = Selector::of(&constraint["labelSelector"], names);
        if let Some(selector) = &mut selector {
            for key in constraint["matchLabelKeys"].as_array().into_iter().flatten() {
                let key = names.get(key.as_str().unwrap_or(""));
                if let Some(value) = labels.get(&key) {
                    selector.require(Requirement::equal(key, value.clone()));
                }
            }
        }
        Self {
            skew_max: constraint["maxSkew"].as_i64().unwrap_or(1),
            topology: names.get(constraint["topologyKey"].as_str().unwrap_or("")),
            is_hard: constraint["whenUnsatisfiable"] != "ScheduleAnyway",
            selector,
            domains_min: constraint["minDomains"].as_i64().unwrap_or(1),
            honors_affinity: constraint["nodeAffinityPolicy"] != "Ignore",
            honors_taints: constraint["nodeTaintsPolicy"] == "Honor",
        }
    }
}

impl Class {
    /// Of a Pod as it is stored.
    pub(crate) fn of(pod: &Value, names: &mut Names) -> Self {
        let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
        let namespace = names.get(metadata["namespace"].as_str().unwrap_or(""));
        let labels = Labels::of(&metadata["labels"], names);
        let (requests, assumed) = amounts::of_pod(spec, names);
        let affinity = &spec["affinity"];
        let mut terms = |list: &Value| -> Vec<PodTerm> {
            let list = list.as_array().into_iter().flatten();
            list.map(|term| PodTerm::of(term, &namespace, names)).collect()
        };
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let together = terms(&affinity["podAffinity"][required]);
        let apart = terms(&affinity["podAntiAffinity"][required]);
        let mut preferred_pods = Vec::new();
        for (kind, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
            for term in list(&affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"]) {
                let weight = sign * term["weight"].as_i64().unwrap_or(0);
                preferred_pods.push((weight, PodTerm::of(&term["podAffinityTerm"], &namespace, names)));
            }
        }
        let nodes = &affinity["nodeAffinity"];
        let preferred_nodes = list(&nodes["preferredDuringSchedulingIgnoredDuringExecution"])
            .iter()
            .map(|term| {
                let weight = term["weight"].as_i64().unwrap_or(0);
                (weight, NodeTerm::of(&term["preference"], names))
            })
            .collect();
        let tolerations = list(&spec["tolerations"])
            .iter()
            .map(|toleration| {
                let mut text = |field: &str| names.get(toleration[field].as_str().unwrap_or(""));
                Toleration {
                    key: text("key"),
                    value: text("value"),
                    operator: text("operator"),
                    effect: text("effect"),
                }
            })
            .collect();
        let spread = list(&spec["topologySpreadConstraints"])
            .iter()
            .map(|constraint| Spread::of(constraint, &labels, names))
            .collect();
        let controller = list(&metadata["ownerReferences"])
            .iter()
            .find(|owner| owner["controller"] == true)
            .map(|owner| {
                let mut text = |field: &str| names.get(owner[field].as_str().unwrap_or(""));
                (text("kind"), text("name"))
            });
        Self {
            scheduler: names.get(spec["schedulerName"].as_str().unwrap_or("")),
            priority: spec["priority"].as_i64().unwrap_or(0),
            may_preempt: spec["preemptionPolicy"] != "Never",
            node_selector: Selector::of_map(&spec["nodeSelector"], names),
            node_terms: node_terms(&nodes[required], names),
            ports: ports(pod, names),
            images: list(&spec["containers"])
                .iter()
                .filter_map(|container| Some(names.get(container["image"].as_str()?)))
                .collect(),
            claims: claims(pod, names),
            gates: list(&spec["schedulingGates"])
                .iter()
                .filter_map(|gate| Some(names.get(gate["name"].as_str()?)))
                .collect(),
            namespace,
            labels,
            requests,
            assumed,
            preferred_nodes,
            tolerations,
            affinity: together,
            anti_affinity: apart,
            preferred_pods,
            spread,
            controller,
        }
    }

    pub(super) fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }

    /// Whether its node selector and required affinity allow a node.
    pub(super) fn allows_node(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector.selects(labels)
            && self
                .node_terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.holds(name, labels)))
    }

    /// The nodes that its required affinity names, where each of its terms does: the Pods of DaemonSets.
    pub(super) fn named_nodes(&self) -> Option<Vec<&Name>> {
        let terms = self.node_terms.as_ref().filter(|terms| !terms.is_empty())?;
        let mut names = Vec::new();
        for term in terms {
            names.extend(term.names()?);
        }
        Some(names)
    }

    /// Whether other Pods' places depend on where those of this class are.
    pub(super) fn has_terms(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty() || !self.preferred_pods.is_empty()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], |list| list.as_slice())
}

fn ports(pod: &Value, names: &mut Names) -> Vec<Port> {
    host_ports(pod)
        .map(|port| Port {
            ip: names.get(port.ip),
            protocol: names.get(port.protocol),
            number: port.number,
        })
        .collect()
}

/// Names of claims; those that are made for a volume of the Pod are called after both.
fn claims(pod: &Value, names: &mut Names) -> Vec<Name> {
    let name = pod["metadata"]["name"].as_str().unwrap_or("");
    list(&pod["spec"]["volumes"])
        .iter()
        .filter_map(|volume| {
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                return Some(names.get(claim));
            }
            let volume_name = volume["name"].as_str().filter(|_| volume["ephemeral"].is_object())?;
            Some(names.get(&format!("{name}-{volume_name}")))
        })
        .collect()
}
