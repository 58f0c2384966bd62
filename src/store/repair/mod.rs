//! Repair of a directory that no store has open: what is damaged, what can be mended without a doubt, what is lost.
//!
//! # What is believed
//! What a checksum proves. An object is whole if the blocks of its shelf part are, or if its record in the log is. Three things are
//! put right by what else is known of them: the header of a segment says nothing that the manifest does not say; a footer is an index of
//! records that can be read; one wrong byte in a manifest or in a part's header is found by trying, and believed if the checksum
//! holds *and* what it names is there and bears the checksums that it names.
//!
//! # What is done
//! - *Mending*, when nothing is lost: damaged parts are written anew, from what is whole in them and from the log; a damaged segment
//!   header or footer is written anew. Revisions and history stay.
//! - *Rebuilding*, when something is: all that is in the log moves to shelves, the log is left behind for an empty one, revisions go on
//!   2^32 higher and history begins there. Why not a tombstone for what is lost: a deletion's event carries the object's last
//!   state, which is what was lost, and of a lost record not even the key is known. Clients are told that their revision is too old, list
//!   again, and so meet exactly what is there; none meets a revision twice.
//!
//! # Order, and why a crash is safe at any point
//! New files get names that no manifest knows and are synced, then the directory, then the manifest is replaced. A segment is
//! written anew under another name, synced and renamed: it holds what it held. Only then goes what is named no more. A crash
//! before the replacement leaves the damaged directory, which is repaired again.
//!
//! Nothing here keeps the originals: who calls has put them aside.

mod log;
mod manifest;
mod part;
mod rebuild;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flatkube_format::manifest::Manifest;
use flatkube_format::{FormatError, Reason};

use super::disk::Disk;
use super::error::Damaged;
use super::files;
use super::write::Archiver;
use log::LogState;
use part::DamagedPart;

/// Why a directory cannot be examined or repaired. Nothing that counts was changed.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Written by a newer flatkube.
    #[error("{0}: written by a newer flatkube; use that one")]
    NewerFormat(Damaged),
    /// What is there does not say what was there.
    #[error("{0}; restore the directory from a backup")]
    Hopeless(Damaged),
    /// The operating system refused something.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl RepairError {
    fn io<'a>(disk: &'a dyn Disk, action: &'static str, name: &'a str) -> impl Fn(std::io::Error) -> RepairError + 'a {
        move |source| RepairError::Io {
            action,
            file: disk.path(name),
            source,
        }
    }

    fn of(file: &str, error: &FormatError) -> RepairError {
        let damaged = Damaged::of(file, error);
        match error.reason {
            Reason::NewerFormat { .. } => RepairError::NewerFormat(damaged),
            _ => RepairError::Hopeless(damaged),
        }
    }
}

/// Something that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// An object whose bytes on the shelf are damaged, and whose record the log holds no more.
    Object {
        /// Its storage resource.
        resource: String,
        /// `namespace/name`, or `name`.
        key: String,
        /// The revision that it had.
        revision: u64,
    },
    /// Objects of a part that cannot be told from each other. Those of them that the log holds are not lost.
    Keys {
        /// Their storage resource.
        resource: String,
        /// They are not below this key ...
        first_key: String,
        /// ... nor above this one.
        last_key: String,
        /// How many.
        count: u64,
    },
    /// Writes whose records are damaged. What they wrote is as it was before them, or as later writes left it.
    Writes {
        /// The lowest revision that they may have.
        from: u64,
        /// The highest one; `u64::MAX` if it is not known.
        to: u64,
        /// What they wrote to, if that is known for certain.
        resource: Option<String>,
        /// Resource and key as far as they can be read. The damage may be in them.
        likely: Option<(String, String)>,
    },
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::Object {
                resource,
                key,
                revision,
            } => write!(f, "{resource} {key} at revision {revision}"),
            Loss::Keys {
                resource,
                first_key,
                last_key,
                count,
            } => {
                write!(f, "{count} objects of {resource} from {first_key} to {last_key}")
            }
            Loss::Writes {
                from,
                to,
                resource,
                likely,
            } => {
                if from == to {
                    write!(f, "the write at revision {from}")?;
                } else if *to == u64::MAX {
                    write!(f, "writes from revision {from} on")?;
                } else {
                    write!(f, "writes of revisions {from} to {to}")?;
                }
                match (resource, likely) {
                    (_, Some((resource, key))) => write!(f, ", likely of {resource} {key}"),
                    (Some(resource), None) => write!(f, " of {resource}"),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

/// What a directory is like, and what can be done about it. Nothing was changed.
pub struct Diagnosis {
    /// As it stands, or as it was found to be.
    manifest: Manifest,
    manifest_source: manifest::Source,
    parts: BTreeMap<u64, DamagedPart>,
    log: LogState,
    /// Damaged places, in the order in which they were found.
    pub damaged: Vec<Damaged>,
    /// What is gone for good, ascending.
    pub losses: Vec<Loss>,
    /// Objects that are damaged and can be had from elsewhere.
    pub mendable: u64,
    /// Files that nothing names.
    pub leftovers: Vec<String>,
    /// Revisions and history stay as they are; otherwise all clients list again.
    pub keeps_history: bool,
}

/// Looks at every byte of a directory, which must be locked. One file is in memory at a time, and of the log the keys and places of
/// what is not on shelves. `progress` is told how many bytes were read.
pub fn examine(disk: &dyn Disk, archiver: &dyn Archiver, progress: &dyn Fn(u64)) -> Result<Diagnosis, RepairError> {
    let mut damaged = Vec::new();
    let (manifest, manifest_source) = manifest::read(disk, &mut damaged)?;
    let parts = part::examine(disk, &manifest, archiver, &mut damaged, progress)?;
    let is_certain = manifest_source != manifest::Source::Files;
    let log = log::read(disk, &manifest, is_certain, &parts, &mut damaged, progress)?;
    let (mut losses, mut mendable) = (log.losses(&manifest, &parts), 0);
    for part in parts.values() {
        let resource = &manifest.resources[part.resource].name;
        let (lost, mended) = part.losses(resource, &manifest, &log);
        losses.extend(lost);
        mendable += mended;
    }
    let keeps_history = losses.is_empty() && !log.has_gaps() && is_certain;
    Ok(Diagnosis {
        leftovers: leftovers(disk, &manifest)?,
        manifest,
        manifest_source,
        parts,
        log,
        damaged,
        losses,
        mendable,
        keeps_history,
    })
}

impl Diagnosis {
    /// Whether there is nothing to do, but for leftovers.
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty()
    }

    /// What will be done, a sentence a line.
    pub fn plan(&self) -> Vec<String> {
        let mut plan = Vec::new();
        match self.manifest_source {
            manifest::Source::Disk => {}
            manifest::Source::Corrected => plan.push("the manifest is written anew with one byte put right".into()),
            manifest::Source::Files => plan.push("the manifest is made anew from the files that are there".into()),
        }
        if !self.is_sound() && !self.keeps_history {
            plan.push("what is whole in the log moves to shelves, and the log begins anew".into());
            plan.push("revisions go on 2^32 higher and history begins there: clients list again".into());
        }
        for part in self.parts.values() {
            let resource = &self.manifest.resources[part.resource].name;
            plan.push(format!("{} of {resource} is written anew", files::part(part.file)));
        }
        if self.mendable > 0 {
            plan.push(format!(
                "{} objects are taken from elsewhere: nothing of them is lost",
                self.mendable
            ));
        }
        if self.keeps_history {
            plan.extend(
                self.log
                    .patched()
                    .map(|number| format!("{} is written anew", files::segment(number))),
            );
        }
        plan.extend(
            self.leftovers
                .iter()
                .map(|name| format!("{name} is in no use and is removed")),
        );
        plan
    }

    /// Whether a file keeps its name and is written on by the next server.
    pub fn is_written_on(&self, name: &str) -> bool {
        let last = self.manifest.segments.last();
        last.is_some_and(|last| last.sealed.is_none() && name == files::segment(last.number))
    }

    /// Does it. Takes the directory's lock for granted, and that the originals were put aside.
    pub fn carry_out(
        &self,
        disk: &Arc<dyn Disk>,
        archiver: &dyn Archiver,
        part_bytes: u64,
        progress: &dyn Fn(u64),
    ) -> Result<(), RepairError> {
        rebuild::carry_out(self, disk, archiver, part_bytes, progress)
    }
}

fn leftovers(disk: &dyn Disk, manifest: &Manifest) -> Result<Vec<String>, RepairError> {
    let parts = manifest.resources.iter().flat_map(|resource| &resource.parts);
    let named: HashSet<String> = parts
        .map(|part| files::part(part.file))
        .chain(manifest.segments.iter().map(|segment| files::segment(segment.number)))
        .collect();
    let mut names = disk.list().map_err(RepairError::io(disk, "list it", ""))?;
    // A server keeps the next segment ready.
    let spare = manifest.segments.last().map(|last| files::segment(last.number + 1));
    names.retain(|name| {
        files::is_disposable(name) && !named.contains(name) && name != files::SPARE && Some(name) != spare.as_ref()
    });
    names.sort();
    Ok(names)
}

/// The whole file `name`; `None` if it is not there.
fn read_file(disk: &dyn Disk, name: &str) -> Result<Option<Vec<u8>>, RepairError> {
    let read = disk.open(name).and_then(|file| {
        let mut bytes = vec![0; file.len()? as usize];
        // What the device cannot read is damaged like what it reads wrongly; the rest of the file may be whole.
        for (index, piece) in bytes.chunks_mut(64 << 10).enumerate() {
            if file.read_at(piece, (index * (64 << 10)) as u64).is_err() {
                piece.fill(0);
            }
        }
        Ok(bytes)
    });
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).map_err(RepairError::io(disk, "read it", name)),
    }
}
