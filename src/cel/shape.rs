//! What an expression sees of values that a schema describes: their types, their names, how large they can become.
//!
//! Rules: KEP 2876 and <https://kubernetes.io/docs/reference/using-api/cel/#type-system-integration>. What has no type (unknown
//! fields that are preserved, lists and maps of them) is not seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::words::is_free;
use crate::tree::Value;

/// Largest request, in bytes: no text, list or map is larger.
pub(super) const REQUEST_LEN_MAX: u64 = 3 * 1024 * 1024;
/// Deepest schema that is looked into; deeper values are not seen.
const DEPTH_MAX: usize = 128;

/// The shape of a value.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) kind: ShapeKind,
    /// Most items, entries, or bytes of text; 0 for what has no size.
    pub(super) elements_max: u64,
    /// Fewest bytes as JSON.
    pub(super) len_min: u64,
    pub(super) nullable: bool,
}

#[derive(Debug)]
pub(super) enum ShapeKind {
    IntOrString,
    /// An attribute of a device: of any type.
    Attribute,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Date,
    DateTime,
    List {
        items: Arc<Shape>,
        sort: ListSort,
    },
    Map {
        values: Arc<Shape>,
    },
    /// Fields by the names that expressions use.
    Object {
        fields: BTreeMap<Box<str>, Field>,
    },
}

/// How items of a list are told apart (`x-kubernetes-list-type`).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListSort {
    Atomic,
    Set,
    /// By these fields.
    Map(Vec<Box<str>>),
}

#[derive(Debug)]
pub(super) struct Field {
    /// The name in objects.
    pub(super) name: Box<str>,
    pub(super) shape: Arc<Shape>,
}

impl Shape {
    fn of(kind: ShapeKind, elements_max: u64, len_min: u64) -> Shape {
        Shape {
            kind,
            elements_max,
            len_min,
            nullable: false,
        }
    }

    /// The shape that a schema (of OpenAPI, as CustomResourceDefinitions have it) gives; `None` for what expressions do not see.
    /// `root` is set for whole objects: those have `apiVersion`, `kind` and some of `metadata` always.
    pub(super) fn of_schema(schema: &Value, root: bool) -> Option<Arc<Shape>> {
        build(schema, root, DEPTH_MAX).map(Arc::new)
    }

    /// The shape of devices that are offered for allocation (`ResourceSlice`), with upstream's limits.
    pub(super) fn of_device() -> Arc<Shape> {
        /// Most attributes, and capacities, of a device.
        const MANY: u64 = 32;
        /// Longest name of a driver, and longest text of an attribute, in bytes.
        const DRIVER_LEN_MAX: u64 = 63;
        const TEXT_LEN_MAX: u64 = 64;
        let twofold = |value: Shape| {
            let map = |values| {
                Shape::of(
                    ShapeKind::Map {
                        values: Arc::new(values),
                    },
                    MANY,
                    2,
                )
            };
            map(map(value))
        };
        let fields = [
            ("driver", Shape::of(ShapeKind::String, DRIVER_LEN_MAX, 2)),
            ("attributes", twofold(Shape::of(ShapeKind::Attribute, TEXT_LEN_MAX, 2))),
            ("capacity", twofold(Shape::of(ShapeKind::Double, 0, 2))),
            ("allowMultipleAllocations", Shape::of(ShapeKind::Bool, 0, 4)),
        ];
        let fields = fields.map(|(name, shape)| {
            let shape = Arc::new(shape);
            (
                name.into(),
                Field {
                    name: name.into(),
                    shape,
                },
            )
        });
        let fields = BTreeMap::from(fields);
        Arc::new(Shape::of(ShapeKind::Object { fields }, 0, 2))
    }

    /// The shape of the attributes of a device, whatever their names.
    pub(super) fn attribute(&self) -> Option<&Arc<Shape>> {
        self.element()
            .filter(|value| matches!(value.kind, ShapeKind::Attribute))
    }

    /// The shape of a field by the name that expressions use.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        match &self.kind {
            ShapeKind::Object { fields } => fields.get(name),
            _ => None,
        }
    }

    /// The shape of the items of a list or the values of a map.
    pub(super) fn element(&self) -> Option<&Arc<Shape>> {
        match &self.kind {
            ShapeKind::List { items, .. } => Some(items),
            ShapeKind::Map { values } => Some(values),
            _ => None,
        }
    }
}

fn number(schema: &Value, name: &str) -> Option<u64> {
    let value = schema.get(name)?;
    value
        .as_i64()
        .map(|number| number.max(0) as u64)
        .or_else(|| value.as_u64())
        .or_else(|| value.as_f64().map(|number| number.max(0.0) as u64))
}

fn flag(schema: &Value, name: &str) -> bool {
    schema[name].as_bool() == Some(true)
}

fn build(schema: &Value, root: bool, depth: usize) -> Option<Shape> {
    let mut shape = unmarked(schema, root, depth.checked_sub(1)?)?;
    shape.nullable = flag(schema, "nullable");
    Some(shape)
}

fn below(schema: &Value, depth: usize) -> Option<Shape> {
    build(schema, flag(schema, "x-kubernetes-embedded-resource"), depth)
}

fn unmarked(schema: &Value, root: bool, depth: usize) -> Option<Shape> {
    let len_max = number(schema, "maxLength");
    if flag(schema, "x-kubernetes-int-or-string") {
        let elements = len_max.map_or(REQUEST_LEN_MAX - 2, |len| len.saturating_mul(4));
        return Some(Shape::of(ShapeKind::IntOrString, elements, 1));
    }
    match schema["type"].as_str()? {
        "array" => {
            let items = below(schema.get("items")?, depth)?;
            let elements = number(schema, "maxItems").unwrap_or((REQUEST_LEN_MAX - 2) / (items.len_min + 1));
            let sort = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListSort::Set,
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    ListSort::Map(
                        keys.into_iter()
                            .flat_map(|keys| keys.iter())
                            .filter_map(|key| key.as_str().map(Into::into))
                            .collect(),
                    )
                }
                _ => ListSort::Atomic,
            };
            let items = Arc::new(items);
            Some(Shape::of(ShapeKind::List { items, sort }, elements, 2))
        }
        "object" => object(schema, root, depth),
        "string" => {
            let (kind, len_min, longest) = match schema["format"].as_str() {
                Some("byte") => (ShapeKind::Bytes, 2, None),
                Some("duration") => (ShapeKind::Duration, 3, Some(32)),
                Some("date") => (ShapeKind::Date, 12, Some(12)),
                Some("date-time") => (ShapeKind::DateTime, 21, Some(32)),
                _ => (ShapeKind::String, 2, None),
            };
            let elements = match (longest, len_max) {
                (Some(longest), _) => longest,
                (None, Some(len)) if matches!(kind, ShapeKind::Bytes) => len,
                // The schema counts code points, sizes are estimated in bytes.
                (None, Some(len)) => len.saturating_mul(4),
                (None, None) => longest_choice(schema).unwrap_or(REQUEST_LEN_MAX - 2),
            };
            Some(Shape::of(kind, elements, len_min))
        }
        "boolean" => Some(Shape::of(ShapeKind::Bool, 0, 4)),
        "number" => Some(Shape::of(ShapeKind::Double, 0, 1)),
        "integer" => Some(Shape::of(ShapeKind::Int, 0, 1)),
        _ => None,
    }
}

/// The length of the longest text in `enum`.
fn longest_choice(schema: &Value) -> Option<u64> {
    let choices = schema["enum"].as_array().filter(|choices| !choices.is_empty())?;
    let lens = choices.iter().filter_map(Value::as_str).map(|text| text.len() as u64);
    Some(lens.max().unwrap_or(0))
}

fn object(schema: &Value, root: bool, depth: usize) -> Option<Shape> {
    if let Some(values) = schema.get("additionalProperties").filter(|it| it.is_object()) {
        let values = below(values, depth)?;
        let elements = number(schema, "maxProperties").unwrap_or((REQUEST_LEN_MAX - 2) / (values.len_min + 6));
        let values = Arc::new(values);
        return Some(Shape::of(ShapeKind::Map { values }, elements, 2));
    }
    let required = |name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|it| it == name))
    };
    let mut fields = BTreeMap::new();
    let mut len_min = 2;
    for (name, property) in schema["properties"].as_object().into_iter().flat_map(|map| map.iter()) {
        let Some(shape) = below(property, depth) else { continue };
        if required(name) && property["default"].is_null() {
            len_min += name.len() as u64 + shape.len_min + 4;
        }
        if let Some(escaped) = escaped(name) {
            let field = Field {
                name: name.as_str().into(),
                shape: Arc::new(shape),
            };
            fields.insert(escaped.into(), field);
        }
    }
    if root && !has_meta(schema) {
        let mut add = |name: &str, shape: Shape| {
            let field = Field {
                name: name.into(),
                shape: Arc::new(shape),
            };
            fields.insert(name.into(), field);
        };
        let text = || Shape::of(ShapeKind::String, REQUEST_LEN_MAX - 2, 2);
        add("apiVersion", text());
        add("kind", text());
        let names = ["name", "generateName"].map(|name| {
            let field = Field {
                name: name.into(),
                shape: Arc::new(text()),
            };
            (name.into(), field)
        });
        let fields = BTreeMap::from(names);
        add("metadata", Shape::of(ShapeKind::Object { fields }, 0, 2));
    }
    Some(Shape::of(ShapeKind::Object { fields }, 0, len_min))
}

/// Whether the schema itself says what whole objects have.
fn has_meta(schema: &Value) -> bool {
    let properties = &schema["properties"];
    let is = |schema: &Value, name: &str, kind: &str| schema[name]["type"] == kind;
    let metadata = &properties["metadata"]["properties"];
    is(properties, "kind", "string")
        && is(properties, "apiVersion", "string")
        && is(properties, "metadata", "object")
        && is(metadata, "name", "string")
        && is(metadata, "generateName", "string")
}

/// How expressions write the name of a field: `a-b` as `a__dash__b`. `None` for names that cannot be written.
pub(super) fn escaped(name: &str) -> Option<String> {
    if !is_free(name) {
        return Some(format!("__{name}__"));
    }
    let first = name.bytes().next()?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
    if first.is_ascii_digit() || !name.bytes().all(known) {
        return None;
    }
    let mut out = name.replace("__", "__underscores__");
    for (sign, word) in [(".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")] {
        out = out.replace(sign, word);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::{REQUEST_LEN_MAX, Shape, escaped};
    use crate::tree::json;

    #[test]
    fn names_are_written_so_that_expressions_can_use_them() {
        let cases = [
            ("namespace", Some("__namespace__")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("_a", Some("_a")),
            ("1a", None),
            ("a b", None),
            ("é", None),
            ("", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(escaped(name).as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn sizes_come_from_the_schema() {
        let shape = Shape::of_schema(
            &json!({"type": "object", "required": ["list"], "properties": {
                "list": {"type": "array", "items": {"type": "boolean"}},
                "few": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}},
                "unknown": {"x-kubernetes-preserve-unknown-fields": true},
                "choice": {"type": "string", "enum": ["a", "long"]},
            }}),
            true,
        )
        .expect("a shape");
        let field = |name: &str| &shape.field(name).expect(name).shape;
        assert_eq!(shape.len_min, 2 + 4 + 2 + 4);
        assert_eq!(field("list").elements_max, (REQUEST_LEN_MAX - 2) / 5);
        assert_eq!(field("few").elements_max, 5);
        assert_eq!(field("few").element().expect("items").elements_max, 40);
        assert_eq!(field("choice").elements_max, 4);
        assert!(shape.field("unknown").is_none());
        assert!(field("metadata").field("name").is_some());
    }
}
