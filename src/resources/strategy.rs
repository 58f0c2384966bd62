//! How an object is made ready for a write: what the server fills in, what a client may not change, what is validated.

use crate::tree::{Key, Map, Value};

use super::canonical::{canonicalize, canonicalize_change};
use super::kind::{self, Kind};
use super::lookup::{integer, text};
use super::validate::by_rules;
use super::{FieldError, Refusal, Resource, custom, metadata, names, ratchet};

/// What a strategy may know of the request.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Now, unix seconds.
    pub now_s: i64,
    /// Namespace of the request's URL.
    pub namespace: Option<&'a str>,
    /// Name in the request's URL (`None` on create).
    pub name: Option<&'a str>,
    /// As which resource the object is written; `None`: as the stored one. Some rules hold in one of two versions only.
    pub asked: Option<&'a Resource>,
}

impl Context<'_> {
    /// Now, as metadata writes times.
    pub fn now(&self) -> String {
        time_text(self.now_s)
    }
}

/// A Unix second in RFC 3339, as metadata writes times.
pub fn time_text(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// Makes a new object ready: namespace and generated name, uid, creation time, generation, canonical form, defaults,
/// first status; then validates it. Warnings for the client come back.
///
/// `object` is in the stored shape of `resource` (see [`Resource::stored_shape`]). `kind` and `apiVersion` are neither
/// needed nor changed.
pub fn prepare_create(resource: &Resource, object: &mut Value, context: &Context<'_>) -> Result<Vec<String>, Refusal> {
    prepare_create_with(resource, object, context, |_| {})
}

/// [`prepare_create`], with a look at the object between its parts.
pub fn prepare_create_with(
    resource: &Resource,
    object: &mut Value,
    context: &Context<'_>,
    begun: impl FnOnce(&mut Value),
) -> Result<Vec<String>, Refusal> {
    begin_create(resource, object, context)?;
    begun(object);
    finish_create(resource, object, context)
}

/// The first part of [`prepare_create`]: after it the object has its name, its defaults and nothing else of the server's own. That
/// is what field managers are judged by, and what admission may change; whoever changes it begins again.
pub fn begin_create(resource: &Resource, object: &mut Value, context: &Context<'_>) -> Result<(), Refusal> {
    check_namespace(resource, object, context)?;
    let kind = kind::of(&resource.storage);
    if resource.strategy.resets_status {
        remove(object, "status");
    }
    let metadata = metadata_of(object)?;
    for field in [
        "resourceVersion",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        metadata.remove(field);
    }
    metadata.insert("creationTimestamp", context.now().into());
    metadata.insert("uid", uuid::Uuid::new_v4().to_string().into());
    if resource.strategy.counts_generation {
        metadata.insert("generation", 1.into());
    }
    let prefix = metadata
        .get("generateName")
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let unnamed = metadata.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    if unnamed && !prefix.is_empty() {
        metadata.insert("name", names::generate(&prefix).into());
    }
    canonicalize(resource, object);
    (kind.defaults)(object);
    Ok(())
}

/// Gives an object that others changed in between its canonical form and its defaults.
pub fn complete(resource: &Resource, object: &mut Value) {
    canonicalize(resource, object);
    (kind::of(&resource.storage).defaults)(object);
}

/// The second part of [`prepare_create`]: first status, and validation.
pub fn finish_create(resource: &Resource, object: &mut Value, context: &Context<'_>) -> Result<Vec<String>, Refusal> {
    let kind = kind::of(&resource.storage);
    (kind.admit)(object)?;
    (kind.prepare_create)(object, context);
    let mut errors = Vec::new();
    metadata::validate(resource, object, &mut errors);
    by_rules(resource, object, None, &mut errors);
    (kind.validate)(object, &mut errors);
    (kind.validate_create)(object, &mut errors);
    (kind.validate_version)(context.asked.unwrap_or(resource), None, object, &mut errors);
    let mut warnings = custom::validate(context.asked.unwrap_or(resource), None, object, None, &mut errors);
    refuse(errors)?;
    warnings.extend((kind.warnings_create)(object));
    warnings.extend((kind.warnings)(object));
    Ok(warnings)
}

/// Makes a changed object ready: keeps what a client may not change (uid, creation time, status on the main resource,
/// all but status on `/status`), counts the generation, brings it into canonical form with defaults; then validates it
/// and the change. Warnings come back.
///
/// `old` is the stored object; both are in the stored shape of `resource`. The `resourceVersion` of `new` becomes that of
/// `old`, so that `old == new` afterwards tells whether anything changed (`managedFields` aside). Whether the version
/// that the client sent matches is for the caller to check before.
pub fn prepare_update(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    prepare_update_with(resource, subresource, old, new, context, |_| {})
}

/// [`prepare_update`], with a look at the new object between its parts.
pub fn prepare_update_with(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    context: &Context<'_>,
    begun: impl FnOnce(&mut Value),
) -> Result<Vec<String>, Refusal> {
    let found = begin_update(resource, subresource, old, new, context)?;
    begun(new);
    finish_update(&found, resource, subresource, old, new, context)
}

/// What [`begin_update`] found out.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// Nothing changed that has defaults or rules about single fields.
    settled: bool,
    /// Nothing changed but the status.
    same_but_status: bool,
}

/// The first part of [`prepare_update`], as [`begin_create`] is of [`prepare_create`].
pub fn begin_update(
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    context: &Context<'_>,
) -> Result<Begun, Refusal> {
    check_namespace(resource, new, context)?;
    let kind = kind::of(&resource.storage);
    let metadata = metadata_of(new)?;
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or("");
    let old_name = text(old, "/metadata/name");
    if name.is_empty() {
        metadata.insert("name", old_name.into());
    } else if name != old_name {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({old_name})");
        return Err(Refusal::BadRequest(message));
    }
    keep_metadata(old, metadata);
    isolate(resource, kind, subresource, old, new);
    canonicalize_change(resource, Some(old), new);
    // What is as it was stored has its defaults and keeps to the rules about single fields.
    let unchanged = |status: bool| {
        let counts = |field: &str| !is_head(field) && field != "metadata" && (status || field != "status");
        both(old, new).all(|(field, old, new)| !counts(field) || old == new)
    };
    let (same, same_but_status) = (unchanged(true), unchanged(false));
    let settled = same || same_but_status && kind.spec_alone;
    if !settled {
        (kind.defaults)(new);
    }
    Ok(Begun {
        settled,
        same_but_status,
    })
}

/// The second part of [`prepare_update`]: what the kind does to changes, the generation, and validation.
pub fn finish_update(
    begun: &Begun,
    resource: &Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    let Begun {
        settled,
        same_but_status,
    } = *begun;
    let kind = kind::of(&resource.storage);
    (kind.prepare_update)(old, new, subresource, context);
    if !matches!(subresource, Some("status" | "binding" | "approval")) {
        count_generation(resource, kind, old, new);
    }
    let mut errors = Vec::new();
    metadata::validate(resource, new, &mut errors);
    let mut kept = Vec::new();
    metadata::validate_update(old, new, &mut kept);
    // Two of kube-apiserver's layers check this, and both tell.
    errors.extend(kept.iter().cloned().chain(kept.iter().cloned()));
    if subresource == Some("status") {
        by_rules(resource, new, Some("status"), &mut errors);
        (kind.validate_status)(old, new, &mut errors);
    } else {
        let before = errors.len();
        if !same_but_status {
            by_rules(resource, new, None, &mut errors);
        }
        if !settled {
            (kind.validate)(new, &mut errors);
        }
        if kind.checked_twice {
            errors.extend_from_within(before..);
        }
        (kind.validate_update)(old, new, subresource, &mut errors);
        (kind.validate_version)(context.asked.unwrap_or(resource), Some(old), new, &mut errors);
    }
    if !errors.is_empty() {
        ratchet::tolerate(resource, kind, old, &mut errors);
    }
    let mut warnings = custom::validate(
        context.asked.unwrap_or(resource),
        Some(old),
        new,
        subresource,
        &mut errors,
    );
    refuse(errors)?;
    let counted = integer(old, "/metadata/generation") != integer(new, "/metadata/generation");
    let whole = matches!(subresource, None | Some("scale"));
    if whole && (counted || !kind.warns_of_changed_spec) {
        warnings.extend((kind.warnings)(new));
    }
    Ok(warnings)
}

/// The metadata of an object, made when there is none.
pub(super) fn metadata_of(object: &mut Value) -> Result<&mut Map, Refusal> {
    let bad = || Refusal::BadRequest("the object provided is not a JSON object with metadata".to_owned());
    let metadata = object
        .as_object_mut()
        .ok_or_else(bad)?
        .entry("metadata")
        .or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().ok_or_else(bad)
}

/// The namespace of the object is that of the request; it is filled in.
fn check_namespace(resource: &Resource, object: &mut Value, context: &Context<'_>) -> Result<(), Refusal> {
    let metadata = metadata_of(object)?;
    let own = metadata.get("namespace").and_then(Value::as_str).unwrap_or("");
    let requested = if resource.namespaced {
        context.namespace.unwrap_or("")
    } else {
        ""
    };
    if own.is_empty() {
        if !requested.is_empty() {
            metadata.insert("namespace", requested.into());
        }
        return Ok(());
    }
    if own == requested {
        return Ok(());
    }
    if requested.is_empty() {
        // Objects of the cluster have none, whatever is sent.
        metadata.remove("namespace");
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Refusal::BadRequest(message.to_owned()))
}

/// What of metadata is the server's alone.
fn keep_metadata(old: &Value, metadata: &mut Map) {
    // A uid that differs is refused with the other immutable fields.
    if metadata.get("uid").and_then(Value::as_str).is_none_or(str::is_empty)
        && let Some(uid) = old.pointer("/metadata/uid")
    {
        metadata.insert("uid", uid.clone());
    }
    for field in ["resourceVersion", "creationTimestamp", "generation"] {
        keep_field(&old["metadata"], metadata, Key::Known(field));
    }
    // A deletion that is under way cannot be taken back; one that is not cannot be begun so, which validation tells.
    if old.pointer("/metadata/deletionTimestamp").is_some() {
        keep_field(&old["metadata"], metadata, Key::Known("deletionTimestamp"));
    }
    if metadata.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        keep_field(&old["metadata"], metadata, Key::Known("deletionGracePeriodSeconds"));
    }
    metadata.remove("selfLink");
}

/// A subresource changes its own part only, the main resource everything but status.
fn isolate(resource: &Resource, kind: &Kind, subresource: Option<&str>, old: &Value, new: &mut Value) {
    match subresource {
        None => {
            if resource.subresource("status").is_some() {
                keep(old, new, "status");
            }
        }
        Some("status") => {
            let differs: Vec<Key> = both(old, new)
                .filter(|(field, old, new)| !is_head(field) && *field != "status" && *field != "metadata" && old != new)
                .map(|(field, ..)| field.clone())
                .collect();
            for field in differs {
                keep(old, new, field);
            }
            for field in kind.status_keeps {
                keep_in(old, new, field);
            }
            if resource.custom.is_some() {
                keep_all_metadata(old, new);
            }
        }
        // The kind says what an approval may change.
        Some("approval") => {}
        Some(_) => keep(old, new, "status"),
    }
}

fn is_head(field: &str) -> bool {
    matches!(field, "kind" | "apiVersion")
}

/// All fields of two objects, with their values in either; those that only the old one has come last.
fn both<'a>(
    old: &'a Value,
    new: &'a Value,
) -> impl Iterator<Item = (&'a Key, Option<&'a Value>, Option<&'a Value>)> + use<'a> {
    let of_new = new.as_object().into_iter().flatten();
    let of_old = old.as_object().into_iter().flatten();
    let gone = of_old.filter(|(field, _)| new.get(field.as_str()).is_none());
    of_new
        .map(|(field, value)| (field, old.get(field.as_str()), Some(value)))
        .chain(gone.map(|(field, value)| (field, Some(value), None)))
}

/// Makes a top-level field of `new` what it is in `old`.
pub(super) fn keep(old: &Value, new: &mut Value, field: impl Into<Key>) {
    if let Some(fields) = new.as_object_mut() {
        keep_field(old, fields, field.into());
    }
}

pub(super) fn keep_in(old: &Value, new: &mut Value, field: &'static str) {
    if let Ok(metadata) = metadata_of(new) {
        keep_field(&old["metadata"], metadata, Key::Known(field));
    }
}

/// A status of a custom object brings nothing of metadata with it but who wrote it.
fn keep_all_metadata(old: &Value, new: &mut Value) {
    let managed = new["metadata"].get("managedFields").cloned();
    new["metadata"] = old["metadata"].clone();
    if let (Some(managed), Ok(metadata)) = (managed, metadata_of(new)) {
        metadata.insert("managedFields", managed);
    }
}

/// Makes a field what it is in `old`.
fn keep_field(old: &Value, fields: &mut Map, field: Key) {
    match old.get(&field) {
        Some(value) if fields.get(&field).is_some_and(|new| new.shares(value)) => {}
        Some(value) => {
            fields.insert(field, value.clone());
        }
        None => {
            fields.remove(&field);
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// The generation goes up by one when anything but metadata and status changed.
fn count_generation(resource: &Resource, kind: &Kind, old: &Value, new: &mut Value) {
    if !resource.strategy.counts_generation || kind.generation_stays {
        return;
    }
    let noted = kind
        .counted_metadata
        .is_some_and(|field| old["metadata"].get(field) != new["metadata"].get(field));
    // Without a subresource for it, the status of a custom object is a field like others.
    let status = resource.custom.is_some() && resource.subresource("status").is_none();
    let changed = both(old, new)
        .any(|(field, old, new)| !is_head(field) && field != "metadata" && (status || field != "status") && old != new);
    if noted || changed {
        let generation = integer(old, "/metadata/generation").unwrap_or(0) + 1;
        if let Ok(metadata) = metadata_of(new) {
            metadata.insert("generation", generation.into());
        }
    }
}

fn refuse(errors: Vec<FieldError>) -> Result<(), Refusal> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(errors))
    }
}
