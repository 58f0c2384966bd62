//! Managers that did nothing for longest become one, so that their number is bounded.

use super::fields::Fields;
use super::{identity, text};
use crate::tree::Value;

/// Most entries of updates that an object keeps; the oldest are merged into one of the name `ancient-changes`.
pub(super) const UPDATERS_MAX: usize = 10;
pub(super) const ANCIENT: &str = "ancient-changes";

/// Keeps the number of entries of updates bounded: those that did nothing for longest become one for each version.
pub(super) fn merge_oldest(entries: &mut Vec<Value>) {
    let mut updaters: Vec<usize> = (0..entries.len())
        .filter(|&at| entries[at]["operation"] == "Update")
        .collect();
    let mut surplus = updaters.len().saturating_sub(UPDATERS_MAX);
    if surplus == 0 {
        return;
    }
    updaters.sort_by(|&one, &other| {
        let age = |at: usize| (text(&entries[at], "time"), identity(&entries[at]));
        age(one).cmp(&age(other))
    });
    // The entry of each version that the others of it are merged into: the first of it, until there is another one.
    let mut buckets: Vec<Bucket> = Vec::new();
    let mut merged = vec![false; entries.len()];
    for at in updaters {
        if surplus == 0 {
            break;
        }
        let version = text(&entries[at], "apiVersion");
        let same_version = |bucket: &&mut Bucket| text(&entries[bucket.first], "apiVersion") == version;
        let Some(bucket) = buckets.iter_mut().find(same_version) else {
            buckets.push(Bucket { first: at, into: None });
            continue;
        };
        let (into, set, time) = bucket.into.get_or_insert_with(|| {
            let ancient = entries
                .iter()
                .position(|entry| identity(entry) == [ANCIENT, "Update", version, ""]);
            let into = ancient.unwrap_or(bucket.first);
            (into, Fields::of(&entries[into]["fieldsV1"]), Value::Null)
        });
        if *into == at {
            continue;
        }
        set.add(Fields::of(&entries[at]["fieldsV1"]));
        *time = entries[at]["time"].clone();
        merged[at] = true;
        surplus -= 1;
    }
    for (into, set, time) in buckets.into_iter().filter_map(|bucket| bucket.into) {
        let entry = &mut entries[into];
        entry["manager"] = ANCIENT.into();
        entry["fieldsV1"] = set.write();
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("subresource");
            if time.is_null() {
                entry.remove("time");
            } else {
                entry.insert("time", time);
            }
        }
    }
    let mut merged = merged.into_iter();
    entries.retain(|_| merged.next() != Some(true));
}

/// The oldest entry of a version, and what the next oldest are merged into: its place, set and time.
struct Bucket {
    first: usize,
    into: Option<(usize, Fields, Value)>,
}
