//! Values as Go prints them, for texts of errors that quote what was sent.

use crate::tree::Value;
use std::fmt::Write as _;

/// A value as `%v` prints it: `map[image:noname ports:[80 443]]`.
pub(crate) fn value(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

fn write(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(value) => {
            let _ = write!(text, "{value}");
        }
        Value::Number(value) => {
            let _ = write!(text, "{value}");
        }
        Value::String(value) | Value::Raw(value) => text.push_str(value),
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(' ');
                }
                write(text, item);
            }
            text.push(']');
        }
        Value::Object(object) => {
            text.push_str("map[");
            for (i, (key, item)) in object.iter().enumerate() {
                if i > 0 {
                    text.push(' ');
                }
                text.push_str(key);
                text.push(':');
                write(text, item);
            }
            text.push(']');
        }
    }
}

/// Text as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
