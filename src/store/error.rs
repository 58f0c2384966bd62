//! Errors of the store: each says what a person needs to act.

use thiserror::Error;

/// Bytes on disk that are not what was written.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{file}: damaged at offset {offset}: {reason}")]
pub struct Damaged {
    /// The file, as a person finds it.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}

impl Damaged {
    /// From what a reader of the format found in `file`.
    pub fn of(file: &str, error: &flatkube_format::FormatError) -> Damaged {
        Damaged {
            file: file.to_owned(),
            offset: error.offset,
            reason: error.reason.to_string(),
        }
    }
}
