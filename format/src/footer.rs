//! The index at the end of a sealed segment: for each resource, where its records lie, by revision.

use std::collections::BTreeMap;

use crate::bytes::{pad, slice, text, u32_at, u64_at};
use crate::frame::{ALIGN, Seed};
use crate::segment::HEADER_LEN as SEGMENT_HEADER_LEN;
use crate::{FormatError, Reason};

const MAGIC: [u8; 8] = *b"\xfffkFOOT\n";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 64;
const DIRECTORY_ENTRY_LEN: usize = 16;
const ENTRY_LEN: usize = 16;

const LEN_AT: usize = 12;
const RESOURCES_AT: usize = 16;
const ENTRIES_AT: usize = 20;
const END_AT: usize = 24;
const RESERVED_AT: usize = 28;
const BODY_CRC_AT: usize = 56;
const HEAD_CRC_AT: usize = 60;

/// Where one record of a resource lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FooterEntry {
    /// The record's revision.
    pub revision: u64,
    /// Its offset in the segment in units of 16 bytes.
    pub offset: u32,
    /// [`crate::segment::namespace_crc`] of its key.
    pub namespace: u32,
}

impl FooterEntry {
    /// The record's offset in the segment in bytes.
    pub const fn byte_offset(&self) -> usize {
        self.offset as usize * ALIGN
    }
}

/// Collects the index of a segment.
#[derive(Debug)]
pub struct FooterBuilder {
    seed: Seed,
    runs: BTreeMap<String, Vec<FooterEntry>>,
}

impl FooterBuilder {
    /// An empty index for the segment of `seed`.
    pub const fn new(seed: Seed) -> Self {
        Self {
            seed,
            runs: BTreeMap::new(),
        }
    }

    /// Adds a record. Records of one resource come in log order: offsets ascend, revisions do not descend.
    pub fn push(&mut self, resource: &str, entry: FooterEntry) {
        if let Some(run) = self.runs.get_mut(resource) {
            run.push(entry);
        } else {
            self.runs.insert(resource.to_owned(), vec![entry]);
        }
    }

    /// Bytes that [`Self::encode`] will give.
    pub fn encoded_len(&self) -> usize {
        let names: usize = self.runs.keys().map(String::len).sum();
        let entries: usize = self.runs.values().map(Vec::len).sum();
        (HEAD_LEN + self.runs.len() * DIRECTORY_ENTRY_LEN + entries * ENTRY_LEN + names).next_multiple_of(ALIGN)
    }

    /// The footer, to be written at offset `end`, where the records end.
    pub fn encode(&self, end: u32) -> Vec<u8> {
        let len = self.encoded_len();
        let mut out = Vec::with_capacity(len);
        out.resize(HEAD_LEN, 0);
        let entry_count: usize = self.runs.values().map(Vec::len).sum();
        let mut name_at = HEAD_LEN + self.runs.len() * DIRECTORY_ENTRY_LEN + entry_count * ENTRY_LEN;
        let mut first = 0;
        for (name, run) in &self.runs {
            debug_assert!(
                run.is_sorted_by(|a, b| a.offset < b.offset && a.revision <= b.revision),
                "log order"
            );
            for value in [name_at, name.len(), first, run.len()] {
                out.extend_from_slice(&(value as u32).to_le_bytes());
            }
            name_at += name.len();
            first += run.len();
        }
        for entry in self.runs.values().flatten() {
            out.extend_from_slice(&entry.revision.to_le_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
            out.extend_from_slice(&entry.namespace.to_le_bytes());
        }
        for name in self.runs.keys() {
            out.extend_from_slice(name.as_bytes());
        }
        pad(&mut out, ALIGN);
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(LEN_AT, &(len as u32).to_le_bytes());
        put(RESOURCES_AT, &(self.runs.len() as u32).to_le_bytes());
        put(ENTRIES_AT, &(entry_count as u32).to_le_bytes());
        put(END_AT, &end.to_le_bytes());
        let body = crc(&self.seed, &out[HEAD_LEN..]);
        out[BODY_CRC_AT..HEAD_CRC_AT].copy_from_slice(&body.to_le_bytes());
        let head = crc(&self.seed, &out[..HEAD_CRC_AT]);
        out[HEAD_CRC_AT..HEAD_LEN].copy_from_slice(&head.to_le_bytes());
        out
    }
}

/// An opened footer. Holds numbers only; accessors are given the segment's bytes and find their way in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    start: usize,
    resources: usize,
    entries: usize,
}

/// The entries of one resource in a [`Footer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    first: usize,
    len: usize,
}

impl Run {
    /// How many entries.
    #[allow(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }
}

impl Footer {
    /// Opens the footer of `len` bytes at `offset` of a segment. Checks both checksums and the bounds and order of
    /// everything in it, so that the accessors need not fail. Costs one pass over the footer; allocates nothing.
    pub fn open(segment: &[u8], offset: usize, len: usize, seed: &Seed) -> Result<Self, FormatError> {
        let bytes = slice(segment, offset, len, "segment footer")?;
        Self::check(bytes, offset, seed).map_err(|error| error.at(offset))
    }

    fn check(bytes: &[u8], offset: usize, seed: &Seed) -> Result<Self, FormatError> {
        let bad = |at: usize, field, value: usize| {
            Err(FormatError::new(
                at,
                Reason::Value {
                    field,
                    value: value as u64,
                },
            ))
        };
        let len = head_len(bytes, offset, seed)?;
        if len != bytes.len() {
            return bad(LEN_AT, "footer length", len);
        }
        let (stored, computed) = (u32_at(bytes, BODY_CRC_AT), crc(seed, &bytes[HEAD_LEN..]));
        if stored != computed {
            return Err(FormatError::new(
                HEAD_LEN,
                Reason::Checksum {
                    part: "segment footer",
                    stored,
                    computed,
                },
            ));
        }
        let footer = Self {
            start: offset,
            resources: u32_at(bytes, RESOURCES_AT) as usize,
            entries: u32_at(bytes, ENTRIES_AT) as usize,
        };
        // two 32-bit numbers times 16: no overflow in 64 bits
        let entries_at = HEAD_LEN + footer.resources * DIRECTORY_ENTRY_LEN;
        let names_at = entries_at + footer.entries * ENTRY_LEN;
        if names_at > len {
            return bad(ENTRIES_AT, "footer entry count", footer.entries);
        }
        let (mut name_at, mut first, mut last_name) = (names_at, 0, None);
        for index in 0..footer.resources {
            let at = HEAD_LEN + index * DIRECTORY_ENTRY_LEN;
            let [name_offset, name_len, run_first, run_len] =
                [0, 4, 8, 12].map(|field| u32_at(bytes, at + field) as usize);
            if name_offset != name_at || run_first != first || run_len == 0 || run_len > footer.entries - first {
                return bad(at, "footer directory entry", index);
            }
            let name = text(bytes, name_offset, name_len, "resource")?;
            if last_name.is_some_and(|last| last >= name) {
                return Err(FormatError::new(at, Reason::Order { field: "resource" }));
            }
            let mut last = (SEGMENT_HEADER_LEN / ALIGN - 1, 0);
            for entry in first..first + run_len {
                let at = entries_at + entry * ENTRY_LEN;
                let (revision, offset) = (u64_at(bytes, at), u32_at(bytes, at + 8) as usize);
                if offset <= last.0 || revision < last.1 {
                    return Err(FormatError::new(at, Reason::Order { field: "footer entry" }));
                }
                last = (offset, revision);
            }
            if last.0.saturating_mul(ALIGN) >= footer.start {
                return bad(at, "footer entry offset", last.0);
            }
            last_name = Some(name);
            name_at += name_len;
            first += run_len;
        }
        if first != footer.entries || name_at.next_multiple_of(ALIGN) != len {
            return bad(RESOURCES_AT, "footer resource count", footer.resources);
        }
        if bytes[name_at..].iter().any(|&byte| byte != 0) {
            return bad(name_at, "padding", 1);
        }
        Ok(footer)
    }

    /// The resources with records in the segment, ascending by the bytes of their names, and their entries.
    pub fn resources<'a>(&self, segment: &'a [u8]) -> impl ExactSizeIterator<Item = (&'a str, Run)> + use<'a> {
        let footer = *self;
        (0..self.resources).map(move |index| footer.directory_entry(segment, index))
    }

    /// The entries of a resource.
    pub fn run(&self, segment: &[u8], resource: &str) -> Option<Run> {
        let index = partition_point(self.resources, |index| {
            self.directory_entry(segment, index).0 < resource
        });
        if index == self.resources {
            return None;
        }
        let (name, run) = self.directory_entry(segment, index);
        (name == resource).then_some(run)
    }

    /// One entry of a run; `index` below its length.
    pub fn entry(&self, segment: &[u8], run: Run, index: usize) -> FooterEntry {
        let at = self.start
            + HEAD_LEN
            + self.resources * DIRECTORY_ENTRY_LEN
            + run.first.saturating_add(index).saturating_mul(ENTRY_LEN);
        FooterEntry {
            revision: u64_at(segment, at),
            offset: u32_at(segment, at + 8),
            namespace: u32_at(segment, at + 12),
        }
    }

    /// All entries of a run, by revision.
    pub fn entries<'a>(
        &self,
        segment: &'a [u8],
        run: Run,
    ) -> impl ExactSizeIterator<Item = FooterEntry> + DoubleEndedIterator + use<'a> {
        let footer = *self;
        (0..run.len).map(move |index| footer.entry(segment, run, index))
    }

    /// Index of the first entry of a run whose revision is higher than `revision`; the run's length when there is none.
    pub fn after(&self, segment: &[u8], run: Run, revision: u64) -> usize {
        partition_point(run.len, |index| self.entry(segment, run, index).revision <= revision)
    }

    fn directory_entry<'a>(&self, segment: &'a [u8], index: usize) -> (&'a str, Run) {
        let at = self.start + HEAD_LEN + index * DIRECTORY_ENTRY_LEN;
        let [name_offset, name_len, first, len] = [0, 4, 8, 12].map(|field| u32_at(segment, at + field) as usize);
        let name = text(segment, self.start + name_offset, name_len, "resource").unwrap_or_default();
        (name, Run { first, len })
    }
}

/// Length of the valid footer that begins at `offset`, if one does.
pub(crate) fn len_at(segment: &[u8], offset: usize, seed: &Seed) -> Option<u32> {
    let len = head_len(segment.get(offset..)?, offset, seed).ok()?;
    Footer::open(segment, offset, len, seed).ok()?;
    Some(len as u32)
}

/// The length that the head of a footer at `offset` of the segment gives, once the head is proven.
fn head_len(bytes: &[u8], offset: usize, seed: &Seed) -> Result<usize, FormatError> {
    let head = slice(bytes, 0, HEAD_LEN, "segment footer head")?;
    if head[..8] != MAGIC {
        return Err(FormatError::new(0, Reason::Magic { part: "segment footer" }));
    }
    let (stored, computed) = (u32_at(head, HEAD_CRC_AT), crc(seed, &head[..HEAD_CRC_AT]));
    if stored != computed {
        return Err(FormatError::new(
            0,
            Reason::Checksum {
                part: "segment footer head",
                stored,
                computed,
            },
        ));
    }
    match u32_at(head, 8) {
        VERSION => {}
        found if found > VERSION => {
            let reason = Reason::NewerFormat {
                part: "segment footer",
                found,
                supported: VERSION,
            };
            return Err(FormatError::new(8, reason));
        }
        found => {
            return Err(FormatError::new(
                8,
                Reason::Value {
                    field: "footer version",
                    value: found.into(),
                },
            ));
        }
    }
    let (len, end) = (u32_at(head, LEN_AT) as usize, u32_at(head, END_AT) as usize);
    if end != offset {
        return Err(FormatError::new(END_AT, Reason::Foreign { field: "footer offset" }));
    }
    if len < HEAD_LEN || head[RESERVED_AT..BODY_CRC_AT].iter().any(|&byte| byte != 0) {
        return Err(FormatError::new(
            LEN_AT,
            Reason::Value {
                field: "footer length",
                value: len as u64,
            },
        ));
    }
    Ok(len)
}

fn crc(seed: &Seed, bytes: &[u8]) -> u32 {
    let mut hasher = seed.hasher();
    hasher.update(bytes);
    hasher.finalize()
}

/// The first index below `len` for which `before` is false, `len` when there is none.
fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
