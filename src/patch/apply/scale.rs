//! Who manages the replicas of a Scale: those who manage the field of the object that holds them, and the other way round.

use std::collections::BTreeMap;

use super::super::managed::fields::Fields;
use super::super::managed::{self, text};
use crate::tree::{Text, Value};

const SCALE_VERSION: &str = "autoscaling/v1";
const IN_SCALE: &[&str] = &["spec", "replicas"];

/// The entries of a Scale. `entries` are those of the object behind it, `path` says of each of its versions where the replicas
/// are: `["spec", "replicas"]`; `None` for versions that do not exist.
pub fn to_scale<'p>(entries: &[Value], path: impl Fn(&str) -> Option<&'p [&'p str]>) -> Vec<Value> {
    let has = |entry: &Value| {
        path(text(entry, "apiVersion")).is_some_and(|path| Fields::of(&entry["fieldsV1"]).has_field(path))
    };
    let scaled = entries.iter().filter(|entry| has(entry)).map(|entry| {
        let mut entry = entry.clone();
        entry["apiVersion"] = SCALE_VERSION.into();
        entry["fieldsV1"] = only(IN_SCALE);
        entry
    });
    scaled.collect()
}

/// The entries of the object behind a Scale, after the Scale has been changed: `scaled` are the entries of the Scale,
/// `api_version` and its `path` are those of the request.
pub fn to_parent<'p>(
    entries: &[Value],
    scaled: &[Value],
    api_version: &str,
    path: impl Fn(&str) -> Option<&'p [&'p str]>,
) -> Vec<Value> {
    // Managers of updates are told apart by version, too; that of a Scale is always the same.
    let who = |entry: &Value| {
        let [manager, operation, _, subresource] = managed::identity(entry).map(str::to_owned);
        [manager, operation, subresource]
    };
    let mut scaled: BTreeMap<[String; 3], &Value> = scaled.iter().map(|entry| (who(entry), entry)).collect();
    let mut all = Vec::with_capacity(entries.len() + 1);
    for entry in entries {
        let Some(path) = path(text(entry, "apiVersion")) else {
            continue;
        };
        let mut set = Fields::of(&entry["fieldsV1"]);
        if !set.has_field(path) {
            all.push(entry.clone());
            continue;
        }
        if scaled.remove(&who(entry)).is_some() {
            all.push(entry.clone());
            continue;
        }
        set.remove_field(path);
        if !set.is_empty() {
            let mut entry = entry.clone();
            entry["fieldsV1"] = set.write();
            all.push(entry);
        }
    }
    let in_scale = |entry: &&Value| Fields::of(&entry["fieldsV1"]).has_field(IN_SCALE);
    for entry in scaled.into_values().filter(in_scale) {
        let Some(path) = path(api_version) else { continue };
        let mut entry = entry.clone();
        entry["apiVersion"] = api_version.into();
        entry["fieldsV1"] = only(path);
        // Upstream loses the time here, and so it is lost.
        if let Some(fields) = entry.as_object_mut() {
            fields.remove("time");
        }
        all.push(entry);
    }
    managed::sort(&mut all);
    all
}

/// The set of that field alone.
fn only(path: &[&str]) -> Value {
    let mut set = Fields::default();
    set.join();
    for name in path.iter().rev() {
        let mut above = Fields::default();
        above.put(Text::from(format!("f:{name}")), set);
        set = above;
    }
    set.write()
}
