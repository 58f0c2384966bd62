//! An object as a writer prepares it, before its revision is known.

use crate::{FormatError, Reason, sidecar};

/// Compact JSON of an object without the digits of its `resourceVersion`, and its sidecar.
///
/// With revision 42 the stored JSON is `json[..splice]`, `42`, `json[splice..]`. The JSON of built-in kinds begins with
/// `{"metadata":{`: what a list item looks like on the wire, without `kind` and `apiVersion`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The JSON with an empty string where `resourceVersion` goes.
    pub json: Vec<u8>,
    /// Where the digits go: `json[splice - 1]` and `json[splice]` are both `"`.
    pub splice: u32,
    /// The archived [`sidecar::Sidecar`], made for the same JSON and splice.
    pub sidecar: Vec<u8>,
}

impl Prepared {
    /// The JSON before and after the digits; `None` when `splice` lies outside the JSON.
    pub fn halves(&self) -> Option<[&[u8]; 2]> {
        let (before, after) = self.json.split_at_checked(self.splice as usize)?;
        Some([before, after])
    }

    /// Checks that the splice point stands between two quotes, and that the sidecar is valid, names the same splice
    /// point, and spans a brace-enclosed `metadata` in this JSON. Errors count offsets in the JSON, save those of the
    /// archive itself.
    pub fn check(&self) -> Result<(), FormatError> {
        let splice = self.splice as usize;
        let bad = |field, value: usize| {
            FormatError::new(
                splice,
                Reason::Value {
                    field,
                    value: value as u64,
                },
            )
        };
        let quoted = splice > 0 && self.json.get(splice - 1) == Some(&b'"') && self.json.get(splice) == Some(&b'"');
        if !quoted {
            return Err(bad("splice", splice));
        }
        let sidecar = sidecar::access(&self.sidecar)?;
        if sidecar.splice.to_native() != self.splice {
            return Err(bad("splice of the sidecar", sidecar.splice.to_native() as usize));
        }
        let span = sidecar.metadata_span(0);
        match self.json.get(span.clone()) {
            Some([b'{', .., b'}']) if span.contains(&splice) => Ok(()),
            _ => Err(bad("metadata span of the sidecar", span.end)),
        }
    }
}
