//! Reads bytes with every reader and every accessor, and asserts what must hold of whatever was accepted. Used by the
//! property tests and by the fuzz targets (`fuzz/fuzz_targets`).
//!
//! Checksums keep nearly all random bytes from the code behind them, so there are `seal_*` functions, which put right
//! checksums into wrong bytes. They are written after `docs/format.md`, not after the code, and so check that too.

#![allow(dead_code, reason = "each user needs a part of it")]

use flatkube_format::frame::{self, Previous, Record, Seed};
use flatkube_format::manifest::Manifest;
use flatkube_format::segment::{self, Footer, Verdict};
use flatkube_format::shelf::{PostingKind, Shelf, posting_hash};
use flatkube_format::sidecar::{self, ArchivedFill, digit_count};

pub(crate) const SEED: Seed = Seed {
    store: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
    segment: 5,
};

/// Reads a sidecar and everything in it.
pub(crate) fn sidecar(bytes: &[u8]) -> bool {
    let Ok(sidecar) = sidecar::access(bytes) else {
        return false;
    };
    let mut text_len = sidecar.uid.len();
    for pair in sidecar.labels.iter().chain(sidecar.fields.iter()) {
        text_len += pair.name.chars().count() + pair.value.chars().count();
    }
    for owner in sidecar.owners.iter() {
        text_len += owner.chars().count();
    }
    let mut row_len = 0;
    for (piece, fill) in sidecar.row_pieces() {
        row_len += piece.len();
        text_len += match fill {
            Some(ArchivedFill::Since(at)) => usize::from(at.to_native() == 0),
            Some(ArchivedFill::Revision) | None => 0,
        };
    }
    assert_eq!(row_len, sidecar.row.len());
    text_len += sidecar.row.chars().count();
    std::hint::black_box(text_len);
    for name in ["", "app", "metadata.name", "a-name-that-is-long"] {
        std::hint::black_box((sidecar.label(name), sidecar.field(name)));
    }
    for digits in [0, 1, 20, usize::MAX] {
        std::hint::black_box(sidecar.metadata_span(digits));
    }
    std::hint::black_box(sidecar.created_at());
    true
}

/// Looks at everything in a record.
fn look(segment: &[u8], record: &Record<'_>) {
    assert_eq!(&segment[record.json_range()], record.json);
    assert_eq!(&segment[record.sidecar_range()], record.sidecar);
    assert!(record.len >= frame::HEADER_LEN && record.end() <= segment.len());
    sidecar(record.sidecar);
    if let Some((json, archive)) = record.previous_ranges() {
        let Previous::Inline {
            json: previous,
            sidecar: old,
            ..
        } = record.previous
        else {
            panic!("only inline has ranges")
        };
        assert_eq!((&segment[json], &segment[archive]), (previous, old));
        sidecar(old);
    }
    if let Previous::Reference { offset } = record.previous {
        assert!((offset as usize) < record.offset);
        let _ = frame::view(segment, offset as usize);
    }
}

/// Reads records at every place of `segment`, checked and unchecked.
pub(crate) fn record(segment: &[u8]) -> usize {
    let mut accepted = 0;
    for offset in (0..=segment.len()).step_by(frame::ALIGN) {
        let viewed = frame::view(segment, offset);
        if let Ok(record) = &viewed {
            look(segment, record);
        }
        if let Ok(record) = frame::read(segment, offset, &SEED) {
            accepted += 1;
            assert_eq!(Ok(record), viewed, "what is proven can be viewed, and says the same");
            assert!(record.synced as usize <= offset);
        }
    }
    for offset in [1, segment.len() + 16, usize::MAX - 15, usize::MAX] {
        assert!(frame::view(segment, offset).is_err() && frame::read(segment, offset, &SEED).is_err());
    }
    accepted
}

/// Walks a segment. Returns how many records were valid.
pub(crate) fn scan(bytes: &[u8]) -> u64 {
    let _ = segment::read_header(bytes);
    let mut next = segment::HEADER_LEN;
    let mut records = 0;
    let visit = |record: Record<'_>| {
        assert_eq!(record.offset, next, "records lie side by side");
        look(bytes, &record);
        next = record.end();
        records += 1;
    };
    let Ok(scan) = segment::scan(bytes, &SEED, visit) else {
        return 0;
    };
    assert_eq!((scan.records, scan.end), (records, next));
    assert!(scan.end <= bytes.len() && scan.synced <= scan.end);
    match scan.verdict {
        Verdict::Clean if scan.footer_len.is_none() => assert!(bytes[scan.end..].iter().all(|&byte| byte == 0)),
        Verdict::Clean => {}
        Verdict::Torn { at, until, .. } => {
            assert_eq!(at, scan.end);
            assert!(at < until && until <= bytes.len() && bytes[until - 1] != 0);
            assert!(bytes[until..].iter().all(|&byte| byte == 0));
        }
        Verdict::Corrupt { at, proof, .. } => {
            assert_eq!(at, scan.end);
            assert!(proof >= at);
        }
    }
    let sealed = segment::scan_sealed(bytes, scan.end, &SEED, |_| {});
    assert_eq!(
        sealed.map(|sealed| (sealed.records, sealed.end)),
        Ok((records, scan.end))
    );
    if let Some(len) = scan.footer_len {
        assert!(footer(bytes, scan.end, len as usize), "the walk found it valid");
    }
    records
}

/// Opens the footer at `offset` and reads everything in it.
pub(crate) fn footer(segment: &[u8], offset: usize, len: usize) -> bool {
    let Ok(footer) = Footer::open(segment, offset, len, &SEED) else {
        return false;
    };
    for (name, run) in footer.resources(segment) {
        assert_eq!(footer.run(segment, name), Some(run));
        let mut last = 0;
        for (index, entry) in footer.entries(segment, run).enumerate() {
            assert_eq!(entry, footer.entry(segment, run, index));
            assert!(entry.revision >= last && entry.byte_offset() < offset);
            assert!(footer.after(segment, run, entry.revision) > index);
            last = entry.revision;
        }
        assert_eq!(footer.after(segment, run, u64::MAX), run.len());
    }
    let missing = "no such resource";
    let has_it = footer.resources(segment).any(|(name, _)| name == missing);
    assert_eq!(footer.run(segment, missing).is_some(), has_it);
    true
}

/// Opens a part and calls every accessor.
pub(crate) fn shelf(bytes: &[u8]) -> bool {
    let Ok(shelf) = Shelf::open(bytes) else { return false };
    assert_eq!(shelf.len(), bytes.len());
    std::hint::black_box((shelf.store(), shelf.as_of(), shelf.header_crc(), shelf.resource(bytes)));
    // large parts are sampled: quadratic walks find nothing more
    let step = (shelf.count() / 64).max(1);
    for index in (0..shelf.count()).step_by(step) {
        let key = shelf.key(bytes, index);
        assert_eq!(shelf.find(bytes, key), Ok(index));
        let entry = shelf.entry(bytes, index);
        assert!(bytes.get(entry.json.clone()).is_some());
        sidecar(&bytes[entry.sidecar.clone()]);
        assert_eq!(shelf.json_run(bytes, index..index + 1), entry.json);
        assert!(bytes.get(shelf.json_run(bytes, 0..index)).is_some());
        let rows = rows(&shelf, bytes, index);
        for block in shelf
            .block_of(entry.json)
            .chain(shelf.block_of(entry.sidecar))
            .chain(shelf.block_of(rows))
        {
            assert!(block < shelf.block_count());
        }
    }
    for name in ["", "app", "status.phase"] {
        for kind in [PostingKind::Label, PostingKind::LabelName, PostingKind::Field] {
            let postings = shelf.postings(bytes, posting_hash(kind, name, ""));
            assert!(postings.iter().is_sorted() && postings.iter().all(|ordinal| (ordinal as usize) < shelf.count()));
        }
    }
    for block in 0..=shelf.block_count() {
        let _ = shelf.check_block(bytes, block);
    }
    assert!(shelf.check_block(bytes, shelf.block_count()).is_err());
    let _ = shelf.verify(bytes);
    outside(&shelf, bytes);
    // other bytes than those that were opened: nonsense is allowed, a panic is not
    outside(&shelf, &[]);
    outside(&shelf, &bytes[..bytes.len() / 2]);
    true
}

/// Looks at the row of an object, and at those from it on. Gives where they lie.
fn rows(shelf: &Shelf, bytes: &[u8], index: usize) -> std::ops::Range<usize> {
    let run = shelf.rows_run(bytes, index..shelf.count());
    assert!(bytes.get(run.clone()).is_some());
    let row = shelf.rows_run(bytes, index..index + 1);
    let object = shelf.row_object(bytes, index);
    assert_eq!(row.is_empty(), shelf.row_layout().is_none());
    if !row.is_empty() {
        assert!(row.start == run.start && row.end <= run.end);
        assert!(row.start <= object.start && object.start <= object.end && object.end < row.end);
    }
    for (range, objects) in [(&row, index..index + 1), (&run, index..shelf.count())] {
        let mut last = 0;
        for (at, since) in shelf.row_holes(bytes, objects) {
            assert!(last <= at && range.start + at < range.end);
            last = at;
            std::hint::black_box(since);
        }
    }
    run
}

/// Accessors with arguments that no caller should give.
fn outside(shelf: &Shelf, bytes: &[u8]) {
    for index in [0, shelf.count() / 2, shelf.count(), usize::MAX] {
        std::hint::black_box((shelf.key(bytes, index), shelf.entry(bytes, index)));
        std::hint::black_box(shelf.json_run(bytes, index..usize::MAX));
        std::hint::black_box(shelf.json_run(bytes, usize::MAX..index));
        std::hint::black_box(shelf.row_object(bytes, index));
        for run in [index..usize::MAX, usize::MAX..index] {
            std::hint::black_box(shelf.rows_run(bytes, run.clone()));
            std::hint::black_box(shelf.row_holes(bytes, run).count());
        }
        let _ = shelf.check_block(bytes, index);
    }
    let found = shelf.find(bytes, "a/b").unwrap_or_else(|at| at);
    std::hint::black_box((found, shelf.resource(bytes), shelf.postings(bytes, 1).len()));
    std::hint::black_box(shelf.block_of(0..usize::MAX));
    let reversed = std::ops::Range {
        start: usize::MAX,
        end: 0,
    };
    std::hint::black_box(shelf.block_of(reversed));
    let _ = shelf.verify(bytes);
}

/// Decodes a manifest, which must encode to the same bytes again.
pub(crate) fn manifest(bytes: &[u8]) -> bool {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return false;
    };
    assert_eq!(
        manifest.encode().as_deref(),
        Ok(bytes),
        "there is one way to write a manifest"
    );
    true
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    bytes
        .get(at..at + 4)
        .map_or(0, |four| u32::from_le_bytes(four.try_into().unwrap()) as usize)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

fn seed_bytes(seed: &Seed) -> Vec<u8> {
    [&seed.store.to_le_bytes()[..], &seed.segment.to_le_bytes()[..]].concat()
}

/// Makes the bytes a segment of [`SEED`] and gives right checksums to all that can be a record or a footer.
pub(crate) fn seal_segment(bytes: &mut [u8]) {
    seal_segment_of(bytes, &SEED, 1);
}

/// [`seal_segment`] for any segment.
pub(crate) fn seal_segment_of(bytes: &mut [u8], seed: &Seed, first_revision: u64) {
    if bytes.len() < segment::HEADER_LEN {
        return;
    }
    let header = segment::header(seed.store, seed.segment, first_revision);
    bytes[..header.len()].copy_from_slice(&header);
    let (mut at, mut chain) = (header.len(), segment::header_crc(&header));
    while seal_record_of(bytes, at, chain, seed) {
        chain = u32_at(bytes, at + 92) as u32;
        at += u32_at(bytes, at + 8).max(16).next_multiple_of(16);
    }
    seal_footer(bytes, at, seed);
}

/// Gives the record at `at` right checksums.
pub(crate) fn seal_record(bytes: &mut [u8], at: usize, previous_crc: u32) -> bool {
    seal_record_of(bytes, at, previous_crc, &SEED)
}

fn seal_record_of(bytes: &mut [u8], at: usize, previous_crc: u32, seed: &Seed) -> bool {
    let Some(record) = bytes.get_mut(at..) else {
        return false;
    };
    let len = u32_at(record, 8);
    if len < frame::HEADER_LEN || len > record.len() || record[..4] != frame::MAGIC {
        return false;
    }
    put(record, 84, previous_crc);
    let payload = crc(&[&seed_bytes(seed), &previous_crc.to_le_bytes(), &record[96..len]]);
    put(record, 88, payload);
    let header = crc(&[&seed_bytes(seed), &record[..92]]);
    put(record, 92, header);
    true
}

/// Gives the footer at `at` right checksums and its own offset.
pub(crate) fn seal_footer(bytes: &mut [u8], at: usize, seed: &Seed) -> bool {
    let Some(footer) = bytes.get_mut(at..) else {
        return false;
    };
    let len = u32_at(footer, 12);
    if len < 64 || len > footer.len() || &footer[..8] != b"\xfffkFOOT\n" {
        return false;
    }
    put(footer, 24, at as u32);
    let body = crc(&[&seed_bytes(seed), &footer[64..len]]);
    put(footer, 56, body);
    let head = crc(&[&seed_bytes(seed), &footer[..60]]);
    put(footer, 60, head);
    true
}

/// Gives a part right checksums, and a header length that fits its resource.
pub(crate) fn seal_shelf(bytes: &mut [u8]) -> bool {
    if bytes.len() < 128 {
        return false;
    }
    let header_len = (128 + u32_at(bytes, 44)).next_multiple_of(64);
    let rows_end = header_len + u32_at(bytes, 48) + u32_at(bytes, 52) + u32_at(bytes, 76);
    if rows_end > bytes.len() {
        return false;
    }
    put(bytes, 12, header_len as u32);
    let blocks = bytes[header_len..rows_end]
        .chunks(65536)
        .map(|block| crc(&[block]))
        .collect::<Vec<_>>();
    if let Some(table) = bytes.len().checked_sub(blocks.len() * 4).filter(|&at| at >= rows_end) {
        for (index, block) in blocks.into_iter().enumerate() {
            put(bytes, table + index * 4, block);
        }
    }
    let index = crc(&[&bytes[rows_end..]]);
    put(bytes, 72, index);
    let header = crc(&[&bytes[..124], &bytes[128..header_len]]);
    put(bytes, 124, header);
    true
}

/// Gives a manifest right checksums and the right length.
pub(crate) fn seal_manifest(bytes: &mut [u8]) -> bool {
    if bytes.len() < 24 {
        return false;
    }
    put(bytes, 12, bytes.len() as u32 - 24);
    let body = crc(&[&bytes[24..]]);
    put(bytes, 16, body);
    let head = crc(&[&bytes[..20]]);
    put(bytes, 20, head);
    true
}

/// Digits of a revision, for generators.
pub(crate) fn digits_len(revision: u64) -> usize {
    digit_count(revision)
}
