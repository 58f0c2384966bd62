//! Names of the files in a data directory.

/// The file whose lock is the lock of the directory.
pub const LOCK: &str = "lock";
/// The file that names all others.
pub const MANIFEST: &str = "manifest";
/// A manifest that is being written; renamed over [`MANIFEST`] when it is whole and synced.
pub const MANIFEST_NEW: &str = "manifest.new";
/// A log segment that is allocated and not in use yet.
pub const SPARE: &str = "segment.spare";

/// Name of the log segment `number`.
pub fn segment(number: u64) -> String {
    format!("segment-{number:010}")
}

/// Name of the shelf part `file`.
pub fn part(file: u64) -> String {
    format!("shelf-{file:010}")
}

/// Name of the shelf part `file` while it is being written.
pub fn part_new(file: u64) -> String {
    format!("shelf-{file:010}.new")
}

/// Where recovery keeps the bytes that it cut from the end of the segment `number`.
pub fn cut(number: u64) -> String {
    format!("cut-{number:010}")
}

/// Whether `name` is a segment, part or unfinished file: what the engine removes when the manifest does not name it.
/// Cut bytes and files of others are left alone.
pub fn is_disposable(name: &str) -> bool {
    name == MANIFEST_NEW || name == SPARE || name.starts_with("segment-") || name.starts_with("shelf-")
}
