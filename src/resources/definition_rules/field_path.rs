//! Paths to fields that a schema knows: `.spec.color`, `['a-b']`.

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
        let (steps, found) = match resolve(path.text(), schema, false) {
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
pub(super) fn resolve<'s>(path: &str, schema: &'s Value, brackets: bool) -> Result<(Vec<String>, &'s Value), String> {
    const UNKNOWN: &str = "does not refer to a valid field";
    const END: &str = "unexpected end of JSON path";
    let (mut steps, mut schema) = (Vec::new(), schema);
    let mut tokens = Tokens(path);
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or(END)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = tokens.next().ok_or(END)?;
                let quoted = token.len() >= 2 && token.starts_with('\'') && token.ends_with('\'');
                if !quoted {
                    return Err(format!("expected single quoted string but got {token}"));
                }
                unescape(&token[1..token.len() - 1])?
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let properties = schema["properties"]
            .as_object()
            .filter(|properties| !properties.is_empty());
        schema = match properties {
            Some(properties) => properties.get(&name).ok_or(UNKNOWN)?,
            None if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
            None => return Err(UNKNOWN.to_owned()),
        };
        steps.push(name);
        if token == "[" {
            match tokens.next() {
                None => return Err(END.to_owned()),
                Some("]") => {}
                Some(other) => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((steps, schema))
}

/// Dots and brackets, quoted texts, and what stands between them.
struct Tokens<'p>(&'p str);

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let bytes = self.0.as_bytes();
        let first = *bytes.first()?;
        let end = if first == b'\'' {
            let quote = (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\');
            quote.map_or(bytes.len(), |at| at + 1)
        } else {
            match self.0.find(['.', '[', ']']) {
                Some(0) => 1,
                Some(at) => at,
                None => bytes.len(),
            }
        };
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        plain.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0C',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0B',
            Some(c @ ('\'' | '\\')) => c,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(plain)
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
        let found = |path: &str, brackets: bool| resolve(path, &schema, brackets).map(|(steps, _)| steps.join("/"));
        assert_eq!(found(".spec.a-b", false), Ok("spec/a-b".to_owned()));
        assert_eq!(found(".spec['a-b']", true), Ok("spec/a-b".to_owned()));
        assert_eq!(found(".map.x", false), Ok("map/x".to_owned()));
        let wrong = |path: &str, brackets: bool| found(path, brackets).unwrap_err();
        assert_eq!(wrong(".spec.c", true), "does not refer to a valid field");
        assert_eq!(wrong("spec", true), "expected [ or . but got: spec");
        assert_eq!(wrong(".spec['a-b']", false), "array notation is not allowed");
        assert_eq!(wrong(".spec[a]", true), "expected single quoted string but got a");
        assert_eq!(wrong(".", true), "unexpected end of JSON path");
        assert_eq!(wrong(".spec['a-b'", true), "unexpected end of JSON path");
    }
}
