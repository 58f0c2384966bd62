//! The manifest in use, and how it is replaced.
//!
//! The new one is written under another name, synced, renamed over the old one, and the directory synced: at any moment
//! a crash leaves the old or the new one, whole. Files are created and synced before a manifest names them, and removed
//! after one stopped naming them.

use std::io;
use std::sync::{Arc, PoisonError};

use flatkube_format::manifest::{MANIFEST_LEN_MAX, Manifest};

use super::disk::Disk;
use super::error::{Damaged, NoSpace, OpenError};
use super::files;
use crate::sync::{Mutex, MutexGuard};

/// The manifest on disk and its copy in memory. Whoever changes it holds the lock from reading to publishing what
/// follows from the change, so that changes of views and of the manifest happen in the same order.
pub(super) struct ManifestFile {
    disk: Arc<dyn Disk>,
    current: Mutex<Manifest>,
}

/// How a replacement failed.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// No space for the new one: the old one holds, nothing happened.
    NoSpace(NoSpace),
    /// It is unknown which of the two a restart will find.
    Failed(io::Error),
}

impl ManifestFile {
    pub(super) fn new(disk: Arc<dyn Disk>, current: Manifest) -> ManifestFile {
        ManifestFile {
            disk,
            current: Mutex::new(current),
        }
    }

    /// The manifest, to be read or replaced.
    pub(super) fn lock(&self) -> MutexGuard<'_, Manifest> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the manifest by `next` (its generation is raised here).
    pub(super) fn replace(&self, current: &mut Manifest, mut next: Manifest) -> Result<(), ReplaceError> {
        next.generation = current.generation + 1;
        store(&*self.disk, &next)?;
        *current = next;
        Ok(())
    }
}

/// Writes `manifest` as the directory's manifest.
pub(super) fn store(disk: &dyn Disk, manifest: &Manifest) -> Result<(), ReplaceError> {
    let bytes = manifest
        .encode()
        .map_err(|error| ReplaceError::Failed(io::Error::other(error.to_string())))?;
    let written = (|| {
        match disk.remove(files::MANIFEST_NEW) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(files::MANIFEST_NEW)?;
        file.allocate(bytes.len() as u64)?;
        file.write_at(&bytes, 0)?;
        file.sync_data()
    })();
    written.map_err(|error| NoSpace::of(&error).map_or(ReplaceError::Failed(error), ReplaceError::NoSpace))?;
    disk.rename(files::MANIFEST_NEW, files::MANIFEST)
        .map_err(ReplaceError::Failed)?;
    disk.sync_dir().map_err(ReplaceError::Failed)
}

/// The directory's manifest; `None` when it has none.
pub(super) fn load(disk: &dyn Disk) -> Result<Option<Manifest>, OpenError> {
    use flatkube_format::Reason;
    let path = disk.path(files::MANIFEST);
    let io = |action| {
        let file = path.clone();
        move |source| OpenError::Io { action, file, source }
    };
    let file = match disk.open(files::MANIFEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io("open it"))?,
    };
    let len = file.len().map_err(io("read its length"))?;
    if len > MANIFEST_LEN_MAX as u64 {
        return Err(Damaged {
            file: path,
            offset: 0,
            reason: format!("a manifest of {len} bytes"),
        }
        .into());
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0).map_err(io("read it"))?;
    match Manifest::decode(&bytes) {
        Ok(manifest) => match contradiction(&manifest) {
            None => Ok(Some(manifest)),
            Some(reason) => Err(Damaged {
                file: path,
                offset: 0,
                reason: reason.into(),
            }
            .into()),
        },
        Err(error) => match error.reason {
            Reason::NewerFormat { found, supported, .. } => Err(OpenError::NewerFormat {
                file: path,
                found,
                supported,
            }),
            _ => Err(Damaged::of(&path, &error).into()),
        },
    }
}

/// Revisions and numbers of files beyond this are nobody's: a write a nanosecond takes 146 years to get there. Below it,
/// nothing that is added to one overflows.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// What no store writes into a manifest, whatever its checksums say.
fn contradiction(manifest: &Manifest) -> Option<&'static str> {
    let Manifest {
        generation,
        revision,
        next_file,
        segments,
        resources,
        ..
    } = manifest;
    let last_segment = segments.last().map_or(0, |segment| segment.number);
    if [*generation, *revision, *next_file, last_segment]
        .iter()
        .any(|number| *number > NUMBER_MAX)
    {
        return Some("a number is beyond what any store reaches");
    }
    if segments
        .iter()
        .any(|segment| !(1..=NUMBER_MAX).contains(&segment.first_revision))
    {
        return Some("a segment begins with a revision that no write has");
    }
    // Later writes would be taken for shelved at the next start, and would be gone.
    if resources
        .iter()
        .any(|resource| resource.shelved_revision.max(resource.floor) > *revision)
    {
        return Some("a resource is ahead of the store");
    }
    let mut files: Vec<u64> = resources
        .iter()
        .flat_map(|resource| resource.parts.iter().map(|part| part.file))
        .collect();
    files.sort_unstable();
    // A later part would be written over this one.
    if files.last().is_some_and(|last| last >= next_file) {
        return Some("it names a file whose number was not given out yet");
    }
    // Whoever replaces the part first would remove it for the other.
    if files.windows(2).any(|two| two[0] == two[1]) {
        return Some("it names a file twice");
    }
    None
}

#[cfg(test)]
mod tests {
    use flatkube_format::manifest::{PartEntry, ResourceEntry, SegmentEntry};

    use super::*;

    #[test]
    fn a_manifest_that_contradicts_itself_is_found_out() {
        let sound = Manifest {
            revision: 7,
            next_file: 3,
            segments: vec![SegmentEntry {
                number: 1,
                first_revision: 2,
                sealed: None,
            }],
            resources: vec![ResourceEntry {
                name: "pods".into(),
                shelved_revision: 7,
                floor: 7,
                parts: vec![
                    PartEntry {
                        file: 1,
                        ..PartEntry::default()
                    },
                    PartEntry {
                        file: 2,
                        ..PartEntry::default()
                    },
                ],
            }],
            ..Manifest::default()
        };
        assert_eq!(contradiction(&sound), None);
        let changes: [fn(&mut Manifest); 9] = [
            |manifest| manifest.generation = u64::MAX,
            |manifest| manifest.revision = NUMBER_MAX + 1,
            |manifest| manifest.next_file = u64::MAX,
            |manifest| manifest.segments[0].number = u64::MAX,
            |manifest| manifest.segments[0].first_revision = 0,
            |manifest| manifest.resources[0].shelved_revision = 8,
            |manifest| manifest.resources[0].floor = 8,
            |manifest| manifest.resources[0].parts[1].file = 3,
            |manifest| manifest.resources[0].parts[1].file = 1,
        ];
        for change in changes {
            let mut manifest = sound.clone();
            change(&mut manifest);
            assert!(contradiction(&manifest).is_some(), "{manifest:?}");
        }
    }
}
