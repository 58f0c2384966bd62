//! Rules of a Pod's volumes. What the fields of one source must hold is in `facts/rules.tsv`.

use std::collections::{HashMap, HashSet};

use crate::tree::Value;

use super::environment::{field_reference, resource_reference};
use super::rules::Whole;
use crate::resources::FieldError;
use crate::resources::lookup::{boolean, text};
use crate::resources::names::subdomain;
use crate::resources::quantity::Quantity;
use crate::resources::storage_rules::driver_name;
use crate::resources::validate::{At, local_path};

/// Every source of a volume, in the order in which they are looked at, and the name that a second one is refused by.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// What a volume of files may show of a Pod.
const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Checks the volumes; those come back with which nothing is wrong.
pub(super) fn check_volumes<'a>(whole: &Whole<'a>, errors: &mut Vec<FieldError>) -> HashMap<&'a str, &'a Value> {
    let mut sound = HashMap::new();
    if whole.spec.value.get("volumes").is_none() {
        return sound;
    }
    let volumes = whole.spec.get("volumes");
    // What the table of rules has found already; mostly nothing.
    let refused_before = refused(errors, &volumes);
    let made = claims_made(whole);
    for (i, volume) in volumes.items().enumerate() {
        let before = errors.len();
        check_volume(&volume, whole, errors);
        let name = text(volume.value, "/name");
        if sound.contains_key(name) {
            errors.push(volume.get("name").duplicate());
        }
        if errors.len() == before && !refused_before.contains(&i) {
            sound.insert(name, volume.value);
        }
        let claim = text(volume.value, "/persistentVolumeClaim/claimName");
        if made.contains(claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(volume.get("persistentVolumeClaim.claimName").invalid(detail));
        }
    }
    sound
}

/// Which items of a list errors are about.
fn refused(errors: &[FieldError], list: &At<'_>) -> HashSet<usize> {
    if errors.is_empty() {
        return HashSet::new();
    }
    let start = format!("{}[", list.field);
    let places = errors.iter().filter_map(|error| {
        let (place, _) = error.field.strip_prefix(&start)?.split_once(']')?;
        place.parse().ok()
    });
    places.collect()
}

/// The names of the claims that are made for ephemeral volumes of the Pod.
fn claims_made(whole: &Whole<'_>) -> HashSet<String> {
    let Some(pod) = whole.pod.filter(|pod| !pod.is_empty()) else {
        return HashSet::new();
    };
    let volumes = whole.spec.value.get("volumes").and_then(Value::as_array);
    let ephemeral = volumes
        .into_iter()
        .flatten()
        .filter(|volume| volume.get("ephemeral").is_some());
    ephemeral
        .map(|volume| format!("{pod}-{}", text(volume, "/name")))
        .collect()
}

fn check_volume(volume: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let mut first = sole_source(volume.value);
    let all = if first.is_some() { &[][..] } else { SOURCES };
    for (source, name) in all {
        if volume.value.get(*source).is_none_or(Value::is_null) {
            continue;
        }
        if first.is_some() {
            errors.push(volume.get(*name).forbidden("may not specify more than 1 volume type"));
        } else {
            first = Some(*source);
        }
    }
    let Some(source) = first else {
        errors.push(volume.required("must specify a volume type"));
        return;
    };
    match source {
        "emptyDir" => {
            let limit = volume.get("emptyDir.sizeLimit");
            if Quantity::parse(limit.text()).is_some_and(|limit| limit.nanos() < 0) {
                errors.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
            }
        }
        "downwardAPI" => {
            let source = volume.get("downwardAPI");
            for file in source.get("items").items() {
                check_file(&file, &source, errors);
            }
        }
        "projected" => check_projected(&volume.get("projected"), whole, errors),
        "ephemeral" => check_ephemeral(volume, whole, errors),
        "image" => {
            let reference = volume.get("image.reference");
            if whole.pod.is_some() && reference.is_empty() {
                errors.push(reference.required(""));
            }
        }
        _ => check_source(source, volume, errors),
    }
}

/// The source of a volume that has a name and one source, as nearly all have.
fn sole_source(volume: &Value) -> Option<&'static str> {
    let fields = volume.as_object().filter(|fields| fields.len() == 2)?;
    let (name, value) = fields.iter().find(|(name, _)| **name != *"name")?;
    let (source, _) = SOURCES.iter().find(|(source, _)| **name == **source)?;
    (fields.contains_key("name") && !value.is_null()).then_some(*source)
}

/// Kinds of storage that are seldom seen.
pub(in crate::resources::core) fn check_source(name: &'static str, volume: &At<'_>, errors: &mut Vec<FieldError>) {
    let source = volume.get(name);
    match name {
        "gcePersistentDisk" => {
            let shown = source.named(volume, "persistentDisk");
            let (disk, partition) = (shown.get("pdName"), shown.get("partition"));
            if disk.is_empty() {
                errors.push(disk.required(""));
            }
            if partition.integer().is_some_and(|number| !(0..=255).contains(&number)) {
                errors.push(partition.invalid("must be between 1 and 255, inclusive"));
            }
        }
        "nfs" => {
            let path = source.get("path");
            if !path.text().starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid_text(&path.field, path.text(), detail));
            }
        }
        "iscsi" => {
            check_iscsi(&source, errors);
            let len = text(volume.value, "/name").len() + 1 + source.get("targetPortal").text().len();
            if source.get("initiatorName").present() && len > ISCSI_LEN_MAX {
                errors.push(volume.get("name").invalid(ISCSI_LEN_RULE));
            }
        }
        "flocker" => {
            let name = source.get("datasetName");
            match (name.is_empty(), source.get("datasetUUID").is_empty()) {
                (true, true) => errors.push(source.required("one of datasetName and datasetUUID is required")),
                (false, false) => {
                    let detail = "datasetName and datasetUUID can not be specified simultaneously";
                    errors.push(FieldError::invalid_text(&source.field, "resource", detail));
                }
                _ => {}
            }
            if name.text().contains('/') {
                errors.push(name.invalid("must not contain '/'"));
            }
        }
        "cinder" | "storageos" | "csi" => {
            let secret = source.get(if name == "csi" {
                "nodePublishSecretRef"
            } else {
                "secretRef"
            });
            if secret.present() && secret.get("name").is_empty() {
                errors.push(secret.get("name").required(""));
            }
            let driver = source.get("driver");
            if name == "csi" && !driver.is_empty() {
                driver_name(&driver, errors);
            }
        }
        "quobyte" => {
            let (registry, tenant) = (source.get("registry"), source.get("tenant"));
            if registry.is_empty() {
                return;
            }
            if tenant.text().len() > 64 {
                errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
                return;
            }
            for pair in registry.text().split(',') {
                let colons = pair.bytes().filter(|byte| *byte == b':').count();
                if colons != 1 && !(pair.starts_with('[') && pair.contains("]:")) {
                    let detail = "must be a host:port pair or multiple pairs separated by commas";
                    errors.push(registry.invalid(detail));
                }
            }
        }
        "fc" => check_fibre(&source, errors),
        "flexVolume" => {
            for (key, entry) in source.get("options").entries() {
                let namespace = format!(".{}", key.split('/').next().unwrap_or("").to_lowercase());
                if key.contains('/') || !namespace.is_empty() {
                    let reserved = [".kubernetes.io", ".k8s.io"].iter().any(|end| namespace.ends_with(end));
                    if reserved {
                        let detail = "kubernetes.io and k8s.io namespaces are reserved";
                        errors.push(FieldError::invalid_text(&entry.field, key, detail));
                    }
                }
            }
        }
        "azureDisk" => {
            let (kind, uri) = (source.get("kind"), source.get("diskURI"));
            if kind.text() == "Managed" && !uri.text().starts_with("/subscriptions/") {
                let like =
                    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
                errors.push(FieldError::not_supported(&uri.field, &uri.text().into(), &[like]));
            } else if kind.present() && kind.text() != "Managed" && !uri.text().starts_with("https://") {
                let like = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
                errors.push(FieldError::not_supported(&uri.field, &uri.text().into(), &[like]));
            }
        }
        _ => {}
    }
}

/// Longest name of an iSCSI volume with the portal that it is at, in bytes, when an initiator is named ...
pub(in crate::resources::core) const ISCSI_LEN_MAX: usize = 64;
/// ... and what is said of a longer one.
pub(in crate::resources::core) const ISCSI_LEN_RULE: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
    iscsi.initiatorName is specified.";

/// The names of an iSCSI volume.
pub(in crate::resources::core) fn check_iscsi(source: &At<'_>, errors: &mut Vec<FieldError>) {
    const BEGINNINGS: &str = "must be valid format starting with iqn, eui, or naa";
    let name = source.get("iqn");
    if !name.is_empty() {
        match iscsi_name(name.text()) {
            None => errors.push(name.invalid(BEGINNINGS)),
            Some(false) => errors.push(name.invalid("must be valid format")),
            Some(true) => {}
        }
    }
    if (boolean(source.value, "/chapAuthDiscovery") == Some(true)
        || boolean(source.value, "/chapAuthSession") == Some(true))
        && !source.get("secretRef").present()
    {
        errors.push(source.get("secretRef").required(""));
    }
    let initiator = source.get("initiatorName");
    if !initiator.present() {
        return;
    }
    let shown = initiator.named(source, "initiatorname");
    match iscsi_name(initiator.text()) {
        None => errors.push(shown.invalid(BEGINNINGS)),
        Some(false) => errors.push(shown.invalid("must be valid format")),
        Some(true) => {}
    }
}

/// Whether a name of an iSCSI node (RFC 3720) is well formed; `None` when it is of no known sort.
fn iscsi_name(name: &str) -> Option<bool> {
    let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if name.starts_with("iqn") {
        // iqn.2001-04.com.example:storage
        let rest = name.strip_prefix("iqn.").and_then(|rest| {
            let (date, host) = (rest.get(..7)?, rest.get(7..)?.strip_prefix('.')?);
            // As bytes: seven of them may be fewer letters.
            let digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_digit);
            let dated = matches!(date.as_bytes(), [year @ .., b'-', a, b] if digits(year) && digits(&[*a, *b]));
            dated.then_some(host)
        });
        let part = |text: &str| {
            text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        };
        return Some(rest.is_some_and(|rest| match rest.split_once(':') {
            Some((host, own)) => part(host) && !own.is_empty(),
            None => part(rest),
        }));
    }
    match name.split_at_checked(3)? {
        ("eui", rest) => Some(
            rest.strip_prefix('.')
                .is_some_and(|digits| digits.len() == 16 && hex(digits)),
        ),
        ("naa", rest) => Some(
            rest.strip_prefix('.')
                .is_some_and(|digits| digits.len() == 32 && hex(digits)),
        ),
        _ => None,
    }
}

fn check_fibre(source: &At<'_>, errors: &mut Vec<FieldError>) {
    let (targets, unit) = (source.get("targetWWNs"), source.get("lun"));
    match (targets.is_empty(), source.get("wwids").is_empty()) {
        (true, true) => errors.push(targets.required("must specify either targetWWNs or wwids, but not both")),
        (false, false) => {
            errors.push(targets.invalid("targetWWNs and wwids can not be specified simultaneously"));
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    match unit.integer() {
        None => errors.push(unit.required("lun is required if targetWWNs is specified")),
        Some(number) if !(0..=255).contains(&number) => {
            errors.push(unit.invalid("must be between 0 and 255, inclusive"));
        }
        Some(_) => {}
    }
}

/// A file that shows a field or an amount of resources; kube-apiserver names the list's owner, not the file.
fn check_file<'a>(file: &At<'a>, source: &At<'a>, errors: &mut Vec<FieldError>) {
    let named = |name: &'static str| file.get(name).named(source, name);
    let path = named("path");
    if path.is_empty() {
        errors.push(path.required(""));
    }
    local_path(&path, errors);
    let (field, resource) = (named("fieldRef"), named("resourceFieldRef"));
    match (field.present(), resource.present()) {
        (true, both) => {
            field_reference(&field, FILE_FIELDS, errors);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid_text(&source.field, "resource", detail));
            }
        }
        (false, true) => resource_reference(&resource, true, errors),
        (false, false) => errors.push(source.required("one of fieldRef and resourceFieldRef is required")),
    }
    let mode = named("mode");
    if mode.integer().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.push(mode.invalid("must be a number between 0 and 0777 (octal), both inclusive"));
    }
}

fn check_projected(projected: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    const CONFLICT: &str = "conflicting duplicate paths";
    let mut paths: HashSet<&str> = HashSet::new();
    let unnamed = whole.pod.is_some() && text(whole.spec.value, "/serviceAccountName").is_empty();
    for source in projected.get("sources").items() {
        let mut count = 0;
        for name in ["secret", "configMap", "downwardAPI", "serviceAccountToken"] {
            if source.value.get(name).is_none_or(Value::is_null) {
                continue;
            }
            count += 1;
            let from = source.get(name);
            if name == "serviceAccountToken" {
                if unnamed {
                    errors.push(from.forbidden("must not be specified when serviceAccountName is not set"));
                }
                check_token(&from, projected, errors);
                continue;
            }
            for file in from.get("items").items() {
                let path = text(file.value, "/path");
                if name == "downwardAPI" {
                    check_file(&file, &from, errors);
                }
                if path.is_empty() {
                    continue;
                }
                if !paths.insert(path) {
                    let shown = if name == "downwardAPI" {
                        path
                    } else {
                        text(from.value, "/name")
                    };
                    errors.push(FieldError::invalid_text(&projected.field, shown, CONFLICT));
                }
            }
        }
        if count > 1 {
            errors.push(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

fn check_token<'a>(token: &At<'a>, projected: &At<'a>, errors: &mut Vec<FieldError>) {
    let expires = token.get("expirationSeconds");
    let seconds = expires.integer().unwrap_or(3600);
    if seconds < 600 {
        errors.push(expires.invalid("may not specify a duration less than 10 minutes"));
    }
    if seconds > 1 << 32 {
        errors.push(expires.invalid("may not specify a duration larger than 2^32 seconds"));
    }
    let path = token.get("path").named(projected, "path");
    if path.is_empty() {
        errors.push(path.required(""));
    } else {
        local_path(&path, errors);
    }
}

/// A claim is made of the Pod's name and the volume's.
fn check_ephemeral(volume: &At<'_>, whole: &Whole<'_>, errors: &mut Vec<FieldError>) {
    let spec = volume.get("ephemeral.volumeClaimTemplate.spec");
    if volume.get("ephemeral.volumeClaimTemplate").present() {
        crate::resources::core::volumes::claim_spec(&spec, errors);
    }
    let name = volume.get("name");
    if let Some(pod) = whole.pod.filter(|pod| !pod.is_empty() && !name.is_empty()) {
        let claim = format!("{pod}-{}", name.text());
        for what in subdomain(&claim) {
            errors.push(name.invalid(format_args!("PVC name \"{claim}\": {what}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_iscsi_nodes_are_told_whatever_letters_they_have() {
        assert_eq!(iscsi_name("iqn.2001-04.com.example:storage"), Some(true));
        for wrong in [
            "iqn.123\u{e9}45.x",
            "iqn.2001\u{e9}4.x",
            "iqn.2001/04.com",
            "iqn.\u{e9}",
            "eui.\u{e9}",
        ] {
            assert_eq!(iscsi_name(wrong), Some(false), "{wrong}");
        }
        assert_eq!(iscsi_name("\u{e9}\u{e9}"), None);
    }
}
