//! Persistent volumes and their claims.

mod claim_rules;
mod volume_rules;

use crate::tree::{Value, json};

use crate::resources::Context;
use crate::resources::edit::{add_finalizer, default_at, set_at};
use crate::resources::lookup::{map, present, text, texts};
use crate::resources::row::Row;

pub(in crate::resources) use claim_rules::claim_spec;
pub(super) use claim_rules::{claim, claim_change, claim_status, claim_warnings, settle_data_source};
pub(in crate::resources) use volume_rules::inline_volume;
pub(super) use volume_rules::{volume, volume_change, volume_warnings};

/// Before `spec.storageClassName` there was this annotation; where it is set it still wins.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn volume_cells(row: &mut Row<'_>) {
    let volume = row.object;
    let claim = match volume.pointer("/spec/claimRef").filter(|claim| !claim.is_null()) {
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        None => String::new(),
    };
    row.name()
        .text_or("/spec/capacity/storage", "0")
        .text(access_modes(&texts(volume, "/spec/accessModes")))
        .text_at("/spec/persistentVolumeReclaimPolicy")
        .text(phase(volume))
        .text(claim)
        .text(storage_class_name(volume))
        .text_or("/spec/volumeAttributesClassName", "<unset>")
        .text_at("/status/reason")
        .age()
        .text_or("/spec/volumeMode", "<unset>");
}

pub(super) fn claim_cells(row: &mut Row<'_>) {
    let claim = row.object;
    row.name().text(phase(claim)).text_at("/spec/volumeName");
    if text(claim, "/spec/volumeName").is_empty() {
        row.text("").text("");
    } else {
        row.text_or("/status/capacity/storage", "0")
            .text(access_modes(&texts(claim, "/status/accessModes")));
    }
    row.text(storage_class_name(claim))
        .text_or("/spec/volumeAttributesClassName", "<unset>")
        .age()
        .text_or("/spec/volumeMode", "<unset>");
}

/// The storage class that a volume or claim names.
fn storage_class_name(object: &Value) -> &str {
    let annotation = map(object, "/metadata/annotations").and_then(|annotations| annotations.get(CLASS_ANNOTATION));
    annotation
        .and_then(Value::as_str)
        .unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

fn phase(object: &Value) -> &str {
    if present(object, "/metadata/deletionTimestamp") {
        "Terminating"
    } else {
        text(object, "/status/phase")
    }
}

/// Access modes in their short form and usual order.
fn access_modes(modes: &[&str]) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    known
        .iter()
        .filter(|(mode, _)| modes.contains(mode))
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
}

/// What a volume that stands for itself gets; one that is described where it is attached does not.
pub(super) fn volume_defaults(volume: &mut Value) {
    default_at(volume, "/status", "phase", "Pending");
    default_at(volume, "/spec", "persistentVolumeReclaimPolicy", "Retain");
    default_at(volume, "/spec", "volumeMode", "Filesystem");
}

pub(super) fn prepare_claim(claim: &mut Value) {
    settle_data_source(None, claim);
    set_at(claim, "", "status", json!({"phase": "Pending"}));
    add_finalizer(claim, "kubernetes.io/pvc-protection");
}

pub(super) fn prepare_volume(volume: &mut Value, context: &Context<'_>) {
    set_at(
        volume,
        "",
        "status",
        json!({"phase": "Pending", "lastPhaseTransitionTime": context.now()}),
    );
    add_finalizer(volume, "kubernetes.io/pv-protection");
}

/// The time of a change of phase is noted, unless the change names one itself.
pub(super) fn note_phase_change(old: &Value, new: &mut Value, _: Option<&str>, context: &Context<'_>) {
    let time = "/status/lastPhaseTransitionTime";
    if text(old, "/status/phase") != text(new, "/status/phase") && text(old, time) == text(new, time) {
        set_at(new, "/status", "lastPhaseTransitionTime", context.now());
    }
}
