//! Maps of files: one of the three files of the engine with `unsafe` (the others are `archive.rs` and `bus_error.rs`).
//!
//! A [`Map`] covers a whole file, read-only, and lends out only its *published* range, from the start of the file to a
//! mark that only moves up. Three rules make the lent `&[u8]` sound:
//!
//! 1. **Published bytes never change.** Files are written by `pwrite`, never through a map, and
//!    [`DiskFile::write_at`](super::disk::DiskFile::write_at) refuses to write below the published mark of the file's map.
//! 2. **A mapped file is never truncated.** There is no operation for it in the `Disk` trait; a file is only unlinked,
//!    and its pages live on until the last map is dropped.
//! 3. **Nobody else writes the files.** The data directory is locked. A foreign program that ignores the lock and
//!    changes files under a running server breaks this assumption, as it does for every database that maps files.
//!
//! A page that the device can no longer read raises `SIGBUS` and ends the process: `bus_error.rs`.

#![allow(
    unsafe_code,
    reason = "maps lend out slices of files; the one use is justified below"
)]

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use memmap2::{Advice, MmapOptions, MmapRaw};

use super::archive::CheckedRecords;
use super::bus_error::Registration;

/// A read-only map of a whole file, of which `0..published` may be read.
pub struct Map {
    /// Before the map itself, so that it is dropped before it.
    _registration: Registration,
    raw: MmapRaw,
    published: AtomicUsize,
    /// Up to where the records, if it is a log segment, have sidecars that were checked.
    checked_records: CheckedRecords,
    file: Box<str>,
}

impl Map {
    /// Maps the first `len` bytes of `file`, which must be at least that long. Nothing is published yet.
    ///
    /// `name` is the file's name for error messages.
    pub(super) fn new(file: &impl AsRawFd, len: usize, name: &str) -> io::Result<Map> {
        let raw = MmapOptions::new().len(len).map_raw_read_only(file.as_raw_fd())?;
        Ok(Map {
            _registration: Registration::new(raw.as_ptr(), len, name),
            raw,
            published: AtomicUsize::new(0),
            checked_records: CheckedRecords::default(),
            file: name.into(),
        })
    }

    /// Bytes that are mapped, published or not.
    pub fn capacity(&self) -> usize {
        self.raw.len()
    }

    /// End of the published range.
    pub fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Lends out everything below `end`. From here on those bytes must never change.
    ///
    /// The mark never moves down. An `end` beyond the map is a bug of the caller and stops the process's thread.
    pub(super) fn publish(&self, end: usize) {
        assert!(
            end <= self.raw.len(),
            "published {end} of {} mapped bytes of {}",
            self.raw.len(),
            self.file
        );
        self.published.fetch_max(end, Ordering::AcqRel);
    }

    /// The published bytes, from the start of the file.
    pub fn bytes(&self) -> &[u8] {
        let published = self.published();
        // SAFETY: `publish` asserted that `published` lies within the map, which stays mapped as long as `self` lives
        // and whose file is never truncated (rule 2). The bytes do not change any more (rules 1 and 3), so sharing them
        // as `&[u8]` is sound. Any byte pattern is a valid `u8`. A map is at most `isize::MAX` bytes long (memmap2).
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr(), published) }
    }

    /// The published bytes of `range`.
    ///
    /// # Panics
    /// When `range` is not published.
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes()[range]
    }

    pub(super) fn checked_records(&self) -> &CheckedRecords {
        &self.checked_records
    }

    /// Tells the kernel that the file is read here and there, so that a page that is not in memory brings none of its
    /// neighbours along. Without it each costs a whole read-ahead window, and in little memory pushes out as much.
    pub(super) fn expect_scattered_reads(&self) {
        // It is advice: without it everything is as right.
        let _ = self.raw.advise(Advice::Random);
    }

    /// Tells the kernel that all of `range` is about to be read. Costs a look at each page, about 0.1 µs per 64 KiB that
    /// are in memory. In pieces, because the kernel reads no more for one advice than the device's read-ahead window.
    pub(super) fn expect_all_of(&self, range: Range<usize>) {
        const PIECE: usize = 128 << 10;
        for start in range.clone().step_by(PIECE) {
            let len = PIECE.min(range.end - start);
            let _ = self.raw.advise_range(Advice::WillNeed, start, len);
        }
    }

    /// The bytes that are published now, as a slice that keeps the map alive.
    pub(super) fn owned(self: &Arc<Map>) -> Bytes {
        struct Mapped(Arc<Map>);
        impl AsRef<[u8]> for Mapped {
            fn as_ref(&self) -> &[u8] {
                self.0.bytes()
            }
        }
        Bytes::from_owner(Mapped(Arc::clone(self)))
    }

    /// The name of the mapped file, for error messages.
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Map({}, {} of {} bytes published)",
            self.file,
            self.published(),
            self.raw.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_the_published_range_is_lent_out() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        let map = Map::new(&file, 6, "t").unwrap();
        assert_eq!(map.bytes(), b"");
        map.publish(3);
        assert_eq!(map.bytes(), b"abc");
        map.publish(2);
        assert_eq!(map.bytes(), b"abc", "the mark never moves down");
    }

    #[test]
    #[should_panic(expected = "published 7 of 6")]
    fn publishing_beyond_the_map_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        Map::new(&file, 6, "t").unwrap().publish(7);
    }
}
