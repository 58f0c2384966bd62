//! Subresources and printer columns of a definition.

use super::super::FieldError;
use super::super::validate::At;

/// What is wrong with subresources.
pub(super) fn subresources(subresources: &At<'_>, errors: &mut Vec<FieldError>) {
    let scale = subresources.get("scale");
    if !scale.present() {
        return;
    }
    let mut path = |field: &'static str, under: &[&str], required: bool, where_to: &str| {
        let path = scale.get(field);
        if path.is_empty() {
            if required {
                errors.push(path.required(""));
            }
        } else if let Some(wrong) = not_simple(path.text()) {
            errors.push(path.invalid(wrong));
        } else if !under.iter().any(|prefix| path.text().starts_with(prefix)) {
            errors.push(path.invalid(format_args!("should be a json path under {where_to}")));
        }
    };
    path("specReplicasPath", &[".spec."], true, ".spec");
    path("statusReplicasPath", &[".status."], true, ".status");
    path(
        "labelSelectorPath",
        &[".spec.", ".status."],
        false,
        "either .spec or .status",
    );
}

/// What is wrong with columns.
pub(super) fn columns(columns: &At<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &[
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    for column in columns.items() {
        let (name, kind, format) = (column.get("name"), column.get("type"), column.get("format"));
        if name.is_empty() {
            errors.push(name.required(""));
        }
        let types = || format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.push(kind.required(&types()));
        } else if !TYPES.contains(&kind.text()) {
            errors.push(kind.invalid(types()));
        }
        if !format.is_empty() && !FORMATS.contains(&format.text()) {
            errors.push(format.invalid(format_args!("must be one of {}", FORMATS.join(","))));
        }
        // The field has this name inside the server.
        let path = column.get("jsonPath").named(&column, "JSONPath");
        if path.is_empty() {
            errors.push(path.required(""));
        } else if let Some(wrong) = not_simple(path.text()) {
            errors.push(path.invalid(wrong));
        }
    }
}

/// Why a text is no simple JSON path.
fn not_simple(path: &str) -> Option<&'static str> {
    match path {
        "" => Some("must not be empty"),
        path if !path.starts_with('.') => Some("must be a simple json path starting with ."),
        _ => None,
    }
}
