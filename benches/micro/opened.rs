//! Stores with objects in them, on the disk of the build.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatkube::resources::KindArchiver;
use flatkube::store::disk::RealDisk;
use flatkube::store::{Durability, Options, Store, Write};

/// Writes that wait for the committer at a time while objects are loaded.
const LOADERS: usize = 256;

/// An open store in a directory that goes with it.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) directory: tempfile::TempDir,
}

impl Opened {
    /// An empty store that shelves only when it is told to.
    pub(crate) fn empty(durability: Durability) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("micro-")
            .tempdir_in(base())
            .expect("a directory");
        Self {
            store: open(directory.path(), durability),
            runtime: runtime(),
            directory,
        }
    }

    /// Makes all the writes, in their order.
    pub(crate) fn fill(&self, writes: impl Iterator<Item = Write>) {
        fill(&self.runtime, &self.store, writes);
    }

    /// Moves everything onto shelves.
    pub(crate) fn shelve(&self) {
        self.store.maintain(true);
    }

    /// Makes one write and waits for it.
    pub(crate) fn write(&self, write: Write) {
        self.runtime.block_on(self.store.write(write)).expect("a write");
    }
}

/// Opens the store in a directory.
pub(crate) fn open(directory: &Path, durability: Durability) -> Arc<Store> {
    open_with(directory, options(durability))
}

/// Opens the store in a directory without a committer of its own: [`commit`] makes the writes.
pub(crate) fn open_by_hand(directory: &Path) -> Arc<Store> {
    let options = Options {
        committer_thread: false,
        ..options(Durability::Os)
    };
    open_with(directory, options)
}

fn open_with(directory: &Path, options: Options) -> Arc<Store> {
    let disk = RealDisk::create(directory).expect("a directory");
    Store::open(Arc::new(disk), options, Arc::new(KindArchiver::default())).expect("a store")
}

/// Makes all the writes in one batch, on this thread.
pub(crate) fn commit(runtime: &tokio::runtime::Runtime, store: &Store, writes: Vec<Write>) {
    runtime.block_on(async {
        let writes = futures_util::future::join_all(writes.into_iter().map(|write| store.write(write)));
        // The first to be asked are the writes, which are queued then.
        let (written, committed) = tokio::join!(writes, async { store.commit() });
        assert!(committed && written.iter().all(Result::is_ok), "not all was written");
    });
}

/// Nothing is written or shelved that nobody asked for.
pub(crate) fn options(durability: Durability) -> Options {
    Options {
        durability,
        background: false,
        shelve_pause: Duration::ZERO,
        idle_marker: Duration::from_hours(1),
        ..Options::default()
    }
}

/// One thread: what is spawned runs when it is waited for.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Makes all the writes, in their order, many at a time.
pub(crate) fn fill(runtime: &tokio::runtime::Runtime, store: &Arc<Store>, mut writes: impl Iterator<Item = Write>) {
    runtime.block_on(async {
        loop {
            let batch: Vec<_> = writes
                .by_ref()
                .take(LOADERS)
                .map(|write| {
                    let store = store.clone();
                    tokio::spawn(async move { store.write(write).await.map(drop) })
                })
                .collect();
            if batch.is_empty() {
                return;
            }
            for write in batch {
                write.await.expect("no panic").expect("a write");
            }
        }
    });
}

/// On the disk of the build, not in memory.
pub(crate) fn base() -> &'static Path {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).expect("a directory");
    base
}
