//! The form in which kube-apiserver gives an object back: what went through its Go types and out again.
//!
//! Empty lists, maps and texts of optional fields are left out; fields that its types always write are there, with their
//! zero value; quantities and times are in their canonical text. The schema tells most of this. What it does not tell,
//! whether an optional number or boolean is a pointer and which times are written as `null`, is in
//! `facts/zero-values.tsv`; defaults that depend on nothing else are in `facts/defaults.tsv` and filled in on the way.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::tree::{Map, Text, Value};

use super::Resource;
use super::declaration::rows;
use super::quantity::Quantity;
use crate::schema::{self, Schema, Shape, Type};

/// Deepest nesting that is followed; what lies deeper stays as it was written. (Recursive schemas: CRD validation.)
const DEPTH_MAX: usize = 64;

/// The schema of metadata, the one part of a custom object that has a Go type.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Brings an object of that resource into canonical form.
pub fn canonicalize(resource: &Resource, object: &mut Value) {
    canonicalize_change(resource, None, object);
}

/// [`canonicalize`] of a change of `old`, which is in canonical form: what both share is so, too, and is not looked at.
pub(super) fn canonicalize_change(resource: &Resource, old: Option<&Value>, object: &mut Value) {
    if let (Some(schema), Some(fields)) = (
        Schema::of(&resource.group, &resource.version, &resource.kind),
        object.as_object_mut(),
    ) {
        structure(schema, old, fields, 0);
    } else if resource.custom.is_some()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(schema) = Schema::named(METADATA)
    {
        structure(schema, old.and_then(|old| old.get("metadata")), metadata, 0);
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

fn structure(schema: Schema<'static>, old: Option<&Value>, fields: &mut Map, depth: usize) {
    let plan = Plan::of(schema);
    let names = schema::Plan::of(schema);
    let mut emptied = Vec::new();
    let mut cursor = 0;
    for (name, value) in fields.iter_mut() {
        let Some(number) = names.find_key(name, &mut cursor) else {
            continue;
        };
        let field = &plan.fields[number];
        if field.is_touched(value) {
            let old = old.and_then(|old| old.get(field.name));
            of_type(field.ty, old, value, depth + 1);
        }
        if value.is_null() || field.omits(value) {
            emptied.push(field.name);
        }
    }
    for name in emptied {
        fields.remove(name);
    }
    for field in &plan.written {
        if !fields.contains_key(field.name) {
            let mut value = field.value.clone();
            of_type(field.ty, None, &mut value, depth + 1);
            fields.insert(field.name, value);
        }
    }
}

/// What is done to the objects of one schema: made from it and the tables of facts when it is first met.
struct Plan {
    /// All fields, by name.
    fields: Vec<PlanField>,
    /// What is written where a field is missing.
    written: Vec<Written>,
}

struct PlanField {
    name: &'static str,
    ty: Type<'static>,
    zero: Option<Zero>,
    omits_empty_text: bool,
    omits_empty_map: bool,
    scalar: bool,
}

struct Written {
    name: &'static str,
    ty: Type<'static>,
    value: Value,
}

impl Plan {
    fn of(schema: Schema<'static>) -> &'static Plan {
        static PLANS: OnceLock<Box<[OnceLock<Plan>]>> = OnceLock::new();
        let plans = PLANS.get_or_init(|| Schema::all().map(|_| OnceLock::new()).collect());
        plans[schema.number as usize].get_or_init(|| Plan::new(schema))
    }

    fn new(schema: Schema<'static>) -> Plan {
        let mut plan = Plan {
            fields: Vec::new(),
            written: Vec::new(),
        };
        let rules = rules(schema.name());
        for field in schema.fields() {
            let (name, ty) = (field.name(), field.ty());
            let rule = rules.and_then(|rules| rules.get(name));
            let zero = rule.and_then(|rule| rule.zero);
            let default = rule.and_then(|rule| rule.default.clone());
            plan.fields.push(PlanField {
                name,
                ty,
                zero,
                // A type with a default in OpenAPI writes the field even when it is empty.
                omits_empty_text: default.is_some() || field.default_json().is_none(),
                omits_empty_map: !field.required() && matches!(ty, Type::Map(_)),
                scalar: is_scalar(ty),
            });
            let value = match zero {
                _ if default.is_some() => default,
                Some(Zero::Null) => Some(Value::Null),
                Some(Zero::Omitted | Zero::Kept) => None,
                None => field
                    .default_json()
                    .and_then(|json| serde_json::from_str(json).ok())
                    .or_else(|| {
                        (field.required() && matches!(ty, Type::List(_) | Type::Map(_))).then_some(Value::Null)
                    }),
            };
            plan.written.extend(value.map(|value| Written { name, ty, value }));
        }
        plan
    }
}

impl PlanField {
    /// Whether there is anything to bring into canonical form in a value.
    fn is_touched(&self, value: &Value) -> bool {
        !self.scalar && !value.is_null()
    }

    /// Whether a value, not null, is left out.
    fn omits(&self, value: &Value) -> bool {
        match (value, self.zero) {
            (_, Some(Zero::Kept)) => false,
            (value, Some(Zero::Omitted)) => is_zero(value),
            (Value::String(text), _) => text.is_empty() && self.omits_empty_text,
            // An empty list is stored as none, so that a field that is always written becomes `null`.
            (Value::Array(list), _) => list.is_empty(),
            (Value::Object(map), _) => map.is_empty() && self.omits_empty_map,
            _ => false,
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::Raw(_) => false,
    }
}

fn of_type(ty: Type<'static>, old: Option<&Value>, value: &mut Value, depth: usize) {
    if depth > DEPTH_MAX || old.is_some_and(|old| value.shares(old)) {
        return;
    }
    match (ty, value) {
        (Type::List(element), Value::Array(list)) if !is_scalar(element.ty()) => {
            let old = old.and_then(Value::as_array);
            for (at, value) in list.iter_mut().enumerate() {
                of_type(element.ty(), old.and_then(|old| old.get(at)), value, depth + 1);
            }
        }
        (Type::Map(element), Value::Object(map)) => {
            // Maps of quantities are amounts of resources.
            if matches!(element.ty(), Type::Schema(schema) if schema.shape() == Shape::Quantity) {
                for value in map.values_mut() {
                    quantity(value, true);
                }
            } else if !is_scalar(element.ty()) {
                for (name, value) in map.iter_mut() {
                    of_type(element.ty(), old.and_then(|old| old.get(name)), value, depth + 1);
                }
            }
        }
        (Type::Schema(schema), value) => match (schema.shape(), &mut *value) {
            (Shape::Struct, Value::Object(fields)) => structure(schema, old, fields, depth),
            (Shape::Quantity, value) => quantity(value, false),
            (Shape::Time, Value::String(text)) => time(text, 0),
            (Shape::MicroTime, Value::String(text)) => time(text, 6),
            _ => {}
        },
        _ => {}
    }
}

/// Whether values of that type are in canonical form as they are.
fn is_scalar(ty: Type<'static>) -> bool {
    !matches!(ty, Type::List(_) | Type::Map(_) | Type::Schema(_))
}

/// A quantity as text, numbers too.
fn quantity(value: &mut Value, millis: bool) {
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(number) => &number.to_string(),
        _ => return,
    };
    let rewritten = Quantity::rewrite(text, millis).filter(|text| *value != text.as_str());
    if let Some(text) = rewritten {
        *value = Value::from(text);
    }
}

/// UTC with that many digits of a second, finer ones cut off.
fn time(text: &mut Text, digits: u8) {
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        let unit = if digits == 0 {
            jiff::Unit::Second
        } else {
            jiff::Unit::Microsecond
        };
        let cut = jiff::TimestampRound::new().smallest(unit).mode(jiff::RoundMode::Floor);
        let instant = instant.round(cut).unwrap_or(instant);
        let canonical = if digits == 0 {
            instant.to_string()
        } else {
            format!("{instant:.6}")
        };
        if text.as_str() != canonical {
            *text = canonical.into();
        }
    }
}

/// What the tables of facts say about a field.
#[derive(Default)]
struct Rule {
    zero: Option<Zero>,
    default: Option<Value>,
}

type Rules = HashMap<&'static str, HashMap<&'static str, Rule>>;

/// The fields of a schema of which the tables of facts say something.
fn rules(schema: &str) -> Option<&'static HashMap<&'static str, Rule>> {
    static RULES: OnceLock<Rules> = OnceLock::new();
    let all = RULES.get_or_init(|| {
        let mut all = Rules::new();
        for row in rows(include_str!("facts/zero-values.tsv")) {
            let zero = match row[1] {
                "omitted" => Zero::Omitted,
                "null" => Zero::Null,
                _ => Zero::Kept,
            };
            for field in row[2].split(' ') {
                all.entry(row[0]).or_default().entry(field).or_default().zero = Some(zero);
            }
        }
        for row in rows(include_str!("facts/defaults.tsv")) {
            let default = serde_json::from_str(row[2]).ok();
            all.entry(row[0]).or_default().entry(row[1]).or_default().default = default;
        }
        all
    });
    all.get(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_name_fields_that_exist_and_hold_json() {
        let all = rows(include_str!("facts/zero-values.tsv")).map(|row| (row[0], row[2], None));
        let defaults = rows(include_str!("facts/defaults.tsv")).map(|row| (row[0], row[1], Some(row[2])));
        for (schema, fields, default) in all.chain(defaults) {
            let shape = Schema::named(schema).unwrap_or_else(|| panic!("no schema {schema}"));
            for field in fields.split(' ') {
                assert!(shape.field(field).is_some(), "{schema} has no field {field}");
            }
            if let Some(default) = default {
                serde_json::from_str::<Value>(default).unwrap();
            }
        }
    }
}
