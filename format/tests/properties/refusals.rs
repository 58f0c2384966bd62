//! What no writer may say is refused by name, even under right checksums.

use flatkube_format::manifest::Manifest;
use flatkube_format::segment::{self, Footer, FooterBuilder, FooterEntry, Verdict};
use flatkube_format::shelf::{PostingKind, Shelf, ShelfBuilder, posting_hash};
use flatkube_format::sidecar::{Pair, Sidecar};
use flatkube_format::{Reason, frame};

use crate::exercise::{self, SEED};
use crate::specimens;

fn specimen(target: &str, name: &str) -> Vec<u8> {
    specimens::all()
        .into_iter()
        .find(|specimen| (specimen.target, &*specimen.name) == (target, name))
        .unwrap()
        .bytes
}

fn edit(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Changes the first record of a log, chains all others to it and walks it.
fn verdict_after(at: usize, value: &[u8]) -> Verdict {
    let mut bytes = specimen("segment", "records");
    edit(&mut bytes, segment::HEADER_LEN + at, value);
    exercise::seal_segment(&mut bytes);
    segment::scan(&bytes, &SEED, |_| {}).unwrap().verdict
}

#[test]
fn a_record_that_says_the_impossible_is_corruption_not_a_torn_tail() {
    assert_eq!(verdict_after(0, &frame::MAGIC), Verdict::Clean);
    let value = |field, value| Reason::Value { field, value };
    let cases: [(usize, &[u8], Reason); 12] = [
        (5, &[9], value("record kind", 9)),
        // a create with a previous version, an update without one
        (6, &[1, 0], value("previous version for the kind of record", 0)),
        (5, &[2], value("previous version for the kind of record", 0)),
        (6, &[3, 0], value("flags", 3)),
        (6, &[4, 0], value("flags", 4)),
        (12, &[1, 0, 0, 0], value("record length", 256)),
        (48, &[40, 0, 0, 0], value("splice", 40)),
        (48, &[0xff; 4], value("splice", u32::MAX.into())),
        (64, &[1, 0, 0, 0], value("encoding", 1)),
        (72, &[80, 0, 0, 0], value("synced", 80)),
        (80, &[1], value("reserved", 1 << 32)),
        (96, &[0xff], Reason::Utf8 { field: "resource" }),
    ];
    for (at, bytes, expected) in cases {
        match verdict_after(at, bytes) {
            Verdict::Corrupt {
                at: 64,
                proof: 64,
                reason,
            } => assert_eq!(reason, expected, "edit at {at}"),
            other => panic!("edit at {at}: {other:?}"),
        }
    }
}

#[test]
fn a_newer_record_ends_the_walk_with_an_error_of_its_own() {
    let mut bytes = specimen("segment", "records");
    edit(&mut bytes, segment::HEADER_LEN + 4, &[2]);
    exercise::seal_segment(&mut bytes);
    let error = segment::scan(&bytes, &SEED, |_| {}).unwrap_err();
    assert_eq!(
        (error.offset, error.reason),
        (
            68,
            Reason::NewerFormat {
                part: "record",
                found: 2,
                supported: 1
            }
        )
    );
}

#[test]
fn revisions_that_descend_are_corruption() {
    // the first record's revision becomes 9, above the second's; its digit in the JSON too
    let mut bytes = specimen("segment", "records");
    let first = frame::view(&bytes, segment::HEADER_LEN).unwrap();
    let (digit, end) = (first.json_range().start + first.splice as usize, first.end());
    edit(&mut bytes, segment::HEADER_LEN + 32, &[9]);
    edit(&mut bytes, digit, b"9");
    exercise::seal_segment(&mut bytes);
    let scan = segment::scan(&bytes, &SEED, |_| {}).unwrap();
    assert_eq!(
        scan.verdict,
        Verdict::Corrupt {
            at: end,
            proof: end,
            reason: Reason::Order { field: "revision" }
        }
    );
}

/// Changes a part of three objects and opens it.
fn shelf_after(edits: &[(usize, &[u8])]) -> Result<Shelf, Reason> {
    part_after("objects-3", edits)
}

fn part_after(name: &str, edits: &[(usize, &[u8])]) -> Result<Shelf, Reason> {
    let mut bytes = specimen("shelf", name);
    for (at, value) in edits {
        edit(&mut bytes, *at, value);
    }
    assert!(exercise::seal_shelf(&mut bytes));
    Shelf::open(&bytes).map_err(|error| error.reason)
}

#[test]
fn a_part_whose_index_is_out_of_order_does_not_open() {
    let bytes = specimen("shelf", "objects-3");
    let shelf = Shelf::open(&bytes).unwrap();
    let keys = bytes
        .windows(13)
        .rposition(|window| window == b"default/0-row")
        .unwrap();
    let index = (keys + 13 + 16 + 13).next_multiple_of(16);
    let table = index + 3 * 40;
    let ordinals = table + shelf.hash_count() * 16;
    assert!(shelf_after(&[]).is_ok());

    assert_eq!(
        shelf_after(&[(keys, b"default/2-row")]).unwrap_err(),
        Reason::Order { field: "key" }
    );
    assert_eq!(
        shelf_after(&[(table, &[0xff; 8])]).unwrap_err(),
        Reason::Order { field: "posting hash" }
    );
    let second: [u8; 8] = bytes[table + 16..table + 24].try_into().unwrap();
    assert_eq!(
        shelf_after(&[(table, &second)]).unwrap_err(),
        Reason::Order { field: "posting hash" }
    );
    assert_eq!(
        shelf_after(&[(ordinals, &[3, 0, 0, 0])]).unwrap_err(),
        Reason::Order { field: "ordinals" }
    );
    assert_eq!(
        shelf_after(&[(table + 12, &[0xff, 0, 0, 0])]).unwrap_err(),
        Reason::Value {
            field: "posting run",
            value: 255
        }
    );
    assert_eq!(
        shelf_after(&[(table + 12, &[0; 4])]).unwrap_err(),
        Reason::Value {
            field: "posting run",
            value: 0
        }
    );
    for field in [0, 8, 16] {
        let reason = shelf_after(&[(index + 40 + field, &[0; 4])]).unwrap_err();
        assert_eq!(
            reason,
            Reason::Value {
                field: "index entry",
                value: 1
            }
        );
    }
    assert_eq!(
        shelf_after(&[(index + 36, &[1])]).unwrap_err(),
        Reason::Value {
            field: "encoding",
            value: 0
        }
    );
    assert_eq!(
        shelf_after(&[(92, &[1])]).unwrap_err(),
        Reason::Value {
            field: "reserved",
            value: 1
        }
    );
    assert_eq!(
        shelf_after(&[(68, &[1, 0, 0, 0])]).unwrap_err(),
        Reason::Value {
            field: "block length",
            value: 1
        }
    );
    assert!(matches!(
        shelf_after(&[(8, &[2])]),
        Err(Reason::NewerFormat {
            part: "shelf part",
            found: 2,
            supported: 1
        })
    ));
}

#[test]
fn a_part_whose_rows_or_holes_lie_outside_or_out_of_order_does_not_open() {
    let bytes = specimen("shelf", "rows-3");
    let shelf = Shelf::open(&bytes).unwrap();
    assert_eq!(shelf.row_layout(), Some(0));
    let all = shelf.rows_run(&bytes, 0..3);
    assert_eq!(shelf.row_holes(&bytes, 0..3).len(), 2);
    let keys = bytes
        .windows(27)
        .rposition(|window| window == b"default/0default/1default/2")
        .unwrap();
    let rows = (keys + 27).next_multiple_of(16) + 3 * 40;
    let holes = rows + 3 * 12;
    assert!(part_after("rows-3", &[]).is_ok());
    let past_the_end = (all.len() as u32).to_le_bytes();
    for (at, value) in [
        // the first row begins at 0 and no other one does
        (rows, &[1, 0, 0, 0]),
        (rows + 12, &[0, 0, 0, 0]),
        // rows ascend, and so do their objects
        (rows + 12, &past_the_end),
        (rows + 24, &[1, 0, 0, 0]),
        (rows + 4, &past_the_end),
        (rows + 28, &past_the_end),
    ] {
        assert_eq!(
            part_after("rows-3", &[(at, value)]).unwrap_err(),
            Reason::Order { field: "row" },
            "{at}"
        );
    }
    for (at, value) in [
        (holes, &[0xff, 0, 0, 0]),
        (holes + 12, &[0, 0, 0, 0]),
        (holes + 12, &past_the_end),
    ] {
        assert_eq!(
            part_after("rows-3", &[(at, value)]).unwrap_err(),
            Reason::Order { field: "hole" },
            "{at}"
        );
    }
    for (at, value) in [(rows + 8, 1), (rows + 20, 9), (rows + 32, 0)] {
        let reason = part_after("rows-3", &[(at, &[value, 0, 0, 0])]).unwrap_err();
        assert!(matches!(reason, Reason::Order { .. }), "{at}: {reason:?}");
    }
    for value in [0, 2] {
        let reason = part_after("rows-3", &[(88, &[value])]).unwrap_err();
        assert_eq!(
            reason,
            Reason::Value {
                field: "rows",
                value: value.into()
            }
        );
    }
}

#[test]
fn a_key_twice_does_not_open() {
    let archive = Sidecar::default().archive();
    let mut builder = ShelfBuilder::new(1, "pods", 1);
    builder.push("a/a", 1, 0, b"{}", &archive).unwrap();
    builder.push("a/b", 1, 0, b"{}", &archive).unwrap();
    let mut bytes = builder.finish().concat();
    let keys = bytes.windows(6).rposition(|window| window == b"a/aa/b").unwrap();
    edit(&mut bytes, keys + 3, b"a/a");
    assert!(exercise::seal_shelf(&mut bytes));
    assert_eq!(Shelf::open(&bytes).unwrap_err().reason, Reason::Order { field: "key" });
}

/// Two labels of one object can share a posting number; the object then stands once in the list.
#[test]
fn an_object_stands_once_in_a_posting() {
    let pair = |name: &str| Pair {
        name: name.into(),
        value: "x".into(),
    };
    let mut archive = Sidecar {
        labels: vec![pair("aa"), pair("ab")],
        ..Sidecar::default()
    }
    .archive();
    let at = archive.windows(2).position(|window| window == b"ab").unwrap();
    edit(&mut archive, at, b"aa");
    let mut builder = ShelfBuilder::new(1, "pods", 1);
    builder.push("a", 1, 0, b"{}", &archive).unwrap();
    let bytes = builder.finish().concat();
    let shelf = Shelf::open(&bytes).unwrap();
    assert_eq!(
        shelf
            .postings(&bytes, posting_hash(PostingKind::Label, "aa", "x"))
            .len(),
        1
    );
}

#[test]
fn a_footer_at_another_place_or_out_of_order_does_not_open() {
    let mut builder = FooterBuilder::new(SEED);
    for offset in [4, 12] {
        builder.push(
            "pods",
            FooterEntry {
                revision: 5,
                offset,
                namespace: 0,
            },
        );
    }
    let bytes = |end: usize| [vec![0; end], builder.encode(1024)].concat();
    let open =
        |bytes: &[u8], end: usize| Footer::open(bytes, end, bytes.len() - end, &SEED).map_err(|error| error.reason);
    assert!(open(&bytes(1024), 1024).is_ok());
    assert_eq!(
        open(&bytes(1040), 1040).unwrap_err(),
        Reason::Foreign { field: "footer offset" }
    );
    let entries = 1024 + 64 + 16;
    let cases: [(usize, u8, Reason); 4] = [
        (entries + 8, 12, Reason::Order { field: "footer entry" }),
        (entries + 8, 3, Reason::Order { field: "footer entry" }),
        (entries, 6, Reason::Order { field: "footer entry" }),
        (
            entries + 24,
            64,
            Reason::Value {
                field: "footer entry offset",
                value: 64,
            },
        ),
    ];
    for (at, value, expected) in cases {
        let mut bytes = bytes(1024);
        bytes[at] = value;
        assert!(exercise::seal_footer(&mut bytes, 1024, &exercise::SEED));
        assert_eq!(open(&bytes, 1024).unwrap_err(), expected, "edit at {at}");
    }
}

#[test]
fn bytes_behind_a_manifest_or_a_part_are_refused() {
    let mut bytes = [specimen("manifest", "used"), vec![0]].concat();
    assert!(exercise::seal_manifest(&mut bytes));
    let reason = Manifest::decode(&bytes).unwrap_err().reason;
    assert_eq!(
        reason,
        Reason::Value {
            field: "bytes behind the manifest",
            value: 1
        }
    );
    let mut bytes = [specimen("shelf", "objects-3"), vec![0; 4]].concat();
    assert!(exercise::seal_shelf(&mut bytes));
    let reason = Shelf::open(&bytes).unwrap_err().reason;
    assert_eq!(
        reason,
        Reason::Value {
            field: "bytes behind the part",
            value: 4
        }
    );
}
