//! Rules of `storage.k8s.io`.

use std::collections::{HashMap, HashSet};

use super::FieldError;
use super::core::volumes::inline_volume;
use super::metadata;
use super::names::{qualified_name, subdomain};
use super::quantity::Quantity;
use super::validate::{At, capitalized, immutable, label_selector};
use crate::tree::Value;

/// Longest name of a CSI driver, in bytes.
const DRIVER_NAME_LEN_MAX: usize = 63;
/// Longest ID of a node among the nodes of a CSI driver, in bytes.
const NODE_ID_LEN_MAX: usize = 192;
/// Longest message of an error of a volume, in bytes.
const MESSAGE_LEN_MAX: usize = 1024;
/// Most parameters of a class, and most bytes of all of them.
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_LEN_MAX: usize = 256 * 1024;

/// What a class tells its provisioner.
pub(super) fn storage_class(class: &Value, errors: &mut Vec<FieldError>) {
    let class = At::root(class);
    let provisioner = class.get("provisioner");
    if !provisioner.is_empty() {
        provisioner.check(qualified_name(&provisioner.text().to_lowercase()), errors);
    }
    parameters(&class.get("parameters"), errors);
    let mut terms = HashSet::new();
    for term in class.get("allowedTopologies").items() {
        for expression in term.get("matchLabelExpressions").items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            if values.is_empty() {
                errors.push(values.required(""));
            }
            let mut known = HashSet::new();
            for value in values.items() {
                if !known.insert(value.text()) {
                    errors.push(value.duplicate());
                }
            }
            key.check(qualified_name(key.text()), errors);
        }
        if !terms.insert(term.value.to_string()) {
            errors.push(FieldError::duplicate_shown(&term.field, "\"\""));
        }
    }
}

fn parameters(parameters: &At<'_>, errors: &mut Vec<FieldError>) {
    let Some(entries) = parameters.value.as_object() else {
        return;
    };
    if entries.len() > PARAMETERS_MAX {
        errors.push(FieldError::too_long(&parameters.field, PARAMETERS_MAX));
        return;
    }
    let mut len = 0;
    for (name, value) in entries {
        if name.is_empty() {
            errors.push(FieldError::invalid_text(
                &parameters.field,
                "",
                "field can not be empty.",
            ));
        }
        len += name.len() + value.as_str().unwrap_or("").len();
    }
    if len > PARAMETERS_LEN_MAX {
        errors.push(FieldError::too_long(&parameters.field, PARAMETERS_LEN_MAX));
    }
}

/// The driver and what it is told.
pub(super) fn attributes_class(class: &Value, errors: &mut Vec<FieldError>) {
    let class = At::root(class);
    driver_name(&class.get("driverName"), errors);
    let all = class.get("parameters");
    if all.is_empty() {
        errors.push(all.required("must contain at least one key/value pair"));
    }
    parameters(&all, errors);
}

/// A DNS name that is not too long; capitals are tolerated.
pub(in crate::resources) fn driver_name(name: &At<'_>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    if name.text().len() > DRIVER_NAME_LEN_MAX {
        errors.push(FieldError::too_long(&name.field, DRIVER_NAME_LEN_MAX));
    }
    name.check(subdomain(&name.text().to_lowercase()), errors);
}

/// What is attached by whom to which node.
pub(super) fn attachment(attachment: &Value, errors: &mut Vec<FieldError>) {
    const EXACTLY_ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let spec = At::root(attachment).get("spec");
    let attacher = spec.get("attacher");
    if !attacher.is_empty() {
        driver_name(&attacher, errors);
    }
    let source = spec.get("source");
    let (inline, name) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    match (inline.present(), name.present()) {
        (false, false) => errors.push(source.required(EXACTLY_ONE)),
        (true, true) => errors.push(source.forbidden(EXACTLY_ONE)),
        (false, true) if name.is_empty() => errors.push(name.required("must specify non empty persistentVolumeName")),
        (false, true) => name.check(subdomain(name.text()), errors),
        (true, false) => inline_volume(&inline, errors),
    }
    let node = spec.get("nodeName");
    node.check(subdomain(node.text()), errors);
}

/// Messages of errors are bounded.
pub(super) fn attachment_status(_: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let status = At::root(new).get("status");
    for error in ["attachError.message", "detachError.message"] {
        let message = status.get(error);
        if message.text().len() > MESSAGE_LEN_MAX {
            errors.push(FieldError::too_long(&message.field, MESSAGE_LEN_MAX));
        }
    }
}

/// How volumes of a driver are mounted.
pub(super) fn driver(driver: &Value, errors: &mut Vec<FieldError>) {
    const MODES: &[&str] = &["Ephemeral", "Persistent"];
    let driver = At::root(driver);
    driver_name(
        &At {
            field: super::validate::FieldPath::made("name".to_owned()),
            ..driver.get("metadata.name")
        },
        errors,
    );
    let spec = driver.get("spec");
    let mut audiences = HashSet::new();
    for request in spec.get("tokenRequests").items() {
        let lifetime = request.get("expirationSeconds");
        if let Some(seconds) = lifetime.integer() {
            if seconds < 600 {
                errors.push(lifetime.invalid("may not specify a duration less than 10 minutes"));
            }
            if seconds > 1 << 32 {
                errors.push(lifetime.invalid("may not specify a duration larger than 2^32 seconds"));
            }
        }
        let audience = request.get("audience");
        if !audiences.insert(audience.text()) {
            errors.push(audience.duplicate());
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes.items().filter(|mode| !MODES.contains(&mode.text())) {
        errors.push(FieldError::not_supported(&modes.field, mode.value, MODES));
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.integer().is_some_and(|seconds| seconds < 10) {
        errors.push(period.invalid("must be greater than or equal to 10 seconds"));
    }
}

/// What kubelets were told by the drivers of a node.
pub(super) fn node(node: &Value, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for driver in At::root(node).get("spec.drivers").items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        driver_name(&name, errors);
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
        if id.is_empty() {
            errors.push(id.required(""));
        } else if id.text().len() > NODE_ID_LEN_MAX {
            errors.push(FieldError::too_long(&id.field, NODE_ID_LEN_MAX));
        }
        driver.get("allocatable.count").not_negative(errors);
        let keys = driver.get("topologyKeys");
        let mut known = HashSet::new();
        for key in keys.items() {
            if key.is_empty() {
                errors.push(driver.required(""));
            }
            if !known.insert(key.text()) {
                errors.push(FieldError::duplicate(&driver.field, key.value));
            }
            let wrong = qualified_name(key.text()).into_iter();
            errors.extend(wrong.map(|what| FieldError::invalid(&driver.field, keys.value, what)));
        }
    }
}

/// What a driver told a kubelet stays while the driver is there, but for how many volumes it can attach.
pub(super) fn node_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let before = At::root(old).get("spec.drivers");
    let before: HashMap<&str, &Value> = before
        .items()
        .map(|driver| (driver.get("name").text(), driver.value))
        .collect();
    for driver in At::root(new).get("spec.drivers").items() {
        let known = before.get(driver.get("name").text());
        let is_same = |field: &str| known.is_none_or(|known| known.get(field) == driver.value.get(field));
        if !["nodeID", "topologyKeys"].into_iter().all(is_same) {
            let shown = capitalized(driver.value);
            errors.push(FieldError::invalid("CSINodeDriver", &shown, "field is immutable"));
        }
    }
}

/// How much can be had where.
pub(super) fn capacity(capacity: &Value, errors: &mut Vec<FieldError>) {
    let capacity = At::root(capacity);
    let topology = capacity.get("nodeTopology");
    if topology.present() {
        label_selector(&topology, errors);
    }
    let class = capacity.get("storageClassName");
    class.check(subdomain(class.text()), errors);
    for amount in ["capacity", "maximumVolumeSize"] {
        let amount = capacity.get(amount);
        if Quantity::parse(amount.text()).is_some_and(|quantity| quantity.nanos() < 0) {
            errors.push(amount.invalid("must be greater than or equal to 0"));
        }
    }
}

/// Where and of which class stays.
pub(super) fn capacity_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for field in ["nodeTopology", "storageClassName"] {
        immutable(old, new, field, errors);
    }
}

/// Which nodes Pods of a runtime go to, and that its handler stays.
pub(super) fn runtime_class(class: &Value, errors: &mut Vec<FieldError>) {
    let scheduling = At::root(class).get("scheduling");
    let selector = scheduling.get("nodeSelector");
    metadata::labels(Some(selector.value), &selector.field, errors);
    let mut known = HashSet::new();
    for toleration in scheduling.get("tolerations").items() {
        let key = ["key", "operator", "value", "effect"].map(|field| toleration.get(field).text());
        if !known.insert(key) {
            errors.push(toleration.duplicate());
        }
    }
}
