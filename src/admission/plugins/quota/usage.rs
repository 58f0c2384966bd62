//! What one object takes, by the kind of object.

use std::collections::BTreeSet;

use super::super::volumes::class_of;
use super::Scope;
use crate::admission::Operation;
use crate::resources::quantity::Quantity;
use crate::resources::{Amounts, Resource, pod_amounts, time_s};
use crate::tree::Value;

use super::{items, text};

/// How objects are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pods,
    Services,
    Claims,
    DeviceClaims,
    /// Each object is one.
    Objects,
    /// Not at all.
    Nothing,
}

/// Counted by their plain names, too.
const OLD_NAMES: &[&str] = &["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const DEVICE_CLAIMS: &str = "resourceclaims.resource.k8s.io";
/// What Pods take, beside what begins with `requests.`, `limits.` and `hugepages-`.
const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Each container must say these, where they are limited.
const SAID: &[&str] = &[
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
/// What a claim for all devices of a node counts as; the most that one may get.
const DEVICES_MAX: i64 = 32;

/// Whose objects a name counts.
pub(super) fn storage_of(name: &str) -> Option<String> {
    if let Some(storage) = name.strip_prefix("count/") {
        return Some(storage.to_owned());
    }
    let storage = match name {
        "services" | "services.nodeports" | "services.loadbalancers" => "services",
        "persistentvolumeclaims" | "requests.storage" => "persistentvolumeclaims",
        name if OLD_NAMES.contains(&name) => name,
        name if name.contains(STORAGE_CLASS) => "persistentvolumeclaims",
        name if name.ends_with(DEVICE_CLASS) => DEVICE_CLAIMS,
        name if Kind::Pods.tracks("pods", name) => "pods",
        _ => return None,
    };
    Some(storage.to_owned())
}

impl Kind {
    pub(super) fn of(resource: &Resource) -> Kind {
        if resource.namespaced {
            Kind::of_storage(&resource.storage)
        } else {
            Kind::Nothing
        }
    }

    pub(super) fn of_storage(storage: &str) -> Kind {
        match storage {
            "pods" => Kind::Pods,
            "services" => Kind::Services,
            "persistentvolumeclaims" => Kind::Claims,
            DEVICE_CLAIMS => Kind::DeviceClaims,
            "" | "events" | "events.events.k8s.io" => Kind::Nothing,
            _ => Kind::Objects,
        }
    }

    /// Whether such a request takes anything.
    pub(super) fn is_charged(self, subresource: &str, operation: Operation) -> bool {
        match (self, subresource, operation) {
            (Kind::Nothing, ..) => false,
            (_, "", Operation::Create)
            | (Kind::Pods, "resize", Operation::Update)
            | (Kind::Services | Kind::Claims | Kind::DeviceClaims, "", Operation::Update) => true,
            _ => false,
        }
    }

    /// Whether a quota's name counts objects of this kind.
    pub(super) fn tracks(self, storage: &str, name: &str) -> bool {
        if name.strip_prefix("count/") == Some(storage) && self != Kind::Nothing {
            return true;
        }
        match self {
            Kind::Pods => {
                let bare = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits."));
                name == "pods"
                    || name.starts_with("hugepages-")
                    || COMPUTE.contains(&bare.unwrap_or(name))
                    || name.strip_prefix("requests.").is_some_and(|bare| {
                        bare.starts_with("hugepages-") || bare.contains('/') && !name.contains(STORAGE_CLASS)
                    })
            }
            Kind::Services => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
            Kind::Claims => {
                matches!(name, "persistentvolumeclaims" | "requests.storage") || name.contains(STORAGE_CLASS)
            }
            Kind::DeviceClaims => name.ends_with(DEVICE_CLASS),
            Kind::Objects => name == storage && OLD_NAMES.contains(&name),
            Kind::Nothing => false,
        }
    }

    /// Whether each object counts as one under that name, whatever it says.
    pub(super) fn counts_each(self, storage: &str, name: &str) -> bool {
        name.strip_prefix("count/") == Some(storage) || name == storage && self != Kind::Pods
    }

    pub(super) fn has_scopes(self) -> bool {
        matches!(self, Kind::Pods | Kind::Claims)
    }

    /// Whether an object is in a scope; of kinds without scopes none is.
    pub(super) fn is_in(self, scope: &Scope<'_>, object: &Value) -> bool {
        match self {
            Kind::Pods => pod_is_in(scope, object),
            Kind::Claims if scope.name == "VolumeAttributesClass" => {
                let names = [
                    &object["spec"]["volumeAttributesClassName"],
                    &object["status"]["currentVolumeAttributesClassName"],
                    &object["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
                ];
                let names: BTreeSet<&str> = names.into_iter().map(text).filter(|name| !name.is_empty()).collect();
                match scope.operator {
                    "Exists" => !names.is_empty(),
                    "DoesNotExist" => names.is_empty(),
                    _ => names.iter().any(|name| scope.takes(name)),
                }
            }
            _ => false,
        }
    }

    /// What a Pod should say and does not: `cpu for: a,b; memory for: a`.
    pub(super) fn unsaid(self, tracked: &[&String], object: &Value) -> Option<String> {
        if self != Kind::Pods {
            return None;
        }
        let whole = &object["spec"]["resources"];
        let has_any = |field: &str| whole[field].as_object().is_some_and(|amounts| !amounts.is_empty());
        if has_any("requests") || has_any("limits") {
            return None;
        }
        let mut told = Vec::new();
        for name in SAID
            .iter()
            .filter(|name| tracked.iter().any(|tracked| tracked == *name))
        {
            let (field, resource) = match name.strip_prefix("limits.") {
                Some(resource) => ("limits", resource),
                None => ("requests", name.strip_prefix("requests.").unwrap_or(name)),
            };
            let lists = ["containers", "initContainers"];
            let containers = lists.iter().flat_map(|list| items(&object["spec"][*list]));
            let silent = containers.filter(|container| container["resources"][field][resource].is_null());
            let silent: BTreeSet<&str> = silent.map(|container| text(&container["name"])).collect();
            if !silent.is_empty() {
                let silent: Vec<&str> = silent.into_iter().collect();
                told.push(format!("{name} for: {}", silent.join(",")));
            }
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// What an object takes.
    pub(super) fn usage(self, storage: &str, object: &Value, now_s: i64) -> Amounts {
        let mut usage = Amounts::new();
        let one = Quantity::from_units(1);
        usage.insert(format!("count/{storage}"), one);
        match self {
            Kind::Pods => {
                if is_over(object, now_s) {
                    return usage;
                }
                usage.insert("pods".to_owned(), one);
                let amounts = pod_amounts(object);
                for (name, amount) in amounts.requests {
                    let is_compute = COMPUTE.contains(&&*name) || name.starts_with("hugepages-");
                    if is_compute || name.contains('/') {
                        usage.insert(format!("requests.{name}"), amount);
                    }
                    if is_compute {
                        usage.insert(name, amount);
                    }
                }
                for (name, amount) in amounts.limits {
                    if COMPUTE.contains(&&*name) {
                        usage.insert(format!("limits.{name}"), amount);
                    }
                }
            }
            Kind::Services => {
                usage.insert("services".to_owned(), one);
                let spec = &object["spec"];
                let ports = items(&spec["ports"]);
                let (node_ports, balancers) = match text(&spec["type"]) {
                    "NodePort" => (ports.len(), 0),
                    "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
                        let given = ports.filter(|port| port["nodePort"].as_i64().is_some_and(|port| port != 0));
                        (given.count(), 1)
                    }
                    "LoadBalancer" => (ports.len(), 1),
                    _ => (0, 0),
                };
                let node_ports = i64::try_from(node_ports).unwrap_or(i64::MAX);
                usage.insert("services.nodeports".to_owned(), Quantity::from_units(node_ports));
                usage.insert("services.loadbalancers".to_owned(), Quantity::from_units(balancers));
            }
            Kind::Claims => {
                usage.insert("persistentvolumeclaims".to_owned(), one);
                let class = class_of(object);
                if !class.is_empty() {
                    usage.insert(format!("{class}{STORAGE_CLASS}persistentvolumeclaims"), one);
                }
                let size = |value: &Value| Quantity::parse(value.as_str()?);
                let asked = size(&object["spec"]["resources"]["requests"]["storage"]);
                // What a growth that failed has taken stays taken.
                let taken = size(&object["status"]["allocatedResources"]["storage"]);
                let larger = match (asked, taken) {
                    (Some(asked), Some(taken)) if taken.nanos() > asked.nanos() => Some(taken),
                    (asked, _) => asked,
                };
                if let Some(size) = larger {
                    if !class.is_empty() {
                        usage.insert(format!("{class}{STORAGE_CLASS}requests.storage"), size);
                    }
                    usage.insert("requests.storage".to_owned(), size);
                }
            }
            Kind::DeviceClaims => {
                for request in items(&object["spec"]["devices"]["requests"]) {
                    let mut most = std::collections::BTreeMap::new();
                    let exactly = &request["exactly"];
                    let choices = std::iter::once(exactly).filter(|exactly| exactly.is_object());
                    for choice in choices.chain(items(&request["firstAvailable"])) {
                        let count = match text(&choice["allocationMode"]) {
                            "All" => DEVICES_MAX,
                            _ => choice["count"].as_i64().unwrap_or(1),
                        };
                        let entry = most.entry(text(&choice["deviceClassName"])).or_insert(count);
                        *entry = count.max(*entry);
                    }
                    for (class, count) in most {
                        let name = format!("{class}{DEVICE_CLASS}");
                        let all = usage.get(&name).copied().unwrap_or(Quantity::from_units(0));
                        usage.insert(name, all.plus(Quantity::from_units(count)));
                    }
                }
            }
            Kind::Objects => {
                if OLD_NAMES.contains(&storage) {
                    usage.insert(storage.to_owned(), one);
                }
            }
            Kind::Nothing => usage.clear(),
        }
        usage
    }
}

impl Scope<'_> {
    /// Whether a value is one that the scope asks for.
    fn takes(&self, value: &str) -> bool {
        let listed = items(self.values).any(|listed| *listed == *value);
        match self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => true,
            _ => false,
        }
    }
}

/// Whether a Pod has ended, or should have.
fn is_over(pod: &Value, now_s: i64) -> bool {
    if matches!(text(&pod["status"]["phase"]), "Failed" | "Succeeded") {
        return true;
    }
    let metadata = &pod["metadata"];
    let deleted_s = time_s(pod, "/metadata/deletionTimestamp");
    match (deleted_s, metadata["deletionGracePeriodSeconds"].as_i64()) {
        (Some(deleted_s), Some(grace_s)) => now_s > deleted_s.saturating_add(grace_s),
        _ => false,
    }
}

fn pod_is_in(scope: &Scope<'_>, pod: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0);
    let is_best_effort = crate::resources::quality_of_service(pod) == "BestEffort";
    match scope.name {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "PriorityClass" => {
            let class = text(&spec["priorityClassName"]);
            match scope.operator {
                "Exists" => !class.is_empty(),
                _ => scope.takes(class),
            }
        }
        "CrossNamespacePodAffinity" => reaches_other_namespaces(spec),
        _ => false,
    }
}

/// Whether a Pod wants to be near to, or far from, Pods of other namespaces.
fn reaches_other_namespaces(spec: &Value) -> bool {
    let reaches = |term: &Value| items(&term["namespaces"]).len() > 0 || term["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let rules = &spec["affinity"][*kind];
        items(&rules["requiredDuringSchedulingIgnoredDuringExecution"]).any(reaches)
            || items(&rules["preferredDuringSchedulingIgnoredDuringExecution"])
                .any(|weighted| reaches(&weighted["podAffinityTerm"]))
    })
}
