//! Messages read: what is encoded becomes a tree.

use crate::tree::{List, Map, Text, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use jiff::SignedDuration;

use super::{EPOCH, MAGIC, ProtobufError};
use crate::schema::shape::{Schema, Shape, Type};
use crate::schema::walk::json_schema_props;
use ProtobufError::Malformed;

/// Deepest nesting of messages that is followed.
const DEPTH_MAX: usize = 64;

/// The JSON of an encoded object, `apiVersion` and `kind` included. Linear in the length of `body`.
pub fn protobuf_to_json(body: &[u8]) -> Result<Value, ProtobufError> {
    let Envelope { api_version, kind, raw } = envelope(body)?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let schema = Schema::of(group, version, &kind)
        // The options of a delete are sent under the version of what is deleted.
        .or_else(|| Schema::named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
        .ok_or_else(|| ProtobufError::Kind {
            api_version: api_version.clone(),
            kind: kind.clone(),
        })?;
    let mut object = Map::new();
    object.insert("apiVersion", Value::from(api_version));
    object.insert("kind", Value::from(kind));
    message(raw, schema, Place::TOP, &mut object, 0)?;
    Ok(Value::Object(object))
}

/// `apiVersion` and `kind` of an encoded object.
pub(crate) fn protobuf_head(body: &[u8]) -> Result<(String, String), ProtobufError> {
    envelope(body).map(|envelope| (envelope.api_version, envelope.kind))
}

struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let message = body.strip_prefix(MAGIC).ok_or(ProtobufError::Prefix)?;
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
    };
    each_field(message, |number, wire| {
        match number {
            1 => each_field(wire.bytes()?, |number, wire| {
                match number {
                    1 => wire.text()?.clone_into(&mut envelope.api_version),
                    2 => wire.text()?.clone_into(&mut envelope.kind),
                    _ => {}
                }
                Ok(())
            })?,
            2 => envelope.raw = wire.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(envelope)
}

/// Where in the messages of a schema a field stands: the numbers of the fields that lead there, the first in the lowest
/// byte.
#[derive(Clone, Copy)]
struct Place {
    path: u32,
    bits: u32,
}

impl Place {
    const TOP: Place = Place { path: 0, bits: 0 };

    /// The place of field `number` of the message at this one. None: no schema has such a number.
    fn at(self, number: u32) -> Option<Place> {
        let number = u32::from(u8::try_from(number).ok()?);
        Some(Place {
            path: self.path | number.checked_shl(self.bits)?,
            bits: self.bits + 8,
        })
    }

    /// Whether a field with the path `other` lies in the message at this place.
    fn holds(self, other: u32) -> bool {
        self.bits < u32::BITS && other >> self.bits != 0 && other & ((1 << self.bits) - 1) == self.path
    }
}

/// One value as it is encoded.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed("wrong wireType")),
        }
    }

    fn text(self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("invalid UTF-8"))
    }

    fn varint(self) -> Result<u64, ProtobufError> {
        match self {
            Wire::Varint(value) => Ok(value),
            _ => Err(Malformed("wrong wireType")),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed("unexpected EOF"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("integer overflow"))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], ProtobufError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(Malformed("unexpected EOF"))?;
    *bytes = rest;
    Ok(taken)
}

/// Tells each field of a message to `visit`.
fn each_field<'a>(
    mut bytes: &'a [u8],
    mut visit: impl FnMut(u32, Wire<'a>) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed("illegal tag"))?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            1 => {
                let fixed = take(&mut bytes, 8)?
                    .try_into()
                    .map_err(|_| Malformed("unexpected EOF"))?;
                Wire::Fixed64(u64::from_le_bytes(fixed))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Malformed("invalid length"))?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                let fixed = take(&mut bytes, 4)?
                    .try_into()
                    .map_err(|_| Malformed("unexpected EOF"))?;
                Wire::Fixed32(u32::from_le_bytes(fixed))
            }
            _ => return Err(Malformed("illegal wireType")),
        };
        visit(number, wire)?;
    }
    Ok(())
}

/// The fields of a message, put into `object`.
fn message(
    bytes: &[u8],
    schema: Schema<'_>,
    place: Place,
    object: &mut Map,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEPTH_MAX {
        return Err(Malformed("exceeded max depth"));
    }
    each_field(bytes, |number, wire| {
        let Some(place) = place.at(number) else { return Ok(()) };
        if let Some(field) = schema.fields().find(|field| field.protobuf() == place.path) {
            let slot = object.entry(Text::from(field.name())).or_insert(Value::Null);
            add(slot, wire, field.ty(), depth)?;
        } else if schema.fields().any(|field| place.holds(field.protobuf())) {
            message(wire.bytes()?, schema, place, object, depth + 1)?;
        }
        Ok(())
    })
}

/// Adds one encoded value to what is there of the field: lists and maps come an element at a time.
fn add(slot: &mut Value, wire: Wire<'_>, ty: Type<'_>, depth: usize) -> Result<(), ProtobufError> {
    match ty {
        Type::List(element) => {
            if slot.is_null() {
                *slot = Value::Array(List::new());
            }
            if let (Value::Array(list), Type::Integer(_), Wire::Bytes(mut packed)) = (&mut *slot, element.ty(), wire) {
                while !packed.is_empty() {
                    list.push(Value::from(varint(&mut packed)? as i64));
                }
            } else if let Value::Array(list) = slot {
                list.push(single(wire, element.ty(), depth)?);
            }
        }
        Type::Map(element) => {
            if slot.is_null() {
                *slot = Value::Object(Map::new());
            }
            let (mut key, mut value) = (String::new(), None);
            each_field(wire.bytes()?, |number, wire| {
                match number {
                    1 => wire.text()?.clone_into(&mut key),
                    2 => value = Some(element_of_map(wire, element.ty(), depth)?),
                    _ => {}
                }
                Ok(())
            })?;
            if let Value::Object(map) = slot {
                map.insert(key, value.unwrap_or_else(|| Value::from(String::new())));
            }
        }
        _ => *slot = single(wire, ty, depth)?,
    }
    Ok(())
}

/// A map cannot hold lists in protobuf: they are wrapped in a message of one field (`ExtraValue`).
fn element_of_map(wire: Wire<'_>, ty: Type<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let Type::List(element) = ty else {
        return single(wire, ty, depth);
    };
    let mut list = Vec::new();
    each_field(wire.bytes()?, |_, wire| {
        list.push(single(wire, element.ty(), depth)?);
        Ok(())
    })?;
    Ok(Value::from(list))
}

fn single(wire: Wire<'_>, ty: Type<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match ty {
        Type::Boolean => Value::Bool(wire.varint()? != 0),
        Type::Integer("int32") => Value::from(wire.varint()? as i32),
        Type::Integer(_) => Value::from(wire.varint()? as i64),
        Type::Number(_) => match wire {
            Wire::Fixed64(bits) => Value::from(f64::from_bits(bits)),
            Wire::Fixed32(bits) => Value::from(f64::from(f32::from_bits(bits))),
            _ => return Err(Malformed("wrong wireType")),
        },
        Type::String("byte") => Value::from(STANDARD.encode(wire.bytes()?)),
        Type::String(_) => Value::from(wire.text()?.to_owned()),
        Type::Schema(schema) => of_schema(wire.bytes()?, schema, depth)?,
        Type::Object | Type::Any => raw_json(wire.bytes()?)?,
        Type::List(_) | Type::Map(_) => return Err(Malformed("a list in a list")),
    })
}

fn of_schema(bytes: &[u8], schema: Schema<'_>, depth: usize) -> Result<Value, ProtobufError> {
    match schema.shape() {
        Shape::Quantity => first_text(bytes, 1),
        Shape::Time => time(bytes, 0),
        Shape::MicroTime => time(bytes, 6),
        Shape::IntOrString => {
            let (mut is_text, mut number, mut text) = (false, 0, "");
            each_field(bytes, |field, wire| {
                match field {
                    1 => is_text = wire.varint()? != 0,
                    2 => number = wire.varint()? as i32,
                    3 => text = wire.text()?,
                    _ => {}
                }
                Ok(())
            })?;
            Ok(if is_text {
                Value::from(text)
            } else {
                Value::from(number)
            })
        }
        Shape::Struct => {
            let mut object = Map::new();
            message(bytes, schema, Place::TOP, &mut object, depth + 1)?;
            Ok(Value::Object(object))
        }
        Shape::Raw | Shape::Any => raw_json(bytes),
        Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrStrings => {
            json_schema_or(bytes, schema.shape(), depth)
        }
    }
}

/// A JSON schema, or what may stand in its place: `{allows = 1, schema = 2}`, `{schema = 1, jSONSchemas = 2}` or
/// `{schema = 1, property = 2}`.
fn json_schema_or(bytes: &[u8], shape: Shape, depth: usize) -> Result<Value, ProtobufError> {
    let Type::Schema(schema) = json_schema_props() else {
        return Err(Malformed("no schema of JSON schemas is known"));
    };
    let mut value = match shape {
        Shape::SchemaOrBool => Value::Bool(false),
        _ => Value::Array(List::new()),
    };
    each_field(bytes, |number, wire| {
        match (shape, number, &mut value) {
            (Shape::SchemaOrBool, 1, Value::Bool(allows)) => *allows = wire.varint()? != 0,
            (Shape::SchemaOrBool, 2, _) | (_, 1, _) => value = of_schema(wire.bytes()?, schema, depth + 1)?,
            (Shape::SchemaOrArray, 2, Value::Array(list)) => list.push(of_schema(wire.bytes()?, schema, depth + 1)?),
            (Shape::SchemaOrStrings, 2, Value::Array(list)) => list.push(Value::from(wire.text()?)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(value)
}

/// The text of one field; empty when it is not there.
fn first_text(bytes: &[u8], wanted: u32) -> Result<Value, ProtobufError> {
    let mut text = "";
    each_field(bytes, |number, wire| {
        if number == wanted {
            text = wire.text()?;
        }
        Ok(())
    })?;
    Ok(Value::from(text))
}

/// `{seconds = 1, nanos = 2}` in RFC 3339 with `digits` of a second's fraction. Nothing at all is no time.
fn time(bytes: &[u8], digits: u8) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    each_field(bytes, |number, wire| {
        match number {
            1 => seconds = wire.varint()? as i64,
            2 => nanoseconds = wire.varint()? as i32,
            _ => {}
        }
        Ok(())
    })?;
    let since = SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(nanoseconds.into()));
    let time = since.and_then(|since| EPOCH.checked_add(since).ok());
    let time = time.ok_or(Malformed("time out of range"))?;
    let text = if digits == 0 {
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    };
    Ok(Value::from(text))
}

/// `{raw = 1}`: bytes of JSON inside protobuf (`RawExtension`, `FieldsV1`).
fn raw_json(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw = &[][..];
    each_field(bytes, |number, wire| {
        if number == 1 {
            raw = wire.bytes()?;
        }
        Ok(())
    })?;
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|_| Malformed("raw JSON is not JSON"))
}

#[cfg(test)]
mod tests {
    use crate::tree::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
        out
    }

    fn number(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn texts_maps_bytes_and_times_are_read() {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let metadata = [field(1, b"keys"), field(8, &number(1, 60)), field(11, &label)].concat();
        let data = [field(1, b"key"), field(2, b"\x00\xff")].concat();
        let secret = [field(1, &metadata), field(2, &data), field(3, b"Opaque"), number(5, 1)].concat();
        assert_eq!(
            protobuf_to_json(&wrap("v1", "Secret", &secret)),
            Ok(json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": "keys", "creationTimestamp": "1970-01-01T00:01:00Z", "labels": { "app": "web" } },
                "data": { "key": "AP8=" }, "type": "Opaque", "immutable": true,
            }))
        );
    }

    #[test]
    fn embedded_structs_quantities_and_numbers_or_texts_are_read() {
        let http = [
            field(1, b"/healthz"),
            field(2, &[number(1, 1), field(3, b"http")].concat()),
        ]
        .concat();
        let probe = [field(1, &field(2, &http)), number(4, 5)].concat();
        let request = [field(1, b"cpu"), field(2, &field(1, b"100m"))].concat();
        let container = [field(1, b"web"), field(8, &field(2, &request)), field(10, &probe)].concat();
        let pod = field(2, &field(2, &container));
        assert_eq!(
            protobuf_to_json(&wrap("v1", "Pod", &pod)).expect("a Pod")["spec"]["containers"],
            json!([{
                "name": "web",
                "resources": { "requests": { "cpu": "100m" } },
                "livenessProbe": { "httpGet": { "path": "/healthz", "port": "http" }, "periodSeconds": 5 },
            }])
        );
    }

    #[test]
    fn negative_numbers_are_ten_bytes_long() {
        let minus_one = [&[1 << 3][..], &[0xff; 9], &[1]].concat();
        let json = protobuf_to_json(&wrap("apps/v1", "DeleteOptions", &minus_one)).expect("options");
        assert_eq!(json["gracePeriodSeconds"], -1);
    }

    #[test]
    fn unknown_numbers_are_passed_over() {
        let map = [field(1, &field(1, b"x")), number(15, 3)].concat();
        assert_eq!(
            protobuf_to_json(&wrap("v1", "ConfigMap", &map)),
            Ok(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }))
        );
    }

    #[test]
    fn every_prefix_of_a_body_is_an_answer_or_an_error() {
        let metadata = [field(1, b"keys"), field(8, &number(1, 60))].concat();
        let body = wrap("v1", "Secret", &field(1, &metadata));
        for end in 0..body.len() {
            if let Ok(value) = protobuf_to_json(&body[..end]) {
                assert!(value.is_object(), "{end}");
            }
        }
        assert_eq!(protobuf_to_json(b"{}"), Err(ProtobufError::Prefix));
        let unknown = protobuf_to_json(&wrap("v1", "Unicorn", b""));
        assert!(matches!(unknown, Err(ProtobufError::Kind { .. })), "{unknown:?}");
    }

    #[test]
    fn a_source_inside_a_volume_is_inline_twice() {
        // Volume {name 1, source 2 {configMap 19 {reference 1 {name 1}, defaultMode 3}}}
        let config_map = [field(1, &field(1, b"settings")), number(3, 36)].concat();
        let source = [&[0x9a, 0x01, config_map.len() as u8][..], &config_map].concat();
        let volume = [field(1, b"v"), field(2, &source)].concat();
        assert_eq!(
            protobuf_to_json(&wrap("v1", "Pod", &field(2, &field(1, &volume)))).expect("a Pod")["spec"]["volumes"],
            json!([{ "name": "v", "configMap": { "name": "settings", "defaultMode": 36 } }])
        );
    }

    /// A message of one JSON schema around `inner`, in a CustomResourceDefinition.
    fn definition(schema: &[u8]) -> Vec<u8> {
        let version = field(4, &field(1, schema));
        wrap(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &field(2, &field(7, &version)),
        )
    }

    #[test]
    fn json_schemas_and_what_stands_for_them_are_read() {
        // properties 29: key 1, value 2; additionalProperties 30; items 24
        let boolean = [&[0xf2, 0x01, 0x02][..], &number(1, 1)].concat();
        let entry = [field(1, b"a"), field(2, &boolean)].concat();
        let schema = [
            field(5, b"object"),
            [&[0xea, 0x01, entry.len() as u8][..], &entry].concat(),
        ]
        .concat();
        assert_eq!(
            protobuf_to_json(&definition(&schema)).expect("a definition")["spec"]["versions"][0]["schema"],
            json!({ "openAPIV3Schema":
                { "type": "object", "properties": { "a": { "additionalProperties": true } } } })
        );
    }

    #[test]
    fn nests_without_end_are_refused() {
        // not: 28
        let nest = (0..500).fold(Vec::new(), |inner, _| {
            let whole = field(1, &inner);
            [&[0xe2, 0x01][..], &whole[1..]].concat()
        });
        assert_eq!(
            protobuf_to_json(&definition(&nest)),
            Err(Malformed("exceeded max depth"))
        );
    }

    #[test]
    fn nearly_every_field_has_a_number() {
        let (known, all) = Schema::all()
            .flat_map(Schema::fields)
            .filter(|field| !matches!(field.name(), "apiVersion" | "kind"))
            .fold((0, 0), |(known, all), field| {
                (known + usize::from(field.protobuf() != 0), all + 1)
            });
        assert!(known > 2_000 && all - known < 60, "{known} of {all}");
    }

    proptest::proptest! {
        #[test]
        fn bytes_of_no_meaning_do_no_harm(raw in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = protobuf_to_json(&wrap("v1", "Pod", &raw));
            let _ = protobuf_to_json(&definition(&raw));
        }
    }
}
