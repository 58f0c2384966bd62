//! Rules of containers: of each sort, their ports, hooks and probes, how they are started again and resized.

use std::collections::HashSet;

use crate::tree::Value;

use super::environment::{environment, environment_from};
use super::mounts::{devices, mounts};
use super::resources::check_resources;
use super::rules::Whole;
use super::security::check_container_security;
use crate::resources::FieldError;
use crate::resources::lookup::text;
use crate::resources::validate::{At, port_name};

/// The lists of containers, in the order in which names are taken.
const LISTS: &[Sort] = &[Sort::Main, Sort::Init, Sort::Ephemeral];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Main,
    Init,
    Ephemeral,
}

impl Sort {
    fn list(self) -> &'static str {
        match self {
            Sort::Main => "containers",
            Sort::Init => "initContainers",
            Sort::Ephemeral => "ephemeralContainers",
        }
    }
}

pub(super) fn check_containers(whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let mut taken: HashSet<&str> = HashSet::new();
    let mut host_ports = HashSet::new();
    for &sort in LISTS {
        if whole.spec.value.get(sort.list()).is_none() {
            continue;
        }
        let list = whole.spec.get(sort.list());
        let others = if sort == Sort::Ephemeral {
            taken.clone()
        } else {
            HashSet::new()
        };
        for container in list.items() {
            let name = container.value.get("name").and_then(Value::as_str).unwrap_or("");
            if !taken.insert(name) && (sort != Sort::Init || !name.is_empty()) {
                errors.push(container.get("name").duplicate());
            }
            check_container(sort, &container, whole, errors);
            match sort {
                Sort::Main => check_host_ports(&container, &mut host_ports, errors),
                // They run one after the other; kube-apiserver names them all as the first.
                Sort::Init => {
                    let first = At {
                        value: container.value,
                        ..list.items().next().unwrap_or_else(|| container.clone())
                    };
                    check_host_ports(&first, &mut HashSet::new(), errors);
                }
                Sort::Ephemeral => check_ephemeral(&container, &others, errors),
            }
        }
    }
}

/// Looks at the fields that a container has.
fn check_container(sort: Sort, container: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let Some(fields) = container.value.as_object() else {
        return;
    };
    let restarted = text(container.value, "/restartPolicy") == "Always";
    for (field, value) in fields {
        match field.as_str() {
            // Templates may have one that is made whole later.
            "image" if whole.pod.is_some() => {
                let image = value.as_str().unwrap_or("");
                if image.trim() != image {
                    let detail = "must not have leading or trailing whitespace";
                    errors.push(container.get("image").invalid(detail));
                }
            }
            "env" => environment(&container.get("env"), errors),
            "envFrom" => environment_from(&container.get("envFrom"), errors),
            "ports" => {
                check_ports(
                    &container.get("ports"),
                    sort == Sort::Main && whole.host_network,
                    errors,
                );
            }
            "volumeMounts" => mounts(container, whole, errors),
            "volumeDevices" => devices(container, whole, errors),
            "resources" => check_resources(&container.get("resources"), whole, errors),
            "resizePolicy" => check_resize_policy(&container.get("resizePolicy"), whole, errors),
            "securityContext" => {
                check_container_security(&container.get("securityContext"), whole.host_users, errors);
            }
            "restartPolicyRules" if sort != Sort::Ephemeral => check_restart_rules(container, errors),
            _ => {}
        }
        let hook = match field.as_str() {
            "lifecycle" => "lifecycle",
            "livenessProbe" => "livenessProbe",
            "readinessProbe" => "readinessProbe",
            "startupProbe" => "startupProbe",
            _ => continue,
        };
        match sort {
            Sort::Ephemeral => {}
            Sort::Init if !restarted => {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(container.get(hook).forbidden(detail));
            }
            _ if hook == "lifecycle" => {
                for hook in ["postStart", "preStop"] {
                    let hook = container.get("lifecycle").get(hook);
                    if hook.present() {
                        check_handler(&hook, whole.grace_s, errors);
                    }
                }
            }
            _ => check_probe(hook, &container.get(hook), errors),
        }
    }
}

/// What ephemeral containers may not have, and whom they look at: one of `others`.
fn check_ephemeral(container: &At<'_>, others: &HashSet<&str>, errors: &mut Vec<FieldError>) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    for field in [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ] {
        let field = container.get(field);
        if !field.is_empty() {
            errors.push(field.forbidden(DETAIL));
        }
    }
    for mount in container.get("volumeMounts").items() {
        for path in ["subPath", "subPathExpr"] {
            let path = mount.get(path);
            if !path.is_empty() {
                errors.push(path.forbidden(DETAIL));
            }
        }
    }
    let target = container.get("targetContainerName");
    if !target.is_empty() && !others.contains(target.text()) {
        errors.push(FieldError::not_found(&target.field, target.value));
    }
}

/// `on_host`: the ports are those of the host.
fn check_ports(ports: &At<'_>, on_host: bool, errors: &mut Vec<FieldError>) {
    let mut names: HashSet<&str> = HashSet::new();
    for port in ports.items() {
        let name = text(port.value, "/name");
        if !name.is_empty() {
            let wrong = port_name(name);
            if wrong.is_empty() {
                if !names.insert(name) {
                    errors.push(port.get("name").duplicate());
                }
            } else {
                port.get("name").check(wrong, errors);
            }
        }
        if on_host
            && let Some(number) = port.value.get("hostPort").and_then(Value::as_i64)
            && port.value.get("containerPort").and_then(Value::as_i64) != Some(number)
        {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(port.get("hostPort").invalid(detail));
        }
    }
}

/// A port of the host is taken once.
fn check_host_ports(container: &At<'_>, taken: &mut HashSet<String>, errors: &mut Vec<FieldError>) {
    if container.value.get("ports").is_none() {
        return;
    }
    for port in container.get("ports").items() {
        let Some(number) = port.value.get("hostPort").and_then(Value::as_i64) else {
            continue;
        };
        let key = format!(
            "{}/{}/{number}",
            text(port.value, "/protocol"),
            text(port.value, "/hostIP")
        );
        if taken.contains(&key) {
            errors.push(FieldError::duplicate(port.get("hostPort").field, &key.into()));
        } else {
            taken.insert(key);
        }
    }
}

fn check_probe(sort: &str, probe: &At<'_>, errors: &mut Vec<FieldError>) {
    check_handler(probe, None, errors);
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.integer().is_some_and(|seconds| seconds <= 0) {
        errors.push(grace.invalid("must be greater than 0"));
    }
    if sort == "readinessProbe" {
        if grace.present() {
            errors.push(grace.invalid("must not be set for readinessProbes"));
        }
    } else {
        let successes = probe.get("successThreshold");
        if successes.integer() != Some(1) {
            errors.push(successes.invalid("must be 1"));
        }
    }
}

/// Exactly one way of doing it. `grace_s`: how long the Pod is given to end.
fn check_handler(handler: &At<'_>, grace_s: Option<i64>, errors: &mut Vec<FieldError>) {
    let mut known = false;
    for way in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        if handler.value.get(way).is_none_or(Value::is_null) {
            continue;
        }
        let action = handler.get(way);
        if known {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        known = true;
        match way {
            "httpGet" => {
                check_port(&action.get("port"), errors);
                for header in action.get("httpHeaders").items() {
                    let name = text(header.value, "/name");
                    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                        errors.push(FieldError::invalid_text(
                            action.get("httpHeaders").field,
                            name,
                            "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                             regex used for validation is '[-A-Za-z0-9]+')",
                        ));
                    }
                }
            }
            "tcpSocket" | "grpc" => check_port(&action.get("port"), errors),
            "sleep" => {
                let seconds = action.get("seconds").integer().unwrap_or(0);
                if let Some(grace_s) = grace_s
                    && !(0..=grace_s).contains(&seconds)
                {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace_s})");
                    errors.push(FieldError::invalid(&action.field, &seconds.into(), detail));
                }
            }
            _ => {}
        }
    }
    if !known {
        errors.push(handler.required("must specify a handler type"));
    }
}

/// A number or the name of a port.
fn check_port(port: &At<'_>, errors: &mut Vec<FieldError>) {
    match port.value {
        Value::String(name) => port.check(port_name(name), errors),
        value => {
            let number = value.as_i64().unwrap_or(0);
            if !(1..=65535).contains(&number) {
                let detail = "must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(&port.field, &number.into(), detail));
            }
        }
    }
}

/// Most rules that one container may have.
const RESTART_RULES_MAX: usize = 20;
/// Most exit codes that one rule may name.
const EXIT_CODES_MAX: usize = 255;

fn check_restart_rules(container: &At<'_>, errors: &mut Vec<FieldError>) {
    let policy = container.get("restartPolicy");
    let rules = container.get("restartPolicyRules");
    if policy.is_empty() && !rules.is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
    }
    let count = rules.items().count();
    if count > RESTART_RULES_MAX {
        errors.push(FieldError::too_many(&rules.field, count, RESTART_RULES_MAX));
    }
    for rule in rules.items() {
        let codes = rule.get("exitCodes.values");
        let count = codes.items().count();
        if count > EXIT_CODES_MAX {
            errors.push(FieldError::too_many(&codes.field, count, EXIT_CODES_MAX));
        }
        for field in ["action", "exitCodes.operator"] {
            let value = rule.get(field);
            if value.is_empty() && (field == "action" || rule.get("exitCodes").present()) {
                let supported: &[&str] = if field == "action" {
                    &["Restart", "RestartAllContainers"]
                } else {
                    &["In", "NotIn"]
                };
                errors.push(FieldError::not_supported(&value.field, &"".into(), supported));
            }
        }
    }
}

fn check_resize_policy(policies: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let never = text(whole.spec.value, "/restartPolicy") == "Never";
    let mut seen: HashSet<&str> = HashSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if !seen.insert(resource.text()) {
            errors.push(FieldError::duplicate(&policy.field, resource.value));
        }
        let mut one_of = |value: &At<'_>, supported: &[&str]| {
            if value.is_empty() {
                errors.push(policies.required(""));
            } else if !supported.contains(&value.text()) {
                errors.push(FieldError::not_supported(&policies.field, value.value, supported));
            }
        };
        one_of(&resource, &["cpu", "memory"]);
        one_of(&restart, &["NotRequired", "RestartContainer"]);
        if never && restart.text() != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(&policies.field, restart.value, detail));
        }
    }
}
