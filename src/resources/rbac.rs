//! The groups `rbac.authorization.k8s.io` and `certificates.k8s.io`.

use crate::tree::Value;
use base64::Engine;

use super::Context;
use super::FieldError;
use super::duration::human_duration;
use super::edit::{default_at, items_mut, remove_at, set_at};
use super::kind::Kind;
use super::lookup::{integer, list, present, text};
use super::row::Row;
use super::strategy::keep;
use super::validate::{At, capitalized};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("certificatesigningrequests.certificates.k8s.io")
        .cells(|row| {
            let request = row.object;
            let lifetime = integer(request, "/spec/expirationSeconds");
            row.name()
                .age()
                .text_at("/spec/signerName")
                .text_at("/spec/username")
                .text(lifetime.map_or("<none>".to_owned(), human_duration))
                .text(signing_state(request));
        })
        .prepare_update(note_condition_times)
        .validate(check_signing_request)
        .validate_update(|old, new, _, errors| check_conditions_stay(old, new, errors))
        .validate_status(check_conditions_stay),
    Kind::new("clusterrolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults)
        .validate(|binding, errors| check_binding(binding, &["ClusterRole"], errors))
        .validate_update(role_stays),
    Kind::new("clusterroles.rbac.authorization.k8s.io").validate(|role, errors| check_rules(role, false, errors)),
    Kind::new("rolebindings.rbac.authorization.k8s.io")
        .cells(bindings)
        .defaults(binding_defaults)
        .validate(|binding, errors| check_binding(binding, &["Role", "ClusterRole"], errors))
        .validate_update(role_stays),
    Kind::new("roles.rbac.authorization.k8s.io").validate(|role, errors| check_rules(role, true, errors)),
];

/// Writes down who made a signing request; nothing for other kinds. Before [`super::prepare_create`].
pub fn set_requester(resource: &super::Resource, object: &mut Value, name: &str, uid: &str, groups: &[String]) {
    if resource.storage != "certificatesigningrequests.certificates.k8s.io" {
        return;
    }
    for field in ["username", "uid", "groups", "extra"] {
        remove_at(object, "/spec", field);
    }
    set_at(object, "/spec", "username", name);
    if !uid.is_empty() {
        set_at(object, "/spec", "uid", uid);
    }
    if !groups.is_empty() {
        set_at(object, "/spec", "groups", groups.to_vec());
    }
}

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

fn check_rules(role: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for rule in At::root(role).get("rules").items() {
        let (urls, groups, resources) = (
            rule.get("nonResourceURLs"),
            rule.get("apiGroups"),
            rule.get("resources"),
        );
        if !urls.is_empty() {
            if namespaced {
                errors.push(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
            }
            if !groups.is_empty() || !resources.is_empty() {
                errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if groups.is_empty() {
            errors.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.is_empty() {
            errors.push(resources.required("resource rules must supply at least one resource"));
        }
    }
}

fn check_binding(binding: &Value, roles: &[&str], errors: &mut Vec<FieldError>) {
    let root = At::root(binding);
    let kind = root.get("roleRef.kind");
    if !roles.contains(&kind.text()) {
        errors.push(kind.not_supported(roles));
    }
    for subject in root.get("subjects").items() {
        let group = subject.get("apiGroup");
        match subject.get("kind").text() {
            "ServiceAccount" => {
                if !group.is_empty() {
                    errors.push(group.not_supported(&[""]));
                }
                let namespace = subject.get("namespace");
                if namespace.is_empty() && roles == ["ClusterRole"] {
                    errors.push(namespace.required(""));
                }
            }
            "User" | "Group" if group.text() != "rbac.authorization.k8s.io" => {
                errors.push(group.not_supported(&["rbac.authorization.k8s.io"]));
            }
            _ => {}
        }
    }
}

fn role_stays(old: &Value, new: &Value, _: Option<&str>, errors: &mut Vec<FieldError>) {
    if old.get("roleRef") != new.get("roleRef") {
        let shown = capitalized(new.get("roleRef").unwrap_or(&Value::Null));
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
}

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

fn check_signing_request(request: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(request).get("spec");
    let pem = spec.get("request");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(pem.text())
        .unwrap_or_default();
    if !bytes
        .windows(31)
        .any(|window| window == b"-----BEGIN CERTIFICATE REQUEST-")
    {
        errors.push(pem.invalid("PEM block type must be CERTIFICATE REQUEST"));
    }
    let signer = spec.get("signerName");
    if !signer.is_empty()
        && !signer
            .text()
            .split_once('/')
            .is_some_and(|(domain, path)| domain.contains('.') && !path.is_empty())
    {
        errors.push(signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"));
    }
    for usage in spec.get("usages").items() {
        usage.one_of(USAGES, errors);
    }
    let lifetime = spec.get("expirationSeconds");
    if lifetime.integer().is_some_and(|lifetime_s| lifetime_s < 600) {
        errors.push(lifetime.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
}

/// What a signer or approver has said stands; and it cannot say both.
fn check_conditions_stay(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let has = |request: &Value, kind: &str| {
        list(request, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == kind)
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if has(old, kind) && !has(new, kind) {
            let detail = format!("updates may not remove a condition of type \"{kind}\"");
            errors.push(FieldError::forbidden("status.conditions", detail));
        }
    }
    if has(new, "Approved") && has(new, "Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid_text("status.conditions", "Denied", detail));
    }
    let certificate = text(new, "/status/certificate");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(certificate)
        .unwrap_or_default();
    if !certificate.is_empty() && !bytes.windows(27).any(|window| window == b"-----BEGIN CERTIFICATE-----") {
        let detail = "must contain at least one CERTIFICATE PEM block";
        errors.push(FieldError::invalid_text(
            "status.certificate",
            "<certificate data>",
            detail,
        ));
    }
}

/// `/approval` changes conditions only, `/status` the rest of status and conditions that are no verdict; new conditions
/// get their times.
fn note_condition_times(old: &Value, new: &mut Value, subresource: Option<&str>, context: &Context<'_>) {
    match subresource {
        Some("approval") => {
            let conditions = new.pointer("/status/conditions").cloned();
            for field in ["spec", "status"] {
                keep(old, new, field);
            }
            match conditions {
                Some(conditions) => set_at(new, "/status", "conditions", conditions),
                None => {
                    remove_at(new, "/status", "conditions");
                }
            }
        }
        Some("status") => {}
        // The request itself does not change.
        _ => keep(old, new, "spec"),
    }
    for condition in items_mut(new, "/status/conditions") {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            default_at(condition, "", field, context.now());
        }
    }
}
