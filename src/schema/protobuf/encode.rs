//! Messages written: JSON becomes what it encodes, from left to right and without a tree.
//!
//! The length of a message stands before it, and is known behind it: one byte is left open, and where more are needed
//! what was written is moved. Fields come in the order of the JSON, which readers of protobuf take as any other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use jiff::civil::DateTime;

use super::EPOCH;
use super::source::{Quoted, Source};
use super::wire::{begin, close_envelope, double, end, integer, open_envelope, text};
use crate::schema::plan::Plan;
use crate::schema::shape::{Schema, Shape, Type};
use crate::schema::walk::json_schema_props;

/// Deepest nesting of messages that is followed: more than JSON that is stored can have.
const DEPTH_MAX: usize = 256;

/// Why JSON has no encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// It is no JSON, or not of the kind that it says it is.
    #[error("not to be told in protobuf: {0}")]
    Json(&'static str),
    /// Nothing is known of the kind.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    Kind {
        /// The `apiVersion` of the object.
        api_version: String,
        /// The `kind` of the object.
        kind: String,
    },
}

/// An object in JSON, with its `apiVersion` and `kind`, as a body: envelope and message. Linear in its length, but for what
/// is moved (see above).
///
/// # Errors
/// For kinds that are not built in, and for what is no object of its kind.
pub fn json_to_protobuf(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let (api_version, kind) = head(json)?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let schema = if kind == "PartialObjectMetadata" {
        metadata_alone()
    } else {
        Schema::of(group, version, &kind)
    };
    let Some(schema) = schema else {
        return Err(EncodeError::Kind { api_version, kind });
    };
    let mut out = Vec::with_capacity(json.len());
    let object = open_envelope(&api_version, &kind, &mut out);
    append_message(json, schema, &mut out)?;
    close_envelope(object, &mut out);
    Ok(out)
}

/// A schema whose messages have their metadata where `PartialObjectMetadata` has it: in field 1, as all kinds do.
pub(crate) fn metadata_alone() -> Option<Schema<'static>> {
    Schema::of("", "v1", "ConfigMap")
}

/// Appends the message of an object in JSON. `kind` and `apiVersion` stand in its envelope, not in it.
///
/// # Errors
/// When it is no object of that schema.
pub fn append_message(json: &[u8], schema: Schema<'static>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut encoder = Encoder {
        source: Source::new(json)?,
        out,
    };
    encoder.message(schema, 0)
}

/// `apiVersion` and `kind` of an object in JSON.
fn head(json: &[u8]) -> Result<(String, String), EncodeError> {
    let mut source = Source::new(json)?;
    let (mut api_version, mut kind) = (None, None);
    source.expect(b'{')?;
    while (api_version.is_none() || kind.is_none()) && source.peek() == Some(b'"') {
        let name = source.quoted()?;
        source.expect(b':')?;
        match name.plain() {
            Some("apiVersion") => api_version = source.quoted()?.plain(),
            Some("kind") => kind = source.quoted()?.plain(),
            _ => {
                source.skip()?;
            }
        }
        source.takes(b',');
    }
    match (api_version, kind) {
        (Some(api_version), Some(kind)) => Ok((api_version.to_owned(), kind.to_owned())),
        _ => Err(EncodeError::Json("it says no kind")),
    }
}

/// The messages between a schema and a field of it that JSON does not show, which are open: neighbours share them.
#[derive(Default)]
struct Inlined {
    numbers: [u8; 3],
    starts: [usize; 3],
    len: usize,
}

impl Inlined {
    /// Opens those on the way to a field and closes others. Returns the field's number in the last of them.
    fn lead_to(&mut self, path: u32, out: &mut Vec<u8>) -> u8 {
        let path = path.to_le_bytes();
        let count = path.iter().position(|number| *number == 0).unwrap_or(path.len());
        let (own, way) = path[..count].split_last().unwrap_or((&0, &[]));
        let common = way
            .iter()
            .zip(&self.numbers[..self.len])
            .take_while(|(wanted, open)| wanted == open)
            .count();
        self.close_to(common, out);
        for number in &way[common..] {
            self.numbers[self.len] = *number;
            self.starts[self.len] = begin(*number, out);
            self.len += 1;
        }
        *own
    }

    fn close_to(&mut self, len: usize, out: &mut Vec<u8>) {
        while self.len > len {
            self.len -= 1;
            end(self.starts[self.len], out);
        }
    }
}

struct Encoder<'a, 'o> {
    source: Source<'a>,
    out: &'o mut Vec<u8>,
}

impl Encoder<'_, '_> {
    /// The fields of the object that comes next.
    fn message(&mut self, schema: Schema<'static>, depth: usize) -> Result<(), EncodeError> {
        if depth > DEPTH_MAX {
            return Err(EncodeError::Json("nested too deep"));
        }
        let plan = Plan::of(schema);
        let mut cursor = 0;
        let mut inlined = Inlined::default();
        self.source.expect(b'{')?;
        while !self.source.takes(b'}') {
            let name = self.source.quoted()?;
            self.source.expect(b':')?;
            let found = name.plain().and_then(|name| plan.find(name, &mut cursor));
            match found.map(|number| plan.field(number)) {
                Some(field) if field.field.protobuf() != 0 => {
                    if !self.source.takes_null() {
                        let number = inlined.lead_to(field.field.protobuf(), self.out);
                        self.field(number, field.ty, depth)?;
                    }
                }
                _ => {
                    self.source.skip()?;
                }
            }
            self.between(b'}')?;
        }
        inlined.close_to(0, self.out);
        Ok(())
    }

    /// Passes the comma before a further entry; `close`, which may stand there, stays.
    fn between(&mut self, close: u8) -> Result<(), EncodeError> {
        if self.source.takes(b',') || self.source.peek() == Some(close) {
            Ok(())
        } else {
            Err(EncodeError::Json("entries without a comma between them"))
        }
    }

    /// The value that comes next, as a field.
    fn field(&mut self, number: u8, ty: Type<'static>, depth: usize) -> Result<(), EncodeError> {
        match ty {
            Type::Boolean => integer(number, i64::from(self.source.word() == "true"), self.out),
            Type::Integer(_) => {
                let value = self.integer()?;
                integer(number, value, self.out);
            }
            Type::Number(_) => {
                let value: f64 = self.source.word().parse().map_err(|_| EncodeError::Json("no number"))?;
                double(number, value, self.out);
            }
            Type::String("byte") => {
                let text = self.source.quoted()?;
                let base64 = text.plain().ok_or(EncodeError::Json("no base64"))?;
                let start = begin(number, self.out);
                let decoded = STANDARD.decode_vec(base64, self.out);
                decoded.map_err(|_| EncodeError::Json("no base64"))?;
                end(start, self.out);
            }
            Type::String(_) => self.text(number)?,
            Type::List(element) => {
                self.source.expect(b'[')?;
                while !self.source.takes(b']') {
                    if self.source.takes_null() {
                        // Go's zero value: an empty text or message.
                        end(begin(number, self.out), self.out);
                    } else {
                        self.field(number, element.ty(), depth)?;
                    }
                    self.between(b']')?;
                }
            }
            Type::Map(element) => self.map(number, element.ty(), depth)?,
            Type::Schema(schema) => self.of_schema(number, schema, depth)?,
            Type::Object | Type::Any => self.raw(number)?,
        }
        Ok(())
    }

    /// A map is a list of entries. It cannot hold lists in protobuf: they are wrapped in a message of one field.
    fn map(&mut self, number: u8, ty: Type<'static>, depth: usize) -> Result<(), EncodeError> {
        self.source.expect(b'{')?;
        while !self.source.takes(b'}') {
            let entry = begin(number, self.out);
            self.text(1)?;
            self.source.expect(b':')?;
            if self.source.takes_null() {
                end(begin(2, self.out), self.out);
            } else if let Type::List(_) = ty {
                let list = begin(2, self.out);
                self.field(1, ty, depth)?;
                end(list, self.out);
            } else {
                self.field(2, ty, depth)?;
            }
            end(entry, self.out);
            self.between(b'}')?;
        }
        Ok(())
    }

    fn of_schema(&mut self, number: u8, schema: Schema<'static>, depth: usize) -> Result<(), EncodeError> {
        match schema.shape() {
            Shape::Raw | Shape::Any => return self.raw(number),
            Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
                return self.json_schema_or(number, schema.shape(), depth);
            }
            _ => {}
        }
        let start = begin(number, self.out);
        match schema.shape() {
            Shape::Struct => self.message(schema, depth + 1)?,
            Shape::Quantity => self.text(1)?,
            Shape::IntOrString if self.source.peek() == Some(b'"') => {
                integer(1, 1, self.out);
                self.text(3)?;
            }
            Shape::IntOrString => {
                let value = self.integer()?;
                integer(1, 0, self.out);
                integer(2, value, self.out);
            }
            _ => self.time()?,
        }
        end(start, self.out);
        Ok(())
    }

    /// `{allows = 1, schema = 2}`, `{schema = 1, jSONSchemas = 2}` or `{schema = 1, property = 2}`.
    fn json_schema_or(&mut self, number: u8, shape: Shape, depth: usize) -> Result<(), EncodeError> {
        let ty = json_schema_props();
        let start = begin(number, self.out);
        match (shape, self.source.peek()) {
            (Shape::SchemaOrBool, Some(b'{')) => {
                integer(1, 1, self.out);
                self.field(2, ty, depth + 1)?;
            }
            (Shape::SchemaOrBool, _) => self.field(1, Type::Boolean, depth)?,
            (_, Some(b'{')) => self.field(1, ty, depth + 1)?,
            (Shape::SchemaOrArray, _) => self.schemas(ty, depth + 1)?,
            _ => self.schemas(Type::String(""), depth + 1)?,
        }
        end(start, self.out);
        Ok(())
    }

    /// A list in field 2.
    fn schemas(&mut self, ty: Type<'static>, depth: usize) -> Result<(), EncodeError> {
        self.source.expect(b'[')?;
        while !self.source.takes(b']') {
            self.field(2, ty, depth)?;
            self.between(b']')?;
        }
        Ok(())
    }

    fn integer(&mut self) -> Result<i64, EncodeError> {
        let word = self.source.word();
        let whole = word.parse().ok();
        // As Go writes large ones.
        let other = || {
            word.parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())
                .map(|number| number as i64)
        };
        whole.or_else(other).ok_or(EncodeError::Json("no integer"))
    }

    fn text(&mut self, number: u8) -> Result<(), EncodeError> {
        match self.source.quoted_or_word()? {
            Quoted::Plain(plain) => text(number, plain, self.out),
            escaped @ Quoted::Escaped(_) => {
                let start = begin(number, self.out);
                escaped.append_to(self.out)?;
                end(start, self.out);
            }
        }
        Ok(())
    }

    /// `{seconds = 1, nanos = 2}`.
    fn time(&mut self) -> Result<(), EncodeError> {
        let written = self.source.quoted()?.plain();
        // What is stored is UTC.
        let time: Option<DateTime> = written.and_then(|written| written.strip_suffix('Z')?.parse().ok());
        let since = time.ok_or(EncodeError::Json("no time"))?.duration_since(EPOCH);
        // Both are of the same sign in jiff; nanoseconds count upwards in protobuf.
        let (seconds, nanoseconds) = (since.as_secs(), i64::from(since.subsec_nanos()));
        let borrow = i64::from(nanoseconds < 0);
        integer(1, seconds - borrow, self.out);
        integer(2, nanoseconds + borrow * 1_000_000_000, self.out);
        Ok(())
    }

    /// `{raw = 1}`: bytes of JSON inside protobuf (`RawExtension`, `FieldsV1`).
    fn raw(&mut self, number: u8) -> Result<(), EncodeError> {
        let json = self.source.skip()?;
        let start = begin(number, self.out);
        text(1, json, self.out);
        end(start, self.out);
        Ok(())
    }
}
