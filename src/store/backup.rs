//! Backup: the files of a store as they are at one revision, taken while it goes on.
//!
//! A view keeps everything mapped that it is made of: shelf parts, sealed segments, and the records of the segment in use up to
//! its revision. Named by a manifest of their own they are a data directory; the segment in use is given a footer and passes
//! for sealed. Nothing is copied, and nothing waits: neither writers nor shelving.

use std::sync::Arc;

use bytes::Bytes;
use flatkube_format::manifest::{Manifest, ResourceEntry, SegmentEntry};

use super::Store;
use super::error::Damaged;
use super::files;
use super::log::RecordRef;
use super::map::Map;
use super::options::Durability;
use super::recovery::name_floor_of_every_resource;
use super::rotate::footer_of;
use super::segment::Segment;
use super::view::View;

/// A whole data directory at one revision. Keeps what it is made of mapped.
#[derive(Debug, Clone)]
pub struct Backup {
    /// The revision that it holds.
    pub revision: u64,
    /// The files; the manifest, without which the others count for nothing, is the last.
    pub files: Vec<BackupFile>,
}

/// One file: the bytes of its pieces, one behind the other.
#[derive(Debug, Clone)]
pub struct BackupFile {
    /// Its name in the directory.
    pub name: String,
    /// What it holds; mostly slices of mapped files.
    pub pieces: Vec<Bytes>,
}

impl BackupFile {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Store {
    /// A backup of the newest published revision. Costs as much as an index of what was written since the log's last rotation;
    /// the bytes are read by whoever writes them down.
    pub fn backup(&self) -> Result<Backup, Damaged> {
        let (view, current) = {
            // Changes of manifest and views come in the same order: with the lock held, the two fit together.
            let manifest = self.engine.manifest.lock();
            (self.engine.view(), manifest.clone())
        };
        let mut files = Vec::new();
        let mut next = Manifest {
            generation: current.generation + 1,
            durability_os: self.engine.options.durability == Durability::Os,
            clean: true,
            revision: view.revision(),
            segments: Vec::new(),
            resources: Vec::new(),
            ..current
        };
        for segment in view.log.segments() {
            let (entry, file) = sealed(&view, segment)?;
            next.segments.push(entry);
            files.push(file);
        }
        name_floor_of_every_resource(&mut next, self.engine.floor);
        for (name, resource) in &view.resources {
            let parts = resource.shelf.parts();
            files.extend(parts.iter().map(|part| BackupFile {
                name: files::part(part.manifest_entry().file),
                pieces: vec![slice(part.map(), part.map().capacity())],
            }));
            next.resources.push(ResourceEntry {
                name: name.to_string(),
                shelved_revision: resource.shelved_revision,
                floor: resource.floor,
                parts: parts.iter().map(|part| part.manifest_entry().clone()).collect(),
            });
        }
        let manifest = next.encode().map_err(|error| Damaged::of(files::MANIFEST, &error))?;
        files.push(BackupFile {
            name: files::MANIFEST.to_owned(),
            pieces: vec![manifest.into()],
        });
        Ok(Backup {
            revision: view.revision(),
            files,
        })
    }
}

fn slice(map: &Arc<Map>, len: usize) -> Bytes {
    map.owned().slice(..len)
}

/// A segment as a sealed one, up to the view's revision.
fn sealed(view: &View, segment: &Arc<Segment>) -> Result<(SegmentEntry, BackupFile), Damaged> {
    let (sealed, pieces) = if let Some(sealed) = segment.seal_data() {
        let len = sealed.end as usize + sealed.footer_len as usize;
        (sealed.named(), vec![slice(segment.map(), len)])
    } else {
        let end = end_of(view, segment)?;
        let indexes = view.resources.iter().map(|(name, resource)| (&**name, &resource.index));
        let last_revision = view.revision().max(segment.first_revision() - 1);
        let (sealed, footer) = footer_of(segment.seed(), end, last_revision, indexes);
        (sealed, vec![slice(segment.map(), end as usize), footer.into()])
    };
    let entry = SegmentEntry {
        number: segment.number().into(),
        first_revision: segment.first_revision(),
        sealed: Some(sealed),
    };
    let name = files::segment(entry.number);
    Ok((entry, BackupFile { name, pieces }))
}

/// Where the view's last record of the segment in use ends.
fn end_of(view: &View, segment: &Segment) -> Result<u32, Damaged> {
    let indexes = view.resources.values().map(|resource| &resource.index);
    let last = indexes
        .filter(|index| !index.is_empty())
        .map(|index| index.get(index.len() - 1).offset)
        .max();
    let Some(offset) = last else {
        return Ok(flatkube_format::segment::HEADER_LEN as u32);
    };
    let at = RecordRef {
        segment: segment.number(),
        offset,
    };
    Ok(view.log.record(at)?.end() as u32)
}
