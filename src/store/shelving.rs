//! Shelving: what was written to a resource moves from its delta to its shelf, in the background.
//!
//! # Order, and why a crash is safe at any point
//! 1. *Freeze* (O(1), in the working view): the active delta takes no more writes, a new one opens above it.
//! 2. *Write*: the parts whose key range the frozen delta touched are merged with it into new parts, under temporary names, in
//!    synced steps; each is renamed when it is whole, then the directory is synced. A crash leaves files that no manifest
//!    names; recovery removes them and replays the log, which still has everything.
//! 3. *Name*: the manifest is replaced; it says up to which revision the shelf goes. A crash after it replays only what is
//!    newer.
//! 4. *Install*: the new shelf takes the place of the old one and the frozen delta, in one step for readers.
//! 5. *Remove* the replaced parts. Whoever still reads them keeps them mapped.
//!
//! # When
//! A resource is due when its delta has [`Options::shelve_min_bytes`] and a quarter of its shelf: loading n bytes writes at
//! most about five times n, and the delta stays a fraction. Or when it was quiet, the longer the more would have to be
//! rewritten for the little that changed. Or when a segment is to be retired whose records are not all on shelves.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use flatkube_format::manifest::{Manifest, PartEntry, ResourceEntry};
use tokio::sync::oneshot;

use super::engine::{Counters, Engine, remove};
use super::files;
use super::manifest::ReplaceError;
use super::options::Options;
use super::part_writer::PartWriter;
use super::planted::{Planted, is_planted};
use super::resource_view::ResourceView;
use super::scrub::{DamagedPart, Scrub};
use super::shelf_set::{Part, ShelfSet};
use super::view::View;
use super::write::Archiver;
use crate::sync::{Condvar, Mutex};

/// How often the thread looks for old segments when nothing else happens.
const RETIRE_INTERVAL: Duration = Duration::from_secs(30);
/// How long it waits before it tries again after it found no space.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a resource with damage in the way is left alone.
const STUCK_INTERVAL: Duration = Duration::from_mins(1);
/// Bytes that a quiet resource may have rewritten for each byte that changed and each [`Options::shelve_quiet`] of quiet.
const REWRITE_PER_QUIET: u64 = 16;

/// Wakes the shelving thread.
#[derive(Default)]
pub(super) struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    /// Something was written since the thread last looked.
    written: bool,
    /// Some resource is due now.
    due: bool,
    stop: bool,
    /// Who waits for work of the thread's.
    waiting: Vec<Waiting>,
}

/// Work that is asked for.
struct Waiting {
    work: Work,
    answer: oneshot::Sender<Result<(), ShelveError>>,
}

enum Work {
    /// Everything is shelved, and history goes that is older than that.
    Compact(Duration),
    /// The sidecars of a resource are made again where they are of an older layout.
    Renew(Arc<str>),
}

impl Signal {
    /// Says that something was written, and whether a resource is due.
    pub(super) fn written(&self, due: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wake = !state.written || (due && !state.due);
        state.written = true;
        state.due |= due;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
    }

    /// Asks for a compaction. Without an answer the store was closed.
    pub(super) fn compact(&self, keep: Duration) -> oneshot::Receiver<Result<(), ShelveError>> {
        self.ask(Work::Compact(keep))
    }

    /// Asks for the sidecars of a resource to be made again. Without an answer the store was closed.
    pub(super) fn renew(&self, resource: &str) -> oneshot::Receiver<Result<(), ShelveError>> {
        self.ask(Work::Renew(resource.into()))
    }

    fn ask(&self, work: Work) -> oneshot::Receiver<Result<(), ShelveError>> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.stop {
            state.waiting.push(Waiting { work, answer });
            state.due = true;
        }
        drop(state);
        self.changed.notify_all();
        receiver
    }

    fn take_waiting(&self) -> Vec<Waiting> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.waiting)
    }

    /// Ends the thread after what it is doing.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stop = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn stopped(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop
    }

    /// Waits until a resource is due, `timeout` has passed, or, if `until_written`, something was written. `false`: stop.
    fn wait(&self, timeout: Option<Duration>, until_written: bool) -> bool {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return false;
            }
            if state.due || (state.written && until_written) {
                break;
            }
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.written = false;
        state.due = false;
        true
    }
}

/// Whether a resource is to be shelved now, however busy it is.
pub(super) fn is_due(options: &Options, resource: &ResourceView) -> bool {
    resource.delta_bytes() >= options.shelve_min_bytes.max(resource.shelf.bytes() / 4)
}

/// Shelves and retires; one per store.
pub(super) struct Shelver {
    engine: Arc<Engine>,
    /// Says what rows look like.
    archiver: Arc<dyn Archiver>,
    /// Revisions up to which the frozen deltas go.
    frozen: HashMap<Arc<str>, u64>,
    /// The delta bytes of each resource, and since when they are the same.
    quiet: HashMap<Arc<str>, (u64, Instant)>,
    scrub: Scrub,
    /// Numbers of parts that are damaged or hold sidecars of an older layout: they are written anew whatever changed in them.
    damaged: HashSet<u64>,
    /// Whether sidecars of an older layout are made again.
    renewing: bool,
    /// Resources that cannot be shelved because something damaged is in the way, and when that was found.
    stuck: HashMap<Arc<str>, Instant>,
}

/// Why something was not shelved or retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShelveError {
    /// Try again later.
    #[error("no space left on the device of the data directory")]
    NoSpace,
    /// The store is closing.
    #[error("the store is closed")]
    Stopped,
    /// An object cannot be read and is in the log no more; told to the engine (`tell_damage`).
    #[error("something damaged is in the way")]
    Damaged,
    /// Told to the engine (`fail`).
    #[error("the disk failed")]
    Failed,
}

impl Shelver {
    pub(super) fn new(engine: Arc<Engine>, archiver: Arc<dyn Archiver>) -> Shelver {
        Shelver {
            scrub: Scrub::new(&engine.options),
            engine,
            archiver,
            frozen: HashMap::new(),
            quiet: HashMap::new(),
            damaged: HashSet::new(),
            renewing: false,
            stuck: HashMap::new(),
        }
    }

    /// Works until the store is closed.
    pub(super) fn run(&mut self) {
        let engine = self.engine.clone();
        let (mut timeout, mut until_written) = (Some(Duration::ZERO), false);
        while engine.signal.wait(timeout, until_written) {
            if engine.failure().is_some() {
                return;
            }
            self.work_for_those_who_wait();
            let found = self.scrub.step(&engine);
            (timeout, until_written) = match self.maintain(false).and_then(|()| self.mend(found)) {
                Ok(()) => self.next_look(),
                Err(ShelveError::NoSpace) => (Some(RETRY_INTERVAL), false),
                Err(ShelveError::Damaged) => (Some(STUCK_INTERVAL), false),
                Err(ShelveError::Stopped | ShelveError::Failed) => return,
            };
            timeout = Some(timeout.map_or(self.scrub.due_in(), |timeout| timeout.min(self.scrub.due_in())));
        }
    }

    /// When to look again, and whether the next write is reason enough: it is when nothing waits to be shelved, or a small
    /// write after a long rest would not be seen before the next look for old segments.
    fn next_look(&self) -> (Option<Duration>, bool) {
        let view = self.engine.view();
        if view.resources.values().any(|resource| resource.delta_len() > 0) {
            (Some(self.engine.options.shelve_quiet / 4), false)
        } else if view.log.segments().len() > 1 {
            (Some(RETIRE_INTERVAL), true)
        } else {
            (None, true)
        }
    }

    /// Shelves what is due, or everything, and retires what is old.
    pub(super) fn maintain(&mut self, all: bool) -> Result<(), ShelveError> {
        let view = self.engine.view();
        for name in view.resources.keys() {
            if all || self.is_due(&view, name) {
                self.shelve_if_whole(name)?;
            }
        }
        self.retire(None)
    }

    /// Proves everything that lies on disk now, without pauses, and mends what can be mended.
    pub(super) fn scrub(&mut self) -> Result<(), ShelveError> {
        let engine = self.engine.clone();
        let found = self.scrub.pass(&engine);
        self.mend(found)
    }

    /// Writes damaged parts anew.
    fn mend(&mut self, found: Vec<DamagedPart>) -> Result<(), ShelveError> {
        for DamagedPart { resource, file } in found {
            self.damaged.insert(file);
            self.stuck.remove(&resource);
            self.shelve_if_whole(&resource)?;
        }
        Ok(())
    }

    /// Shelves a resource, if nothing damaged is in the way. The others go on: what stays in the delta stays in the log.
    fn shelve_if_whole(&mut self, name: &Arc<str>) -> Result<(), ShelveError> {
        if self
            .stuck
            .get(name)
            .is_some_and(|since| since.elapsed() < STUCK_INTERVAL)
        {
            return Ok(());
        }
        match self.shelve(name) {
            Err(ShelveError::Damaged) => {
                self.stuck.insert(name.clone(), Instant::now());
                Ok(())
            }
            other => {
                self.stuck.remove(name);
                other
            }
        }
    }

    /// Retires old segments, with `keep` those that are older than that; shelves what stands in the way.
    fn retire(&mut self, keep: Option<Duration>) -> Result<(), ShelveError> {
        let engine = self.engine.clone();
        for name in super::retention::standing_in_the_way(&engine, keep) {
            self.shelve_if_whole(&name)?;
        }
        super::retention::retire(&engine, keep)
    }

    /// Shelves everything and lets history go that is older than `keep`; `rotate` makes the log go on in a new segment, so that the one
    /// in use can go, too.
    pub(super) fn compact(&mut self, keep: Duration, rotate: impl FnOnce()) -> Result<(), ShelveError> {
        self.stuck.clear();
        self.maintain(true)?;
        if keep.is_zero() {
            rotate();
        }
        self.retire(Some(keep))
    }

    /// Makes the sidecars of a resource again where they are not of the layout that they are made in now: shelves what was
    /// written, and writes the parts anew in which there are others.
    pub(super) fn renew(&mut self, name: &Arc<str>) -> Result<(), ShelveError> {
        let layout = self.archiver.layout(name);
        let view = self.engine.view();
        let parts = view
            .resource(name)
            .map(|resource| resource.shelf.parts())
            .unwrap_or_default();
        let stale = parts.iter().filter(|part| part.row_layout() != Some(layout));
        let stale: Vec<u64> = stale.map(|part| part.manifest_entry().file).collect();
        self.damaged.extend(stale);
        self.renewing = true;
        let done = self.shelve(name);
        self.renewing = false;
        done
    }

    /// Does what waits for this thread.
    fn work_for_those_who_wait(&mut self) {
        let engine = self.engine.clone();
        for Waiting { work, answer } in engine.signal.take_waiting() {
            let done = match work {
                Work::Compact(keep) => self.compact(keep, || engine.queue.rotate()),
                Work::Renew(resource) => self.renew(&resource),
            };
            // Who no longer waits does not get it.
            let _ = answer.send(done);
        }
    }

    fn is_due(&mut self, view: &View, name: &Arc<str>) -> bool {
        let Some(resource) = view.resource(name) else {
            return false;
        };
        let options = &self.engine.options;
        let bytes = resource.delta_bytes();
        if resource.frozen.is_some() || is_due(options, resource) {
            return true;
        }
        let now = Instant::now();
        let seen = self.quiet.entry(name.clone()).or_insert((bytes, now));
        if seen.0 != bytes {
            *seen = (bytes, now);
        }
        if bytes == 0 {
            return false;
        }
        // At most one part is rewritten for each key, and at most the whole shelf.
        let rewritten = resource
            .shelf
            .bytes()
            .min(resource.active.len() as u64 * options.part_bytes);
        let patience = 1 + rewritten / (bytes * REWRITE_PER_QUIET);
        now.duration_since(seen.1)
            >= options
                .shelve_quiet
                .saturating_mul(patience.min(u64::from(u32::MAX)) as u32)
    }

    /// Shelves one resource up to now.
    fn shelve(&mut self, name: &Arc<str>) -> Result<(), ShelveError> {
        let engine = self.engine.clone();
        let Some((view, shelved_revision)) = self.freeze(name) else {
            return Ok(());
        };
        let resource = view.resource(name).cloned().unwrap_or_default();

        let row_frame = self.archiver.row_frame(name);
        let archiver = self.archiver.clone();
        let renew = self.renewing.then_some(&*archiver);
        let mut writer = PartWriter::new(&engine, name, shelved_revision, row_frame, renew);
        let result = writer.merge(&view, &resource, &self.damaged);
        let PartWriter { next_file, written, .. } = writer;
        let parts = match result {
            Ok(parts) => parts,
            Err(error) => {
                // The frozen delta waits for the next try.
                for file in &written {
                    drop(remove(&*engine.disk, &files::part(*file)));
                }
                return Err(error);
            }
        };
        let mut shelf = ShelfSet::from_parts(parts);
        let entries: Vec<PartEntry> = shelf.parts().iter().map(|part| part.manifest_entry().clone()).collect();

        if is_planted(Planted::RemoveBeforeManifest) {
            let old = resource.shelf.parts().iter();
            let old: Vec<PartEntry> = old.map(|part| part.manifest_entry().clone()).collect();
            self.remove_replaced(&old, &entries);
        }

        // What was written meanwhile, but for the last moments, is marked outside the working view's lock.
        let now = engine.view();
        if let Some(resource) = now.resource(name) {
            shelf.shadowed_by(&now.log, &resource.active);
        }

        let mut manifest = engine.manifest.lock();
        let mut next = Manifest {
            next_file,
            revision: manifest.revision.max(shelved_revision),
            ..manifest.clone()
        };
        let index = match next.resources.binary_search_by(|entry| (*entry.name).cmp(name)) {
            Ok(index) => index,
            Err(index) => {
                next.resources.insert(
                    index,
                    ResourceEntry {
                        name: name.to_string(),
                        ..ResourceEntry::default()
                    },
                );
                index
            }
        };
        next.resources[index].shelved_revision = shelved_revision;
        let replaced = std::mem::replace(&mut next.resources[index].parts, entries.clone());
        match engine.manifest.replace(&mut manifest, next) {
            Ok(()) => {}
            Err(ReplaceError::NoSpace(_)) => {
                for file in &written {
                    drop(remove(&*engine.disk, &files::part(*file)));
                }
                return Err(ShelveError::NoSpace);
            }
            Err(ReplaceError::Failed(error)) => {
                engine.fail("replace the manifest", &error);
                return Err(ShelveError::Failed);
            }
        }
        let mut working = engine.working();
        let log = working.view.log.clone();
        working.view.resource_mut(name).install(&log, shelf, shelved_revision);
        working.publish();
        drop(manifest);
        self.frozen.remove(name);
        let is_in_use = |part: &Part| entries.iter().any(|entry| entry.file == part.manifest_entry().file);
        for part in resource.shelf.parts().iter().filter(|part| !is_in_use(part)) {
            engine.retired.add(part.map());
        }

        self.remove_replaced(&replaced, &entries);
        Counters::add(&engine.counters.shelvings, 1);
        Ok(())
    }

    /// Removes the parts that are not in use any more.
    fn remove_replaced(&mut self, replaced: &[PartEntry], in_use: &[PartEntry]) {
        let disk = self.engine.disk.clone();
        for part in replaced
            .iter()
            .filter(|part| !in_use.iter().any(|entry| entry.file == part.file))
        {
            self.damaged.remove(&part.file);
            if let Err(error) = remove(&*disk, &files::part(part.file)) {
                tracing::warn!(%error, file = disk.path(&files::part(part.file)), "cannot remove a shelf part");
            }
        }
    }

    /// Closes the active delta, unless a frozen one is still there from a try before. Gives what is to be written down, and
    /// up to which revision it goes; `None` if there is nothing.
    fn freeze(&mut self, name: &Arc<str>) -> Option<(Arc<View>, u64)> {
        let mut working = self.engine.working();
        let resource = working.view.resource(name)?;
        if resource.frozen.is_none() {
            let damaged = |part: &Arc<Part>| self.damaged.contains(&part.manifest_entry().file);
            if resource.active.is_empty() && !resource.shelf.parts().iter().any(damaged) {
                return None;
            }
            let revision = working.view.revision;
            working.view.resource_mut(name).freeze();
            self.frozen.insert(name.clone(), revision);
        }
        let view = Arc::new(working.view.to_shelve(name));
        working.publish();
        let revision = *self.frozen.get(name).expect("who froze it noted the revision");
        Some((view, revision))
    }
}
