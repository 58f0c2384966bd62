//! What the store's threads and its callers share.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use super::bell::Bell;
use super::disk::{Disk, DiskFile};
use super::error::Damaged;
use super::manifest::ManifestFile;
use super::options::Options;
use super::queue::Queue;
use super::recovery::floor_of_every_resource;
use super::retired::Retired;
use super::shelving::Signal;
use super::view::View;
use crate::sync::{Latest, Mutex, MutexGuard, RwLock};

/// The heart of an open store.
///
/// Order of locks: manifest before working view. The committer holds the working view only to apply a batch that is
/// on disk, the shelving thread only for O(1) steps and the few entries that came while it worked.
pub(super) struct Engine {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: Options,
    pub(super) manifest: ManifestFile,
    pub(super) queue: Queue,
    pub(super) signal: Signal,
    pub(super) counters: Counters,
    pub(super) retired: Retired,
    /// What readers get.
    published: Latest<View>,
    /// What the next published view grows from.
    working: Mutex<View>,
    /// Rings for every published revision.
    pub(super) reached: Arc<Bell>,
    /// Rings for writes of one resource; only of resources that somebody follows.
    bells: RwLock<HashMap<Box<str>, Arc<Bell>>>,
    /// History of no resource reaches below it.
    pub(super) floor: u64,
    /// What was found damaged and cannot be mended.
    damage: Mutex<Vec<Damaged>>,
    /// Why nothing is written any more.
    failure: OnceLock<String>,
}

/// Damaged places that are remembered.
const DAMAGE_MAX: usize = 100;

/// Figures that only go up.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) log_syncs: AtomicU64,
    pub(super) log_sync_nanoseconds: AtomicU64,
    pub(super) shelvings: AtomicU64,
    pub(super) shelved_bytes: AtomicU64,
    pub(super) followers_too_old: AtomicU64,
    pub(super) scrubs: AtomicU64,
    pub(super) scrubbed_bytes: AtomicU64,
    pub(super) mended_objects: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// The working view, locked for a change that ends with [`Working::publish`].
pub(super) struct Working<'a> {
    engine: &'a Engine,
    pub(super) view: MutexGuard<'a, View>,
}

impl Working<'_> {
    /// Makes the changed view the one that readers get.
    pub(super) fn publish(self) {
        self.engine.published.store(Arc::new(self.view.clone()));
    }
}

impl Engine {
    pub(super) fn new(disk: Arc<dyn Disk>, options: Options, manifest: ManifestFile, mut view: View) -> Engine {
        view.sealed_by(options.sealing.clone());
        let reached = Arc::new(Bell::default());
        reached.ring(view.revision());
        let floor = floor_of_every_resource(&manifest.lock());
        Engine {
            queue: Queue::new(options.queue_bytes_max),
            signal: Signal::default(),
            disk,
            options,
            counters: Counters::default(),
            retired: Retired::default(),
            published: Latest::new(view.clone()),
            working: Mutex::new(view),
            reached,
            floor,
            manifest,
            bells: RwLock::default(),
            damage: Mutex::default(),
            failure: OnceLock::new(),
        }
    }

    /// The newest published view.
    pub(super) fn view(&self) -> Arc<View> {
        self.published.load()
    }

    /// The view to change and publish. A change that was not published is there for the next one.
    pub(super) fn working(&self) -> Working<'_> {
        Working {
            engine: self,
            view: self.working.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The bell of a resource, which rings once for each published batch with writes of it.
    pub(super) fn bell(&self, resource: &str) -> Arc<Bell> {
        if let Some(bell) = self.bells.read().unwrap_or_else(PoisonError::into_inner).get(resource) {
            return bell.clone();
        }
        let mut bells = self.bells.write().unwrap_or_else(PoisonError::into_inner);
        let bell = bells.entry(resource.into()).or_insert_with(|| {
            let bell = Bell::default();
            // What was published before may be news to who follows from an older revision.
            bell.ring(self.view().revision());
            Arc::new(bell)
        });
        bell.clone()
    }

    /// The bell of a resource, if anybody ever followed it.
    pub(super) fn existing_bell(&self, resource: &str) -> Option<Arc<Bell>> {
        self.bells
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(resource)
            .cloned()
    }

    /// The disk did something after which nothing may be acknowledged any more. Does not come back with the default
    /// [`Options::on_fatal`].
    pub(super) fn fail(&self, action: &str, error: &dyn std::fmt::Display) -> String {
        let reason = self.failure.get_or_init(|| match self.disk.check_in_place() {
            Err(gone) if is_gone(&gone) => self.displaced(&gone),
            _ => format!("cannot {action}: {error}"),
        });
        let reason = reason.clone();
        self.queue.close();
        (self.options.on_fatal)(&reason);
        reason
    }

    /// Fails when the directory, or `file` in it, is not where it was: what is written now would be lost with the process.
    /// Other errors of looking are left to the operations that are to come. Costs a call of the system for each of the two.
    pub(super) fn check_in_place(&self, file: Option<&dyn DiskFile>) -> Result<(), String> {
        let found = self.disk.check_in_place();
        match found.and_then(|()| file.map_or(Ok(()), DiskFile::check_in_place)) {
            Err(error) if is_gone(&error) => Err(self.fail("keep what is written", &self.displaced(&error))),
            _ => Ok(()),
        }
    }

    /// What a person is told when the directory is not where it was.
    fn displaced(&self, error: &io::Error) -> String {
        format!(
            "the data directory {} was removed, moved or replaced under the running server ({error}): put it back before \
             the next start",
            self.disk.path("")
        )
    }

    /// Notes what is damaged and cannot be mended, each place once.
    pub(super) fn tell_damage(&self, damaged: Damaged) {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |known: &Damaged| known.file == damaged.file && known.offset == damaged.offset;
        if damage.len() < DAMAGE_MAX && !damage.iter().any(is_known) {
            damage.push(damaged);
        }
    }

    /// What was found damaged and could not be mended.
    pub(super) fn damage(&self) -> Vec<Damaged> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why nothing is written any more.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

/// Whether an error of looking for a file says that it is not there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Removes a file that no manifest names (any more). It not being there is as good.
pub(super) fn remove(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Seconds since 1970.
pub(super) fn unix_seconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64)
}
