//! The manifest in use, and how it is replaced.
//!
//! The new one is written under another name, synced, renamed over the old one, and the directory synced: at any moment
//! a crash leaves the old or the new one, whole. Files are created and synced before a manifest names them, and removed
//! after one stopped naming them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatkube_format::manifest::{MANIFEST_LEN_MAX, Manifest};

use super::disk::Disk;
use super::error::{Damaged, OpenError};
use super::files;

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
    NoSpace,
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
    match written {
        Err(error) if is_no_space(&error) => return Err(ReplaceError::NoSpace),
        other => other.map_err(ReplaceError::Failed)?,
    }
    disk.rename(files::MANIFEST_NEW, files::MANIFEST)
        .map_err(ReplaceError::Failed)?;
    disk.sync_dir().map_err(ReplaceError::Failed)
}

/// Whether an I/O error says that the device or quota is full.
pub(super) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
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
        Ok(manifest) => Ok(Some(manifest)),
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
