//! Namespaces.

use crate::tree::{Value, json};

use crate::resources::FieldError;
use crate::resources::edit::{default_at, set_at};
use crate::resources::lookup::{list, present, text};
use crate::resources::names::qualified_name;
use crate::resources::validate::At;

/// Every namespace has a label with its name, and a phase.
pub(super) fn defaults(namespace: &mut Value) {
    let name = text(namespace, "/metadata/name").to_owned();
    set_at(namespace, "/metadata/labels", "kubernetes.io/metadata.name", name);
    default_at(namespace, "/status", "phase", "Active");
}

/// A new namespace is active, and stays until it has been cleared.
pub(super) fn prepare_create(namespace: &mut Value) {
    set_at(namespace, "", "status", json!({"phase": "Active"}));
    let mut finalizers: Vec<Value> = list(namespace, "/spec/finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    set_at(namespace, "/spec", "finalizers", finalizers);
}

/// What is wrong with the finalizers of a namespace; of a new one kube-apiserver names the list alone.
pub(super) fn finalizers(namespace: &Value, names_each: bool, errors: &mut Vec<FieldError>) {
    let all = At::root(namespace).get("spec.finalizers");
    for finalizer in all.items() {
        let name = finalizer.text();
        let mut wrong = qualified_name(name);
        if !name.contains('/') && name != "kubernetes" {
            wrong.push("name is neither a standard finalizer name nor is it fully qualified".to_owned());
        }
        let field = if names_each { &finalizer.field } else { &all.field };
        let wrong = wrong.into_iter();
        errors.extend(wrong.map(|what| FieldError::invalid_text(field, name, what)));
    }
}

/// The phase of a namespace follows from whether it is being deleted.
pub(super) fn status(namespace: &Value, errors: &mut Vec<FieldError>) {
    let (expected, detail) = if present(namespace, "/metadata/deletionTimestamp") {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    let phase = text(namespace, "/status/phase");
    if phase != expected {
        errors.push(FieldError::invalid_text("status.Phase", phase, detail));
    }
}
