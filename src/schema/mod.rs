//! Shapes of the built-in kinds, made by `build.rs`: fields, types, list and merge keys, defaults and descriptions in one
//! block of bytes ([`Schema`], [`Field`], [`Type`]); decoding and checking by them; the OpenAPI documents they make.

mod blob;
mod decode;
mod describe;
mod field_error;
mod fit;
mod json_syntax;
pub mod openapi;
mod plan;
mod protobuf;
mod scalar;
mod shape;
mod stored;
pub mod structural;
mod walk;
mod yaml;

pub(crate) use decode::custom::coerce;
pub use decode::custom::{decode_custom, refuse_findings};
pub use decode::{Decoded, Expected, FieldValidation, Misfit, Rejected, Syntax, check, decode, decode_as};
pub(crate) use decode::{decode_object, decode_value, go_word, metadata_of};
pub use field_error::{FieldError, FieldReason};
pub(crate) use fit::fits;
pub(crate) use json_syntax::fault as json_fault;
pub(crate) use plan::{Plan, PlanField};
pub use protobuf::{EncodeError, ProtobufError, append_message, json_to_protobuf, protobuf_to_json};
pub(crate) use protobuf::{metadata_alone, wire};
pub use shape::{Element, Field, ListType, Schema, Shape, Type};
pub use stored::read_stored;
pub use yaml::{yaml_fault, yaml_options};
