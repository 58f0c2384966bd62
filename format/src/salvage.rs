//! Reading a damaged log: which records before, between and behind damaged places are whole, and what is known of the lost ones.
//!
//! [`crate::segment::scan`] stops at the first place that is no record. Repair wants what comes behind it. Records prove
//! themselves (two checksums, seeded with store and segment), so each that is found whole is one that was written; what is lost is
//! how it is chained to the one before.

use std::ops::RangeInclusive;

use crate::FormatError;
use crate::Reason;
use crate::frame::{self, ALIGN, Kind, Record, Seed};
use crate::{footer, segment};

/// What is known of a segment from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Store and number.
    pub seed: Seed,
    /// Revision that its first record has or would have.
    pub first_revision: u64,
    /// Where its records end and which revision is the last, if it is sealed. All below the end is synced.
    pub sealed: Option<(usize, u64)>,
    /// First revision of the segment that follows, if one does: then all of this one is synced.
    pub next_revision: Option<u64>,
    /// A revision that is known to have been published: a log that ends below it has lost something.
    pub published: u64,
    /// It is the last revision of all.
    pub is_last: bool,
}

/// A place in a segment where there should be records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first byte that is not proven.
    pub at: usize,
    /// Offset of the next whole record, or where the segment ends.
    pub until: usize,
    /// Lost writes have revisions in this range, which may be empty.
    pub revisions: RangeInclusive<u64>,
    /// Damaged records whose headers are whole.
    pub records: Vec<LostRecord>,
    /// The gap has no other records than these.
    pub is_complete: bool,
}

/// A record whose header is whole and whose payload is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRecord {
    /// Offset in the segment.
    pub offset: usize,
    /// The write's revision. Proven.
    pub revision: u64,
    /// Resource and key as they can be read; the damage may be in them.
    pub likely: Option<(String, String)>,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Behind the last whole record.
    pub end: usize,
    /// Highest revision of a whole record, or one less than the first one that the segment could have.
    pub last_revision: u64,
    /// The damaged places, ascending.
    pub gaps: Vec<Gap>,
    /// Bytes behind the end are a write that stopped half way, not damage.
    pub is_torn: bool,
}

/// Tells every whole record of a segment to `visit`, in order, damaged places passed over. The segment's header is not
/// looked at: all that it says is [`Known`].
///
/// # Errors
/// [`Reason::NewerFormat`] alone, for a record of a newer program.
pub fn walk<'a>(segment: &'a [u8], known: &Known, mut visit: impl FnMut(Record<'a>)) -> Result<Walk, FormatError> {
    let limit = known.sealed.map_or(segment.len(), |(end, _)| end.min(segment.len()));
    let bytes = segment.get(..limit).unwrap_or_default();
    let header = segment::header(known.seed.store, known.seed.segment, known.first_revision);
    let mut crc = Some(segment::header_crc(&header));
    let mut walk = Walk {
        end: segment::HEADER_LEN,
        last_revision: known.first_revision.saturating_sub(1),
        gaps: Vec::new(),
        is_torn: false,
    };
    loop {
        let (at, reason) = match frame::read(bytes, walk.end, &known.seed) {
            Ok(record) if record.revision >= walk.last_revision && crc.is_none_or(|crc| crc == record.previous_crc) => {
                walk.end = record.end();
                walk.last_revision = record.revision;
                crc = Some(record.crc);
                visit(record);
                continue;
            }
            Ok(_) => (walk.end, None),
            Err(error) if matches!(error.reason, Reason::NewerFormat { .. }) => return Err(error),
            Err(error) => (walk.end, Some(error.reason)),
        };
        let used = at + segment::used(bytes.get(at..).unwrap_or_default());
        let is_cut_off = matches!(
            reason,
            Some(Reason::Truncated {
                part: "record payload",
                ..
            })
        );
        let is_at_end = match known.sealed {
            Some((end, _)) => at == end,
            None => used == at || footer::len_at(segment, at, &known.seed).is_some(),
        };
        let reached = walk.last_revision >= known.published;
        if is_at_end && (known.sealed.is_some() || known.next_revision.is_some() || reached) {
            return Ok(walk);
        }
        let is_synced = known.sealed.is_some()
            || known.next_revision.is_some()
            || !reached
            || is_cut_off
            || reason.is_none()
            || segment::proof_of_sync(bytes, at, used, &known.seed).is_some();
        if !is_synced {
            walk.is_torn = true;
            return Ok(walk);
        }
        let first = if reason.is_none() { at } else { at + ALIGN };
        let next = (first..used)
            .step_by(ALIGN)
            .filter_map(|offset| frame::read(bytes, offset, &known.seed).ok())
            .find(|record| record.revision >= walk.last_revision);
        let until = next.map_or(limit.max(at), |record| record.offset);
        let (records, is_filled) = lost_records(bytes, at, until, &known.seed);
        let highest = records.iter().map(|record| record.revision).max().unwrap_or(0);
        let to = match next {
            // A marker bears the revision of the last write before it.
            Some(record) if record.kind == Kind::Marker => record.revision,
            Some(record) => record.revision.saturating_sub(1),
            None => match known.sealed {
                Some((_, last_revision)) => last_revision,
                None => match known.next_revision {
                    Some(next) => next.saturating_sub(1),
                    None if is_cut_off || !(is_filled || known.is_last) => u64::MAX,
                    None => known.published.max(highest),
                },
            },
        };
        walk.gaps.push(Gap {
            at,
            until,
            revisions: walk.last_revision + 1..=to,
            records,
            is_complete: is_filled && !is_cut_off,
        });
        let Some(next) = next else { return Ok(walk) };
        walk.end = next.offset;
        crc = None;
    }
}

/// The records of a damaged place whose headers are whole, and whether they fill it.
fn lost_records(bytes: &[u8], at: usize, until: usize, seed: &Seed) -> (Vec<LostRecord>, bool) {
    let mut records = Vec::new();
    let (mut offset, mut is_filled) = (at, true);
    while offset < until {
        let Some((len, kind_is_write, revision)) = frame::claim_at(bytes, offset, seed) else {
            is_filled = false;
            offset += ALIGN;
            continue;
        };
        if kind_is_write {
            let likely = frame::view(bytes, offset).ok();
            records.push(LostRecord {
                offset,
                revision,
                likely: likely.map(|record| (record.resource.to_owned(), record.key.to_owned())),
            });
        }
        offset += len;
    }
    (records, is_filled && offset == until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{NewRecord, Previous, encode};

    const SEED: Seed = Seed { store: 42, segment: 7 };
    const KNOWN: Known = Known {
        seed: SEED,
        first_revision: 1,
        sealed: None,
        next_revision: None,
        published: 0,
        is_last: false,
    };

    /// A segment of `count` records, each of which calls synced what is before the one before it.
    fn segment_of(count: u64) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = segment::header(SEED.store, SEED.segment, 1).to_vec();
        let mut crc = segment::header_crc(bytes.first_chunk().unwrap());
        let mut starts: Vec<usize> = Vec::new();
        for revision in 1..=count {
            let synced = starts.last().map_or(0, |&start| start as u32);
            starts.push(bytes.len());
            let record = NewRecord {
                kind: Kind::Create,
                revision,
                resource: "configmaps",
                key: &format!("default/{revision}"),
                json: [br#"{"metadata":{"resourceVersion":""#, br#""}}"#],
                sidecar: &[],
                shape: 0,
                previous: Previous::None,
                synced,
            };
            crc = encode(&record, &SEED, crc, &mut bytes);
        }
        bytes.resize(bytes.len() + 8192, 0);
        (bytes, starts)
    }

    fn revisions(bytes: &[u8], known: &Known) -> (Vec<u64>, Walk) {
        let mut found = Vec::new();
        let walk = walk(bytes, known, |record| found.push(record.revision)).unwrap();
        (found, walk)
    }

    #[test]
    fn whole_records_behind_a_damaged_one_are_found_and_the_lost_one_is_named() {
        let (mut bytes, starts) = segment_of(6);
        bytes[starts[2] + frame::HEADER_LEN + 40] ^= 1;
        let (found, walk) = revisions(&bytes, &KNOWN);
        assert_eq!(found, [1, 2, 4, 5, 6]);
        let [gap] = &walk.gaps[..] else { panic!("{walk:?}") };
        assert_eq!((gap.at, gap.until, gap.is_complete), (starts[2], starts[3], true));
        assert_eq!(gap.revisions, 3..=3);
        assert_eq!((gap.records[0].offset, gap.records[0].revision), (starts[2], 3));
        let likely = gap.records[0].likely.clone().unwrap();
        assert_eq!(likely, ("configmaps".to_owned(), "default/3".to_owned()));
    }

    #[test]
    fn a_damaged_header_hides_its_length_but_not_its_neighbours() {
        let (mut bytes, starts) = segment_of(6);
        bytes[starts[2] + 8] ^= 1;
        bytes[starts[3] + 8] ^= 1;
        let (found, walk) = revisions(&bytes, &KNOWN);
        assert_eq!(found, [1, 2, 5, 6]);
        let [gap] = &walk.gaps[..] else { panic!("{walk:?}") };
        assert_eq!((gap.revisions.clone(), gap.is_complete), (3..=4, false));
    }

    #[test]
    fn what_nothing_calls_synced_is_torn_unless_it_is_known_to_have_been_published() {
        let (mut bytes, starts) = segment_of(6);
        bytes[starts[5] + 20] ^= 1;
        let (found, walk) = revisions(&bytes, &KNOWN);
        assert_eq!((found.len(), walk.is_torn, walk.gaps.len()), (5, true, 0));
        // Others may have followed the lost one, unless this was the last segment.
        let (_, walk) = revisions(&bytes, &Known { published: 6, ..KNOWN });
        assert_eq!((walk.is_torn, walk.gaps[0].revisions.clone()), (false, 6..=u64::MAX));
        for known in [
            Known {
                published: 6,
                is_last: true,
                ..KNOWN
            },
            Known {
                next_revision: Some(7),
                ..KNOWN
            },
            Known {
                sealed: Some((bytes.len() - 8192, 6)),
                ..KNOWN
            },
        ] {
            let (found, walk) = revisions(&bytes, &known);
            assert_eq!((found.len(), walk.is_torn), (5, false), "{known:?}");
            assert_eq!(walk.gaps[0].revisions, 6..=6, "{known:?}");
        }
    }

    #[test]
    fn a_whole_segment_has_no_gaps() {
        let (bytes, _) = segment_of(6);
        let (found, walk) = revisions(&bytes, &Known { published: 6, ..KNOWN });
        assert_eq!((found.len(), walk.gaps.len(), walk.is_torn), (6, 0, false));
        assert_eq!(walk.last_revision, 6);
    }
}
