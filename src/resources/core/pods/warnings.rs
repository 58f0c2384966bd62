//! Warnings about Pods and templates that are fine but not what their author may think.

use std::collections::{HashMap, HashSet};

use crate::tree::Value;

use super::annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD, has_profiles};
use super::spec::CONTAINER_LISTS;
use crate::resources::lookup::{integer, list, present, text};
use crate::resources::quantity::Quantity;
use crate::resources::validate::At;

/// Warnings about a Pod.
pub(super) fn warn_pod(pod: &Value) -> Vec<String> {
    let pod = At::root(pod);
    let mut warnings = Vec::new();
    warn(&pod.get("spec"), &pod.get("metadata.annotations"), false, &mut warnings);
    warnings
}

/// Warnings about a template.
pub(in crate::resources) fn warn_pod_template(template: &At<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    warn(
        &template.get("spec"),
        &template.get("metadata.annotations"),
        true,
        &mut warnings,
    );
    warnings
}

fn warn(spec: &At<'_>, annotations: &At<'_>, template: bool, warnings: &mut Vec<String>) {
    let Some(fields) = spec.value.as_object() else { return };
    for (name, _) in fields {
        match name.as_str() {
            "nodeSelector" => {
                for (label, entry) in spec.get("nodeSelector").entries() {
                    if let Some(what) = deprecated_label(label) {
                        warnings.push(format!("{}: {what}", entry.field));
                    }
                }
            }
            "affinity" => warn_affinity(&spec.get("affinity"), warnings),
            "topologySpreadConstraints" => {
                for constraint in spec.get("topologySpreadConstraints").items() {
                    let (key, selector) = (constraint.get("topologyKey"), constraint.get("labelSelector"));
                    if let Some(what) = deprecated_label(key.text()) {
                        warnings.push(format!("{}: {} is {what}", key.field, key.text()));
                    }
                    warn_null_selector(&selector, warnings);
                }
            }
            "volumes" => warn_volumes(&spec.get("volumes"), warnings),
            "hostAliases" => warn_repeated(&spec.get("hostAliases"), "ip", warnings),
            "imagePullSecrets" => {
                let secrets = spec.get("imagePullSecrets");
                warn_repeated(&secrets, "name", warnings);
                for secret in secrets.items().filter(|secret| text(secret.value, "/name").is_empty()) {
                    let name = secret.get("name").field;
                    warnings.push(format!("{name}: invalid empty name \"\""));
                }
            }
            "overhead" => warn_fractions(&spec.get("overhead"), warnings),
            "resources" => {
                for part in ["limits", "requests"] {
                    warn_fractions(&spec.get("resources").get(part), warnings);
                }
            }
            "terminationGracePeriodSeconds"
                if integer(spec.value, "/terminationGracePeriodSeconds").is_some_and(|grace_s| grace_s < 0) =>
            {
                let field = spec.get("terminationGracePeriodSeconds").field;
                warnings.push(format!(
                    "{field}: must be >= 0; negative values are invalid and will be treated as 1"
                ));
            }
            _ => {}
        }
    }
    if !annotations.is_empty() {
        warn_annotations(annotations, spec, template, warnings);
    }
    warn_containers(spec, warnings);
}

/// What is to be said of a label of nodes that has another name now.
fn deprecated_label(name: &str) -> Option<String> {
    let (since, instead) = match name {
        "beta.kubernetes.io/os" => ("v1.14", "kubernetes.io/os"),
        "beta.kubernetes.io/arch" => ("v1.14", "kubernetes.io/arch"),
        "failure-domain.beta.kubernetes.io/zone" => ("v1.17", "topology.kubernetes.io/zone"),
        "failure-domain.beta.kubernetes.io/region" => ("v1.17", "topology.kubernetes.io/region"),
        "beta.kubernetes.io/instance-type" => ("v1.17", "node.kubernetes.io/instance-type"),
        _ => return None,
    };
    Some(format!("deprecated since {since}; use \"{instead}\" instead"))
}

fn warn_null_selector(selector: &At<'_>, warnings: &mut Vec<String>) {
    if !selector.present() {
        warnings.push(format!(
            "{}: a null labelSelector results in matching no pod",
            selector.field
        ));
    }
}

/// Warns of labels that have other names now.
pub(in crate::resources::core) fn warn_node_selector(terms: &At<'_>, warnings: &mut Vec<String>) {
    for term in terms.items() {
        warn_node_selector_term(&term, warnings);
    }
}

fn warn_node_selector_term(term: &At<'_>, warnings: &mut Vec<String>) {
    for expression in term.get("matchExpressions").items() {
        let key = text(expression.value, "/key");
        if let Some(what) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {what}", expression.get("key").field));
        }
    }
}

fn warn_affinity(affinity: &At<'_>, warnings: &mut Vec<String>) {
    let node = affinity.get("nodeAffinity");
    let required = node.get("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution");
    let terms = required
        .items()
        .chain(preferred.items().map(|preferred| preferred.get("preference")));
    for term in terms {
        warn_node_selector_term(&term, warnings);
    }
    for pods in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.get(pods);
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution").items() {
            warn_null_selector(&term.get("labelSelector"), warnings);
        }
        for term in pods.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
            warn_null_selector(&term.get("podAffinityTerm.labelSelector"), warnings);
        }
    }
}

/// Sources of volumes that are no longer what they were: how the warning names them, and since when.
const DEPRECATED_SOURCES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// How the warning of a source of volumes names it, and since when it is deprecated, if it is.
pub(in crate::resources::core) fn deprecated_source(source: &str) -> Option<(&'static str, &'static str)> {
    let found = DEPRECATED_SOURCES.iter().find(|(name, ..)| *name == source)?;
    Some((found.1, found.2))
}

fn warn_volumes(volumes: &At<'_>, warnings: &mut Vec<String>) {
    for volume in volumes.items() {
        for (source, value) in volume.value.as_object().into_iter().flatten() {
            if !value.is_null()
                && let Some((shown, since)) = deprecated_source(source)
            {
                warnings.push(format!("{}.{shown}: {since}", volume.field));
            }
        }
    }
    warn_token_paths(volumes, warnings);
}

/// Files that a token is written over.
fn warn_token_paths(volumes: &At<'_>, warnings: &mut Vec<String>) {
    let all = volumes.value.as_array().into_iter().flatten();
    let sources = all.flat_map(|volume| list(volume, "/projected/sources"));
    let tokens: HashSet<&str> = sources
        .filter(|source| present(source, "/serviceAccountToken"))
        .map(|source| text(source, "/serviceAccountToken/path"))
        .collect();
    if tokens.is_empty() {
        return;
    }
    for volume in volumes.items() {
        for source in list(volume.value, "/projected/sources") {
            for (kind, shown) in [
                ("configMap", "configMap"),
                ("secret", "secrets"),
                ("downwardAPI", "downwardAPI"),
            ] {
                for (i, item) in list(source, &format!("/{kind}/items")).iter().enumerate() {
                    let path = text(item, "/path");
                    if tokens.contains(path) {
                        warnings.push(format!(
                            "{}.projected.sources.{shown}[{i}]: has duplicated path with ServiceAccountToken {}",
                            volume.field,
                            Value::from(path)
                        ));
                    }
                }
            }
        }
    }
}

/// Items of a list with the same value of a field.
fn warn_repeated(items: &At<'_>, field: &'static str, warnings: &mut Vec<String>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for item in items.items() {
        let value = item.value.get(field).and_then(Value::as_str).unwrap_or("");
        if !seen.insert(value) {
            let at = item.get(field).field;
            warnings.push(format!("{at}: duplicate {field} {}", Value::from(value)));
        }
    }
}

/// Bytes come whole.
fn warn_fractions(amounts: &At<'_>, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        let Some(amount) = amounts.value.get(name).and_then(Value::as_str) else {
            continue;
        };
        if Quantity::parse(amount).is_some_and(|quantity| quantity.nanos() % 1_000_000_000 != 0) {
            warnings.push(format!(
                "{}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer",
                amounts.field
            ));
        }
    }
}

const SECCOMP_ADVICE: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const ARMOR_ADVICE: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

fn warn_annotations(annotations: &At<'_>, spec: &At<'_>, template: bool, warnings: &mut Vec<String>) {
    let mut note = |key: &str, what: &str| {
        if annotations.value.get(key).is_some() {
            warnings.push(format!("{}[{key}]: {what}", annotations.field));
        }
    };
    for (key, instead) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ] {
        note(key, instead);
    }
    if !has_profiles(annotations.value) {
        return;
    }
    if !present(spec.value, "/securityContext/seccompProfile") {
        note(SECCOMP_POD, SECCOMP_ADVICE);
    }
    for containers in CONTAINER_LISTS {
        for container in spec
            .value
            .get(*containers)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = text(container, "/name");
            if !present(container, "/securityContext/seccompProfile") {
                note(&format!("{SECCOMP_CONTAINER}{name}"), SECCOMP_ADVICE);
            }
            // A Pod gets fields of its annotations; what they are then tells nothing of what its author wrote.
            let fields = present(spec.value, "/securityContext/appArmorProfile")
                || template && present(container, "/securityContext/appArmorProfile");
            if !fields {
                note(&format!("{APP_ARMOR}{name}"), ARMOR_ADVICE);
            }
        }
    }
}

/// So many warnings are enough: ports are no longer compared.
const WARNINGS_MAX: usize = 200;

fn warn_containers(spec: &At<'_>, warnings: &mut Vec<String>) {
    let mut ports: HashMap<(i64, &str), Vec<(String, &Value)>> = HashMap::new();
    for list in CONTAINER_LISTS {
        if spec.value.get(*list).is_none() {
            continue;
        }
        for container in spec.get(*list).items() {
            warn_environment(&container, warnings);
            if container.value.get("resources").is_some() {
                let resources = container.get("resources");
                for part in ["limits", "requests"] {
                    warn_fractions(&resources.get(part), warnings);
                }
            }
            if container.value.get("ports").is_some() {
                for port in container.get("ports").items() {
                    let number = port.value.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
                    let others = ports.entry((number, text(port.value, "/protocol"))).or_default();
                    warn_port(&port, others, warnings);
                    if warnings.len() < WARNINGS_MAX {
                        others.push((port.field.to_string(), port.value));
                    }
                }
            }
        }
    }
}

/// A variable that hides an earlier one and does not build on it.
fn warn_environment(container: &At<'_>, warnings: &mut Vec<String>) {
    let variables = list(container.value, "/env");
    if variables.len() < 2 {
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, variable) in variables.iter().enumerate() {
        let name = text(variable, "/name");
        if seen.insert(name) {
            continue;
        }
        let (value, earlier) = (text(variable, "/value"), format!("$({name})"));
        if present(variable, "/valueFrom") || value == earlier || !value.contains(&earlier) {
            warnings.push(format!(
                "{}.env[{i}]: hides previous definition of {}, which may be dropped when using apply",
                container.field,
                Value::from(name)
            ));
        }
    }
}

/// A port that another one of the Pod is, too, or may be: `others` have its number and protocol.
fn warn_port(port: &At<'_>, others: &[(String, &Value)], warnings: &mut Vec<String>) {
    let number = |port: &Value, name: &str| port.get(name).and_then(Value::as_i64).unwrap_or(0);
    let host = |port: &Value| number(port, "hostPort");
    let ip = |port: &Value| port.get("hostIP").and_then(Value::as_str).unwrap_or("").to_owned();
    let own = (host(port.value), ip(port.value));
    if own.0 == 0 && !own.1.is_empty() {
        let name = text(port.value, "/name");
        warnings.push(format!(
            "{}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
            port.field,
            number(port.value, "containerPort"),
            text(port.value, "/protocol"),
            own.1
        ));
    }
    for (field, other) in others {
        if warnings.len() >= WARNINGS_MAX {
            return;
        }
        let theirs = (host(other), ip(other));
        let what = if own == theirs {
            "duplicate port definition"
        } else if own.0 == 0 || theirs.0 == 0 {
            "overlapping port definition"
        } else if own.0 == theirs.0 && own.1.is_empty() != theirs.1.is_empty() {
            "dangerously ambiguous port definition"
        } else {
            continue;
        };
        warnings.push(format!("{}: {what} with {field}", port.field));
    }
}
