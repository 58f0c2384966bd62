//! Services.

use crate::tree::{Value, json};

use super::load_balancer_addresses;
use crate::resources::edit::{default_at, items_mut, remove_at, set_at};
use crate::resources::lookup::{count, integer, list, present, text, texts};
use crate::resources::row::{Row, or_none};

pub(super) fn cells(row: &mut Row<'_>) {
    let service = row.object;
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let number = integer(port, "/port").unwrap_or(0);
        let protocol = text(port, "/protocol");
        match integer(port, "/nodePort").filter(|&port| port > 0) {
            Some(node_port) => format!("{number}:{node_port}/{protocol}"),
            None => format!("{number}/{protocol}"),
        }
    });
    let ports = or_none(ports.collect::<Vec<_>>().join(","));
    row.name()
        .text_at("/spec/type")
        .text_or("/spec/clusterIPs/0", "<none>")
        .text(external_ips(service))
        .text(ports)
        .age()
        .labels_at("/spec/selector");
}

fn external_ips(service: &Value) -> String {
    let fixed = texts(service, "/spec/externalIPs");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => or_none(fixed.join(",")),
        "LoadBalancer" => {
            let mut all = load_balancer_addresses(service);
            all.extend(fixed);
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// What follows from the type of a Service. Addresses and node ports are given out by
/// [`crate::resources::allocation::Allocations`].
pub(super) fn defaults(service: &mut Value) {
    for port in items_mut(service, "/spec/ports") {
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        // A target port of 0 or "" is none.
        if matches!(port.get("targetPort"), Some(Value::String(text)) if text.is_empty())
            || integer(port, "/targetPort") == Some(0)
        {
            remove_at(port, "", "targetPort");
        }
        default_at(port, "", "targetPort", number);
    }
    if text(service, "/spec/sessionAffinity") == "ClientIP" {
        if integer(service, "/spec/sessionAffinityConfig/clientIP/timeoutSeconds").is_none() {
            let day = json!({"clientIP": {"timeoutSeconds": 10800}});
            set_at(service, "/spec", "sessionAffinityConfig", day);
        }
    } else {
        remove_at(service, "/spec", "sessionAffinityConfig");
    }
    let kind = text(service, "/spec/type").to_owned();
    if kind == "ExternalName" {
        return;
    }
    let reachable = matches!(kind.as_str(), "NodePort" | "LoadBalancer") || count(service, "/spec/externalIPs") > 0;
    if reachable {
        default_at(service, "/spec", "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default_at(service, "/spec", "allocateLoadBalancerNodePorts", true);
    }
    default_at(service, "/spec", "internalTrafficPolicy", "Cluster");
}

/// Families and addresses follow from each other. They are the server's own, not those of the client that left them open.
fn complete_addresses(service: &mut Value) {
    if text(service, "/spec/type") == "ExternalName" {
        return;
    }
    let headless = text(service, "/spec/clusterIP") == "None";
    let selectorless = count(service, "/spec/selector") == 0;
    // Endpoints of a headless Service without a selector are made by hand, of either family.
    if headless && selectorless && !present(service, "/spec/ipFamilyPolicy") && !present(service, "/spec/ipFamilies") {
        set_at(service, "/spec", "ipFamilyPolicy", "RequireDualStack");
        set_at(service, "/spec", "ipFamilies", json!(["IPv4", "IPv6"]));
    }
    default_at(service, "/spec", "ipFamilyPolicy", "SingleStack");
    default_at(service, "/spec", "ipFamilies", json!(["IPv4"]));
    let address = text(service, "/spec/clusterIP").to_owned();
    if !address.is_empty() {
        default_at(service, "/spec", "clusterIPs", json!([address]));
    }
    let first = text(service, "/spec/clusterIPs/0").to_owned();
    if !first.is_empty() {
        default_at(service, "/spec", "clusterIP", first);
    }
}

pub(super) fn prepare_create(service: &mut Value) {
    set_at(service, "", "status", json!({"loadBalancer": {}}));
    complete_addresses(service);
    drop_what_the_type_lacks(service);
}

/// A change keeps addresses and node ports that it does not name; fields that the new type does not have go away.
pub(super) fn prepare_update(old: &Value, new: &mut Value) {
    let kind = text(new, "/spec/type").to_owned();
    let had_address = text(old, "/spec/type") != "ExternalName";
    if kind != "ExternalName" && had_address && !text(old, "/spec/clusterIP").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            let before = old.pointer(&format!("/spec/{field}")).cloned().unwrap_or(Value::Null);
            default_at(new, "/spec", field, before);
        }
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        let before = list(old, "/spec/ports");
        for port in items_mut(new, "/spec/ports") {
            let same = |old: &&Value| {
                integer(old, "/port") == integer(port, "/port") && text(old, "/protocol") == text(port, "/protocol")
            };
            if let Some(node_port) = before.iter().find(same).and_then(|old| integer(old, "/nodePort")) {
                default_at(port, "", "nodePort", node_port);
            }
        }
        if integer(new, "/spec/healthCheckNodePort").is_none()
            && let Some(port) = integer(old, "/spec/healthCheckNodePort")
            && text(new, "/spec/externalTrafficPolicy") == "Local"
        {
            set_at(new, "/spec", "healthCheckNodePort", port);
        }
    }
    complete_addresses(new);
    drop_what_the_type_lacks_after(old, new);
}

/// A type that was left behind leaves nothing behind.
fn drop_what_the_type_lacks_after(old: &Value, new: &mut Value) {
    if text(old, "/spec/type") == text(new, "/spec/type") {
        return;
    }
    let kind = text(new, "/spec/type").to_owned();
    if kind == "ClusterIP" {
        for (i, port) in items_mut(new, "/spec/ports").enumerate() {
            let before = integer(old, &format!("/spec/ports/{i}/nodePort"));
            if before.is_some() && integer(port, "/nodePort") == before {
                remove_at(port, "", "nodePort");
            }
        }
        if count(new, "/spec/externalIPs") == 0 {
            remove_at(new, "/spec", "externalTrafficPolicy");
        }
    }
    if kind != "LoadBalancer" {
        remove_at(new, "/spec", "allocateLoadBalancerNodePorts");
        remove_at(new, "/spec", "healthCheckNodePort");
        set_at(new, "", "status", json!({"loadBalancer": {}}));
    }
    drop_what_the_type_lacks(new);
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs"] {
            remove_at(new, "/spec", field);
        }
        for port in items_mut(new, "/spec/ports") {
            remove_at(port, "", "nodePort");
        }
    }
}

fn drop_what_the_type_lacks(service: &mut Value) {
    if text(service, "/spec/type") == "ExternalName" {
        for field in [
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
            "externalTrafficPolicy",
        ] {
            remove_at(service, "/spec", field);
        }
    }
}
