//! Rules of Services and of the addresses behind them.

use std::collections::HashSet;

use crate::tree::{Value, json};

use super::pod_rules::port_name;
use crate::resources::FieldError;
use crate::resources::lookup::{integer, text};
use crate::resources::validate::{At, ip};

pub(super) fn service(service: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(service).get("spec");
    let kind = spec.get("type").text();
    let headless = spec.get("clusterIP").text() == "None";
    let all = spec.get("ports");
    if all.is_empty() && !headless && kind != "ExternalName" {
        errors.push(all.required(""));
    }
    if kind == "ExternalName" {
        let name = spec.get("externalName");
        if name.is_empty() {
            errors.push(name.required(""));
        }
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let detail = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid_text("spec.clusterIPs[0]", "None", detail));
    }
    ports(&all, errors);
    let policy = spec.get("ipFamilyPolicy");
    if policy.text() == "RequireDualStack" && !headless {
        errors.push(policy.invalid("this cluster is not configured for dual-stack services"));
    }
    for family in spec.get("ipFamilies").items() {
        match family.text() {
            "IPv4" => {}
            "IPv6" if headless => {}
            "IPv6" => errors.push(family.invalid("not configured on this cluster")),
            _ => errors.push(family.not_supported(&["IPv4", "IPv6"])),
        }
    }
    let addresses = spec.get("clusterIPs");
    for address in addresses
        .items()
        .filter(|address| !matches!(address.text(), "None" | ""))
    {
        errors.extend(ip(address.text()).map(|what| address.invalid(what)));
    }
    for address in spec.get("externalIPs").items() {
        match ip(address.text()) {
            Some(what) => errors.push(address.invalid(what)),
            None => outside(&address, errors),
        }
    }
    crate::resources::metadata::labels(Some(spec.get("selector").value), &"spec.selector", errors);
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
                errors.push(target.invalid("must be between 1 and 65535, inclusive"));
            }
            Value::String(name) => target.check(port_name(name), errors),
            _ => {}
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
