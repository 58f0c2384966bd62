//! A past state of a resource: an overlay over the present one.
//!
//! The state at revision R is the present state, where each key that was written after R is replaced by the version
//! before its first record after R. The overlay holds those keys, in order; it costs 16 bytes for each key written since,
//! and pins nothing but the log segments that its view holds.

use std::ops::Bound;

use super::delta::{Keys, Position};
use super::error::Damaged;
use super::log::{Log, RecordRef};
use super::object::Object;
use super::resource_view::ResourceView;

/// What each key that was written after a revision was at that revision.
pub(super) struct Past {
    /// The first record of each key after the revision, in the order of keys.
    records: Vec<RecordRef>,
    /// At each rank, what the versions of all keys before it add to the number of live objects beneath; one more at the
    /// end for all of them.
    contributions: Vec<i64>,
}

impl Past {
    /// The overlay that turns `present` into the state before `records`: all records of the resource after some
    /// revision, ascending. O(r log r) for r records.
    pub(super) fn new(
        log: &Log,
        present: &ResourceView,
        records: impl IntoIterator<Item = RecordRef>,
    ) -> Result<Past, Damaged> {
        let mut first: Vec<(&[u8], RecordRef, bool)> = Vec::new();
        for at in records {
            let record = log.record(at)?;
            let was_live = record.previous != flatkube_format::frame::Previous::None;
            first.push((record.key.as_bytes(), at, was_live));
        }
        // Stable, so that the first record of each key stays the first.
        first.sort_by(|a, b| a.0.cmp(b.0));
        first.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut contribution = 0;
        let mut past = Past {
            records: Vec::with_capacity(first.len()),
            contributions: vec![0],
        };
        for (key, record, was_live) in first {
            contribution += i64::from(was_live) - i64::from(present.is_live(log, key));
            past.records.push(record);
            past.contributions.push(contribution);
        }
        Ok(past)
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The place before the first key that is not below `bound`.
    pub(super) fn lower(&self, log: &Log, bound: Bound<&[u8]>) -> Position {
        let rank = self.records.partition_point(|&record| {
            let key = log.key(record);
            match bound {
                Bound::Unbounded => false,
                Bound::Included(bound) => key < bound,
                Bound::Excluded(bound) => key <= bound,
            }
        });
        Position {
            rank,
            contribution: self.contributions[rank],
        }
    }

    /// The place behind all keys.
    pub(super) fn end(&self) -> Position {
        Position {
            rank: self.len(),
            contribution: self.contributions[self.len()],
        }
    }

    /// The rank of a key, if the overlay speaks of it.
    pub(super) fn find(&self, log: &Log, key: &[u8]) -> Option<usize> {
        let rank = self.lower(log, Bound::Included(key)).rank;
        (rank < self.len() && log.key(self.records[rank]) == key).then_some(rank)
    }

    /// The version of the key of this rank, if there was one; and the record after it, which bears the key in any case.
    pub(super) fn version(&self, log: &Log, rank: usize) -> Result<(Object, Option<Object>), Damaged> {
        let at = self.records[rank];
        Ok((Object::at(log, at)?, Object::before(log, at)?))
    }
}
