//! Sidecars that are checked once: one of the three files of the engine with `unsafe` (the others are `map.rs` and
//! `bus_error.rs`).
//!
//! Checking an archive (rkyv's bytecheck) costs more than a reader does with it. So a place remembers that the archives in it
//! were checked, and from then on lends them out unchecked. That is sound because
//!
//! 1. **what was checked does not change**: the bytes are the published ones of a [`Map`], or [`Bytes`] over them, and its
//!    rules say that they never change while the map lives. A program that ignores the lock and writes to the files of a
//!    running server breaks this, and before it the map itself;
//! 2. **what is lent is what was checked**: places are told by object number or by record, never by a range that a caller
//!    brings, and their ranges are read anew from the same unchanging bytes;
//! 3. **only this file says that something was checked**: the marks are private to it.

#![allow(
    unsafe_code,
    reason = "access to archives that were checked before; the one use is justified below"
)]

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use flatkube_format::frame::{self, Kind};
use flatkube_format::shelf::Shelf;
use flatkube_format::sidecar::{self, ArchivedSidecar};
use flatkube_format::{FormatError, Reason, segment};

use super::map::Map;

/// Bytes that [`sidecar::access`] accepted and that have not changed since. Made in this file alone.
#[derive(Clone, Copy)]
struct Checked<'a>(&'a [u8]);

impl<'a> Checked<'a> {
    fn archive(self) -> &'a ArchivedSidecar {
        let archive = self.0.get(sidecar::HEAD_LEN..).unwrap_or_default();
        // SAFETY: `sidecar::access` accepted these bytes: behind the head of `HEAD_LEN` bytes lies a valid archive of this
        // type with its root at the end. They have not changed (rules 1 and 2 above), and the type holds no cells.
        // Archived types are unaligned.
        unsafe { rkyv::access_unchecked::<ArchivedSidecar>(archive) }
    }
}

/// The sidecars of a shelf part, with a bit for each block of 64 KiB: all sidecars that begin in it are checked.
pub(super) struct ShelvedArchives {
    bytes: Bytes,
    shelf: Shelf,
    checked: Box<[AtomicU64]>,
}

impl ShelvedArchives {
    /// `shelf` is what was opened of `bytes`. Nothing is checked yet.
    pub(super) fn new(bytes: Bytes, shelf: Shelf) -> ShelvedArchives {
        let checked = (0..shelf.block_count().div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        ShelvedArchives { bytes, shelf, checked }
    }

    /// The sidecar of the object `index`, if its block is checked. A few nanoseconds.
    pub(super) fn get(&self, index: usize) -> Option<&ArchivedSidecar> {
        if index >= self.shelf.count() {
            return None;
        }
        let range = self.range(index);
        let block = self.block(range.start);
        let word = self.checked.get(block / 64)?.load(Ordering::Relaxed);
        (word >> (block % 64) & 1 == 1).then(|| Checked(self.bytes.get(range).unwrap_or_default()).archive())
    }

    /// The sidecar of the object `index`, checked now.
    pub(super) fn check_one(&self, index: usize) -> Result<&ArchivedSidecar, FormatError> {
        let range = self.range(index);
        let start = range.start;
        sidecar::access(self.bytes.get(range).unwrap_or_default()).map_err(|error| error.at(start))
    }

    /// The objects whose sidecars begin in the same block as that of the object `index`.
    pub(super) fn neighbours(&self, index: usize) -> Range<usize> {
        let block = self.block(self.range(index).start);
        let first_from = |block: usize| {
            let (mut low, mut high) = (0, self.shelf.count());
            while low < high {
                let middle = usize::midpoint(low, high);
                if self.block(self.range(middle).start) < block {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        };
        first_from(block)..first_from(block + 1)
    }

    /// The bytes of the sidecars of some objects.
    pub(super) fn span(&self, objects: &Range<usize>) -> Range<usize> {
        let last = objects.end.saturating_sub(1).max(objects.start);
        self.range(objects.start).start..self.range(last).end
    }

    /// Checks all sidecars that begin in the block of the object `index`, and remembers it if they are all right.
    pub(super) fn check_block_of(&self, index: usize) {
        let objects = self.neighbours(index);
        if !objects.is_empty() && objects.into_iter().all(|object| self.check_one(object).is_ok()) {
            let block = self.block(self.range(index).start);
            if let Some(word) = self.checked.get(block / 64) {
                word.fetch_or(1 << (block % 64), Ordering::Relaxed);
            }
        }
    }

    fn range(&self, index: usize) -> Range<usize> {
        self.shelf.entry(&self.bytes, index).sidecar
    }

    fn block(&self, at: usize) -> usize {
        self.shelf.block_of(at..at + 1).start
    }
}

/// Up to where the records of a map are such that their own sidecars are checked. Part of the [`Map`], so that the mark and
/// the bytes cannot be confused.
#[derive(Debug, Default)]
pub(super) struct CheckedRecords {
    end: AtomicUsize,
}

/// Checks the sidecars of all published records of a log segment that were not checked before, up to the first one that is
/// wrong, if any: that one and those behind it are checked at each access.
pub(super) fn check_records(map: &Map) {
    let bytes = map.bytes();
    let mut at = map
        .checked_records()
        .end
        .load(Ordering::Acquire)
        .max(segment::HEADER_LEN);
    while let Ok(record) = frame::view(bytes, at) {
        if record.kind != Kind::Marker && sidecar::access(record.sidecar).is_err() {
            break;
        }
        at += record.len;
    }
    map.checked_records().end.fetch_max(at, Ordering::AcqRel);
}

/// The sidecar of the version that the record at `offset` carries. `offset` comes from an index or a reference: an accepted
/// record begins there. Unchecked if [`check_records`] has passed it, else checked now.
pub(super) fn of_record(map: &Map, offset: u32) -> Result<&ArchivedSidecar, FormatError> {
    let (bytes, offset) = (map.bytes(), offset as usize);
    let Some(spans) = frame::spans(bytes, offset) else {
        return Err(FormatError {
            offset: offset as u64,
            reason: Reason::Magic { part: "record" },
        });
    };
    let start = spans.sidecar.start;
    let archive = bytes.get(spans.sidecar).unwrap_or_default();
    if offset < map.checked_records().end.load(Ordering::Acquire) && !archive.is_empty() {
        return Ok(Checked(archive).archive());
    }
    sidecar::access(archive).map_err(|error| error.at(start))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flatkube_format::frame::{NewRecord, Previous, Seed};
    use flatkube_format::shelf::ShelfBuilder;
    use flatkube_format::sidecar::Sidecar;

    use super::*;

    fn sidecar(uid: &str) -> Vec<u8> {
        Sidecar {
            uid: uid.to_owned(),
            ..Sidecar::default()
        }
        .archive()
    }

    /// Objects enough for several blocks of sidecars.
    const OBJECTS: usize = 1500;

    fn part() -> Vec<u8> {
        let mut builder = ShelfBuilder::new(7, "toys", 1);
        for n in 0..OBJECTS {
            let archive = sidecar(&format!("a uid that is not kept inline, {n}"));
            builder
                .push(&format!("k{n:06}"), 1, 0, br#"{"metadata":{}}"#, &archive)
                .unwrap();
        }
        builder.finish().concat()
    }

    fn open(bytes: Vec<u8>) -> ShelvedArchives {
        let shelf = Shelf::open(&bytes).unwrap();
        ShelvedArchives::new(bytes.into(), shelf)
    }

    #[test]
    fn a_block_is_lent_out_unchecked_once_all_sidecars_that_begin_in_it_were_checked() {
        let archives = open(part());
        assert!(archives.get(0).is_none());
        archives.check_block_of(0);
        let checked = archives.neighbours(0);
        assert!(checked.len() > 100 && checked.end < OBJECTS, "{checked:?}");
        for index in checked.clone() {
            let uid = format!("a uid that is not kept inline, {index}");
            assert_eq!(archives.get(index).unwrap().uid.as_str(), uid);
        }
        assert!(archives.get(checked.end).is_none());
        assert_eq!(archives.neighbours(checked.end).start, checked.end);
        archives.check_block_of(OBJECTS - 1);
        assert!(archives.get(OBJECTS - 1).is_some());
        assert!(archives.get(OBJECTS).is_none());
    }

    #[test]
    fn a_block_with_one_wrong_archive_is_never_lent_out_unchecked() {
        let bytes = part();
        let wrong = Shelf::open(&bytes).unwrap().entry(&bytes, 5).sidecar;
        let mut bytes = bytes;
        bytes[wrong].fill(0xff);
        let archives = open(bytes);
        archives.check_block_of(0);
        assert!(archives.get(0).is_none());
        assert!(archives.check_one(0).is_ok());
        assert!(archives.check_one(5).is_err());
    }

    #[test]
    fn records_are_lent_out_unchecked_up_to_the_first_wrong_archive() {
        let seed = Seed { store: 1, segment: 1 };
        let mut bytes = segment::header(seed.store, seed.segment, 1).to_vec();
        let mut offsets = Vec::new();
        let mut crc = segment::header_crc(&segment::header(seed.store, seed.segment, 1));
        for (n, archive) in [sidecar("a"), sidecar("b"), vec![0xff; 80], sidecar("d")]
            .iter()
            .enumerate()
        {
            offsets.push(bytes.len() as u32);
            let record = NewRecord {
                kind: Kind::Create,
                revision: n as u64 + 1,
                resource: "toys",
                key: "k",
                json: [br#"{"metadata":{"resourceVersion":""#, br#""}}"#],
                sidecar: archive,
                shape: 0,
                previous: Previous::None,
                synced: 0,
            };
            crc = frame::encode(&record, &seed, crc, &mut bytes);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let map = Map::new(&file, bytes.len(), "t").unwrap();
        map.publish(offsets[1] as usize);
        check_records(&map);
        let end = || map.checked_records().end.load(Ordering::Acquire);
        assert_eq!(end(), offsets[1] as usize);
        map.publish(bytes.len());
        assert_eq!(of_record(&map, offsets[1]).unwrap().uid.as_str(), "b");
        check_records(&map);
        assert_eq!(end(), offsets[2] as usize);
        assert_eq!(of_record(&map, offsets[0]).unwrap().uid.as_str(), "a");
        assert_eq!(of_record(&map, offsets[1]).unwrap().uid.as_str(), "b");
        assert!(of_record(&map, offsets[2]).is_err());
        assert_eq!(of_record(&map, offsets[3]).unwrap().uid.as_str(), "d");
    }
}
