//! Rules of volumes and claims, quotas and ranges, nodes, namespaces and Events.

use std::collections::HashSet;

use crate::tree::{Value, json};

use super::pod_resources::{STANDARD, is_huge_pages, resource_name};
use crate::resources::FieldError;
use crate::resources::lookup::text;
use crate::resources::names::qualified_name;
use crate::resources::quantity::Quantity;
use crate::resources::validate::{At, FieldPath, cidr, immutable};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn volume(volume: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(volume).get("spec");
    access_modes(&spec.get("accessModes"), errors);
    let capacity = spec.get("capacity");
    if capacity
        .value
        .as_object()
        .is_none_or(|all| all.len() != 1 || !all.contains_key("storage"))
    {
        errors.push(capacity.not_supported(&["storage"]));
    }
    for (name, amount) in capacity.entries().filter(|(name, _)| *name == "storage") {
        let Some(quantity) = Quantity::parse(amount.text()) else {
            continue;
        };
        if quantity.nanos() <= 0 {
            errors.push(amount.invalid("must be greater than zero"));
        }
        if quantity.nanos() < 0 {
            let number = quantity.nanos() / 1_000_000_000;
            errors.push(FieldError::invalid_shown(
                format!("spec.capacity[{name}]"),
                &number.to_string(),
                "must be a valid resource quantity",
            ));
        }
    }
    let mut sources = VOLUME_SOURCES.iter().filter(|source| spec.get(**source).present());
    if sources.next().is_none() {
        errors.push(spec.required("must specify a volume type"));
    }
    for more in sources {
        errors.push(spec.get(*more).forbidden("may not specify more than 1 volume type"));
    }
    let affinity = spec.get("nodeAffinity");
    if spec.get("local").present() && !affinity.present() {
        errors.push(affinity.required("Local volume requires node affinity"));
    }
}

pub(super) fn volume_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let sources = |volume: &Value| {
        let spec = volume.get("spec").cloned().unwrap_or(Value::Null);
        VOLUME_SOURCES
            .iter()
            .map(|source| spec.get(*source).cloned())
            .collect::<Vec<_>>()
    };
    if sources(old) != sources(new) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    immutable(old, new, "spec.volumeMode", errors);
}

pub(super) fn volume_warnings(volume: &Value) -> Vec<String> {
    let recycled = text(volume, "/spec/persistentVolumeReclaimPolicy") == "Recycle";
    let warning = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                   recommended approach is to use dynamic provisioning.";
    recycled.then(|| warning.to_owned()).into_iter().collect()
}

fn access_modes(modes: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut once = false;
    for mode in modes.items() {
        if !ACCESS_MODES.contains(&mode.text()) {
            errors.push(FieldError::not_supported(&modes.field, mode.value, ACCESS_MODES));
        }
        once |= mode.text() == "ReadWriteOncePod";
    }
    if once && modes.items().count() > 1 {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

pub(super) fn claim(claim: &Value, errors: &mut Vec<FieldError>) {
    claim_spec(&At::root(claim).get("spec"), errors);
}

/// The spec of a claim, be it one or what some are made of.
pub(in crate::resources) fn claim_spec(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    access_modes(&spec.get("accessModes"), errors);
    let storage = At {
        field: FieldPath::made(format!("{}[storage]", spec.get("resources").field)),
        ..spec.get("resources.requests.storage")
    };
    if !storage.present() {
        errors.push(storage.required(""));
    } else if Quantity::parse(storage.text()).is_some_and(|quantity| quantity.nanos() <= 0) {
        errors.push(storage.invalid("must be greater than zero"));
    }
}

pub(super) fn claim_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let fixed = |claim: &Value| {
        let mut spec = claim.get("spec").cloned().unwrap_or(Value::Null);
        if let Some(fields) = spec.as_object_mut() {
            // The volume is set once, requests grow when bound, the attributes class may change.
            if text(old, "/spec/volumeName").is_empty() {
                fields.remove("volumeName");
            }
            fields.remove("resources");
            fields.remove("volumeAttributesClassName");
            if text(old, "/spec/storageClassName").is_empty() && old.pointer("/spec/storageClassName").is_none() {
                fields.remove("storageClassName");
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        errors.push(FieldError::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
}

const QUOTA_SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

pub(super) fn quota(quota: &Value, errors: &mut Vec<FieldError>) {
    let hard = At::root(quota).get("spec.hard");
    for (name, amount) in hard.entries() {
        // What is claimed is counted by its requests.
        let is_counted = name != "storage" && STANDARD.contains(&name) || is_huge_pages(name);
        if resource_name(name, &amount.field, errors) && !name.contains('/') && !is_counted {
            let detail = "must be a standard resource for quota";
            errors.push(FieldError::invalid_text(&amount.field, name, detail));
        }
        let Some(quantity) = Quantity::parse(amount.text()) else {
            continue;
        };
        if quantity.nanos() < 0 {
            errors.push(amount.invalid("must be greater than or equal to 0"));
        }
        let whole = !matches!(name, "cpu" | "requests.cpu" | "limits.cpu" | "memory")
            && !name.contains("storage")
            && !name.contains("memory");
        if whole && quantity.nanos() % 1_000_000_000 != 0 {
            errors.push(amount.invalid("must be an integer"));
        }
    }
    let scopes = At::root(quota).get("spec.scopes");
    let has = |name: &str| scopes.items().any(|scope| scope.text() == name);
    if scopes.items().any(|scope| !QUOTA_SCOPES.contains(&scope.text())) {
        errors.push(scopes.invalid("unsupported scope"));
    }
    if (has("Terminating") && has("NotTerminating")) || (has("BestEffort") && has("NotBestEffort")) {
        errors.push(scopes.invalid("conflicting scopes"));
    }
}

/// A quota of requests that is no smaller than that of limits.
pub(super) fn quota_warnings(quota: &Value) -> Vec<String> {
    let hard = |name: &str| {
        let text = At::root(quota).get("spec.hard").value.get(name)?.as_str()?;
        Some((text, Quantity::parse(text)?.nanos()))
    };
    let pairs = ["cpu", "memory", "ephemeral-storage"].into_iter();
    let warnings = pairs.filter_map(|name| {
        let (request, limit) = (hard(&format!("requests.{name}"))?, hard(&format!("limits.{name}"))?);
        let warning = format!(
            "ResourceQuota requests.{name} ({}) should be less than limits.{name} ({})",
            request.0, limit.0
        );
        (request.1 > limit.1).then_some(warning)
    });
    warnings.collect()
}

pub(super) fn limit_range(range: &Value, errors: &mut Vec<FieldError>) {
    let mut types = HashSet::new();
    for item in At::root(range).get("spec.limits").items() {
        let kind = item.get("type");
        if !matches!(kind.text(), "Container" | "Pod" | "PersistentVolumeClaim") && !kind.text().contains('/') {
            errors.push(kind.invalid("must be a standard limit type or fully qualified"));
        }
        if !types.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        if kind.text() == "Pod" {
            for field in ["default", "defaultRequest"] {
                let field = item.get(field);
                if !field.is_empty() {
                    errors.push(field.forbidden("may not be specified when `type` is 'Pod'"));
                }
            }
        }
        bounds(&item, errors);
    }
}

/// The bounds of one item must be in order, whichever of them are given.
fn bounds(item: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut names: Vec<&str> = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"]
        .iter()
        .flat_map(|part| item.get(*part).entries().map(|(name, _)| name).collect::<Vec<_>>())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let amount = |part: &str| {
            let text = item.value.get(part)?.get(name)?.as_str()?;
            Some((text, Quantity::parse(text)?.nanos()))
        };
        // Field, the value that the message shows, the two that are compared, and how they are called.
        let mut check = |field: &str, shown: &str, low: (&str, &str), high: (&str, &str)| {
            let (Some((low_text, low_nanos)), Some((high_text, high_nanos))) = (amount(low.0), amount(high.0)) else {
                return;
            };
            if low_nanos > high_nanos {
                let shown = if shown == low.0 { low_text } else { high_text };
                let detail = format!("{} {low_text} is greater than {} {high_text}", low.1, high.1);
                errors.push(FieldError::invalid_text(
                    format!("{}.{field}[{name}]", item.field),
                    shown,
                    detail,
                ));
            }
        };
        check("min", "min", ("min", "min value"), ("max", "max value"));
        check(
            "defaultRequest",
            "defaultRequest",
            ("min", "min value"),
            ("defaultRequest", "default request value"),
        );
        check(
            "defaultRequest",
            "defaultRequest",
            ("defaultRequest", "default request value"),
            ("max", "max value"),
        );
        check(
            "defaultRequest",
            "defaultRequest",
            ("defaultRequest", "default request value"),
            ("default", "default limit value"),
        );
        check("default", "min", ("min", "min value"), ("default", "default value"));
        check("default", "max", ("default", "default value"), ("max", "max value"));
        if let Some((text, nanos)) = amount("maxLimitRequestRatio")
            && nanos < 1_000_000_000
        {
            let field = format!("{}.maxLimitRequestRatio[{name}]", item.field);
            errors.push(FieldError::invalid_text(
                field,
                text,
                format!("ratio {text} is less than 1"),
            ));
        }
    }
}

pub(super) fn node(node: &Value, errors: &mut Vec<FieldError>) {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut known = HashSet::new();
    for taint in At::root(node).get("spec.taints").items() {
        // kube-apiserver looks for taints in metadata, where they once were.
        let field = taint.field.to_string().replacen("spec", "metadata", 1);
        let (key, effect) = (taint.get("key").text(), taint.get("effect"));
        let wrong = qualified_name(key).into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(format!("{field}.key"), key, what)));
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
            let value = taint.get("value").text();
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
    for range in At::root(node).get("spec.podCIDRs").items() {
        errors.extend(cidr(range.text()).map(|what| range.invalid(what)));
    }
}

pub(super) fn namespace(namespace: &Value, errors: &mut Vec<FieldError>) {
    for finalizer in At::root(namespace).get("spec.finalizers").items() {
        let name = finalizer.text();
        let mut wrong = qualified_name(name);
        if !name.contains('/') && name != "kubernetes" {
            wrong.push("name is neither a standard finalizer name nor is it fully qualified".to_owned());
        }
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text("spec.finalizers", name, what)),
        );
    }
}
