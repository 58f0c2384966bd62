//! Rules of `networking.k8s.io`.

use std::net::IpAddr;

use super::FieldError;
use super::lookup;
use super::names::{label, path_segment, subdomain};
use super::validate::{At, cidr, ip, label_selector, port_name};
use crate::tree::Value;

const NOT_AN_ADDRESS: &str = "must be a DNS name, not an IP address";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
/// Longest name of an ingress controller, in bytes.
const CONTROLLER_LEN_MAX: usize = 250;

/// Peers, ports and types of a NetworkPolicy.
pub(super) fn network_policy(policy: &Value, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["Ingress", "Egress"];
    let spec = At::root(policy).get("spec");
    label_selector(&spec.get("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            for port in rule.get("ports").items() {
                policy_port(&port, errors);
            }
            for peer in rule.get(peers).items() {
                policy_peer(&peer, errors);
            }
        }
    }
    let types = spec.get("policyTypes");
    if types.items().count() > TYPES.len() {
        errors.push(types.invalid("may not specify more than two policyTypes"));
        return;
    }
    for kind in types.items().filter(|kind| !TYPES.contains(&kind.text())) {
        errors.push(kind.not_supported(TYPES));
    }
}

fn policy_port(port: &At<'_>, errors: &mut Vec<FieldError>) {
    let (number, end) = (port.get("port"), port.get("endPort"));
    let in_range = |at: &At<'_>| at.integer().is_none_or(|number| (1..=65535).contains(&number));
    match number.value {
        Value::Null if end.present() => {
            errors.push(end.invalid("may not be specified when `port` is not specified"));
        }
        Value::String(name) => {
            if end.present() {
                errors.push(end.invalid("may not be specified when `port` is non-numeric"));
            }
            number.check(port_name(name), errors);
        }
        Value::Number(_) => {
            if !in_range(&number) {
                errors.push(number.invalid(PORT_RANGE));
            }
            if end.present() {
                if end.integer() < number.integer() {
                    errors.push(end.invalid("must be greater than or equal to `port`"));
                }
                if !in_range(&end) {
                    errors.push(end.invalid(PORT_RANGE));
                }
            }
        }
        _ => {}
    }
}

fn policy_peer(peer: &At<'_>, errors: &mut Vec<FieldError>) {
    let block = peer.get("ipBlock");
    let selectors = [peer.get("podSelector"), peer.get("namespaceSelector")];
    for selector in selectors.iter().filter(|selector| selector.present()) {
        label_selector(selector, errors);
    }
    if block.present() {
        ip_block(&block, errors);
    }
    let others = selectors.iter().any(At::present);
    if !others && !block.present() {
        errors.push(peer.required("must specify a peer"));
    } else if others && block.present() {
        errors.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
}

fn ip_block(block: &At<'_>, errors: &mut Vec<FieldError>) {
    let range = block.get("cidr");
    if range.is_empty() {
        // The table of rules says so.
        return;
    }
    errors.extend(cidr(range.text()).map(|what| range.invalid(what)));
    let Some(outer) = parsed(range.text()) else { return };
    for except in block.get("except").items() {
        errors.extend(cidr(except.text()).map(|what| except.invalid(what)));
        let Some(inner) = parsed(except.text()) else { continue };
        let same_family = outer.0.is_ipv4() == inner.0.is_ipv4();
        if !same_family || inner.1 <= outer.1 || masked(inner.0, outer.1) != masked(outer.0, outer.1) {
            errors.push(except.invalid("must be a strict subset of `cidr`"));
        }
    }
}

/// Address and prefix length of a range.
fn parsed(range: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = range.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix = prefix.parse().ok()?;
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
}

/// The first bits of an address.
fn masked(address: IpAddr, prefix: u32) -> u128 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    bits.checked_shr(128 - prefix).unwrap_or(0)
}

/// The name of a controller, and what its parameters are.
pub(super) fn ingress_class(class: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(class).get("spec");
    let controller = spec.get("controller");
    if !controller.is_empty() {
        if controller.text().len() > CONTROLLER_LEN_MAX {
            errors.push(FieldError::too_long(&controller.field, CONTROLLER_LEN_MAX));
        }
        domain_prefixed_path(&controller, errors);
    }
    let parameters = spec.get("parameters");
    if !parameters.present() {
        return;
    }
    check_reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope").text(), parameters.get("namespace"));
    match scope {
        "Namespace" if !namespace.present() => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        "Namespace" => namespace.check(label(namespace.text()), errors),
        "Cluster" if namespace.present() => {
            errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'"));
        }
        _ => {}
    }
}

/// `example.com/path`.
pub(super) fn domain_prefixed_path(at: &At<'_>, errors: &mut Vec<FieldError>) {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    match at.text().split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            let wrong = subdomain(host).into_iter();
            errors.extend(wrong.map(|what| FieldError::invalid_text(&at.field, host, what)));
            if !path.bytes().all(known) {
                let what = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid_text(&at.field, path, what));
            }
        }
        _ => errors.push(at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")),
    }
}

/// A reference to an object of any kind: group, kind and name. (That kind and name are there is in the table of rules.)
fn check_reference(reference: &At<'_>, errors: &mut Vec<FieldError>) {
    let group = reference.get("apiGroup");
    if group.present() {
        group.check(subdomain(group.text()), errors);
    }
    for part in ["kind", "name"] {
        let part = reference.get(part);
        if !part.is_empty() {
            part.check(path_segment(part.text(), false), errors);
        }
    }
}

/// Addresses and names under which an Ingress is reached.
pub(super) fn ingress_status(_: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for point in At::root(new).get("status.loadBalancer.ingress").items() {
        let host = point.get("hostname");
        if ip(host.text()).is_none() {
            errors.push(host.invalid(NOT_AN_ADDRESS));
        }
    }
}

/// Whose address it is.
pub(super) fn ip_address(address: &Value, errors: &mut Vec<FieldError>) {
    let parent = At::root(address).get("spec.parentRef");
    let group = parent.get("group");
    if !group.is_empty() {
        group.check(subdomain(group.text()), errors);
    }
    for part in ["resource", "name", "namespace"] {
        let part = parent.get(part);
        if !part.is_empty() {
            part.check(path_segment(part.text(), false), errors);
        }
    }
}

/// One range, or one of each family.
pub(super) fn service_cidr(ranges: &Value, errors: &mut Vec<FieldError>) {
    let all = At::root(ranges).get("spec.cidrs");
    let count = all.items().count();
    if count > 2 {
        let spec = super::validate::capitalized(At::root(ranges).get("spec").value);
        errors.push(FieldError::invalid(&all.field, &spec, "may only hold up to 2 values"));
        return;
    }
    for range in all.items() {
        errors.extend(cidr(range.text()).map(|what| range.invalid(what)));
    }
    let families: Vec<bool> = all
        .items()
        .filter_map(|range| Some(parsed(range.text())?.0.is_ipv4()))
        .collect();
    if matches!(families[..], [one, other] if one == other) {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(all.invalid(detail));
    }
}

/// Ranges stay; a second one may come.
pub(super) fn service_cidr_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    const IMMUTABLE: &str = "field is immutable";
    let (old, all) = (lookup::texts(old, "/spec/cidrs"), At::root(new).get("spec.cidrs"));
    let count = all.items().count();
    let grows = old.len() == 1 && count == 2;
    if count != old.len() && !grows {
        errors.push(all.invalid(IMMUTABLE));
        return;
    }
    for (range, before) in all.items().zip(&old) {
        if range.text() != *before {
            errors.push(range.invalid(IMMUTABLE));
        }
    }
    if grows {
        service_cidr(new, errors);
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(super) fn ingress(ingress: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(ingress).get("spec");
    let (rules, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !default.present() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&spec.field, &Value::Null, detail));
    }
    if default.present() {
        check_backend(&default, errors);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if !host.is_empty() {
            if host.text().parse::<IpAddr>().is_ok() {
                errors.push(host.invalid(NOT_AN_ADDRESS));
            }
            host.check(host_name(host.text()), errors);
        }
        for path in rule.get("http.paths").items() {
            check_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            host.check(host_name(host.text()), errors);
        }
        let secret = tls.get("secretName");
        if !secret.is_empty() {
            secret.check(subdomain(secret.text()), errors);
        }
    }
}

/// The class of a new Ingress in the old way and in the new one.
pub(super) fn ingress_classes_agree(ingress: &Value, errors: &mut Vec<FieldError>) {
    let annotation = lookup::map(ingress, "/metadata/annotations").and_then(|all| all.get(CLASS_ANNOTATION));
    let class = At::root(ingress).get("spec.ingressClassName");
    if let Some(old) = annotation.filter(|old| class.present() && *old != class.value) {
        let field = format!("annotations.{CLASS_ANNOTATION}");
        errors.push(FieldError::invalid(
            field,
            old,
            "must match `ingressClassName` when both are specified",
        ));
    }
}

pub(super) fn ingress_warnings(ingress: &Value) -> Vec<String> {
    let annotated = lookup::map(ingress, "/metadata/annotations").is_some_and(|all| all.contains_key(CLASS_ANNOTATION));
    let warning =
        format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
    annotated.then_some(warning).into_iter().collect()
}

/// A DNS name, or one with `*` as its first label.
fn host_name(host: &str) -> Vec<String> {
    const WILDCARD_RULE: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
        which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
        (e.g. '*.example.com', regex used for validation is \
        '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    if !host.contains('*') {
        return subdomain(host);
    }
    let fine = host.strip_prefix("*.").is_some_and(|rest| subdomain(rest).is_empty());
    if fine {
        Vec::new()
    } else {
        vec![WILDCARD_RULE.to_owned()]
    }
}

fn check_path(path: &At<'_>, errors: &mut Vec<FieldError>) {
    let text = path.get("path");
    let kind = path.get("pathType");
    if kind.is_empty() {
        return;
    }
    let exact = matches!(kind.text(), "Exact" | "Prefix");
    if exact || !text.is_empty() {
        if !text.text().starts_with('/') {
            errors.push(text.invalid("must be an absolute path"));
        }
        if exact {
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.text().contains(bad) {
                    errors.push(text.invalid(format_args!("must not contain '{bad}'")));
                }
            }
            for bad in ["/..", "/."] {
                if text.text().ends_with(bad) {
                    errors.push(text.invalid(format_args!("cannot end with '{bad}'")));
                }
            }
        }
    }
    check_backend(&path.get("backend"), errors);
}

fn check_backend(backend: &At<'_>, errors: &mut Vec<FieldError>) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service.present(), resource.present()) {
        (true, true) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "cannot set both resource and service backends",
            ));
            return;
        }
        (false, false) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "resource or service backend is required",
            ));
            return;
        }
        (false, true) => return check_reference(&resource, errors),
        (true, false) => {}
    }
    let name = service.get("name");
    if !name.is_empty() {
        name.check(label(name.text()), errors);
    }
    let (port, number) = (service.get("port.name"), service.get("port.number"));
    match (port.is_empty(), number.integer().unwrap_or(0)) {
        (false, 1..) => {
            errors.push(FieldError::invalid_text(
                &backend.field,
                "",
                "cannot set both port name & port number",
            ));
        }
        (false, 0) => service.get("port.name").check(port_name(port.text()), errors),
        (true, 0) => errors.push(backend.required("port name or number is required")),
        (true, number @ (..0 | 65536..)) => {
            let field = service.get("port.number").field;
            errors.push(FieldError::invalid(
                field,
                &number.into(),
                "must be between 1 and 65535, inclusive",
            ));
        }
        _ => {}
    }
}
