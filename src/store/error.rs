//! Errors of the store: each says what a person needs to act.

use std::io;

use thiserror::Error;

use super::Object;

/// What a person does about damage that the server cannot mend by itself.
pub const MENDED_BY: &str = "stop the server and run 'flatkube store verify --repair DIR'";

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

/// What there is not enough of for another file.
#[derive(Debug, Clone, Copy, Error, PartialEq, Eq)]
pub enum NoSpace {
    /// `ENOSPC`.
    #[error("no space left on the device of the data directory")]
    Device,
    /// `EDQUOT`.
    #[error("no space left in the disk quota of the data directory's user")]
    Quota,
    /// `EFBIG`: a limit of the process (`RLIMIT_FSIZE`) or of the file system.
    #[error("no space for a file of this size: the limit on file sizes (ulimit -f) is too low for the data directory")]
    FileSize,
}

impl NoSpace {
    /// What an I/O error says is missing; `None` when it says something else.
    pub fn of(error: &io::Error) -> Option<NoSpace> {
        match error.kind() {
            io::ErrorKind::StorageFull => Some(NoSpace::Device),
            io::ErrorKind::QuotaExceeded => Some(NoSpace::Quota),
            io::ErrorKind::FileTooLarge => Some(NoSpace::FileSize),
            _ => None,
        }
    }
}

/// Why a data directory cannot be opened. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process holds the lock.
    #[error("{directory} is in use by another flatkube process; stop it first, or choose another data directory")]
    InUse {
        /// The data directory.
        directory: String,
    },
    /// Nothing can be written there.
    #[error("{directory} cannot be written: give this user the right to, or choose another data directory")]
    ReadOnly {
        /// The data directory.
        directory: String,
    },
    /// Written by a newer flatkube.
    #[error(
        "{file} has format version {found}, this program reads up to {supported}; use the newer flatkube that wrote it"
    )]
    NewerFormat {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The newest version known here.
        supported: u32,
    },
    /// Synced bytes have changed.
    #[error(
        "{0}; nothing was changed: see what can be mended with `flatkube store verify --repair --dry-run`, or restore a backup"
    )]
    Damaged(#[from] Damaged),
    /// No space for the files that a start needs.
    #[error("{directory}: {what}")]
    NoSpace {
        /// The data directory.
        directory: String,
        /// What is missing.
        what: NoSpace,
    },
    /// What is sealed cannot be opened.
    #[error(
        "{object} is encrypted by {by} and cannot be read: {reason}; start with the --encryption-provider-config that has the \
         key it was written with"
    )]
    Sealed {
        /// Resource and key of the first such object.
        object: String,
        /// Provider and name of the key.
        by: String,
        /// What is wrong.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a write was not made. Nothing of it is visible or will be after a restart, except for [`WriteError::Failed`].
#[derive(Debug, Error)]
pub enum WriteError {
    /// The precondition does not hold.
    #[error("the precondition does not hold")]
    Conflict {
        /// What is there instead; `None`: nothing.
        current: Option<Box<Object>>,
    },
    /// No space for another segment of the log. Reads go on; deletes may still pass.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// Larger than a record may be.
    #[error("the record would have {bytes} bytes, more than {max}")]
    TooLarge {
        /// Length of the record.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A key or resource name of a form that the store does not take.
    #[error("not a key: {0:?}")]
    Key(String),
    /// The current version could not be read.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The object could not be encrypted: a key service that does not answer.
    #[error("{0}")]
    Sealing(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The disk failed while this write was under way: it is unknown whether a restart will find it. Nothing is
    /// accepted any more.
    #[error("the disk failed, nothing is written any more: {0}")]
    Failed(String),
}

/// Why a past revision cannot be read.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum HistoryError {
    /// Records of this resource that are needed for it were discarded.
    #[error("revision is too old: the newest discarded one is {floor}, the current one {current}")]
    TooOld {
        /// Newest discarded revision of the resource.
        floor: u64,
        /// Newest published revision.
        current: u64,
    },
    /// Not reached yet.
    #[error("revision is not reached yet, the current one is {current}")]
    Future {
        /// Newest published revision.
        current: u64,
    },
    /// History could not be read.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// Why an [`Archiver`](super::Archiver) could not archive an object.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ArchiveError(pub String);
