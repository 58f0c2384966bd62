//! Rules of changes of a Pod's status.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;

use crate::tree::Value;

use super::annotations::check_annotation_change;
use crate::resources::FieldError;
use crate::resources::edit::set_at;
use crate::resources::lookup::{integer, list, map, present, text};
use crate::resources::names::{qualified_name, subdomain};
use crate::resources::validate::{self, At, capitalized};

/// A generation that was observed is not forgotten by a client that does not know of it.
pub(super) fn keep_observed(old: &Value, new: &mut Value) {
    const FIELD: &str = "observedGeneration";
    let of = |value: &Value| integer(value, "/observedGeneration").filter(|generation| *generation != 0);
    if let Some(generation) = old.get("status").and_then(of)
        && new.get("status").is_some_and(|status| of(status).is_none())
    {
        set_at(new, "/status", FIELD, generation);
    }
    // A list for each type: it may be there more than once.
    let mut known: HashMap<&str, VecDeque<Option<i64>>> = HashMap::new();
    for condition in list(old, "/status/conditions") {
        known
            .entry(text(condition, "/type"))
            .or_default()
            .push_back(of(condition));
    }
    if known.values().flatten().all(Option::is_none) {
        return;
    }
    let count = list(new, "/status/conditions").len();
    for i in 0..count {
        let condition = &list(new, "/status/conditions")[i];
        let before = known
            .get_mut(text(condition, "/type"))
            .and_then(VecDeque::pop_front)
            .flatten();
        if let Some(generation) = before
            && of(condition).is_none()
        {
            set_at(new, &format!("/status/conditions/{i}"), FIELD, generation);
        }
    }
}

pub(in crate::resources::core) fn validate_status(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    check_annotation_change(old, new, errors);
    let status = At::root(new).get("status");
    for (i, condition) in list(new, "/status/conditions").iter().enumerate() {
        let kind = text(condition, "/type");
        let wrong = qualified_name(kind).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(format!("status.conditions[{i}].Type"), kind, what)));
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.is_empty() && nominated.text() != text(old, "/status/nominatedNodeName") {
        nominated.check(subdomain(nominated.text()), errors);
    }
    if text(old, "/status/qosClass") != text(new, "/status/qosClass") {
        errors.push(status.get("qosClass").invalid("field is immutable"));
    }
    states(old, new, errors);
    claims(new, errors);
    addresses(&status.get("podIPs"), errors);
    let hosts = status.get("hostIPs");
    if let Some(first) = hosts.items().next()
        && text(first.value, "/ip") != text(new, "/status/hostIP")
    {
        errors.push(first.get("ip").invalid("must be equal to `hostIP`"));
    }
    addresses(&hosts, errors);
    for (statuses, containers) in [
        ("containerStatuses", "/spec/containers"),
        ("initContainerStatuses", "/spec/initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        let declared = by_name(list(new, containers));
        for container in status.get(statuses).items() {
            user(&container, text(new, "/spec/os/name") == "windows", errors);
            if container.value.get("allocatedResourcesStatus").is_some() {
                let health = container.get("allocatedResourcesStatus");
                if containers.is_empty() {
                    if !health.is_empty() {
                        errors.push(health.forbidden("must not be specified in container status"));
                    }
                } else {
                    let declared = declared.get(text(container.value, "/name")).copied();
                    healths(&health, declared, errors);
                }
            }
        }
    }
}

/// Containers by their names.
fn by_name(containers: &[Value]) -> HashMap<&str, &Value> {
    let named = containers.iter().map(|container| (text(container, "/name"), container));
    named.collect()
}

/// Containers that ended and are not started again stay as they are.
fn states(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let of_pod = text(old, "/spec/restartPolicy");
    for (field, containers) in [
        ("containerStatuses", "/spec/containers"),
        ("initContainerStatuses", "/spec/initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        let mut running: HashMap<&str, usize> = HashMap::new();
        for status in list(new, &format!("/status/{field}")) {
            if !present(status, "/state/terminated") {
                *running.entry(text(status, "/name")).or_default() += 1;
            }
        }
        let declared = by_name(list(old, containers));
        for (i, before) in list(old, &format!("/status/{field}")).iter().enumerate() {
            let Some(ended) = before.pointer("/state/terminated").filter(|state| !state.is_null()) else {
                continue;
            };
            let name = text(before, "/name");
            let container = declared.get(name);
            let own = container.map_or("", |container| text(container, "/restartPolicy"));
            let policy = match (containers, own) {
                ("", _) => "Never",
                (_, "") => of_pod,
                (_, own) => own,
            };
            let ruled = container.is_some_and(|container| !list(container, "/restartPolicyRules").is_empty());
            let failed = integer(ended, "/exitCode").unwrap_or(0) != 0;
            if policy == "Always" || ruled || failed && policy == "OnFailure" {
                continue;
            }
            errors.extend((0..running.get(name).copied().unwrap_or(0)).map(|_| {
                let field = format!("status.{field}[{i}].state");
                FieldError::forbidden(field, "may not be transitioned to non-terminated state")
            }));
        }
    }
}

fn claims(pod: &Value, errors: &mut Vec<FieldError>) {
    let known = by_name(list(pod, "/spec/resourceClaims"));
    let mut seen: HashSet<&str> = HashSet::new();
    for status in At::root(pod).get("status.resourceClaimStatuses").items() {
        let name = status.get("name");
        if !known.contains_key(name.text()) {
            errors.push(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let claim = status.get("resourceClaimName");
        if claim.present() {
            let wrong = subdomain(claim.text()).into_iter();
            errors.extend(wrong.map(|what| FieldError::invalid(&name.field, claim.value, what)));
        }
    }
}

/// One address of each family at most.
fn addresses(all: &At<'_>, errors: &mut Vec<FieldError>) {
    let ips: Vec<&str> = all.items().map(|ip| text(ip.value, "/ip")).collect();
    for ip in all.items() {
        let wrong = validate::ip(text(ip.value, "/ip"));
        errors.extend(wrong.map(|what| FieldError::invalid_text(&ip.field, text(ip.value, "/ip"), what)));
    }
    if ips.len() < 2 {
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for ip in all.items() {
        if !seen.insert(text(ip.value, "/ip")) {
            errors.push(FieldError::duplicate(&ip.field, &capitalized(ip.value)));
        }
    }
    let mut parsed = Vec::new();
    for ip in &ips {
        let Ok(ip) = ip.parse::<IpAddr>() else {
            let detail = format!("failed to check for dual stack with error:invalid IP: {ip}");
            errors.push(FieldError {
                reason: crate::resources::FieldReason::Internal,
                field: all.field.to_string(),
                message: format!("Internal error: {detail}"),
            });
            return;
        };
        parsed.push(ip);
    }
    let both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !both || ips.len() > 2 {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(&all.field, &capitalized(all.value), detail));
    }
}

fn user(container: &At<'_>, windows: bool, errors: &mut Vec<FieldError>) {
    if !present(container.value, "/user/linux") {
        return;
    }
    let linux = container.get("user.linux").named(container, "linux");
    if windows {
        errors.push(linux.forbidden("cannot be set for a windows pod"));
        return;
    }
    let mut check = |id: &At<'_>| {
        if id.integer().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            errors.push(id.invalid("must be between 0 and 2147483647, inclusive"));
        }
    };
    check(&linux.get("uid"));
    check(&linux.get("gid"));
    linux.get("supplementalGroups").items().for_each(|id| check(&id));
}

/// How the devices of a container fare.
fn healths(all: &At<'_>, container: Option<&Value>, errors: &mut Vec<FieldError>) {
    for health in all.items() {
        let name = health.get("name");
        if let Some(container) = container {
            let (known, detail) = match name.text().strip_prefix("claim:") {
                Some(claim) => (
                    list(container, "/resources/claims").iter().any(|known| {
                        let request = text(known, "/request");
                        let own = text(known, "/name");
                        claim == own && request.is_empty() || claim.split_once('/') == Some((own, request))
                    }),
                    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                     'claim:<claimName>' if request is empty",
                ),
                None => (
                    map(container, "/resources/requests").is_some_and(|requests| requests.contains_key(name.text())),
                    "must match one of the container's resource requests",
                ),
            };
            if !known {
                errors.push(name.invalid(detail));
            }
        }
        let mut seen: HashSet<&str> = HashSet::new();
        for resource in health.get("resources").items() {
            let state = resource.get("health");
            if !matches!(state.text(), "Healthy" | "Unhealthy" | "Unknown") {
                errors.push(state.not_supported(&["Healthy", "Unhealthy", "Unknown"]));
            }
            let id = resource.get("resourceID");
            if !seen.insert(id.text()) {
                errors.push(id.duplicate());
            }
        }
    }
}
