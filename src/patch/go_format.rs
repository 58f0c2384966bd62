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

/// A value as `%#v` prints it: `map[string]interface {}{"image":"i", "ports":[]interface {}{80, 443}}`.
pub(crate) fn syntax(value: &Value) -> String {
    let mut text = String::new();
    write_syntax(&mut text, value);
    text
}

fn write_syntax(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("interface {}(nil)"),
        Value::Bool(_) | Value::Number(_) => write(text, value),
        Value::String(value) | Value::Raw(value) => text.push_str(&quote(value)),
        Value::Array(items) => {
            text.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push_str(", ");
                }
                write_syntax(text, item);
            }
            text.push('}');
        }
        Value::Object(object) => {
            text.push_str("map[string]interface {}{");
            for (i, (key, item)) in object.iter().enumerate() {
                if i > 0 {
                    text.push_str(", ");
                }
                text.push_str(&quote(key));
                text.push(':');
                write_syntax(text, item);
            }
            text.push('}');
        }
    }
}

/// The type of a value as `%T` prints it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
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
