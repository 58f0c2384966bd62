//! The core group.

mod nodes;
mod pods;
mod volumes;

use super::kind::{Kind, name_and_age};
use super::lookup::{integer, list, map, text, texts, time_s};
use super::row::{Row, or_none, some_and_more};
use flatkube_format::sidecar::Cell;
use serde_json::Value;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("configmaps").cells(|row| {
        let entries = ["/data", "/binaryData"].map(|maps| super::lookup::count(row.object, maps));
        row.name().integer(entries.iter().sum()).age();
    }),
    Kind::new("endpoints").cells(endpoints),
    Kind::new("events").cells(events),
    Kind::new("limitranges"),
    Kind::new("namespaces").cells(|row| {
        row.name().text_at("/status/phase").age();
    }),
    Kind::new("nodes").cells(nodes::cells),
    Kind::new("persistentvolumeclaims").cells(volumes::claim_cells),
    Kind::new("persistentvolumes").cells(volumes::volume_cells),
    Kind::new("pods").cells(pods::cells),
    Kind::new("podtemplates").cells(|row| {
        row.name()
            .containers_at("/template/spec/containers")
            .labels_at("/template/metadata/labels");
    }),
    Kind::new("replicationcontrollers").cells(|row| {
        row.name()
            .integer_at("/spec/replicas")
            .integer_at("/status/replicas")
            .integer_at("/status/readyReplicas");
        row.age()
            .containers_at("/spec/template/spec/containers")
            .labels_at("/spec/selector");
    }),
    Kind::new("resourcequotas").cells(resource_quotas),
    Kind::new("secrets").cells(|row| {
        row.name().text_at("/type").count_at("/data").age();
    }),
    Kind::new("serviceaccounts").cells(name_and_age),
    Kind::new("services").cells(services),
];

fn endpoints(row: &mut Row<'_>) {
    let subsets = list(row.object, "/subsets");
    let mut addresses = Vec::new();
    for subset in subsets {
        let ips = || list(subset, "/addresses").iter().map(|address| text(address, "/ip"));
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            addresses.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = integer(port, "/port").unwrap_or(0);
            // Like a URL, an IPv6 address stands in brackets before a port.
            addresses.extend(ips().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    let shown = some_and_more(&addresses, 3, ",");
    row.name()
        .text(if subsets.is_empty() { "<none>".to_owned() } else { shown })
        .age();
}

fn events(row: &mut Row<'_>) {
    let event = row.object;
    let first = time_s(event, "/firstTimestamp").or_else(|| time_s(event, "/eventTime"));
    let (last, count) = match event.pointer("/series").filter(|series| !series.is_null()) {
        Some(series) => (
            time_s(series, "/lastObservedTime"),
            integer(series, "/count").unwrap_or(0),
        ),
        None => (
            time_s(event, "/lastTimestamp").or(first),
            integer(event, "/count").filter(|&count| count != 0).unwrap_or(1),
        ),
    };
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let target = match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    row.cell(Cell::Age(last.unwrap_or(0)))
        .text_at("/type")
        .text_at("/reason")
        .text(target)
        .text_at("/involvedObject/fieldPath")
        .text(event_source(event))
        .text(text(event, "/message").trim())
        .cell(Cell::Age(first.unwrap_or(0)))
        .integer(count)
        .name();
}

fn event_source(event: &Value) -> String {
    let first = |old, new| {
        if text(event, old).is_empty() {
            text(event, new)
        } else {
            text(event, old)
        }
    };
    let component = first("/source/component", "/reportingComponent");
    let instance = first("/source/host", "/reportingInstance");
    if component.is_empty() || instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    }
}

/// `used/hard` of each resource, limits apart from the rest.
fn resource_quotas(row: &mut Row<'_>) {
    let quota = row.object;
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in map(quota, "/status/hard").into_iter().flatten() {
        let used = map(quota, "/status/used")
            .and_then(|used| used.get(name))
            .and_then(Value::as_str)
            .unwrap_or("0");
        let shown = format!("{name}: {used}/{}", hard.as_str().unwrap_or("0"));
        if name.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    requests.sort();
    limits.sort();
    row.name().text(requests.join(", ")).text(limits.join(", ")).age();
}

fn services(row: &mut Row<'_>) {
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

/// IPs, or host names where there is no IP, in `status.loadBalancer`: sorted, each once.
pub(super) fn load_balancer_addresses(object: &Value) -> Vec<&str> {
    let points = list(object, "/status/loadBalancer/ingress").iter();
    let mut addresses: Vec<&str> = points
        .map(|point| {
            if text(point, "/ip").is_empty() {
                text(point, "/hostname")
            } else {
                text(point, "/ip")
            }
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
