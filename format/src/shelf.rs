//! One part of a shelf: the objects of a resource, or of a range of its keys, in list order and never changed again.
//!
//! ```text
//! header | json , json … | sidecars | row , row … | keys | index | row index | holes | posting table | ordinals | block checksums
//!          └────── checked by block at first touch ─────┘ └──────────────────────── checked when opened ────────────────────────┘
//! ```
//!
//! The JSON of neighbours is separated by commas, so that a list is one slice. So are their Table rows, save for the places
//! ([holes](RowHoles)) where something goes that only the clock knows. Order is the byte order of the keys.

use std::ops::Range;

use crate::bytes::{slice, text, u32_at, u64_at, u128_at};
use crate::row::HOLE_LEN;
use crate::{FormatError, Reason, sidecar};

pub use crate::posting::{PostingKind, PostingRun, Postings, posting_hash};
pub use crate::row::{RowFrame, RowHoles};
pub use crate::shelf_builder::ShelfBuilder;

/// First bytes of a part.
pub const MAGIC: [u8; 8] = *b"\xfffkSHEL\n";
/// Version of the shelf format that is written.
pub const VERSION: u32 = 1;
/// Bytes of JSON, sidecars and rows that one block checksum covers.
pub const BLOCK_LEN: usize = 64 << 10;
/// The longest part, in bytes.
pub const PART_LEN_MAX: usize = 1 << 30;

pub(crate) const HEADER_FIXED_LEN: usize = 128;
pub(crate) const HEADER_ALIGN: usize = 64;
pub(crate) const REGION_ALIGN: usize = 16;
pub(crate) const INDEX_ENTRY_LEN: usize = 40;
pub(crate) const ROW_ENTRY_LEN: usize = 12;
pub(crate) const TABLE_ENTRY_LEN: usize = 16;

/// Set in the length of a posting run that lists objects for two different labels or fields of one number.
pub(crate) const MIXED: u32 = 1 << 31;

pub(crate) const STORE_AT: usize = 16;
pub(crate) const AS_OF_AT: usize = 32;
pub(crate) const COUNT_AT: usize = 40;
pub(crate) const RESOURCE_LEN_AT: usize = 44;
pub(crate) const LENGTHS_AT: usize = 48;
pub(crate) const INDEX_CRC_AT: usize = 72;
pub(crate) const ROWS_AT: usize = 76;
const RESERVED_AT: usize = 92;
pub(crate) const HEADER_CRC_AT: usize = 124;

/// Lengths of the regions, from which all offsets follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) resource: usize,
    pub(crate) json: usize,
    pub(crate) sidecars: usize,
    pub(crate) keys: usize,
    pub(crate) count: usize,
    pub(crate) hashes: usize,
    pub(crate) ordinals: usize,
    pub(crate) rows: usize,
    pub(crate) holes: usize,
    /// Whether there are rows; a part without objects may have them, too.
    pub(crate) has_rows: bool,
}

impl Lengths {
    /// The header's checksum covers all of it but itself.
    pub(crate) fn header_crc(header: &[u8]) -> u32 {
        let (before, from) = header.split_at_checked(HEADER_CRC_AT).unwrap_or((header, &[]));
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(before);
        hasher.update(from.get(4..).unwrap_or_default());
        hasher.finalize()
    }

    /// All numbers are of 32 bits, so no sum here overflows 64.
    pub(crate) const fn regions(&self) -> Regions {
        let json = (HEADER_FIXED_LEN + self.resource).next_multiple_of(HEADER_ALIGN);
        let sidecars = json + self.json;
        let rows = sidecars + self.sidecars;
        let rows_end = rows + self.rows;
        let keys = rows_end.next_multiple_of(REGION_ALIGN);
        let index = (keys + self.keys).next_multiple_of(REGION_ALIGN);
        let row_index = index + self.count * INDEX_ENTRY_LEN;
        let holes = row_index + if self.has_rows { self.count * ROW_ENTRY_LEN } else { 0 };
        let table = holes + self.holes * HOLE_LEN;
        let ordinals = table + self.hashes * TABLE_ENTRY_LEN;
        let blocks = ordinals + self.ordinals * 4;
        let block_count = (rows_end - json).div_ceil(BLOCK_LEN);
        Regions {
            json,
            sidecars,
            rows,
            rows_end,
            keys,
            index,
            row_index,
            holes,
            table,
            ordinals,
            blocks,
            end: blocks + block_count * 4,
        }
    }
}

/// Offsets of the regions in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Regions {
    /// Also the header's length.
    pub(crate) json: usize,
    pub(crate) sidecars: usize,
    pub(crate) rows: usize,
    pub(crate) rows_end: usize,
    pub(crate) keys: usize,
    pub(crate) index: usize,
    pub(crate) row_index: usize,
    pub(crate) holes: usize,
    pub(crate) table: usize,
    pub(crate) ordinals: usize,
    pub(crate) blocks: usize,
    pub(crate) end: usize,
}

/// An opened part. Holds numbers only; accessors are given the part's bytes, the same that were opened, and find their
/// way in them without allocating. They never fail and never panic; given other bytes they return nonsense or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shelf {
    store: u128,
    as_of: u64,
    header_crc: u32,
    lengths: Lengths,
    regions: Regions,
    row_layout: u32,
}

/// Where one object lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The object's revision.
    pub revision: u64,
    /// Shape number of its JSON.
    pub shape: u32,
    /// Its JSON, in bytes from the start of the file.
    pub json: Range<usize>,
    /// Its sidecar, in bytes from the start of the file.
    pub sidecar: Range<usize>,
}

impl Shelf {
    /// Opens a part; `bytes` is the whole file.
    ///
    /// Checks the header and everything behind the rows: checksum, bounds, order. JSON, sidecars and rows are not touched;
    /// [`Self::check_block`] proves them. Cost: one pass over the index regions; allocates nothing.
    pub fn open(bytes: &[u8]) -> Result<Self, FormatError> {
        let shelf = Self::open_header(bytes)?;
        shelf.check_index_crc(bytes, u32_at(bytes, INDEX_CRC_AT))?;
        shelf.check_entries(bytes)?;
        shelf.check_rows(bytes)?;
        shelf.check_postings(bytes)?;
        Ok(shelf)
    }

    /// Opens a part and checks its header alone: for repair. What the other methods say of an index that is not proven may be
    /// nonsense, ranges outside of the file included.
    pub fn open_header(bytes: &[u8]) -> Result<Self, FormatError> {
        let fixed = slice(bytes, 0, HEADER_FIXED_LEN, "shelf header")?;
        if fixed[..8] != MAGIC {
            return Err(FormatError::new(0, Reason::Magic { part: "shelf part" }));
        }
        let header_len = u32_at(fixed, 12) as usize;
        let header = slice(bytes, 0, header_len.max(HEADER_FIXED_LEN), "shelf header")?;
        let (stored, computed) = (u32_at(header, HEADER_CRC_AT), Lengths::header_crc(header));
        if stored != computed {
            return Err(FormatError::new(
                0,
                Reason::Checksum {
                    part: "shelf header",
                    stored,
                    computed,
                },
            ));
        }
        match u32_at(header, 8) {
            VERSION => {}
            found if found > VERSION => {
                return Err(FormatError::new(
                    8,
                    Reason::NewerFormat {
                        part: "shelf part",
                        found,
                        supported: VERSION,
                    },
                ));
            }
            found => {
                return Err(FormatError::new(
                    8,
                    Reason::Value {
                        field: "shelf version",
                        value: found.into(),
                    },
                ));
            }
        }
        let [json, sidecars, keys, hashes, ordinals, block_len] =
            std::array::from_fn(|index| u32_at(header, LENGTHS_AT + index * 4) as usize);
        let [rows, holes, row_layout, has_rows] = std::array::from_fn(|index| u32_at(header, ROWS_AT + index * 4));
        let lengths = Lengths {
            resource: u32_at(header, RESOURCE_LEN_AT) as usize,
            json,
            sidecars,
            keys,
            count: u32_at(header, COUNT_AT) as usize,
            hashes,
            ordinals,
            rows: rows as usize,
            holes: holes as usize,
            has_rows: has_rows == 1,
        };
        if has_rows > 1 || has_rows == 0 && (rows, holes, row_layout) != (0, 0, 0) {
            return Err(FormatError::new(
                ROWS_AT + 12,
                Reason::Value {
                    field: "rows",
                    value: has_rows.into(),
                },
            ));
        }
        let shelf = Self {
            store: u128_at(header, STORE_AT),
            as_of: u64_at(header, AS_OF_AT),
            header_crc: stored,
            lengths,
            regions: lengths.regions(),
            row_layout,
        };
        shelf.check_header(header, block_len, bytes.len())?;
        Ok(shelf)
    }

    fn check_header(&self, header: &[u8], block_len: usize, file_len: usize) -> Result<(), FormatError> {
        let bad = |at: usize, field, value: usize| {
            Err(FormatError::new(
                at,
                Reason::Value {
                    field,
                    value: value as u64,
                },
            ))
        };
        if header.len() != self.regions.json {
            return bad(12, "shelf header length", header.len());
        }
        if block_len != BLOCK_LEN {
            return bad(LENGTHS_AT + 20, "block length", block_len);
        }
        if let Some(at) = header[RESERVED_AT..HEADER_CRC_AT].iter().position(|&byte| byte != 0) {
            return bad(RESERVED_AT + at, "reserved", 1);
        }
        text(header, HEADER_FIXED_LEN, self.lengths.resource, "resource")?;
        if self.regions.end > PART_LEN_MAX {
            let (value, limit) = (self.regions.end as u64, PART_LEN_MAX as u64);
            return Err(FormatError::new(
                LENGTHS_AT,
                Reason::Limit {
                    field: "part length",
                    value,
                    limit,
                },
            ));
        }
        if file_len < self.regions.end {
            let (needed, available) = (self.regions.end as u64, file_len as u64);
            return Err(FormatError::new(
                0,
                Reason::Truncated {
                    part: "shelf part",
                    needed,
                    available,
                },
            ));
        }
        if file_len > self.regions.end {
            return bad(self.regions.end, "bytes behind the part", file_len - self.regions.end);
        }
        Ok(())
    }

    fn check_index_crc(&self, bytes: &[u8], stored: u32) -> Result<(), FormatError> {
        let at = self.regions.rows_end;
        let computed = crc32fast::hash(slice(bytes, at, self.regions.end - at, "shelf index")?);
        if stored == computed {
            return Ok(());
        }
        Err(FormatError::new(
            at,
            Reason::Checksum {
                part: "shelf index",
                stored,
                computed,
            },
        ))
    }

    fn check_entries(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let keys = text(bytes, self.regions.keys, self.lengths.keys, "keys")?;
        let (mut key_at, mut json_at, mut sidecar_at, mut last) = (0, 0, 0, "");
        for index in 0..self.lengths.count {
            let at = self.regions.index + index * INDEX_ENTRY_LEN;
            let [key_offset, key_len, json_offset, json_len, sidecar_offset, sidecar_len] =
                std::array::from_fn(|field| u32_at(bytes, at + field * 4) as usize);
            if index > 0 {
                json_at += 1; // the comma
            }
            if (key_offset, json_offset, sidecar_offset) != (key_at, json_at, sidecar_at) {
                return Err(FormatError::new(
                    at,
                    Reason::Value {
                        field: "index entry",
                        value: index as u64,
                    },
                ));
            }
            if u32_at(bytes, at + 36) != 0 {
                return Err(FormatError::new(
                    at + 36,
                    Reason::Value {
                        field: "encoding",
                        value: index as u64,
                    },
                ));
            }
            key_at += key_len;
            json_at += json_len;
            sidecar_at += sidecar_len;
            let key = keys.get(key_offset..key_at).ok_or(FormatError::new(
                at,
                Reason::Value {
                    field: "key length",
                    value: key_len as u64,
                },
            ))?;
            // the first may not be empty either: "" < key
            if key <= last {
                return Err(FormatError::new(at, Reason::Order { field: "key" }));
            }
            last = key;
        }
        let found = (key_at, json_at, sidecar_at);
        if found != (self.lengths.keys, self.lengths.json, self.lengths.sidecars) {
            let reason = Reason::Value {
                field: "region length",
                value: json_at as u64,
            };
            return Err(FormatError::new(LENGTHS_AT, reason));
        }
        Ok(())
    }

    /// Every row has room for its object and the brace behind it; holes ascend, and each lies in the row that counts it.
    fn check_rows(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let bad = |at: usize, field| Err(FormatError::new(at, Reason::Order { field }));
        if !self.lengths.has_rows {
            return Ok(());
        }
        let (mut row_end, mut hole_end) = (self.lengths.rows, self.lengths.holes);
        for index in (0..self.lengths.count).rev() {
            let at = self.regions.row_index + index * ROW_ENTRY_LEN;
            let [start, object, first_hole] = std::array::from_fn(|field| u32_at(bytes, at + field * 4) as usize);
            if start + object >= row_end || (index == 0) != (start == 0) {
                return bad(at, "row");
            }
            if first_hole > hole_end || (index == 0 && first_hole > 0) {
                return bad(at + 8, "first hole of a row");
            }
            let mut last = start;
            for hole in first_hole..hole_end {
                let at = self.regions.holes + hole * HOLE_LEN;
                let hole = u32_at(bytes, at) as usize;
                if hole < last || hole >= row_end {
                    return bad(at, "hole");
                }
                last = hole;
            }
            row_end = start.saturating_sub(1); // the comma
            hole_end = first_hole;
        }
        if self.lengths.count == 0 && (self.lengths.rows, self.lengths.holes) != (0, 0) {
            return bad(ROWS_AT, "row");
        }
        Ok(())
    }

    fn check_postings(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let (mut first, mut last_hash) = (0, None);
        for index in 0..self.lengths.hashes {
            let at = self.regions.table + index * TABLE_ENTRY_LEN;
            let (hash, run) = (
                u64_at(bytes, at),
                [
                    u32_at(bytes, at + 8) as usize,
                    (u32_at(bytes, at + 12) & !MIXED) as usize,
                ],
            );
            if last_hash.is_some_and(|last| last >= hash) {
                return Err(FormatError::new(at, Reason::Order { field: "posting hash" }));
            }
            if run[0] != first || run[1] == 0 || run[1] > self.lengths.ordinals - first {
                return Err(FormatError::new(
                    at,
                    Reason::Value {
                        field: "posting run",
                        value: run[1] as u64,
                    },
                ));
            }
            let ordinals = self.run(bytes, run[0], run[1]);
            let in_order = ordinals.iter().is_sorted_by(|a, b| a < b);
            if !in_order
                || ordinals
                    .iter()
                    .next_back()
                    .is_none_or(|last| last as usize >= self.lengths.count)
            {
                let at = self.regions.ordinals + first * 4;
                return Err(FormatError::new(at, Reason::Order { field: "ordinals" }));
            }
            last_hash = Some(hash);
            first += run[1];
        }
        if first != self.lengths.ordinals {
            let reason = Reason::Value {
                field: "ordinal count",
                value: self.lengths.ordinals as u64,
            };
            return Err(FormatError::new(LENGTHS_AT + 16, reason));
        }
        Ok(())
    }

    /// The store's id.
    pub const fn store(&self) -> u128 {
        self.store
    }

    /// The part holds the effect of every write of its resource and key range up to and including this revision.
    pub const fn as_of(&self) -> u64 {
        self.as_of
    }

    /// The header's checksum. It covers the checksums of all else, so with the manifest's copy it names the part.
    pub const fn header_crc(&self) -> u32 {
        self.header_crc
    }

    /// Objects in the part.
    pub const fn count(&self) -> usize {
        self.lengths.count
    }

    /// Length of the file in bytes.
    pub const fn len(&self) -> usize {
        self.regions.end
    }

    /// Whether the part holds no object.
    pub const fn is_empty(&self) -> bool {
        self.lengths.count == 0
    }

    /// The storage resource.
    pub fn resource<'a>(&self, bytes: &'a [u8]) -> &'a str {
        text(bytes, HEADER_FIXED_LEN, self.lengths.resource, "resource").unwrap_or_default()
    }

    /// The key of object `index`; empty when there is none.
    pub fn key<'a>(&self, bytes: &'a [u8], index: usize) -> &'a str {
        std::str::from_utf8(self.key_bytes(bytes, index)).unwrap_or_default()
    }

    /// The bytes of [`Self::key`], for comparisons.
    #[inline]
    pub fn key_bytes<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        if index >= self.lengths.count {
            return &[];
        }
        let at = self.regions.index + index * INDEX_ENTRY_LEN;
        let start = self.regions.keys + u32_at(bytes, at) as usize;
        bytes
            .get(start..start + u32_at(bytes, at + 4) as usize)
            .unwrap_or_default()
    }

    /// Where object `index` lies; empty ranges when there is none.
    #[inline]
    pub fn entry(&self, bytes: &[u8], index: usize) -> Entry {
        if index >= self.lengths.count {
            let (json, sidecar) = (self.regions.sidecars, self.regions.rows);
            return Entry {
                revision: 0,
                shape: 0,
                json: json..json,
                sidecar: sidecar..sidecar,
            };
        }
        let at = self.regions.index + index * INDEX_ENTRY_LEN;
        let json = self.regions.json + u32_at(bytes, at + 8) as usize;
        let sidecar = self.regions.sidecars + u32_at(bytes, at + 16) as usize;
        Entry {
            revision: u64_at(bytes, at + 24),
            shape: u32_at(bytes, at + 32),
            json: json..json + u32_at(bytes, at + 12) as usize,
            sidecar: sidecar..sidecar + u32_at(bytes, at + 20) as usize,
        }
    }

    /// Where the JSON of objects `run` lies, commas between them included; empty when `run` is.
    #[inline]
    pub fn json_run(&self, bytes: &[u8], run: Range<usize>) -> Range<usize> {
        let run = run.start.min(self.lengths.count)..run.end.min(self.lengths.count);
        let first = self.entry(bytes, run.start).json;
        match run.len() {
            0 => first.start..first.start,
            1 => first,
            _ => first.start..self.entry(bytes, run.end - 1).json.end,
        }
    }

    /// The column layout that all rows follow; `None` when the part has no rows.
    pub const fn row_layout(&self) -> Option<u32> {
        if self.lengths.has_rows {
            Some(self.row_layout)
        } else {
            None
        }
    }

    /// Where the Table rows of objects `run` lie, commas between them included; empty when `run` is, or without rows.
    #[inline]
    pub fn rows_run(&self, bytes: &[u8], run: Range<usize>) -> Range<usize> {
        let (start, end) = (run.start, run.end.min(self.lengths.count));
        if start >= end || !self.lengths.has_rows {
            return self.regions.rows..self.regions.rows;
        }
        self.row(bytes, start).start..self.row(bytes, end - 1).end
    }

    /// Where the value of `object` in the row of object `index` lies: its metadata and what frames it.
    #[inline]
    pub fn row_object(&self, bytes: &[u8], index: usize) -> Range<usize> {
        if index >= self.lengths.count || !self.lengths.has_rows {
            return self.regions.rows..self.regions.rows;
        }
        let row = self.row(bytes, index);
        let object = u32_at(bytes, self.regions.row_index + index * ROW_ENTRY_LEN + 4) as usize;
        row.start + object..row.end.saturating_sub(1)
    }

    /// `index` is below the count, and there are rows.
    #[inline]
    fn row(&self, bytes: &[u8], index: usize) -> Range<usize> {
        let at = self.regions.row_index + index * ROW_ENTRY_LEN;
        let end = if index + 1 < self.lengths.count {
            (u32_at(bytes, at + ROW_ENTRY_LEN) as usize).saturating_sub(1)
        } else {
            self.lengths.rows
        };
        self.regions.rows + u32_at(bytes, at) as usize..self.regions.rows + end
    }

    /// The holes in the rows of objects `run`.
    pub fn row_holes<'a>(&self, bytes: &'a [u8], run: Range<usize>) -> RowHoles<'a> {
        let (start, end) = (run.start, run.end.min(self.lengths.count));
        if start >= end || !self.lengths.has_rows {
            return RowHoles::default();
        }
        let holes = bytes.get(self.regions.holes..self.regions.table).unwrap_or_default();
        let first = |index: usize| self.first_hole(bytes, index);
        RowHoles::new(
            holes,
            first(start)..first(end),
            self.row(bytes, start).start - self.regions.rows,
        )
    }

    /// How many holes are in the rows before that of object `index`, which is the count at most; and there are rows.
    fn first_hole(&self, bytes: &[u8], index: usize) -> usize {
        if index == self.lengths.count {
            return self.lengths.holes;
        }
        u32_at(bytes, self.regions.row_index + index * ROW_ENTRY_LEN + 8) as usize
    }

    /// The object of a key, or where it would stand.
    pub fn find(&self, bytes: &[u8], key: &str) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.lengths.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key_bytes(bytes, middle).cmp(key.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The objects that have the label or field of this [`posting_hash`], and perhaps a few others: look at the sidecar.
    pub fn postings<'a>(&self, bytes: &'a [u8], hash: u64) -> Postings<'a> {
        self.posting_run(bytes, hash)
            .map_or_else(Postings::default, |run| self.postings_of(bytes, run))
    }

    /// Where the postings of a [`posting_hash`] lie.
    ///
    /// Numbers are spread evenly, so the place of one is guessed, and the truth lies near: two or three cache lines of the
    /// table are read instead of one for each halving. Whatever the numbers are, the cost is O(log n).
    pub fn posting_run(&self, bytes: &[u8], hash: u64) -> Option<PostingRun> {
        let number = |index: usize| u64_at(bytes, self.regions.table + index * TABLE_ENTRY_LEN);
        let count = self.lengths.hashes;
        let guess = ((u128::from(hash) * count as u128) >> 64) as usize;
        let (mut low, mut high) = (0, count);
        let mut step = 4;
        if guess < count && number(guess) <= hash {
            low = guess;
            while low + step < high {
                if number(low + step) > hash {
                    high = low + step;
                    break;
                }
                low += step;
                step *= 2;
            }
        } else {
            high = guess.min(count);
            while step < high {
                if number(high - step) <= hash {
                    low = high - step;
                    break;
                }
                high -= step;
                step *= 2;
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match number(middle).cmp(&hash) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let at = self.regions.table + middle * TABLE_ENTRY_LEN;
                    let len = u32_at(bytes, at + 12);
                    return Some(PostingRun {
                        first: u32_at(bytes, at + 8),
                        len: len & !MIXED,
                        is_mixed: len & MIXED != 0,
                    });
                }
            }
        }
        None
    }

    /// The objects of a run.
    #[inline]
    pub fn postings_of<'a>(&self, bytes: &'a [u8], run: PostingRun) -> Postings<'a> {
        self.run(bytes, run.first as usize, run.len as usize)
    }

    /// How many postings lists the part has: distinct label pairs, label names and selectable field values.
    pub const fn hash_count(&self) -> usize {
        self.lengths.hashes
    }

    fn run<'a>(&self, bytes: &'a [u8], first: usize, len: usize) -> Postings<'a> {
        let start = self.regions.ordinals + first * 4;
        Postings::new(bytes.get(start..start + len * 4).unwrap_or_default())
    }

    /// Where the checksums of the blocks lie: four bytes each, in the order of the blocks.
    pub const fn block_checksums(&self) -> Range<usize> {
        self.regions.blocks..self.regions.end
    }

    /// Blocks of JSON, sidecars and rows in the part.
    pub const fn block_count(&self) -> usize {
        (self.regions.end - self.regions.blocks) / 4
    }

    /// The blocks that hold these bytes of the file, as far as they are JSON, sidecars or rows.
    #[inline]
    pub fn block_of(&self, range: Range<usize>) -> Range<usize> {
        let start = range.start.clamp(self.regions.json, self.regions.rows_end) - self.regions.json;
        let end = range.end.clamp(self.regions.json, self.regions.rows_end) - self.regions.json;
        if start >= end {
            return start / BLOCK_LEN..start / BLOCK_LEN;
        }
        start / BLOCK_LEN..end.div_ceil(BLOCK_LEN)
    }

    /// Where a block of JSON, sidecars and rows lies in the file; empty for a block that does not exist.
    pub fn block_range(&self, block: usize) -> Range<usize> {
        let at = block.saturating_mul(BLOCK_LEN).saturating_add(self.regions.json);
        let at = at.min(self.regions.rows_end);
        at..at.saturating_add(BLOCK_LEN).min(self.regions.rows_end)
    }

    /// Proves one block of JSON, sidecars and rows by its checksum. To be done before the first use of any byte in it.
    ///
    /// # Errors
    /// [`Reason::Checksum`] with the block's offset in the file; [`Reason::Limit`] for a block that does not exist.
    pub fn check_block(&self, bytes: &[u8], block: usize) -> Result<(), FormatError> {
        let range = self.block_range(block);
        self.check_block_read(bytes, block, slice(bytes, range.start, range.len(), "shelf block")?)
    }

    /// [`Self::check_block`] for bytes of the block that were read apart from the file's, of which only the checksums are
    /// looked at.
    ///
    /// # Errors
    /// Those of [`Self::check_block`].
    pub fn check_block_read(&self, bytes: &[u8], block: usize, read: &[u8]) -> Result<(), FormatError> {
        if block >= self.block_count() {
            let (value, limit) = (block as u64, self.block_count() as u64);
            return Err(FormatError::new(
                self.regions.blocks,
                Reason::Limit {
                    field: "block",
                    value,
                    limit,
                },
            ));
        }
        let computed = crc32fast::hash(read);
        let stored = u32_at(bytes, self.regions.blocks + block * 4);
        if stored == computed {
            return Ok(());
        }
        Err(FormatError::new(
            self.block_range(block).start,
            Reason::Checksum {
                part: "shelf block",
                stored,
                computed,
            },
        ))
    }

    /// Proves the whole part: every block, the commas between objects and between rows, every sidecar. For `store verify`.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), FormatError> {
        for block in 0..self.block_count() {
            self.check_block(bytes, block)?;
        }
        for index in 0..self.count() {
            let entry = self.entry(bytes, index);
            if index > 0 && bytes.get(entry.json.start - 1) != Some(&b',') {
                let reason = Reason::Value {
                    field: "separator before object",
                    value: index as u64,
                };
                return Err(FormatError::new(entry.json.start - 1, reason));
            }
            if index > 0 && self.lengths.has_rows {
                let start = self.row(bytes, index).start;
                if bytes.get(start - 1) != Some(&b',') {
                    let reason = Reason::Value {
                        field: "separator before row",
                        value: index as u64,
                    };
                    return Err(FormatError::new(start - 1, reason));
                }
            }
            let archive = slice(bytes, entry.sidecar.start, entry.sidecar.len(), "sidecar")?;
            sidecar::access(archive).map_err(|error| error.at(entry.sidecar.start))?;
        }
        Ok(())
    }
}
