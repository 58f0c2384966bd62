//! Rules of persistent volumes, and of those that an attachment describes in itself. What the fields of one source must
//! hold is in `facts/rules.tsv`.

use crate::tree::Value;

use crate::resources::FieldError;
use crate::resources::core::pods::placement::node_selector_term;
use crate::resources::core::pods::volumes::{ISCSI_LEN_MAX, ISCSI_LEN_RULE, check_iscsi, check_source};
use crate::resources::core::pods::warnings::{deprecated_source, warn_node_selector};
use crate::resources::lookup::{map, text};
use crate::resources::names::{label, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::{At, capitalized};

pub(super) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];

/// Every source of a volume, in the order in which they are looked at, and the name that a second one is refused by.
const SOURCES: &[(&str, &str)] = &[
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

/// What is wrong with a volume.
pub(in crate::resources::core) fn volume(volume: &Value, errors: &mut Vec<FieldError>) {
    let volume = At::root(volume);
    let spec = volume.get("spec");
    capacity(&spec.get("capacity"), errors);
    spec.get("persistentVolumeReclaimPolicy")
        .one_of(RECLAIM_POLICIES, errors);
    spec.get("volumeMode").one_of(VOLUME_MODES, errors);
    let affinity = spec.get("nodeAffinity");
    if affinity.present() {
        let required = affinity.get("required");
        if !required.present() {
            errors.push(required.required("must specify required node constraints"));
        }
        for term in required.get("nodeSelectorTerms").items() {
            node_selector_term(&term, true, errors);
        }
    }
    let class = spec.get("storageClassName");
    if !class.is_empty() {
        class.check(subdomain(class.text()), errors);
    }
    described(&spec, volume.get("metadata.name").text(), errors);
}

/// What is wrong with a volume that is described where it is attached: it is a CSI volume that CSI took over from Kubernetes'
/// own drivers.
pub(in crate::resources) fn inline_volume(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    const CONTEXT: &str = "in the context of inline volumes";
    for field in ["claimRef", "capacity", "nodeAffinity", "storageClassName"] {
        let field = spec.get(field);
        if !field.is_empty() {
            errors.push(field.forbidden(&format!("may not be specified {CONTEXT}")));
        }
    }
    if !spec.get("csi").present() {
        errors.push(spec.get("csi").required(&format!("has to be specified {CONTEXT}")));
    }
    let policy = spec.get("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        errors.push(policy.forbidden(&format!("may only be Retain {CONTEXT}")));
    }
    let mode = spec.get("volumeMode");
    if !matches!(mode.text(), "" | "Filesystem") {
        errors.push(mode.forbidden(&format!("may not specify volumeMode other than Filesystem {CONTEXT}")));
    }
    described(spec, "", errors);
}

/// What holds wherever a volume is described: how it is accessed, and where it is.
fn described(spec: &At<'_>, name: &str, errors: &mut Vec<FieldError>) {
    access_modes(&spec.get("accessModes"), errors);
    let mut sources = SOURCES.iter().filter(|(source, _)| spec.get(*source).present());
    match sources.next() {
        None => errors.push(spec.required("must specify a volume type")),
        Some((source, _)) => of_source(source, spec, name, errors),
    }
    for (more, shown) in sources {
        // Nothing else is said of a second one, but where kube-apiserver forgets that it is one.
        if *more == "flexVolume" {
            check_source(more, spec, errors);
            continue;
        }
        let within = format!("{}.{more}.", spec.field);
        errors.retain(|error| !error.field.starts_with(&within));
        errors.push(spec.get(*shown).forbidden("may not specify more than 1 volume type"));
    }
    let path = spec.get("hostPath.path");
    if spec.get("persistentVolumeReclaimPolicy").text() == "Recycle" && is_top(path.text()) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(spec.get("persistentVolumeReclaimPolicy").forbidden(detail));
    }
    let class = spec.get("volumeAttributesClassName");
    if class.present() {
        if class.is_empty() {
            errors.push(class.required("an empty string is disallowed"));
        } else {
            class.check(subdomain(class.text()), errors);
        }
        if !spec.get("csi").present() {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(spec.get("csi").required(detail));
        }
    }
}

/// Whether a path is `/`, however it is written.
fn is_top(path: &str) -> bool {
    let mut depth = 0_usize;
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

/// The one entry of a volume's capacity is its size, and that is positive.
fn capacity(capacity: &At<'_>, errors: &mut Vec<FieldError>) {
    if capacity.is_empty() {
        errors.push(capacity.required(""));
    }
    let is_size = |entries: &crate::tree::Map| entries.len() == 1 && entries.contains_key("storage");
    if !capacity.value.as_object().is_some_and(is_size) {
        errors.push(capacity.not_supported(&["storage"]));
    }
    for (_, amount) in capacity.entries() {
        let Some(quantity) = Quantity::parse(amount.text()) else {
            continue;
        };
        if quantity.nanos() <= 0 {
            errors.push(amount.invalid("must be greater than zero"));
        }
        basic_amount(&amount, errors);
    }
}

/// An amount of anything is not negative.
pub(super) fn basic_amount(amount: &At<'_>, errors: &mut Vec<FieldError>) {
    if let Some(quantity) = Quantity::parse(amount.text()).filter(|quantity| quantity.nanos() < 0) {
        let number = quantity.nanos() / 1_000_000_000;
        let detail = "must be a valid resource quantity";
        errors.push(FieldError::invalid_shown(&amount.field, &number.to_string(), detail));
    }
}

/// Each mode is one, and the one for a single Pod stands alone.
pub(super) fn access_modes(modes: &At<'_>, errors: &mut Vec<FieldError>) {
    let (mut alone, mut others) = (false, false);
    for mode in modes.items() {
        let is_known = ACCESS_MODES.contains(&mode.text());
        if !is_known {
            errors.push(FieldError::not_supported(&modes.field, mode.value, ACCESS_MODES));
        }
        let is_alone = mode.text() == "ReadWriteOncePod";
        alone |= is_alone;
        others |= is_known && !is_alone;
    }
    if alone && others {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
}

/// What is said of the source of a volume besides its single fields.
fn of_source(source: &'static str, spec: &At<'_>, name: &str, errors: &mut Vec<FieldError>) {
    let at = spec.get(source);
    match source {
        "glusterfs" => {
            let namespace = at.get("endpointsNamespace");
            if namespace.present() {
                namespace.check(label(namespace.text()), errors);
            }
        }
        "iscsi" => {
            check_iscsi(&at, errors);
            let portal = at.get("targetPortal");
            if at.get("initiatorName").present() && name.len() + 1 + portal.text().len() > ISCSI_LEN_MAX {
                errors.push(portal.named(&at, "targetportal").invalid(ISCSI_LEN_RULE));
            }
            let secret = at.get("secretRef");
            if secret.present() && secret.get("name").is_empty() {
                errors.push(secret.get("name").required(""));
            }
        }
        "cinder" | "storageos" => {
            let secret = at.get("secretRef");
            for field in ["name", "namespace"] {
                if secret.present() && secret.get(field).is_empty() {
                    errors.push(secret.get(field).required(""));
                }
            }
        }
        "azureFile" => {
            let namespace = at.get("secretNamespace");
            if namespace.present() && namespace.is_empty() {
                errors.push(namespace.required(""));
            }
        }
        "local" => {
            if !spec.get("nodeAffinity").present() {
                let detail = "Local volume requires node affinity";
                errors.push(spec.get("nodeAffinity").required(detail));
            }
        }
        "csi" => {
            driver_name(&at.get("driver"), errors);
            for secret in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                let secret = at.get(secret);
                if secret.present() {
                    secret_reference(&secret, errors);
                }
            }
        }
        other => check_source(other, spec, errors),
    }
}

fn secret_reference(secret: &At<'_>, errors: &mut Vec<FieldError>) {
    for (field, wrong) in [("name", subdomain as fn(&str) -> Vec<String>), ("namespace", label)] {
        let field = secret.get(field);
        if field.is_empty() {
            errors.push(field.required(""));
        } else {
            field.check(wrong(field.text()), errors);
        }
    }
}

/// What a change of a volume may not do.
pub(in crate::resources::core) fn volume_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let (before, after) = (At::root(old).get("spec"), At::root(new).get("spec"));
    let is_same = |source: &str| {
        let (before, after) = (before.get(source.to_owned()), after.get(source.to_owned()));
        before.value == after.value || source == "csi" && may_expand_now(&before, &after)
    };
    if !SOURCES.iter().all(|(source, _)| is_same(source)) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    stays(
        "volumeMode",
        &before.get("volumeMode"),
        &after.get("volumeMode"),
        errors,
    );
    let affinity = before.get("nodeAffinity");
    if affinity.present() {
        affinity_stays(&affinity, &after.get("nodeAffinity"), errors);
    }
    let class = "volumeAttributesClassName";
    if before.get(class).present() && !after.get(class).present() {
        errors.push(
            after
                .get(class)
                .forbidden("update from non-nil value to nil is forbidden"),
        );
    }
}

/// kube-apiserver names the field without the spec that it is in.
pub(super) fn stays(name: &str, old: &At<'_>, new: &At<'_>, errors: &mut Vec<FieldError>) {
    if old.value != new.value {
        errors.push(FieldError::invalid(name, new.value, "field is immutable"));
    }
}

/// Whether nothing but the secret for expanding came to a CSI volume.
fn may_expand_now(old: &At<'_>, new: &At<'_>) -> bool {
    const SECRET: &str = "controllerExpandSecretRef";
    let (Some(old), Some(new)) = (old.value.as_object(), new.value.as_object()) else {
        return false;
    };
    let mut without = new.clone();
    without.remove(SECRET);
    !old.contains_key(SECRET) && *old == without
}

/// Where a volume can be reached from stays, but labels of nodes may take their newer names.
fn affinity_stays(old: &At<'_>, new: &At<'_>, errors: &mut Vec<FieldError>) {
    if renamed(old.value) != renamed(new.value) || old.value != new.value && renamed(new.value) != *new.value {
        let shown = capitalized(new.value);
        errors.push(FieldError::invalid("nodeAffinity", &shown, "field is immutable"));
    }
}

/// A node affinity with the newer names of labels.
fn renamed(affinity: &Value) -> Value {
    match affinity {
        Value::Array(list) => list.iter().map(renamed).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let newer = match (name.as_str(), value.as_str()) {
                    ("key", Some("beta.kubernetes.io/os")) => Some("kubernetes.io/os"),
                    ("key", Some("beta.kubernetes.io/arch")) => Some("kubernetes.io/arch"),
                    ("key", Some("failure-domain.beta.kubernetes.io/zone")) => Some("topology.kubernetes.io/zone"),
                    ("key", Some("failure-domain.beta.kubernetes.io/region")) => Some("topology.kubernetes.io/region"),
                    ("key", Some("beta.kubernetes.io/instance-type")) => Some("node.kubernetes.io/instance-type"),
                    _ => None,
                };
                (name.clone(), newer.map_or_else(|| renamed(value), Value::from))
            });
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// What volumes are warned of.
pub(in crate::resources::core) fn volume_warnings(volume: &Value) -> Vec<String> {
    let mut warnings = annotation_warnings(
        volume,
        &[
            (
                "volume.beta.kubernetes.io/storage-class",
                "deprecated since v1.8; use \"storageClassName\" attribute instead",
            ),
            (
                "volume.beta.kubernetes.io/mount-options",
                "deprecated since v1.31; use \"mountOptions\" attribute instead",
            ),
        ],
    );
    if text(volume, "/spec/persistentVolumeReclaimPolicy") == "Recycle" {
        let warning = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the \
                       recommended approach is to use dynamic provisioning.";
        warnings.push(warning.to_owned());
    }
    let spec = At::root(volume).get("spec");
    warn_node_selector(&spec.get("nodeAffinity.required.nodeSelectorTerms"), &mut warnings);
    for (source, _) in SOURCES {
        if let Some((shown, since)) = deprecated_source(source).filter(|_| spec.get(*source).present()) {
            warnings.push(format!("spec.{shown}: {since}"));
        }
    }
    warnings
}

/// Warnings of annotations that are there.
pub(super) fn annotation_warnings(object: &Value, known: &[(&str, &str)]) -> Vec<String> {
    let annotations = map(object, "/metadata/annotations");
    let is_there = |name: &str| annotations.is_some_and(|annotations| annotations.contains_key(name));
    let there = known.iter().filter(|(name, _)| is_there(name));
    there
        .map(|(name, what)| format!("metadata.annotations[{name}]: {what}"))
        .collect()
}
