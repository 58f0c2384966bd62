//! Rules of Services and of the addresses behind them.

use std::collections::HashSet;

use crate::tree::{Value, json};

use crate::resources::FieldError;
use crate::resources::lookup::{integer, text};
use crate::resources::names::{qualified_name, subdomain};
use crate::resources::validate::{At, cidr, ip, port_name};

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

pub(super) fn service(service: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(service).get("spec");
    let kind = spec.get("type").text();
    let headless = spec.get("clusterIP").text() == "None";
    let all = spec.get("ports");
    if all.is_empty() && !headless && kind != "ExternalName" {
        errors.push(all.required(""));
    }
    if kind == "ExternalName" {
        by_name(&spec, errors);
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid_text("spec.clusterIPs[0]", "None", detail));
    }
    balanced(&spec, errors);
    outside_traffic(&spec, errors);
    affinity(&spec, errors);
    ports(&all, errors);
    node_ports(&all, kind, errors);
    families(&spec, headless, errors);
    for address in spec.get("externalIPs").items() {
        match ip(address.text()) {
            Some(what) => errors.push(address.invalid(what)),
            None => outside(&address, errors),
        }
    }
    crate::resources::metadata::labels(Some(spec.get("selector").value), &"spec.selector", errors);
}

/// A Service that is an alias in DNS has nothing of a cluster's.
fn by_name(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let field = spec.get(field);
        if !field.is_empty() {
            errors.push(field.forbidden("may not be set for ExternalName services"));
        }
    }
    let name = spec.get("externalName");
    // A dot at its end marks a name as whole.
    match name.text().strip_suffix('.').unwrap_or(name.text()) {
        "" => errors.push(name.required("")),
        text => errors.extend(
            subdomain(text)
                .into_iter()
                .map(|what| FieldError::invalid_text(&name.field, text, what)),
        ),
    }
}

/// What only load balancers have.
fn balanced(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    /// The port of kubelets.
    const KUBELET: i64 = 10_250;
    const ELSEWHERE: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_balanced = spec.get("type").text() == "LoadBalancer";
    if is_balanced {
        for port in spec.get("ports").items() {
            let number = port.get("port");
            if number.integer() == Some(KUBELET) {
                let detail = "may not expose port 10250 externally since it is used by kubelet";
                errors.push(FieldError::invalid(&port.field, number.value, detail));
            }
        }
    }
    let (ranges, class) = (spec.get("loadBalancerSourceRanges"), spec.get("loadBalancerClass"));
    if !ranges.is_empty() && !is_balanced {
        errors.push(ranges.forbidden(ELSEWHERE));
    }
    for range in ranges.items() {
        let text = range.text().trim();
        errors.extend(cidr(text).map(|what| FieldError::invalid_text(&range.field, text, what)));
    }
    if spec.get("allocateLoadBalancerNodePorts").present() && !is_balanced {
        errors.push(spec.get("allocateLoadBalancerNodePorts").forbidden(ELSEWHERE));
    }
    if class.present() {
        if is_balanced {
            class.check(qualified_name(class.text()), errors);
        } else {
            errors.push(class.forbidden(ELSEWHERE));
        }
    }
}

/// Policies for traffic from outside.
fn outside_traffic(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let kind = spec.get("type").text();
    let (policy, check_port) = (spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort"));
    let accessible =
        matches!(kind, "NodePort" | "LoadBalancer") || kind == "ClusterIP" && !spec.get("externalIPs").is_empty();
    if !accessible && !policy.is_empty() {
        errors.push(policy.invalid("may only be set for externally-accessible services"));
    }
    let is_checked = kind == "LoadBalancer" && policy.text() == "Local";
    match check_port.integer().unwrap_or(0) {
        0 => {}
        _ if !is_checked => errors.push(
            check_port.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
        ),
        1..=65535 => {}
        _ => errors.push(check_port.invalid(PORT_RANGE)),
    }
}

/// How long a client stays with one Pod.
fn affinity(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let timeout = spec.get("sessionAffinityConfig.clientIP.timeoutSeconds");
    if spec.get("sessionAffinity").text() == "ClientIP"
        && timeout
            .integer()
            .is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        errors.push(timeout.invalid("must be greater than 0 and less than 86400"));
    }
}

/// Ports of nodes: not for Services that are inside only, and each but once a protocol.
fn node_ports(all: &At<'_>, kind: &str, errors: &mut Vec<FieldError>) {
    let mut taken = HashSet::new();
    for port in all.items() {
        let number = port.get("nodePort");
        let Some(node_port) = number.integer().filter(|&number| number != 0) else {
            continue;
        };
        if kind == "ClusterIP" {
            errors.push(number.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        if !taken.insert((port.get("protocol").text(), node_port)) {
            errors.push(number.duplicate());
        }
    }
}

/// Families and addresses, of which this cluster has IPv4 only (but what is headless has any).
fn families(spec: &At<'_>, headless: bool, errors: &mut Vec<FieldError>) {
    let (policy, all, addresses) = (
        spec.get("ipFamilyPolicy"),
        spec.get("ipFamilies"),
        spec.get("clusterIPs"),
    );
    if spec.get("type").text() == "ExternalName" {
        return;
    }
    if policy.text() == "RequireDualStack" && !headless {
        errors.push(policy.invalid("this cluster is not configured for dual-stack services"));
    }
    let mut known = HashSet::new();
    for family in all.items() {
        match family.text() {
            "IPv4" => {}
            "IPv6" if headless => {}
            "IPv6" => errors.push(family.invalid("not configured on this cluster")),
            _ => errors.push(family.not_supported(&["IPv4", "IPv6"])),
        }
        if !known.insert(family.text()) {
            errors.push(family.duplicate());
        }
    }
    let known = errors.len();
    let count = addresses.items().count();
    for (i, address) in addresses.items().enumerate() {
        if i == 0 && address.text() == "None" {
            if count > 1 {
                errors.push(addresses.invalid("'None' must be the first and only value"));
            }
        } else if !address.is_empty() {
            errors.extend(ip(address.text()).map(|what| address.invalid(what)));
        }
    }
    if count > 2 {
        errors.push(addresses.invalid("may only hold up to 2 values"));
    }
    if errors.len() > known || headless {
        return;
    }
    let is_v6 = |address: &At<'_>| address.text().contains(':');
    if count == 2 && addresses.items().filter(is_v6).count() != 1 {
        errors.push(addresses.invalid("may specify no more than one IP for each IP family"));
    }
    for (i, (address, family)) in addresses.items().zip(all.items()).enumerate() {
        if !address.is_empty() && is_v6(&address) != (family.text() == "IPv6") {
            let family = family.text();
            errors.push(address.invalid(format_args!(
                "expected an {family} value as indicated by `ipFamilies[{i}]`"
            )));
        }
    }
}

fn ports(all: &At<'_>, errors: &mut Vec<FieldError>) {
    let several = all.items().count() > 1;
    let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
    for port in all.items() {
        let name = port.get("name");
        if name.is_empty() {
            if several {
                errors.push(name.required(""));
            }
        } else if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let target = port.get("targetPort");
        match target.value {
            Value::Number(_) if !(1..=65535).contains(&target.integer().unwrap_or(0)) => {
                errors.push(target.invalid(PORT_RANGE));
            }
            Value::String(name) => target.check(port_name(name), errors),
            _ => {}
        }
        let protocol = port.get("appProtocol");
        if protocol.present() {
            protocol.check(qualified_name(protocol.text()), errors);
        }
        let (number, protocol) = (port.get("port").integer(), port.get("protocol").text());
        if !numbers.insert((number, protocol)) {
            // The inner type, with nothing but what has to be unique.
            let number = number.unwrap_or(0);
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\
                 \"NodePort\":0}}"
            );
            errors.push(FieldError::duplicate_shown(&port.field, &shown));
        }
    }
}

/// Addresses that reach nothing outside the machine.
fn outside(address: &At<'_>, errors: &mut Vec<FieldError>) {
    let Ok(parsed) = address.text().parse::<std::net::IpAddr>() else {
        return;
    };
    if parsed.is_unspecified() {
        errors.push(address.invalid(format_args!("may not be unspecified ({})", address.text())));
    }
    if parsed.is_loopback() {
        errors.push(address.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    let link_local = match parsed {
        std::net::IpAddr::V4(v4) => v4.is_link_local(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if link_local {
        errors.push(address.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if parsed.is_multicast() {
        errors.push(address.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

pub(super) fn service_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let address = |service| text(service, "/spec/clusterIP").to_owned();
    let external = |service| text(service, "/spec/type") == "ExternalName";
    let (before, after) = (address(old), address(new));
    let class = At::root(new).get("spec.loadBalancerClass");
    let balanced = |service| text(service, "/spec/type") == "LoadBalancer";
    if balanced(old) && balanced(new) && old.pointer("/spec/loadBalancerClass").unwrap_or(&Value::Null) != class.value {
        errors.push(class.invalid("may not change once set"));
    }
    if !external(old) && !external(new) && !before.is_empty() && before != after {
        errors.push(FieldError::invalid(
            "spec.clusterIPs[0]",
            &json!([after]),
            "may not change once set",
        ));
    }
}

pub(super) fn service_status(service: &Value, errors: &mut Vec<FieldError>) {
    let points = At::root(service).get("status.loadBalancer.ingress");
    if !points.is_empty() && text(service, "/spec/type") != "LoadBalancer" {
        errors.push(points.forbidden("may only be used when `spec.type` is 'LoadBalancer'"));
    }
}

pub(super) fn service_warnings(service: &Value) -> Vec<String> {
    let spec = At::root(service).get("spec");
    let mut warnings = Vec::new();
    if spec.get("type").text() != "ExternalName" && !spec.get("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if !spec.get("externalIPs").is_empty() {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    warnings
}

pub(super) fn endpoints(endpoints: &Value, errors: &mut Vec<FieldError>) {
    for subset in At::root(endpoints).get("subsets").items() {
        if subset.get("addresses").is_empty() && subset.get("notReadyAddresses").is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset.get(list).items() {
                let address = address.get("ip");
                match ip(address.text()) {
                    Some(what) => {
                        errors.push(address.invalid(what));
                        errors.push(address.invalid("must be a valid IP address"));
                    }
                    None => outside(&address, errors),
                }
            }
        }
        let ports = subset.get("ports");
        let several = ports.items().count() > 1;
        for port in ports.items() {
            if several && port.get("name").is_empty() {
                errors.push(port.get("name").required(""));
            }
        }
    }
}

pub(in crate::resources) fn endpoint_slice(slice: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(slice);
    let family = root.get("addressType").text();
    for endpoint in root.get("endpoints").items() {
        let addresses = endpoint.get("addresses");
        for address in addresses.items() {
            let parsed = address.text().parse::<std::net::IpAddr>().ok();
            let wrong = match family {
                "IPv4" if !parsed.is_some_and(|ip| ip.is_ipv4()) => "must be an IPv4 address",
                "IPv6" if !parsed.is_some_and(|ip| ip.is_ipv6()) => "must be an IPv6 address",
                _ => continue,
            };
            errors.push(FieldError::invalid(&addresses.field, address.value, wrong));
        }
    }
    let mut names = HashSet::new();
    for port in root.get("ports").items() {
        let name = port.get("name");
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
    debug_assert!(integer(slice, "/metadata/generation").is_none_or(|generation| generation > 0));
}
