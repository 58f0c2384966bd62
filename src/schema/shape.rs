//! Schemas, fields and types as the rest of flatkube sees them.

use super::blob::layout::{FORMATS, LIST_TYPES, SCHEMA_MAP_ATOMIC, flag, kind, shape};
use super::blob::{BUILT_IN, Blob};
use std::fmt;

/// The schema of a kind, or of a part of one. Copy; points into the blob it belongs to.
#[derive(Clone, Copy)]
pub struct Schema<'a> {
    pub(crate) blob: Blob<'a>,
    pub(crate) number: u16,
}

impl fmt::Debug for Schema<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.name())
    }
}

impl PartialEq for Schema<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Schema<'static> {
    /// The schema of a built-in kind: `Schema::of("apps", "v1", "Deployment")`; the legacy group is "".
    ///
    /// ```
    /// use flatkube::schema::Schema;
    /// let deployment = Schema::of("apps", "v1", "Deployment").unwrap();
    /// assert_eq!(deployment.name(), "io.k8s.api.apps.v1.Deployment");
    /// assert!(Schema::of("apps", "v7", "Deployment").is_none());
    /// ```
    pub fn of(group: &str, version: &str, kind: &str) -> Option<Schema<'static>> {
        BUILT_IN
            .schema_of_kind(group, version, kind)
            .map(|number| Schema { blob: BUILT_IN, number })
    }

    /// The built-in schema of that name, such as `io.k8s.api.core.v1.Container`.
    pub fn named(name: &str) -> Option<Schema<'static>> {
        BUILT_IN
            .schema_named(name)
            .map(|number| Schema { blob: BUILT_IN, number })
    }

    /// Any built-in schema; a base to take others by number.
    pub(crate) fn built_in() -> Schema<'static> {
        Schema {
            blob: BUILT_IN,
            number: 0,
        }
    }

    /// All built-in schemas, by name.
    pub fn all() -> impl Iterator<Item = Schema<'static>> {
        (0..BUILT_IN.schema_count()).map(|number| Schema { blob: BUILT_IN, number })
    }
}

impl<'a> Schema<'a> {
    /// Its name in OpenAPI: `io.k8s.api.core.v1.Container`.
    pub fn name(self) -> &'a str {
        self.blob.schema(self.number).name()
    }

    /// The Go name of the type, as error texts have it: `v1.Container`.
    pub fn go_name(self) -> &'a str {
        let name = self.name();
        let type_dot = name.rfind('.').unwrap_or(0);
        let package_dot = name[..type_dot].rfind('.').map_or(0, |dot| dot + 1);
        &name[package_dot..]
    }

    /// The type's name alone: `Container`.
    pub fn short_name(self) -> &'a str {
        let name = self.name();
        name.rsplit('.').next().unwrap_or(name)
    }

    /// What it does with JSON.
    pub fn shape(self) -> Shape {
        match self.blob.schema(self.number).shape() {
            shape::QUANTITY => Shape::Quantity,
            shape::TIME => Shape::Time,
            shape::MICRO_TIME => Shape::MicroTime,
            shape::INT_OR_STRING => Shape::IntOrString,
            shape::RAW => Shape::Raw,
            shape::ANY => Shape::Any,
            shape::SCHEMA_OR_BOOL => Shape::SchemaOrBool,
            shape::SCHEMA_OR_ARRAY => Shape::SchemaOrArray,
            shape::SCHEMA_OR_STRINGS => Shape::SchemaOrStrings,
            _ => Shape::Struct,
        }
    }

    /// The field of that name. O(log n) of its fields.
    pub fn field(self, name: &str) -> Option<Field<'a>> {
        let entry = self.blob.schema(self.number);
        let number = self.blob.field_named(entry.first_field(), entry.field_count(), name)?;
        Some(Field {
            blob: self.blob,
            number,
        })
    }

    /// All fields, by name.
    pub fn fields(self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let entry = self.blob.schema(self.number);
        let blob = self.blob;
        (entry.first_field()..entry.first_field() + u32::from(entry.field_count()))
            .map(move |number| Field { blob, number })
    }

    /// The type, for a schema that is not an object with fields.
    pub fn ty(self) -> Type<'a> {
        Type::numbered(self.blob, self.blob.schema(self.number).ty())
    }

    /// `x-kubernetes-map-type: atomic`: the whole is one value for server-side apply.
    pub fn map_atomic(self) -> bool {
        self.blob.schema(self.number).flags() & SCHEMA_MAP_ATOMIC != 0
    }

    /// Group, version and kind of each kind that has this schema.
    pub fn kinds(self) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> + use<'a> {
        self.blob
            .kinds_of(self.number)
            .map(|kind| (kind.group, kind.version, kind.kind))
    }

    /// Its description; inflates a chunk of the blob.
    pub fn description(self) -> String {
        super::describe::Descriptions::new(self.blob)
            .take(self.blob.schema(self.number).description())
            .to_owned()
    }
}

/// What the Go type behind a schema does with JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// An object with fields.
    Struct,
    /// A resource quantity: string or number.
    Quantity,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with microseconds.
    MicroTime,
    /// An int32 or a string.
    IntOrString,
    /// Any object, kept as it is.
    Raw,
    /// Any JSON value.
    Any,
    /// A JSON schema of a CustomResourceDefinition, or a boolean.
    SchemaOrBool,
    /// A JSON schema, or an array of them.
    SchemaOrArray,
    /// A JSON schema, or an array of strings.
    SchemaOrStrings,
}

/// One field of a schema. Copy; points into the blob.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    pub(crate) blob: Blob<'a>,
    pub(crate) number: u32,
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field({}: {})", self.name(), self.go_type())
    }
}

/// How server-side apply takes a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListType {
    /// One value.
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects told apart by their map keys.
    Map,
}

impl<'a> Field<'a> {
    /// Its name on the wire.
    pub fn name(self) -> &'a str {
        self.blob.field(self.number).name()
    }

    /// Its type.
    pub fn ty(self) -> Type<'a> {
        Type::numbered(self.blob, self.blob.field(self.number).ty())
    }

    /// Whether OpenAPI calls it required.
    pub fn required(self) -> bool {
        self.has(flag::REQUIRED)
    }

    /// Default in OpenAPI, as JSON text: `{}`, `""`, `0`.
    pub fn default_json(self) -> Option<&'a str> {
        Some(self.blob.field(self.number).default_json()).filter(|text| !text.is_empty())
    }

    /// Allowed values (of the elements, for a list); none: anything.
    pub fn enum_values(self) -> impl Iterator<Item = &'a str> {
        let values = self.blob.field(self.number).enum_values();
        values.split(',').filter(move |_| !values.is_empty())
    }

    /// `x-kubernetes-list-type`.
    pub fn list_type(self) -> Option<ListType> {
        match LIST_TYPES[self.blob.field(self.number).list() as usize] {
            "atomic" => Some(ListType::Atomic),
            "set" => Some(ListType::Set),
            "map" => Some(ListType::Map),
            _ => None,
        }
    }

    /// `x-kubernetes-list-map-keys`.
    pub fn map_keys(self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.blob
            .field(self.number)
            .map_keys()
            .split(',')
            .filter(|key| !key.is_empty())
    }

    /// `x-kubernetes-map-type: atomic` on the field.
    pub fn map_atomic(self) -> bool {
        self.has(flag::MAP_ATOMIC)
    }

    /// `x-kubernetes-map-type: granular` on the field.
    pub fn map_granular(self) -> bool {
        self.has(flag::MAP_GRANULAR)
    }

    /// Strategic merge: the list is merged, not replaced.
    pub fn patch_merge(self) -> bool {
        self.has(flag::PATCH_MERGE)
    }

    /// Strategic merge: replaced even where it could be merged.
    pub fn patch_replace(self) -> bool {
        self.has(flag::PATCH_REPLACE)
    }

    /// Strategic merge: a patch names the keys to keep in `$retainKeys`.
    pub fn patch_retain_keys(self) -> bool {
        self.has(flag::PATCH_RETAIN_KEYS)
    }

    /// Strategic merge: the key that tells elements apart.
    pub fn merge_key(self) -> Option<&'a str> {
        Some(self.blob.field(self.number).merge_key()).filter(|key| !key.is_empty())
    }

    /// Name of the Go type where it is not the one that the type on the wire has; empty otherwise.
    pub(crate) fn go_mark(self) -> &'a str {
        self.blob.field(self.number).go_type()
    }

    /// Path of protobuf field numbers, from the lowest byte up; 0: not known.
    pub(crate) fn protobuf(self) -> u32 {
        self.blob.field(self.number).protobuf()
    }

    /// The Go type, as error texts have it: `[]v1.Container`, `int32`, `v1.RestartPolicy`.
    pub fn go_type(self) -> String {
        match self.go_mark() {
            "" => self.ty().go_name(),
            known => known.to_owned(),
        }
    }

    /// Its description; inflates a chunk of the blob.
    pub fn description(self) -> String {
        super::describe::Descriptions::new(self.blob)
            .take(self.blob.field(self.number).description())
            .to_owned()
    }

    fn has(self, flag: u8) -> bool {
        self.blob.field(self.number).flags() & flag != 0
    }
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    /// Any JSON value.
    Any,
    /// true or false.
    Boolean,
    /// An integer; the format is `int32`, `int64` or empty.
    Integer(&'static str),
    /// A number; the format is `double` or empty.
    Number(&'static str),
    /// A string; the format may be `byte` (base64) or `date-time`.
    String(&'static str),
    /// Any object.
    Object,
    /// A list.
    List(Element<'a>),
    /// A map from strings.
    Map(Element<'a>),
    /// What a schema describes.
    Schema(Schema<'a>),
}

/// What a list or a map holds.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    blob: Blob<'a>,
    ty: u16,
}

impl fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ty().fmt(f)
    }
}

impl<'a> Element<'a> {
    /// Its type.
    pub fn ty(self) -> Type<'a> {
        Type::numbered(self.blob, self.ty)
    }
}

impl<'a> Type<'a> {
    pub(crate) fn numbered(blob: Blob<'a>, number: u16) -> Type<'a> {
        let (kind, format, argument) = blob.ty(number);
        let format = FORMATS[format as usize];
        match kind {
            kind::BOOLEAN => Type::Boolean,
            kind::INTEGER => Type::Integer(format),
            kind::NUMBER => Type::Number(format),
            kind::STRING => Type::String(format),
            kind::OBJECT => Type::Object,
            kind::LIST => Type::List(Element { blob, ty: argument }),
            kind::MAP => Type::Map(Element { blob, ty: argument }),
            kind::SCHEMA => Type::Schema(Schema { blob, number: argument }),
            _ => Type::Any,
        }
    }

    /// The Go type, as error texts have it.
    pub fn go_name(self) -> String {
        match self {
            Type::Any => "interface {}".to_owned(),
            Type::Boolean => "bool".to_owned(),
            Type::Integer("int32") => "int32".to_owned(),
            Type::Integer(_) => "int64".to_owned(),
            Type::Number(_) => "float64".to_owned(),
            Type::String("byte") => "[]uint8".to_owned(),
            Type::String(_) => "string".to_owned(),
            Type::Object => "map[string]interface {}".to_owned(),
            Type::List(element) => format!("[]{}", element.ty().go_name()),
            Type::Map(element) => format!("map[string]{}", element.ty().go_name()),
            Type::Schema(schema) => schema.go_name().to_owned(),
        }
    }
}
