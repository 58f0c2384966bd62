//! One file of the log, as readers see it.

use std::sync::Arc;

use flatkube_format::frame::{self, Record, Seed};
use flatkube_format::manifest;
use flatkube_format::segment::Footer;

use super::error::Damaged;
use super::map::Map;

/// A log segment: a mapped file of which the published prefix may be read.
///
/// The active segment's prefix grows as records are committed. A sealed segment never changes again; it is the same
/// map with an index behind the records.
#[derive(Debug)]
pub struct Segment {
    number: u32,
    seed: Seed,
    /// Revision that the first record has or will have.
    first_revision: u64,
    map: Arc<Map>,
    /// Every published record's checksums were proven by this process: it wrote them, or recovery read them.
    proven: bool,
    sealed: Option<Sealed>,
}

/// What is known of a segment that takes no more records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed {
    /// Where its records end.
    pub(super) end: u32,
    /// Bytes of the footer behind them.
    pub(super) footer_len: u32,
    /// Highest revision of its records; one less than the first if there are none.
    pub(super) last_revision: u64,
    /// When it was sealed, in seconds since 1970.
    pub(super) at: i64,
    /// Its records by resource.
    pub(super) footer: Footer,
}

impl Sealed {
    /// What a manifest says of it.
    pub(super) fn named(&self) -> manifest::Sealed {
        manifest::Sealed {
            end: self.end,
            footer_len: self.footer_len,
            last_revision: self.last_revision,
            sealed_at: self.at,
        }
    }
}

impl Segment {
    pub(super) fn active(seed: Seed, first_revision: u64, map: Arc<Map>) -> Segment {
        map.expect_scattered_reads();
        Segment {
            number: seed.segment as u32,
            seed,
            first_revision,
            map,
            proven: true,
            sealed: None,
        }
    }

    pub(super) fn sealed(seed: Seed, first_revision: u64, map: Arc<Map>, sealed: Sealed, proven: bool) -> Segment {
        map.expect_scattered_reads();
        Segment {
            number: seed.segment as u32,
            seed,
            first_revision,
            map,
            proven,
            sealed: Some(sealed),
        }
    }

    /// This segment, sealed.
    pub(super) fn seal(&self, sealed: Sealed) -> Segment {
        Segment {
            map: self.map.clone(),
            sealed: Some(sealed),
            ..*self
        }
    }

    /// The segment's number: unique in the store, ascending, and what a `RecordRef` names.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Revision that the first record has or will have.
    pub fn first_revision(&self) -> u64 {
        self.first_revision
    }

    pub(super) fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The seal, if it takes no more records.
    pub(super) fn seal_data(&self) -> Option<&Sealed> {
        self.sealed.as_ref()
    }

    /// The map, which keeps the bytes readable after the segment is retired.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// The published bytes from the start of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// The record at `offset`, which must come from an index or reference. Its checksums were proven when it was
    /// published or recovered; in a segment that this process did not read yet they are proven now.
    pub fn record(&self, offset: u32) -> Result<Record<'_>, Damaged> {
        let record = if self.proven {
            frame::view(self.bytes(), offset as usize)
        } else {
            frame::read(self.bytes(), offset as usize, &self.seed)
        };
        record.map_err(|error| Damaged::of(self.map.file(), &error))
    }
}
