//! A log file: a header of [`HEADER_LEN`] bytes, records from there on, and a footer index once it is sealed.
//!
//! A segment is allocated whole and zero before its first record is written; nothing is ever written behind a place
//! where a record turned out invalid. [`scan`] walks the records after a crash and tells a torn tail, which may be cut,
//! from bit rot, which must not.

use crate::bytes::{u32_at, u64_at, u128_at};
use crate::frame::{self, ALIGN, Record, Seed};
use crate::{FormatError, Reason};

pub use crate::footer::{Footer, FooterBuilder, FooterEntry, Run};

/// First bytes of a segment.
pub const MAGIC: [u8; 8] = *b"\xfffkLOG\r\n";
/// Version of the segment format that is written.
pub const VERSION: u32 = 1;
/// Bytes of a segment's header; the first record begins here.
pub const HEADER_LEN: usize = 64;

const CRC_AT: usize = 60;

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store's id.
    pub store: u128,
    /// The segment's number.
    pub segment: u64,
    /// No record of the segment has a lower revision.
    pub first_revision: u64,
    /// The header's checksum, to which the first record is chained.
    pub crc: u32,
}

impl SegmentHeader {
    /// What checksums of this segment's records are seeded with.
    pub const fn seed(&self) -> Seed {
        Seed {
            store: self.store,
            segment: self.segment,
        }
    }
}

/// The header of a new segment.
pub fn header(store: u128, segment: u64, first_revision: u64) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&store.to_le_bytes());
    header[32..40].copy_from_slice(&segment.to_le_bytes());
    header[40..48].copy_from_slice(&first_revision.to_le_bytes());
    let crc = crc32fast::hash(&header[..CRC_AT]);
    header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The checksum in a segment's header, to which its first record is chained.
pub fn header_crc(header: &[u8; HEADER_LEN]) -> u32 {
    u32_at(header, CRC_AT)
}

/// What the header at the start of a segment says.
pub fn read_header(segment: &[u8]) -> Result<SegmentHeader, FormatError> {
    let Some(header) = segment.first_chunk::<HEADER_LEN>() else {
        let (needed, available) = (HEADER_LEN as u64, segment.len() as u64);
        return Err(FormatError::new(
            0,
            Reason::Truncated {
                part: "segment header",
                needed,
                available,
            },
        ));
    };
    if header[..8] != MAGIC {
        return Err(FormatError::new(0, Reason::Magic { part: "segment" }));
    }
    let (stored, computed) = (header_crc(header), crc32fast::hash(&header[..CRC_AT]));
    if stored != computed {
        return Err(FormatError::new(
            0,
            Reason::Checksum {
                part: "segment header",
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
                    part: "segment",
                    found,
                    supported: VERSION,
                },
            ));
        }
        found => {
            return Err(FormatError::new(
                8,
                Reason::Value {
                    field: "segment version",
                    value: found.into(),
                },
            ));
        }
    }
    if u32_at(header, 12) != 0 || header[48..CRC_AT] != [0; 12] {
        return Err(FormatError::new(
            12,
            Reason::Value {
                field: "reserved",
                value: 1,
            },
        ));
    }
    Ok(SegmentHeader {
        store: u128_at(header, 16),
        segment: u64_at(header, 32),
        first_revision: u64_at(header, 40),
        crc: stored,
    })
}

/// Checksum of the namespace part of a key, as it stands in [`FooterEntry::namespace`]; of nothing (0) when the key has
/// no namespace. Different namespaces may share one: the reader looks at the key.
pub fn namespace_crc(key: &str) -> u32 {
    crc32fast::hash(key.split_once('/').map_or("", |(namespace, _)| namespace).as_bytes())
}

/// What a walk over a segment found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// How many valid records were told to the caller, markers included.
    pub records: u64,
    /// Where the last of them ends, in bytes from the start of the segment; [`HEADER_LEN`] when there is none.
    pub end: usize,
    /// Checksum of the last of them (of the segment header when there is none): what a next record would chain to.
    pub crc: u32,
    /// Highest revision among them (markers included), 0 when there is none.
    pub last_revision: u64,
    /// Highest offset below which a valid record calls everything synced.
    pub synced: usize,
    /// Length of the footer that begins at `end`, when a valid one is there.
    pub footer_len: Option<u32>,
    /// What comes behind the records.
    pub verdict: Verdict,
}

/// What comes behind the last valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, zeros, or a valid footer: the log was ended between two writes.
    Clean,
    /// Bytes of writes that were never synced. They were never acknowledged and may be cut.
    Torn {
        /// Where the invalid record begins.
        at: usize,
        /// Behind the last byte that is not zero: what lies in `at..until` is worth keeping aside.
        until: usize,
        /// Why it is not a record.
        reason: Reason,
    },
    /// Bytes that had been synced, and perhaps acknowledged, are damaged. Nothing may be cut.
    Corrupt {
        /// Where the damaged record begins.
        at: usize,
        /// Offset of the record whose header calls bytes beyond `at` synced; `at` itself when the checksums of the record
        /// there hold and it says what no writer could have meant.
        proof: usize,
        /// What is wrong with the record at `at`.
        reason: Reason,
    },
}

impl Verdict {
    /// Whether a record was begun that does not fit into the bytes: its header is whole. In bytes that are a whole file
    /// this is no torn tail: a segment is allocated whole, and no record is written that it has no room for, so the file
    /// was shortened.
    pub fn runs_out(&self) -> bool {
        let reason = match self {
            Verdict::Clean => return false,
            Verdict::Torn { reason, .. } | Verdict::Corrupt { reason, .. } => reason,
        };
        matches!(reason, Reason::Truncated { part, .. } if *part == "record payload")
    }
}

/// Walks the records of a segment from its header on, tells each valid one to `visit` in log order, and judges what
/// comes behind them.
///
/// A record is valid when [`frame::read`] accepts it and it is chained to the one before. The first place where there is
/// none ends the walk. Lengths behind it are unknown, so the rest is searched at every multiple of 16 bytes for record
/// headers of this very store and segment (their checksum proves them); one that calls bytes beyond the invalid place
/// synced turns a torn tail into corruption. Linear in the length of `segment`; allocates nothing.
///
/// Errors: the segment's header is not valid or not that of `seed`, or a record is of a newer format.
pub fn scan<'a>(segment: &'a [u8], seed: &Seed, mut visit: impl FnMut(Record<'a>)) -> Result<Scan, FormatError> {
    let header = read_header(segment)?;
    if header.store != seed.store {
        return Err(FormatError::new(16, Reason::Foreign { field: "store id" }));
    }
    if header.segment != seed.segment {
        return Err(FormatError::new(
            32,
            Reason::Foreign {
                field: "segment number",
            },
        ));
    }
    let mut scan = Scan {
        records: 0,
        end: HEADER_LEN,
        crc: header.crc,
        last_revision: 0,
        synced: HEADER_LEN,
        footer_len: None,
        verdict: Verdict::Clean,
    };
    let reason = loop {
        match next(segment, &scan, seed) {
            Ok(record) => {
                scan.records += 1;
                scan.end = record.end();
                scan.crc = record.crc;
                scan.last_revision = scan.last_revision.max(record.revision);
                scan.synced = scan.synced.max(record.synced as usize);
                visit(record);
            }
            Err(error) if matches!(error.reason, Reason::NewerFormat { .. }) => return Err(error),
            Err(error) => break error.reason,
        }
    };
    let at = scan.end;
    let until = at + used(segment.get(at..).unwrap_or_default());
    if until == at {
        return Ok(scan);
    }
    scan.footer_len = crate::footer::len_at(segment, at, seed);
    if scan.footer_len.is_some() {
        return Ok(scan);
    }
    scan.verdict = match proof_of_sync(segment, at, until, seed) {
        // checksums hold, so this is no write that stopped half way
        _ if !looks_unfinished(reason) => Verdict::Corrupt { at, proof: at, reason },
        Some(proof) => Verdict::Corrupt { at, proof, reason },
        None => Verdict::Torn { at, until, reason },
    };
    Ok(scan)
}

/// Walks the records of a sealed segment, which the manifest says to end at `end`. There is no torn tail in it: whatever
/// is not a record below `end` is an error.
pub fn scan_sealed<'a>(
    segment: &'a [u8],
    end: usize,
    seed: &Seed,
    visit: impl FnMut(Record<'a>),
) -> Result<Scan, FormatError> {
    let Some(records) = segment.get(..end) else {
        let (needed, available) = (end as u64, segment.len() as u64);
        return Err(FormatError::new(
            0,
            Reason::Truncated {
                part: "sealed segment",
                needed,
                available,
            },
        ));
    };
    let scan = scan(records, seed, visit)?;
    match scan.verdict {
        Verdict::Clean if scan.end == end => Ok(scan),
        Verdict::Clean => Err(FormatError::new(scan.end, Reason::Magic { part: "record" })),
        Verdict::Torn { at, reason, .. } | Verdict::Corrupt { at, reason, .. } => Err(FormatError::new(at, reason)),
    }
}

fn next<'a>(segment: &'a [u8], scan: &Scan, seed: &Seed) -> Result<Record<'a>, FormatError> {
    let record = frame::read(segment, scan.end, seed)?;
    if record.previous_crc != scan.crc {
        let reason = Reason::Chain {
            stored: record.previous_crc,
            expected: scan.crc,
        };
        return Err(FormatError::new(scan.end, reason));
    }
    if record.revision < scan.last_revision {
        return Err(FormatError::new(scan.end, Reason::Order { field: "revision" }));
    }
    Ok(record)
}

/// Whether a write that stopped half way can look like this. All other reasons are found in records whose checksums hold.
fn looks_unfinished(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Magic { .. } | Reason::Checksum { .. } | Reason::Truncated { .. }
    )
}

/// Offset of a record header behind `at` that calls bytes beyond `at` synced.
pub(crate) fn proof_of_sync(segment: &[u8], at: usize, until: usize, seed: &Seed) -> Option<usize> {
    (at + ALIGN..until)
        .step_by(ALIGN)
        .find(|&offset| frame::synced_at(segment, offset, seed).is_some_and(|synced| synced as usize > at))
}

/// Length without the zeros at the end.
pub(crate) fn used(bytes: &[u8]) -> usize {
    const STEP: usize = 4096;
    let (blocks, rest) = bytes.as_chunks::<STEP>();
    let in_bytes = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte != 0).map(|index| index + 1);
    if let Some(len) = in_bytes(rest) {
        return blocks.len() * STEP + len;
    }
    match blocks.iter().rposition(|block| *block != [0; STEP]) {
        Some(index) => index * STEP + in_bytes(&blocks[index]).unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, NewRecord, Previous, encode};

    const SEED: Seed = Seed { store: 42, segment: 7 };

    /// A segment of `count` creates; from the third on, each calls everything before its forerunner synced.
    fn segment(count: usize) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = header(SEED.store, SEED.segment, 1).to_vec();
        let mut crc = header_crc(bytes.first_chunk().unwrap());
        let mut starts = vec![];
        for index in 0..count {
            let synced = index.checked_sub(1).map_or(0, |index| starts[index]) as u32;
            starts.push(bytes.len());
            let record = NewRecord {
                kind: Kind::Create,
                revision: index as u64 + 1,
                resource: "configmaps",
                key: &format!("default/{index}"),
                json: [br#"{"metadata":{"resourceVersion":""#, br#""}}"#],
                sidecar: &[],
                shape: 0,
                previous: Previous::None,
                synced,
            };
            crc = encode(&record, &SEED, crc, &mut bytes);
        }
        (bytes, starts)
    }

    #[test]
    fn damage_below_a_synced_position_is_corruption_and_above_it_a_torn_tail() {
        let (bytes, starts) = segment(6);
        for (index, &start) in starts.iter().enumerate() {
            let mut damaged = bytes.clone();
            damaged.resize(bytes.len() + 8192, 0);
            damaged[start + 100] ^= 1;
            let scan = scan(&damaged, &SEED, |_| {}).unwrap();
            assert_eq!((scan.records, scan.end), (index as u64, start));
            // record i is called synced by record i + 2
            match scan.verdict {
                Verdict::Corrupt { at, proof, .. } => assert_eq!((at, proof), (start, starts[index + 2])),
                Verdict::Torn { at, until, .. } => {
                    assert_eq!(at, start);
                    assert!(index + 2 >= starts.len());
                    assert!(until <= bytes.len() && bytes[until..].iter().all(|&byte| byte == 0));
                }
                Verdict::Clean => panic!("the damage was not seen"),
            }
        }
    }

    #[test]
    fn a_record_out_of_its_chain_is_corruption_even_without_a_later_witness() {
        let (bytes, starts) = segment(3);
        let mut shortened = bytes[..starts[1]].to_vec();
        shortened.extend_from_slice(&bytes[starts[2]..]);
        let scan = scan(&shortened, &SEED, |_| {}).unwrap();
        assert!(
            matches!(
                scan.verdict,
                Verdict::Corrupt {
                    reason: Reason::Chain { .. },
                    ..
                }
            ),
            "{scan:?}"
        );
    }

    #[test]
    fn a_segment_of_another_store_or_number_is_not_walked() {
        let (bytes, _) = segment(1);
        let walk = |seed| scan(&bytes, &seed, |_| {}).unwrap_err().reason;
        assert_eq!(walk(Seed { store: 1, ..SEED }), Reason::Foreign { field: "store id" });
        assert_eq!(
            walk(Seed { segment: 1, ..SEED }),
            Reason::Foreign {
                field: "segment number"
            }
        );
    }

    #[test]
    fn a_footer_behind_the_records_is_a_clean_end() {
        let (mut bytes, starts) = segment(3);
        let end = bytes.len();
        let mut footer = FooterBuilder::new(SEED);
        for (index, &start) in starts.iter().enumerate() {
            let entry = FooterEntry {
                revision: index as u64 + 1,
                offset: (start / ALIGN) as u32,
                namespace: namespace_crc("default/x"),
            };
            footer.push("configmaps", entry);
        }
        let footer = footer.encode(end as u32);
        bytes.extend_from_slice(&footer);
        bytes.resize(bytes.len() + 100, 0);
        let scan = scan(&bytes, &SEED, |_| {}).unwrap();
        assert_eq!(
            (scan.end, scan.verdict, scan.footer_len),
            (end, Verdict::Clean, Some(footer.len() as u32))
        );
        let opened = Footer::open(&bytes, end, footer.len(), &SEED).unwrap();
        let run = opened.run(&bytes, "configmaps").unwrap();
        let offsets: Vec<_> = opened.entries(&bytes, run).map(|entry| entry.byte_offset()).collect();
        assert_eq!(offsets, starts);
        assert_eq!(opened.after(&bytes, run, 1), 1);
        assert_eq!(opened.after(&bytes, run, 3), 3);
        assert!(opened.run(&bytes, "pods").is_none());
        assert!(scan_sealed(&bytes, end, &SEED, |_| {}).is_ok());
        assert!(scan_sealed(&bytes, end - 16, &SEED, |_| {}).is_err());
    }
}
