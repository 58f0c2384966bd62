//! Layout of a schema blob: one block of bytes that holds every schema, read in place.
//!
//! Shared by `build.rs`, which writes the blob of the built-in kinds, and by the library, which reads it (and later
//! writes one per custom resource). All numbers are little endian; a text reference (`u32`) is an offset into the text
//! region, where a `u16` length precedes the bytes; 0 is the empty text. A description reference is three `u16`: chunk,
//! offset in the inflated chunk, length.
//!
//!
//! The protobuf number of a field is a path: the lowest byte is the field's number in the message, or, where JSON has a
//! message inline, that message's; the next bytes go on within. 0: not known.
//!
//! ```text
//! header   magic u32, version u32, counts: schemas, fields, types, kinds, paths, chunks u32 each,
//!          offsets: schemas, fields, types, kinds, paths, chunks, text u32 each, length u32
//! schema   24 B: name text, first field u32, fields u16, shape u8, flags u8, description 3*u16, type u16,
//!          union text                                               sorted by name
//! field    40 B: name text, type u16, list u8, flags u8, default text, enum text, keys text, merge key text,
//!          Go type text, description 3*u16, padding u16, protobuf u32
//!                                                                   sorted by name within a schema
//! type     4 B: kind u8, format u8, argument u16 (type of the element, or schema)
//! kind     16 B: group text, version text, kind text, schema u16, padding u16   sorted by kind, group, version
//! path     24 B: path text, actions u16, methods u8, padding u8, group text, version text, kind text, padding u32
//! chunk    12 B: offset u32 (in the blob), deflated length u32, inflated length u32
//! ```

pub(crate) const MAGIC: u32 = 0x4d48_5346; // "FSHM"
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_LEN: usize = 4 * 16;
pub(crate) const SCHEMA_LEN: usize = 24;
pub(crate) const FIELD_LEN: usize = 40;
pub(crate) const TYPE_LEN: usize = 4;
pub(crate) const KIND_LEN: usize = 16;
pub(crate) const PATH_LEN: usize = 24;
pub(crate) const CHUNK_LEN: usize = 12;

/// Descriptions are gathered into chunks of about this size before they are deflated.
pub(crate) const CHUNK_BYTES: usize = 32 * 1024;

/// What a value is on the wire.
pub(crate) mod kind {
    pub(crate) const ANY: u8 = 0;
    pub(crate) const BOOLEAN: u8 = 1;
    pub(crate) const INTEGER: u8 = 2;
    pub(crate) const NUMBER: u8 = 3;
    pub(crate) const STRING: u8 = 4;
    pub(crate) const OBJECT: u8 = 5;
    pub(crate) const LIST: u8 = 6;
    pub(crate) const MAP: u8 = 7;
    pub(crate) const SCHEMA: u8 = 8;
}

/// Formats, by index, as OpenAPI spells them.
pub(crate) const FORMATS: [&str; 7] = ["", "byte", "date-time", "double", "int32", "int64", "int-or-string"];

/// What the Go type behind a schema does with JSON, where that is not "an object with fields".
pub(crate) mod shape {
    pub(crate) const STRUCT: u8 = 0;
    pub(crate) const QUANTITY: u8 = 1;
    pub(crate) const TIME: u8 = 2;
    pub(crate) const MICRO_TIME: u8 = 3;
    pub(crate) const INT_OR_STRING: u8 = 4;
    pub(crate) const RAW: u8 = 5;
    pub(crate) const ANY: u8 = 6;
    pub(crate) const SCHEMA_OR_BOOL: u8 = 7;
    pub(crate) const SCHEMA_OR_ARRAY: u8 = 8;
    pub(crate) const SCHEMA_OR_STRINGS: u8 = 9;
}

/// Schemas with a shape of their own, by name.
pub(crate) const SHAPES: [(&str, u8); 11] = [
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", shape::QUANTITY),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", shape::TIME),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", shape::MICRO_TIME),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", shape::INT_OR_STRING),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", shape::RAW),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", shape::RAW),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", shape::RAW),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        shape::ANY,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        shape::SCHEMA_OR_BOOL,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        shape::SCHEMA_OR_ARRAY,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        shape::SCHEMA_OR_STRINGS,
    ),
];

/// Flags of a schema.
pub(crate) const SCHEMA_MAP_ATOMIC: u8 = 1;

/// Flags of a field.
pub(crate) mod flag {
    pub(crate) const REQUIRED: u8 = 1;
    pub(crate) const PATCH_MERGE: u8 = 2;
    pub(crate) const PATCH_REPLACE: u8 = 4;
    pub(crate) const PATCH_RETAIN_KEYS: u8 = 8;
    pub(crate) const MAP_ATOMIC: u8 = 16;
    pub(crate) const MAP_GRANULAR: u8 = 32;
}

/// List types, by index, as OpenAPI spells them.
pub(crate) const LIST_TYPES: [&str; 4] = ["", "atomic", "set", "map"];

/// Actions on a path, by bit.
pub(crate) const ACTIONS: [&str; 9] = [
    "list",
    "get",
    "post",
    "put",
    "patch",
    "delete",
    "deletecollection",
    "connect",
    "watch",
];

/// HTTP methods of `connect`, by bit.
pub(crate) const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
