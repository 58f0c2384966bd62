//! `application/vnd.kubernetes.protobuf`: bodies told in JSON, and answers in JSON told in it, for the built-in kinds.
//!
//! client-go's controllers and kubelets speak it when they are asked to. What comes in goes the way of any JSON body
//! ([`protobuf_to_json`]); what goes out is made of the JSON that is stored, without trees ([`append_message`]).
//!
//! The encoding is that of proto2 (<https://protobuf.dev/programming-guides/encoding/>) in the envelope of
//! `k8s.io/apimachinery/pkg/runtime.Unknown`: four bytes `k8s\0`, then `{typeMeta = 1, raw = 2, contentType = 4}`. Types
//! and the numbers of their fields are those of the schema; where Go embeds a struct that JSON does not show (`Volume`,
//! `Probe`), a number is a path through both messages. Fields whose number is not known are passed over, as Go does. Go
//! writes plain fields with their zero value; what becomes of these is decided where all objects are brought into
//! canonical form.

mod decode;
mod encode;
mod source;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

pub(crate) use decode::protobuf_head;
pub use decode::protobuf_to_json;
pub(crate) use encode::metadata_alone;
pub use encode::{EncodeError, append_message, json_to_protobuf};

/// What an encoded body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// What seconds are counted from.
const EPOCH: jiff::civil::DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// Why a body is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// It does not begin with `k8s\0`.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// It ends in the middle of a value, or a value has another form than its field.
    #[error("proto: {0}")]
    Malformed(&'static str),
    /// Nothing is known of the kind.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    Kind {
        /// The `apiVersion` of the envelope.
        api_version: String,
        /// The `kind` of the envelope.
        kind: String,
    },
}
