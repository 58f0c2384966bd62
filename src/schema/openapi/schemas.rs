//! Schemas as OpenAPI writes them, in version 2 and 3.

use crate::schema::describe::Descriptions;
use crate::schema::{Field, ListType, Schema, Shape, Type};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Which OpenAPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    V2,
    V3,
}

impl Version {
    /// Where schemas lie in a document.
    fn base(self) -> &'static str {
        match self {
            Version::V2 => "#/definitions/",
            Version::V3 => "#/components/schemas/",
        }
    }

    /// A bare reference to a schema.
    pub(super) fn reference(self, schema: Schema<'_>) -> Value {
        json!({"$ref": format!("{}{}", self.base(), schema.name())})
    }
}

/// The schemas that `roots` lead to, themselves included, by name.
pub(super) fn reachable(roots: impl Iterator<Item = Schema<'static>>) -> Vec<Schema<'static>> {
    let mut seen: BTreeSet<u16> = BTreeSet::new();
    let mut open: Vec<Schema<'static>> = roots.collect();
    while let Some(schema) = open.pop() {
        if seen.insert(schema.number) {
            open.extend(schema.fields().filter_map(|field| referred(field.ty())));
        }
    }
    // Numbers go by name.
    seen.into_iter()
        .map(|number| Schema {
            number,
            ..Schema::built_in()
        })
        .collect()
}

fn referred(ty: Type<'static>) -> Option<Schema<'static>> {
    match ty {
        Type::Schema(schema) => Some(schema),
        Type::List(element) | Type::Map(element) => referred(element.ty()),
        _ => None,
    }
}

/// A schema in full.
pub(super) fn schema(schema: Schema<'static>, version: Version, texts: &mut Descriptions<'static>) -> Value {
    let mut out = Map::new();
    let entry = schema.blob.schema(schema.number);
    describe(&mut out, texts.take(entry.description()));
    if schema.shape() != Shape::Struct {
        shape(&mut out, schema, version);
        return Value::Object(out);
    }
    out.insert("type".to_owned(), "object".into());
    let required: Vec<&str> = schema
        .fields()
        .filter(|field| field.required())
        .map(Field::name)
        .collect();
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    let properties: Map<String, Value> = schema
        .fields()
        .map(|field| (field.name().to_owned(), property(field, version, texts)))
        .collect();
    if !properties.is_empty() {
        out.insert("properties".to_owned(), properties.into());
    }
    let kinds: Vec<Value> = schema
        .kinds()
        .map(|(group, version, kind)| json!({"group": group, "version": version, "kind": kind}))
        .collect();
    if !kinds.is_empty() {
        out.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
    }
    if schema.map_atomic() {
        out.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    }
    if let Ok(unions) = serde_json::from_str::<Value>(entry.union_json()) {
        out.insert("x-kubernetes-unions".to_owned(), unions);
    }
    Value::Object(out)
}

/// Schemas that are not objects with fields.
fn shape(out: &mut Map<String, Value>, schema: Schema<'static>, version: Version) {
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    match (schema.shape(), version) {
        (Shape::Quantity, Version::V2) => {
            put("type", "string".into());
        }
        (Shape::Quantity, Version::V3) => {
            put("oneOf", json!([{"type": "string"}, {"type": "number"}]));
        }
        (Shape::IntOrString, Version::V2) => {
            put("type", "string".into());
            put("format", "int-or-string".into());
        }
        (Shape::IntOrString, Version::V3) => {
            put("format", "int-or-string".into());
            put("oneOf", json!([{"type": "integer"}, {"type": "string"}]));
        }
        (Shape::Time | Shape::MicroTime, _) => {
            put("type", "string".into());
            put("format", "date-time".into());
        }
        (Shape::Raw, _) => {
            put("type", "object".into());
        }
        _ => {}
    }
}

fn describe(out: &mut Map<String, Value>, text: &str) {
    if !text.is_empty() {
        out.insert("description".to_owned(), text.into());
    }
}

fn property(field: Field<'static>, version: Version, texts: &mut Descriptions<'static>) -> Value {
    let entry = field.blob.field(field.number);
    let mut out = Map::new();
    describe(&mut out, texts.take(entry.description()));
    // Version 2 has no defaults: clients of that time applied them.
    if version == Version::V3
        && let Some(default) = field
            .default_json()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
    {
        out.insert("default".to_owned(), default);
    }
    let mut ty = value(field.ty(), version);
    let mut choices: Vec<&str> = field.enum_values().collect();
    choices.sort_unstable();
    if !choices.is_empty() {
        let target = if matches!(field.ty(), Type::List(_)) {
            ty.get_mut("items")
        } else {
            Some(&mut ty)
        };
        if let Some(Value::Object(target)) = target {
            target.insert("enum".to_owned(), choices.into());
        }
    }
    let mut extend = |key: &str, value: Value| out.insert(format!("x-kubernetes-{key}"), value);
    if let Some(list_type) = field.list_type() {
        let name = match list_type {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        extend("list-type", name.into());
    }
    let keys: Vec<&str> = field.map_keys().collect();
    if !keys.is_empty() {
        extend("list-map-keys", keys.into());
    }
    if field.map_atomic() {
        extend("map-type", "atomic".into());
    }
    if field.map_granular() {
        extend("map-type", "granular".into());
    }
    let strategies: Vec<&str> = [
        (field.patch_merge(), "merge"),
        (field.patch_replace(), "replace"),
        (field.patch_retain_keys(), "retainKeys"),
    ]
    .iter()
    .filter_map(|(holds, name)| holds.then_some(*name))
    .collect();
    if !strategies.is_empty() {
        extend("patch-strategy", strategies.join(",").into());
    }
    if let Some(key) = field.merge_key() {
        extend("patch-merge-key", key.into());
    }
    match ty {
        // A reference stands alone: what is said beside it needs a wrapper in version 3.
        Value::Object(ref ty) if ty.contains_key("$ref") && version == Version::V3 && !out.is_empty() => {
            out.insert("allOf".to_owned(), json!([ty]));
        }
        Value::Object(ty) => out.extend(ty),
        _ => {}
    }
    Value::Object(out)
}

/// A type where it is used.
fn value(ty: Type<'static>, version: Version) -> Value {
    let scalar = |name: &str, format: &str| {
        if format.is_empty() {
            json!({"type": name})
        } else {
            json!({"type": name, "format": format})
        }
    };
    match ty {
        Type::Any => json!({}),
        Type::Boolean => scalar("boolean", ""),
        Type::Integer(format) => scalar("integer", format),
        Type::Number(format) => scalar("number", format),
        Type::String(format) => scalar("string", format),
        Type::Object => json!({"type": "object"}),
        Type::List(element) => json!({"type": "array", "items": inner(element.ty(), version)}),
        Type::Map(element) => json!({"type": "object", "additionalProperties": inner(element.ty(), version)}),
        Type::Schema(schema) => version.reference(schema),
    }
}

/// A type inside a list or a map, with the default that its zero value is.
fn inner(ty: Type<'static>, version: Version) -> Value {
    let mut inner = value(ty, version);
    if version == Version::V2 {
        return inner;
    }
    match ty {
        Type::Schema(schema) if schema.shape() == Shape::Struct => json!({"allOf": [inner], "default": {}}),
        _ => {
            let default = match ty {
                Type::String("") => json!(""),
                Type::Integer(_) | Type::Number(_) => json!(0),
                Type::Boolean => json!(false),
                _ => return inner,
            };
            if let Value::Object(inner) = &mut inner {
                inner.insert("default".to_owned(), default);
            }
            inner
        }
    }
}
