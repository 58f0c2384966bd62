//! The group `resource.k8s.io`: devices, what is asked for of them, and what is given.

mod claim_rules;
mod names;
mod slice_rules;
mod status_rules;

use std::collections::HashSet;

use crate::tree::Value;

use super::edit::{default_at, items_mut, object_at};
use super::kind::{Kind, METADATA, name_and_age};
use super::lookup::{count, list, present, text};
use super::validate::immutable_struct;
use super::{Context, FieldError};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("deviceclasses.resource.k8s.io")
        .cells(name_and_age)
        .validate(claim_rules::class),
    Kind::new("resourceclaims.resource.k8s.io")
        .status_keeps(METADATA)
        .cells(|row| {
            let state = claim_state(row.object);
            row.name().text(state).age();
        })
        .defaults(|claim| request_defaults(claim, "/spec/devices/requests"))
        .prepare_update(|old, claim, subresource, _| {
            if subresource == Some("status") {
                drop_returned(old, claim);
            }
        })
        .validate_create(|claim, errors| claim_rules::claim(claim, "spec", errors))
        .validate_update(|old, new, _, errors| immutable_struct(old, new, "spec", errors))
        .validate_status(status_rules::status),
    Kind::new("resourceclaimtemplates.resource.k8s.io")
        .cells(name_and_age)
        .defaults(|template| request_defaults(template, "/spec/spec/devices/requests"))
        .validate_create(claim_rules::template)
        .validate_update(|old, new, _, errors| immutable_struct(old, new, "spec", errors)),
    Kind::new("resourceslices.resource.k8s.io")
        .cells(|row| {
            row.name()
                .text_at("/spec/nodeName")
                .text_at("/spec/driver")
                .text_at("/spec/pool/name")
                .age();
        })
        .prepare_create(note_taints)
        .prepare_update(|_, slice, _, context| note_taints(slice, context))
        .validate_create(|slice, errors| slice_rules::slice(None, slice, errors))
        .validate_update(|old, new, _, errors| slice_rules::change(old, new, errors)),
];

fn claim_state(claim: &Value) -> String {
    let allocated = present(claim, "/status/allocation");
    let deleted = present(claim, "/metadata/deletionTimestamp");
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if allocated {
        states.push("allocated");
    } else if !deleted {
        states.push("pending");
    }
    if count(claim, "/status/reservedFor") > 0 {
        states.push("reserved");
    }
    states.join(",")
}

/// Requests that ask for an exact count ask for one device.
fn request_defaults(object: &mut Value, requests: &str) {
    for request in items_mut(object, requests) {
        if text(request, "/exactly/allocationMode") == "ExactCount" {
            default_at(request, "/exactly", "count", 1);
        }
        for alternative in items_mut(request, "/firstAvailable") {
            if text(alternative, "/allocationMode") == "ExactCount" {
                default_at(alternative, "", "count", 1);
            }
        }
    }
}

/// Taints of devices have the time when they came.
fn note_taints(slice: &mut Value, context: &Context<'_>) {
    let is_tainted = |device: &Value| {
        list(device, "/taints")
            .iter()
            .any(|taint| !present(taint, "/timeAdded"))
    };
    if !list(slice, "/spec/devices").iter().any(is_tainted) {
        return;
    }
    for device in items_mut(slice, "/spec/devices") {
        for taint in items_mut(device, "/taints") {
            default_at(taint, "", "timeAdded", context.now());
        }
    }
}

/// Driver, pool, device and share of a device that is given to a claim.
type DeviceId<'a> = [&'a str; 4];

fn device_id(given: &Value) -> DeviceId<'_> {
    ["/driver", "/pool", "/device", "/shareID"].map(|part| text(given, part))
}

/// The devices that a claim has.
fn allocated(claim: &Value) -> HashSet<DeviceId<'_>> {
    let results = list(claim, "/status/allocation/devices/results");
    results.iter().map(device_id).collect()
}

/// What drivers said of devices goes with them.
fn drop_returned(old: &Value, claim: &mut Value) {
    let (before, after) = (allocated(old), allocated(claim));
    let is_returned = |status: &Value| {
        let id = device_id(status);
        before.contains(&id) && !after.contains(&id)
    };
    let all = list(claim, "/status/devices");
    let left: Vec<Value> = all.iter().filter(|status| !is_returned(status)).cloned().collect();
    if left.len() == all.len() {
        return;
    }
    if let Some(status) = object_at(claim, "/status") {
        if left.is_empty() {
            status.remove("devices");
        } else {
            status.insert("devices", left.into());
        }
    }
}

/// Refuses a list that is too long; nothing else is said of it then.
fn is_too_long(list: &super::validate::At<'_>, len_max: usize, errors: &mut Vec<FieldError>) -> bool {
    let len = list.items().count();
    if len > len_max {
        errors.push(FieldError::too_many(&list.field, len, len_max));
    }
    len > len_max
}

/// Refuses items that have the key of an earlier one.
fn refuse_repeated<'a>(
    list: &super::validate::At<'a>,
    key: impl Fn(&super::validate::At<'a>) -> &'a str,
    errors: &mut Vec<FieldError>,
) {
    let mut known = HashSet::new();
    for item in list.items() {
        let key = key(&item);
        if !known.insert(key) {
            errors.push(FieldError::duplicate(&item.field, &key.into()));
        }
    }
}
