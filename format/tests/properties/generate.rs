//! Arbitrary valid things, for the property tests.

#![allow(dead_code, reason = "each user needs a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use flatkube_format::frame::{self, Kind, NewRecord, Previous, Seed};
use flatkube_format::manifest::{Manifest, PartEntry, ResourceEntry, Sealed, SegmentEntry};
use flatkube_format::segment;
use flatkube_format::shelf::{RowFrame, ShelfBuilder};
use flatkube_format::sidecar::{Fill, Hole, Pair, Sidecar, digit_count};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

/// Text short and long enough for both ways in which an archive holds strings.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,8}", "\\PC{0,24}"]
}

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    btree_map(text(), text(), 0..6)
        .prop_map(|pairs| pairs.into_iter().map(|(name, value)| Pair { name, value }).collect())
}

fn hole() -> impl Strategy<Value = Hole> {
    let fill = prop_oneof![any::<i64>().prop_map(Fill::Since), Just(Fill::Revision)];
    (prop_oneof![0..40u32, any::<u32>()], fill).prop_map(|(at, fill)| Hole { at, fill })
}

pub(crate) fn sidecar() -> impl Strategy<Value = Sidecar> {
    let numbers = any::<(u32, u32, u32, u32, i64)>();
    let row = (text(), vec(hole(), 0..4));
    (numbers, text(), pairs(), pairs(), vec(text(), 0..3), row).prop_map(
        |((layout, metadata_start, splice, metadata_tail, created), uid, labels, fields, owners, (row, holes))| {
            Sidecar {
                layout,
                metadata_start,
                splice,
                metadata_tail,
                created,
                uid,
                labels,
                fields,
                owners,
                row,
                holes,
            }
        },
    )
}

/// A record's contents, owned.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) kind: Kind,
    pub(crate) step: u64,
    pub(crate) resource: String,
    pub(crate) key: String,
    pub(crate) json: [Vec<u8>; 2],
    pub(crate) sidecar: Vec<u8>,
    pub(crate) shape: u32,
    pub(crate) previous: Option<(u64, Vec<u8>, Vec<u8>, u32)>,
    pub(crate) refer: bool,
    pub(crate) sync: bool,
}

pub(crate) fn written() -> impl Strategy<Value = Written> {
    let kind = prop_oneof![
        Just(Kind::Create),
        Just(Kind::Update),
        Just(Kind::Delete),
        Just(Kind::Marker)
    ];
    let bytes = || vec(any::<u8>(), 0..60);
    let previous = (any::<u64>(), bytes(), bytes(), any::<u32>());
    let payload = ("[a-z]{1,12}", "[a-z/-]{1,20}", [bytes(), bytes()], bytes());
    (kind, 0..3u64, payload, any::<u32>(), previous, any::<(bool, bool)>()).prop_map(
        |(kind, step, (resource, key, json, sidecar), shape, previous, (refer, sync))| {
            let marker = kind == Kind::Marker;
            let previous = matches!(kind, Kind::Update | Kind::Delete).then_some(previous);
            Written {
                kind,
                step,
                resource: if marker { String::new() } else { resource },
                key: if marker { String::new() } else { key },
                json: if marker { Default::default() } else { json },
                sidecar: if marker { Vec::new() } else { sidecar },
                shape,
                previous,
                refer,
                sync,
            }
        },
    )
}

/// A segment and where its records begin.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) bytes: Vec<u8>,
    pub(crate) starts: Vec<usize>,
    /// For each record, what it calls synced.
    pub(crate) synced: Vec<usize>,
}

/// Writes records as a committer does: revisions ascend, everything is synced now and then, and from then on the records
/// say so.
pub(crate) fn log(seed: &Seed, records: &[Written]) -> Log {
    let mut log = Log {
        bytes: segment::header(seed.store, seed.segment, 1).to_vec(),
        starts: vec![],
        synced: vec![],
    };
    let mut crc = segment::header_crc(log.bytes.first_chunk().unwrap());
    let (mut revision, mut synced) = (9, 0);
    for written in records {
        revision += written.step;
        if written.sync {
            synced = log.bytes.len();
        }
        let previous = match (&written.previous, log.starts.last()) {
            (None, _) => Previous::None,
            (Some(_), Some(&last)) if written.refer => Previous::Reference { offset: last as u32 },
            (Some((revision, json, sidecar, shape)), _) => Previous::Inline {
                revision: *revision,
                json,
                sidecar,
                shape: *shape,
            },
        };
        let record = NewRecord {
            kind: written.kind,
            revision,
            resource: &written.resource,
            key: &written.key,
            json: [&written.json[0], &written.json[1]],
            sidecar: &written.sidecar,
            shape: written.shape,
            previous,
            synced: synced as u32,
        };
        log.starts.push(log.bytes.len());
        log.synced.push(synced);
        let len = frame::encoded_len(&record);
        crc = frame::encode(&record, seed, crc, &mut log.bytes);
        assert_eq!(log.bytes.len() - log.starts.last().unwrap(), len);
    }
    log
}

/// What parts have around the metadata of rows.
pub(crate) const FRAME: RowFrame = RowFrame {
    before: "<",
    behind: ">",
};

/// What a part is made of, by key.
pub(crate) type Objects = BTreeMap<String, (u64, u32, Vec<u8>, Sidecar)>;

pub(crate) fn objects(count: std::ops::Range<usize>) -> impl Strategy<Value = Objects> {
    let objects = btree_map(
        "[a-c]{1,3}/[a-d]{1,4}",
        (any::<u64>(), any::<u32>(), vec(any::<u8>(), 0..80), sidecar()),
        count,
    );
    // Most parts are such that they get rows: one layout, metadata inside of the JSON.
    (objects, 0..4u8, any::<u32>()).prop_map(|(mut objects, odd, layout)| {
        for (revision, _, json, sidecar) in objects.values_mut().filter(|_| odd > 0) {
            json.resize(json.len().max(digit_count(*revision)), b'1');
            sidecar.layout = layout;
            sidecar.splice %= (json.len() - digit_count(*revision) + 1) as u32;
            sidecar.metadata_start %= sidecar.splice + 1;
            sidecar.metadata_tail %= (json.len() - digit_count(*revision)) as u32 - sidecar.splice + 1;
        }
        objects
    })
}

pub(crate) fn part(objects: &Objects) -> Vec<u8> {
    let mut builder = ShelfBuilder::new(17, "deployments.apps", 1000).with_rows(Some(FRAME));
    for (key, (revision, shape, json, sidecar)) in objects {
        builder.push(key, *revision, *shape, json, &sidecar.archive()).unwrap();
    }
    let estimate = builder.len_estimate();
    let bytes = builder.finish().concat();
    assert!(bytes.len() <= estimate, "the estimate is an upper bound");
    bytes
}

fn segments() -> impl Strategy<Value = Vec<SegmentEntry>> {
    let sealed = any::<(u32, u32, u64, i64)>().prop_map(|(end, footer_len, last_revision, sealed_at)| Sealed {
        end,
        footer_len,
        last_revision,
        sealed_at,
    });
    btree_map(any::<u64>(), (any::<u64>(), proptest::option::of(sealed)), 0..5).prop_map(|entries| {
        let entry = |(number, (first_revision, sealed))| SegmentEntry {
            number,
            first_revision,
            sealed,
        };
        entries.into_iter().map(entry).collect()
    })
}

fn parts() -> impl Strategy<Value = Vec<PartEntry>> {
    (btree_set(text(), 0..8), any::<(u64, u64, u64, u32)>()).prop_map(|(keys, (file, count, bytes, header_crc))| {
        let keys: Vec<_> = BTreeSet::into_iter(keys).collect();
        let part = |pair: &[String]| PartEntry {
            file,
            count,
            bytes,
            first_key: pair[0].clone(),
            last_key: pair[1].clone(),
            header_crc,
        };
        keys.chunks_exact(2).map(part).collect()
    })
}

pub(crate) fn manifest() -> impl Strategy<Value = Manifest> {
    let resources = btree_map(text(), (any::<u64>(), any::<u64>(), parts()), 0..5);
    let numbers = any::<(u128, u64, bool, bool, u64, u64)>();
    (numbers, segments(), resources).prop_map(
        |((store, generation, durability_os, clean, revision, next_file), segments, resources)| Manifest {
            store,
            generation,
            durability_os,
            clean,
            revision,
            next_file,
            segments,
            resources: resources
                .into_iter()
                .map(|(name, (shelved_revision, floor, parts))| ResourceEntry {
                    name,
                    shelved_revision,
                    floor,
                    parts,
                })
                .collect(),
        },
    )
}
