//! What makes a schema structural: every field is specified outside of `allOf`, `anyOf`, `oneOf` and `not`, and what is inside
//! of them only restricts values (KEP-2332).

use crate::tree::Value;

use super::super::FieldError;
use super::super::validate::At;
use super::schema::TOLD_MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema is not structural, sorted.
pub(super) fn check(schema: &At<'_>, errors: &mut Vec<FieldError>) {
    let mut found = Vec::new();
    invariants(schema, Level::Root, &mut found);
    combined_completeness(schema, schema, &mut found);
    found.sort_by_cached_key(ToString::to_string);
    errors.append(&mut found);
}

fn invariants(at: &At<'_>, level: Level, errors: &mut Vec<FieldError>) {
    if !at.value.is_object() || errors.len() >= TOLD_MAX {
        return;
    }
    let (kind, items) = (at.get("type"), at.get("items"));
    if kind.text() == "array" && !items.present() {
        errors.push(items.required("must be specified"));
    }
    invariants(&items, Level::Item, errors);
    for (_, property) in at.get("properties").entries() {
        invariants(&property, Level::Field, errors);
    }
    let additional = at.get("additionalProperties");
    if additional.present() {
        if level == Level::Root {
            errors.push(additional.forbidden("must not be used at the root"));
        }
        invariants(&additional, Level::Field, errors);
    }
    let yes = |keyword: &'static str| at.get(keyword).is_true();
    let (int_or_string, preserves, embedded) = (
        yes("x-kubernetes-int-or-string"),
        yes("x-kubernetes-preserve-unknown-fields"),
        yes("x-kubernetes-embedded-resource"),
    );
    if int_or_string {
        for keyword in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if yes(keyword) {
                errors.push(
                    at.get(keyword)
                        .invalid("must be false if x-kubernetes-int-or-string is true"),
                );
            }
        }
    }
    let first_all = at.get("allOf").items().next();
    let first_is_pattern = first_all.is_some_and(|first| is_int_or_string(first.get("anyOf").value));
    restrictions(
        at,
        is_int_or_string(at.get("anyOf").value),
        first_is_pattern,
        level,
        errors,
    );
    if embedded && kind.text() != "object" {
        const DETAIL: &str = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.push(kind.required(DETAIL));
        } else {
            errors.push(kind.invalid(DETAIL));
        }
    } else if kind.is_empty() && !int_or_string && !preserves {
        errors.push(kind.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if embedded && additional.present() {
        errors.push(additional.forbidden("must not be used if x-kubernetes-embedded-resource is set"));
    }
    if level == Level::Root && !kind.is_empty() && kind.text() != "object" {
        errors.push(kind.invalid("must be object at the root"));
    }
    head(at, level, embedded, errors);
    let properties = at.get("properties");
    if embedded && !preserves && properties.is_empty() {
        errors.push(properties.required(
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// What is said of `apiVersion`, `kind` and `metadata` must be what they are.
fn head(at: &At<'_>, level: Level, embedded: bool, errors: &mut Vec<FieldError>) {
    let whole = level == Level::Root || embedded;
    for (name, property) in at.get("properties").entries() {
        let kind = property.get("type");
        match name {
            "kind" | "apiVersion" if whole && kind.text() != "string" => {
                errors.push(FieldError::invalid_text(&kind.field, kind.text(), "must be string"));
            }
            "metadata" => {
                if whole && kind.text() != "object" {
                    errors.push(FieldError::invalid_text(&kind.field, kind.text(), "must be object"));
                }
                if level == Level::Root && !is_bare_metadata(property.value) {
                    errors.push(property.forbidden(
                        "must not specify anything other than name and generateName, but metadata is implicitly specified",
                    ));
                }
            }
            _ => {}
        }
    }
}

/// Whether a schema of metadata restricts names alone.
fn is_bare_metadata(schema: &Value) -> bool {
    schema.as_object().is_none_or(|keywords| {
        keywords.iter().all(|(keyword, value)| match keyword.as_str() {
            "type" | "default" => true,
            "properties" => {
                let properties = value.as_object();
                properties.is_none_or(|map| map.keys().all(|name| name == "name" || name == "generateName"))
            }
            _ => value.is_null(),
        })
    })
}

/// `[{type: integer}, {type: string}]`: the one place where a type may stand in `anyOf`.
fn is_int_or_string(any_of: &Value) -> bool {
    let only =
        |branch: &Value, kind: &str| branch["type"] == kind && branch.as_object().is_some_and(|map| map.len() == 1);
    match any_of.as_array().map(crate::tree::List::as_slice) {
        Some([first, second]) => only(first, "integer") && only(second, "string"),
        _ => false,
    }
}

/// `anyOf`, `allOf`, `oneOf`, `not` and the pattern of a schema.
fn restrictions(at: &At<'_>, skips_any: bool, skips_first_all: bool, level: Level, errors: &mut Vec<FieldError>) {
    if !skips_any {
        for branch in at.get("anyOf").items() {
            branch_rules(&branch, false, level, errors);
        }
    }
    for (i, branch) in at.get("allOf").items().enumerate() {
        branch_rules(&branch, skips_first_all && i == 0, level, errors);
    }
    for branch in at.get("oneOf").items() {
        branch_rules(&branch, false, level, errors);
    }
    branch_rules(&at.get("not"), false, level, errors);
    let pattern = at.get("pattern");
    if !pattern.is_empty()
        && let Err(why) = crate::re2::check(pattern.text())
    {
        errors.push(pattern.invalid(format_args!("must be a valid regular expression, but isn't: {why}")));
    }
}

/// A schema inside of a combination, which may only restrict.
fn branch_rules(at: &At<'_>, skips_any: bool, level: Level, errors: &mut Vec<FieldError>) {
    if !at.value.is_object() || errors.len() >= TOLD_MAX {
        return;
    }
    restrictions(at, skips_any, false, level, errors);
    branch_rules(&at.get("items"), false, level, errors);
    for (_, property) in at.get("properties").entries() {
        branch_rules(&property, false, Level::Field, errors);
    }
    for (keyword, said) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let keyword = at.get(keyword);
        let says = match keyword.value {
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            value => !value.is_null(),
        };
        if says {
            errors.push(keyword.forbidden(said));
        }
    }
    for keyword in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if at.get(keyword).is_true() {
            errors.push(at.get(keyword).forbidden("must be false to be structural"));
        }
    }
    if let Some((_, metadata)) = at.get("properties").entries().find(|(name, _)| *name == "metadata") {
        errors.push(metadata.forbidden("must not be specified in a nested context"));
    }
}

/// What the combinations of a schema name must be specified by the schema itself.
fn combined_completeness(at: &At<'_>, spine: &At<'_>, errors: &mut Vec<FieldError>) {
    completeness(&at.get("not"), spine, errors);
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for branch in at.get(keyword).items() {
            completeness(&branch, spine, errors);
        }
    }
}

fn completeness(at: &At<'_>, spine: &At<'_>, errors: &mut Vec<FieldError>) {
    if !at.value.is_object() || errors.len() >= TOLD_MAX {
        return;
    }
    if !spine.value.is_object() {
        errors.push(spine.required(&format!("because it is defined in {}", at.field)));
        return;
    }
    combined_completeness(at, spine, errors);
    completeness(&at.get("items"), &spine.get("items"), errors);
    for (name, property) in at.get("properties").entries() {
        let found = spine.get("properties").entries().find(|(known, _)| *known == name);
        match found {
            Some((_, known)) => completeness(&property, &known, errors),
            None => errors.push(FieldError::required(
                format!("{}.properties[{name}]", spine.field),
                format_args!("because it is defined in {}", property.field),
            )),
        }
    }
}
