//! The readers of `format`, each alone: as the bytes are, and under right checksums.

use super::exercise;

/// Records at every place.
pub fn record(data: &[u8]) {
    exercise::record(data);
    let mut bytes = data.to_vec();
    for at in (0..bytes.len()).step_by(16) {
        exercise::seal_record(&mut bytes, at, 0);
    }
    exercise::record(&bytes);
}

/// A whole segment: header, walk, footer, the verdict on what is behind the records.
pub fn segment(data: &[u8]) {
    exercise::scan(data);
    let mut bytes = data.to_vec();
    exercise::seal_segment(&mut bytes);
    exercise::scan(&bytes);
    // damage behind right checksums: the verdict
    if let Some(middle) = bytes.len().checked_sub(1).map(|last| last / 2) {
        bytes[middle] ^= 0x10;
        exercise::scan(&bytes);
    }
}

/// A part of a shelf and every accessor.
pub fn shelf(data: &[u8]) {
    exercise::shelf(data);
    let mut bytes = data.to_vec();
    if exercise::seal_shelf(&mut bytes) {
        exercise::shelf(&bytes);
    }
}

/// A sidecar and everything in it, at two alignments.
pub fn sidecar(data: &[u8]) {
    exercise::sidecar(data);
    let moved = [&[0], data].concat();
    exercise::sidecar(&moved[1..]);
}

/// A manifest: what is accepted encodes to the same bytes.
pub fn manifest(data: &[u8]) {
    exercise::manifest(data);
    let mut bytes = data.to_vec();
    if exercise::seal_manifest(&mut bytes) {
        exercise::manifest(&bytes);
    }
}
