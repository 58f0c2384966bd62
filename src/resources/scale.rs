//! The `scale` subresource: `autoscaling/v1` Scale of workloads.

use std::borrow::Cow;

use crate::tree::{Value, json};

use super::cell::Cell;
use super::custom::along;
use super::lookup::{integer, text};
use super::row::{self, Row};
use super::{Column, FieldError, Refusal, Resource};

/// Table columns of a Scale.
pub const COLUMNS: &[Column] = &[
    column("Name", "string", ""),
    column("Desired", "integer", ""),
    column("Available", "integer", ""),
    column("Age", "string", ""),
];

const fn column(name: &'static str, column_type: &'static str, format: &'static str) -> Column {
    Column {
        name: Cow::Borrowed(name),
        column_type: Cow::Borrowed(column_type),
        format: Cow::Borrowed(format),
        description: Cow::Borrowed(""),
        priority: 0,
    }
}

/// The Scale of a workload, whole (with `kind` and `apiVersion`), and whether it says how many replicas it wants.
pub fn scale_of(resource: &Resource, workload: &Value) -> (Value, bool) {
    let Some(paths) = resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) else {
        return (built_in(workload), true);
    };
    let count = |path: &[String]| along(workload, path).and_then(Value::as_i64);
    let replicas = count(&paths.spec);
    let mut spec = json!({});
    if let Some(replicas) = replicas.filter(|&replicas| replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": count(&paths.status).unwrap_or(0)});
    let selector = paths.selector.as_ref().and_then(|path| along(workload, path));
    if let Some(selector) = selector.and_then(Value::as_str).filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    (whole(workload, &spec, &status), replicas.is_some())
}

fn built_in(workload: &Value) -> Value {
    let mut spec = json!({});
    if let Some(replicas) = integer(workload, "/spec/replicas").filter(|&replicas| replicas != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": integer(workload, "/status/replicas").unwrap_or(0)});
    // A replication controller selects by a plain map.
    let selector = match workload.pointer("/spec/selector") {
        Some(selector) if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() => {
            row::selector(Some(selector))
        }
        selector => row::labels(selector),
    };
    if selector != "<none>" {
        status["selector"] = selector.into();
    }
    whole(workload, &spec, &status)
}

fn whole(workload: &Value, spec: &Value, status: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = workload.pointer(&format!("/metadata/{field}")) {
            metadata[field] = value.clone();
        }
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// The workload with the replicas of a Scale; the rest is as in `workload`. Give the result to
/// [`super::prepare_update`] without a subresource.
pub fn apply_scale(resource: &Resource, workload: &Value, scale: &Value) -> Result<Value, Refusal> {
    let (name, own) = (text(scale, "/metadata/name"), text(workload, "/metadata/name"));
    if !name.is_empty() && name != own {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({own})");
        return Err(Refusal::BadRequest(message));
    }
    let replicas = integer(scale, "/spec/replicas").unwrap_or(0);
    if let Some(paths) = resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        // What is wrong with them is found where the object is validated.
        let mut changed = workload.clone();
        let mut at = &mut changed;
        for name in &paths.spec {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[name.as_str()];
        }
        *at = replicas.into();
        return Ok(changed);
    }
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        return Err(FieldError::invalid("spec.replicas", &replicas.into(), detail).into());
    }
    let mut changed = workload.clone();
    changed["spec"]["replicas"] = replicas.into();
    Ok(changed)
}

/// Table cells of a Scale, in the order of [`COLUMNS`].
pub fn scale_cells(scale: &Value) -> Vec<Cell> {
    let mut row = Row::new(scale);
    row.name()
        .integer_at("/spec/replicas")
        .integer_at("/status/replicas")
        .age();
    row.finish()
}
