//! Rules of nodes.

use std::collections::HashSet;

use crate::tree::{Value, json};

use super::data_rules::check_key;
use super::quota_rules::check_amount;
use crate::resources::lookup::{list, text};
use crate::resources::names::{label, label_value, qualified_name, subdomain};
use crate::resources::validate::{At, FieldPath, capitalized, cidr};
use crate::resources::{FieldError, FieldReason};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// What is wrong with a node, new or changed.
pub(super) fn node(node: &Value, errors: &mut Vec<FieldError>) {
    let mut known = HashSet::new();
    for taint in At::root(node).get("spec.taints").items() {
        // kube-apiserver looks for taints in metadata, where they once were.
        let field = taint.field.to_string().replacen("spec", "metadata", 1);
        let (key, value, effect) = (taint.get("key").text(), taint.get("value").text(), taint.get("effect"));
        let wrong = qualified_name(key).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(format!("{field}.key"), key, what)));
        let wrong = label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid_text(
                format!("{field}.value"),
                value,
                wrong.join(";"),
            ));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !EFFECTS.contains(&effect.text()) {
            errors.push(FieldError::not_supported(
                format!("{field}.effect"),
                effect.value,
                EFFECTS,
            ));
        }
        if !known.insert((key, effect.text())) {
            let added = taint.get("timeAdded").value;
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{added}}}",
                json!(key),
                json!(value),
                effect.value
            );
            let error = FieldError::duplicate_shown(&field, &shown);
            let message = format!("{}: taints must be unique by key and effect pair", error.message);
            errors.push(FieldError { message, ..error });
        }
    }
    resources(node, errors);
}

/// What is wrong with the amounts of resources that a node has.
fn resources(node: &Value, errors: &mut Vec<FieldError>) {
    for part in ["status.capacity", "status.allocatable"] {
        let part = At::root(node).get(part);
        for (name, amount) in part.entries() {
            let field = FieldPath::made(format!("{}.{name}", part.field));
            check_amount(name, &At { field, ..amount }, errors);
        }
    }
}

/// What only a new node is asked: the addresses of its Pods.
pub(super) fn new_node(node: &Value, errors: &mut Vec<FieldError>) {
    let ranges = At::root(node).get("spec.podCIDRs");
    for range in ranges.items() {
        errors.extend(cidr(range.text()).map(|what| range.invalid(what)));
    }
    let all: Vec<&str> = ranges.items().map(|range| range.text()).collect();
    if all.len() < 2 {
        return;
    }
    let address = |range: &str| {
        let (address, _) = range.split_once('/')?;
        address.parse::<std::net::IpAddr>().ok()
    };
    if let Some(wrong) = all.iter().position(|range| address(range).is_none()) {
        errors.push(FieldError {
            reason: FieldReason::Internal,
            field: ranges.field.to_string(),
            message: format!(
                "Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{wrong}]: <nil> \
                 (invalid CIDR address: {})",
                all[wrong]
            ),
        });
    }
    let families: HashSet<bool> = all
        .iter()
        .filter_map(|range| address(range))
        .map(|ip| ip.is_ipv4())
        .collect();
    if families.len() < 2 || all.len() > 2 {
        errors.push(ranges.invalid("may specify no more than one CIDR for each IP family"));
    }
    let mut known = HashSet::new();
    for range in ranges.items().filter(|range| !known.insert(range.text())) {
        errors.push(range.duplicate());
    }
}

/// What a change of a node, or of its status, may not do.
pub(super) fn node_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let mut known = HashSet::new();
    for address in At::root(new).get("status.addresses").items() {
        let (kind, host) = (text(address.value, "/type"), text(address.value, "/address"));
        if !known.insert((kind, host)) {
            let shown = format!("{{\"Type\":{},\"Address\":{}}}", json!(kind), json!(host));
            errors.push(FieldError::duplicate_shown(&address.field, &shown));
        }
    }
    let (before, after) = (list(old, "/spec/podCIDRs"), list(new, "/spec/podCIDRs"));
    let moved = if before.is_empty() {
        0
    } else if before.len() == after.len() {
        before
            .iter()
            .zip(after)
            .filter(|(before, after)| before != after)
            .count()
    } else {
        1
    };
    for _ in 0..moved {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", detail));
    }
    let provider = |node| text(node, "/spec/providerID").to_owned();
    if !provider(old).is_empty() && provider(old) != provider(new) {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    let source = At::root(new).get("spec.configSource");
    if source.present() {
        config_source(&source, false, errors);
    }
    for part in ["assigned", "active", "lastKnownGood"] {
        let source = At::root(new).get("status.config").get(part);
        if source.present() {
            config_source(&source, true, errors);
        }
    }
    if text(old, "/spec/externalID") != text(new, "/spec/externalID") {
        errors.push(FieldError::forbidden("spec.externalID", "may not be updated"));
    }
}

/// What is wrong with a change of a node's status.
pub(super) fn node_status(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    resources(new, errors);
    node_change(old, new, errors);
}

/// Where a kubelet's configuration came from, when that was still a matter of the API.
fn config_source(source: &At<'_>, is_status: bool, errors: &mut Vec<FieldError>) {
    let map = source.get("configMap");
    if !map.present() {
        errors.push(FieldError::invalid(
            &source.field,
            &capitalized(source.value),
            "exactly one reference subfield must be non-nil",
        ));
        return;
    }
    for (field, shown) in [("uid", "uid"), ("resourceVersion", "resourceVersion")] {
        let field = map.get(field);
        match (is_status, field.is_empty()) {
            (true, true) => errors.push(field.required(&format!("{shown} must be set in status"))),
            (false, false) => errors.push(field.forbidden(&format!("{shown} must not be set in spec"))),
            _ => {}
        }
    }
    for name in ["namespace", "name"] {
        let field = map.get(name);
        if field.is_empty() {
            errors.push(field.required(&format!("{name} must be set")));
        } else if name == "namespace" {
            field.check(label(field.text()), errors);
        } else {
            field.check(subdomain(field.text()), errors);
        }
    }
    let key = map.get("kubeletConfigKey");
    if key.is_empty() {
        errors.push(key.required("kubeletConfigKey must be set"));
    } else {
        check_key(key.text(), &key.field, errors);
    }
}

/// What nodes are warned of.
pub(super) fn node_warnings(node: &Value) -> Vec<String> {
    let spec = At::root(node).get("spec");
    let mut warnings = Vec::new();
    if spec.get("configSource").present() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !spec.get("externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    warnings
}
