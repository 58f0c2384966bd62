//! Writing compact JSON.

use std::io::Write as _;

use serde_json::Number;

use super::{Key, List, Map, Value};

impl Value {
    /// Appends it as compact JSON.
    pub fn write(&self, json: &mut Vec<u8>) {
        match self {
            Value::Null => json.extend_from_slice(b"null"),
            Value::Bool(true) => json.extend_from_slice(b"true"),
            Value::Bool(false) => json.extend_from_slice(b"false"),
            Value::Number(number) => write_number(number, json),
            Value::String(text) => write_text(text, json),
            Value::Array(list) => write_list(list, json),
            Value::Object(map) => write_map(map, json),
            Value::Raw(text) => json.extend_from_slice(text.as_bytes()),
        }
    }

    /// Compact JSON.
    pub fn to_json(&self) -> String {
        let mut json = Vec::with_capacity(128);
        self.write(&mut json);
        String::from_utf8(json).unwrap_or_default()
    }
}

fn write_list(list: &List, json: &mut Vec<u8>) {
    json.push(b'[');
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            json.push(b',');
        }
        item.write(json);
    }
    json.push(b']');
}

fn write_map(map: &Map, json: &mut Vec<u8>) {
    json.push(b'{');
    for (i, (key, value)) in map.iter().enumerate() {
        if i > 0 {
            json.push(b',');
        }
        match key {
            // Names in schemas and in the code need no escapes.
            Key::Known(name) => {
                json.push(b'"');
                json.extend_from_slice(name.as_bytes());
                json.extend_from_slice(b"\":");
            }
            Key::Sent(name) => {
                write_text(name, json);
                json.push(b':');
            }
        }
        value.write(json);
    }
    json.push(b'}');
}

fn write_number(number: &Number, json: &mut Vec<u8>) {
    if let Some(integer) = number.as_i64() {
        json.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
    } else {
        write_float(number, json);
    }
}

/// As Go writes it: no fraction that is zero, an exponent only below 1e-6 and from 1e21 on. A `Vec` takes every byte.
fn write_float(number: &Number, json: &mut Vec<u8>) {
    let value = match number.as_f64() {
        Some(value) if number.is_f64() => value,
        _ => {
            let _ = write!(json, "{number}");
            return;
        }
    };
    if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        let _ = write!(json, "{value}");
        return;
    }
    let text = format!("{value:e}");
    let _ = match text.split_once('e') {
        Some((digits, exponent)) if exponent.starts_with('-') => write!(json, "{digits}e{exponent}"),
        Some((digits, exponent)) => write!(json, "{digits}e+{exponent}"),
        None => write!(json, "{text}"),
    };
}

/// Appends a text with its quotes, escaped as `serde_json` does it: only what JSON demands.
pub fn write_text(text: &str, json: &mut Vec<u8>) {
    json.reserve(text.len() + 2);
    json.push(b'"');
    write_escaped(text, json);
    json.push(b'"');
}

/// Appends what stands between the quotes of a text.
pub(crate) fn write_escaped(text: &str, json: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(ahead) = special(&bytes[from..]) {
        let at = from + ahead;
        json.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match bytes[at] {
            b'"' => json.extend_from_slice(b"\\\""),
            b'\\' => json.extend_from_slice(b"\\\\"),
            b'\n' => json.extend_from_slice(b"\\n"),
            b'\r' => json.extend_from_slice(b"\\r"),
            b'\t' => json.extend_from_slice(b"\\t"),
            0x08 => json.extend_from_slice(b"\\b"),
            0x0c => json.extend_from_slice(b"\\f"),
            byte => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                json.extend_from_slice(b"\\u00");
                json.push(HEX[usize::from(byte >> 4)]);
                json.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    json.extend_from_slice(&bytes[from..]);
}

/// Place of the first byte that needs an escape; eight are looked at together.
fn special(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // Tells whether any byte is less than `limit`, which is at most 128.
    let any_below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGH != 0;
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        let word = u64::from_ne_bytes(*word);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        if any_below(word, 0x20) || any_below(quote, 1) || any_below(backslash, 1) {
            break;
        }
        rest = behind;
    }
    for (at, byte) in rest.iter().enumerate() {
        if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
            return Some(bytes.len() - rest.len() + at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_serde_json_writes() {
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        let value = serde_json::json!({
            "text": all, "": "", "list": [1, -7, 1.5, 1e300, u64::MAX, null, true, false, [], {}], "é\n": {"日本": "\u{7f}"},
        });
        let tree = Value::from(value.clone());
        assert_eq!(tree.to_json(), value.to_string());
        assert_eq!(serde_json::from_str::<Value>(&tree.to_json()).unwrap(), tree);
        assert_eq!(serde_json::to_string(&tree).unwrap(), value.to_string());
    }

    #[test]
    fn raw_json_is_written_as_it_is() {
        let mut tree = Value::from(serde_json::json!({"a": 1}));
        tree["b"] = Value::Raw("{\"z\":1,\"a\":2}".into());
        assert_eq!(tree.to_json(), r#"{"a":1,"b":{"z":1,"a":2}}"#);
        assert_eq!(serde_json::to_string(&tree).unwrap(), r#"{"a":1,"b":{"a":2,"z":1}}"#);
    }
}
