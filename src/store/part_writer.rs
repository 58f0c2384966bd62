//! Writing the parts of a shelf: what was on it and what changed since, merged.
//!
//! What cannot be read from the old shelf is taken from the log, if the record that made it is still history.

use std::collections::HashSet;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use flatkube_format::is_sealed;
use flatkube_format::manifest::PartEntry;
use flatkube_format::shelf::{RowFrame, Shelf, ShelfBuilder};

use super::engine::{Counters, Engine, remove};
use super::error::{Damaged, NoSpace};
use super::files;
use super::layer::KeyRange;
use super::listing::Listing;
use super::object::Object;
use super::resource_view::ResourceView;
use super::sealing::{self, Place};
use super::selection::Selection;
use super::shelf_set::Part;
use super::shelving::ShelveError;
use super::view::View;
use super::write::Archiver;
use crate::sync::thread;

/// Writes new parts of one resource.
pub(super) struct PartWriter<'a> {
    engine: &'a Engine,
    name: &'a str,
    as_of: u64,
    row_frame: Option<RowFrame>,
    /// Who makes sidecars of an older layout again, if that is to be done.
    renew: Option<&'a dyn Archiver>,
    pub(super) next_file: u64,
    /// Numbers of the files that were made, in case they are not to be named.
    pub(super) written: Vec<u64>,
}

impl<'a> PartWriter<'a> {
    /// For parts with all writes of a resource up to the revision `as_of`.
    pub(super) fn new(
        engine: &'a Engine,
        name: &'a str,
        as_of: u64,
        row_frame: Option<RowFrame>,
        renew: Option<&'a dyn Archiver>,
    ) -> PartWriter<'a> {
        PartWriter {
            engine,
            name,
            as_of,
            row_frame,
            renew,
            next_file: engine.manifest.lock().next_file,
            written: Vec::new(),
        }
    }

    /// Merges the frozen delta into the parts that it touches. All parts of the new shelf, in order.
    ///
    /// Parts with a number in `damaged` are written anew whatever changed in them.
    pub(super) fn merge(
        &mut self,
        view: &Arc<View>,
        resource: &ResourceView,
        damaged: &HashSet<u64>,
    ) -> Result<Vec<Arc<Part>>, ShelveError> {
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
        for (index, part) in old.iter().enumerate() {
            changed[index] |= damaged.contains(&part.manifest_entry().file);
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
        let mut full = Vec::new();
        while let Some(run) = listing.next(256).map_err(|damaged| self.told(damaged))? {
            for object in run.objects() {
                let object = self.readable(object)?;
                let read = object
                    .stored_json()
                    .and_then(|json| Ok((json, object.sidecar_bytes()?)));
                let (json, sidecar) = read.map_err(|damaged| self.told(damaged))?;
                let renewed = self.renewed(&object, json)?;
                let sidecar = renewed.as_deref().unwrap_or(sidecar);
                let pushed = current.push(object.key(), object.revision(), object.shape(), json, sidecar);
                pushed.map_err(|error| self.told(Damaged::of(self.name, &error)))?;
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

    /// The sidecar made again, if it is of an older layout and that is to be done. What cannot be made again stays as it is.
    fn renewed(&self, object: &Object, json: &[u8]) -> Result<Option<Vec<u8>>, ShelveError> {
        let Some(archiver) = self.renew else {
            return Ok(None);
        };
        let layout = object
            .sidecar()
            .map_err(|damaged| self.told(damaged))?
            .layout
            .to_native();
        if layout == archiver.layout(self.name) {
            return Ok(None);
        }
        let place = Place {
            resource: self.name,
            key: object.key(),
        };
        let made = match &self.engine.options.sealing {
            Some(by) if is_sealed(json) => sealing::renewed(&**by, archiver, place, object.revision(), json),
            _ => archiver.archive(self.name, object.key(), json),
        };
        match made {
            Ok(sidecar) => Ok(Some(sidecar)),
            Err(error) => {
                tracing::warn!(%error, resource = self.name, key = object.key(), "a sidecar cannot be made again");
                Ok(None)
            }
        }
    }

    /// The object, or its record in the log if the shelf's bytes are damaged.
    fn readable(&self, object: Object) -> Result<Object, ShelveError> {
        let read = object.stored_json().and_then(|_| object.sidecar());
        let Err(damaged) = read else {
            return Ok(object);
        };
        let Some(logged) = self.in_log(&object) else {
            tracing::error!(%damaged, resource = self.name, key = object.key(), "an object cannot be read, and the log does not hold it any more");
            return Err(self.told(Damaged {
                reason: format!(
                    "{} {} at revision {} cannot be read, and the log does not hold it any more: {}",
                    self.name,
                    object.key(),
                    object.revision(),
                    damaged.reason
                ),
                ..damaged
            }));
        };
        tracing::warn!(%damaged, resource = self.name, key = object.key(), "an object was damaged on its shelf and is taken from the log");
        Counters::add(&self.engine.counters.mended_objects, 1);
        Ok(logged)
    }

    /// The record that made an object, as long as it is history.
    fn in_log(&self, object: &Object) -> Option<Object> {
        let view = self.engine.view();
        let index = &view.resource(self.name)?.index;
        let before = object.revision().checked_sub(1)?;
        let (at, entry) = view.log.entries_after(self.name, index, before).next()?;
        let logged = Object::at(&view.log, at).ok()?;
        let is_same = entry.revision == object.revision() && logged.key() == object.key();
        (is_same && logged.stored_json().is_ok() && logged.sidecar().is_ok()).then_some(logged)
    }

    fn told(&self, damaged: Damaged) -> ShelveError {
        self.engine.tell_damage(damaged);
        ShelveError::Damaged
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
                    thread::sleep(options.shelve_pause);
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
        if NoSpace::of(error).is_some() {
            tracing::warn!(%error, resource = self.name, "no space to shelve; it is tried again");
            return ShelveError::NoSpace;
        }
        self.engine.fail(action, error);
        ShelveError::Failed
    }
}
