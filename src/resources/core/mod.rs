//! The core group.

mod data_rules;
mod event_rules;
mod namespaces;
mod node_rules;
mod nodes;
pub(super) mod pods;
mod quota_rules;
pub(super) mod service_rules;
mod services;
pub(super) mod volumes;

use crate::tree::{Map, Value};
use base64::Engine;

use super::cell::Cell;
use super::edit::{default_at, default_in, items_mut, object_at, remove_at, set_at};
use super::kind::{Kind, name_and_age};
use super::lookup;
use super::lookup::{integer, list, map, text, time_s};
use super::row::{Row, some_and_more};
use super::strategy::keep;
use super::validate::{At, immutable};
use super::workload_rules::{check_counters, check_replication_controller, check_template, warn_name, warn_template};
use pods::spec::default_pod_spec;
use pods::warnings::warn_pod_template;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("configmaps")
        .cells(|row| {
            let entries = ["/data", "/binaryData"].map(|maps| lookup::count(row.object, maps));
            row.name().integer(entries.iter().sum()).age();
        })
        .defaults(|config_map| nulls_are_no_bytes(config_map, "/binaryData"))
        .validate(data_rules::config_map)
        .validate_update(|old, new, _, errors| data_rules::immutable(old, new, &["data", "binaryData"], errors)),
    Kind::new("endpoints")
        .cells(endpoints)
        .validate(service_rules::endpoints),
    Kind::new("events")
        .cells(events)
        .validate(event_rules::event)
        .validate_version(event_rules::event_of_events_group),
    Kind::new("limitranges")
        .defaults(limit_range_defaults)
        .validate(quota_rules::limit_range),
    Kind::new("namespaces")
        .cells(|row| {
            row.name().text_at("/status/phase").age();
        })
        .defaults(namespaces::defaults)
        .prepare_create(|namespace, _| namespaces::prepare_create(namespace))
        .prepare_update(|old, namespace, subresource, _| {
            // Finalizers change through their own subresource only.
            if subresource != Some("finalize") {
                keep(old, namespace, "spec");
            }
        })
        .validate_create(|namespace, errors| namespaces::finalizers(namespace, false, errors))
        .validate_update(|_, namespace, subresource, errors| {
            if subresource == Some("finalize") {
                namespaces::finalizers(namespace, true, errors);
            }
        })
        .validate_status(|_, namespace, errors| namespaces::status(namespace, errors)),
    Kind::new("nodes")
        .cells(nodes::cells)
        .defaults(nodes::defaults)
        .prepare_create(|node, _| nodes::prepare_create(node))
        .prepare_update(|old, node, _, _| nodes::drop_removed(Some(old), node))
        .validate(node_rules::node)
        .validate_create(node_rules::new_node)
        .validate_update(|old, new, _, errors| node_rules::node_change(old, new, errors))
        .validate_status(node_rules::node_status)
        .warnings(node_rules::node_warnings),
    Kind::new("persistentvolumeclaims")
        .cells(volumes::claim_cells)
        .defaults(|claim| default_at(claim, "/status", "phase", "Pending"))
        .prepare_create(|claim, _| volumes::prepare_claim(claim))
        .prepare_update(|old, claim, subresource, _| {
            if subresource.is_none() {
                volumes::settle_data_source(Some(old), claim);
            }
        })
        .validate(volumes::claim)
        .validate_update(|old, new, _, errors| volumes::claim_change(old, new, errors))
        .validate_status(|_, new, errors| volumes::claim_status(new, errors))
        .warnings(volumes::claim_warnings),
    Kind::new("persistentvolumes")
        .cells(volumes::volume_cells)
        .defaults(volumes::volume_defaults)
        .prepare_create(volumes::prepare_volume)
        .prepare_update(volumes::note_phase_change)
        .validate(volumes::volume)
        .validate_update(|old, new, _, errors| volumes::volume_change(old, new, errors))
        .warnings(volumes::volume_warnings),
    Kind::new("pods")
        .cells(pods::cells)
        .defaults(pods::defaults)
        .spec_alone()
        .admit(pods::admit)
        .prepare_create(pods::prepare_create)
        .prepare_update(pods::changes::prepare_update)
        .validate(pods::validate)
        .validate_create(pods::validate_create)
        .validate_update(pods::changes::validate_update)
        .validate_status(pods::status::validate_status)
        .warnings_create(pods::warnings),
    Kind::new("podtemplates")
        .cells(|row| {
            row.name()
                .containers_at("/template/spec/containers")
                .labels_at("/template/metadata/labels");
        })
        .defaults(|template| default_pod_spec(template, "/template/spec"))
        .validate(|template, errors| check_template(&At::root(template).get("template"), errors))
        .warnings(|template| warn_pod_template(&At::root(template).get("template")))
        .warns_of_changed_spec(),
    Kind::new("replicationcontrollers")
        .cells(|row| {
            row.name()
                .integer_at("/spec/replicas")
                .integer_at("/status/replicas")
                .integer_at("/status/readyReplicas");
            row.age()
                .containers_at("/spec/template/spec/containers")
                .labels_at("/spec/selector");
        })
        .defaults(|controller| {
            default_pod_spec(controller, "/spec/template/spec");
            let labels = controller.pointer("/spec/template/metadata/labels").cloned();
            for (parent, field) in [("/spec", "selector"), ("/metadata", "labels")] {
                let unset = lookup::count(controller, &format!("{parent}/{field}")) == 0;
                if let (Some(labels), true) = (&labels, unset) {
                    set_at(controller, parent, field, labels.clone());
                }
            }
        })
        .validate(check_replication_controller)
        .validate_status(|_, new, errors| {
            let counters = &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            check_counters(new, counters, "readyReplicas", errors);
        })
        .warnings_create(warn_name)
        .warnings(warn_template)
        .warns_of_changed_spec()
        .checked_twice(),
    Kind::new("resourcequotas")
        .cells(resource_quotas)
        .validate(quota_rules::quota)
        .validate_update(|old, new, _, errors| quota_rules::quota_change(old, new, errors))
        .validate_status(|_, new, errors| quota_rules::quota_status(new, errors))
        .warnings(quota_rules::quota_warnings),
    Kind::new("secrets")
        .cells(|row| {
            row.name().text_at("/type").count_at("/data").age();
        })
        .defaults(secret_defaults)
        .validate(data_rules::secret)
        .validate_update(|old, new, _, errors| {
            data_rules::immutable(old, new, &["data"], errors);
            immutable(old, new, "type", errors);
        })
        .warnings(data_rules::secret_warnings),
    Kind::new("serviceaccounts")
        .cells(name_and_age)
        .prepare_create(|account, _| name_secrets_alone(account))
        .prepare_update(|_, account, _, _| name_secrets_alone(account))
        .warnings_create(warn_of_enforced_secrets),
    Kind::new("services")
        .cells(services::cells)
        .defaults(services::defaults)
        .prepare_create(|service, _| services::prepare_create(service))
        .prepare_update(|old, service, subresource, _| {
            if subresource.is_none() {
                services::prepare_update(old, service);
            }
        })
        .validate(service_rules::service)
        .validate_update(|old, new, _, errors| service_rules::service_change(old, new, errors))
        .validate_status(|_, new, errors| service_rules::service_status(new, errors))
        .warnings(service_rules::service_warnings),
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
            limits.push(shown);
        } else {
            requests.push(shown);
        }
    }
    requests.sort();
    limits.sort();
    row.name().text(requests.join(", ")).text(limits.join(", ")).age();
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

/// A range for containers that names only some of its bounds gets the others from those.
fn limit_range_defaults(range: &mut Value) {
    for item in items_mut(range, "/spec/limits") {
        if text(item, "/type") != "Container" {
            continue;
        }
        let Some(fields) = item.as_object_mut() else { continue };
        for (to, from) in [
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "min"),
        ] {
            let Some(Value::Object(from)) = fields.get(from).cloned() else {
                continue;
            };
            default_in(fields, to, Map::new());
            if let Some(Value::Object(to)) = fields.get_mut(to) {
                for (name, quantity) in from {
                    default_in(to, &name, quantity);
                }
            }
        }
    }
}

/// A ServiceAccount says of its Secrets what they are called, and nothing else.
fn name_secrets_alone(account: &mut Value) {
    let is_more = |secret: &Value| {
        secret
            .as_object()
            .is_some_and(|fields| fields.iter().any(|(name, _)| name != "name"))
    };
    if !list(account, "/secrets").iter().any(is_more) {
        return;
    }
    for secret in items_mut(account, "/secrets") {
        if let Value::Object(fields) = secret {
            fields.retain(|name, _| name.as_str() == "name");
        }
    }
}

fn warn_of_enforced_secrets(account: &Value) -> Vec<String> {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let is_there = map(account, "/metadata/annotations").is_some_and(|annotations| annotations.contains_key(ENFORCED));
    let warning = format!(
        "metadata.annotations[{ENFORCED}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted \
         secrets"
    );
    is_there.then_some(warning).into_iter().collect()
}

/// A null among the values of that map becomes an empty one, as a slice of Go is.
fn nulls_are_no_bytes(object: &mut Value, pointer: &str) {
    if map(object, pointer).is_some_and(|entries| entries.iter().any(|(_, value)| value.is_null()))
        && let Some(Value::Object(entries)) = object.pointer_mut(pointer)
    {
        for value in entries.values_mut().filter(|value| value.is_null()) {
            *value = "".into();
        }
    }
}

/// Plain text goes into the data, over what is there, and is not kept.
fn secret_defaults(secret: &mut Value) {
    nulls_are_no_bytes(secret, "/data");
    let Some(Value::Object(texts)) = remove_at(secret, "", "stringData") else {
        return;
    };
    if let Some(data) = object_at(secret, "/data") {
        for (name, text) in texts {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or(""));
            data.insert(name, encoded.into());
        }
    }
}
