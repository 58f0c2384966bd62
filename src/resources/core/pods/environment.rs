//! Rules of the environment of containers, and of references to fields and resources (in files of volumes, too).

use crate::tree::Value;

use crate::resources::FieldError;
use crate::resources::core::data_rules::check_key;
use crate::resources::names::{qualified_name, subdomain};
use crate::resources::quantity::Quantity;
use crate::resources::validate::At;

const ENV_NAME_RULE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn is_env_name(name: &str) -> bool {
    name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

const SOURCES: &[&str] = &[
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

/// What of a Pod the environment may show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn environment(variables: &At<'_>, errors: &mut Vec<FieldError>) {
    for variable in variables.items() {
        let name = variable.value.get("name").and_then(Value::as_str).unwrap_or("");
        if !is_env_name(name) {
            errors.push(variable.get("name").invalid(ENV_NAME_RULE));
        }
        if variable.value.get("valueFrom").is_none_or(Value::is_null) {
            continue;
        }
        let source = variable.get("valueFrom");
        let count = SOURCES.iter().filter(|name| source.get(**name).present()).count();
        let wrong = match count {
            0 => Some(
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ),
            _ if !variable.get("value").is_empty() => Some("may not be specified when `value` is not empty"),
            1 => None,
            _ => Some("may not have more than one field specified at a time"),
        };
        errors.extend(wrong.map(|what| FieldError::invalid_text(&source.field, "", what)));
        field_reference(&source.get("fieldRef"), ENV_FIELDS, errors);
        resource_reference(&source.get("resourceFieldRef"), false, errors);
        for reference in ["configMapKeyRef", "secretKeyRef"] {
            let reference = source.get(reference);
            if reference.present() {
                let name = reference.get("name").text();
                let wrong = subdomain(name).into_iter();
                let field = format!("{}.name", reference.field);
                errors.extend(wrong.map(|what| FieldError::invalid_text(&field, name, what)));
                let key = reference.get("key");
                if !key.is_empty() {
                    check_key(key.text(), &key.field, errors);
                }
            }
        }
        let key = source.get("fileKeyRef.key");
        if !is_env_name(key.text()) {
            errors.push(key.invalid(ENV_NAME_RULE));
        }
    }
}

pub(super) fn environment_from(all: &At<'_>, errors: &mut Vec<FieldError>) {
    for source in all.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() && !is_env_name(prefix.text()) {
            errors.push(prefix.invalid(ENV_NAME_RULE));
        }
        let wrong = match (source.get("configMapRef").present(), source.get("secretRef").present()) {
            (false, false) => "must specify one of: `configMapRef` or `secretRef`",
            (true, true) => "may not have more than one field specified at a time",
            _ => continue,
        };
        errors.push(FieldError::invalid_text(&all.field, "", wrong));
    }
}

/// Fields of a Pod that a reference can name at all, beside entries of labels and annotations.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

/// A reference to a field of the Pod; `supported`: those that can be had there.
pub(super) fn field_reference(reference: &At<'_>, supported: &[&str], errors: &mut Vec<FieldError>) {
    if !reference.present() {
        return;
    }
    let path = reference.get("fieldPath");
    let version = reference.get("apiVersion");
    if version.is_empty() {
        errors.push(version.required(""));
        return;
    }
    if path.is_empty() {
        errors.push(path.required(""));
        return;
    }
    let mut inconvertible = |why: String| {
        errors.push(path.invalid(format_args!("error converting fieldPath: {why}")));
    };
    if version.text() != "v1" {
        return inconvertible(format!("unsupported pod version: {}", version.text()));
    }
    let entry = path.text().strip_suffix("']").and_then(|entry| entry.split_once("['"));
    match entry {
        Some(("metadata.annotations", key)) => reference_key(reference, &key.to_lowercase(), errors),
        Some(("metadata.labels", key)) => reference_key(reference, key, errors),
        Some(_) => inconvertible(format!("field label does not support subscript: {}", path.text())),
        // The old name of another field.
        None if path.text() == "spec.host" => {}
        None if !KNOWN_FIELDS.contains(&path.text()) => {
            inconvertible(format!("field label not supported: {}", path.text()));
        }
        None if !supported.contains(&path.text()) => errors.push(path.not_supported(supported)),
        None => {}
    }
}

fn reference_key(reference: &At<'_>, key: &str, errors: &mut Vec<FieldError>) {
    let wrong = qualified_name(key).into_iter();
    errors.extend(wrong.map(|what| FieldError::invalid_text(&reference.field, key, what)));
}

/// A reference to an amount of resources of a container; `elsewhere`: of one that must be named.
pub(super) fn resource_reference(reference: &At<'_>, elsewhere: bool, errors: &mut Vec<FieldError>) {
    const KNOWN: &[&str] = &[
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    if !reference.present() {
        return;
    }
    let (container, resource) = (reference.get("containerName"), reference.get("resource"));
    let name = resource.text();
    let huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if elsewhere && container.is_empty() {
        errors.push(container.required(""));
    } else if resource.is_empty() {
        errors.push(resource.required(""));
    } else if !huge {
        resource.one_of(KNOWN, errors);
    }
    let divisor = reference.get("divisor");
    let zero = Quantity::parse(divisor.text()).is_none_or(|divisor| divisor.nanos() == 0);
    let what = match name {
        _ if zero => return,
        "limits.cpu" | "requests.cpu" => "cpu",
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if huge => "hugepages",
        _ => return,
    };
    let fine: &[&str] = if what == "cpu" {
        &["1m", "1"]
    } else {
        &[
            "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
        ]
    };
    if !fine.contains(&divisor.text()) {
        let fine = fine.join(if what == "cpu" { " and " } else { ", " });
        let detail = format!("only divisor's values {fine} are supported with the {what} resource");
        errors.push(FieldError::invalid(&divisor.field, resource.value, detail));
    }
}
