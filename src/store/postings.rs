//! Postings of a delta: which keys were ever written with a label or a selectable field value (and, in a tree of its own,
//! which key has which hash).
//!
//! They are hints: a posting stays when the label goes, and two labels may share a hash, so a reader checks the sidecar of
//! every candidate. A posting is 8 bytes: 32 bits of hash and a slot number. The hash of a label begins with bits of the
//! hash of its *name*, so that all keys with a label of some name, whatever its value, are one range of hashes.

use std::cmp::Ordering;
use std::ops::{Bound, Range, RangeInclusive};

use super::delta::{Delta, Keys};
use super::tree::{Cursor, Entry, Tree};

/// Bits of a label's hash that come from its name. The other 18 tell 262,144 values of one label apart.
const NAME_BITS: u32 = 14;

/// Slot numbers ordered by hash, then by the keys of the slots.
#[derive(Clone, Default)]
pub(super) struct Postings {
    tree: Tree<Posting>,
}

/// One key under one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posting {
    hash: u32,
    slot: u32,
}

impl Posting {
    pub(super) fn slot(self) -> u32 {
        self.slot
    }
}

impl Entry for Posting {
    fn weight(&self) -> i64 {
        0
    }
}

/// The 32 bits kept of a posting hash: mixed, because the first bits of an FNV hash hardly depend on the last characters.
pub(super) fn narrow(hash: u64) -> u32 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The 32 bits kept of a label: the first ones from its name's posting hash, the rest from the pair's.
pub(super) fn narrow_pair(name: u64, pair: u64) -> u32 {
    let low = narrow(pair) >> NAME_BITS;
    narrow(name) & !(u32::MAX >> NAME_BITS) | low
}

/// The hashes of all labels of one name.
pub(super) fn of_name(name: u64) -> RangeInclusive<u32> {
    let first = narrow_pair(name, 0);
    first..=first | u32::MAX >> NAME_BITS
}

impl Postings {
    /// Adds a slot under `hash` if it is not there. `compare` compares the key of a slot with that of `slot`.
    pub(super) fn add(&mut self, hash: u32, slot: u32, mut compare: impl FnMut(u32) -> Ordering) {
        let compare = |posting: &Posting| posting.hash.cmp(&hash).then_with(|| compare(posting.slot));
        self.tree.insert(compare, Posting { hash, slot });
    }

    /// The slot under `hash` whose key `compare` finds equal.
    pub(super) fn find(&self, hash: u32, mut compare: impl FnMut(u32) -> Ordering) -> Option<u32> {
        let compare = |posting: &Posting| posting.hash.cmp(&hash).then_with(|| compare(posting.slot));
        self.tree.find(compare).equal.map(Posting::slot)
    }

    /// Ranks of all postings with a hash in this range: their number costs no key reads.
    pub(super) fn ranks(&self, hashes: &RangeInclusive<u32>) -> Range<usize> {
        let first = self
            .tree
            .find(|posting| posting.hash.cmp(hashes.start()).then(Ordering::Greater))
            .rank;
        let end = self
            .tree
            .find(|posting| posting.hash.cmp(hashes.end()).then(Ordering::Less))
            .rank;
        first..end
    }

    /// Ranks of the postings of one hash with a key between two bounds.
    pub(super) fn ranks_between(
        &self,
        hash: u32,
        delta: &Delta,
        keys: &impl Keys,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Range<usize> {
        let place = |bound: Bound<&[u8]>, unbounded: Ordering, included: Ordering| {
            self.tree
                .find(|posting| {
                    posting.hash.cmp(&hash).then_with(|| match bound {
                        Bound::Unbounded => unbounded,
                        Bound::Included(key) => delta.key(keys, posting.slot).cmp(key).then(included),
                        Bound::Excluded(key) => delta.key(keys, posting.slot).cmp(key).then(included.reverse()),
                    })
                })
                .rank
        };
        let first = place(from, Ordering::Greater, Ordering::Greater);
        let end = place(to, Ordering::Less, Ordering::Less);
        first..end.max(first)
    }

    /// The postings of these ranks.
    pub(super) fn walk(&self, ranks: Range<usize>) -> Cursor<Posting> {
        Cursor::new(&self.tree, ranks)
    }
}
