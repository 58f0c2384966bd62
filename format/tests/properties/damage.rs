//! Every flipped bit is seen, every prefix opens, and a torn tail is told from bit rot.

use crate::exercise::SEED;
use crate::{exercise, generate};
use flatkube_format::frame;
use flatkube_format::manifest::Manifest;
use flatkube_format::segment::{self, Footer, Verdict};
use flatkube_format::shelf::Shelf;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

proptest! {
    // tens of thousands of bits each
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn every_flipped_bit_of_a_shelf_part_is_seen(objects in generate::objects(1..8)) {
        let bytes = generate::part(&objects);
        for bit in 0..bytes.len() * 8 {
            let flipped = flip(&bytes, bit);
            let seen = match Shelf::open(&flipped) {
                Err(_) => true,
                Ok(shelf) => (0..shelf.block_count()).any(|block| shelf.check_block(&flipped, block).is_err()),
            };
            prop_assert!(seen, "bit {}", bit);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_flipped_bit_of_a_record_is_seen(written in generate::written()) {
        let log = generate::log(&SEED, &[written]);
        let record = &log.bytes[segment::HEADER_LEN..];
        frame::read(&log.bytes, segment::HEADER_LEN, &SEED).unwrap();
        for bit in 0..record.len() * 8 {
            let flipped = flip(&log.bytes, segment::HEADER_LEN * 8 + bit);
            prop_assert!(frame::read(&flipped, segment::HEADER_LEN, &SEED).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_manifest_is_seen(manifest in generate::manifest()) {
        let bytes = manifest.encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            prop_assert!(Manifest::decode(&flip(&bytes, bit)).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn every_prefix_of_a_log_opens(records in vec(generate::written(), 0..6)) {
        let log = generate::log(&SEED, &records);
        for len in segment::HEADER_LEN..=log.bytes.len() {
            // as the file is: the rest allocated and zero; and as a copy of it may be: shorter
            let mut prefix = log.bytes[..len].to_vec();
            for _ in 0..2 {
                let scan = segment::scan(&prefix, &SEED, |_| {}).unwrap();
                let whole = log.starts.iter().skip(1).chain([&log.bytes.len()]).take(records.len()).filter(|&&end| end <= len).count() as u64;
                // a record that lost nothing but zeros is whole once the zeros are back
                prop_assert!(scan.records == whole || prefix.len() > len && scan.records == whole + 1);
                let corrupt = matches!(scan.verdict, Verdict::Corrupt { .. });
prop_assert!(!corrupt, "{:?}", scan);
                exercise::scan(&prefix);
                prefix.resize(log.bytes.len() + 64, 0);
            }
        }
        for len in 0..segment::HEADER_LEN {
            let scan = segment::scan(&log.bytes[..len], &SEED, |_| {});
            prop_assert!(scan.is_err());
        }
    }

    /// The rule of `docs/format.md`: damage at a place that a later record calls synced is corruption, all other damage is
    /// a torn tail; and never is it silence.
    #[test]
    fn damage_is_judged_by_what_later_records_call_synced(
        records in vec(generate::written(), 1..10),
        damaged in any::<Index>(),
        bit in any::<Index>(),
        zeroed in any::<bool>(),
    ) {
        let log = generate::log(&SEED, &records);
        let damaged = damaged.index(records.len());
        let start = log.starts[damaged];
        let end = log.starts.get(damaged + 1).copied().unwrap_or(log.bytes.len());
        let mut bytes = if zeroed { log.bytes.clone() } else { flip(&log.bytes, start * 8 + bit.index((end - start) * 8)) };
        if zeroed {
            // a sector that never reached the disk
            bytes[start..end].fill(0);
        }
        let scan = segment::scan(&bytes, &SEED, |_| {}).unwrap();
        prop_assert_eq!((scan.records, scan.end), (damaged as u64, start));
        let witness = (damaged + 1..records.len()).find(|&later| log.synced[later] > start);
        match (scan.verdict, witness) {
            (Verdict::Corrupt { at, proof, .. }, Some(witness)) => {
                prop_assert_eq!((at, proof), (start, log.starts[witness]));
            }
            (Verdict::Torn { at, .. }, None) => prop_assert_eq!(at, start),
            (Verdict::Clean, None) => prop_assert!(zeroed && damaged + 1 == records.len()),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// A crash keeps any sectors of the writes since the last sync and loses the others. Whatever it keeps, nothing that was
    /// synced is lost and nothing is called corrupt.
    #[test]
    fn any_subset_of_unsynced_sectors_is_a_torn_tail(
        records in vec(generate::written(), 1..16),
        kept in vec(any::<bool>(), 64),
    ) {
        const SECTOR: usize = 512;
        let log = generate::log(&SEED, &records);
        let synced = log.synced.iter().copied().max().unwrap_or(0).max(segment::HEADER_LEN);
        let mut bytes = log.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(SECTOR) + SECTOR, 0);
        for (sector, kept) in bytes.chunks_mut(SECTOR).zip(kept.iter().cycle()).enumerate().map(|(i, (s, k))| ((i, s), k)) {
            let (index, sector) = sector;
            let from = synced.saturating_sub(index * SECTOR).min(sector.len());
            if !kept {
                sector[from..].fill(0);
            }
        }
        let scan = segment::scan(&bytes, &SEED, |_| {}).unwrap();
        prop_assert!(scan.end >= synced);
        let corrupt = matches!(scan.verdict, Verdict::Corrupt { .. });
prop_assert!(!corrupt, "{:?}", scan);
        let intact = log.starts.iter().filter(|&&start| start < scan.end).count() as u64;
        prop_assert_eq!(scan.records, intact);
    }

    /// Stale bytes of another segment or store, whole records among them, are never taken for records of this one.
    #[test]
    fn records_of_another_life_do_not_count(
        records in vec(generate::written(), 0..4),
        stale in vec(generate::written(), 1..4),
        other_store in any::<bool>(),
    ) {
        let other = if other_store { frame::Seed { store: 1, ..SEED } } else { frame::Seed { segment: 6, ..SEED } };
        let log = generate::log(&SEED, &records);
        let mut bytes = log.bytes.clone();
        bytes.extend_from_slice(&generate::log(&other, &stale).bytes[segment::HEADER_LEN..]);
        let scan = segment::scan(&bytes, &SEED, |_| {}).unwrap();
        prop_assert_eq!((scan.records, scan.end), (records.len() as u64, log.bytes.len()));
        let torn = matches!(scan.verdict, Verdict::Torn { .. });
        prop_assert!(torn);
    }

    /// Nor are whole records of this very segment that stand at a place where they were not written.
    #[test]
    fn a_missing_record_breaks_the_chain(records in vec(generate::written(), 2..8), missing in any::<Index>()) {
        let log = generate::log(&SEED, &records);
        let missing = missing.index(records.len() - 1);
        let mut bytes = log.bytes[..log.starts[missing]].to_vec();
        bytes.extend_from_slice(&log.bytes[log.starts[missing + 1]..]);
        let scan = segment::scan(&bytes, &SEED, |_| {}).unwrap();
        prop_assert_eq!(scan.records, missing as u64);
        let corrupt = matches!(scan.verdict, Verdict::Corrupt { .. });
prop_assert!(corrupt, "{:?}", scan);
    }
}

#[test]
fn every_flipped_bit_of_a_segment_header_and_footer_is_seen() {
    use flatkube_format::segment::{FooterBuilder, FooterEntry};
    let header = segment::header(SEED.store, SEED.segment, 77);
    for bit in 0..header.len() * 8 {
        segment::read_header(&flip(&header, bit)).unwrap_err();
    }
    let mut builder = FooterBuilder::new(SEED);
    for (resource, offset) in [("pods", 4), ("pods", 12), ("leases.coordination.k8s.io", 8)] {
        builder.push(
            resource,
            FooterEntry {
                revision: 5,
                offset,
                namespace: 1,
            },
        );
    }
    let end = 1024;
    let mut bytes = vec![0; end];
    bytes.extend_from_slice(&builder.encode(end as u32));
    let len = bytes.len() - end;
    Footer::open(&bytes, end, len, &SEED).unwrap();
    for bit in end * 8..bytes.len() * 8 {
        Footer::open(&flip(&bytes, bit), end, len, &SEED).unwrap_err();
    }
}
