//! The storage engine: log, shelves, views, history. It knows bytes, keys, revisions and sidecars, nothing of kinds or
//! HTTP.
//!
//! # How a write becomes readable
//! [`Store::write`] queues it. One committer thread checks its precondition against everything accepted before it, gives
//! it the next revision, appends the records of all waiting writers to the log with one `pwrite` and one `fdatasync`,
//! publishes a new [`View`], wakes followers, and only then answers. So what was answered is on disk, and who was
//! answered finds it in the next view.
//!
//! # Invariants
//! - Revisions only go up, over restarts and crashes too. A view's revision is that of the last record in it.
//! - A view never changes. Readers never block the committer, the committer never blocks readers.
//! - An acknowledged write survives (with [`Durability::Fsync`]); an unacknowledged one is there whole or not at all.
//! - Published bytes of the log never change, and an [`Object`] keeps its bytes mapped.
//! - History of a resource is complete above its floor: a [`Follower`] either sees every write or gets
//!   [`HistoryError::TooOld`].

mod delta;
pub mod disk;
mod error;
pub mod files;
#[cfg(test)]
mod fixture;
mod layer;
mod listing;
mod log;
mod map;
mod object;
mod options;
mod past;
mod postings;
#[cfg(test)]
mod reads_against_model;
mod resource_view;
mod segment;
mod selection;
mod shelf_set;
mod shelf_walk;
mod tree;
mod view;
mod write;

use std::sync::Arc;
use std::task::{Context, Poll};

pub use error::{ArchiveError, Damaged, HistoryError, OpenError, WriteError};
pub use flatkube_format::object::Prepared;
pub use listing::{Listing, Range, Run, ShelvedRun};
pub use log::{Entry, EntryList, Log, RecordRef};
pub use map::Map;
pub use object::Object;
pub use options::{Durability, OnFatal, Options};
pub use resource_view::ResourceView;
pub use segment::Segment;
pub use selection::{Requirement, Selection};
pub use shelf_set::{Part, ShelfSet};
pub use view::View;
pub use write::{Archiver, Change, Event, EventKind, Precondition, Write, Written};

use disk::Disk;

/// An open data directory.
pub struct Store {
    _options: Options,
}

impl Store {
    /// Opens the data directory behind `disk`, which may be empty, and starts the committer (and, with
    /// [`Options::background`], the thread that shelves). Replays what the shelves do not hold from the log.
    pub fn open(
        _disk: Arc<dyn Disk>,
        _options: Options,
        _archiver: Arc<dyn Archiver>,
    ) -> Result<Arc<Store>, OpenError> {
        todo!("milestone 2")
    }

    /// The newest published view. One atomic load.
    pub fn view(&self) -> Arc<View> {
        todo!("milestone 2")
    }

    /// Makes one write. Resolves when it is published (and, with [`Durability::Fsync`], on disk).
    ///
    /// Dropping the future does not undo a write that was queued.
    pub async fn write(&self, _write: Write) -> Result<Written, WriteError> {
        std::future::ready(()).await;
        todo!("milestone 2")
    }

    /// `resource` as it was at `revision`.
    pub fn view_at(&self, _resource: &str, _revision: u64) -> Result<Arc<View>, HistoryError> {
        todo!("milestone 2")
    }

    /// The writes of `resource` (in `namespace`, if given) after revision `after`.
    pub fn follow(
        self: &Arc<Self>,
        _resource: &str,
        _namespace: Option<&str>,
        _after: u64,
    ) -> Result<Follower, HistoryError> {
        todo!("milestone 2")
    }

    /// Resolves when the published revision is at least `revision`.
    pub async fn reached(&self, _revision: u64) {
        std::future::ready(()).await;
        todo!("milestone 2")
    }

    /// Figures for metrics and the `store stats` command.
    pub fn stats(&self) -> Stats {
        todo!("milestone 2")
    }

    /// Ends the store: nothing more is accepted, what is queued is committed, everything is synced and marked clean.
    /// Views stay readable. Blocks for a few syncs.
    pub fn close(&self) {
        todo!("milestone 2")
    }

    /// Does now what the background thread would do: shelves what is due (everything, if `all`), retires old segments.
    pub fn maintain(&self, _all: bool) {
        todo!("milestone 3")
    }
}

/// A position in the log of one resource, from which its writes are read in order. Costs a number while nothing happens.
#[derive(Debug)]
pub struct Follower {
    position: u64,
}

impl Follower {
    /// The next write after the position; `None` when nothing newer is published now.
    ///
    /// [`HistoryError::TooOld`]: the reader was slower than retention allows; it must read anew.
    pub fn next(&mut self) -> Result<Option<Event>, HistoryError> {
        todo!("milestone 2")
    }

    /// Resolves when a write of the resource may be there that [`Follower::next`] has not given yet, or when the store
    /// is closed. Cancel-safe.
    pub async fn changed(&mut self) {
        std::future::poll_fn(|context| self.poll_changed(context)).await;
    }

    /// [`Follower::changed`] for hand-written futures and streams.
    pub fn poll_changed(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        todo!("milestone 2")
    }

    /// Everything of the resource up to this revision was given. Advances over writes of other resources, too, each time
    /// [`Follower::next`] gives `None`.
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// Figures of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Newest published revision.
    pub revision: u64,
    /// Bytes of log that are kept, the active segment's included.
    pub log_bytes: u64,
    /// Number of log segments.
    pub segments: u64,
    /// Batches written since the store was opened.
    pub batches: u64,
    /// Records written since the store was opened.
    pub records: u64,
    /// Syncs of the log since the store was opened.
    pub log_syncs: u64,
    /// Nanoseconds spent in syncs of the log.
    pub log_sync_nanoseconds: u64,
    /// Times a resource was shelved since the store was opened.
    pub shelvings: u64,
    /// Bytes of shelf parts written since the store was opened.
    pub shelved_bytes: u64,
    /// Followers that were too slow for the retention.
    pub followers_too_old: u64,
    /// Per storage resource, sorted by name.
    pub resources: Vec<ResourceStats>,
}

/// Figures of one storage resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceStats {
    /// Its name.
    pub name: String,
    /// Live objects.
    pub objects: u64,
    /// Entries of the deltas.
    pub delta_entries: u64,
    /// Bytes of log behind the deltas.
    pub delta_bytes: u64,
    /// Number of shelf parts.
    pub parts: u64,
    /// Bytes of shelf parts.
    pub shelf_bytes: u64,
    /// Everything up to this revision is on the shelf.
    pub shelved_revision: u64,
    /// Newest discarded revision; 0 if all history is there.
    pub floor: u64,
}
