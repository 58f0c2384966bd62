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

use std::collections::HashMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatkube_format::manifest::{Manifest, PartEntry, ResourceEntry};
use flatkube_format::shelf::{RowFrame, Shelf, ShelfBuilder};

use super::engine::{Counters, Engine, remove};
use super::error::Damaged;
use super::files;
use super::layer::KeyRange;
use super::listing::Listing;
use super::manifest::{ReplaceError, is_no_space};
use super::options::Options;
use super::planted::{Planted, is_planted};
use super::resource_view::ResourceView;
use super::selection::Selection;
use super::shelf_set::{Part, ShelfSet};
use super::view::View;
use super::write::Archiver;

/// How often the thread looks for old segments when nothing else happens.
const RETIRE_INTERVAL: Duration = Duration::from_secs(30);
/// How long it waits before it tries again after it found no space.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
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

    /// Ends the thread after what it is doing.
    pub(super) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.changed.notify_all();
    }

    fn stopped(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop
    }

    /// Waits until a resource is due or `timeout` has passed (without one: until something was written). `false`: stop.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.stop {
                return false;
            }
            if state.due || (state.written && deadline.is_none()) {
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
}

/// Why something was not shelved or retired.
pub(super) enum ShelveError {
    /// Try again later.
    NoSpace,
    /// The store is closing.
    Stopped,
    /// Told to [`Engine::fail`].
    Failed,
}

impl Shelver {
    pub(super) fn new(engine: Arc<Engine>, archiver: Arc<dyn Archiver>) -> Shelver {
        Shelver {
            engine,
            archiver,
            frozen: HashMap::new(),
            quiet: HashMap::new(),
        }
    }

    /// Works until the store is closed.
    pub(super) fn run(&mut self) {
        let engine = self.engine.clone();
        let mut timeout = Some(Duration::ZERO);
        while engine.signal.wait(timeout) {
            if engine.failure().is_some() {
                return;
            }
            timeout = match self.maintain(false) {
                Ok(()) => self.next_look(),
                Err(ShelveError::NoSpace) => Some(RETRY_INTERVAL),
                Err(ShelveError::Stopped | ShelveError::Failed) => return,
            };
        }
    }

    fn next_look(&self) -> Option<Duration> {
        let view = self.engine.view();
        if view.resources.values().any(|resource| resource.delta_len() > 0) {
            Some(self.engine.options.shelve_quiet / 4)
        } else if view.log.segments().len() > 1 {
            Some(RETIRE_INTERVAL)
        } else {
            None
        }
    }

    /// Shelves what is due, or everything, and retires what is old.
    pub(super) fn maintain(&mut self, all: bool) -> Result<(), ShelveError> {
        let view = self.engine.view();
        for name in view.resources.keys() {
            if all || self.is_due(&view, name) {
                self.shelve(name)?;
            }
        }
        self.retire()
    }

    /// Retires old segments; shelves what stands in the way.
    fn retire(&mut self) -> Result<(), ShelveError> {
        let engine = self.engine.clone();
        for name in super::retention::standing_in_the_way(&engine) {
            self.shelve(&name)?;
        }
        super::retention::retire(&engine)
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

        let mut writer = PartWriter {
            engine: &engine,
            name,
            as_of: shelved_revision,
            row_frame: self.archiver.row_frame(name),
            next_file: 0,
            written: Vec::new(),
        };
        writer.next_file = engine.manifest.lock().next_file;
        let result = writer.merge(&view, &resource);
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
            Err(ReplaceError::NoSpace) => {
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

        self.remove_replaced(&replaced, &entries);
        Counters::add(&engine.counters.shelvings, 1);
        Ok(())
    }

    /// Removes the parts that are not in use any more.
    fn remove_replaced(&self, replaced: &[PartEntry], in_use: &[PartEntry]) {
        let disk = &*self.engine.disk;
        for part in replaced
            .iter()
            .filter(|part| !in_use.iter().any(|entry| entry.file == part.file))
        {
            if let Err(error) = remove(disk, &files::part(part.file)) {
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
            if resource.active.is_empty() {
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

/// Writes new parts of one resource.
struct PartWriter<'a> {
    engine: &'a Engine,
    name: &'a str,
    as_of: u64,
    row_frame: Option<RowFrame>,
    next_file: u64,
    /// Numbers of the files that were made, in case they are not to be named.
    written: Vec<u64>,
}

impl PartWriter<'_> {
    /// Merges the frozen delta into the parts that it touches. All parts of the new shelf, in order.
    fn merge(&mut self, view: &Arc<View>, resource: &ResourceView) -> Result<Vec<Arc<Part>>, ShelveError> {
        let old = resource.shelf.parts();
        if old.is_empty() {
            let everything = KeyRange {
                lower: Bound::Unbounded,
                upper: None,
            };
            let mut parts = Vec::new();
            self.write_range(view, everything, &mut parts)?;
            return self.finish(parts);
        }
        let mut changed = vec![false; old.len()];
        for index in resource.changed_parts(&view.log) {
            changed[index] = true;
        }
        // A small part beside a changed one is taken along, so that deletions do not leave a row of crumbs.
        let small = |index: usize| old[index].manifest_entry().bytes < self.engine.options.part_bytes / 4;
        for index in 0..old.len() {
            let beside = |index: usize| changed.get(index).copied().unwrap_or(false);
            if !changed[index] && small(index) && (beside(index + 1) || (index > 0 && beside(index - 1))) {
                changed[index] = true;
            }
        }
        let mut parts = Vec::new();
        let mut index = 0;
        while index < old.len() {
            if !changed[index] {
                parts.push(old[index].clone());
                index += 1;
                continue;
            }
            let first = index;
            while index < old.len() && changed[index] {
                index += 1;
            }
            let lower = resource.shelf.keys_of(first).0;
            let upper = resource.shelf.keys_of(index - 1).1;
            let range = KeyRange {
                lower: lower.map_or(Bound::Unbounded, |key| Bound::Included(key.as_bytes().to_vec())),
                upper: upper.map(|key| key.as_bytes().to_vec()),
            };
            self.write_range(view, range, &mut parts)?;
        }
        self.finish(parts)
    }

    /// After it, the new files' names are durable.
    fn finish(&self, parts: Vec<Arc<Part>>) -> Result<Vec<Arc<Part>>, ShelveError> {
        if !self.written.is_empty() {
            self.engine
                .disk
                .sync_dir()
                .map_err(|error| self.failed("sync the data directory", &error))?;
        }
        Ok(parts)
    }

    fn write_range(
        &mut self,
        view: &Arc<View>,
        range: KeyRange,
        parts: &mut Vec<Arc<Part>>,
    ) -> Result<(), ShelveError> {
        let mut listing = Listing::between(view, self.name, range, &Selection::default());
        let store = self.engine.manifest.lock().store;
        let (name, as_of, row_frame) = (self.name, self.as_of, self.row_frame);
        let builder = || ShelfBuilder::new(store, name, as_of).with_rows(row_frame);
        let mut current = builder();
        let engine = self.engine;
        let damaged = |damaged: &Damaged| {
            engine.fail("read what is to be shelved", damaged);
            ShelveError::Failed
        };
        let mut full = Vec::new();
        while let Some(run) = listing.next(256).map_err(|error| damaged(&error))? {
            for object in run.objects() {
                let (json, sidecar) =
                    (|| Ok((object.json()?, object.sidecar_bytes()?)))().map_err(|error| damaged(&error))?;
                let pushed = current.push(object.key(), object.revision(), object.shape(), json, sidecar);
                pushed.map_err(|error| damaged(&Damaged::of(self.name, &error)))?;
                if current.len_estimate() as u64 >= self.engine.options.part_bytes {
                    full.push(std::mem::replace(&mut current, builder()));
                }
            }
            for builder in full.drain(..) {
                let part = self.write_part(builder)?;
                parts.push(part);
            }
            if self.engine.signal.stopped() {
                return Err(ShelveError::Stopped);
            }
        }
        if current.count() > 0 {
            parts.push(self.write_part(current)?);
        }
        Ok(())
    }

    fn write_part(&mut self, builder: ShelfBuilder) -> Result<Arc<Part>, ShelveError> {
        let file = self.next_file;
        self.next_file += 1;
        let (name, name_new) = (files::part(file), files::part_new(file));
        let regions = builder.finish();
        let written = self.write_file(&name_new, &name, &regions);
        drop(regions);
        match written {
            Ok(map) => {
                self.written.push(file);
                let damaged = |damaged: &Damaged| {
                    self.engine.fail("read back a shelf", damaged);
                    ShelveError::Failed
                };
                let bytes = map.bytes();
                let shelf = Shelf::open(bytes).map_err(|error| damaged(&Damaged::of(&name, &error)))?;
                let entry = PartEntry {
                    file,
                    count: shelf.count() as u64,
                    bytes: bytes.len() as u64,
                    first_key: shelf.key(bytes, 0).to_owned(),
                    last_key: shelf.key(bytes, shelf.count() - 1).to_owned(),
                    header_crc: shelf.header_crc(),
                };
                Counters::add(&self.engine.counters.shelved_bytes, entry.bytes);
                Part::open(entry, map).map(Arc::new).map_err(|error| damaged(&error))
            }
            Err(error) => {
                let _ = remove(&*self.engine.disk, &name_new);
                Err(self.failed("write a shelf", &error))
            }
        }
    }

    /// Writes a file in steps, each synced before the next, so that a sync of the log never waits for much.
    fn write_file(&self, name_new: &str, name: &str, regions: &[Vec<u8>]) -> io::Result<Arc<super::map::Map>> {
        let (disk, options) = (&self.engine.disk, &self.engine.options);
        // What no manifest names is of no worth.
        remove(&**disk, name_new)?;
        let file = disk.create(name_new)?;
        file.allocate(regions.iter().map(|region| region.len() as u64).sum())?;
        let mut offset = 0;
        let mut unsynced = 0;
        for step in regions
            .iter()
            .flat_map(|region| region.chunks(options.shelve_step_bytes.max(1)))
        {
            file.write_at(step, offset)?;
            offset += step.len() as u64;
            unsynced += step.len();
            if unsynced >= options.shelve_step_bytes {
                file.sync_data()?;
                unsynced = 0;
                if !options.shelve_pause.is_zero() && !self.engine.signal.stopped() {
                    std::thread::sleep(options.shelve_pause);
                }
            }
        }
        file.sync_data()?;
        disk.rename(name_new, name)?;
        let map = file.map()?;
        map.publish(map.capacity());
        Ok(map)
    }

    fn failed(&self, action: &str, error: &io::Error) -> ShelveError {
        if is_no_space(error) {
            tracing::warn!(%error, resource = self.name, "no space to shelve; it is tried again");
            return ShelveError::NoSpace;
        }
        self.engine.fail(action, error);
        ShelveError::Failed
    }
}
