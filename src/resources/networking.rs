//! The groups `networking.k8s.io` and `discovery.k8s.io`.

use crate::tree::json;

use super::core::load_balancer_addresses;
use super::core::service_rules::endpoint_slice;
use super::edit::default_at;
use super::kind::{Kind, METADATA};
use super::lookup::{count, integer, list, text, texts};
use super::networking_rules;
use super::row::{Row, some_and_more};
use super::validate::immutable;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("endpointslices.discovery.k8s.io")
        .counts_metadata("labels")
        .cells(endpoint_slices)
        .validate(endpoint_slice)
        .validate_update(|old, new, _, errors| immutable(old, new, "addressType", errors))
        .warnings(|slice| {
            let is_name = text(slice, "/addressType") == "FQDN";
            let warning = is_name.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned());
            warning.into_iter().collect()
        }),
    Kind::new("ingressclasses.networking.k8s.io")
        .cells(|row| {
            let class = row.object;
            let (group, kind, name) = (
                text(class, "/spec/parameters/apiGroup"),
                text(class, "/spec/parameters/kind"),
                text(class, "/spec/parameters/name"),
            );
            let parameters = match (group, kind) {
                (_, "") => "<none>".to_owned(),
                ("", kind) => format!("{kind}/{name}"),
                (group, kind) => format!("{kind}.{group}/{name}"),
            };
            row.name().text_at("/spec/controller").text(parameters).age();
        })
        .validate(networking_rules::ingress_class)
        .validate_update(|old, new, _, errors| immutable(old, new, "spec.controller", errors)),
    Kind::new("ingresses.networking.k8s.io")
        .cells(ingresses)
        .validate(networking_rules::ingress)
        .validate_create(networking_rules::ingress_classes_agree)
        .validate_status(networking_rules::ingress_status)
        .warnings(networking_rules::ingress_warnings),
    Kind::new("ipaddresses.networking.k8s.io")
        .cells(|row| {
            let address = row.object;
            let part = |name| text(address, &format!("/spec/parentRef/{name}"));
            let resource = match part("group") {
                "" => part("resource").to_owned(),
                group => format!("{}.{group}", part("resource")),
            };
            let parent = [resource.as_str(), part("namespace"), part("name")];
            let parent: Vec<&str> = parent.into_iter().filter(|part| !part.is_empty()).collect();
            row.name().text(parent.join("/"));
        })
        .validate_create(networking_rules::ip_address)
        .validate_update(|old, new, _, errors| immutable(old, new, "spec.parentRef", errors)),
    Kind::new("networkpolicies.networking.k8s.io")
        .cells(|row| {
            row.name().selector_at("/spec/podSelector").age();
        })
        .defaults(|policy| {
            let egress = count(policy, "/spec/egress") > 0;
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            default_at(policy, "/spec", "policyTypes", types);
        })
        .validate(networking_rules::network_policy),
    Kind::new("servicecidrs.networking.k8s.io")
        .status_keeps(METADATA)
        .cells(|row| {
            let ranges = texts(row.object, "/spec/cidrs").join(",");
            row.name().text(ranges).age();
        })
        .validate_create(networking_rules::service_cidr)
        .validate_update(|old, new, _, errors| networking_rules::service_cidr_change(old, new, errors)),
];

fn endpoint_slices(row: &mut Row<'_>) {
    let slice = row.object;
    let ports: Vec<String> = list(slice, "/ports")
        .iter()
        .map(|port| match (integer(port, "/port"), text(port, "/name")) {
            (Some(number), _) => number.to_string(),
            (None, "") => "*".to_owned(),
            (None, name) => name.to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| texts(endpoint, "/addresses"))
        .map(str::to_owned)
        .collect();
    let shown = |items: &[String]| {
        if items.is_empty() {
            "<unset>".to_owned()
        } else {
            some_and_more(items, 3, ",")
        }
    };
    row.name()
        .text_at("/addressType")
        .text(shown(&ports))
        .text(shown(&addresses))
        .age();
}

fn ingresses(row: &mut Row<'_>) {
    let ingress = row.object;
    let rules = list(ingress, "/spec/rules");
    let mut hosts = Vec::new();
    // Rules beyond the third host are counted, whether or not they name a host.
    let mut more = false;
    for rule in rules {
        more |= hosts.len() == 3;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let hosts = match (hosts.join(","), more) {
        (hosts, _) if hosts.is_empty() => "*".to_owned(),
        (hosts, true) => format!("{hosts} + {} more...", rules.len() - 3),
        (hosts, false) => hosts,
    };
    let ports = if count(ingress, "/spec/tls") == 0 {
        "80"
    } else {
        "80, 443"
    };
    row.name()
        .text_or("/spec/ingressClassName", "<none>")
        .text(hosts)
        .text(load_balancer_addresses(ingress).join(","))
        .text(ports)
        .age();
}
