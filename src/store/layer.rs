//! The layers above the shelf, walked in order of keys: what a [`Listing`](super::listing::Listing) merges.

use std::ops::{Bound, Range, RangeBounds, RangeInclusive};

use super::delta::{Delta, Ordered};
use super::error::Damaged;
use super::log::{Log, RecordRef};
use super::object::{Object, Version};
use super::past::Past;
use super::postings::Posting;
use super::resource_view::Frozen;
use super::tree::Cursor;

/// A delta is walked whole, each object checked against the selection, when its postings list more than one in this
/// many of its keys: gathering and sorting candidates costs about as much per key.
const SCAN_IF_ONE_IN: usize = 8;

/// Slots that are looked up together at most: their records lie far apart, and the processor fetches them side by side.
const BATCH_MAX: usize = 32;

/// The next version that a layer has to offer.
#[derive(Clone)]
pub(super) enum Head {
    /// A live version in the log.
    Logged { segment: u32, version: Version },
    /// The version of a key in the past, if it was there, and an object that bears the key in any case.
    Past { bearer: Object, version: Option<Object> },
}

impl Head {
    pub(super) fn key_bytes<'a>(&'a self, log: &'a Log) -> &'a [u8] {
        match self {
            Head::Logged { segment, version } => {
                log.segment(*segment).map_or(b"", |segment| version.key_bytes(segment))
            }
            Head::Past { bearer, .. } => bearer.key_bytes(),
        }
    }

    /// The version; `None` if the key was not there.
    pub(super) fn object(&self, log: &Log) -> Option<Object> {
        match self {
            Head::Logged { segment, version } => Some(Object::of_version(log.segment(*segment)?, *version)),
            Head::Past { version, .. } => version.clone(),
        }
    }
}

/// Keys between two bounds, as a listing walks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) lower: Bound<Vec<u8>>,
    /// Exclusive.
    pub(super) upper: Option<Vec<u8>>,
}

impl KeyRange {
    pub(super) fn lower(&self) -> Bound<&[u8]> {
        self.lower.as_ref().map(Vec::as_slice)
    }

    pub(super) fn upper(&self) -> Bound<&[u8]> {
        self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// Whether a key is in the range.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&(self.lower(), self.upper()), key)
    }

    /// Ranks of the keys in the range among `len` sorted keys, of which `rank` gives the first that is not below a bound.
    fn ranks(&self, len: usize, rank: impl Fn(Bound<&[u8]>) -> usize) -> Range<usize> {
        let start = rank(self.lower());
        let end = self.upper.as_deref().map_or(len, |upper| rank(Bound::Included(upper)));
        start..end.max(start)
    }
}

/// One layer's versions of a key range in order, with the next one looked at.
#[derive(Clone)]
pub(super) struct Layer {
    walk: Walk,
    pub(super) head: Option<Head>,
    /// Versions behind the head, the next one last.
    ready: Vec<(u32, Version)>,
    /// Slots to look up next time: few for short answers, more as the walk goes on.
    batch: usize,
    /// Whether sidecars will be read, too.
    with_sidecars: bool,
}

#[derive(Clone)]
enum Walk {
    Nothing,
    /// Ranks of a past overlay.
    Past(Range<usize>),
    /// All slots in order.
    Order(Cursor<Ordered>),
    /// Slots of one posting in order.
    Postings(Cursor<Posting>),
    /// Slots of several postings, sorted.
    Gathered(std::vec::IntoIter<u32>),
}

/// What a layer's walk runs over: the listing owns it, the layer only the place in it.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Nothing,
    Past(&'a Past),
    Active(&'a Delta),
    Frozen(&'a Frozen),
}

impl<'a> Source<'a> {
    fn delta(self) -> Option<&'a Delta> {
        match self {
            Source::Active(delta) => Some(delta),
            Source::Frozen(frozen) => Some(&frozen.delta),
            Source::Nothing | Source::Past(_) => None,
        }
    }

    /// The newest record of a slot, unless it is not to be offered: it is a deletion, or a layer above has the key, too.
    fn offered(self, slot: u32) -> Option<RecordRef> {
        let (delta, is_replaced) = match self {
            Source::Active(delta) => (delta, false),
            Source::Frozen(frozen) => (&frozen.delta, frozen.is_replaced(slot)),
            Source::Nothing | Source::Past(_) => return None,
        };
        let slot = delta.slot(slot);
        (!is_replaced && !slot.is_tombstone()).then(|| slot.at())
    }
}

impl Layer {
    /// The versions of `source` in `range`; with `hashes`, at least those that have one of these narrow posting hashes.
    pub(super) fn new(
        source: Source<'_>,
        log: &Log,
        range: &KeyRange,
        hashes: Option<&[RangeInclusive<u32>]>,
    ) -> Layer {
        let walk = match (source, source.delta()) {
            (Source::Past(past), _) => Walk::Past(range.ranks(past.len(), |bound| past.lower(log, bound).rank)),
            (_, Some(delta)) => walk_delta(source, delta, log, range, hashes),
            (_, None) => Walk::Nothing,
        };
        Layer {
            walk,
            head: None,
            ready: Vec::new(),
            batch: 1,
            with_sidecars: false,
        }
    }

    /// Says that the sidecars of what is looked up will be read.
    pub(super) fn read_sidecars(&mut self) {
        self.with_sidecars = true;
    }

    /// Whether nothing is left.
    pub(super) fn is_over(&self) -> bool {
        self.head.is_none() && matches!(self.walk, Walk::Nothing)
    }

    /// Takes the next version in the log, of a delta none of whose versions was looked at.
    pub(super) fn take(&mut self, source: Source<'_>, log: &Log) -> Result<Option<(u32, Version)>, Damaged> {
        if self.ready.is_empty() {
            self.refill(source, log)?;
        }
        Ok(self.ready.pop())
    }

    /// Looks at the next version, if the one that was looked at has been taken.
    pub(super) fn look(&mut self, source: Source<'_>, log: &Log) -> Result<(), Damaged> {
        if self.head.is_some() || matches!(self.walk, Walk::Nothing) {
            return Ok(());
        }
        if let Walk::Past(ranks) = &mut self.walk {
            if let (Some(rank), Source::Past(past)) = (ranks.next(), source) {
                let (bearer, version) = past.version(log, rank)?;
                self.head = Some(Head::Past { bearer, version });
            }
            return Ok(());
        }
        if self.ready.is_empty() {
            self.refill(source, log)?;
        }
        self.head = self
            .ready
            .pop()
            .map(|(segment, version)| Head::Logged { segment, version });
        Ok(())
    }
}

impl Layer {
    /// Looks up the next versions of a delta; the walk is over when there is none.
    fn refill(&mut self, source: Source<'_>, log: &Log) -> Result<(), Damaged> {
        let Layer {
            walk,
            ready,
            batch,
            with_sidecars,
            ..
        } = self;
        match walk {
            Walk::Nothing | Walk::Past(_) => return Ok(()),
            Walk::Order(cursor) => fill(ready, *batch, &mut cursor.map(Ordered::slot), source, log)?,
            Walk::Postings(cursor) => fill(ready, *batch, &mut cursor.map(Posting::slot), source, log)?,
            Walk::Gathered(slots) => fill(ready, *batch, slots, source, log)?,
        }
        if ready.is_empty() {
            *walk = Walk::Nothing;
        }
        if *with_sidecars {
            let read = ready.iter().fold(0, |sum, (segment, version)| {
                sum ^ log
                    .segment(*segment)
                    .map_or(0, |segment| version.touch_sidecar(segment))
            });
            std::hint::black_box(read);
        }
        *batch = (*batch * 2).min(BATCH_MAX);
        Ok(())
    }
}

/// Looks up the next `batch` of `slots` that are to be offered.
fn fill(
    ready: &mut Vec<(u32, Version)>,
    batch: usize,
    slots: &mut impl Iterator<Item = u32>,
    source: Source<'_>,
    log: &Log,
) -> Result<(), Damaged> {
    let mut records = [RecordRef { segment: 0, offset: 0 }; BATCH_MAX];
    let mut count = 0;
    for at in slots.filter_map(|slot| source.offered(slot)).take(batch.min(BATCH_MAX)) {
        records[count] = at;
        count += 1;
    }
    for &at in records[..count].iter().rev() {
        ready.push((at.segment, Version::of(log.holding(at)?, at.offset)?));
    }
    Ok(())
}

fn walk_delta(
    source: Source<'_>,
    delta: &Delta,
    log: &Log,
    range: &KeyRange,
    hashes: Option<&[RangeInclusive<u32>]>,
) -> Walk {
    if delta.is_empty() {
        return Walk::Nothing;
    }
    let postings = delta.postings();
    if let Some([hash]) = hashes
        && hash.start() == hash.end()
    {
        let ranks = postings.ranks_between(*hash.start(), delta, log, range.lower(), range.upper());
        return Walk::Postings(postings.walk(ranks));
    }
    let ranks = range.ranks(delta.len(), |bound| delta.lower(log, bound).rank);
    let all = Walk::Order(delta.walk(ranks.clone()));
    let Some(hashes) = hashes else { return all };
    let listed: usize = hashes.iter().map(|hashes| postings.ranks(hashes).len()).sum();
    if listed * SCAN_IF_ONE_IN >= ranks.len() {
        return all;
    }
    let mut slots = Vec::with_capacity(listed);
    for hashes in hashes {
        let found = postings.walk(postings.ranks(hashes)).map(Posting::slot);
        slots.extend(
            found
                .filter(|&slot| source.offered(slot).is_some())
                .map(|slot| (delta.key(log, slot), slot)),
        );
    }
    slots.retain(|&(key, _)| range.contains(key));
    slots.sort_unstable();
    slots.dedup();
    Walk::Gathered(slots.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>().into_iter())
}
