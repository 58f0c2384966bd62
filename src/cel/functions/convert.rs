//! Conversions between types, and sizes.

use std::fmt::Write;

use super::super::machine::Machine;
use super::super::value::{Failure, Outcome, Str, Val};
use super::{Price, Row, times};

pub(super) const ROWS: &[Row] = &[
    ("bool", false, Price::One, |_, args| match args {
        [Val::Bool(value)] => Some(Ok(Val::Bool(*value))),
        [Val::String(text)] => Some(match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => Err(impossible("string", "bool")),
        }),
        _ => None,
    }),
    ("int", false, Price::One, |_, args| {
        Some(match args {
            [Val::Int(number)] => Ok(Val::Int(*number)),
            [Val::Uint(number)] => i64::try_from(*number).map(Val::Int).map_err(|_| overflow()),
            // The doubles at the ends are not exact, so neither end is taken.
            [Val::Double(number)] if number.abs() < 9_223_372_036_854_775_808.0 => Ok(Val::Int(*number as i64)),
            [Val::Double(_)] => Err(overflow()),
            [Val::String(text)] => text.parse().map(Val::Int).map_err(|_| impossible("string", "int")),
            [Val::Timestamp(time)] => Ok(Val::Int(time.seconds())),
            [Val::Duration(nanos)] => Ok(Val::Int(*nanos)),
            _ => return None,
        })
    }),
    ("uint", false, Price::One, |_, args| {
        let overflow = || Failure::told("unsigned integer overflow");
        Some(match args {
            [Val::Uint(number)] => Ok(Val::Uint(*number)),
            [Val::Int(number)] => u64::try_from(*number).map(Val::Uint).map_err(|_| overflow()),
            [Val::Double(number)] if (0.0..18_446_744_073_709_551_616.0).contains(number) => {
                Ok(Val::Uint(*number as u64))
            }
            [Val::Double(_)] => Err(overflow()),
            [Val::String(text)] if !text.starts_with('+') => {
                text.parse().map(Val::Uint).map_err(|_| impossible("string", "uint"))
            }
            [Val::String(_)] => Err(impossible("string", "uint")),
            _ => return None,
        })
    }),
    ("double", false, Price::One, |_, args| {
        Some(match args {
            [Val::Double(number)] => Ok(Val::Double(*number)),
            [Val::Int(number)] => Ok(Val::Double(*number as f64)),
            [Val::Uint(number)] => Ok(Val::Double(*number as f64)),
            [Val::String(text)] => text
                .parse()
                .map(Val::Double)
                .map_err(|_| impossible("string", "double")),
            _ => return None,
        })
    }),
    ("string", false, Price::Converted, string),
    ("bytes", false, Price::Converted, |machine, args| match args {
        [Val::Bytes(bytes)] => Some(Ok(Val::Bytes(bytes.clone()))),
        [Val::String(text)] => Some(
            machine
                .work(text.len() as u64)
                .map(|()| Val::Bytes(text.as_bytes().into())),
        ),
        _ => None,
    }),
    ("type", false, Price::One, |_, args| match args {
        [value] => Some(Ok(Val::Type(Box::new(value.type_of())))),
        _ => None,
    }),
    ("dyn", false, Price::One, |_, args| match args {
        [value] => Some(Ok(value.clone())),
        _ => None,
    }),
    ("size", false, Price::One, size),
    ("size", true, Price::One, size),
];

fn overflow() -> Failure {
    Failure::told("integer overflow")
}

fn impossible(from: &str, to: &str) -> Failure {
    Failure::told(format!("type conversion error from '{from}' to '{to}'"))
}

fn size<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    match args {
        [value @ (Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_))] => {
            Some(machine.size(Some(value)).map(|size| Val::Int(size as i64)))
        }
        _ => None,
    }
}

fn string<'a>(machine: &mut Machine<'a>, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [value] = args else { return None };
    Some(match value {
        Val::String(_) => Ok(value.clone()),
        Val::Bool(value) => Ok(Val::text(if *value { "true" } else { "false" })),
        Val::Int(number) => Ok(Val::text(number.to_string())),
        Val::Uint(number) => Ok(Val::text(number.to_string())),
        Val::Double(number) => Ok(Val::text(double_text(*number))),
        Val::Bytes(bytes) => machine.work(bytes.len() as u64).and_then(|()| {
            let text = std::str::from_utf8(bytes);
            text.map(Val::text)
                .map_err(|_| Failure::told("invalid UTF-8 in bytes, cannot convert to string"))
        }),
        Val::Timestamp(time) => Ok(Val::text(times::time_text(*time))),
        Val::Duration(nanos) => Ok(Val::text(times::seconds_text(*nanos))),
        Val::Ip(address) => Ok(Val::text(address.to_string())),
        Val::Cidr(address, bits) => Ok(Val::text(format!("{address}/{bits}"))),
        Val::Type(named) => Ok(Val::String(Str::Made(named.to_string().into()))),
        _ => return None,
    })
}

/// A double as Go's `%g` writes it: shortest, with an exponent when that is below -4 or not below 21 digits' worth of 6.
pub(super) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    // Shortest form: the point moves until the exponent would say more than the digits do.
    let longest = if digits > exponent { 21.max(digits) } else { 21 };
    if exponent < -4 || exponent >= longest {
        let mut out = mantissa.to_owned();
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
        return out;
    }
    format!("{number}")
}
