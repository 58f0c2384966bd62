//! `format`, and texts in quotes.

use std::fmt::Write;

use super::super::machine::Machine;
use super::super::value::{Failure, List, Outcome, Val};
use super::{convert, times};

/// Longest text that is made, in bytes, and deepest value that is shown.
const LEN_MAX: usize = 4 << 20;
const DEPTH_MAX: usize = 32;
/// Most digits after the point.
const PRECISION_MAX: usize = 100;

/// A text with `%s`, `%d`, … replaced by values. Numbers are grouped as in English, as kube-apiserver's version of the library does.
pub(super) fn format<'a>(machine: &mut Machine<'a>, format: &str, values: &List<'a>) -> Outcome<'a> {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            precision = after[..digits].parse().ok().filter(|it| *it <= PRECISION_MAX);
            if precision.is_none() {
                return Err(Failure::told("could not parse formatting clause: precision is invalid"));
            }
            rest = &after[digits..];
        }
        let Some(verb) = rest.chars().next() else {
            return Err(Failure::told("unexpected end of format string"));
        };
        rest = &rest[verb.len_utf8()..];
        let Some(value) = values.get(next) else {
            return Err(Failure::told(format!("index {next} out of range")));
        };
        next += 1;
        verb_text(machine, verb, precision, &value?, &mut out)?;
        if out.len() > LEN_MAX {
            return Err(Failure::TooDear);
        }
    }
    out.push_str(rest);
    machine.work(out.len() as u64)?;
    Ok(Val::text(out))
}

fn verb_text<'a>(
    machine: &mut Machine<'a>,
    verb: char,
    precision: Option<usize>,
    value: &Val<'a>,
    out: &mut String,
) -> Result<(), Failure> {
    let wrong = |what: &str| Err(Failure::told(format!("{what}, was given {}", value.type_name())));
    let _ = match (verb, value) {
        ('s', value) => return show(machine, value, false, DEPTH_MAX, out),
        ('d', Val::Int(number)) => write!(out, "{}", grouped(&number.to_string())),
        ('d', Val::Uint(number)) => write!(out, "{}", grouped(&number.to_string())),
        ('d', _) => return wrong("decimal clause can only be used on integers"),
        ('f', Val::Double(number)) if number.is_finite() => {
            write!(out, "{}", grouped(&format!("{number:.*}", precision.unwrap_or(6))))
        }
        ('e', Val::Double(number)) if number.is_finite() => {
            write!(out, "{}", scientific(*number, precision.unwrap_or(6)))
        }
        ('f' | 'e', Val::Double(number)) => write!(out, "{}", not_finite(*number)),
        ('f' | 'e', Val::String(text)) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
            write!(out, "{}", not_finite(text.parse().unwrap_or(f64::NAN)))
        }
        ('f', _) => return wrong("fixed-point clause can only be used on doubles"),
        ('e', _) => return wrong("scientific clause can only be used on doubles"),
        ('b', Val::Int(number)) => write!(out, "{}{:b}", minus(*number), number.unsigned_abs()),
        ('b', Val::Uint(number)) => write!(out, "{number:b}"),
        ('b', Val::Bool(value)) => write!(out, "{}", u8::from(*value)),
        ('b', _) => return wrong("only integers and bools can be formatted as binary"),
        ('o', Val::Int(number)) => write!(out, "{}{:o}", minus(*number), number.unsigned_abs()),
        ('o', Val::Uint(number)) => write!(out, "{number:o}"),
        ('o', _) => return wrong("octal clause can only be used on integers"),
        ('x', Val::Int(number)) => write!(out, "{}{:x}", minus(*number), number.unsigned_abs()),
        ('X', Val::Int(number)) => write!(out, "{}{:X}", minus(*number), number.unsigned_abs()),
        ('x', Val::Uint(number)) => write!(out, "{number:x}"),
        ('X', Val::Uint(number)) => write!(out, "{number:X}"),
        ('x' | 'X', Val::String(text)) => return hex(machine, text.as_bytes(), verb == 'X', out),
        ('x' | 'X', Val::Bytes(bytes)) => return hex(machine, bytes, verb == 'X', out),
        ('x' | 'X', _) => return wrong("only integers, byte buffers, and strings can be formatted as hex"),
        _ => {
            let what = format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\"");
            return Err(Failure::told(what));
        }
    };
    Ok(())
}

fn minus(number: i64) -> &'static str {
    if number < 0 { "-" } else { "" }
}

fn not_finite(number: f64) -> &'static str {
    match number {
        number if number.is_nan() => "NaN",
        number if number > 0.0 => "∞",
        _ => "-∞",
    }
}

fn hex(machine: &mut Machine<'_>, bytes: &[u8], upper: bool, out: &mut String) -> Result<(), Failure> {
    machine.work(bytes.len() as u64 * 2)?;
    if out.len() + bytes.len() * 2 > LEN_MAX {
        return Err(Failure::TooDear);
    }
    for byte in bytes {
        let _ = if upper {
            write!(out, "{byte:02X}")
        } else {
            write!(out, "{byte:02x}")
        };
    }
    Ok(())
}

/// A number with commas between its thousands.
fn grouped(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, part) = digits
        .split_once('.')
        .map_or((digits, None), |(whole, part)| (whole, Some(part)));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(part) = part {
        out.push('.');
        out.push_str(part);
    }
    out
}

/// A number with a power of ten, as English print has it.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.abs())
        .chars()
        .map(|digit| match digit {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            // Superscript zero and four to nine lie in a row of their own.
            digit => char::from_u32(0x2070 + u32::from(digit) - u32::from('0')).unwrap_or(digit),
        })
        .collect();
    let sign = if exponent < 0 { "⁻" } else { "" };
    format!("{mantissa}\u{202f}×\u{202f}10{sign}{raised}")
}

/// A value as `%s` shows it; texts within lists and maps in quotes.
fn show<'a>(
    machine: &mut Machine<'a>,
    value: &Val<'a>,
    inside: bool,
    depth: usize,
    out: &mut String,
) -> Result<(), Failure> {
    machine.work(64)?;
    if depth == 0 || out.len() > LEN_MAX {
        return Err(Failure::TooDear);
    }
    match value {
        Val::Null => out.push_str("null"),
        Val::String(text) => {
            machine.work(text.len() as u64)?;
            if inside {
                out.push_str(&quoted(text));
            } else {
                out.push_str(text);
            }
        }
        Val::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Val::Int(number) => out.push_str(&number.to_string()),
        Val::Uint(number) => out.push_str(&number.to_string()),
        Val::Double(number) => out.push_str(&convert::double_text(*number)),
        Val::Bytes(bytes) => {
            machine.work(bytes.len() as u64)?;
            out.push_str(&String::from_utf8_lossy(bytes));
        }
        Val::Timestamp(time) => out.push_str(&times::time_text(*time)),
        Val::Duration(nanos) => out.push_str(&times::seconds_text(*nanos)),
        Val::Type(named) => out.push_str(&named.to_string()),
        Val::List(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show(machine, &item?, true, depth - 1, out)?;
            }
            out.push(']');
        }
        Val::Map(map) => {
            out.push('{');
            for (at, key) in map.keys().iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show(machine, key, true, depth - 1, out)?;
                out.push_str(": ");
                if let Some(value) = map.get(key) {
                    show(machine, &value?, true, depth - 1, out)?;
                }
            }
            out.push('}');
        }
        other => {
            let what = format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps, was given {}",
                other.type_name()
            );
            return Err(Failure::told(what));
        }
    }
    Ok(())
}

/// A text in quotes, with escapes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
