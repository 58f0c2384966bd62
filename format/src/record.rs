//! What a log record says, as it is written and as it is read. How it lies in bytes is in [`crate::frame`].

use std::ops::Range;

use crate::frame::HEADER_LEN;

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key was absent and now has this version.
    Create = 1,
    /// The key's version was replaced.
    Update = 2,
    /// The key was removed; the record carries the final version under the deletion's revision.
    Delete = 3,
    /// No write: tells up to where the segment is synced, and the highest revision.
    Marker = 4,
}

/// The version that a write replaced or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous<'a> {
    /// There was none (creates and markers).
    None,
    /// The version itself.
    Inline {
        /// Its revision; the digits are in its JSON.
        revision: u64,
        /// Its stored JSON.
        json: &'a [u8],
        /// Its sidecar.
        sidecar: &'a [u8],
        /// Its shape number.
        shape: u32,
    },
    /// The version is that of an earlier record in the same segment. Segments retire whole: it never dangles.
    Reference {
        /// Offset of that record in the segment, in bytes.
        offset: u32,
    },
}

/// A record to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// What it does.
    pub kind: Kind,
    /// The write's revision; for markers the highest revision so far.
    pub revision: u64,
    /// Storage resource, at most 65,535 bytes; empty for markers.
    pub resource: &'a str,
    /// `namespace/name` or `name`, at most 65,535 bytes; empty for markers.
    pub key: &'a str,
    /// The JSON before and after the digits of the revision, which [`crate::frame::encode`] puts between; empty for markers.
    pub json: [&'a [u8]; 2],
    /// The sidecar; empty for markers.
    pub sidecar: &'a [u8],
    /// Shape number: the generation of the schema that the JSON follows.
    pub shape: u32,
    /// What the write replaced.
    pub previous: Previous<'a>,
    /// Every byte of the segment below this offset was synced when the record was made.
    pub synced: u32,
}

/// A record as it lies in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of the record in the segment, in bytes.
    pub offset: usize,
    /// Length of the record in bytes, padding included; the next one begins at `offset + len`.
    pub len: usize,
    /// What it does.
    pub kind: Kind,
    /// The write's revision.
    pub revision: u64,
    /// Storage resource.
    pub resource: &'a str,
    /// `namespace/name` or `name`.
    pub key: &'a str,
    /// The stored JSON, digits included.
    pub json: &'a [u8],
    /// The sidecar, unchecked.
    pub sidecar: &'a [u8],
    /// Where the digits of the revision begin in `json`.
    pub splice: u32,
    /// Shape number.
    pub shape: u32,
    /// What the write replaced.
    pub previous: Previous<'a>,
    /// Checksum of the record before this one, as this record names it.
    pub previous_crc: u32,
    /// This record's checksum, to chain the next one to.
    pub crc: u32,
    /// Every byte of the segment below this offset was synced when the record was made.
    pub synced: u32,
}

impl Record<'_> {
    /// Where the next record begins.
    pub const fn end(&self) -> usize {
        self.offset + self.len
    }

    /// Where the JSON lies in the segment.
    pub const fn json_range(&self) -> Range<usize> {
        let start = self.offset + HEADER_LEN + self.resource.len() + self.key.len();
        start..start + self.json.len()
    }

    /// Where the sidecar lies in the segment.
    pub const fn sidecar_range(&self) -> Range<usize> {
        let start = self.json_range().end;
        start..start + self.sidecar.len()
    }

    /// Where the previous version's JSON and sidecar lie in the segment, when they are in this record.
    pub const fn previous_ranges(&self) -> Option<(Range<usize>, Range<usize>)> {
        match self.previous {
            Previous::Inline { json, sidecar, .. } => {
                let start = self.sidecar_range().end;
                let middle = start + json.len();
                Some((start..middle, middle..middle + sidecar.len()))
            }
            Previous::None | Previous::Reference { .. } => None,
        }
    }
}

/// Where the parts of a record lie in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans {
    /// The write's revision.
    pub revision: u64,
    /// Shape number.
    pub shape: u32,
    /// `namespace/name` or `name`.
    pub key: Range<usize>,
    /// The stored JSON, digits included.
    pub json: Range<usize>,
    /// The sidecar.
    pub sidecar: Range<usize>,
}
