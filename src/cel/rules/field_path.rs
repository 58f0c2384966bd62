//! `fieldPath` of a rule: `.spec.a`, `.labels['x/y']`.

use std::fmt::Write;

use crate::tree::Value;

/// The path as messages show it, if it leads to fields and entries that the schema has.
pub(super) fn normalized(path: &str, schema: &Value) -> Result<String, String> {
    let (mut out, mut rest, mut schema) = (String::new(), path, schema);
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        rest = after;
        if schema["properties"].is_object() {
            schema = schema["properties"]
                .get(name.as_str())
                .ok_or("does not refer to a valid field")?;
            out.push('.');
            out.push_str(&name);
        } else if schema["additionalProperties"].is_object() {
            schema = &schema["additionalProperties"];
            let _ = write!(out, "[{name}]");
        } else {
            return Err("does not refer to a valid field".into());
        }
    }
    Ok(out)
}

/// The first step of a path, and what comes after it.
fn step(path: &str) -> Result<(String, &str), String> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        if end == 0 {
            return Err("unexpected end of JSON path".into());
        }
        return Ok((rest[..end].to_owned(), &rest[end..]));
    }
    let Some(rest) = path.strip_prefix("['") else {
        return Err(format!("expected [ or . but got: {path}"));
    };
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => {
                let after = rest[at + 1..].strip_prefix(']');
                return after.map(|after| (name, after)).ok_or_else(|| "expected ]".to_owned());
            }
            '\\' => name.push(match chars.next().map(|(_, c)| c) {
                Some('a') => '\x07',
                Some('b') => '\x08',
                Some('f') => '\x0c',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\x0b',
                Some(c @ ('\'' | '\\')) => c,
                _ => return Err("invalid string literal: invalid escape char".into()),
            }),
            c => name.push(c),
        }
    }
    Err("unexpected end of JSON path".into())
}

#[cfg(test)]
mod tests {
    use super::normalized;
    use crate::tree::json;

    #[test]
    fn paths_lead_through_the_schema() {
        let schema = json!({"properties": {"a": {"properties": {"b-c": {}}}, "map": {"additionalProperties": {"properties": {"x": {}}}}}});
        let cases = [
            (".a", Some(".a")),
            (".a['b-c']", Some(".a.b-c")),
            (".a.b-c", Some(".a.b-c")),
            (".map['k.1'].x", Some(".map[k.1].x")),
            (".map.k", Some(".map[k]")),
            (".nothing", None),
            ("a", None),
            (".a[0]", None),
            (".", None),
            (".a['b", None),
        ];
        for (path, wanted) in cases {
            assert_eq!(normalized(path, &schema).ok().as_deref(), wanted, "{path}");
        }
    }
}
