//! What a change of a Pod may touch: the Pod itself, its ephemeral containers, its resources.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::tree::{Map, Value};

use super::annotations::{check_annotation_change, is_mirror};
use super::placement::check_tolerations;
use super::resources::quality_of_service;
use super::status::keep_observed;
use crate::resources::edit::{items_mut, remove_at, set_at};
use crate::resources::lookup::{count, integer, list, map, present, text};
use crate::resources::strategy::{keep, keep_in};
use crate::resources::validate::{At, capitalized};
use crate::resources::{Context, FieldError};

/// A subresource changes its own part of the spec only.
pub(in crate::resources::core) fn prepare_update(
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
    _: &Context<'_>,
) {
    match subresource {
        Some("ephemeralcontainers") => {
            let containers = new.pointer("/spec/ephemeralContainers").cloned();
            keep(old, new, "spec");
            keep_metadata(old, new);
            match containers {
                Some(containers) => set_at(new, "/spec", "ephemeralContainers", containers),
                None => {
                    remove_at(new, "/spec", "ephemeralContainers");
                }
            }
        }
        Some("resize") => prepare_resize(old, new),
        Some("status") => {
            keep_in(old, new, "ownerReferences");
            keep_in(old, new, "deletionTimestamp");
            keep_observed(old, new);
            if text(new, "/status/qosClass").is_empty() {
                let class = old.pointer("/status/qosClass").cloned().unwrap_or(Value::Null);
                set_at(new, "/status", "qosClass", class);
            }
        }
        _ => {}
    }
}

fn keep_metadata(old: &Value, new: &mut Value) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        keep_in(old, new, field);
    }
}

/// Resources are taken from the new Pod, container by container; where these are others, validation is left to tell.
fn prepare_resize(old: &Value, new: &mut Value) {
    const LISTS: [&str; 2] = ["/spec/containers", "/spec/initContainers"];
    if LISTS.iter().any(|path| count(old, path) != count(new, path)) {
        return;
    }
    let wanted = new.get("spec").cloned().unwrap_or(Value::Null);
    keep(old, new, "spec");
    keep_metadata(old, new);
    match wanted.get("resources") {
        Some(resources) => set_at(new, "/spec", "resources", resources.clone()),
        None => {
            remove_at(new, "/spec", "resources");
        }
    }
    for field in ["containers", "initContainers"] {
        let pointer = format!("/{field}");
        let wanted_list = list(&wanted, &pointer);
        let same = list(old, &format!("/spec/{field}"))
            .iter()
            .zip(wanted_list)
            .all(|(old, wanted)| text(old, "/name") == text(wanted, "/name"));
        if !same {
            if let Some(list) = wanted.get(field) {
                set_at(new, "/spec", field, list.clone());
            }
            continue;
        }
        for (container, wanted) in items_mut(new, &format!("/spec/{field}")).zip(wanted_list) {
            for part in ["resources", "resizePolicy"] {
                if container.get(part) == wanted.get(part) {
                    continue;
                }
                match wanted.get(part) {
                    Some(value) => set_at(container, "", part, value.clone()),
                    None => {
                        remove_at(container, "", part);
                    }
                }
            }
        }
    }
}

const ONLY_THESE_CHANGE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

pub(in crate::resources::core) fn validate_update(
    old: &Value,
    new: &Value,
    subresource: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    match subresource {
        Some("ephemeralcontainers") => ephemeral_containers(old, new, errors),
        Some("resize") => resize(old, new, errors),
        None => {
            check_annotation_change(old, new, errors);
            let (before, after) = (At::root(old).get("spec"), At::root(new).get("spec"));
            if !after.value.shares(before.value) && after.value != before.value {
                spec(&before, &after, errors);
            }
        }
        Some(_) => {}
    }
}

fn ephemeral_containers(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if is_mirror(old) {
        errors.clear();
        errors.push(FieldError::forbidden(
            "[]",
            "static pods do not support ephemeral containers",
        ));
        return;
    }
    let kept: HashMap<&str, &Value> = list(new, "/spec/ephemeralContainers")
        .iter()
        .map(|container| (text(container, "/name"), container))
        .collect();
    for container in list(old, "/spec/ephemeralContainers") {
        let name = text(container, "/name");
        let detail = match kept.get(name) {
            None => format!("existing ephemeral containers \"{name}\" may not be removed\n"),
            Some(other) if *other != container => {
                let changed = difference("core.EphemeralContainer", container, other);
                format!("existing ephemeral containers \"{name}\" may not be changed\n{changed}")
            }
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden("spec.ephemeralContainers", detail));
    }
}

/// A change of the spec by the main resource.
fn spec(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) {
    for list in ["containers", "initContainers"] {
        let path = format!("/{list}");
        if count(before.value, &path) != count(after.value, &path) {
            errors.push(
                after
                    .get(list)
                    .forbidden("pod updates may not add or remove containers"),
            );
            return;
        }
        for container in after.get(list).items() {
            // Told a second time: the rules of all specs have it, too.
            let image = container.get("image");
            if image.is_empty() {
                errors.push(image.required(""));
            } else if image.text().trim() != image.text() {
                errors.push(image.invalid("must not have leading or trailing whitespace"));
            }
        }
    }
    if deadline(
        &before.get("activeDeadlineSeconds"),
        &after.get("activeDeadlineSeconds"),
        errors,
    ) {
        return;
    }
    tolerations(before, after, errors);
    gates(before, after, errors);
    let mut rest = without_what_may_change(before.value, after.value);
    if count(before.value, "/schedulingGates") > 0 {
        placement_of_gated(before, after, &mut rest, errors);
    }
    if rest != *before.value {
        let detail = format!(
            "{ONLY_THESE_CHANGE}\n{}",
            difference("core.PodSpec", before.value, &rest)
        );
        errors.push(FieldError::forbidden("spec", detail));
    }
}

/// A deadline may be set, or brought forward. Whether nothing more is looked at.
fn deadline(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) -> bool {
    let Some(new_s) = after.integer() else {
        if before.present() {
            errors.push(after.invalid("must not update from a positive integer to nil value"));
        }
        return false;
    };
    if !(0..=i64::from(i32::MAX)).contains(&new_s) {
        errors.push(after.invalid("must be between 0 and 2147483647, inclusive"));
        return true;
    }
    let later = before.integer().is_some_and(|old_s| old_s < new_s);
    if later {
        errors.push(after.invalid("must be less than or equal to previous value"));
    }
    later
}

/// Tolerations are added only; those that there are may hold for another time.
fn tolerations(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) {
    let what = |toleration| ["/key", "/operator", "/value", "/effect"].map(|field| text(toleration, field));
    let new: HashSet<[&str; 4]> = list(after.value, "/tolerations").iter().map(what).collect();
    let kept = list(before.value, "/tolerations")
        .iter()
        .all(|toleration| new.contains(&what(toleration)));
    let at = after.get("tolerations");
    if kept {
        check_tolerations(&at, errors);
    } else {
        errors.push(at.forbidden("existing toleration can not be modified except its tolerationSeconds"));
    }
}

/// Gates are taken away only.
fn gates(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) {
    let known: HashSet<&str> = list(before.value, "/schedulingGates")
        .iter()
        .map(|gate| text(gate, "/name"))
        .collect();
    for gate in after.get("schedulingGates").items() {
        let name = text(gate.value, "/name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(gate.get("name").forbidden(&detail));
        }
    }
}

/// The new spec, with the old one's values of what may change.
fn without_what_may_change(old: &Value, new: &Value) -> Value {
    let mut spec = new.clone();
    for field in ["containers", "initContainers"] {
        let pointer = format!("/{field}");
        for (container, old) in items_mut(&mut spec, &pointer).zip(list(old, &pointer)) {
            take(container, old, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        take(&mut spec, old, field);
    }
    let grace = "/terminationGracePeriodSeconds";
    if integer(old, grace).is_some_and(|grace_s| grace_s < 0) && integer(new, grace) == Some(1) {
        take(&mut spec, old, "terminationGracePeriodSeconds");
    }
    spec
}

fn take(new: &mut Value, old: &Value, field: &'static str) {
    match old.get(field) {
        Some(value) if new.get(field) == Some(value) => {}
        Some(value) => set_at(new, "", field, value.clone()),
        None => {
            remove_at(new, "", field);
        }
    }
}

/// A Pod that is held back by gates may be told more narrowly where it may run.
fn placement_of_gated(before: &At<'_>, after: &At<'_>, rest: &mut Value, errors: &mut Vec<FieldError>) {
    let selector = after.get("nodeSelector");
    let narrower = map(before.value, "/nodeSelector")
        .into_iter()
        .flatten()
        .all(|(key, value)| selector.value.get(key.as_str()) == Some(value));
    if !narrower {
        errors.push(selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)"));
    }
    take(rest, before.value, "nodeSelector");
    let affinity = after.get("affinity.nodeAffinity");
    let old = before.value.pointer("/affinity/nodeAffinity");
    if old == affinity.value.as_object().map(|_| affinity.value) {
        return;
    }
    let old_terms = list(
        before.value,
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    if !old_terms.is_empty() {
        if terms.items().count() == old_terms.len() {
            for (term, old) in terms.items().zip(old_terms) {
                if !only_adds(old, term.value) {
                    let detail = "only additions are allowed (no mutations or deletions)";
                    errors.push(FieldError::invalid(&term.field, &capitalized(term.value), detail));
                }
            }
        } else {
            let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
            errors.push(FieldError::invalid(&terms.field, &capitalized(terms.value), detail));
        }
    }
    match (old, before.value.get("affinity")) {
        (Some(old), _) => set_at(rest, "/affinity", "nodeAffinity", old.clone()),
        (None, known) => {
            remove_at(rest, "/affinity", "nodeAffinity");
            let empty = rest
                .get("affinity")
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty);
            if empty && known.is_none() {
                remove_at(rest, "", "affinity");
            }
        }
    }
}

/// Whether a term only has more requirements, after those that it had.
fn only_adds(old: &Value, new: &Value) -> bool {
    let lists = ["/matchExpressions", "/matchFields"];
    if lists.iter().all(|path| list(old, path).is_empty()) {
        return lists.iter().all(|path| list(new, path).is_empty());
    }
    lists.iter().all(|path| list(new, path).starts_with(list(old, path)))
}

/// A change of resources while the Pod runs.
fn resize(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let refused = if is_mirror(old) {
        Some("static pods cannot be resized")
    } else if text(old, "/spec/os/name") == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(detail) = refused {
        errors.clear();
        errors.push(FieldError::forbidden("[]", detail));
        return;
    }
    let (before, after) = (At::root(old).get("spec"), At::root(new).get("spec"));
    let known = errors.len();
    same_containers(&before, &after, errors);
    if errors.len() > known {
        return;
    }
    if quality_of_service(old) != quality_of_service(new) {
        let class = text(new, "/status/qosClass");
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid_text("spec", class, detail));
    }
    let running = list(old, "/status/containerStatuses")
        .iter()
        .find(|status| present(status, "/state/running"));
    if running.is_some_and(|status| !present(status, "/resources")) {
        let detail = "Pod running on node without support for resize";
        errors.push(FieldError::forbidden("spec", detail));
    }
    resources_kept(&before.get("resources"), &after.get("resources"), errors);
    for (sidecars, field) in [(true, "initContainers"), (false, "containers")] {
        for (old, new) in before.get(field).items().zip(after.get(field).items()) {
            let restarted = text(old.value, "/restartPolicy") == "Always";
            if sidecars && !restarted {
                if old.value != new.value {
                    let detail = "resources for non-sidecar init containers are immutable";
                    errors.push(FieldError::forbidden("spec", detail));
                }
                continue;
            }
            resources_kept(&old.get("resources"), &new.get("resources"), errors);
            if without_basic_resources(old.value) != without_basic_resources(new.value) {
                errors.push(FieldError::forbidden(
                    "spec",
                    if sidecars {
                        "only cpu and memory resources for sidecar containers are mutable"
                    } else {
                        "only cpu and memory resources are mutable"
                    },
                ));
            }
        }
    }
}

fn same_containers(before: &At<'_>, after: &At<'_>, errors: &mut Vec<FieldError>) {
    for field in ["containers", "initContainers"] {
        let (old, new) = (before.get(field), after.get(field));
        if old.items().count() != new.items().count() {
            errors.push(new.forbidden(&format!("{field} may not be added or removed on resize")));
            continue;
        }
        for (old, new) in old.items().zip(new.items()) {
            let name = new.get("name");
            if text(old.value, "/name") != name.text() {
                errors.push(name.forbidden(&format!("{field} may not be renamed or reordered on resize")));
            }
        }
    }
}

/// What is requested, or is a limit, stays one.
fn resources_kept(old: &At<'_>, new: &At<'_>, errors: &mut Vec<FieldError>) {
    for part in ["requests", "limits"] {
        let after = new.get(part);
        let kept = old.get(part).entries().all(|(name, _)| after.value.get(name).is_some());
        if !kept {
            errors.push(after.forbidden(&format!("resource {part} cannot be removed")));
        }
    }
}

fn without_basic_resources(container: &Value) -> Value {
    let mut container = container.clone();
    for part in ["limits", "requests"] {
        for name in ["cpu", "memory"] {
            remove_at(&mut container, &format!("/resources/{part}"), name);
        }
        if map(&container, &format!("/resources/{part}")).is_some_and(Map::is_empty) {
            remove_at(&mut container, "/resources", part);
        }
    }
    container
}

/// Longest value that is shown of a field that changed, in bytes.
const SHOWN_LEN_MAX: usize = 1024;

/// The fields of an object that differ, for a person to read.
fn difference(name: &str, old: &Value, new: &Value) -> String {
    let mut text = format!("  {name}{{\n");
    let mut same = 0;
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let gone = old.keys().filter(|field| !new.contains_key(field.as_str()));
    for field in new.keys().chain(gone) {
        let (before, after) = (old.get(field.as_str()), new.get(field.as_str()));
        if before == after {
            same += 1;
            continue;
        }
        let mut letters = field.chars();
        let first = letters.next().map_or('_', |first| first.to_ascii_uppercase());
        for (sign, value) in [('-', before), ('+', after)] {
            let mut shown = value.map_or_else(|| "nil".to_owned(), |value| capitalized(value).to_string());
            if shown.len() > SHOWN_LEN_MAX {
                let end = (0..=SHOWN_LEN_MAX)
                    .rev()
                    .find(|&end| shown.is_char_boundary(end))
                    .unwrap_or(0);
                shown.truncate(end);
                shown.push('…');
            }
            let _ = writeln!(text, "{sign} \t{first}{}: {shown},", letters.as_str());
        }
    }
    if same > 0 {
        let _ = writeln!(text, "  \t... // {same} identical fields");
    }
    text.push_str("  }\n");
    text
}
