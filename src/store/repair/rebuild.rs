//! Writing what a diagnosis found whole: new parts, a new manifest, and, where something is lost, a log that begins anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flatkube_format::frame::{self, Seed};
use flatkube_format::manifest::{Manifest, PartEntry, ResourceEntry, SegmentEntry};
use flatkube_format::segment;
use flatkube_format::shelf::{Shelf, ShelfBuilder};
use flatkube_format::sidecar;

use super::log::{LogState, Logged, Place};
use super::part::{Candidate, DamagedPart, From, corrected};
use super::{Diagnosis, RepairError, read_file};
use crate::store::disk::Disk;
use crate::store::engine::remove;
use crate::store::error::Damaged;
use crate::store::files;
use crate::store::manifest::{ReplaceError, store};
use crate::store::recovery::{EVERY_RESOURCE, JUMP, raise_floor};
use crate::store::rotate::footer_of;
use crate::store::write::Archiver;

pub(super) fn carry_out(
    diagnosis: &Diagnosis,
    disk: &Arc<dyn Disk>,
    archiver: &dyn Archiver,
    part_bytes: u64,
    progress: &dyn Fn(u64),
) -> Result<(), RepairError> {
    let disk = &**disk;
    if !diagnosis.is_sound() {
        let Diagnosis {
            manifest,
            parts,
            log,
            keeps_history,
            ..
        } = diagnosis;
        let mut next = manifest.clone();
        next.generation += 1;
        let mut writer = Writer {
            disk,
            archiver,
            part_bytes,
            parts,
            log,
            manifest,
            keeps_history: *keeps_history,
            revision: log.last_revision.saturating_add(JUMP),
            next_file: first_free(disk, manifest.next_file)?,
            segments: HashMap::new(),
            progress,
        };
        if *keeps_history {
            for entry in &mut next.resources {
                entry.parts = writer.resource(entry)?;
            }
            for (number, patches) in log.patches() {
                writer.patch_segment(*number, patches)?;
            }
        } else {
            writer.rebuild(&mut next)?;
        }
        next.next_file = writer.next_file;
        disk.sync_dir().map_err(RepairError::io(disk, "sync it", ""))?;
        store(disk, &next).map_err(|error| {
            let error = match error {
                ReplaceError::NoSpace(what) => std::io::Error::new(std::io::ErrorKind::StorageFull, what),
                ReplaceError::Failed(error) => error,
            };
            RepairError::io(disk, "replace it", files::MANIFEST)(error)
        })?;
        for name in super::leftovers(disk, &next)? {
            remove(disk, &name).map_err(RepairError::io(disk, "remove it", &name))?;
        }
        return Ok(());
    }
    for name in &diagnosis.leftovers {
        remove(disk, name).map_err(RepairError::io(disk, "remove it", name))?;
    }
    Ok(())
}

/// A number for a part that no file has had, named or not.
fn first_free(disk: &dyn Disk, next_file: u64) -> Result<u64, RepairError> {
    let names = disk.list().map_err(RepairError::io(disk, "list it", ""))?;
    let number = |name: &String| {
        name.strip_prefix("shelf-")?
            .trim_end_matches(".new")
            .parse::<u64>()
            .ok()
    };
    let taken = names.iter().filter_map(number).max().map_or(0, |number| number + 1);
    Ok(next_file.max(taken))
}

struct Writer<'a> {
    disk: &'a dyn Disk,
    archiver: &'a dyn Archiver,
    part_bytes: u64,
    parts: &'a BTreeMap<u64, DamagedPart>,
    log: &'a LogState,
    manifest: &'a Manifest,
    keeps_history: bool,
    /// At which a rebuilt store goes on.
    revision: u64,
    next_file: u64,
    /// The segment that was read last.
    segments: HashMap<u64, Arc<Vec<u8>>>,
    progress: &'a dyn Fn(u64),
}

impl Writer<'_> {
    /// Moves everything to shelves and lets an empty log follow.
    fn rebuild(&mut self, next: &mut Manifest) -> Result<(), RepairError> {
        let revision = self.revision;
        for name in self.log.resources.keys() {
            if let Err(index) = next.resources.binary_search_by(|entry| entry.name.cmp(name)) {
                let entry = ResourceEntry {
                    name: name.clone(),
                    ..ResourceEntry::default()
                };
                next.resources.insert(index, entry);
            }
        }
        for entry in next.resources.iter_mut().filter(|entry| entry.name != EVERY_RESOURCE) {
            entry.parts = self.resource(entry)?;
            entry.shelved_revision = revision;
            entry.floor = revision;
        }
        raise_floor(next, EVERY_RESOURCE, revision);
        // Not a number that was ever in use, and not one that a file has.
        let names = self.disk.list().map_err(RepairError::io(self.disk, "list it", ""))?;
        let numbers = names
            .iter()
            .filter_map(|name| name.strip_prefix("segment-")?.parse::<u64>().ok());
        let last = next.segments.last().map_or(0, |entry| entry.number);
        let number = numbers.max().unwrap_or(0).max(last) + 1;
        let seed = Seed {
            store: next.store,
            segment: number,
        };
        let mut bytes = segment::header(seed.store, number, revision).to_vec();
        let (sealed, footer) = footer_of(&seed, bytes.len() as u32, revision, std::iter::empty());
        bytes.extend_from_slice(&footer);
        self.write_file(&files::segment(number), &[bytes])?;
        next.segments = vec![SegmentEntry {
            number,
            first_revision: revision,
            sealed: Some(sealed),
        }];
        next.revision = revision;
        next.clean = true;
        Ok(())
    }

    /// The parts of a resource: those that stay, and those that are written for it.
    fn resource(&mut self, entry: &ResourceEntry) -> Result<Vec<PartEntry>, RepairError> {
        let nothing = Logged::default();
        let logged = self.log.resources.get(&entry.name).unwrap_or(&nothing);
        let mut delta = logged.delta.iter().peekable();
        let mut target = Target {
            name: entry.name.clone(),
            as_of: if self.keeps_history {
                entry.shelved_revision
            } else {
                self.revision
            },
            builder: None,
            parts: Vec::new(),
        };
        for (index, part) in entry.parts.iter().enumerate() {
            let until = entry.parts.get(index + 1).map(|next| next.first_key.as_str());
            let is_changed = !self.keeps_history
                && delta
                    .peek()
                    .is_some_and(|(key, _)| until.is_none_or(|until| key.as_str() < until));
            let damaged = self.parts.get(&part.file);
            if !is_changed && damaged.is_none() {
                self.close(&mut target)?;
                target.parts.push(part.clone());
                continue;
            }
            let bytes = read_file(self.disk, &files::part(part.file))?.unwrap_or_default();
            (self.progress)(bytes.len() as u64);
            let (bytes, objects) = match damaged {
                None => {
                    let shelf = Shelf::open(&bytes);
                    let shelf =
                        shelf.map_err(|error| RepairError::of(&self.disk.path(&files::part(part.file)), &error))?;
                    let objects = (0..shelf.count()).map(|index| whole(&shelf, &bytes, index)).collect();
                    (bytes, objects)
                }
                Some(damaged) => {
                    let objects = self.objects_of(&entry.name, damaged);
                    let bytes = corrected(&bytes, part).map_or(bytes, |(bytes, _)| bytes);
                    (bytes, objects)
                }
            };
            for object in &objects {
                if !self.keeps_history {
                    while let Some((key, place)) = delta.next_if(|(key, _)| **key < object.key) {
                        self.push_logged(&mut target, key, *place)?;
                    }
                    if let Some((key, place)) = delta.next_if(|(key, _)| **key == object.key) {
                        self.push_logged(&mut target, key, *place)?;
                        continue;
                    }
                }
                self.push(&mut target, &bytes, object)?;
            }
            // What the log has behind the last object and before the next part.
            if !self.keeps_history {
                while let Some((key, place)) = delta.next_if(|(key, _)| until.is_none_or(|until| key.as_str() < until))
                {
                    self.push_logged(&mut target, key, *place)?;
                }
            }
        }
        if !self.keeps_history {
            for (key, place) in delta {
                self.push_logged(&mut target, key, *place)?;
            }
        }
        self.close(&mut target)?;
        Ok(target.parts)
    }

    /// The objects of a damaged part, those included that only the log can name.
    fn objects_of(&self, resource: &str, part: &DamagedPart) -> Vec<Candidate> {
        let named = part.objects.iter().flatten().map(|object| Candidate {
            key: object.key.clone(),
            json: object.json.clone(),
            sidecar: object.sidecar.clone(),
            ..*object
        });
        let logged = part.in_log(resource, self.log).map(|key| Candidate {
            key: key.to_owned(),
            revision: self.log.shelved(resource, key).map_or(0, |place| place.revision),
            shape: 0,
            json: 0..0,
            sidecar: 0..0,
            from: From::Log,
        });
        let mut objects: Vec<Candidate> = named.chain(logged).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects
    }

    fn push(&mut self, target: &mut Target, bytes: &[u8], object: &Candidate) -> Result<(), RepairError> {
        let Candidate {
            key, revision, shape, ..
        } = object;
        match object.from {
            From::Part => {
                let (json, sidecar) = (&bytes[object.json.clone()], &bytes[object.sidecar.clone()]);
                self.push_bytes(target, key, *revision, *shape, json, sidecar)
            }
            From::Json => self.push_bytes(target, key, *revision, *shape, &bytes[object.json.clone()], &[]),
            From::Log => match self.log.shelved(&target.name, key) {
                Some(place) if place.revision == *revision => self.push_logged(target, key, place),
                // Lost, and told; or the log has a later version.
                _ => Ok(()),
            },
        }
    }

    fn push_logged(&mut self, target: &mut Target, key: &str, place: Place) -> Result<(), RepairError> {
        if place.is_delete {
            return Ok(());
        }
        let name = files::segment(place.segment);
        let segment = if let Some(segment) = self.segments.get(&place.segment) {
            segment.clone()
        } else {
            let segment = Arc::new(read_file(self.disk, &name)?.unwrap_or_default());
            self.segments.clear();
            self.segments.insert(place.segment, segment.clone());
            segment
        };
        let seed = Seed {
            store: self.manifest.store,
            segment: place.segment,
        };
        let record = frame::read(&segment, place.offset, &seed);
        let record = record.map_err(|error| RepairError::of(&self.disk.path(&name), &error))?;
        self.push_bytes(target, key, record.revision, record.shape, record.json, record.sidecar)
    }

    fn push_bytes(
        &mut self,
        target: &mut Target,
        key: &str,
        revision: u64,
        shape: u32,
        json: &[u8],
        archive: &[u8],
    ) -> Result<(), RepairError> {
        let anew;
        let archive = if sidecar::access(archive).is_ok() {
            archive
        } else {
            anew = self.archiver.archive(&target.name, key, json).map_err(|error| {
                RepairError::Hopeless(Damaged {
                    file: format!("{} {key}", target.name),
                    offset: 0,
                    reason: error.to_string(),
                })
            })?;
            &anew
        };
        let (store, name, archiver) = (self.manifest.store, &target.name, self.archiver);
        let as_of = target.as_of;
        let builder = target
            .builder
            .get_or_insert_with(|| ShelfBuilder::new(store, name, as_of).with_rows(archiver.row_frame(name)));
        let pushed = builder.push(key, revision, shape, json, archive);
        pushed.map_err(|error| RepairError::of(&format!("{} {key}", target.name), &error))?;
        if builder.len_estimate() as u64 >= self.part_bytes {
            self.close(target)?;
        }
        Ok(())
    }

    /// Writes down what was collected of a part.
    fn close(&mut self, target: &mut Target) -> Result<(), RepairError> {
        let Some(builder) = target.builder.take() else {
            return Ok(());
        };
        let file = self.next_file;
        self.next_file += 1;
        let regions = builder.finish();
        self.write_file(&files::part(file), &regions)?;
        let bytes = regions.concat();
        let shelf = Shelf::open(&bytes);
        let shelf = shelf.map_err(|error| RepairError::of(&self.disk.path(&files::part(file)), &error))?;
        target.parts.push(PartEntry {
            file,
            count: shelf.count() as u64,
            bytes: bytes.len() as u64,
            first_key: shelf.key(&bytes, 0).to_owned(),
            last_key: shelf.key(&bytes, shelf.count() - 1).to_owned(),
            header_crc: shelf.header_crc(),
        });
        Ok(())
    }

    /// Writes a segment anew with some of its bytes put right, and puts it in the place of the damaged one.
    fn patch_segment(&mut self, number: u64, patches: &[(u64, Vec<u8>)]) -> Result<(), RepairError> {
        let name = files::segment(number);
        let mut bytes = read_file(self.disk, &name)?.unwrap_or_default();
        for (at, patch) in patches {
            let range = *at as usize..*at as usize + patch.len();
            if bytes.len() < range.end {
                bytes.resize(range.end, 0);
            }
            bytes[range].copy_from_slice(patch);
        }
        self.write_file(&name, &[bytes])
    }

    /// Writes a file under another name, synced, and gives it its name.
    fn write_file(&self, name: &str, regions: &[Vec<u8>]) -> Result<(), RepairError> {
        let disk = self.disk;
        let unfinished = format!("{name}.new");
        let written = remove(disk, &unfinished).and_then(|()| {
            let file = disk.create(&unfinished)?;
            file.allocate(regions.iter().map(|region| region.len() as u64).sum())?;
            let mut offset = 0;
            for region in regions {
                file.write_at(region, offset)?;
                offset += region.len() as u64;
            }
            file.sync_data()?;
            disk.rename(&unfinished, name)
        });
        written.map_err(RepairError::io(disk, "write it", name))
    }
}

/// A shelf that is being written.
struct Target {
    name: String,
    as_of: u64,
    builder: Option<ShelfBuilder>,
    parts: Vec<PartEntry>,
}

fn whole(shelf: &Shelf, bytes: &[u8], index: usize) -> Candidate {
    let entry = shelf.entry(bytes, index);
    Candidate {
        key: shelf.key(bytes, index).to_owned(),
        revision: entry.revision,
        shape: entry.shape,
        json: entry.json,
        sidecar: entry.sidecar,
        from: From::Part,
    }
}
