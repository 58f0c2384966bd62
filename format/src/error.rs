//! Why bytes were refused.

use thiserror::Error;

/// A place in the bytes that were given to a reader, and what is wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("at byte {offset}: {reason}")]
pub struct FormatError {
    /// Bytes from the start of the slice that the reader was given; for files that is the offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with bytes. Parts and fields are named as in `docs/format.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Reason {
    /// The bytes end before the thing does.
    #[error("{part} needs {needed} bytes, {available} are there")]
    Truncated {
        /// The part that is cut.
        part: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// The first bytes are not those of this kind of thing.
    #[error("this is not a {part}")]
    Magic {
        /// What was expected.
        part: &'static str,
    },
    /// Written by a newer flatkube. Nothing is wrong with the bytes.
    #[error("{part} has format {found}; this version reads up to format {supported}. Use a newer flatkube")]
    NewerFormat {
        /// What has the version.
        part: &'static str,
        /// Version in the bytes.
        found: u32,
        /// Newest version that this reader knows.
        supported: u32,
    },
    /// A checksum does not match.
    #[error("checksum of {part} is {computed:08x}, stored is {stored:08x}")]
    Checksum {
        /// What the checksum covers.
        part: &'static str,
        /// Checksum in the bytes.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// A field holds a value that has no meaning.
    #[error("{field} has the impossible value {value}")]
    Value {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// A length or count is over its limit.
    #[error("{field} is {value}, the limit is {limit}")]
    Limit {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// Text that is not UTF-8.
    #[error("{field} is not UTF-8")]
    Utf8 {
        /// The field.
        field: &'static str,
    },
    /// Things are not in the order in which they must be.
    #[error("{field} is out of order")]
    Order {
        /// What must be in order.
        field: &'static str,
    },
    /// The thing belongs to another store or another file.
    #[error("{field} is that of another store or file")]
    Foreign {
        /// The field that tells.
        field: &'static str,
    },
    /// The record does not follow the record before it.
    #[error("record follows a record with checksum {stored:08x}, the one before it has {expected:08x}")]
    Chain {
        /// Checksum that the record names as that of its forerunner.
        stored: u32,
        /// Checksum of the record before it.
        expected: u32,
    },
    /// The rkyv archive of a sidecar is not valid.
    #[error("the archive is damaged")]
    Archive,
}

impl FormatError {
    pub(crate) const fn new(offset: usize, reason: Reason) -> Self {
        Self {
            offset: offset as u64,
            reason,
        }
    }

    /// The same error seen from a slice in which this reader's slice began at `base`.
    pub const fn at(self, base: usize) -> Self {
        Self {
            offset: self.offset.saturating_add(base as u64),
            reason: self.reason,
        }
    }
}
