//! The way from `kubectl apply` without `--server-side`, which keeps what it applied in an annotation, to server-side apply:
//! what the annotation names is kubectl's already, and the annotation is kept up to date for whoever goes back.

use super::super::managed::compare::compare;
use super::super::managed::fields::Fields;
use super::super::managed::{Request, Typed, text};
use super::declared::declared;
use crate::tree::{Map, Value};

/// The manager that this is done for.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Largest annotations of an object, bytes of names and values together.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The fields that the annotation names and that are as it says. `None` when there is none, or none of this version.
pub(super) fn unchanged(typed: Typed<'_>, live: &Value, request: &Request<'_>) -> Option<Fields> {
    let applied = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let applied: Value = serde_json::from_str(applied).ok()?;
    if text(&applied, "apiVersion") != request.api_version {
        return None;
    }
    let mut fields = declared(typed, &applied).ok()?;
    let changes = compare(typed, &applied, live, |_| true);
    fields.remove_found(changes.taken.top());
    fields.remove_found(changes.removed.top());
    Some(fields)
}

/// Writes the configuration into the annotation, if there is one. It is left out when annotations become too large.
pub(super) fn note(object: &mut Value, configuration: &Value) {
    let Some(annotations) = object["metadata"]["annotations"].as_object() else {
        return;
    };
    if annotations
        .get(ANNOTATION)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return;
    }
    let mut configuration = configuration.clone();
    if let Some(own) = configuration
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        own.remove(ANNOTATION);
    }
    let text = go_json(&configuration.to_json());
    if annotations[ANNOTATION] == text {
        return;
    }
    let size = |annotations: &Map| -> usize {
        annotations
            .iter()
            .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
            .sum()
    };
    let before = annotations[ANNOTATION].as_str().map_or(0, str::len);
    let fits = size(annotations) - before + text.len() <= ANNOTATIONS_BYTES_MAX;
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        if fits {
            annotations.insert(ANNOTATION, text.into());
        } else {
            annotations.remove(ANNOTATION);
        }
    }
}

/// JSON as Go's encoder writes it: with what HTML would take for markup escaped, and a line end.
fn go_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for letter in json.chars() {
        match letter {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text.push('\n');
    text
}
