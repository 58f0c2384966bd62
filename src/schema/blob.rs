//! The schema blob: every schema, field, type, kind and path in one block of bytes, read in place.
//!
//! `build.rs` writes the blob of the built-in kinds from the `k8s-openapi` crate and the tables in `data/`; the library
//! embeds it. Nothing is copied to the heap: what the accessors return points into the block. The layout is described in
//! `blob/layout.rs`.

#[allow(dead_code)] // what only the writer uses
pub(crate) mod layout;

use layout::{CHUNK_LEN, FIELD_LEN, KIND_LEN, MAGIC, PATH_LEN, SCHEMA_LEN, TYPE_LEN, VERSION};
use std::cmp::Ordering;
use std::io::Read;

/// A schema blob over its bytes. Copy: a pointer and a length.
///
/// The bytes come from the writer beside this file, at build time or in this process, never from outside; accessors index
/// them on that ground.
#[derive(Clone, Copy)]
pub(crate) struct Blob<'a> {
    bytes: &'a [u8],
}

/// The blob of the built-in kinds.
pub(crate) const BUILT_IN: Blob<'static> = Blob {
    bytes: include_bytes!(concat!(env!("OUT_DIR"), "/schemas.blob")),
};

const _: () = assert!(BUILT_IN.is_sound(), "build.rs and this code agree on the layout");

/// The six counts and seven offsets of the header, by position.
#[derive(Clone, Copy)]
enum Region {
    Schemas = 0,
    Fields = 1,
    Types = 2,
    Kinds = 3,
    Paths = 4,
    Chunks = 5,
}

const TEXT_OFFSET: usize = 4 * 14;

impl<'a> Blob<'a> {
    /// Whether it is the same block of bytes.
    pub(crate) fn is(self, other: Blob<'_>) -> bool {
        std::ptr::eq(self.bytes.as_ptr(), other.bytes.as_ptr())
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    const fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes([
            self.bytes[at],
            self.bytes[at + 1],
            self.bytes[at + 2],
            self.bytes[at + 3],
        ])
    }

    fn count(self, region: Region) -> usize {
        self.u32(8 + 4 * region as usize) as usize
    }

    fn start(self, region: Region) -> usize {
        self.u32(32 + 4 * region as usize) as usize
    }

    /// The text that the reference at `at` names.
    fn text_at(self, at: usize) -> &'a str {
        let start = (self.u32(TEXT_OFFSET) + self.u32(at)) as usize;
        let length = self.u16(start) as usize;
        std::str::from_utf8(&self.bytes[start + 2..start + 2 + length]).unwrap_or_default()
    }

    fn text_bytes_at(self, at: usize) -> &'a [u8] {
        let start = (self.u32(TEXT_OFFSET) + self.u32(at)) as usize;
        let length = self.u16(start) as usize;
        &self.bytes[start + 2..start + 2 + length]
    }

    pub(crate) fn schema_count(self) -> u16 {
        self.count(Region::Schemas) as u16
    }

    /// Entry of schema number `number`.
    pub(crate) fn schema(self, number: u16) -> SchemaEntry<'a> {
        SchemaEntry {
            blob: self,
            at: self.start(Region::Schemas) + number as usize * SCHEMA_LEN,
        }
    }

    /// Number of the schema named `name`. O(log n).
    pub(crate) fn schema_named(self, name: &str) -> Option<u16> {
        let start = self.start(Region::Schemas);
        let found = binary_search(self.count(Region::Schemas), |i| {
            self.text_bytes_at(start + i * SCHEMA_LEN).cmp(name.as_bytes())
        });
        found.map(|i| i as u16)
    }

    /// Entry of field number `number` of the whole blob.
    pub(crate) fn field(self, number: u32) -> FieldEntry<'a> {
        FieldEntry {
            blob: self,
            at: self.start(Region::Fields) + number as usize * FIELD_LEN,
        }
    }

    /// Number of the field `name` among `count` fields from `first`. O(log n).
    pub(crate) fn field_named(self, first: u32, count: u16, name: &str) -> Option<u32> {
        let start = self.start(Region::Fields) + first as usize * FIELD_LEN;
        let found = binary_search(count as usize, |i| {
            self.text_bytes_at(start + i * FIELD_LEN).cmp(name.as_bytes())
        });
        found.map(|i| first + i as u32)
    }

    /// Kind code, format code and argument of type number `number`.
    pub(crate) fn ty(self, number: u16) -> (u8, u8, u16) {
        let at = self.start(Region::Types) + number as usize * TYPE_LEN;
        (self.bytes[at], self.bytes[at + 1], self.u16(at + 2))
    }

    /// Number of the schema of a kind. O(log n).
    pub(crate) fn schema_of_kind(self, group: &str, version: &str, kind: &str) -> Option<u16> {
        let start = self.start(Region::Kinds);
        let text = |i: usize, offset: usize| self.text_bytes_at(start + i * KIND_LEN + offset);
        let found = binary_search(self.count(Region::Kinds), |i| {
            (text(i, 8), text(i, 0), text(i, 4)).cmp(&(kind.as_bytes(), group.as_bytes(), version.as_bytes()))
        });
        found.map(|i| self.u16(start + i * KIND_LEN + 12))
    }

    /// The kinds whose schema is number `schema`. O(number of kinds).
    pub(crate) fn kinds_of(self, schema: u16) -> impl Iterator<Item = KindEntry<'a>> + use<'a> {
        let start = self.start(Region::Kinds);
        (0..self.count(Region::Kinds))
            .filter(move |i| self.u16(start + i * KIND_LEN + 12) == schema)
            .map(move |i| self.kind(i))
    }

    fn kind(self, number: usize) -> KindEntry<'a> {
        let at = self.start(Region::Kinds) + number * KIND_LEN;
        KindEntry {
            group: self.text_at(at),
            version: self.text_at(at + 4),
            kind: self.text_at(at + 8),
        }
    }

    pub(crate) fn path_count(self) -> usize {
        self.count(Region::Paths)
    }

    /// Path number `number`.
    pub(crate) fn path(self, number: usize) -> PathEntry<'a> {
        let at = self.start(Region::Paths) + number * PATH_LEN;
        PathEntry {
            path: self.text_at(at),
            actions: self.u16(at + 4),
            methods: self.bytes[at + 6],
            group: self.text_at(at + 8),
            version: self.text_at(at + 12),
            kind: self.text_at(at + 16),
        }
    }

    pub(crate) fn chunk_count(self) -> usize {
        self.count(Region::Chunks)
    }

    /// Inflates description chunk number `number`; about 32 KiB of heap.
    pub(crate) fn chunk(self, number: usize) -> String {
        let at = self.start(Region::Chunks) + number * CHUNK_LEN;
        let (offset, length, inflated) = (self.u32(at) as usize, self.u32(at + 4) as usize, self.u32(at + 8));
        let mut text = String::with_capacity(inflated as usize);
        let decoder = flate2::read::DeflateDecoder::new(&self.bytes[offset..offset + length]);
        // A chunk that does not inflate would be a fault of the build; its descriptions are then empty.
        let _ = decoder.take(u64::from(inflated)).read_to_string(&mut text);
        text
    }

    /// Whether the header is the one this code reads and the length is right.
    const fn is_sound(self) -> bool {
        self.bytes.len() > layout::HEADER_LEN
            && self.u32(0) == MAGIC
            && self.u32(4) == VERSION
            && self.u32(4 * 15) as usize == self.bytes.len()
    }
}

fn binary_search(count: usize, compare: impl Fn(usize) -> Ordering) -> Option<usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        match compare(middle) {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return Some(middle),
        }
    }
    None
}

/// Where a description lies: chunk, offset, length. Length 0: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DescriptionPlace {
    pub(crate) chunk: u16,
    pub(crate) offset: u16,
    pub(crate) length: u16,
}

/// One schema's entry.
#[derive(Clone, Copy)]
pub(crate) struct SchemaEntry<'a> {
    blob: Blob<'a>,
    at: usize,
}

impl<'a> SchemaEntry<'a> {
    pub(crate) fn name(self) -> &'a str {
        self.blob.text_at(self.at)
    }
    pub(crate) fn first_field(self) -> u32 {
        self.blob.u32(self.at + 4)
    }
    pub(crate) fn field_count(self) -> u16 {
        self.blob.u16(self.at + 8)
    }
    pub(crate) fn shape(self) -> u8 {
        self.blob.bytes[self.at + 10]
    }
    pub(crate) fn flags(self) -> u8 {
        self.blob.bytes[self.at + 11]
    }
    pub(crate) fn description(self) -> DescriptionPlace {
        description_at(self.blob, self.at + 12)
    }
    pub(crate) fn ty(self) -> u16 {
        self.blob.u16(self.at + 18)
    }
    pub(crate) fn union_json(self) -> &'a str {
        self.blob.text_at(self.at + 20)
    }
}

/// One field's entry.
#[derive(Clone, Copy)]
pub(crate) struct FieldEntry<'a> {
    blob: Blob<'a>,
    at: usize,
}

impl<'a> FieldEntry<'a> {
    pub(crate) fn name(self) -> &'a str {
        self.blob.text_at(self.at)
    }
    pub(crate) fn ty(self) -> u16 {
        self.blob.u16(self.at + 4)
    }
    pub(crate) fn list(self) -> u8 {
        self.blob.bytes[self.at + 6]
    }
    pub(crate) fn flags(self) -> u8 {
        self.blob.bytes[self.at + 7]
    }
    pub(crate) fn default_json(self) -> &'a str {
        self.blob.text_at(self.at + 8)
    }
    pub(crate) fn enum_values(self) -> &'a str {
        self.blob.text_at(self.at + 12)
    }
    pub(crate) fn map_keys(self) -> &'a str {
        self.blob.text_at(self.at + 16)
    }
    pub(crate) fn merge_key(self) -> &'a str {
        self.blob.text_at(self.at + 20)
    }
    pub(crate) fn go_type(self) -> &'a str {
        self.blob.text_at(self.at + 24)
    }
    pub(crate) fn description(self) -> DescriptionPlace {
        description_at(self.blob, self.at + 28)
    }
    /// Path of protobuf field numbers, from the lowest byte up.
    pub(crate) fn protobuf(self) -> u32 {
        self.blob.u32(self.at + 36)
    }
}

fn description_at(blob: Blob<'_>, at: usize) -> DescriptionPlace {
    DescriptionPlace {
        chunk: blob.u16(at),
        offset: blob.u16(at + 2),
        length: blob.u16(at + 4),
    }
}

/// One kind's entry.
#[derive(Clone, Copy)]
pub(crate) struct KindEntry<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// One path's entry; bits of `actions` and `methods` as in `layout::ACTIONS` and `layout::METHODS`.
#[derive(Clone, Copy)]
pub(crate) struct PathEntry<'a> {
    pub(crate) path: &'a str,
    pub(crate) actions: u16,
    pub(crate) methods: u8,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}
