//! Patches of the three kinds, to objects of several: from the bytes of a request to what is stored.

use std::cell::OnceCell;

use flatkube::patch::managed::{self, Request};
use flatkube::patch::{self, PatchError, PatchKind};
use flatkube::resources::{self, Context, Resource};
use flatkube::schema::{FieldValidation, Schema, check};
use flatkube::tree::Value;

use super::input::Input;
use super::objects;
use super::written::{self, NOW_S, Object};

/// `application/json-patch+json`.
pub fn json_patch(data: &[u8]) {
    patched(PatchKind::Json, data);
}

/// `application/merge-patch+json`, which must do what the few lines of RFC 7386 say.
pub fn merge_patch(data: &[u8]) {
    patched(PatchKind::Merge, data);
}

/// `application/strategic-merge-patch+json`.
pub fn strategic_patch(data: &[u8]) {
    patched(PatchKind::Strategic, data);
}

/// The first byte names the object, the second who asks how; the rest is the patch.
///
/// What a patch makes is an object of its kind; written as an update it gets a sidecar that agrees with its JSON; and the
/// same update again changes nothing.
fn patched(kind: PatchKind, data: &[u8]) {
    thread_local! {
        static OBJECTS: OnceCell<Vec<Object>> = const { OnceCell::new() };
    }
    let mut input = Input::new(data);
    let (choice, how) = (usize::from(input.byte()), input.byte());
    let Object {
        resource,
        value: stored,
    } = OBJECTS.with(|objects| {
        let objects = objects.get_or_init(written::objects);
        let Object { resource, value } = &objects[choice % objects.len()];
        let value = objects::read_back(resource, value);
        Object { resource, value }
    });
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind).expect("a built-in kind has one");
    let validation = objects::validation(how);
    let subresource = if how & 4 != 0 && resource.subresource("status").is_some() {
        "status"
    } else {
        ""
    };
    let result = patch::apply(kind, &stored, input.rest(), schema, validation);
    if kind == PatchKind::Merge && validation == FieldValidation::Ignore {
        compare_merge(&stored, input.rest(), schema, &result);
    }
    let Ok(patched) = result else { return };
    let again = check(patched.value.clone(), schema, FieldValidation::Strict, false);
    let again = again.unwrap_or_else(|misfit| panic!("{misfit}: {}", patched.value.to_json()));
    let [again, once] = [&again.value, &patched.value].map(|value| without_nulls(plain(value)));
    assert_eq!(again, once, "an object of its kind stays what it is");

    let namespace = stored["metadata"]["namespace"].as_str();
    let context = Context {
        now_s: NOW_S + 60,
        namespace,
        name: stored["metadata"]["name"].as_str(),
        asked: None,
    };
    let update = |old: &Value, new: &mut Value| {
        let sub = (!subresource.is_empty()).then_some(subresource);
        resources::prepare_update_with(resource, sub, old, new, &context, |new| {
            note(resource, subresource, Some(old), new);
        })
    };
    let mut new = patched.value;
    if update(&stored, &mut new).is_err() {
        return;
    }
    objects::encoded(resource, &new);
    let new = objects::read_back(resource, &new);
    let mut same = new.clone();
    update(&new, &mut same).unwrap_or_else(|refusal| panic!("{refusal:?}: {}", new.to_json()));
    assert_eq!(plain(&same), plain(&new), "the same update again changes nothing");
}

/// As `serde_json` has it: text that is JSON and the tree of it are the same.
pub(super) fn plain(value: &Value) -> serde_json::Value {
    serde_json::from_str(&value.to_json()).expect("JSON")
}

/// Notes in `managedFields` who changed `live` into `new`.
pub(super) fn note(resource: &Resource, subresource: &str, live: Option<&Value>, new: &mut Value) {
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind).expect("a built-in kind has one");
    let resets: &[&str] = if subresource.is_empty() && resource.subresource("status").is_some() {
        &["status"]
    } else {
        &[]
    };
    let request = Request {
        manager: if live.is_none() { "creator" } else { "changer" },
        api_version: &resource.api_version(),
        subresource,
        now: "2027-01-15T08:00:00Z",
        resets,
    };
    managed::update(schema, live, new, &request);
    for entry in new["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let fields: serde_json::Value = serde_json::from_str(&entry["fieldsV1"].to_json()).expect("JSON");
        assert!(
            fields.as_object().is_some_and(|fields| !fields.is_empty()),
            "nobody manages nothing"
        );
    }
}

/// The merge of RFC 7386, appendix to section 2.
fn merged(target: &mut serde_json::Value, patch: &serde_json::Value) {
    let serde_json::Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = serde_json::Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().expect("it was made one");
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            merged(target.entry(name.clone()).or_insert(serde_json::Value::Null), value);
        }
    }
}

fn without_nulls(mut value: serde_json::Value) -> serde_json::Value {
    match &mut value {
        serde_json::Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields
                .values_mut()
                .for_each(|value| *value = without_nulls(value.take()));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}

fn compare_merge(stored: &Value, patch: &[u8], schema: Schema<'static>, result: &Result<patch::Patched, PatchError>) {
    let Ok(patch) = serde_json::from_slice::<serde_json::Value>(patch) else {
        return;
    };
    if !patch.is_object() {
        return;
    }
    let mut expected: serde_json::Value = serde_json::from_str(&stored.to_json()).expect("JSON");
    merged(&mut expected, &patch);
    let expected = check(Value::from(expected), schema, FieldValidation::Ignore, false);
    if let (Ok(expected), Ok(result)) = (expected, result) {
        // A null that the patch did not touch may stay: it is left out where the object is stored.
        let [ours, theirs] = [&result.value, &expected.value].map(|value| without_nulls(plain(value)));
        assert_eq!(ours, theirs);
    }
}
