//! What stands around the rows of a Table.

use std::fmt::Write as _;

use crate::api::negotiate::MetaVersion;
use crate::resources::Column;

/// `{"kind":"Table","apiVersion":"meta.k8s.io/v1"`
pub(in crate::api) fn head(version: MetaVersion) -> String {
    format!(r#"{{"kind":"Table","apiVersion":"{}""#, version.api_version())
}

/// `,"columnDefinitions":[…]`
pub(in crate::api) fn column_definitions(columns: &[Column], out: &mut String) {
    out.push_str(r#","columnDefinitions":["#);
    for (i, column) in columns.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(r#"{"name":"#);
        text(&column.name, out);
        out.push_str(r#","type":"#);
        text(&column.column_type, out);
        out.push_str(r#","format":"#);
        text(&column.format, out);
        out.push_str(r#","description":"#);
        text(&column.description, out);
        // Writing to a String cannot fail.
        let _ = write!(out, r#","priority":{}}}"#, column.priority);
    }
    out.push(']');
}

/// A JSON string.
pub(super) fn text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_told_with_all_their_properties() {
        let configmaps = crate::resources::find("", "v1", "configmaps").unwrap();
        let mut out = String::new();
        column_definitions(&configmaps.columns, &mut out);
        assert!(
            out.starts_with(r#","columnDefinitions":[{"name":"Name","type":"string","format":"name","description":""#)
        );
        assert!(out.ends_with(r#""priority":0}]"#));
        assert_eq!(out.matches(r#"{"name":"#).count(), 3);
    }

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        text("a\"b\\\n", &mut out);
        assert_eq!(out, r#""a\"b\\\u000a""#);
    }
}
