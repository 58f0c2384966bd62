//! What kube-apiserver refuses of a CustomResourceDefinition.
//!
//! Rules and texts are those of `apiextensions/validation`. They see a definition as the server sees it inside: what all versions
//! have in common (schema, subresources, columns, selectable fields) stands at the top, so `spec.validation`,
//! `spec.additionalPrinterColumns` in the paths of errors.

mod conversion;
mod defaults;
mod field_path;
mod parts;
mod schema;
mod structural;
mod versions;

use crate::schema::structural::is_known_format;
use crate::tree::Value;

use super::FieldError;
use super::lookup::condition;
use super::names::{dns_1035_label, subdomain};
use super::validate::{At, immutable};

use versions::Definition;

/// What is wrong with a new definition.
pub(super) fn check_create(definition: &Value, errors: &mut Vec<FieldError>) {
    check(None, definition, errors);
}

/// What is wrong with a changed definition.
pub(super) fn check_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    check(Some(old), new, errors);
    if is_established(old) {
        immutable(old, new, "spec.scope", errors);
        immutable(old, new, "spec.names.kind", errors);
    }
    immutable(old, new, "spec.group", errors);
    immutable(old, new, "spec.names.plural", errors);
}

/// What is wrong with a changed status.
pub(super) fn check_status(new: &Value, errors: &mut Vec<FieldError>) {
    check_names(&At::root(new).get("status.acceptedNames"), errors);
}

/// Warnings about a definition: formats of texts that nothing checks, each once.
pub(super) fn warnings(definition: &Value) -> Vec<String> {
    let mut formats: Vec<&str> = Vec::new();
    for version in At::root(definition).get("spec.versions").items() {
        let schema = version.value["schema"].get("openAPIV3Schema").unwrap_or(&Value::Null);
        schema::each(schema, &mut |schema| {
            let format = schema["format"].as_str().unwrap_or("");
            let odd = schema["type"] == "string" && !format.is_empty() && !is_known_format(format);
            if odd && !formats.contains(&format) {
                formats.push(format);
            }
        });
    }
    formats
        .iter()
        .map(|format| format!("unrecognized format \"{format}\""))
        .collect()
}

fn is_established(definition: &Value) -> bool {
    condition(definition, "Established").is_some_and(|condition| condition["status"] == "True")
}

fn check(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    let root = At::root(new);
    let (spec, name) = (root.get("spec"), root.get("metadata.name"));
    let definition = Definition::of(&spec);
    if old.is_none() {
        let required = format!("{}.{}", spec.get("names.plural").text(), spec.get("group").text());
        if name.text() != required {
            errors.push(name.invalid("must be spec.names.plural+\".\"+spec.group"));
        }
    }
    check_group(&spec.get("group"), errors);
    let scope = spec.get("scope");
    if scope.is_empty() {
        errors.push(scope.required(""));
    } else if !["Cluster", "Namespaced"].contains(&scope.text()) {
        errors.push(scope.not_supported(&["Cluster", "Namespaced"]));
    }
    versions::check(old, &spec, &definition, errors);
    let names = spec.get("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if names.get(field).is_empty() {
            errors.push(names.get(field).required(""));
        }
    }
    check_names(&names, errors);
    versions::check_common(old, &definition, errors);
    let preserves = spec.get("preserveUnknownFields");
    let conversion = spec.get("conversion");
    let strategy = conversion.get("strategy");
    if conversion.present() && strategy.text() != "None" && preserves.is_true() {
        errors.push(strategy.invalid("must be None if spec.preserveUnknownFields is true"));
    }
    conversion::check(old, &conversion, errors);
    check_status(new, errors);
    check_stored_versions(&root.get("status.storedVersions"), &spec.get("versions"), errors);
    check_approval(old, new, errors);
    let preserved = old.is_some_and(|old| old["spec"]["preserveUnknownFields"].as_bool() == Some(true));
    if preserves.is_true() && !preserved {
        errors.push(preserves.invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

fn check_group(group: &At<'_>, errors: &mut Vec<FieldError>) {
    if group.is_empty() {
        errors.push(group.required(""));
        return;
    }
    let wrong = subdomain(group.text());
    if !wrong.is_empty() {
        errors.push(group.invalid(wrong.join(",")));
    } else if !group.text().contains('.') {
        errors.push(group.invalid("should be a domain with at least one dot"));
    }
}

/// What is wrong with names, of the spec or accepted ones. Those that are not there are no matter here.
fn check_names(names: &At<'_>, errors: &mut Vec<FieldError>) {
    let label = |name: &At<'_>, errors: &mut Vec<FieldError>| {
        let wrong = dns_1035_label(name.text());
        if !wrong.is_empty() {
            errors.push(name.invalid(wrong.join(",")));
        }
    };
    for field in ["plural", "singular"] {
        let name = names.get(field);
        if !name.is_empty() {
            label(&name, errors);
        }
    }
    for field in ["kind", "listKind"] {
        let name = names.get(field);
        let wrong = dns_1035_label(&name.text().to_lowercase());
        if !name.is_empty() && !wrong.is_empty() {
            let wrong = wrong.join(",");
            errors.push(name.invalid(format_args!("may have mixed case, but should otherwise match: {wrong}")));
        }
    }
    for name in names.get("shortNames").items() {
        label(&name, errors);
    }
    let (kind, list_kind) = (names.get("kind"), names.get("listKind"));
    if !kind.is_empty() && kind.text() == list_kind.text() {
        errors.push(list_kind.invalid("kind and listKind may not be the same"));
    }
    for name in names.get("categories").items() {
        label(&name, errors);
    }
}

fn check_stored_versions(stored: &At<'_>, versions: &At<'_>, errors: &mut Vec<FieldError>) {
    if stored.is_empty() {
        errors.push(FieldError::invalid_shown(
            &stored.field,
            "null",
            "must have at least one stored version",
        ));
        return;
    }
    let is_stored = |name: &str| stored.items().any(|stored| stored.text() == name);
    for version in versions.items().filter(|version| version.get("storage").is_true()) {
        let name = version.get("name");
        if !is_stored(name.text()) {
            errors.push(stored.invalid(format_args!("must have the storage version {}", name.text())));
        }
    }
    for stored in stored.items() {
        let name = stored.text();
        if !versions.items().any(|version| version.get("name").text() == name) {
            errors.push(stored.invalid(format_args!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            )));
        }
    }
}

/// Definitions in groups of the Kubernetes community need an approval (KEP-1111).
fn check_approval(old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    #[derive(PartialEq)]
    enum State {
        Missing,
        Approved,
        Invalid,
    }
    let group = new["spec"]["group"].as_str().unwrap_or("");
    let community = ["k8s.io", "kubernetes.io"];
    let protected = community.iter().any(|domain| {
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if !protected {
        return;
    }
    let annotation = |object: &Value| {
        object["metadata"]["annotations"][ANNOTATION]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let state = |text: &str| {
        let url = text
            .split_once("://")
            .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.split('/').next().unwrap_or("").is_empty());
        match text {
            "" => State::Missing,
            text if url || text.starts_with("unapproved") => State::Approved,
            _ => State::Invalid,
        }
    };
    let text = annotation(new);
    let now = state(&text);
    if old.is_some_and(|old| state(&annotation(old)) == now) {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    match now {
        State::Approved => {}
        State::Missing => errors.push(FieldError::required(
            field,
            format_args!("protected groups must have approval annotation \"{ANNOTATION}\", {SEE}"),
        )),
        State::Invalid => errors.push(FieldError::invalid_text(
            field,
            &text,
            format_args!(
                "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting \
                 with \"unapproved\", {SEE}"
            ),
        )),
    }
}
