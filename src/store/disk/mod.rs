//! The one door between the engine and files.
//!
//! Everything the engine does to its data directory goes through [`Disk`] and [`DiskFile`], so that the same engine
//! runs on a real directory ([`RealDisk`]) and on a simulated one ([`sim::SimDisk`]) that crashes at any step.
//!
//! What the engine may believe:
//! - bytes given to [`DiskFile::write_at`] are visible to maps of that file at once, and durable once
//!   [`DiskFile::sync_data`] of that file returned;
//! - a name made by [`Disk::create`], moved by [`Disk::rename`] or taken away by [`Disk::remove`] is durable once
//!   [`Disk::sync_dir`] returned; until then each such change may or may not survive, in any combination, but a rename
//!   is atomic;
//! - nothing else. In particular, unsynced writes survive in any combination of 512-byte sectors.

mod real;
pub mod sim;

use std::io;
use std::sync::Arc;

pub use real::RealDisk;

use super::map::Map;

/// A directory of files. Names are plain file names without separators.
pub trait Disk: Send + Sync {
    /// Takes the directory for this process until the lock is dropped. `WouldBlock`: another process has it.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;
    /// Names of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new, empty, writable file. `AlreadyExists` when the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// An existing file; writable unless the disk was opened read-only.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Atomically gives `from` the name `to`, replacing what was there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Unlinks a file; maps of it stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all changes of names durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Looks whether the directory's path still leads to the directory that was locked. `NotFound`: it was removed, moved, or
    /// replaced by another, and what is written to its open files would be gone with them.
    fn check_in_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// What a person calls the file `name`: its path, for messages.
    fn path(&self, name: &str) -> String;
}

/// One file.
pub trait DiskFile: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Extends the file to `len` zero bytes whose space is reserved, so that later writes inside do not run out of it.
    /// Never shortens. `StorageFull` when there is no space; the file is then useless and should be removed.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`. Refuses (`InvalidInput`) to touch published bytes of the file's map.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Reads exactly `bytes.len()` bytes at `offset`.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
    /// Makes the bytes and the length durable. After an error nothing is known about what is durable: do not retry.
    fn sync_data(&self) -> io::Result<()>;
    /// Looks whether the file still has a name. `NotFound`: it was removed, and its bytes go when it is closed.
    fn check_in_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// The map of the file at its present length; the same one as long as anybody holds it.
    fn map(&self) -> io::Result<Arc<Map>>;
}

/// Rule 1 of [`super::map`]: published bytes never change.
fn refuse_published(map: Option<&Arc<Map>>, offset: u64) -> io::Result<()> {
    match map {
        Some(map) if offset < map.published() as u64 => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("write at {offset} below the published mark of {map:?}"),
        )),
        _ => Ok(()),
    }
}
