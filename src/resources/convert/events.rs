//! Events: the same fields under other names.

use crate::tree::Value;

/// Names in the core group and in `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_core(event: &mut Value) {
    rename(event, NAMES.iter().map(|(core, new)| (*new, *core)));
}

pub(super) fn from_core(event: &mut Value) {
    rename(event, NAMES.iter().copied());
}

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    if let Some(fields) = event.as_object_mut() {
        for (from, to) in names {
            if let Some(value) = fields.remove(from) {
                fields.insert(to.to_owned(), value);
            }
        }
    }
}
