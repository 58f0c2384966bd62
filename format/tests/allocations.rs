//! Readers on the read path allocate nothing, and no reader allocates on the word of bytes that nobody vouches for.

use allocation_counter::measure;
use flatkube_format::manifest::Manifest;
use flatkube_format::shelf::{PostingKind, Shelf, posting_hash};
use flatkube_format::{frame, segment, sidecar};

#[path = "properties/exercise.rs"]
mod exercise;
#[path = "properties/specimens.rs"]
mod specimens;

use exercise::SEED;

fn specimen(target: &str, name: &str) -> Vec<u8> {
    specimens::all()
        .into_iter()
        .find(|specimen| (specimen.target, &*specimen.name) == (target, name))
        .unwrap()
        .bytes
}

#[test]
fn reading_allocates_nothing() {
    let (archive, log, part) = (
        specimen("sidecar", "pod"),
        specimen("segment", "sealed"),
        specimen("shelf", "objects-3"),
    );
    let allocations = measure(|| {
        let sidecar = sidecar::access(&archive).unwrap();
        assert_eq!(sidecar.label("app"), Some("web"));
        assert_eq!(sidecar.field("status.phase"), Some("Running"));

        let record = frame::view(&log, segment::HEADER_LEN).unwrap();
        assert_eq!(frame::read(&log, record.offset, &SEED), Ok(record));
        let scan = segment::scan(&log, &SEED, |_| {}).unwrap();
        let len = scan.footer_len.unwrap() as usize;
        let footer = segment::Footer::open(&log, scan.end, len, &SEED).unwrap();
        let run = footer.run(&log, "pods").unwrap();
        assert_eq!(footer.entries(&log, run).count(), 4);

        let shelf = Shelf::open(&part).unwrap();
        let index = shelf.find(&part, "default/1-labels").unwrap();
        assert_eq!(shelf.entry(&part, index).revision, 9);
        assert!(!shelf.json_run(&part, 0..3).is_empty());
        let postings = shelf.postings(&part, posting_hash(PostingKind::Label, "app", "web"));
        assert_eq!(postings.iter().filter(|&ordinal| ordinal > 0).count(), 2);
        shelf.verify(&part).unwrap();
    });
    assert_eq!(allocations.count_total, 0);
}

/// Counts of thousands of millions in a manifest of a few hundred bytes.
#[test]
fn a_manifest_allocates_no_more_than_a_multiple_of_its_length() {
    let bytes = specimen("manifest", "used");
    for at in 24..bytes.len() - 3 {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
        exercise::seal_manifest(&mut bytes);
        let allocations = measure(|| drop(Manifest::decode(&bytes)));
        assert!(allocations.bytes_max <= 16 * bytes.len() as u64, "{allocations:?}");
    }
}
