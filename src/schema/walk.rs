//! One pass over JSON or YAML by a schema: types checked, unknown fields dropped, duplicates seen, nulls resolved.
//!
//! The pass follows Go's decoder, because its wording and its order are what clients of kube-apiserver see. Findings about
//! fields are gathered in document order. The first value of a wrong type is remembered and the pass goes on; an error of
//! a type with a decoder of its own (a quantity, a time) ends it at once and takes precedence.

use super::plan::Known;
use super::scalar;
use super::shape::{Schema, Shape, Type};
use crate::tree::{Key, Map, Value};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Findings beyond this number are not kept, as upstream.
const FINDINGS_MAX: usize = 100;

/// Nesting beyond this is refused. (`serde_json` stops its own recursion at 128; YAML and values pass here too.)
const DEPTH_MAX: usize = 128;

/// More structures than this in one object are refused. Each may grow by its defaults, and by what is said of it, to
/// hundreds of times the two bytes that it was sent in.
const STRUCTURES_MAX: usize = 1 << 16;

/// Whose error texts a wrong type gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wording {
    /// Go's JSON decoder: bodies of requests, results of JSON and merge patches.
    Json,
    /// The converter from untyped maps to Go structs: results of strategic merge patches.
    Converter,
}

/// What a pass gathers.
pub(crate) struct Walker<'a> {
    wording: Wording,
    /// Whether unknown and duplicate fields are looked for.
    attentive: bool,
    findings: Vec<String>,
    wrong_type: Option<String>,
    fatal: Option<String>,
    path: Vec<Step<'a>>,
    owner: Option<Schema<'a>>,
    depth: usize,
    structures: usize,
    /// Fields of the objects that are being read, and items of the lists: each list and map is made once its length is known.
    entries: Vec<(Key, Value)>,
    items: Vec<Value>,
}

enum Step<'a> {
    Field(&'a str),
    Key(Key),
    Index(usize),
}

/// How a pass ended.
pub(crate) enum Outcome {
    /// The value, and findings in document order: `unknown field "spec.foo"`.
    Value(Value, Vec<String>),
    /// A value of the wrong type: the text.
    WrongType(String),
    /// The source is not well-formed: what its parser said.
    Malformed(String),
}

impl<'a> Walker<'a> {
    pub(crate) fn new(wording: Wording, attentive: bool) -> Walker<'a> {
        Walker {
            wording,
            attentive,
            findings: Vec::new(),
            wrong_type: None,
            fatal: None,
            path: Vec::new(),
            owner: None,
            depth: 0,
            structures: 0,
            entries: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Passes over what `source` gives, as `ty`.
    pub(crate) fn run<'de, D: Deserializer<'de>>(mut self, ty: Type<'a>, source: D) -> Outcome {
        let result = Seed {
            walker: &mut self,
            ty,
            go: "",
        }
        .deserialize(source)
        .map_err(|error| error.to_string());
        self.finish(result)
    }

    /// The seed of a pass whose deserializer lives in a closure; hand its result to [`Walker::finish`].
    pub(crate) fn start<'de, D: Deserializer<'de>>(&mut self, ty: Type<'a>, source: D) -> Result<Value, D::Error> {
        Seed {
            walker: self,
            ty,
            go: "",
        }
        .deserialize(source)
    }

    pub(crate) fn finish(self, result: Result<Value, String>) -> Outcome {
        match (self.fatal, result, self.wrong_type) {
            (Some(text), ..) | (None, Ok(_), Some(text)) => Outcome::WrongType(text),
            (None, Err(text), _) => Outcome::Malformed(text),
            (None, Ok(value), None) => Outcome::Value(value, self.findings),
        }
    }

    /// Counts a structure, if `ty` is one.
    fn grow<E: serde::de::Error>(&mut self, ty: Type<'_>) -> Result<(), E> {
        self.structures += usize::from(matches!(ty, Type::Schema(_)));
        if self.structures > STRUCTURES_MAX {
            return Err(E::custom(format_args!("more than {STRUCTURES_MAX} structures")));
        }
        Ok(())
    }

    fn find(&mut self, what: &str, last: &str) {
        if !self.attentive || self.findings.len() >= FINDINGS_MAX {
            return;
        }
        let mut text = format!("{what} field \"");
        for step in &self.path {
            push_step(&mut text, step);
        }
        push_step(&mut text, &Step::Field(last));
        text.push('"');
        if !self.findings.contains(&text) {
            self.findings.push(text);
        }
    }

    /// Notes a value of the wrong type. `found` is Go's word for what was found.
    fn mismatch(&mut self, found: &str, ty: Type<'a>, go: &str) -> Result<Value, String> {
        if self.wording == Wording::Converter {
            return self.fail(converter_text(found, ty));
        }
        if self.wrong_type.is_none() {
            let wanted = if go.is_empty() { ty.go_name() } else { go.to_owned() };
            self.wrong_type = Some(match self.owner {
                Some(owner) => format!(
                    "json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}",
                    owner.short_name(),
                    self.fields().join("."),
                ),
                None => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            });
        }
        Ok(Value::Null)
    }

    /// The names of the fields that lead to where the pass is.
    fn fields(&self) -> Vec<&'a str> {
        let field = |step: &Step<'a>| match step {
            Step::Field(name) => Some(*name),
            Step::Key(_) | Step::Index(_) => None,
        };
        self.path.iter().filter_map(field).collect()
    }

    /// Ends the pass with `text`.
    fn fail<T>(&mut self, text: String) -> Result<T, String> {
        self.fatal.get_or_insert_with(|| text.clone());
        Err(text)
    }
}

fn push_step(text: &mut String, step: &Step<'_>) {
    let name = match step {
        Step::Field(name) => *name,
        Step::Key(name) => name.as_str(),
        Step::Index(index) => {
            let _ = write!(text, "[{index}]");
            return;
        }
    };
    if !text.ends_with('"') {
        text.push('.');
    }
    text.push_str(name);
}

/// Texts of the converter from untyped maps.
fn converter_text(found: &str, ty: Type<'_>) -> String {
    let found = found.split(' ').next().unwrap_or(found);
    let go_kind = match found {
        "object" => "map",
        "array" => "slice",
        "number" => "int64",
        "float" => "float64",
        other => other,
    };
    match ty {
        Type::List(_) | Type::String("byte") => format!("cannot restore slice from {go_kind}"),
        Type::Map(_) | Type::Object => format!("cannot restore map from {go_kind}"),
        Type::Schema(schema) if schema.shape() == Shape::Struct => format!("cannot restore struct from: {go_kind}"),
        _ => {
            let wanted = ty.go_name();
            let number = |name: &str| matches!(name, "int32" | "int64" | "float64");
            if number(go_kind) && (number(&wanted) || wanted == "string") {
                format!("cannot convert {go_kind} to {wanted}")
            } else {
                format!("unrecognized type: {wanted}")
            }
        }
    }
}

struct Seed<'w, 'a> {
    walker: &'w mut Walker<'a>,
    ty: Type<'a>,
    /// Name of the Go type, where it has one of its own.
    go: &'a str,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'a> Seed<'_, 'a> {
    fn wrong<E: serde::de::Error>(self, found: &str) -> Result<Value, E> {
        self.walker.mismatch(found, self.ty, self.go).map_err(E::custom)
    }

    fn fail<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.walker.fail(text).map_err(E::custom)
    }

    fn shape(&self) -> Option<Shape> {
        match self.ty {
            Type::Schema(schema) => Some(schema.shape()),
            _ => None,
        }
    }

    fn integer<E: serde::de::Error>(self, number: serde_json::Number) -> Result<Value, E> {
        let fits = |number: &serde_json::Number, format| match number.as_i64() {
            Some(value) => format != "int32" || i32::try_from(value).is_ok(),
            None => false,
        };
        match (self.ty, self.shape()) {
            (Type::Integer(format), _) if fits(&number, format) => Ok(Value::Number(number)),
            (Type::Integer(_), _) => {
                let found = format!("number {number}");
                self.wrong(&found)
            }
            (Type::Any | Type::Number(_), _) | (_, Some(Shape::Any | Shape::Raw)) => Ok(Value::Number(number)),
            (_, Some(Shape::Quantity)) => Ok(Value::from(number.to_string())),
            (_, Some(Shape::IntOrString)) if fits(&number, "int32") => Ok(Value::Number(number)),
            (_, Some(Shape::IntOrString)) => self.fail(format!(
                "json: cannot unmarshal number {number} into Go value of type int32"
            )),
            _ => self.unmarshaler_or_wrong("number"),
        }
    }

    /// A value that is wrong for its type: types with a decoder of their own have a text of their own.
    fn unmarshaler_or_wrong<E: serde::de::Error>(self, found: &str) -> Result<Value, E> {
        match self.shape() {
            Some(Shape::Time | Shape::MicroTime) => {
                self.fail(format!("json: cannot unmarshal {found} into Go value of type string"))
            }
            Some(Shape::IntOrString) => {
                self.fail(format!("json: cannot unmarshal {found} into Go value of type int32"))
            }
            Some(Shape::Quantity) => self.fail(scalar::QUANTITY_FORMAT.to_owned()),
            Some(Shape::SchemaOrBool) => self.fail("boolean or JSON schema expected".to_owned()),
            _ => self.wrong(found),
        }
    }

    fn text<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        match (self.ty, self.shape()) {
            (Type::String("byte"), _) => match scalar::base64(text) {
                Ok(None) => Ok(Value::from(text)),
                Ok(Some(canonical)) => Ok(Value::from(canonical)),
                Err(error) if self.walker.wording == Wording::Converter => {
                    self.fail(format!("error decoding from json: {error}"))
                }
                Err(error) => {
                    self.walker.wrong_type.get_or_insert(error);
                    Ok(Value::Null)
                }
            },
            (Type::String(_) | Type::Any, _) | (_, Some(Shape::Any | Shape::Raw | Shape::IntOrString)) => {
                Ok(Value::from(text))
            }
            (_, Some(Shape::Quantity)) => match scalar::quantity(text.trim()) {
                Ok(()) => Ok(Value::from(text)),
                Err(error) => self.fail(error.to_owned()),
            },
            (_, Some(Shape::Time)) => match scalar::time(text) {
                Ok(canonical) => Ok(Value::from(canonical)),
                Err(error) => self.fail(error),
            },
            (_, Some(Shape::MicroTime)) => match scalar::micro_time(text) {
                Ok(canonical) => Ok(Value::from(canonical)),
                Err(error) => self.fail(error),
            },
            _ => self.unmarshaler_or_wrong("string"),
        }
    }

    fn list<'de, A: SeqAccess<'de>>(self, element: Type<'a>, mut items: A) -> Result<Value, A::Error> {
        let first = self.walker.items.len();
        loop {
            self.walker.path.push(Step::Index(self.walker.items.len() - first));
            let item = items.next_element_seed(Seed {
                walker: self.walker,
                ty: element,
                go: self.go.strip_prefix("[]").unwrap_or(""),
            })?;
            self.walker.path.pop();
            match item {
                Some(Value::Null) => {
                    self.walker.grow(element)?;
                    self.walker.items.push(zero(element));
                }
                Some(item) => self.walker.items.push(item),
                None => return Ok(Value::Array(self.walker.items.drain(first..).collect())),
            }
        }
    }

    fn map<'de, A: MapAccess<'de>>(self, element: Type<'a>, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Gathered::Few(Map::new());
        while let Some(key) = entries.next_key::<Key>()? {
            if map.contains_key(&key) {
                self.walker.find("duplicate", &key);
            }
            self.walker.path.push(Step::Key(key.clone()));
            let value = entries.next_value_seed(Seed {
                walker: self.walker,
                ty: element,
                go: self.go.split_once(']').map_or("", |(_, element)| element),
            })?;
            self.walker.path.pop();
            let value = if value.is_null() && !matches!(element, Type::Any) {
                self.walker.grow(element)?;
                zero(element)
            } else {
                value
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map.finish()))
    }

    fn fields<'de, A: MapAccess<'de>>(self, schema: Schema<'a>, mut entries: A) -> Result<Value, A::Error> {
        let walker = self.walker;
        let mut seen: u128 = 0;
        let mut twice = false;
        let first = walker.entries.len();
        let outer = walker.owner;
        let mut cursor = 0;
        while let Some(found) = entries.next_key_seed(KeySeed(schema, &mut cursor))? {
            let field = match found {
                Ok(field) => field,
                Err(name) => {
                    walker.find("unknown", &name);
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let name = field.name;
            let bit = 1_u128.checked_shl(field.number as u32).unwrap_or(0);
            let again = seen & bit != 0;
            seen |= bit;
            twice |= again;
            if again {
                walker.find("duplicate", name);
            }
            walker.path.push(Step::Field(name));
            walker.owner = Some(schema);
            let value = entries.next_value_seed(Seed {
                walker,
                ty: field.ty,
                go: field.go,
            })?;
            walker.path.pop();
            walker.owner = outer;
            let earlier = walker.entries[first..]
                .iter_mut()
                .find(|(key, _)| again && *key == name);
            match (value, earlier) {
                (Value::Null, None) => {}
                // Go decodes a field that comes again into what the first one left.
                (Value::Object(later), Some((_, Value::Object(earlier)))) => earlier.extend(later),
                (value, Some((_, earlier))) => *earlier = value,
                (value, None) => walker.entries.push((field.key, value)),
            }
        }
        // Only a field that came twice may have become null.
        let mut object: Map = walker.entries.drain(first..).collect();
        if twice {
            object.retain(|_, value| !value.is_null());
        }
        Ok(Value::Object(object))
    }

    /// Runs `inner` without looking for unknown fields: decoders of their own are not strict.
    fn inattentive<T>(self, inner: impl FnOnce(Seed<'_, 'a>) -> T) -> T {
        let attentive = std::mem::replace(&mut self.walker.attentive, false);
        let result = inner(Seed {
            walker: self.walker,
            ty: self.ty,
            go: self.go,
        });
        self.walker.attentive = attentive;
        result
    }

    fn deeper<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.walker.depth += 1;
        if self.walker.depth > DEPTH_MAX {
            return Err(E::custom("exceeded max depth"));
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        match (self.ty, self.shape()) {
            (Type::Boolean | Type::Any, _) | (_, Some(Shape::Any | Shape::Raw | Shape::SchemaOrBool)) => {
                Ok(Value::Bool(value))
            }
            _ => self.unmarshaler_or_wrong("bool"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.integer(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.integer(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let Some(number) = serde_json::Number::from_f64(value) else {
            return self.wrong("number");
        };
        match (self.ty, self.shape()) {
            // The converter takes a float that is whole.
            (Type::Integer(_), _) if self.walker.wording == Wording::Converter => {
                if value.fract().abs() < f64::EPSILON {
                    self.integer((value as i64).into())
                } else {
                    self.wrong("float")
                }
            }
            (Type::Integer(_), _) => {
                let found = format!("number {number}");
                self.wrong(&found)
            }
            _ => self.integer(number),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.text(text)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        self.deeper()?;
        let depth = self.walker.depth;
        let walker = &mut *self.walker;
        let seed = Seed {
            walker,
            ty: self.ty,
            go: self.go,
        };
        let shape = seed.shape();
        let value = match (seed.ty, shape) {
            (Type::List(element), _) => seed.list(element.ty(), items)?,
            (Type::Any, _) => seed.list(Type::Any, items)?,
            (_, Some(Shape::Any | Shape::Raw)) => seed.inattentive(|seed| seed.list(Type::Any, items))?,
            (_, Some(Shape::SchemaOrStrings)) => seed.inattentive(|seed| seed.list(Type::String(""), items))?,
            (_, Some(Shape::SchemaOrArray)) => {
                let schema = json_schema_props();
                seed.inattentive(|seed| seed.list(schema, items))?
            }
            _ => {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                seed.unmarshaler_or_wrong("array")?
            }
        };
        self.walker.depth = depth - 1;
        Ok(value)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        self.deeper()?;
        self.walker.grow(self.ty)?;
        let depth = self.walker.depth;
        let walker = &mut *self.walker;
        let seed = Seed {
            walker,
            ty: self.ty,
            go: self.go,
        };
        let value = match (seed.ty, seed.shape()) {
            (Type::Map(element), _) => seed.map(element.ty(), entries)?,
            (Type::Any | Type::Object, _) => seed.map(Type::Any, entries)?,
            (_, Some(Shape::Any | Shape::Raw)) => seed.inattentive(|seed| seed.map(Type::Any, entries))?,
            (Type::Schema(schema), Some(Shape::Struct)) => seed.fields(schema, entries)?,
            (_, Some(Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings)) => {
                let Type::Schema(schema) = json_schema_props() else {
                    return Ok(Value::Null);
                };
                seed.inattentive(|seed| seed.fields(schema, entries))?
            }
            _ => {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                seed.unmarshaler_or_wrong("object")?
            }
        };
        self.walker.depth = depth - 1;
        Ok(value)
    }
}

/// What Go leaves where a list element or a map value is null: the zero value of its type.
fn zero(ty: Type<'_>) -> Value {
    match ty {
        Type::String("byte") => Value::Null,
        Type::String(_) => Value::from(String::new()),
        Type::Integer(_) | Type::Number(_) => Value::from(0),
        Type::Boolean => Value::Bool(false),
        Type::Schema(schema) => match schema.shape() {
            Shape::Struct => Value::Object(Map::new()),
            Shape::Quantity => Value::from("0".to_owned()),
            Shape::IntOrString => Value::from(0),
            _ => Value::Null,
        },
        _ => Value::Null,
    }
}

/// The schema of a JSON schema.
pub(crate) fn json_schema_props() -> Type<'static> {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    Schema::named(NAME).map_or(Type::Any, Type::Schema)
}

/// A map while it is read. Names mostly come in order, or are few.
enum Gathered {
    Few(Map),
    Many(BTreeMap<Key, Value>),
}

/// Beyond so many entries, putting one before others is left to a search tree.
const FEW_MAX: usize = 256;

impl Gathered {
    fn contains_key(&self, key: &Key) -> bool {
        match self {
            Gathered::Few(map) => map.contains_key(key),
            Gathered::Many(map) => map.contains_key(key),
        }
    }

    fn insert(&mut self, key: Key, value: Value) {
        match self {
            Gathered::Few(map) => {
                if map.len() < FEW_MAX || map.keys().next_back().is_none_or(|last| *last < key) {
                    map.insert(key, value);
                    return;
                }
                let mut many: BTreeMap<Key, Value> = std::mem::take(map).into_iter().collect();
                many.insert(key, value);
                *self = Gathered::Many(many);
            }
            Gathered::Many(map) => {
                map.insert(key, value);
            }
        }
    }

    fn finish(self) -> Map {
        match self {
            Gathered::Few(map) => map,
            Gathered::Many(map) => map.into_iter().collect(),
        }
    }
}

/// A key of a structure: its field, or the name of none.
struct KeySeed<'a, 'c>(Schema<'a>, &'c mut usize);

impl<'de, 'a> DeserializeSeed<'de> for KeySeed<'a, '_> {
    type Value = Result<Known<'a>, String>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for KeySeed<'a, '_> {
    type Value = Result<Known<'a>, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.known(name, self.1).ok_or_else(|| name.to_owned()))
    }
}
