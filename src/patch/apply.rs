//! Server-side apply: a manager says which fields it wants to have which values, and owns those. What it named before and
//! names no longer goes, unless somebody else manages it; what somebody else manages with another value is a conflict.
//!
//! Rules are those of `sigs.k8s.io/structured-merge-diff` and `k8s.io/apimachinery/pkg/util/managedfields` (KEP-555).
//!
//! | file | what it decides |
//! | --- | --- |
//! | `declared` | the fields of a configuration, and what is wrong with it |
//! | `merge` | the object with the values of the configuration |
//! | `prune` | what goes from it |
//! | `conflict` | who else manages what changes |
//! | `last_applied` | the way from `kubectl apply` without `--server-side` |
//! | `reconcile` | sets of fields that were made under another schema |
//! | `scale` | who manages the replicas of a Scale |
//! | `held` | what holds after an apply |

mod conflict;
#[cfg(test)]
mod custom_tests;
mod declared;
mod held;
mod last_applied;
mod merge;
mod prune;
mod reconcile;
mod scale;
#[cfg(test)]
mod tests;

use super::managed::compare::{Changes, compare};
use super::managed::fields::Fields;
use super::managed::{self, Request, Typed, Versions, text};
use crate::schema::{FieldValidation, Misfit, Schema, check, fits};
use crate::tree::{Map, Value};

pub use conflict::{Conflict, Conflicts};
pub use held::{beyond, unmet};
pub use scale::{to_parent, to_scale};

/// Who is said to manage what an object without managers holds when it is first applied to.
const BEFORE: &str = "before-first-apply";

/// Why a configuration is not applied, by the Status that kube-apiserver answers with.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// 400 `BadRequest` with this message.
    #[error("{0}")]
    BadRequest(String),
    /// 409 `Conflict` with causes.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// 500 with this message and no reason.
    #[error("{0}")]
    Internal(String),
}

/// An object after an apply.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied {
    /// The object. Its values are of the right kinds, but numbers may be too large, and fields may be null; its `managedFields`
    /// are those of before.
    pub object: Value,
    /// Its `managedFields` now.
    pub managers: Vec<Value>,
}

impl Applied {
    /// The object as one of a built-in kind, with its managers. `old` is what it was applied to, `null` if there was nothing.
    ///
    /// # Errors
    /// When a number does not fit, a quantity or a time is none.
    pub fn decoded(mut self, schema: Schema<'static>, old: &Value) -> Result<Value, ApplyError> {
        let head = |field: &str| self.object.get(field) == old.get(field);
        if !(head("kind") && head("apiVersion") && fits(schema, &mut self.object, old)) {
            let (what, kind) = (named(&self.object), group_version_kind(&self.object));
            let decoded = check(self.object, schema, FieldValidation::Ignore, true).map_err(|Misfit(detail)| {
                ApplyError::Internal(format!(
                    "failed to convert new object ({what}) to proper version: unable to convert unstructured object to {kind}: {detail}"
                ))
            })?;
            self.object = decoded.value;
        }
        Ok(self.managed())
    }

    /// The object as it is, with its managers.
    pub fn managed(mut self) -> Value {
        managed::set(&mut self.object, self.managers);
        self.object
    }
}

/// `live` with what `configuration` names, without a word about who manages what: what a policy applies. It may name no part of
/// what is one value, such as an atomic list.
///
/// # Errors
/// The place of such a part; or of a list whose elements cannot be told apart.
pub fn merged(typed: Typed<'_>, live: &Value, configuration: &Value) -> Result<Value, String> {
    if let Some(place) = merge::atomic(typed, configuration, 0) {
        return Err(format!("may not mutate atomic arrays, maps or structs: {place}"));
    }
    let merged = merge::merge(typed, live, configuration)?;
    Ok(merged.unwrap_or_else(|| live.clone()))
}

/// Applies `configuration` for `request.manager` to `live` (`None`: there is no object yet). Both are in the version of the
/// request, and `typed` is what they are; both have `apiVersion` and `kind`.
///
/// What does not change is shared with `live`; an object that does not change at all keeps the times of its managers. `force`:
/// takes fields from other managers instead of refusing.
///
/// Linear in the size of the configuration, of the lists and maps that it names, and of the sets of the managers that the change
/// concerns; in the size of the object when something goes from it.
///
/// # Errors
/// [`ApplyError`], by the Status to answer with.
pub fn apply(
    typed: Typed<'_>,
    versions: &dyn Versions,
    live: Option<&Value>,
    configuration: &Value,
    request: &Request<'_>,
    force: bool,
) -> Result<Applied, ApplyError> {
    if !configuration["metadata"]["managedFields"].is_null() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let internal = |what: &str, error: &str| ApplyError::Internal(format!("{what}: {error}"));
    let mut declared = declared::declared(typed, configuration).map_err(|error| {
        let what = format!("failed to create typed patch object ({})", named(configuration));
        internal(&what, &error)
    })?;
    let nothing = Value::Object(Map::new());
    let old = live.unwrap_or(&nothing);
    let mut entries = entries(typed, versions, live, request);
    let own = entries.iter().position(|entry| is_own(entry, request));
    let own = own.map(|at| entries.remove(at));

    let merged = merge::merge(typed, old, configuration)
        .map_err(|error| internal("failed to merge config", &error))?
        .unwrap_or_else(|| old.clone());
    declared.keep(|path| !matches!(path, [field] if request.is_reset(field)));
    let mut new = match &own {
        Some(last) => pruned(typed, versions, merged, last, &entries, &declared, request),
        None => merged,
    };
    let changes = compare(typed, old, &new, |path| request.counts(path));
    if !changes.taken.is_empty() || !changes.removed.is_empty() {
        give_up(typed, versions, old, &new, &changes, &mut entries, request, force)?;
    }
    entries.retain(|entry| !managed::is_empty(&entry["fieldsV1"]));

    declared.keep(|path| request.counts(path));
    declared.remove_field(&["metadata"]);
    if !declared.is_empty() {
        // Only what changes an object is dated.
        let before = own.as_ref().and_then(|own| own["time"].as_str());
        let time = if new == *old { before } else { Some(request.now) };
        entries.push(managed::entry_of("Apply", declared.write(), time, request));
    }
    managed::sort(&mut entries);
    if request.manager == last_applied::MANAGER {
        last_applied::note(&mut new, configuration);
    }
    Ok(Applied {
        object: new,
        managers: entries,
    })
}

/// Whether an object is what it was, but for when its managers did what they manage: then it is `old`, with its times (as
/// upstream keeps applies that change nothing from being writes).
pub fn keep_times(old: &Value, new: &mut Value) {
    let (known, now) = (&old["metadata"]["managedFields"], &new["metadata"]["managedFields"]);
    let (Some(known), Some(now)) = (known.as_array(), now.as_array()) else {
        return;
    };
    let same_but_times = |(known, now): (&Value, &Value)| {
        let others = |entry: &Value| -> Vec<(String, Value)> {
            let fields = entry.as_object().into_iter().flatten();
            fields
                .filter(|(name, _)| **name != "time")
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect()
        };
        others(known) == others(now)
    };
    if known.len() != now.len() || known.iter().zip(now).all(|(one, other)| one["time"] == other["time"]) {
        return;
    }
    // Times order entries, so those of one manager may stand elsewhere now.
    let by_manager = |entries: &[Value]| {
        let mut entries = entries.to_vec();
        entries.sort_by(|one, other| managed::identity(one).cmp(&managed::identity(other)));
        entries
    };
    let (one, other) = (by_manager(known), by_manager(now));
    if !one.iter().zip(&other).all(same_but_times) {
        return;
    }
    let known = known.clone();
    let mut same = new.clone();
    if let Some(metadata) = same.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields", known.into());
    }
    let is_same = |field: &str| old.get(field) == same.get(field);
    let fields = |object: &Value| object.as_object().map_or(0, Map::len);
    if fields(old) == fields(&same) && same.as_object().into_iter().flatten().all(|(field, _)| is_same(field)) {
        *new = same;
    }
}

/// Namespace, name, version and kind as messages show them.
fn named(configuration: &Value) -> String {
    let metadata = &configuration["metadata"];
    format!(
        "{}/{}; {}",
        text(metadata, "namespace"),
        text(metadata, "name"),
        group_version_kind(configuration)
    )
}

/// Group, version and kind of an object as messages show them: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
pub fn group_version_kind(object: &Value) -> String {
    let (version, kind) = (text(object, "apiVersion"), text(object, "kind"));
    match version.matches('/').count() {
        0 => format!("/{version}, Kind={kind}"),
        1 => format!("{version}, Kind={kind}"),
        _ => format!("/, Kind={kind}"),
    }
}

/// Whether an entry is what the request's manager applied last, in whatever version.
fn is_own(entry: &Value, request: &Request<'_>) -> bool {
    managed::identity(entry) == [request.manager, "Apply", "", request.subresource]
}

/// The entries that an apply begins with: those of versions that there are, brought up to the schema of now. What an object
/// without managers holds is that of nobody in particular.
fn entries(typed: Typed<'_>, versions: &dyn Versions, live: Option<&Value>, request: &Request<'_>) -> Vec<Value> {
    let Some(live) = live else { return Vec::new() };
    let known = live["metadata"]["managedFields"].as_array();
    let mut entries = known.map(|known| known.to_vec()).unwrap_or_default();
    if entries.is_empty() {
        let nothing = Value::Object(Map::new());
        let changes = compare(typed, &nothing, live, |path| request.counts(path));
        if !changes.taken.is_empty() {
            let before = Request {
                manager: BEFORE,
                ..*request
            };
            let fields = Value::Raw(changes.taken.to_json());
            entries.push(managed::entry_of("Update", fields, Some(request.now), &before));
        }
        return entries;
    }
    entries.retain(|entry| request.is_in_version(entry) || versions.has(text(entry, "apiVersion")));
    if !typed.is_built_in() {
        for entry in &mut entries {
            reconcile::reconcile_entry(typed, versions, live, entry, request);
        }
    }
    entries
}

/// The object without what `last`, the entry of what the manager applied last, names and nobody manages now.
fn pruned(
    typed: Typed<'_>,
    versions: &dyn Versions,
    merged: Value,
    last: &Value,
    others: &[Value],
    declared: &Fields,
    request: &Request<'_>,
) -> Value {
    let last_set = Fields::of(&last["fieldsV1"]);
    let mut gone = last_set.clone();
    let same_version = request.is_in_version(last);
    if same_version {
        gone.remove(declared);
    }
    if gone.is_empty() {
        return merged;
    }
    // What is managed, by version; that of the last apply first.
    let last_version = text(last, "apiVersion");
    let mut managed: Vec<(&str, Fields)> = vec![(last_version, Fields::default())];
    let mut manage = |version, set| match managed.iter_mut().find(|(other, _)| *other == version) {
        Some((_, managed)) => managed.add(set),
        None => managed.push((version, set)),
    };
    manage(request.api_version, declared.clone());
    for entry in others {
        manage(text(entry, "apiVersion"), Fields::of(&entry["fieldsV1"]));
    }
    let converted = |object: &Value, version: &str| {
        if version == request.api_version && object["apiVersion"] == version {
            Some((typed, object.clone()))
        } else {
            versions.in_version(object, version)
        }
    };
    let Some((last_typed, whole)) = converted(&merged, last_version) else {
        return merged;
    };
    let mut pruned = prune::without(last_typed, &whole, &last_set);
    for (version, managed) in &managed {
        let (Some((typed, whole)), Some((_, less))) = (converted(&whole, version), converted(&pruned, version)) else {
            continue;
        };
        pruned = prune::restored(typed, &whole, Some(&less), Some(managed));
    }
    let Some((_, pruned)) = converted(&pruned, last_version) else {
        return merged;
    };
    let Some(dropped) = prune::dropped(last_typed, &whole, Some(&pruned), &last_set) else {
        return merged;
    };
    converted(&dropped, request.api_version).map_or(merged, |(_, pruned)| pruned)
}

/// Other managers give up what changes: those that applied or updated it with another value only when forced.
#[expect(clippy::too_many_arguments, reason = "the states of one step")]
fn give_up(
    typed: Typed<'_>,
    versions: &dyn Versions,
    old: &Value,
    new: &Value,
    changes: &Changes<'_>,
    entries: &mut [Value],
    request: &Request<'_>,
    force: bool,
) -> Result<(), ApplyError> {
    // Other versions, as far as they are met.
    let mut states: Vec<(String, Value, Value)> = Vec::new();
    for entry in entries.iter() {
        let version = text(entry, "apiVersion");
        if request.is_in_version(entry) || states.iter().any(|(other, ..)| other == version) {
            continue;
        }
        if let (Some((_, old)), Some((_, new))) = (versions.in_version(old, version), versions.in_version(new, version))
        {
            states.push((version.to_owned(), old, new));
        }
    }
    let mut in_versions: Vec<(&str, Changes<'_>)> = Vec::with_capacity(states.len());
    for (version, old, new) in &states {
        if let Some((typed, _)) = versions.in_version(old, version) {
            in_versions.push((version, compare(typed, old, new, |path| request.counts(path))));
        }
    }
    let changes_for = |entry: &Value| match text(entry, "apiVersion") {
        version if version == request.api_version => Some(changes),
        version => in_versions
            .iter()
            .find(|(other, _)| *other == version)
            .map(|(_, changes)| changes),
    };
    if !force {
        let allowed = || {
            let old = (request.manager == last_applied::MANAGER).then_some(old)?;
            last_applied::unchanged(typed, old, request)
        };
        let conflicts = conflict::find(entries, changes_for, allowed);
        if let Some(conflicts) = conflicts {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    for entry in entries.iter_mut() {
        if let Some(changes) = changes_for(entry) {
            managed::lose_all(entry, changes);
        }
    }
    Ok(())
}
