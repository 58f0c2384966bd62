//! How a command fails: a message, what to do, and an exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The exit codes of `flatkube`, as `flatkube --help` lists them. (2, a wrong command line, is clap's.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// A failure that has no number of its own.
    Failure = 1,
    /// The command line is wrong in a way that only running it shows.
    Usage = 2,
    /// The data directory was written in a newer format.
    NewerFormat = 3,
    /// The data directory is locked by another process.
    InUse = 4,
    /// The data directory may not be read or written.
    NotPermitted = 5,
    /// A file of the data directory does not hold what was written to it.
    Damaged = 6,
    /// The disk is full.
    DiskFull = 7,
    /// Another process listens on the address.
    AddressInUse = 8,
}

/// Why a command did not do what it was asked: the sentence for the person, the advice, and the exit code.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    advice: Option<String>,
}

impl Failure {
    /// A failure with `exit` as its code. `message` is one sentence without a full stop.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            message: message.into(),
            advice: None,
        }
    }

    /// Adds what the person can do about it.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Adds advice where there is none yet.
    #[must_use]
    pub fn or_advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// The failure of an operation on `path`, with the exit code that belongs to the kind of the error.
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Failure::new(
            Exit::of_io(error),
            format!("cannot {doing} {}: {error}", path.display()),
        );
        match failure.exit {
            Exit::NotPermitted => {
                failure.advise("run as the user who owns it, or name a directory that this user may write")
            }
            Exit::DiskFull => failure.advise("free some space and start again; nothing that was acknowledged is lost"),
            _ => failure,
        }
    }

    /// The process's exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Writes the failure to standard error, as a person reads it.
    pub fn report(&self) {
        eprintln!("{self}");
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flatkube: {}", self.message)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n  what to do: {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl Exit {
    /// The exit code for an error of the operating system.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::NotPermitted,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Exit::DiskFull,
            io::ErrorKind::AddrInUse => Exit::AddressInUse,
            _ => Exit::Failure,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
