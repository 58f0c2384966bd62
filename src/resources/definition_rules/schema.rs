//! What is wrong with an `openAPIV3Schema`: keywords that are not supported, and that do not go together.

use crate::cel::rules;
use crate::schema::structural::{Structural, Unusable};
use crate::tree::Value;

use super::super::FieldError;
use super::super::structural_rules::told;
use super::super::validate::{At, capitalized};
use super::{defaults, structural};

/// Errors of one schema that are told.
pub(super) const TOLD_MAX: usize = 500;

/// Keywords that may stand at the root when status has a subresource, as the schema's fields are named inside the server.
const AT_ROOT: &[(&str, &str)] = &[
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// What is wrong with the schema of a version, or of all. `status`: whether there is a status subresource.
pub(super) fn check(validation: &At<'_>, status: bool, errors: &mut Vec<FieldError>) {
    let schema = validation.get("openAPIV3Schema");
    if !schema.value.is_object() {
        return;
    }
    let mut found = Vec::new();
    if status {
        check_root(&schema, &mut found);
    }
    if schema.get("nullable").is_true() {
        found.push(schema.get("nullable").forbidden("nullable cannot be true at the root"));
    }
    let compiled = Structural::without_rules(schema.value);
    if let Ok(compiled) = &compiled {
        let before = found.len();
        structural::check(&schema, &mut found);
        if found.len() == before {
            defaults::check(&schema, compiled, &mut found);
        }
    }
    let place = Place {
        forbidden_defaults: None,
        in_head: false,
        root: true,
    };
    node(&schema, &place, &mut found);
    let path = schema.field.to_string();
    found.extend(rules::check_form(schema.value, &path).into_iter().map(told));
    if let Err(error) = compiled {
        // What is not supported was told of where it stands.
        let told = matches!(error, Unusable::Unsupported(_)) && !found.is_empty();
        if !told {
            found.push(FieldError::invalid_text(&schema.field, "", error));
        }
    }
    if found.is_empty() {
        found.extend(rules::check_rules(schema.value, &path).into_iter().map(told));
    }
    errors.append(&mut found);
}

fn check_root(schema: &At<'_>, errors: &mut Vec<FieldError>) {
    let kind = schema.get("type");
    if !kind.is_empty() && kind.text() != "object" {
        errors.push(kind.invalid(
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
    }
    let allowed = |name: &str| AT_ROOT.iter().any(|(keyword, _)| *keyword == name);
    let odd = schema.entries().find(|(name, value)| !allowed(name) && value.present());
    if odd.is_some() {
        let names: Vec<&str> = AT_ROOT.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        let shown = capitalized(schema.value).to_string();
        errors.push(FieldError::invalid_shown(&schema.field, &shown, detail));
    }
}

/// Where a schema stands.
#[derive(Clone, Copy)]
struct Place {
    /// Why there may be no defaults.
    forbidden_defaults: Option<&'static str>,
    /// Whether it is of the head (`apiVersion`, `kind`, `metadata`) of an object, or below it.
    in_head: bool,
    root: bool,
}

fn node(at: &At<'_>, place: &Place, errors: &mut Vec<FieldError>) {
    if !at.value.is_object() || errors.len() >= TOLD_MAX {
        return;
    }
    let inner = Place { root: false, ..*place };
    keywords(at, place, errors);
    if at.get("uniqueItems").is_true() {
        errors.push(
            at.get("uniqueItems")
                .forbidden("uniqueItems cannot be set to true since the runtime complexity becomes quadratic"),
        );
    }
    let (additional, properties) = (at.get("additionalProperties"), at.get("properties"));
    if additional.present() {
        if !properties.is_empty() && additional.value.as_bool() != Some(true) {
            errors.push(additional.forbidden("additionalProperties and properties are mutual exclusive"));
        }
        let below = Place {
            forbidden_defaults: if place.in_head {
                Some("inside additionalProperties applying to object metadata")
            } else {
                place.forbidden_defaults
            },
            ..inner
        };
        node(&additional, &below, errors);
    }
    let whole = place.root || at.get("x-kubernetes-embedded-resource").is_true();
    for (name, property) in properties.entries() {
        let mut below = inner;
        if whole && matches!(name, "metadata" | "kind" | "apiVersion") {
            below.in_head = true;
            if place.root {
                below.forbidden_defaults = Some(match name {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        node(&property, &below, errors);
    }
    node(&at.get("not"), &inner, errors);
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for branch in at.get(keyword).items() {
            node(&branch, &inner, errors);
        }
    }
    for (_, definition) in at.get("definitions").entries() {
        node(&definition, &inner, errors);
    }
    let items = at.get("items");
    node(&items, &inner, errors);
    for item in items.items() {
        node(&item, &inner, errors);
    }
    for (_, dependency) in at.get("dependencies").entries() {
        node(&dependency, &inner, errors);
    }
    extensions(at, errors);
    list_keys(at, errors);
}

/// Keywords that are not supported.
fn keywords(at: &At<'_>, place: &Place, errors: &mut Vec<FieldError>) {
    const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
    let kind = at.get("type");
    kind.one_of(TYPES, errors);
    if at.get("default").present()
        && let Some(reason) = place.forbidden_defaults
    {
        errors.push(at.get("default").forbidden(&format!("must not be set {reason}")));
    }
    for (keyword, said) in [
        ("id", "id is not supported"),
        ("additionalItems", "additionalItems is not supported"),
        ("patternProperties", "patternProperties is not supported"),
        ("definitions", "definitions is not supported"),
        ("dependencies", "dependencies is not supported"),
        ("$ref", "$ref is not supported"),
    ] {
        let keyword = at.get(keyword);
        if !keyword.is_empty() {
            errors.push(keyword.forbidden(said));
        }
    }
    if kind.text() == "null" {
        errors.push(kind.forbidden("type cannot be set to null, use nullable as an alternative"));
    }
    let items = at.get("items");
    if items.value.is_array() && !items.is_empty() {
        errors.push(items.forbidden("items must be a schema object and not an array"));
    }
    let embedded = at.get("x-kubernetes-embedded-resource");
    if place.in_head && embedded.is_true() {
        errors.push(embedded.forbidden("must not be used inside of resource meta"));
    }
}

fn extensions(at: &At<'_>, errors: &mut Vec<FieldError>) {
    let preserves = at.get("x-kubernetes-preserve-unknown-fields");
    if preserves.value.as_bool() == Some(false) {
        errors.push(preserves.invalid("must be true or undefined"));
    }
    let kind = at.get("type");
    let mut must_be = |wanted: &str, keyword: &str| {
        let detail = format!("must be {wanted} if {keyword} is specified");
        if kind.is_empty() {
            errors.push(kind.required(&detail));
        } else {
            errors.push(kind.invalid(detail));
        }
    };
    let (map, list) = (at.get("x-kubernetes-map-type"), at.get("x-kubernetes-list-type"));
    if map.present() && kind.text() != "object" {
        must_be("object", "x-kubernetes-map-type");
    }
    if list.present() && kind.text() != "array" {
        must_be("array", "x-kubernetes-list-type");
    } else if list.text() == "set" {
        atomic_items(at, errors);
    }
    map.one_of(&["atomic", "granular"], errors);
    // These are told in the order in which upstream has them.
    if list.present() && !["atomic", "set", "map"].contains(&list.text()) {
        errors.push(list.not_supported(&["atomic", "set", "map"]));
    }
}

/// Items of a set are compared as a whole.
fn atomic_items(at: &At<'_>, errors: &mut Vec<FieldError>) {
    const WHOLE: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let items = at.get("items");
    let (list, map) = (items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type"));
    match items.get("type").text() {
        "array" if list.present() && list.text() != "atomic" => errors.push(list.invalid(WHOLE)),
        // Upstream shows the list type here.
        "object" if map.text() != "atomic" => errors.push(FieldError::invalid(&map.field, list.value, WHOLE)),
        _ => {}
    }
}

fn list_keys(at: &At<'_>, errors: &mut Vec<FieldError>) {
    let (list, keys, items) = (
        at.get("x-kubernetes-list-type"),
        at.get("x-kubernetes-list-map-keys"),
        at.get("items"),
    );
    if !keys.is_empty() && list.text() != "map" {
        const DETAIL: &str = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list.present() {
            errors.push(list.invalid(DETAIL));
        } else {
            errors.push(list.required(DETAIL));
        }
    }
    let named = list.text();
    if (named == "set" || named == "map") && items.get("nullable").is_true() {
        errors.push(
            items
                .get("nullable")
                .forbidden(&format!("cannot be nullable when x-kubernetes-list-type is {named}")),
        );
    }
    if named != "map" {
        return;
    }
    if keys.is_empty() {
        errors.push(keys.required("must not be empty if x-kubernetes-list-type is map"));
    }
    if !items.present() {
        errors.push(items.required("must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    if !items.value.is_object() {
        errors.push(items.invalid("must only have a single schema if x-kubernetes-list-type is map"));
        return;
    }
    let kind = items.get("type");
    if kind.text() != "object" {
        errors.push(FieldError::invalid_text(
            &kind.field,
            kind.text(),
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for key in keys.items() {
        let name = key.text();
        let found = items
            .get("properties")
            .entries()
            .find(|(property, _)| *property == name);
        match &found {
            Some((_, property)) => {
                let own = property.get("type");
                if matches!(own.text(), "array" | "object") {
                    // Upstream shows the type of the items.
                    errors.push(FieldError::invalid(
                        &own.field,
                        kind.value,
                        "must be a scalar type if parent array's x-kubernetes-list-type is map",
                    ));
                }
                key_field(&items, name, property, errors);
            }
            None => errors.push(keys.invalid("entries must all be names of item properties")),
        }
        if seen.contains(&name) {
            errors.push(keys.invalid("must not contain duplicate entries"));
        }
        seen.push(name);
    }
}

/// A field that tells items apart is always there.
fn key_field(items: &At<'_>, name: &str, property: &At<'_>, errors: &mut Vec<FieldError>) {
    let required = items.get("required").items().any(|required| required.text() == name);
    let default = property.get("default");
    if !required && !default.present() {
        errors.push(default.required(
            "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ));
    }
    let nullable = property.get("nullable");
    if nullable.is_true() {
        errors.push(nullable.forbidden("this property is in x-kubernetes-list-map-keys, so it cannot be nullable"));
    }
}

/// Tells `visit` each schema in a schema.
pub(super) fn each<'s>(schema: &'s Value, visit: &mut dyn FnMut(&'s Value)) {
    if !schema.is_object() {
        return;
    }
    visit(schema);
    for keyword in ["items", "not", "additionalProperties"] {
        each(&schema[keyword], visit);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for branch in schema[keyword].as_array().into_iter().flatten() {
            each(branch, visit);
        }
    }
    for property in schema["properties"]
        .as_object()
        .into_iter()
        .flat_map(crate::tree::Map::values)
    {
        each(property, visit);
    }
}
