//! The group `certificates.k8s.io`.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::tree::{Value, json};
use base64::Engine;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::duration::human_duration;
use super::edit::{default_at, items_mut, remove_at, set_at};
use super::kind::Kind;
use super::lookup::{integer, list, present, text};
use super::names::{label, subdomain};
use super::signing_request::{SigningRequest, UNKNOWN_ALGORITHM};
use super::strategy::keep;
use super::validate::At;
use super::{Context, FieldError};

const STORAGE: &str = "certificatesigningrequests.certificates.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(STORAGE)
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
    .prepare_update(prepare_update)
    .validate(check_request)
    .validate_update(|old, new, subresource, errors| {
        if subresource == Some("approval") {
            check_status(old, new, Part::Approval, errors);
        }
    })
    .validate_status(|old, new, errors| check_status(old, new, Part::Status, errors))];

/// Which part of a request's status is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What approvers say.
    Approval,
    /// What the signer says and gives.
    Status,
}

/// Writes down who made a signing request; nothing for other kinds. Before [`super::prepare_create`].
pub fn set_requester(
    resource: &super::Resource,
    object: &mut Value,
    name: &str,
    uid: &str,
    groups: &[String],
    extra: &BTreeMap<String, Vec<String>>,
) {
    if resource.storage != STORAGE {
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
    if !extra.is_empty() {
        set_at(object, "/spec", "extra", json!(extra));
    }
}

fn of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    let conditions = list(request, "/status/conditions").iter();
    conditions
        .filter(|condition| text(condition, "/type") == kind)
        .collect()
}

fn signing_state(request: &Value) -> String {
    let has = |kind: &str| !of_type(request, kind).is_empty();
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

/// What is wrong with what is asked for.
fn check_request(request: &Value, errors: &mut Vec<FieldError>) {
    let spec = At::root(request).get("spec");
    let pem = spec.get("request");
    if let Some(fault) = request_fault(&decoded(pem.text())) {
        errors.push(pem.invalid(fault));
    }
    let signer = spec.get("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        errors.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else if !signer.is_empty() {
        check_signer(&signer, errors);
    }
    let mut known = HashSet::new();
    for usage in spec.get("usages").items() {
        if !USAGES.contains(&usage.text()) {
            errors.push(usage.not_supported(USAGES));
        }
        if !known.insert(usage.text()) {
            errors.push(usage.duplicate());
        }
    }
    let lifetime = spec.get("expirationSeconds");
    if lifetime.integer().is_some_and(|lifetime_s| lifetime_s < 600) {
        errors.push(lifetime.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD
        .decode(base64)
        .unwrap_or_default()
}

/// What is wrong with a request of PKCS #10 in PEM, in the words of Go where it has some of its own.
fn request_fault(pem: &[u8]) -> Option<&'static str> {
    match SigningRequest::parse(pem) {
        Err(fault) => Some(fault),
        // What cannot be judged here may be fine for the signer.
        Ok(request) => request.unproven.filter(|why| *why != UNKNOWN_ALGORITHM),
    }
}

/// What a signing request asks for.
///
/// # Errors
/// What is wrong with it.
pub fn signing_request(request: &Value) -> Result<SigningRequest, &'static str> {
    SigningRequest::parse(&decoded(text(request, "/spec/request")))
}

/// The groups that a signing request asks for: the organizations of its subject. None for what cannot be read.
pub fn requested_groups(request: &Value) -> Vec<String> {
    signing_request(request).map_or_else(|_| Vec::new(), |asked| asked.organizations)
}

/// When the certificate that a signing request was answered with ends, Unix seconds; `None`: there is none that can be read.
pub fn issued_until_s(request: &Value) -> Option<i64> {
    let pem = decoded(text(request, "/status/certificate"));
    let block = Pem::iter_from_buffer(&pem).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// Longest names of a signer: `domain/path`, in bytes.
const DOMAIN_LEN_MAX: usize = 253;
const SIGNER_LEN_MAX: usize = DOMAIN_LEN_MAX + 1 + (253 + 63 + 1);

fn check_signer(signer: &At<'_>, errors: &mut Vec<FieldError>) {
    let [domain, path] = signer.text().split('/').collect::<Vec<_>>()[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(signer.invalid(detail));
        return;
    };
    if domain.len() > DOMAIN_LEN_MAX {
        errors.push(FieldError::too_long(&signer.field, DOMAIN_LEN_MAX));
    }
    let mut refuse = |shown: &str, detail: String| {
        errors.push(FieldError::invalid_text(&signer.field, shown, detail));
    };
    for part in domain.split('.') {
        for what in label(part) {
            refuse(domain, format!("validating label \"{part}\": {what}"));
        }
    }
    if !domain.contains('.') {
        refuse(
            domain,
            "should be a domain with at least two segments separated by dots".to_owned(),
        );
    }
    for part in path.split('.') {
        for what in subdomain(part) {
            refuse(path, format!("validating label \"{part}\": {what}"));
        }
    }
    if signer.text().len() > SIGNER_LEN_MAX {
        errors.push(FieldError::too_long(&signer.field, SIGNER_LEN_MAX));
    }
}

/// What a change of status may not do: what was said stands, it is said once, and by whom it is up to.
fn check_status(old: &Value, new: &Value, part: Part, errors: &mut Vec<FieldError>) {
    check_conditions(old, new, errors);
    let conditions = "status.conditions";
    for kind in ["Approved", "Denied", "Failed"] {
        let (before, after) = (of_type(old, kind), of_type(new, kind));
        let is_signers = part == Part::Status && kind != "Failed";
        let what = if after.len() < before.len() {
            Some("remove")
        } else if is_signers && after.len() > before.len() {
            Some("add")
        } else if is_signers && before != after {
            Some("modify")
        } else {
            None
        };
        errors.extend(what.map(|what| {
            let detail = format!("updates may not {what} a condition of type \"{kind}\"");
            FieldError::forbidden(conditions, detail)
        }));
    }
    let certificate = |request| text(request, "/status/certificate");
    if certificate(old) == certificate(new) {
        return;
    }
    if let Some(fault) = certificate_fault(&decoded(certificate(new))) {
        errors.push(FieldError::invalid_text(
            "status.certificate",
            "<certificate data>",
            fault,
        ));
    }
    if part == Part::Approval {
        errors.push(FieldError::forbidden(
            "status.certificate",
            "updates may not set certificate content",
        ));
    } else if !certificate(old).is_empty() {
        errors.push(FieldError::forbidden(
            "status.certificate",
            "updates may not modify existing certificate content",
        ));
    }
}

/// What is wrong with conditions; what `old` has already is tolerated.
fn check_conditions(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let has = |request: &Value, kind: &str| !of_type(request, kind).is_empty();
    let mut before: HashMap<&str, usize> = HashMap::new();
    for condition in list(old, "/status/conditions") {
        *before.entry(text(condition, "/type")).or_default() += 1;
    }
    let mut known = HashSet::new();
    let mut last_verdict = "";
    for condition in At::root(new).get("status.conditions").items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if kind.is_empty() && !before.contains_key("") {
            errors.push(kind.required(""));
        }
        let allowed: &[&str] = if matches!(kind.text(), "Approved" | "Denied" | "Failed") {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            errors.push(status.required(""));
        } else {
            status.one_of(allowed, errors);
        }
        if !known.insert(kind.text()) && before.get(kind.text()).is_none_or(|count| *count < 2) {
            errors.push(kind.duplicate());
        }
        if matches!(kind.text(), "Approved" | "Denied") {
            last_verdict = kind.text();
        }
    }
    let both = |request: &Value| has(request, "Approved") && has(request, "Denied");
    if both(new) && !both(old) {
        let detail = "Approved and Denied conditions are mutually exclusive";
        errors.push(FieldError::invalid_text("status.conditions", last_verdict, detail));
    }
}

/// What is wrong with issued certificates in PEM.
fn certificate_fault(pem: &[u8]) -> Option<String> {
    if pem.is_empty() {
        return None;
    }
    let mut count = 0;
    for block in Pem::iter_from_buffer(pem).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found \"{}\"",
                block.label
            ));
        }
        if X509Certificate::from_der(&block.contents).is_err() {
            return Some("x509: malformed certificate".to_owned());
        }
        count += 1;
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

/// `/approval` changes conditions only, `/status` the rest of status and conditions that are no verdict, and otherwise the
/// request does not change. New conditions get their times.
fn prepare_update(old: &Value, new: &mut Value, subresource: Option<&str>, context: &Context<'_>) {
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
        _ => keep(old, new, "spec"),
    }
    let state = |condition: &Value| ["/type", "/status"].map(|part| text(condition, part).to_owned());
    let before = list(old, "/status/conditions").iter();
    let since: HashMap<_, _> = before
        .map(|condition| (state(condition), text(condition, "/lastTransitionTime")))
        .collect();
    for condition in items_mut(new, "/status/conditions") {
        default_at(condition, "", "lastUpdateTime", context.now());
        let known = since.get(&state(condition)).filter(|since| !since.is_empty());
        let since = known.map_or_else(|| context.now(), |since| (*since).to_owned());
        default_at(condition, "", "lastTransitionTime", since);
    }
}
