//! No bytes make a reader panic or allocate more than a small multiple of their length: bytes of no meaning, valid things
//! with a few bytes changed, and the same under right checksums, which lets them pass further in.

use crate::exercise::SEED;
use crate::{exercise, generate};
use flatkube_format::segment;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

type Changes = Vec<(Index, u8)>;

fn changes() -> impl Strategy<Value = Changes> {
    vec(
        (any::<Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1)]),
        0..6,
    )
}

fn change(bytes: &mut [u8], from: usize, changes: &Changes) {
    for (index, value) in changes {
        let len = bytes.len() - from;
        if len > 0 {
            bytes[from + index.index(len)] = *value;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn of_no_meaning(mut bytes in vec(any::<u8>(), 0..400)) {
        exercise::sidecar(&bytes);
        prop_assert_eq!(exercise::record(&bytes), 0);
        prop_assert_eq!(exercise::scan(&bytes), 0);
        prop_assert!(!exercise::footer(&bytes, 0, bytes.len()) && !exercise::footer(&bytes, usize::MAX, 1));
        prop_assert!(!exercise::shelf(&bytes) && !exercise::manifest(&bytes));
        if bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[b'f', b'S', 1, 0]);
            exercise::sidecar(&bytes);
        }
    }

    #[test]
    fn changed_sidecars(sidecar in generate::sidecar(), changes in changes(), cut in any::<Index>()) {
        let mut bytes = sidecar.archive();
        change(&mut bytes, 4, &changes);
        exercise::sidecar(&bytes);
        exercise::sidecar(&bytes[..cut.index(bytes.len())]);
        exercise::sidecar(&bytes[cut.index(bytes.len())..]);
    }

    #[test]
    fn changed_logs(records in vec(generate::written(), 1..5), changes in changes()) {
        let log = generate::log(&SEED, &records);
        let mut bytes = log.bytes.clone();
        change(&mut bytes, segment::HEADER_LEN, &changes);
        exercise::record(&bytes);
        exercise::scan(&bytes);
        exercise::seal_segment(&mut bytes);
        exercise::record(&bytes);
        exercise::scan(&bytes);
    }

    #[test]
    fn changed_footers(offsets in vec(0..3u32, 1..6), changes in changes()) {
        let mut builder = segment::FooterBuilder::new(SEED);
        let mut last = 4;
        for (index, step) in offsets.into_iter().enumerate() {
            last += 1 + step;
            let entry = segment::FooterEntry { revision: index as u64, offset: last, namespace: 0 };
            builder.push(["a", "bb"][index % 2], entry);
        }
        let end = segment::HEADER_LEN;
        let mut bytes = vec![0; end];
        // offsets at or beyond the footer: one more thing to be refused
        bytes.extend_from_slice(&builder.encode(end as u32));
        change(&mut bytes, end + 12, &changes);
        exercise::seal_footer(&mut bytes, end, &exercise::SEED);
        prop_assert!(!exercise::footer(&bytes, end, bytes.len() - end));
    }

    #[test]
    fn changed_shelves(objects in generate::objects(0..6), changes in changes()) {
        let mut bytes = generate::part(&objects);
        change(&mut bytes, 8, &changes);
        exercise::shelf(&bytes);
        exercise::seal_shelf(&mut bytes);
        exercise::shelf(&bytes);
    }

    #[test]
    fn changed_manifests(manifest in generate::manifest(), changes in changes()) {
        let mut bytes = manifest.encode().unwrap();
        change(&mut bytes, 8, &changes);
        exercise::manifest(&bytes);
        exercise::seal_manifest(&mut bytes);
        exercise::manifest(&bytes);
    }
}

#[test]
fn the_checksums_of_the_document_are_those_of_the_code() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut new = |_| {
        use proptest::strategy::ValueTree;
        (
            vec(generate::written(), 5),
            generate::objects(3..9),
            generate::manifest(),
        )
            .new_tree(&mut runner)
            .unwrap()
            .current()
    };
    for (records, objects, manifest) in (0..16).map(&mut new) {
        let log = generate::log(&SEED, &records).bytes;
        let mut sealed = log.clone();
        exercise::seal_segment(&mut sealed[..]);
        // the header's first revision is 1 in both
        assert_eq!(sealed, log);
        let part = generate::part(&objects);
        let mut sealed = part.clone();
        assert!(exercise::seal_shelf(&mut sealed));
        assert_eq!(sealed, part);
        let manifest = manifest.encode().unwrap();
        let mut sealed = manifest.clone();
        assert!(exercise::seal_manifest(&mut sealed));
        assert_eq!(sealed, manifest);
    }
}

/// Format 1 is what the committed files say. A writer that makes other bytes makes another format, which needs another
/// version number; and what was written once must be read for ever.
#[test]
fn the_committed_specimens_are_written_and_read_as_ever() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    for specimen in crate::specimens::all() {
        let path = seeds.join(specimen.target).join(&specimen.name);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes, specimen.bytes, "{}", path.display());
        let accepted = match specimen.target {
            "sidecar" => exercise::sidecar(&bytes),
            "record" => exercise::record(&bytes) == 1,
            "segment" => {
                exercise::scan(&bytes)
                    == if specimen.name == "empty" {
                        0
                    } else {
                        exercise::record(&bytes) as u64
                    }
            }
            "shelf" => exercise::shelf(&bytes),
            _ => exercise::manifest(&bytes),
        };
        assert!(accepted, "{}", path.display());
    }
}
