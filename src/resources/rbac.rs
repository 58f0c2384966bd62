//! The groups `rbac.authorization.k8s.io` and `certificates.k8s.io`.

use serde_json::Value;

use super::duration::human_duration;
use super::edit::{default_at, items_mut};
use super::kind::Kind;
use super::lookup::{integer, list, present, text};
use super::row::Row;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("certificatesigningrequests.certificates.k8s.io").cells(|row| {
        let request = row.object;
        let lifetime = integer(request, "/spec/expirationSeconds");
        row.name()
            .age()
            .text_at("/spec/signerName")
            .text_at("/spec/username")
            .text(lifetime.map_or("<none>".to_owned(), human_duration))
            .text(signing_state(request));
    }),
    Kind::new("clusterrolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults),
    Kind::new("clusterroles.rbac.authorization.k8s.io"),
    Kind::new("rolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults),
    Kind::new("roles.rbac.authorization.k8s.io"),
];

fn bindings(row: &mut Row<'_>) {
    let binding = row.object;
    let subjects = |kind: &str| {
        let subjects = list(binding, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind);
        let names = subjects.map(|subject| match (kind, text(subject, "/name")) {
            ("ServiceAccount", name) => format!("{}/{name}", text(subject, "/namespace")),
            (_, name) => name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    row.name().text(role).age();
    row.text(subjects("User"))
        .text(subjects("Group"))
        .text(subjects("ServiceAccount"));
}

fn signing_state(request: &Value) -> String {
    let has = |kind: &str| {
        list(request, "/status/conditions")
            .iter()
            .any(|condition| text(condition, "/type") == kind)
    };
    let mut state = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if present(request, "/status/certificate") && !text(request, "/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

fn binding_defaults(binding: &mut Value) {
    for subject in items_mut(binding, "/subjects") {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            default_at(subject, "", "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}
