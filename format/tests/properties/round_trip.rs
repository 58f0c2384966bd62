//! What is written reads back as it was written.

use crate::exercise::SEED;
use crate::{exercise, generate};
use flatkube_format::frame::{self, Kind, Previous};
use flatkube_format::manifest::Manifest;
use flatkube_format::segment::{self, Footer, FooterBuilder, FooterEntry, Verdict};
use flatkube_format::shelf::{PostingKind, Shelf, posting_hash};
use flatkube_format::sidecar::{self, Sidecar, digits};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sidecars(sidecar in generate::sidecar()) {
        let bytes = sidecar.archive();
        let read = sidecar::access(&bytes).unwrap();
        prop_assert!(exercise::sidecar(&bytes));
        for pair in &sidecar.labels {
            prop_assert_eq!(read.label(&pair.name), Some(&*pair.value));
        }
        for pair in &sidecar.fields {
            prop_assert_eq!(read.field(&pair.name), Some(&*pair.value));
        }
        let back = rkyv::api::low::deserialize::<Sidecar, rkyv::rancor::Failure>(read).unwrap();
        prop_assert_eq!(back, sidecar);
    }

    #[test]
    fn a_sidecar_reads_the_same_wherever_it_lies(sidecar in generate::sidecar(), shift in 0..16usize) {
        let mut moved = vec![0xa5; shift];
        moved.extend_from_slice(&sidecar.archive());
        let read = sidecar::access(&moved[shift..]).unwrap();
        let back = rkyv::api::low::deserialize::<Sidecar, rkyv::rancor::Failure>(read).unwrap();
        prop_assert_eq!(back, sidecar);
    }

    #[test]
    fn logs(records in vec(generate::written(), 0..12), zeros in 0..300usize) {
        let log = generate::log(&SEED, &records);
        let mut bytes = log.bytes.clone();
        bytes.resize(bytes.len() + zeros, 0);
        let mut seen = vec![];
        let scan = segment::scan(&bytes, &SEED, |record| seen.push(record)).unwrap();
        prop_assert_eq!((scan.verdict, scan.end), (Verdict::Clean, log.bytes.len()));
        prop_assert_eq!(scan.synced, log.synced.iter().copied().fold(segment::HEADER_LEN, usize::max));
        prop_assert_eq!(seen.len(), records.len());
        let mut revision = 9;
        for (index, (record, written)) in seen.iter().zip(&records).enumerate() {
            revision += written.step;
            prop_assert_eq!((record.offset, record.synced as usize), (log.starts[index], log.synced[index]));
            prop_assert_eq!((record.kind, record.revision, record.shape), (written.kind, revision, written.shape));
            prop_assert_eq!((record.resource, record.key), (&*written.resource, &*written.key));
            prop_assert_eq!(record.sidecar, &*written.sidecar);
            let digits = if written.kind == Kind::Marker { String::new() } else { digits(revision).to_string() };
            let json = [&*written.json[0], digits.as_bytes(), &*written.json[1]].concat();
            prop_assert_eq!(record.json, &*json);
            prop_assert_eq!(record.splice as usize, written.json[0].len());
            match (&written.previous, record.previous) {
                (None, previous) => prop_assert_eq!(previous, Previous::None),
                (Some(_), Previous::Reference { offset }) => prop_assert_eq!(offset as usize, log.starts[index - 1]),
                (Some((revision, json, sidecar, shape)), previous) => {
                    prop_assert_eq!(previous, Previous::Inline { revision: *revision, json, sidecar, shape: *shape });
                }
            }
            prop_assert_eq!(frame::view(&bytes, record.offset), Ok(*record));
        }
        exercise::scan(&bytes);
    }

    #[test]
    fn footers(resources in btree_map("[a-z.]{1,16}", vec((0..3u64, 1..40u32, any::<u32>()), 1..9), 0..6)) {
        let mut builder = FooterBuilder::new(SEED);
        let mut runs = vec![];
        for (name, steps) in &resources {
            let (mut revision, mut offset) = (1, 3);
            let mut run = vec![];
            for &(revision_step, offset_step, namespace) in steps {
                revision += revision_step;
                offset += offset_step;
                run.push(FooterEntry { revision, offset, namespace });
                builder.push(name, run[run.len() - 1]);
            }
            runs.push((name.as_str(), run));
        }
        let end = 64 + 16 * 40 * 10;
        let footer = builder.encode(end as u32);
        prop_assert_eq!(footer.len(), builder.encoded_len());
        let mut bytes = vec![0; end];
        bytes.extend_from_slice(&footer);
        let opened = Footer::open(&bytes, end, footer.len(), &SEED).unwrap();
        let read: Vec<_> =
            opened.resources(&bytes).map(|(name, run)| (name, opened.entries(&bytes, run).collect::<Vec<_>>())).collect();
        prop_assert_eq!(read, runs);
        prop_assert!(exercise::footer(&bytes, end, footer.len()));
    }

    #[test]
    fn manifests(manifest in generate::manifest()) {
        let bytes = manifest.encode().unwrap();
        prop_assert_eq!(Manifest::decode(&bytes).unwrap(), manifest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shelves(objects in generate::objects(0..30), probe in "[a-c]{1,3}/[a-d]{1,4}") {
        let bytes = generate::part(&objects);
        let shelf = Shelf::open(&bytes).unwrap();
        shelf.verify(&bytes).unwrap();
        prop_assert!(exercise::shelf(&bytes));
        prop_assert_eq!(shelf.count(), objects.len());
        for (index, (key, (revision, shape, json, sidecar))) in objects.iter().enumerate() {
            prop_assert_eq!(shelf.key(&bytes, index), key);
            let entry = shelf.entry(&bytes, index);
            prop_assert_eq!((entry.revision, entry.shape), (*revision, *shape));
            prop_assert_eq!(&bytes[entry.json], &json[..]);
            prop_assert_eq!(&bytes[entry.sidecar], &sidecar.archive()[..]);
        }
        let keys: Vec<_> = objects.keys().collect();
        prop_assert_eq!(shelf.find(&bytes, &probe), keys.binary_search(&&probe));
        let all: Vec<_> = objects.values().map(|(_, _, json, _)| &json[..]).collect();
        for (start, end) in [(0, all.len()), (all.len() / 3, all.len() / 2)] {
            prop_assert_eq!(&bytes[shelf.json_run(&bytes, start..end)], all[start..end].join(&b','));
        }
    }

    /// A row is the sidecar's text and the metadata between the frame, with the revision in its holes; the other holes
    /// are told by their places.
    #[test]
    fn rows(objects in generate::objects(1..30)) {
        let bytes = generate::part(&objects);
        let shelf = Shelf::open(&bytes).unwrap();
        let mut expected = vec![];
        let (mut places, mut layouts) = (vec![], std::collections::BTreeSet::new());
        for (revision, _, json, sidecar) in objects.values() {
            layouts.insert(sidecar.layout);
            let archive = sidecar.archive();
            let read = sidecar::access(&archive).unwrap();
            let Some(metadata) = json.get(read.metadata_span(digits(*revision).len())) else {
                layouts.insert(sidecar.layout.wrapping_add(1));
                break;
            };
            let start = expected.iter().map(|row: &Vec<u8>| row.len() + 1).sum::<usize>();
            let mut row = vec![];
            for (piece, fill) in read.row_pieces() {
                row.extend_from_slice(piece);
                match fill {
                    Some(sidecar::ArchivedFill::Since(at)) => places.push((start + row.len(), at.to_native())),
                    Some(sidecar::ArchivedFill::Revision) => row.extend_from_slice(digits(*revision).as_bytes()),
                    None => {}
                }
            }
            let object = [b"<", metadata, b">"].concat();
            if layouts.len() == 1 {
                prop_assert!(shelf.row_layout().is_none() || bytes[shelf.row_object(&bytes, expected.len())] == object);
            }
            row.extend_from_slice(&object);
            row.push(b'}');
            expected.push(row);
        }
        if layouts.len() > 1 {
            prop_assert_eq!(shelf.row_layout(), None);
            prop_assert!(shelf.rows_run(&bytes, 0..shelf.count()).is_empty());
            return Ok(());
        }
        prop_assert_eq!(shelf.row_layout(), layouts.first().copied());
        let all = shelf.rows_run(&bytes, 0..shelf.count());
        prop_assert_eq!(&bytes[all.clone()], expected.join(&b','));
        prop_assert_eq!(shelf.row_holes(&bytes, 0..shelf.count()).collect::<Vec<_>>(), places.clone());
        let middle = shelf.count() / 2;
        let rest = shelf.rows_run(&bytes, middle..shelf.count());
        prop_assert_eq!(&bytes[rest.clone()], expected[middle..].join(&b','));
        let start = rest.start - all.start;
        let behind: Vec<_> = places.iter().filter(|(at, _)| *at >= start).map(|(at, since)| (at - start, *since)).collect();
        prop_assert_eq!(shelf.row_holes(&bytes, middle..shelf.count()).collect::<Vec<_>>(), behind);
    }

    /// Every label pair, label name, field value and owner leads to exactly the objects that have it.
    #[test]
    fn postings(objects in generate::objects(1..30)) {
        let bytes = generate::part(&objects);
        let shelf = Shelf::open(&bytes).unwrap();
        let having = |holds: &dyn Fn(&Sidecar) -> bool| -> Vec<u32> {
            (0u32..).zip(objects.values()).filter(|(_, object)| holds(&object.3)).map(|(ordinal, _)| ordinal).collect()
        };
        let found = |kind, name: &str, value: &str| -> Vec<u32> {
            shelf.postings(&bytes, posting_hash(kind, name, value)).iter().collect()
        };
        let mut hashes = std::collections::BTreeSet::new();
        for (_, _, _, sidecar) in objects.values() {
            for pair in &sidecar.labels {
                prop_assert_eq!(found(PostingKind::Label, &pair.name, &pair.value), having(&|s| s.labels.contains(pair)));
                let named = having(&|s| s.labels.iter().any(|other| other.name == pair.name));
                prop_assert_eq!(found(PostingKind::LabelName, &pair.name, ""), named);
                hashes.insert(posting_hash(PostingKind::Label, &pair.name, &pair.value));
                hashes.insert(posting_hash(PostingKind::LabelName, &pair.name, ""));
            }
            for pair in &sidecar.fields {
                prop_assert_eq!(found(PostingKind::Field, &pair.name, &pair.value), having(&|s| s.fields.contains(pair)));
                hashes.insert(posting_hash(PostingKind::Field, &pair.name, &pair.value));
            }
            for owner in sidecar.owners.iter().filter(|owner| !owner.is_empty()) {
                prop_assert_eq!(found(PostingKind::Owner, "", owner), having(&|s| s.owners.contains(owner)));
                hashes.insert(posting_hash(PostingKind::Owner, "", owner));
            }
            if !sidecar.owners.is_empty() {
                prop_assert_eq!(found(PostingKind::Owner, "", ""), having(&|s| !s.owners.is_empty()));
                hashes.insert(posting_hash(PostingKind::Owner, "", ""));
            }
        }
        prop_assert_eq!(shelf.hash_count(), hashes.len());
    }
}
