//! The form in which kube-apiserver gives an object back: what went through its Go types and out again.
//!
//! Empty lists, maps and texts of optional fields are left out; fields that its types always write are there, with their
//! zero value; quantities and times are in their canonical text. The schema tells most of this. What it does not tell,
//! whether an optional number or boolean is a pointer and which times are written as `null`, is in
//! `facts/zero-values.tsv`.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::Resource;
use super::quantity::Quantity;
use crate::schema::{Field, Schema, Shape, Type};

/// Deepest nesting that is followed; what lies deeper stays as it was written. (Recursive schemas: CRD validation.)
const DEPTH_MAX: usize = 64;

/// Brings an object of that resource into canonical form.
pub fn canonicalize(resource: &Resource, object: &mut Value) {
    if let (Some(schema), Some(fields)) = (
        Schema::of(resource.group, resource.version, resource.kind),
        object.as_object_mut(),
    ) {
        structure(schema, fields, 0);
    }
}

/// What becomes of a field's zero value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    /// Left out.
    Omitted,
    /// Kept when it was written.
    Kept,
    /// Written as `null`, also when it was not.
    Null,
}

fn structure(schema: Schema<'_>, fields: &mut Map<String, Value>, depth: usize) {
    let exceptions = exceptions(schema.name());
    for field in schema.fields() {
        let name = field.name();
        let exception = exceptions.and_then(|exceptions| exceptions.get(name)).copied();
        if let Some(value) = fields.get_mut(name).filter(|value| !value.is_null()) {
            of_type(field.ty(), value, depth + 1);
            let omitted = match (&*value, exception) {
                (_, Some(Zero::Kept)) => false,
                (value, Some(Zero::Omitted)) => is_zero(value),
                (Value::String(text), _) => text.is_empty() && !always_written(field),
                (Value::Array(list), _) => list.is_empty() && !field.required(),
                (Value::Object(map), _) => map.is_empty() && !field.required() && matches!(field.ty(), Type::Map(_)),
                _ => false,
            };
            if omitted {
                fields.remove(name);
            }
            continue;
        }
        let written = match exception {
            Some(Zero::Null) => Some(Value::Null),
            Some(Zero::Omitted | Zero::Kept) => None,
            None => field
                .default_json()
                .and_then(|json| serde_json::from_str(json).ok())
                .or_else(|| {
                    (field.required() && matches!(field.ty(), Type::List(_) | Type::Map(_))).then_some(Value::Null)
                }),
        };
        match written {
            Some(mut value) => {
                of_type(field.ty(), &mut value, depth + 1);
                fields.insert(name.to_owned(), value);
            }
            None => {
                fields.remove(name);
            }
        }
    }
}

/// Whether the type writes the field even when it is empty.
fn always_written(field: Field<'_>) -> bool {
    field.default_json().is_some()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) => false,
    }
}

fn of_type(ty: Type<'_>, value: &mut Value, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    match (ty, value) {
        (Type::List(element), Value::Array(list)) => {
            for value in list {
                of_type(element.ty(), value, depth + 1);
            }
        }
        (Type::Map(element), Value::Object(map)) => {
            for value in map.values_mut() {
                of_type(element.ty(), value, depth + 1);
            }
        }
        (Type::Schema(schema), value) => match (schema.shape(), &mut *value) {
            (Shape::Struct, Value::Object(fields)) => structure(schema, fields, depth),
            (Shape::Quantity, Value::String(text)) => {
                if let Some(quantity) = Quantity::parse(text.trim()) {
                    *text = quantity.canonical();
                }
            }
            (Shape::Quantity, Value::Number(number)) => {
                if let Some(quantity) = Quantity::parse(&number.to_string()) {
                    *value = Value::String(quantity.canonical());
                }
            }
            (Shape::Time, Value::String(text)) => time(text, 0),
            (Shape::MicroTime, Value::String(text)) => time(text, 6),
            _ => {}
        },
        _ => {}
    }
}

/// UTC with that many digits of a second, finer ones cut off.
fn time(text: &mut String, digits: u8) {
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        let unit = if digits == 0 {
            jiff::Unit::Second
        } else {
            jiff::Unit::Microsecond
        };
        let cut = jiff::TimestampRound::new().smallest(unit).mode(jiff::RoundMode::Floor);
        let instant = instant.round(cut).unwrap_or(instant);
        *text = if digits == 0 {
            instant.to_string()
        } else {
            format!("{instant:.6}")
        };
    }
}

type Exceptions = HashMap<&'static str, HashMap<&'static str, Zero>>;

/// The fields of a schema whose zero value is treated otherwise than the schema tells.
fn exceptions(schema: &str) -> Option<&'static HashMap<&'static str, Zero>> {
    static EXCEPTIONS: OnceLock<Exceptions> = OnceLock::new();
    let all = EXCEPTIONS.get_or_init(|| {
        let mut all = Exceptions::new();
        for line in include_str!("facts/zero-values.tsv").lines().skip(1) {
            let mut cells = line.split('\t');
            let (Some(schema), Some(rule), Some(fields)) = (cells.next(), cells.next(), cells.next()) else {
                continue;
            };
            let zero = match rule {
                "omitted" => Zero::Omitted,
                "null" => Zero::Null,
                _ => Zero::Kept,
            };
            all.entry(schema)
                .or_default()
                .extend(fields.split(' ').map(|field| (field, zero)));
        }
        all
    });
    all.get(schema)
}
