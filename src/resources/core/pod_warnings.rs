//! Warnings about Pods.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::pod_spec::CONTAINER_LISTS;
use crate::resources::lookup::text;
use crate::resources::quantity::Quantity;
use crate::resources::validate::At;

/// Warnings about a spec that is fine but not what its author may think.
pub(in crate::resources) fn warn_pod_spec(spec: &At<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, entry) in spec.get("nodeSelector").entries() {
        let instead = match name {
            "beta.kubernetes.io/os" => "kubernetes.io/os",
            "beta.kubernetes.io/arch" => "kubernetes.io/arch",
            "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
            "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
            _ => continue,
        };
        let since = if name.starts_with("beta.kubernetes.io/os") || name.ends_with("arch") {
            "v1.14"
        } else {
            "v1.17"
        };
        warnings.push(format!(
            "{}: deprecated since {since}; use \"{instead}\" instead",
            entry.field
        ));
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let selector = constraint.get("labelSelector");
        if !selector.present() {
            warnings.push(format!(
                "{}: a null labelSelector results in matching no pod",
                selector.field
            ));
        }
    }
    for volume in spec.get("volumes").items() {
        for (source, since) in [
            ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
            ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
            ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
            ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
            ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
            ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
            ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ] {
            if volume.get(source).present() {
                warnings.push(format!("{}.{source}: {since}", volume.field));
            }
        }
    }
    for list in CONTAINER_LISTS {
        for container in spec.get(*list).items() {
            warn_container(&container, &mut warnings);
        }
    }
    warnings
}

fn warn_container(container: &At<'_>, warnings: &mut Vec<String>) {
    let mut names = HashSet::new();
    for variable in container.get("env").items() {
        let name = variable.get("name").text();
        if !names.insert(name) {
            warnings.push(format!(
                "{}: hides previous definition of \"{name}\", which may be dropped when using apply",
                variable.field
            ));
        }
    }
    let mut ports = HashMap::new();
    for port in container.get("ports").items() {
        let key = (
            port.get("containerPort").integer(),
            text(port.value, "/protocol").to_owned(),
            port.get("hostPort").integer(),
        );
        match ports.entry(key) {
            Entry::Vacant(first) => {
                first.insert(port.field);
            }
            Entry::Occupied(first) => warnings.push(format!(
                "{}: duplicate port definition with {}",
                port.field,
                first.get()
            )),
        }
    }
    for part in ["limits", "requests"] {
        for (name, entry) in container.get("resources").get(part).entries() {
            let fraction = Quantity::parse(entry.text()).is_some_and(|q| q.nanos() % 1_000_000_000 != 0);
            if fraction && matches!(name, "memory" | "ephemeral-storage") {
                warnings.push(format!(
                    "{}: fractional byte value \"{}\" is invalid, must be an integer",
                    entry.field,
                    entry.text()
                ));
            }
        }
    }
}
