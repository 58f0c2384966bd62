//! What can be tuned. Tests make everything tiny; a server changes durability and history.

use std::sync::Arc;
use std::time::Duration;

use super::sealing::Sealing;

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It is on disk: `fdatasync` before the answer.
    #[default]
    Fsync,
    /// It is in the kernel's page cache. A crash of the process loses nothing; a crash of the machine may lose the
    /// newest writes, and after any unclean end revisions jump by 2^32 and history restarts, so that no client meets a
    /// revision twice.
    Os,
}

/// Called with the reason when the disk failed in a way after which nothing may be acknowledged any more.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Settings of a store.
#[derive(Clone)]
pub struct Options {
    /// When a write counts as done.
    pub durability: Durability,
    /// The most bytes of log that are kept as history. Beyond it the oldest segments go, whoever reads them.
    pub history_bytes: u64,
    /// Segments are kept at least this long after they were sealed ...
    pub history_age: Duration,
    /// ... and while the log has less than this many bytes.
    pub history_bytes_min: u64,
    /// Bytes of a full-grown log segment. The first ones are smaller ([`Options::segment_bytes_first`]) and double.
    pub segment_bytes: u32,
    /// Bytes of the first log segment of a new store.
    pub segment_bytes_first: u32,
    /// Bytes at which a shelf part is closed and the next begun. A part is built in memory: with 16 MiB, loading 100,000
    /// objects of 3 KiB peaked at 55 MiB of private memory and kept 43, with 8 MiB at 34 and 33; lists are as fast.
    pub part_bytes: u64,
    /// A resource is shelved when its delta has this many bytes in the log, and at least a quarter of its shelf ...
    pub shelve_min_bytes: u64,
    /// ... or when it was not written for this long.
    pub shelve_quiet: Duration,
    /// Shelf parts are written in steps of this many bytes, each synced, ...
    pub shelve_step_bytes: usize,
    /// ... with this pause between them, so that syncs of the log are not stalled.
    pub shelve_pause: Duration,
    /// Writes that wait for the committer hold at most this many bytes together; further writers wait.
    pub queue_bytes_max: usize,
    /// The most bytes of records that are written and synced at once.
    pub batch_bytes_max: usize,
    /// Idle time after which the log says that it is synced.
    pub idle_marker: Duration,
    /// Every byte of shelves and sealed segments is proven again this long after it was last, ...
    pub scrub_interval: Duration,
    /// ... the first time this long after the start, ...
    pub scrub_delay: Duration,
    /// ... at most so many bytes a second.
    pub scrub_bytes_per_second: u64,
    /// Shelve and retire on a thread of its own. `false`: only when [`Store::maintain`](super::Store::maintain) is called.
    pub background: bool,
    /// Commit on a thread of its own. `false`: only when [`Store::commit`](super::Store::commit) is called, so that a
    /// simulation decides what happens in which order.
    pub committer_thread: bool,
    /// Who seals and opens objects; without it nothing is sealed, and what is sealed cannot be read.
    pub sealing: Option<Arc<dyn Sealing>>,
    /// What to do when the disk failed. The default aborts the process: its memory may hold what the disk does not.
    pub on_fatal: OnFatal,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Fsync,
            history_bytes: 4 << 30,
            history_age: Duration::from_mins(5),
            history_bytes_min: 64 << 20,
            segment_bytes: 64 << 20,
            segment_bytes_first: 1 << 20,
            part_bytes: 8 << 20,
            shelve_min_bytes: 256 << 10,
            shelve_quiet: Duration::from_secs(1),
            shelve_step_bytes: 1 << 20,
            shelve_pause: Duration::from_millis(2),
            queue_bytes_max: 64 << 20,
            batch_bytes_max: 4 << 20,
            idle_marker: Duration::from_millis(10),
            scrub_interval: Duration::from_hours(24),
            scrub_delay: Duration::from_mins(10),
            scrub_bytes_per_second: 8 << 20,
            background: true,
            committer_thread: true,
            sealing: None,
            on_fatal: Arc::new(|reason| {
                tracing::error!(
                    reason,
                    "the disk failed: ending the process, nothing is acknowledged any more"
                );
                std::process::abort();
            }),
        }
    }
}
