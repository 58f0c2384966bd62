//! Damaged shelf parts: what in them is whole, object by object.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ops::Range;

use flatkube_format::manifest::{Manifest, PartEntry};
use flatkube_format::shelf::Shelf;
use flatkube_format::{Reason, sidecar};

use super::log::LogState;
use super::manifest::one_byte_off;
use super::{Loss, RepairError, read_file};
use crate::store::disk::Disk;
use crate::store::error::Damaged;
use crate::store::files;
use crate::store::write::Archiver;

/// A part that has to be written anew.
pub(super) struct DamagedPart {
    /// Index of the resource in the manifest.
    pub(super) resource: usize,
    /// Number of the file.
    pub(super) file: u64,
    /// Its objects, in order of their keys; `None` if they cannot be told from each other.
    pub(super) objects: Option<Vec<Candidate>>,
    /// Objects that have no place in `objects` because their entry is damaged.
    nameless: u64,
    keys: (String, String),
    count: u64,
}

/// An object of a damaged part.
pub(super) struct Candidate {
    pub(super) key: String,
    pub(super) revision: u64,
    pub(super) shape: u32,
    pub(super) json: Range<usize>,
    pub(super) sidecar: Range<usize>,
    pub(super) from: From,
}

/// Where an object's bytes are to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// In the part: JSON and sidecar are whole.
    Part,
    /// The JSON in the part is whole, and the sidecar can be made of it.
    Json,
    /// In the log, or nowhere.
    Log,
}

/// All damaged parts, by the numbers of their files.
pub(super) fn examine(
    disk: &dyn Disk,
    manifest: &Manifest,
    archiver: &dyn Archiver,
    damaged: &mut Vec<Damaged>,
    progress: &dyn Fn(u64),
) -> Result<BTreeMap<u64, DamagedPart>, RepairError> {
    let mut found = BTreeMap::new();
    for (index, resource) in manifest.resources.iter().enumerate() {
        for entry in &resource.parts {
            let name = files::part(entry.file);
            let before = damaged.len();
            let mut tell = |offset: u64, reason: String| {
                damaged.push(Damaged {
                    file: disk.path(&name),
                    offset,
                    reason,
                });
            };
            let objects = match read_file(disk, &name)? {
                None => {
                    tell(0, "it is not there".into());
                    None
                }
                Some(bytes) => {
                    let seen = Seen {
                        manifest,
                        entry,
                        resource: &resource.name,
                    };
                    let objects = seen.objects(&bytes, archiver, &mut tell);
                    progress(bytes.len() as u64);
                    objects.map_err(|error| RepairError::of(&disk.path(&name), &error))?
                }
            };
            if damaged.len() > before {
                let named = objects.as_ref().map_or(0, Vec::len) as u64;
                let part = DamagedPart {
                    resource: index,
                    file: entry.file,
                    nameless: if objects.is_some() {
                        entry.count.saturating_sub(named)
                    } else {
                        0
                    },
                    objects,
                    keys: (entry.first_key.clone(), entry.last_key.clone()),
                    count: entry.count,
                };
                found.insert(entry.file, part);
            }
        }
    }
    Ok(found)
}

/// The bytes of a part with what can be put right in its header and among its checksums put right.
pub(super) fn corrected(bytes: &[u8], entry: &PartEntry) -> Option<(Vec<u8>, Shelf)> {
    // Where the checksum is that the header bears of itself; the manifest has a copy.
    const CRC_AT: usize = 124;
    let mut bytes = bytes.to_vec();
    bytes.truncate(entry.bytes as usize);
    let is_named = |shelf: &Shelf| shelf.header_crc() == entry.header_crc;
    if Shelf::open_header(&bytes).is_ok_and(|shelf| is_named(&shelf)) {
        if Shelf::open(&bytes).is_err() {
            // If the checksums of the blocks alone are wrong, those of the blocks as they are make the index right.
            let shelf = Shelf::open_header(&bytes).ok()?;
            let mut changed = bytes.clone();
            for (block, at) in shelf.block_checksums().step_by(4).enumerate() {
                let crc = crc32fast::hash(changed.get(shelf.block_range(block))?);
                changed.get_mut(at..at + 4)?.copy_from_slice(&crc.to_le_bytes());
            }
            if let Ok(shelf) = Shelf::open(&changed) {
                return Some((changed, shelf));
            }
        }
        let shelf = Shelf::open_header(&bytes).ok()?;
        return Some((bytes, shelf));
    }
    bytes
        .get_mut(CRC_AT..CRC_AT + 4)?
        .copy_from_slice(&entry.header_crc.to_le_bytes());
    if let Ok(shelf) = Shelf::open(&bytes) {
        return Some((bytes, shelf));
    }
    for len in (128..=bytes.len().min(128 + 65_536).next_multiple_of(64)).step_by(64) {
        // The header's checksum leaves itself out.
        let Some(behind) = bytes.get(CRC_AT + 4..len) else {
            break;
        };
        let covered = [&bytes[..CRC_AT], behind].concat();
        for (at, mask) in one_byte_off(&covered, entry.header_crc) {
            let at = if at < CRC_AT { at } else { at + 4 };
            bytes[at] ^= mask;
            if let Ok(shelf) = Shelf::open(&bytes) {
                return Some((bytes, shelf));
            }
            bytes[at] ^= mask;
        }
    }
    None
}

struct Seen<'a> {
    manifest: &'a Manifest,
    entry: &'a PartEntry,
    resource: &'a str,
}

impl Seen<'_> {
    /// The objects, after telling what is damaged; `None` if they cannot be told from each other.
    fn objects(
        &self,
        bytes: &[u8],
        archiver: &dyn Archiver,
        tell: &mut dyn FnMut(u64, String),
    ) -> Result<Option<Vec<Candidate>>, flatkube_format::FormatError> {
        let opened = match Shelf::open(bytes) {
            Ok(shelf) => {
                if self.is_named(bytes, &shelf) {
                    return Ok(Some(self.of_blocks(bytes, &shelf, archiver, tell)));
                }
                tell(0, "it is not the part that the manifest names".into());
                return Ok(None);
            }
            Err(error) if matches!(error.reason, Reason::NewerFormat { .. }) => return Err(error),
            Err(error) => {
                tell(error.offset, error.reason.to_string());
                corrected(bytes, self.entry)
            }
        };
        Ok(opened.and_then(|(bytes, shelf)| match Shelf::open(&bytes) {
            Ok(shelf) if self.is_named(&bytes, &shelf) => Some(self.of_blocks(&bytes, &shelf, archiver, tell)),
            Ok(_) => None,
            Err(_) => Some(self.of_entries(&bytes, &shelf, archiver)),
        }))
    }

    fn is_named(&self, bytes: &[u8], shelf: &Shelf) -> bool {
        let entry = self.entry;
        shelf.header_crc() == entry.header_crc
            && shelf.count() as u64 == entry.count
            && shelf.count() > 0
            && shelf.store() == self.manifest.store
            && shelf.resource(bytes) == self.resource
            && shelf.key(bytes, 0) == entry.first_key
            && shelf.key(bytes, shelf.count() - 1) == entry.last_key
    }

    /// With a proven index: an object is whole where its blocks are.
    fn of_blocks(
        &self,
        bytes: &[u8],
        shelf: &Shelf,
        archiver: &dyn Archiver,
        tell: &mut dyn FnMut(u64, String),
    ) -> Vec<Candidate> {
        let proven = proven_blocks(bytes, shelf, tell);
        let is_whole = |range: &Range<usize>| shelf.block_of(range.clone()).all(|block| proven[block]);
        let objects = (0..shelf.count()).map(|index| {
            let entry = shelf.entry(bytes, index);
            let key = shelf.key(bytes, index);
            let from = if !is_whole(&entry.json) {
                From::Log
            } else if is_whole(&entry.sidecar) && sidecar::access(&bytes[entry.sidecar.clone()]).is_ok() {
                From::Part
            } else if archiver.archive(self.resource, key, &bytes[entry.json.clone()]).is_ok() {
                From::Json
            } else {
                From::Log
            };
            Candidate {
                key: key.to_owned(),
                revision: entry.revision,
                shape: entry.shape,
                json: entry.json,
                sidecar: entry.sidecar,
                from,
            }
        });
        objects.collect()
    }

    /// With an index that is not proven: an entry is believed if the bytes that it points to are whole and say themselves that they
    /// are this object at this revision.
    fn of_entries(&self, bytes: &[u8], shelf: &Shelf, archiver: &dyn Archiver) -> Vec<Candidate> {
        let proven = proven_blocks(bytes, shelf, &mut |_, _| {});
        let mut shapes: HashMap<u32, usize> = HashMap::new();
        for index in 0..shelf.count() {
            *shapes.entry(shelf.entry(bytes, index).shape).or_default() += 1;
        }
        // The number is nowhere else; one that stands alone among others is taken for damage.
        let shape = shapes
            .into_iter()
            .max_by_key(|&(_, count)| count)
            .map(|(shape, _)| shape);
        let mut objects: Vec<Candidate> = Vec::new();
        for index in 0..shelf.count() {
            let entry = shelf.entry(bytes, index);
            let key = shelf.key(bytes, index);
            let in_order = objects.last().is_none_or(|last| *last.key < *key)
                && *self.entry.first_key <= *key
                && *key <= *self.entry.last_key;
            let Some(json) = bytes.get(entry.json.clone()) else {
                continue;
            };
            let is_whole = shelf
                .block_of(entry.json.clone())
                .all(|block| proven.get(block).copied().unwrap_or(false));
            if in_order
                && is_whole
                && Some(entry.shape) == shape
                && archiver.is_object(key, entry.revision, json)
                && archiver.archive(self.resource, key, json).is_ok()
            {
                objects.push(Candidate {
                    key: key.to_owned(),
                    revision: entry.revision,
                    shape: entry.shape,
                    json: entry.json,
                    sidecar: 0..0,
                    from: From::Json,
                });
            }
        }
        objects
    }
}

fn proven_blocks(bytes: &[u8], shelf: &Shelf, tell: &mut dyn FnMut(u64, String)) -> Vec<bool> {
    (0..shelf.block_count())
        .map(|block| match shelf.check_block(bytes, block) {
            Ok(()) => true,
            Err(error) => {
                tell(error.offset, error.reason.to_string());
                false
            }
        })
        .collect()
}

impl DamagedPart {
    /// Whether it has objects of which it cannot say which they are.
    pub(super) fn has_nameless(&self) -> bool {
        self.objects.is_none() || self.nameless > 0
    }

    /// What of the part the log may still hold: a key and its revision, or all keys.
    pub(super) fn wants(&self, key: &str, revision: u64) -> bool {
        let is_inside = *self.keys.0 <= *key && *key <= *self.keys.1;
        is_inside
            && match &self.objects {
                Some(objects) if self.nameless == 0 => objects
                    .binary_search_by(|object| object.key.as_str().cmp(key))
                    .is_ok_and(|at| objects[at].from == From::Log && objects[at].revision == revision),
                _ => true,
            }
    }

    /// What is lost, and how many objects are damaged and can be had.
    pub(super) fn losses(&self, resource: &str, manifest: &Manifest, log: &LogState) -> (Vec<Loss>, u64) {
        let shelved_revision = manifest.resources[self.resource].shelved_revision;
        let (mut losses, mut mended) = (Vec::new(), 0);
        let objects = self.objects.as_deref().unwrap_or_default();
        for object in objects {
            match object.from {
                From::Part => {}
                From::Json => mended += 1,
                From::Log if log.made(resource, &object.key, object.revision) => mended += 1,
                // What was written since has taken its place.
                From::Log if log.wrote_after(resource, &object.key, shelved_revision) => {}
                From::Log => losses.push(Loss::Object {
                    resource: resource.to_owned(),
                    key: object.key.clone(),
                    revision: object.revision,
                }),
            }
        }
        let unnamed = if self.objects.is_none() {
            self.count
        } else {
            self.nameless
        };
        if unnamed > 0 {
            let in_log = self.in_log(resource, log).count() as u64;
            mended += in_log.min(unnamed);
            // A lost record may have been the deletion of what the log shows.
            let least = u64::from(log.may_have_lost(resource));
            if let count @ 1.. = unnamed.saturating_sub(in_log).max(least) {
                losses.push(Loss::Keys {
                    resource: resource.to_owned(),
                    first_key: self.keys.0.clone(),
                    last_key: self.keys.1.clone(),
                    count,
                });
            }
        }
        (losses, mended)
    }

    /// Keys of objects that the part cannot name and that the log made last before the resource was shelved.
    pub(super) fn in_log<'a>(&'a self, resource: &'a str, log: &'a LogState) -> impl Iterator<Item = &'a str> + 'a {
        let objects = self.objects.as_deref().unwrap_or_default();
        let is_named = |key: &str| objects.binary_search_by(|object| object.key.as_str().cmp(key)).is_ok();
        log.shelved_within(resource, &self.keys.0, &self.keys.1)
            .filter(move |key| self.has_nameless() && !is_named(key))
    }
}
