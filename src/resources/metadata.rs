//! Rules for metadata that hold for every kind.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::tree::{Map, Value, json};

use super::lookup::{boolean, list, map, text};
use super::{FieldError, Resource, names};

/// Most bytes that the keys and values of all annotations of an object may have together.
const ANNOTATIONS_LEN_MAX: usize = 256 * 1024;

/// Finalizers that need no domain before them.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the metadata of a new or changed object.
pub(super) fn validate(resource: &Resource, object: &Value, errors: &mut Vec<FieldError>) {
    let strategy = &resource.strategy;
    let (name, prefix) = (text(object, "/metadata/name"), text(object, "/metadata/generateName"));
    if !prefix.is_empty() {
        let wrong = names::object_name(strategy, prefix, true);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text("metadata.generateName", prefix, what)),
        );
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let wrong = names::object_name(strategy, name, false);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text("metadata.name", name, what)),
        );
    }
    let namespace = text(object, "/metadata/namespace");
    if resource.namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            let wrong = names::label(namespace);
            errors.extend(
                wrong
                    .into_iter()
                    .map(|what| FieldError::invalid_text("metadata.namespace", namespace, what)),
            );
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    labels(object.pointer("/metadata/labels"), &"metadata.labels", errors);
    annotations(map(object, "/metadata/annotations"), &"metadata.annotations", errors);
    owners(object, errors);
    finalizers(object, errors);
    managers(object, errors);
}

/// Longest name of a field manager, and of a subresource that one writes through; bytes.
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

/// Names of field managers, which clients may send.
fn managers(object: &Value, errors: &mut Vec<FieldError>) {
    let entries = object["metadata"]["managedFields"].as_array();
    for (number, entry) in entries.into_iter().flatten().enumerate() {
        let field = |name: &str| format!("metadata.managedFields[{number}].{name}");
        let manager = entry["manager"].as_str().unwrap_or("");
        if manager.len() > MANAGER_BYTES_MAX {
            errors.push(FieldError::too_long(field("manager"), MANAGER_BYTES_MAX));
        }
        if manager.chars().any(char::is_control) {
            let detail = "should only contain printable characters";
            errors.push(FieldError::invalid_text(field("manager"), manager, detail));
        }
        if entry["subresource"]
            .as_str()
            .is_some_and(|name| name.len() > SUBRESOURCE_BYTES_MAX)
        {
            errors.push(FieldError::too_long(field("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
}

/// What a change of metadata may not do. `new` has uid and creation time of `old` where it named none.
pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let changed = &new["metadata"][field];
        if old["metadata"][field] != *changed {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                changed,
                "field is immutable",
            ));
        }
    }
    if !text(old, "/metadata/deletionTimestamp").is_empty() {
        let before = list(old, "/metadata/finalizers");
        let added: Vec<&Value> = list(new, "/metadata/finalizers")
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(ToString::to_string).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
}

/// What is wrong with a map of labels.
pub(super) fn labels(labels: Option<&Value>, field: &dyn std::fmt::Display, errors: &mut Vec<FieldError>) {
    for (name, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let wrong = names::qualified_name(name);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text(field.to_string(), name, what)),
        );
        let value = value.as_str().unwrap_or("");
        let wrong = names::label_value(value);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text(field.to_string(), value, what)),
        );
    }
}

/// What is wrong with a map of annotations.
pub(super) fn annotations(annotations: Option<&Map>, field: &dyn std::fmt::Display, errors: &mut Vec<FieldError>) {
    let mut len = 0;
    for (name, value) in annotations.into_iter().flatten() {
        // The case of letters does not matter in the key of an annotation.
        let lower = if name.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            Cow::Owned(name.to_lowercase())
        } else {
            Cow::Borrowed(name.as_str())
        };
        let wrong = names::qualified_name(&lower);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text(field.to_string(), name, what)),
        );
        len += name.len() + value.as_str().unwrap_or("").len();
    }
    if len > ANNOTATIONS_LEN_MAX {
        errors.push(FieldError::too_long(field.to_string(), ANNOTATIONS_LEN_MAX));
    }
}

/// Takes out references to owners that stand there twice; the UIDs of those that went come back, in order.
pub fn dedup_owners(object: &mut Value) -> Vec<String> {
    let owners = list(object, "/metadata/ownerReferences");
    if owners.len() < 2 {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let (kept, twice): (Vec<&Value>, Vec<&Value>) = owners.iter().partition(|owner| seen.insert(owner.to_json()));
    let gone: Vec<String> = twice.iter().map(|owner| text(owner, "/uid").to_owned()).collect();
    if !gone.is_empty() {
        let kept: Vec<Value> = kept.into_iter().cloned().collect();
        object["metadata"]["ownerReferences"] = kept.into();
    }
    gone
}

fn owners(object: &Value, errors: &mut Vec<FieldError>) {
    let owners = list(object, "/metadata/ownerReferences");
    for owner in owners {
        for (field, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            let told = owner[field].as_str().unwrap_or("");
            // What has no version, or more than a group before it, names none.
            let version = match told.split_once('/') {
                Some((_, version)) if field == "apiVersion" && !version.contains('/') => version,
                Some(_) if field == "apiVersion" => "",
                _ => told,
            };
            if version.is_empty() {
                let field = format!("metadata.ownerReferences.{field}");
                errors.push(FieldError::invalid_text(field, told, what));
            }
        }
        if text(owner, "/kind") == "Event" && text(owner, "/apiVersion") == "v1" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid("metadata.ownerReferences", owner, detail));
        }
    }
    let controllers: Vec<&Value> = owners
        .iter()
        .filter(|owner| boolean(owner, "/controller") == Some(true))
        .collect();
    if let [first, second, ..] = controllers[..] {
        let shown = |owner| format!("{}/{}", text(owner, "/kind"), text(owner, "/name"));
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            shown(first),
            shown(second)
        );
        let all: Vec<String> = owners.iter().map(owner_text).collect();
        errors.push(FieldError::invalid_shown(
            "metadata.ownerReferences",
            &format!("[{}]", all.join(",")),
            detail,
        ));
    }
}

/// An owner as JSON, its fields in the order of the API.
fn owner_text(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"].into_iter();
    let fields = fields.filter_map(|name| Some(format!("\"{name}\":{}", owner.get(name)?)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    for (i, finalizer) in list(object, "/metadata/finalizers").iter().enumerate() {
        let finalizer = finalizer.as_str().unwrap_or("");
        let field = format!("metadata.finalizers[{i}]");
        let wrong = names::qualified_name(finalizer);
        errors.extend(
            wrong
                .into_iter()
                .map(|what| FieldError::invalid_text("metadata.finalizers", finalizer, what)),
        );
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid_text(&field, finalizer, detail));
        }
    }
    let has = |name: &str| {
        list(object, "/metadata/finalizers")
            .iter()
            .any(|finalizer| finalizer == name)
    };
    if has("orphan") && has("foregroundDeletion") {
        let all = json!(list(object, "/metadata/finalizers"));
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid("metadata.finalizers", &all, detail));
    }
}
