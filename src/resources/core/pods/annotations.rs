//! Rules of annotations that say something about a Pod.

use std::collections::HashSet;

use crate::tree::Value;

use super::spec::CONTAINER_LISTS;
use crate::resources::FieldError;
use crate::resources::lookup::{list, map, text};
use crate::resources::validate::At;

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Whether the Pod is the image of one that its kubelet made by itself.
pub(super) fn is_mirror(pod: &Value) -> bool {
    map(pod, "/metadata/annotations").is_some_and(|annotations| annotations.contains_key(MIRROR))
}

/// Whether one of these annotations names a profile for the Pod or for a container.
pub(super) fn has_profiles(annotations: &Value) -> bool {
    let names = annotations.as_object().into_iter().flatten().map(|(name, _)| name);
    let mut profiles = names.filter(|name| name.starts_with("container.") || name.as_str() == SECCOMP_POD);
    profiles.next().is_some()
}

/// The names of all containers of a spec, of all sorts.
fn container_names<'a>(spec: &At<'a>) -> HashSet<&'a str> {
    let lists = CONTAINER_LISTS
        .iter()
        .filter_map(|list| spec.value.get(*list)?.as_array());
    lists.flatten().map(|container| text(container, "/name")).collect()
}

/// Checks the annotations of a Pod or template with that spec.
pub(super) fn check_annotations(annotations: &At<'_>, spec: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut names: Option<HashSet<&str>> = None;
    for (key, entry) in annotations.entries() {
        let value = entry.text();
        if key == MIRROR && text(spec.value, "/nodeName").is_empty() {
            errors.push(entry.invalid("must set spec.nodeName if mirror pod annotation is set"));
        } else if key == DELETION_COST && !is_cost(value) {
            errors.push(entry.invalid("must be a 32bit integer"));
        } else if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            check_seccomp(&format!("{}.{key}", annotations.field), value, errors);
        } else if let Some(container) = key.strip_prefix(APP_ARMOR) {
            if !names.get_or_insert_with(|| container_names(spec)).contains(container) {
                errors.push(FieldError::invalid_text(&entry.field, container, "container not found"));
            }
            if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
                errors.push(entry.invalid(format_args!("invalid AppArmor profile name: {}", entry.value)));
            }
        }
    }
}

/// An integer of 32 bits, without a plus and without zeros before it.
fn is_cost(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let written = value == "0" || digits.starts_with(|digit: char| ('1'..='9').contains(&digit));
    value.is_empty() || written && value.parse::<i32>().is_ok()
}

fn check_seccomp(field: &str, profile: &str, errors: &mut Vec<FieldError>) {
    if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(path) => {
            if path.starts_with('/') {
                errors.push(FieldError::invalid_text(field, path, "must be a relative path"));
            }
            if crate::resources::validate::steps_back(path) {
                errors.push(FieldError::invalid_text(field, path, "must not contain '..'"));
            }
        }
        None => errors.push(FieldError::invalid_text(
            field,
            profile,
            "must be a valid seccomp profile",
        )),
    }
}

/// Annotations that a change may not touch.
pub(super) fn check_annotation_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let (before, after) = (map(old, "/metadata/annotations"), map(new, "/metadata/annotations"));
    if before == after {
        return;
    }
    let named = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        key if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    let mut refuse = |key: &str, detail: String| {
        errors.push(FieldError::forbidden(format!("metadata.annotations[{key}]"), detail));
    };
    for (key, value) in before.into_iter().flatten() {
        if let Some(what) = named(key)
            && after.and_then(|after| after.get(key)) != Some(value)
        {
            refuse(key, format!("may not remove or update {what}"));
        }
    }
    for (key, _) in after.into_iter().flatten() {
        if let Some(what) = named(key)
            && before.is_none_or(|before| !before.contains_key(key))
        {
            refuse(key, format!("may not add {what}"));
        }
    }
    let new = At::root(new);
    check_annotations(&new.get("metadata.annotations"), &new.get("spec"), errors);
}

/// What annotations and fields both say, they say alike.
pub(super) fn check_profiles_match(pod: &Value, errors: &mut Vec<FieldError>) {
    let Some(annotations) = map(pod, "/metadata/annotations").filter(|annotations| !annotations.is_empty()) else {
        return;
    };
    if !has_profiles(&pod["metadata"]["annotations"]) {
        return;
    }
    let said = |key: &str| annotations.get(key).and_then(Value::as_str);
    let spec = At::root(pod).get("spec");
    let pod_context = spec.get("securityContext");
    if let Some(said) = said(SECCOMP_POD) {
        check_match("seccomp", &pod_context.get("seccompProfile"), said, errors);
    }
    let windows = text(spec.value, "/os/name") == "windows";
    for containers in CONTAINER_LISTS {
        if list(spec.value, &format!("/{containers}")).is_empty() {
            continue;
        }
        for container in spec.get(*containers).items() {
            let name = text(container.value, "/name");
            let context = container.get("securityContext");
            if let Some(said) = said(&format!("{SECCOMP_CONTAINER}{name}")) {
                check_match("seccomp", &context.get("seccompProfile"), said, errors);
            }
            if let Some(said) = said(&format!("{APP_ARMOR}{name}")).filter(|_| !windows) {
                let own = context.get("appArmorProfile");
                let value = if own.present() {
                    own.value
                } else {
                    pod_context.get("appArmorProfile").value
                };
                check_match(
                    "apparmor",
                    &At {
                        value,
                        field: own.field,
                    },
                    said,
                    errors,
                );
            }
        }
    }
}

fn check_match(what: &str, profile: &At<'_>, said: &str, errors: &mut Vec<FieldError>) {
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    let alike = match kind.text() {
        "Unconfined" => said == "unconfined",
        "RuntimeDefault" => said == "runtime/default" || what == "seccomp" && said == "docker/default",
        "Localhost" => match said.strip_prefix("localhost/") {
            Some(path) if path != local.text() => {
                let detail = format!("{what} profile in annotation and field must match");
                errors.push(local.forbidden(&detail));
                true
            }
            Some(_) => true,
            None => false,
        },
        _ => true,
    };
    if !alike {
        errors.push(kind.forbidden(&format!("{what} type in annotation and field must match")));
    }
}
