//! The log as a view holds it: its segments, and the index of the active one.

use std::sync::Arc;

use flatkube_format::frame::Record;

use super::error::Damaged;
use super::segment::Segment;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Where a record is. Valid as long as its segment is in the log, which deltas that refer to it guarantee: a segment is
/// only retired when all its records are on shelves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordRef {
    /// Number of the segment.
    pub segment: u32,
    /// Offset in it, in bytes; a multiple of 16.
    pub offset: u32,
}

/// An immutable list of segments with ascending numbers, which have gaps only where the end of a log without syncs was
/// lost. Clone is O(1).
#[derive(Debug, Clone, Default)]
pub struct Log {
    segments: Arc<Vec<Arc<Segment>>>,
}

impl Log {
    pub(super) fn new(segments: Vec<Arc<Segment>>) -> Log {
        debug_assert!(segments.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        Log {
            segments: Arc::new(segments),
        }
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// The segment of this number, unless it is retired or not there yet.
    pub fn segment(&self, number: u32) -> Option<&Arc<Segment>> {
        let first = self.segments.first()?.number();
        match self.segments.get(number.checked_sub(first)? as usize) {
            Some(segment) if segment.number() == number => Some(segment),
            _ => {
                let index = self
                    .segments
                    .binary_search_by_key(&number, |segment| segment.number())
                    .ok()?;
                Some(&self.segments[index])
            }
        }
    }

    /// The segment that takes records; `None` in an empty log.
    pub fn active(&self) -> Option<&Arc<Segment>> {
        self.segments.last()
    }

    /// The record at `at`.
    pub fn record(&self, at: RecordRef) -> Result<Record<'_>, Damaged> {
        self.holding(at)?.record(at.offset)
    }

    /// The segment that holds the record at `at`.
    pub(super) fn holding(&self, at: RecordRef) -> Result<&Arc<Segment>, Damaged> {
        self.segment(at.segment).ok_or_else(|| Damaged {
            file: super::files::segment(at.segment.into()),
            offset: at.offset.into(),
            reason: "the segment of a record is not in the log".into(),
        })
    }

    /// The records of a resource with revisions above `after`, ascending. `index` is that of the resource in the same
    /// view. O(log) to begin, O(1) for each.
    pub(super) fn entries_after<'a>(
        &'a self,
        resource: &'a str,
        index: &'a EntryList,
        after: u64,
    ) -> impl Iterator<Item = (RecordRef, Entry)> + 'a {
        let first = self
            .segments
            .partition_point(|segment| segment.seal_data().is_some_and(|sealed| sealed.last_revision <= after));
        let sealed = self.segments[first..].iter().filter_map(move |segment| {
            let footer = segment.seal_data()?.footer;
            let bytes = segment.bytes();
            let run = footer.run(bytes, resource)?;
            Some((footer.after(bytes, run, after)..run.len()).map(move |index| {
                let entry = footer.entry(bytes, run, index);
                let offset = entry.byte_offset() as u32;
                let at = RecordRef {
                    segment: segment.number(),
                    offset,
                };
                (
                    at,
                    Entry {
                        revision: entry.revision,
                        offset,
                        namespace: entry.namespace,
                    },
                )
            }))
        });
        let active = self.active().map_or(0, |segment| segment.number());
        let rest = (index.after(after)..index.len()).map(move |at| {
            let entry = index.get(at);
            (
                RecordRef {
                    segment: active,
                    offset: entry.offset,
                },
                entry,
            )
        });
        sealed.flatten().chain(rest)
    }

    /// The active segment is replaced by its sealed self, and a new one follows.
    pub(super) fn rotate(&mut self, sealed: Arc<Segment>, active: Arc<Segment>) {
        let segments = Arc::make_mut(&mut self.segments);
        *segments.last_mut().expect("a log has an active segment") = sealed;
        segments.push(active);
    }

    /// Forgets the segments below `number`.
    pub(super) fn retire_below(&mut self, number: u32) {
        Arc::make_mut(&mut self.segments).retain(|segment| segment.number() >= number);
    }
}

/// One record of a resource in the active segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The record's revision.
    pub revision: u64,
    /// Its offset in the active segment, in bytes.
    pub offset: u32,
    /// CRC-32 of the namespace part of the key ("" for objects without one): a filter, not a proof.
    pub namespace: u32,
}

/// The records of one resource in the active segment, ascending by revision. Only the committer appends; clones see
/// what was there when they were made. Clone is O(1), append is amortised O(1), nothing is copied but pointers.
#[derive(Debug, Clone, Default)]
pub struct EntryList {
    chunks: Arc<Vec<Chunk>>,
    len: usize,
}

/// Entries as pairs of words, so that the one appender can fill them while readers hold the chunk.
type Chunk = Arc<[(AtomicU64, AtomicU64)]>;

/// Entries of the first chunk; each further one is twice as long up to `FIRST << DOUBLINGS`.
const FIRST: usize = 16;
const DOUBLINGS: usize = 8;

/// Chunk of entry `index`, and the entry's place in it.
fn place(index: usize) -> (usize, usize) {
    let doubled = (index / FIRST + 1).ilog2() as usize;
    if doubled < DOUBLINGS {
        return (doubled, index - FIRST * ((1 << doubled) - 1));
    }
    let rest = index - FIRST * ((1 << DOUBLINGS) - 1);
    (DOUBLINGS + rest / (FIRST << DOUBLINGS), rest % (FIRST << DOUBLINGS))
}

impl EntryList {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry at `index`.
    ///
    /// # Panics
    /// When `index` is not below [`EntryList::len`].
    pub fn get(&self, index: usize) -> Entry {
        assert!(index < self.len, "entry {index} of {}", self.len);
        let (chunk, place) = place(index);
        let (revision, rest) = &self.chunks[chunk][place];
        // The publication of the view that this list came with ordered these writes before our reads.
        let rest = rest.load(Ordering::Relaxed);
        Entry {
            revision: revision.load(Ordering::Relaxed),
            offset: (rest >> 32) as u32,
            namespace: rest as u32,
        }
    }

    /// Index of the first entry with a revision greater than `revision`. O(log d), d entries from the end: who follows is
    /// near it.
    pub fn after(&self, revision: u64) -> usize {
        let (mut low, mut high) = (0, self.len);
        let mut step = 1;
        while step <= high {
            if self.get(high - step).revision <= revision {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 2;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).revision <= revision {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends. Only for the newest clone of a list: two clones must not both append.
    pub(super) fn push(&mut self, entry: Entry) {
        debug_assert!(self.len == 0 || self.get(self.len - 1).revision < entry.revision);
        let (chunk, place) = place(self.len);
        if chunk == self.chunks.len() {
            let len = FIRST << chunk.min(DOUBLINGS);
            let fresh = (0..len).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
            Arc::make_mut(&mut self.chunks).push(fresh);
        }
        let (revision, rest) = &self.chunks[chunk][place];
        revision.store(entry.revision, Ordering::Relaxed);
        rest.store(
            u64::from(entry.offset) << 32 | u64::from(entry.namespace),
            Ordering::Relaxed,
        );
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_where_they_were_put_and_clones_do_not_see_later_ones() {
        let mut list = EntryList::default();
        let mut clones = Vec::new();
        for index in 0..20_000u32 {
            if index % 777 == 0 {
                clones.push((index as usize, list.clone()));
            }
            list.push(Entry {
                revision: u64::from(index) * 3 + 5,
                offset: index * 16,
                namespace: index ^ 0xffff,
            });
        }
        for index in 0..20_000u32 {
            let expected = Entry {
                revision: u64::from(index) * 3 + 5,
                offset: index * 16,
                namespace: index ^ 0xffff,
            };
            assert_eq!(list.get(index as usize), expected);
            assert_eq!(list.after(expected.revision - 1), index as usize);
            assert_eq!(list.after(expected.revision), index as usize + 1);
        }
        for (len, clone) in clones {
            assert_eq!((clone.len(), clone.after(u64::MAX)), (len, len));
        }
    }
}
