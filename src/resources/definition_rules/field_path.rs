//! Paths to fields that a schema knows: `.spec.color`.

use crate::tree::Value;

use super::super::FieldError;
use super::super::validate::At;

/// Most distinct fields of a version that can be selected by.
const SELECTABLE_MAX: usize = 8;

/// What is wrong with the selectable fields of a version.
pub(super) fn selectable(fields: &At<'_>, schema: &Value, errors: &mut Vec<FieldError>) {
    let mut known: Vec<String> = Vec::new();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let (steps, found) = match resolve(path.text(), schema) {
            Ok(found) => found,
            Err(why) => {
                errors.push(path.invalid(format_args!("is an invalid path: {why}")));
                continue;
            }
        };
        if steps.first().is_some_and(|step| step == "metadata") {
            errors.push(path.invalid("must not point to fields in metadata"));
        }
        if !matches!(found["type"].as_str(), Some("string" | "boolean" | "integer")) {
            errors.push(path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                 are allowed.",
            ));
        }
        let whole = steps.join(".");
        if known.contains(&whole) {
            errors.push(path.duplicate());
        } else {
            known.push(whole);
        }
    }
    if known.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(&fields.field, known.len(), SELECTABLE_MAX));
    }
}

/// The names that a path leads through, and the schema at its end.
///
/// # Errors
/// Why it is no path of the schema.
fn resolve<'s>(path: &str, schema: &'s Value) -> Result<(Vec<String>, &'s Value), String> {
    const UNKNOWN: &str = "does not refer to a valid field";
    let (mut steps, mut schema) = (Vec::new(), schema);
    let mut tokens = Tokens(path);
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or("unexpected end of JSON path")?,
            "[" => return Err("array notation is not allowed".to_owned()),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let properties = schema["properties"]
            .as_object()
            .filter(|properties| !properties.is_empty());
        schema = match properties {
            Some(properties) => properties.get(name).ok_or(UNKNOWN)?,
            None if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
            None => return Err(UNKNOWN.to_owned()),
        };
        steps.push(name.to_owned());
    }
    Ok((steps, schema))
}

/// Dots and brackets, and what stands between them.
struct Tokens<'p>(&'p str);

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let end = match self.0.find(['.', '[', ']']) {
            Some(0) => 1,
            Some(at) => at,
            None if self.0.is_empty() => return None,
            None => self.0.len(),
        };
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn paths_lead_to_fields_or_say_why_not() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a-b": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }});
        let found = |path: &str| resolve(path, &schema).map(|(steps, _)| steps.join("/"));
        assert_eq!(found(".spec.a-b"), Ok("spec/a-b".to_owned()));
        assert_eq!(found(".map.x"), Ok("map/x".to_owned()));
        let wrong = |path: &str| found(path).unwrap_err();
        assert_eq!(wrong(".spec.c"), "does not refer to a valid field");
        assert_eq!(wrong("spec"), "expected [ or . but got: spec");
        assert_eq!(wrong(".spec['a-b']"), "array notation is not allowed");
        assert_eq!(wrong("."), "unexpected end of JSON path");
    }
}
