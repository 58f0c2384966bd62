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

mod archive;
mod backup;
mod bell;
mod bus_error;
mod candidates;
mod commit;
mod delta;
pub mod disk;
mod engine;
mod error;
pub mod files;
mod first_start;
#[cfg(test)]
mod fixture;
mod follow;
#[cfg(test)]
mod heap_per_object;
mod layer;
mod listing;
mod log;
mod manifest;
mod map;
mod object;
mod options;
mod part_writer;
mod past;
pub mod planted;
mod postings;
mod queue;
#[cfg(test)]
mod reads_against_model;
mod recovery;
pub mod repair;
mod resource_view;
mod retention;
mod retired;
mod rotate;
mod scrub;
mod sealing;
mod segment;
mod selection;
mod shelf_set;
mod shelf_walk;
mod shelving;
mod spare;
mod stats;
mod tree;
mod view;
mod write;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use backup::{Backup, BackupFile};
pub use bus_error::explain_bus_errors;
pub use error::{ArchiveError, Damaged, HistoryError, MENDED_BY, NoSpace, OpenError, WriteError};
pub use flatkube_format::object::Prepared;
pub use flatkube_format::shelf::{RowFrame, RowHoles};
pub use follow::Follower;
pub use listing::{Listing, Range, Run, ShelvedRun, ShelvedText};
pub use log::{Entry, EntryList, Log, RecordRef};
pub use map::Map;
pub use object::Object;
pub use options::{Durability, OnFatal, Options};
pub use resource_view::ResourceView;
pub use sealing::{Place, SealError, Sealed, Sealing, opened};
pub use segment::Segment;
pub use selection::{Requirement, Selection};
pub use shelf_set::{Part, ShelfSet};
pub use stats::{ResourceStats, Stats};
pub use view::{ResourceState, View};
pub use write::{Archiver, Change, Event, EventKind, Precondition, Write, Written};

use bell::Listener;
use commit::Committer;
use disk::Disk;
use engine::Engine;
use sealing::ResourceSealing;
pub use shelving::ShelveError;
use shelving::Shelver;

use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, MutexGuard};

/// An open data directory.
///
/// Closed by [`Store::close`] or when the last handle is dropped.
pub struct Store {
    engine: Arc<Engine>,
    archiver: Arc<dyn Archiver>,
    /// Held by the shelving thread, if there is one.
    shelver: Arc<Mutex<Shelver>>,
    /// Without a thread for it.
    committer: Mutex<Option<Committer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The lock of the directory; released when the threads have ended.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl Store {
    /// Opens the data directory behind `disk`, which may be empty, and starts the committer (and, with
    /// [`Options::background`], the thread that shelves). Replays what the shelves do not hold from the log.
    #[allow(clippy::needless_pass_by_value, reason = "the store keeps what it is given")]
    pub fn open(disk: Arc<dyn Disk>, options: Options, archiver: Arc<dyn Archiver>) -> Result<Arc<Store>, OpenError> {
        let directory = || disk.path("");
        let lock = disk.lock().map_err(|source| match source.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::InUse { directory: directory() },
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                OpenError::ReadOnly { directory: directory() }
            }
            _ => OpenError::Io {
                action: "lock it",
                file: directory(),
                source,
            },
        })?;
        let recovery::Recovered {
            engine,
            active,
            spare,
            revision,
        } = recovery::recover(disk.clone(), options)?;
        let committer = Committer::new(engine.clone(), active, spare, revision);
        let mut threads = Vec::new();
        let committer = if engine.options.committer_thread {
            threads.push(spawn("committer", &disk, &engine, move || committer.run())?);
            None
        } else {
            Some(committer)
        };
        let shelver = Arc::new(Mutex::new(Shelver::new(engine.clone(), archiver.clone())));
        if engine.options.background {
            let shelver = shelver.clone();
            let run = move || shelver.lock().unwrap_or_else(PoisonError::into_inner).run();
            threads.push(spawn("shelving", &disk, &engine, run)?);
        }
        let (threads, lock) = (Mutex::new(threads), Mutex::new(Some(lock)));
        Ok(Arc::new(Store {
            engine,
            archiver,
            shelver,
            committer: Mutex::new(committer),
            threads,
            lock,
        }))
    }

    /// The newest published view. One atomic load.
    pub fn view(&self) -> Arc<View> {
        self.engine.view()
    }

    /// Who makes sidecars.
    pub fn archiver(&self) -> &Arc<dyn Archiver> {
        &self.archiver
    }

    /// Makes one write. Resolves when it is published (and, with [`Durability::Fsync`], on disk).
    ///
    /// Dropping the future does not undo a write that was queued.
    pub async fn write(&self, mut write: Write) -> Result<Written, WriteError> {
        if write.resource.is_empty() || write.key.is_empty() {
            return Err(WriteError::Key(write.key));
        }
        let sealing = self.engine.options.sealing.as_ref();
        let Some(sealing) = sealing.and_then(|by| ResourceSealing::of(by, &write.resource)) else {
            return self.queue(write).await;
        };
        sealing.seal(&mut write)?;
        match self.queue(write).await {
            Ok(written) => Ok(Written {
                object: written.object.opened_by(&sealing),
                ..written
            }),
            Err(WriteError::Conflict { current }) => Err(WriteError::Conflict {
                current: current.map(|current| Box::new(current.opened_by(&sealing))),
            }),
            Err(error) => Err(error),
        }
    }

    async fn queue(&self, write: Write) -> Result<Written, WriteError> {
        let closed = || match self.engine.failure() {
            Some(reason) => WriteError::Failed(reason.to_owned()),
            None => WriteError::Closed,
        };
        match self.engine.queue.put(write).await {
            Err(WriteError::Closed) => Err(closed()),
            Err(error) => Err(error),
            Ok(answer) => answer.await.unwrap_or_else(|_| Err(closed())),
        }
    }

    /// `resource` as it was at `revision`: a view that knows this resource only. Costs what was written to the resource
    /// since.
    pub fn view_at(&self, resource: &str, revision: u64) -> Result<Arc<View>, HistoryError> {
        let view = self.engine.view();
        follow::check(&self.engine, &view, resource, revision)?;
        if revision == view.revision() {
            return Ok(view);
        }
        let none = EntryList::default();
        let index = view.resource(resource).map_or(&none, |resource| &resource.index);
        let records = view.log.entries_after(resource, index, revision).map(|(at, _)| at);
        Ok(Arc::new(view.past(resource, revision, records)?))
    }

    /// The writes of `resource` (in `namespace`, if given) after revision `after`.
    pub fn follow(
        self: &Arc<Self>,
        resource: &str,
        namespace: Option<&str>,
        after: u64,
    ) -> Result<Follower, HistoryError> {
        Follower::new(&self.engine, resource, namespace, after)
    }

    /// Resolves when the published revision is at least `revision`.
    pub async fn reached(&self, revision: u64) {
        let mut listener = Listener::new(self.engine.reached.clone());
        let Some(before) = revision.checked_sub(1) else { return };
        std::future::poll_fn(|context| listener.poll_above(before, context)).await;
    }

    /// Readers keep files on the disk that the store has removed. When these have more than [`Options::history_bytes`]: the
    /// moment such that they have no more once all reads that began before it are ended. O(such files).
    pub fn overstayed(&self) -> Option<std::time::Instant> {
        self.engine.retired.overstayed(self.engine.options.history_bytes)
    }

    /// Ends the store: nothing more is accepted, what is queued is committed, everything is synced and marked clean.
    /// Views stay readable. Blocks for a few syncs.
    pub fn close(&self) {
        self.engine.signal.stop();
        self.engine.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for ended in threads {
            // A thread that panicked has told so on stderr.
            let _ = ended.join();
        }
        if let Some(mut committer) = self.by_hand().take() {
            while committer.run_once() {}
            committer.finish();
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Looks whether the data directory is still where it was; if not, the store fails as it does when the disk fails. Every
    /// write looks too; this is for times without writes. Blocks for a call of the system.
    pub fn check_in_place(&self) {
        // A failure was told by the hook.
        let _ = self.engine.check_in_place(None);
    }

    fn by_hand(&self) -> MutexGuard<'_, Option<Committer>> {
        self.committer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does now what the committer's thread would do next: commits one batch of what waits (`true`), or, if nothing waits,
    /// marks the end of the log as synced. For stores without [`Options::committer_thread`]; does nothing for others.
    pub fn commit(&self) -> bool {
        self.by_hand().as_mut().is_some_and(Committer::run_once)
    }

    /// Does now what the background thread would do: shelves what is due (everything, if `all`), retires old segments. For
    /// stores without [`Options::background`]; does nothing for others.
    pub fn maintain(&self, all: bool) {
        if !self.engine.options.background {
            let mut shelver = self.shelver.lock().unwrap_or_else(PoisonError::into_inner);
            // Without space it is for the next call; a failure was told by the hook.
            let _ = shelver.maintain(all);
        }
    }

    /// Moves everything to shelves and lets history go that is older than `keep`; all of it, if that is zero: then every watch begins
    /// with a list. What something damaged is in the way of stays as it is. Costs what shelving what changed costs; neither reads
    /// nor writes wait for it.
    pub async fn compact(&self, keep: Duration) -> Result<(), ShelveError> {
        if self.engine.options.background {
            return self
                .engine
                .signal
                .compact(keep)
                .await
                .unwrap_or(Err(ShelveError::Stopped));
        }
        let mut shelver = self.shelver.lock().unwrap_or_else(PoisonError::into_inner);
        shelver.compact(keep, || match self.by_hand().as_mut() {
            Some(committer) => committer.begin_segment(),
            None => self.engine.queue.rotate(),
        })
    }

    /// Makes the sidecars of `resource` again, in the background, where they are not of the layout that the archiver makes now:
    /// after the columns or selectable fields of a resource changed. No revision is given out and nobody is told; reads go
    /// on meanwhile. What is written in the old layout while this runs is not seen to. Costs what reading and writing the
    /// objects costs.
    ///
    /// # Errors
    /// [`ShelveError`]; what was made until then stays.
    pub async fn renew(&self, resource: &str) -> Result<(), ShelveError> {
        if self.engine.options.background {
            let done = self.engine.signal.renew(resource).await;
            return done.unwrap_or(Err(ShelveError::Stopped));
        }
        let mut shelver = self.shelver.lock().unwrap_or_else(PoisonError::into_inner);
        shelver.renew(&resource.into())
    }

    /// Proves now every byte of shelves and sealed segments, and mends what can be mended: see [`Stats::damaged`] for the
    /// rest. For stores without [`Options::background`]; does nothing for others, whose thread does it in its own time.
    pub fn scrub(&self) {
        if !self.engine.options.background {
            let mut shelver = self.shelver.lock().unwrap_or_else(PoisonError::into_inner);
            // As for `maintain`.
            let _ = shelver.scrub();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.engine.view())
    }
}

/// A thread of the store. If it panics, the store fails as it does when the disk fails: writers must not wait for ever.
fn spawn(
    name: &'static str,
    disk: &Arc<dyn Disk>,
    engine: &Arc<Engine>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OpenError> {
    struct Guard(Arc<Engine>, &'static str);
    impl Drop for Guard {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.fail("go on", &format_args!("the {} thread panicked", self.1));
                self.0.queue.abandon();
            }
        }
    }
    let guard = Guard(engine.clone(), name);
    let body = move || {
        let _guard = guard;
        run();
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| OpenError::Io {
            action: "start a thread for it",
            file: disk.path(""),
            source,
        })
}
