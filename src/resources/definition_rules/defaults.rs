//! Defaults of a schema are values of what they are defaults of, without unknown fields (KEP-1929).

use crate::schema::structural::{Node, Structural, Under};
use crate::tree::{Map, Value};

use super::super::FieldError;
use super::super::structural_rules::check_embedded;
use super::super::validate::At;
use super::schema::TOLD_MAX;

/// What is wrong with the defaults of a schema.
pub(super) fn check(schema: &At<'_>, compiled: &Structural, errors: &mut Vec<FieldError>) {
    walk(schema, compiled.root(), true, None, errors);
}

/// Names that lead from an object's root to a field of its head.
struct Head<'h> {
    before: Option<&'h Head<'h>>,
    name: &'h str,
}

fn walk(at: &At<'_>, node: Node<'_>, root: bool, head: Option<&Head<'_>>, errors: &mut Vec<FieldError>) {
    if errors.len() >= TOLD_MAX {
        return;
    }
    let whole = root || node.embedded();
    let head = if whole { None } else { head };
    if let Some(default) = node.default() {
        let field = format!("{}.default", at.field);
        match head {
            Some(head) => in_head(&field, default, node, head, errors),
            None => plain(&field, default, node, errors),
        }
    }
    if let Some(items) = node.items() {
        walk(&at.get("items"), items, false, head, errors);
    }
    for (name, property) in at.get("properties").entries() {
        let Some(field) = node.field(name) else { continue };
        let begins = whole && matches!(name, "metadata" | "apiVersion" | "kind");
        let below = (begins || head.is_some()).then_some(Head { before: head, name });
        walk(&property, field, false, below.as_ref(), errors);
    }
}

fn plain(field: &str, default: &Value, node: Node<'_>, errors: &mut Vec<FieldError>) {
    if Structural::has_unknown(node, node.embedded(), default) {
        errors.push(FieldError::invalid(field, default, "must not have unknown fields"));
    }
    let below = |path: &str| {
        if path.starts_with('[') {
            format!("{field}{path}")
        } else {
            format!("{field}.{path}")
        }
    };
    if let Err(error) = node.coerce(default) {
        errors.push(FieldError {
            field: below(&error.field),
            ..error
        });
        return;
    }
    let mut found = Vec::new();
    node.embedded_resources(default, &mut |path, resource| {
        let mut wrong = Vec::new();
        check_embedded(&path, resource, &mut wrong);
        found.extend(wrong.into_iter().map(|error| FieldError {
            field: below(&error.field),
            ..error
        }));
    });
    if found.is_empty() {
        found = of_schema(field, default, node);
    }
    errors.append(&mut found);
}

fn of_schema(field: &str, default: &Value, node: Node<'_>) -> Vec<FieldError> {
    let under = Under {
        base: field.to_owned(),
        default: true,
    };
    node.validate(None, default, &under)
}

/// A default of a part of a head makes a head with nothing else in it, which must be one.
fn in_head(field: &str, default: &Value, node: Node<'_>, head: &Head<'_>, errors: &mut Vec<FieldError>) {
    let mut value = default.clone();
    let mut step = Some(head);
    while let Some(Head { before, name }) = step {
        let object: Map = [((*name).to_owned(), value)].into_iter().collect();
        value = Value::Object(object);
        step = *before;
    }
    let Value::Object(mut object) = value else { return };
    for (name, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
        if !object.contains_key(name) {
            object.insert(name, text.into());
        }
    }
    let mut wrong = Vec::new();
    check_embedded("", &object, &mut wrong);
    if wrong.is_empty() {
        errors.append(&mut of_schema(field, default, node));
        return;
    }
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let wrong = match wrong.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    errors.push(FieldError::invalid(
        field,
        default,
        format_args!("must result in valid metadata: {wrong}"),
    ));
}
