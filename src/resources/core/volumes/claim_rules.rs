//! Rules of claims of volumes, and of what they are made of elsewhere.

use crate::tree::{Map, Value, json};

use super::CLASS_ANNOTATION;
use super::volume_rules::{access_modes, annotation_warnings, basic_amount, stays};
use crate::resources::FieldError;
use crate::resources::edit::{remove_at, set_at};
use crate::resources::lookup::{map, present, text};
use crate::resources::names::{label, qualified_name, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::validate::{At, FieldPath, label_selector};

/// What is wrong with a claim.
pub(in crate::resources::core) fn claim(claim: &Value, errors: &mut Vec<FieldError>) {
    claim_spec(&At::root(claim).get("spec"), errors);
}

/// The spec of a claim, be it one or what some are made of.
pub(in crate::resources) fn claim_spec(spec: &At<'_>, errors: &mut Vec<FieldError>) {
    access_modes(&spec.get("accessModes"), errors);
    let selector = spec.get("selector");
    if selector.present() {
        label_selector(&selector, errors);
    }
    let storage = At {
        field: FieldPath::made(format!("{}[storage]", spec.get("resources").field)),
        ..spec.get("resources.requests.storage")
    };
    if !storage.present() {
        errors.push(storage.required(""));
    } else if Quantity::parse(storage.text()).is_some_and(|quantity| quantity.nanos() <= 0) {
        errors.push(storage.invalid("must be greater than zero"));
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    for from in [&source, &reference] {
        if from.present() {
            data_source(from, errors);
        }
    }
    if source.present() && reference.present() {
        let same = |field: &'static str| source.get(field).value == reference.get(field).value;
        let detail = if !reference.get("namespace").is_empty() {
            Some("may not be specified when dataSourceRef.namespace is specified")
        } else if ["apiGroup", "kind", "name"].into_iter().all(same) {
            None
        } else {
            Some("must match dataSourceRef")
        };
        // The value that is shown is a path, which has nothing to show.
        errors.extend(detail.map(|detail| FieldError::invalid_shown(&spec.field, "{}", detail)));
    }
    let class = spec.get("volumeAttributesClassName");
    if !class.is_empty() {
        class.check(subdomain(class.text()), errors);
    }
}

/// What a volume is to be filled from.
fn data_source(source: &At<'_>, errors: &mut Vec<FieldError>) {
    for field in ["name", "kind"] {
        if source.get(field).is_empty() {
            errors.push(source.get(field).required(""));
        }
    }
    let (group, kind) = (source.get("apiGroup"), source.get("kind"));
    if !group.is_empty() {
        group.check(subdomain(group.text()), errors);
    } else if kind.text() != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid_text(&source.field, kind.text(), detail));
    }
    let namespace = source.get("namespace");
    if !namespace.is_empty() {
        namespace.check(label(namespace.text()), errors);
    }
}

/// What a change of a claim may not do.
pub(in crate::resources::core) fn claim_change(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    const SIZE: &str = "/spec/resources/requests/storage";
    let annotation = |claim: &Value| {
        let annotations = map(claim, "/metadata/annotations");
        annotations
            .and_then(|annotations| annotations.get(CLASS_ANNOTATION))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let class = |claim: &Value| {
        claim
            .pointer("/spec/storageClassName")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let ((before, marked), (after, marked_now)) = ((class(old), annotation(old)), (class(new), annotation(new)));
    // The class may come to a claim that had none, or leave the annotation for the field.
    let is_moved =
        marked.is_some() && before.is_none() && after == marked && (marked_now.is_none() || marked_now == marked);
    if !is_moved && marked.as_deref().unwrap_or("") != marked_now.as_deref().unwrap_or("") {
        errors.push(FieldError::invalid_text(
            format!("metadata.annotations.{CLASS_ANNOTATION}"),
            marked_now.as_deref().unwrap_or(""),
            "field is immutable",
        ));
    }
    let gets_class = before.is_none() && after.is_some() && (marked.is_none() || after == marked);
    let is_bound = text(new, "/status/phase") == "Bound";
    let fixed = |claim: &Value| fixed_spec(claim, old, new, is_moved || gets_class, is_bound);
    if fixed(old) != fixed(new) {
        errors.push(FieldError::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let amount = |claim: &Value, pointer: &str| Quantity::parse(text(claim, pointer)).map_or(0, Quantity::nanos);
    // A claim may be made smaller again while its volume has not grown yet.
    if amount(new, SIZE) < amount(old, SIZE) && amount(new, SIZE) <= amount(old, "/status/capacity/storage") {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
    let (old, new) = (At::root(old).get("spec"), At::root(new).get("spec"));
    stays("volumeMode", &old.get("volumeMode"), &new.get("volumeMode"), errors);
    let (before, after) = (
        old.get("volumeAttributesClassName"),
        new.get("volumeAttributesClassName"),
    );
    if before.present() && !after.present() {
        errors.push(after.forbidden("update from non-nil value to nil is forbidden"));
    } else if before.present() && before.value != after.value && after.is_empty() {
        errors.push(after.forbidden("update from non-nil value to an empty string is forbidden"));
    }
}

/// The spec of `claim` without what may change from `old` to `new`.
fn fixed_spec(claim: &Value, old: &Value, new: &Value, class_comes: bool, is_bound: bool) -> Value {
    let mut spec = claim.get("spec").cloned().unwrap_or(Value::Null);
    let Some(fields) = spec.as_object_mut() else {
        return spec;
    };
    if text(old, "/spec/volumeName").is_empty() {
        fields.remove("volumeName");
    }
    if class_comes {
        fields.remove("storageClassName");
    }
    if is_bound && present(new, "/spec/volumeAttributesClassName") {
        fields.remove("volumeAttributesClassName");
    }
    if is_bound
        && present(new, "/spec/resources/requests")
        && let Some(Value::Object(requests)) = spec.pointer_mut("/resources/requests")
    {
        requests.remove("storage");
    }
    spec
}

const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// What is wrong with a change of a claim's status.
pub(in crate::resources::core) fn claim_status(new: &Value, errors: &mut Vec<FieldError>) {
    let status = At::root(new).get("status");
    for (_, amount) in status.get("capacity").entries() {
        basic_amount(&amount, errors);
    }
    let states = status
        .get("allocatedResourceStatuses")
        .named(&status, "allocatedResourceStatus");
    for (name, state) in states.entries() {
        resource_key(name, &states.field, errors);
        if !RESIZE_STATES.contains(&state.text()) {
            errors.push(FieldError::not_supported(&states.field, &name.into(), RESIZE_STATES));
        }
    }
    let allocated = status.get("allocatedResources");
    for (name, amount) in allocated.entries() {
        if resource_key(name, &allocated.field, errors) {
            basic_amount(&amount, errors);
        }
    }
}

/// Of Kubernetes' own resources a claim has its size alone. Whether the name may be one.
fn resource_key(name: &str, field: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> bool {
    let known = errors.len();
    let wrong = qualified_name(name).into_iter();
    errors.extend(wrong.map(|what| FieldError::invalid_text(field, name, what)));
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if errors.len() == known && is_native && name != "storage" {
        errors.push(FieldError::not_supported(field, &name.into(), &["storage"]));
    }
    errors.len() == known
}

/// What a claim says of where its data comes from, in both fields that there are for it. `old` is what is changed, if
/// anything.
pub(in crate::resources::core) fn settle_data_source(old: Option<&Value>, claim: &mut Value) {
    let has = |claim: &Value, field: &str| present(claim, &format!("/spec/{field}"));
    // Sources in other namespaces are a feature that is off.
    if !text(claim, "/spec/dataSourceRef/namespace").is_empty() && !old.is_some_and(|old| has(old, "dataSourceRef")) {
        remove_at(claim, "/spec", "dataSourceRef");
    }
    let was_there = old.is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
    let known = matches!(
        (
            text(claim, "/spec/dataSource/kind"),
            text(claim, "/spec/dataSource/apiGroup")
        ),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    );
    if !was_there && !has(claim, "dataSourceRef") && !known {
        remove_at(claim, "/spec", "dataSource");
    }
    if old.is_some() {
        return;
    }
    match (has(claim, "dataSource"), has(claim, "dataSourceRef")) {
        (true, false) => copy_source(claim, "/spec/dataSource", "dataSourceRef"),
        (false, true) if text(claim, "/spec/dataSourceRef/namespace").is_empty() => {
            copy_source(claim, "/spec/dataSourceRef", "dataSource");
        }
        _ => {}
    }
}

fn copy_source(claim: &mut Value, from: &str, to: &'static str) {
    let source = map(claim, from).into_iter().flatten();
    let source: Map = source
        .filter(|(name, _)| matches!(name.as_str(), "apiGroup" | "kind" | "name"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    set_at(claim, "/spec", to, json!(source));
}

/// What claims are warned of.
pub(in crate::resources::core) fn claim_warnings(claim: &Value) -> Vec<String> {
    let mut warnings = annotation_warnings(
        claim,
        &[(
            CLASS_ANNOTATION,
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        )],
    );
    warn_fractions(&At::root(claim).get("spec"), &mut warnings);
    warnings
}

/// Sizes are whole bytes.
fn warn_fractions(spec: &At<'_>, warnings: &mut Vec<String>) {
    for part in ["resources.requests", "resources.limits"] {
        let size = spec.get(part).entries().find(|(name, _)| *name == "storage");
        let Some((_, size)) = size else { continue };
        if Quantity::parse(size.text()).is_some_and(|quantity| quantity.nanos() % 1_000_000_000 != 0) {
            warnings.push(format!(
                "{}: fractional byte value {} is invalid, must be an integer",
                size.field, size.value
            ));
        }
    }
}
