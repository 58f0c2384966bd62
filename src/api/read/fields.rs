//! The grammar of `fieldSelector`, and which fields a kind can be selected by.
//!
//! Grammar and error texts are those of `k8s.io/apimachinery/pkg/fields`. Only equality exists:
//!
//! ```text
//! selector = [ term { "," term } ]
//! term     = field ( "=" | "==" | "!=" ) value      with `\`, `,` and `=` escaped by `\` in the value
//! ```

use super::quote::quoted;
use crate::resources::Resource;
use crate::store::Requirement;

/// Parses a field selector for objects of `resource`. The empty selector has no requirements.
///
/// # Errors
/// The text that kube-apiserver answers a malformed or unsupported selector with (400 `BadRequest`).
pub(in crate::api) fn parse(selector: &str, resource: &Resource) -> Result<Vec<Requirement>, String> {
    let mut terms = split_terms(selector);
    // Upstream looks at the terms in this order, which decides which of several errors is told.
    terms.sort_unstable();
    terms
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(|term| {
            let (field, is, value) =
                split_term(term).ok_or_else(|| format!("invalid selector: '{selector}'; can't understand '{term}'"))?;
            let value = unescape(value)?;
            requirement(resource, field, is, value)
        })
        .collect()
}

fn requirement(resource: &Resource, field: &str, is: bool, value: String) -> Result<Requirement, String> {
    match field {
        "metadata.name" => return Ok(Requirement::Name { value, is }),
        "metadata.namespace" if resource.namespaced || resource.namespace_selectable => {
            return Ok(Requirement::Namespace { value, is });
        }
        _ => {}
    }
    if !resource.fields.iter().any(|known| known == field) {
        return Err(unsupported(resource, field));
    }
    let name = stored_name(resource, field);
    Ok(if is {
        Requirement::FieldIs { name, value }
    } else {
        Requirement::FieldIsNot { name, value }
    })
}

/// Events of `events.k8s.io` are stored in the core group's shape, and so are the names of their fields.
fn stored_name(resource: &Resource, field: &str) -> String {
    if resource.group != "events.k8s.io" {
        return field.to_owned();
    }
    match field.strip_prefix("regarding.") {
        Some(rest) => format!("involvedObject.{rest}"),
        None if field == "reportingController" => "reportingComponent".to_owned(),
        None => field.to_owned(),
    }
}

/// Kinds without selectable fields of their own name the two that every kind has; the others have a text of their own.
fn unsupported(resource: &Resource, field: &str) -> String {
    if resource.custom.is_some() {
        format!("field label not supported: {field}")
    } else if resource.fields.is_empty() {
        let field = quoted(field);
        format!("{field} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else if resource.group == "batch" && resource.kind == "Job" {
        format!("field label {} not supported for Job", quoted(field))
    } else {
        format!("field label not supported: {field}")
    }
}

/// Splits at commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (i, byte) in selector.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&selector[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

/// Field, whether it must be equal, and the value, still escaped.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find(['!', '=']).and_then(|first| {
        // A lone `!` is part of the field's name.
        (first..term.len()).find(|&i| {
            let rest = &term.as_bytes()[i..];
            rest.starts_with(b"!=") || rest.starts_with(b"=")
        })
    })?;
    let (field, rest) = term.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators
        .into_iter()
        .find_map(|(operator, is)| rest.strip_prefix(operator).map(|value| (field, is, value)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(format!("invalid field selector: invalid escape sequence: \\{c}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            // Upstream prints the number of the character.
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    fn parse_for(plural: &str, selector: &str) -> Result<Vec<Requirement>, String> {
        parse(selector, find("", "v1", plural).unwrap())
    }

    fn name(value: &str, is: bool) -> Requirement {
        Requirement::Name {
            value: value.into(),
            is,
        }
    }

    #[test]
    fn terms_are_equalities_and_values_may_be_escaped() {
        assert_eq!(parse_for("configmaps", ""), Ok(vec![]));
        assert_eq!(parse_for("configmaps", "metadata.name=a"), Ok(vec![name("a", true)]));
        assert_eq!(
            parse_for("configmaps", "metadata.name==a,metadata.name!=b,"),
            Ok(vec![name("b", false), name("a", true)])
        );
        assert_eq!(
            parse_for("pods", r"spec.nodeName=a\,b\=c\\"),
            Ok(vec![Requirement::FieldIs {
                name: "spec.nodeName".into(),
                value: r"a,b=c\".into()
            }])
        );
        assert_eq!(
            parse_for("namespaces", "status.phase!=Active"),
            Ok(vec![Requirement::FieldIsNot {
                name: "status.phase".into(),
                value: "Active".into()
            }])
        );
    }

    #[test]
    fn fields_of_the_newer_event_group_are_looked_up_under_their_stored_names() {
        let events = find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(
            parse("regarding.kind=Pod,reason=R", events),
            Ok(vec![
                Requirement::FieldIs {
                    name: "reason".into(),
                    value: "R".into()
                },
                Requirement::FieldIs {
                    name: "involvedObject.kind".into(),
                    value: "Pod".into()
                },
            ])
        );
        assert!(parse("involvedObject.kind=Pod", events).is_err());
    }

    #[test]
    fn malformed_and_unknown_fields_are_told_in_upstreams_words() {
        let cases = [
            (
                "configmaps",
                "data.k=v",
                "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            (
                "configmaps",
                "=x",
                "\"\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            (
                "configmaps",
                "metadata.name",
                "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
            ),
            (
                "configmaps",
                "metadata.name>a",
                "invalid selector: 'metadata.name>a'; can't understand 'metadata.name>a'",
            ),
            (
                "configmaps",
                "metadata.name=a,foo=b",
                "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            ("pods", "spec.foo=y", "field label not supported: spec.foo"),
            (
                "nodes",
                "metadata.namespace=y",
                "field label not supported: metadata.namespace",
            ),
            (
                "pods",
                r"spec.nodeName=\x",
                r"invalid field selector: invalid escape sequence: \x",
            ),
            (
                "pods",
                "spec.nodeName=a=b",
                "invalid field selector: unescaped character in value: 61",
            ),
        ];
        for (plural, selector, expected) in cases {
            assert_eq!(parse_for(plural, selector), Err(expected.to_owned()), "{selector}");
        }
    }
}
