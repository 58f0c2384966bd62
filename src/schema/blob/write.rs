//! Writes a schema blob (layout: `layout.rs`). Used by `build.rs`.

use super::layout::{
    ACTIONS, CHUNK_BYTES, CHUNK_LEN, FIELD_LEN, FORMATS, HEADER_LEN, KIND_LEN, LIST_TYPES, MAGIC, METHODS, PATH_LEN,
    SCHEMA_LEN, SCHEMA_MAP_ATOMIC, SHAPES, TYPE_LEN, VERSION, flag, kind, shape,
};
use std::collections::{BTreeMap, HashMap};

/// A type as written in the source: what it is, its format and what it holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TypeSource {
    Scalar { kind: u8, format: String },
    List(Box<TypeSource>),
    Map(Box<TypeSource>),
    Schema(String),
}

/// One field and everything known about it.
#[derive(Clone, Debug)]
pub(crate) struct FieldSource {
    pub(crate) ty: TypeSource,
    pub(crate) description: String,
    pub(crate) required: bool,
    /// `default`, `enum`, `list`, `keys`, `patch`, `key`, `map`, `go`
    pub(crate) marks: BTreeMap<String, String>,
}

/// One schema: fields by name, or the type of a schema that is not an object with fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaSource {
    pub(crate) description: String,
    pub(crate) fields: BTreeMap<String, FieldSource>,
    pub(crate) ty: Option<TypeSource>,
    /// `map`, `union`
    pub(crate) marks: BTreeMap<String, String>,
}

/// Group, version, kind and the name of the schema.
pub(crate) struct KindSource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) schema: String,
}

/// One path that is served. `actions` are those of `ACTIONS`; `connect:GET,POST` names methods.
pub(crate) struct PathSource {
    pub(crate) path: String,
    pub(crate) actions: Vec<String>,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// Everything that goes into a blob.
pub(crate) struct Source {
    pub(crate) schemas: BTreeMap<String, SchemaSource>,
    pub(crate) kinds: Vec<KindSource>,
    pub(crate) paths: Vec<PathSource>,
}

/// Lays `source` out as a blob. `deflate` compresses one chunk of descriptions.
///
/// # Errors
/// Names what does not fit: a reference to a schema that is not there, or a count beyond the layout's fields.
pub(crate) fn write(source: &Source, deflate: impl Fn(&[u8]) -> Vec<u8>) -> Result<Vec<u8>, String> {
    let mut writer = Writer::new(source);
    let mut schemas = Vec::new();
    let mut fields = Vec::new();
    let mut field_count: u32 = 0;
    for (name, schema) in &source.schemas {
        let described = writer.describe(&schema.description)?;
        put_u32(&mut schemas, writer.text(name)?);
        put_u32(&mut schemas, field_count);
        put_u16(&mut schemas, count(schema.fields.len(), name)?);
        schemas.push(
            SHAPES
                .iter()
                .find(|(known, _)| known == name)
                .map_or(shape::STRUCT, |(_, shape)| *shape),
        );
        schemas.push(u8::from(schema.marks.get("map").is_some_and(|map| map == "atomic")) * SCHEMA_MAP_ATOMIC);
        for part in described {
            put_u16(&mut schemas, part);
        }
        let ty = match &schema.ty {
            Some(ty) => writer.ty(ty)?,
            None => writer.ty(&TypeSource::Scalar {
                kind: kind::OBJECT,
                format: String::new(),
            })?,
        };
        put_u16(&mut schemas, ty);
        put_u32(
            &mut schemas,
            writer.text(schema.marks.get("union").map_or("", String::as_str))?,
        );
        for (field_name, field) in &schema.fields {
            writer.field(&mut fields, field_name, field)?;
            field_count += 1;
        }
    }
    let mut kinds = Vec::new();
    let mut ordered: Vec<&KindSource> = source.kinds.iter().collect();
    ordered.sort_by_key(|entry| (&entry.kind, &entry.group, &entry.version));
    for entry in ordered {
        for text in [&entry.group, &entry.version, &entry.kind] {
            put_u32(&mut kinds, writer.text(text)?);
        }
        put_u16(&mut kinds, writer.schema(&entry.schema)?);
        put_u16(&mut kinds, 0);
    }
    let mut paths = Vec::new();
    for path in &source.paths {
        writer.path(&mut paths, path)?;
    }
    writer.close_chunk();
    Ok(assemble(&writer, [schemas, fields, kinds, paths], deflate))
}

fn assemble(writer: &Writer<'_>, regions: [Vec<u8>; 4], deflate: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let [schemas, fields, kinds, paths] = regions;
    let chunks: Vec<Vec<u8>> = writer.chunks.iter().map(|chunk| deflate(chunk)).collect();
    let types: Vec<u8> = writer.types.iter().flatten().copied().collect();
    let starts: Vec<usize> = [&schemas, &fields, &types, &kinds, &paths]
        .iter()
        .scan(HEADER_LEN, |at, region| {
            let start = *at;
            *at += region.len();
            Some(start)
        })
        .collect();
    let chunks_start = starts[4] + paths.len();
    let text_start = chunks_start + chunks.len() * CHUNK_LEN;
    let mut blob = Vec::new();
    for number in [MAGIC, VERSION] {
        put_u32(&mut blob, number);
    }
    for number in [
        schemas.len() / SCHEMA_LEN,
        fields.len() / FIELD_LEN,
        types.len() / TYPE_LEN,
        kinds.len() / KIND_LEN,
        paths.len() / PATH_LEN,
        chunks.len(),
    ] {
        put_u32(&mut blob, number as u32);
    }
    for start in starts.iter().copied().chain([chunks_start, text_start]) {
        put_u32(&mut blob, start as u32);
    }
    let length = text_start + writer.text.len() + chunks.iter().map(Vec::len).sum::<usize>();
    put_u32(&mut blob, length as u32);
    assert_eq!(blob.len(), HEADER_LEN, "header fields and HEADER_LEN agree");
    for region in [&schemas, &fields, &types, &kinds, &paths] {
        blob.extend_from_slice(region);
    }
    let mut at = text_start + writer.text.len();
    for (deflated, inflated) in chunks.iter().zip(&writer.chunks) {
        put_u32(&mut blob, at as u32);
        put_u32(&mut blob, deflated.len() as u32);
        put_u32(&mut blob, inflated.len() as u32);
        at += deflated.len();
    }
    blob.extend_from_slice(&writer.text);
    for chunk in &chunks {
        blob.extend_from_slice(chunk);
    }
    assert_eq!(blob.len(), length, "regions fill the blob exactly");
    blob
}

struct Writer<'s> {
    numbers: HashMap<&'s str, u16>,
    text: Vec<u8>,
    texts: HashMap<String, u32>,
    types: Vec<[u8; TYPE_LEN]>,
    type_numbers: HashMap<TypeSource, u16>,
    chunks: Vec<Vec<u8>>,
    open: Vec<u8>,
    described: HashMap<String, [u16; 3]>,
}

impl<'s> Writer<'s> {
    fn new(source: &'s Source) -> Writer<'s> {
        Writer {
            numbers: source
                .schemas
                .keys()
                .enumerate()
                .map(|(i, name)| (name.as_str(), i as u16))
                .collect(),
            text: vec![0, 0], // the empty text lies at 0
            texts: HashMap::from([(String::new(), 0)]),
            types: Vec::new(),
            type_numbers: HashMap::new(),
            chunks: Vec::new(),
            open: Vec::new(),
            described: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> Result<u32, String> {
        if let Some(at) = self.texts.get(text) {
            return Ok(*at);
        }
        let at = self.text.len() as u32;
        put_u16(&mut self.text, count(text.len(), text)?);
        self.text.extend_from_slice(text.as_bytes());
        self.texts.insert(text.to_owned(), at);
        Ok(at)
    }

    fn schema(&self, name: &str) -> Result<u16, String> {
        self.numbers
            .get(name)
            .copied()
            .ok_or_else(|| format!("no schema is named {name}"))
    }

    fn ty(&mut self, ty: &TypeSource) -> Result<u16, String> {
        if let Some(number) = self.type_numbers.get(ty) {
            return Ok(*number);
        }
        let (kind, format, argument) = match ty {
            TypeSource::Scalar { kind, format } => {
                let known = FORMATS.iter().position(|known| known == format);
                (*kind, known.ok_or_else(|| format!("unknown format {format}"))? as u8, 0)
            }
            TypeSource::List(element) => (kind::LIST, 0, self.ty(element)?),
            TypeSource::Map(element) => (kind::MAP, 0, self.ty(element)?),
            TypeSource::Schema(name) => (kind::SCHEMA, 0, self.schema(name)?),
        };
        let number = count(self.types.len(), "types")?;
        let [low, high] = argument.to_le_bytes();
        self.types.push([kind, format, low, high]);
        self.type_numbers.insert(ty.clone(), number);
        Ok(number)
    }

    /// Where a description lies. Descriptions repeat (metadata, kind, apiVersion); each is kept once.
    fn describe(&mut self, description: &str) -> Result<[u16; 3], String> {
        if description.is_empty() {
            return Ok([0; 3]);
        }
        if let Some(place) = self.described.get(description) {
            return Ok(*place);
        }
        if self.open.len() + description.len() > CHUNK_BYTES {
            self.close_chunk();
        }
        let chunk = count(self.chunks.len(), "chunks")?;
        let place = [
            chunk,
            count(self.open.len(), "chunk")?,
            count(description.len(), description)?,
        ];
        self.open.extend_from_slice(description.as_bytes());
        self.described.insert(description.to_owned(), place);
        Ok(place)
    }

    fn close_chunk(&mut self) {
        if !self.open.is_empty() {
            self.chunks.push(std::mem::take(&mut self.open));
        }
    }

    fn field(&mut self, out: &mut Vec<u8>, name: &str, field: &FieldSource) -> Result<(), String> {
        let described = self.describe(&field.description)?;
        let mark = |key: &str| field.marks.get(key).map_or("", String::as_str);
        let list = LIST_TYPES.iter().position(|known| *known == mark("list"));
        let mut flags = u8::from(field.required) * flag::REQUIRED;
        for strategy in mark("patch").split(',').filter(|strategy| !strategy.is_empty()) {
            flags |= match strategy {
                "merge" => flag::PATCH_MERGE,
                "replace" => flag::PATCH_REPLACE,
                "retainKeys" => flag::PATCH_RETAIN_KEYS,
                other => return Err(format!("unknown patch strategy {other} of {name}")),
            };
        }
        flags |= match mark("map") {
            "" => 0,
            "atomic" => flag::MAP_ATOMIC,
            "granular" => flag::MAP_GRANULAR,
            other => return Err(format!("unknown map type {other} of {name}")),
        };
        put_u32(out, self.text(name)?);
        let ty = self.ty(&field.ty)?;
        put_u16(out, ty);
        out.push(list.ok_or_else(|| format!("unknown list type of {name}"))? as u8);
        out.push(flags);
        for key in ["default", "enum", "keys", "key", "go"] {
            let at = self.text(mark(key))?;
            put_u32(out, at);
        }
        for part in described {
            put_u16(out, part);
        }
        put_u16(out, 0);
        let mut number: u32 = 0;
        for step in mark("protobuf").split('/').rev().filter(|step| !step.is_empty()) {
            let step: u8 = step.parse().map_err(|_| format!("protobuf number {step} of {name}"))?;
            number = number.checked_mul(256).ok_or_else(|| format!("{name} lies too deep"))? | u32::from(step);
        }
        put_u32(out, number);
        Ok(())
    }

    fn path(&mut self, out: &mut Vec<u8>, path: &PathSource) -> Result<(), String> {
        let mut actions: u16 = 0;
        let mut methods: u8 = 0;
        for action in &path.actions {
            let (action, listed) = action.split_once(':').unwrap_or((action, ""));
            let bit = ACTIONS.iter().position(|known| *known == action);
            actions |= 1 << bit.ok_or_else(|| format!("unknown action {action} of {}", path.path))?;
            for method in listed.split(',').filter(|method| !method.is_empty()) {
                let bit = METHODS.iter().position(|known| *known == method);
                methods |= 1 << bit.ok_or_else(|| format!("unknown method {method} of {}", path.path))?;
            }
        }
        put_u32(out, self.text(&path.path)?);
        put_u16(out, actions);
        out.push(methods);
        out.push(0);
        for text in [&path.group, &path.version, &path.kind] {
            let at = self.text(text)?;
            put_u32(out, at);
        }
        put_u32(out, 0);
        Ok(())
    }
}

fn count(length: usize, what: &str) -> Result<u16, String> {
    u16::try_from(length).map_err(|_| format!("{length} is too many for the layout: {what:.60}"))
}

fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}
