//! What changed in a resource since its shelf: an ordered map in memory that points into the mapped log.
//!
//! Every key that was written has one *slot*, numbered in order of arrival and never moved or removed; it names the key's
//! newest record and tells whether that is a deletion (a *tombstone*). The order of keys and the postings are
//! [trees](super::tree) of slot numbers, so an update of a key changes 8 bytes, and a candidate found by a posting leads to its
//! current version without a search by key. Keys are read from the mapped log, never copied to the heap.
//!
//! Heap per key, measured (`heap_per_object.rs`) for keys in random order with 5 labels and 5 selectable fields each:
//! 110 bytes (8 for the slot, 4 for its place in the order, 8 for its hash, 8 for each of ten postings, the rest for nodes).
//!
//! A clone is O(1) and never changes. Entries are never removed: a delta ends when its shelf is written.

use std::cmp::Ordering;
use std::ops::Bound;

use flatkube_format::frame;

use super::log::{Log, RecordRef};
use super::postings::{Postings, narrow, narrow_pair};
use super::tree::{Cursor, Entry, Tree};

/// Reads the keys that records carry.
pub(super) trait Keys {
    /// Key of the record at `at`; empty if it cannot be read, which fails properly when the object itself is read.
    fn key(&self, at: RecordRef) -> &[u8];
}

impl Keys for Log {
    fn key(&self, at: RecordRef) -> &[u8] {
        self.segment(at.segment)
            .and_then(|segment| frame::key(segment.bytes(), at.offset as usize))
            .unwrap_or_default()
    }
}

/// Slots that one delta can have. Long before it memory is gone; the order packs a slot number with two more bits.
pub(super) const SLOTS_MAX: usize = 1 << 30;

/// An insert-only ordered map from keys to the newest record of each.
#[derive(Clone, Default)]
pub(super) struct Delta {
    slots: imbl::Vector<Slot>,
    order: Tree<Ordered>,
    /// By a hash of the key: finds a key with one key read, where the order takes one for each halving.
    by_key: Postings,
    postings: Postings,
    bytes: u64,
}

/// The newest record of a key. A tombstone is marked in the offset's lowest bit, which is free: records are 16-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    segment: u32,
    offset_and_tombstone: u32,
}

/// A slot number (30 bits) with its contribution (2 bits): live now minus live in what lies beneath, so -1, 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ordered(u32);

/// What [`Delta::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Put {
    /// The key's slot.
    pub(super) slot: u32,
    /// What the slot held before; `None` if the key is new in this delta.
    pub(super) replaced: Option<Slot>,
}

/// A place in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Keys before it.
    pub(super) rank: usize,
    /// What they add to the number of live objects beneath.
    pub(super) contribution: i64,
}

impl Slot {
    pub(super) fn new(at: RecordRef, tombstone: bool) -> Slot {
        debug_assert!(at.offset.is_multiple_of(16));
        Slot {
            segment: at.segment,
            offset_and_tombstone: at.offset | u32::from(tombstone),
        }
    }

    /// The key's newest record.
    pub(super) fn at(self) -> RecordRef {
        RecordRef {
            segment: self.segment,
            offset: self.offset_and_tombstone & !1,
        }
    }

    /// Whether that record deletes the key.
    pub(super) fn is_tombstone(self) -> bool {
        self.offset_and_tombstone & 1 == 1
    }
}

impl Ordered {
    fn new(slot: u32, contribution: i64) -> Ordered {
        debug_assert!((-1..=1).contains(&contribution));
        Ordered(slot << 2 | (contribution + 1) as u32)
    }

    pub(super) fn slot(self) -> u32 {
        self.0 >> 2
    }
}

impl Entry for Ordered {
    fn weight(&self) -> i64 {
        i64::from(self.0 & 3) - 1
    }
}

impl Delta {
    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of log that were written into this delta, as told to [`Delta::put`].
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The slot of this number, which must be below [`Delta::len`].
    pub(super) fn slot(&self, number: u32) -> Slot {
        self.slots[number as usize]
    }

    /// Key of the slot of this number.
    pub(super) fn key<'a>(&self, keys: &'a impl Keys, number: u32) -> &'a [u8] {
        keys.key(self.slot(number).at())
    }

    /// The number of a key's slot. One key read, or a few if others have the same hash.
    pub(super) fn find(&self, keys: &impl Keys, key: &[u8]) -> Option<u32> {
        let compare = |slot| self.key(keys, slot).cmp(key);
        self.by_key.find(crc32fast::hash(key), compare)
    }

    /// The place before the first key that is not below `bound`. O(log n) key reads, none for an unbounded one.
    pub(super) fn lower(&self, keys: &impl Keys, bound: Bound<&[u8]>) -> Position {
        let equal = match bound {
            Bound::Unbounded => {
                return Position {
                    rank: 0,
                    contribution: 0,
                };
            }
            Bound::Included(_) => Ordering::Greater,
            Bound::Excluded(_) => Ordering::Less,
        };
        let (Bound::Included(key) | Bound::Excluded(key)) = bound else {
            unreachable!("returned above")
        };
        let place = self
            .order
            .find(|entry| self.key(keys, entry.slot()).cmp(key).then(equal));
        Position {
            rank: place.rank,
            contribution: place.weight,
        }
    }

    /// The place behind all keys.
    pub(super) fn end(&self) -> Position {
        Position {
            rank: self.len(),
            contribution: self.order.weight(),
        }
    }

    /// Slot numbers in the order of their keys, of these ranks.
    pub(super) fn walk(&self, ranks: std::ops::Range<usize>) -> Cursor<Ordered> {
        Cursor::new(&self.order, ranks)
    }

    /// All slots in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.order.iter().map(|entry| self.slot(entry.slot()))
    }

    /// The keys of live versions by what they are labelled with.
    pub(super) fn postings(&self) -> &Postings {
        &self.postings
    }

    /// Makes the record at `at` the newest of `key`. `beneath` tells, for a key that is new here, whether it is live in
    /// what lies beneath; `bytes` is what the record weighs in [`Delta::bytes`].
    pub(super) fn put(
        &mut self,
        keys: &impl Keys,
        key: &[u8],
        at: RecordRef,
        tombstone: bool,
        beneath: bool,
        bytes: u64,
    ) -> Put {
        self.bytes += bytes;
        let slot = Slot::new(at, tombstone);
        let live = i64::from(!tombstone);
        let Some(number) = self.find(keys, key) else {
            let number = self.slots.len() as u32;
            assert!(self.slots.len() < SLOTS_MAX, "a delta was not shelved in time");
            self.slots.push_back(slot);
            let Delta {
                slots, order, by_key, ..
            } = self;
            let compare = |slot: u32| keys.key(slots[slot as usize].at()).cmp(key);
            let entry = Ordered::new(number, live - i64::from(beneath));
            order.insert(|entry| compare(entry.slot()), entry);
            by_key.add(crc32fast::hash(key), number, compare);
            return Put {
                slot: number,
                replaced: None,
            };
        };
        let replaced = self.slots.set(number as usize, slot);
        let change = live - i64::from(!replaced.is_tombstone());
        if change != 0 {
            let Delta { slots, order, .. } = self;
            let compare = |entry: &Ordered| keys.key(slots[entry.slot() as usize].at()).cmp(key);
            if let Some(entry) = order.find(compare).equal {
                order.insert(compare, Ordered::new(number, entry.weight() + change));
            }
        }
        Put {
            slot: number,
            replaced: Some(replaced),
        }
    }

    /// Lists a slot under a posting of a shelf's kind; `name` is the posting of the label's name if it is one of a label.
    pub(super) fn list_under(&mut self, keys: &impl Keys, key: &[u8], slot: u32, name: Option<u64>, pair: u64) {
        let hash = name.map_or_else(|| narrow(pair), |name| narrow_pair(name, pair));
        let Delta { slots, postings, .. } = self;
        postings.add(hash, slot, |slot| keys.key(slots[slot as usize].at()).cmp(key));
    }
}
