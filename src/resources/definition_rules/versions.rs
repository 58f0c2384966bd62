//! Versions of a definition, and what all of them have in common.

use crate::tree::Value;

use super::super::FieldError;
use super::super::names::dns_1035_label;
use super::super::validate::{At, FieldPath, capitalized};
use super::{field_path, parts, schema};

/// A definition as the server sees it inside: what is the same in all versions is that of the definition.
pub(super) struct Definition<'a> {
    pub(super) schema: Option<At<'a>>,
    pub(super) subresources: Option<At<'a>>,
    pub(super) columns: Option<At<'a>>,
    pub(super) selectable: Option<At<'a>>,
    /// Whether any version has a status subresource.
    pub(super) has_status: bool,
}

impl<'a> Definition<'a> {
    pub(super) fn of(spec: &At<'a>) -> Definition<'a> {
        let versions = spec.get("versions");
        let common = |field: &'static str, path: &str| {
            let mut values = versions.items().map(|version| version.get(field).value);
            let first = values.next()?;
            values.all(|value| is_alike(first, value)).then(|| At {
                value: first,
                field: FieldPath::made(path.to_owned()),
            })
        };
        let schema = common("schema", "spec.validation");
        let selectable = common("selectableFields", "spec.selectableFields").filter(|_| schema.is_some());
        Definition {
            schema,
            subresources: common("subresources", "spec.subresources"),
            columns: common("additionalPrinterColumns", "spec.additionalPrinterColumns"),
            selectable,
            has_status: versions.items().any(|version| has_status(&version.get("subresources"))),
        }
    }
}

fn has_status(subresources: &At<'_>) -> bool {
    subresources.get("status").present()
}

/// Whether two values are equal; what is empty equals what is absent.
fn is_alike(one: &Value, other: &Value) -> bool {
    let none = |value: &Value| value.is_null() || value.as_array().is_some_and(|list| list.is_empty());
    none(one) && none(other) || one == other
}

/// What is wrong with the versions, each by itself and together.
pub(super) fn check<'a>(old: Option<&Value>, spec: &At<'a>, definition: &Definition<'a>, errors: &mut Vec<FieldError>) {
    let versions = spec.get("versions");
    for version in versions.items() {
        let own = version.get("schema").value["openAPIV3Schema"].is_object();
        if !own {
            let field = format!("{}.schema.openAPIV3Schema", version.field);
            errors.push(FieldError::required(field, ""));
        }
    }
    let mut names: Vec<&str> = Vec::new();
    let mut stored = 0;
    for version in versions.items() {
        let name = version.get("name");
        stored += usize::from(version.get("storage").is_true());
        names.push(name.text());
        let wrong = dns_1035_label(name.text());
        if !wrong.is_empty() {
            errors.push(name.invalid(wrong.join(",")));
        }
        check_deprecation(&version, errors);
        let subresources = version.get("subresources");
        if definition.schema.is_none() {
            let unchanged = old.is_some_and(|old| schema_of(old, name.text()) == Some(version.get("schema").value));
            if !unchanged {
                let status = has_status(definition.subresources.as_ref().unwrap_or(&subresources));
                schema::check(&version.get("schema"), status, errors);
            }
        }
        if definition.subresources.is_none() {
            parts::subresources(&subresources, errors);
        }
        if definition.columns.is_none() {
            parts::columns(&version.get("additionalPrinterColumns"), errors);
        }
        let selectable = version.get("selectableFields");
        if definition.selectable.is_none() && !selectable.is_empty() {
            let top = definition.schema.as_ref();
            let schema = top.map_or_else(|| version.get("schema").value, |schema| schema.value);
            if top.is_some() || !schema["openAPIV3Schema"].is_object() {
                errors.push(FieldError::invalid_text(
                    &selectable.field,
                    "",
                    "selectableFields may only be set when version.schema.openAPIV3Schema is not included",
                ));
            } else {
                field_path::selectable(&selectable, &schema["openAPIV3Schema"], errors);
            }
        }
    }
    let shown = || {
        if versions.is_empty() {
            "null".to_owned()
        } else {
            capitalized(versions.value).to_string()
        }
    };
    let mut invalid = |detail: &str| errors.push(FieldError::invalid_shown(&versions.field, &shown(), detail));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() < count {
        invalid("must contain unique version names");
    }
    if stored != 1 {
        invalid("must have exactly one version marked as storage version");
    }
}

/// What is wrong with what all versions have in common.
pub(super) fn check_common(old: Option<&Value>, definition: &Definition<'_>, errors: &mut Vec<FieldError>) {
    if let Some(schema) = &definition.schema {
        let before = old.map(|old| {
            old["spec"]["versions"]
                .as_array()
                .map_or(&[][..], |list| list.as_slice())
        });
        let unchanged = before.is_some_and(|versions| {
            !versions.is_empty() && versions.iter().all(|version| version["schema"] == *schema.value)
        });
        if !unchanged {
            schema::check(schema, definition.has_status, errors);
        }
    }
    if let Some(subresources) = &definition.subresources {
        parts::subresources(subresources, errors);
    }
    if let Some(columns) = &definition.columns {
        parts::columns(columns, errors);
    }
    let Some(selectable) = definition.selectable.as_ref().filter(|fields| !fields.is_empty()) else {
        return;
    };
    match &definition.schema {
        Some(schema) if schema.value["openAPIV3Schema"].is_object() => {
            field_path::selectable(selectable, &schema.value["openAPIV3Schema"], errors);
        }
        _ => errors.push(FieldError::invalid_text(
            &selectable.field,
            "",
            "selectableFields may only be set when validations.schema is included",
        )),
    }
}

fn schema_of<'o>(definition: &'o Value, version: &str) -> Option<&'o Value> {
    let versions = definition["spec"]["versions"].as_array()?;
    let found = versions.iter().find(|found| found["name"] == version)?;
    found.get("schema")
}

fn check_deprecation(version: &At<'_>, errors: &mut Vec<FieldError>) {
    /// Longest warning, in bytes.
    const LEN_MAX: usize = 256;
    let warning = version.get("deprecationWarning");
    let Some(text) = warning.value.as_str() else { return };
    if !version.get("deprecated").is_true() {
        errors.push(warning.invalid("can only be set for deprecated versions"));
        return;
    }
    if text.len() > LEN_MAX {
        errors.push(warning.invalid("must be <= 256 characters long"));
    }
    if text.is_empty() {
        errors.push(warning.invalid("must not be an empty string"));
    }
    if let Some((at, _)) = text
        .char_indices()
        .find(|(_, c)| c.is_control() || c.is_whitespace() && *c != ' ')
    {
        errors.push(warning.invalid(format_args!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        )));
    }
}
