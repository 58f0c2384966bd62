//! The files of a stopped server, read without an engine: what the manifest names, checked as it is read.
//!
//! One file is in memory at a time (a segment is at most 64 MiB, a shelf part about 8 MiB), and of the log's objects
//! only where they lie.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flatkube_format::frame::{Kind, Record, Seed};
use flatkube_format::manifest::{Manifest, ResourceEntry, SegmentEntry};
use flatkube_format::segment::{self, Scan, Verdict};
use flatkube_format::shelf::{Entry, Shelf};
use flatkube_format::{FormatError, Reason};

use crate::cli::{Exit, Failure};
use crate::store::disk::{Disk, RealDisk};
use crate::store::files;

/// The folder of the store inside a server's data directory.
pub(super) const STORE_FOLDER: &str = "store";

/// A store's directory, locked against a server's start for as long as this lives.
pub(super) struct Directory {
    path: PathBuf,
    manifest: Manifest,
    _lock: Box<dyn Send + Sync>,
}

/// Where the newest version of an object lies in the log.
pub(super) struct Place {
    /// The segment's number.
    pub(super) segment: u64,
    /// Offset of the record in it, in bytes.
    pub(super) offset: usize,
    /// Length of the record in bytes.
    pub(super) len: usize,
    pub(super) revision: u64,
    pub(super) kind: Kind,
    /// Where the JSON lies in the segment.
    pub(super) json: Range<usize>,
    /// Where the sidecar lies in the segment.
    pub(super) sidecar: Range<usize>,
}

/// One resource in the log.
#[derive(Default)]
pub(super) struct Logged {
    /// What was written since the resource was shelved: the newest version (or deletion) of each key.
    pub(super) delta: BTreeMap<String, Place>,
    /// Bytes of all its records that are kept.
    pub(super) bytes: u64,
}

/// The log as a whole.
#[derive(Default)]
pub(super) struct Log {
    pub(super) resources: BTreeMap<String, Logged>,
    pub(super) records: u64,
    pub(super) revision: u64,
}

impl Directory {
    /// Opens the store at `path`, or in the data directory at `path`. Refuses one that a server is using.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let inside = path.join(STORE_FOLDER);
        let path = if inside.join(files::MANIFEST).exists() {
            inside
        } else {
            path.to_owned()
        };
        let disk = RealDisk::read_only(&path).map_err(|error| Failure::io("read", &path, &error))?;
        let lock = disk.lock().map_err(|error| lock_failed(&path, &error))?;
        let file = path.join(files::MANIFEST);
        let bytes = fs::read(&file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::Failure, format!("there is no store in {}", path.display()))
                .advise("name the directory that was given to 'flatkube server --data-dir'"),
            _ => Failure::io("read", &file, &error),
        })?;
        let manifest = Manifest::decode(&bytes).map_err(|error| damaged(&file, &error))?;
        Ok(Directory {
            path,
            manifest,
            _lock: lock,
        })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file `name`.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The whole file `name`.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Failure> {
        let file = self.file(name);
        fs::read(&file).map_err(|error| Failure::io("read", &file, &error))
    }

    /// The bytes `range` of the segment `number`.
    pub(super) fn read_log(&self, number: u64, range: &Range<usize>) -> Result<Vec<u8>, Failure> {
        let file = self.file(&files::segment(number));
        let mut bytes = vec![0; range.len()];
        File::open(&file)
            .and_then(|opened| opened.read_exact_at(&mut bytes, range.start as u64))
            .map_err(|error| Failure::io("read", &file, &error))?;
        Ok(bytes)
    }

    /// Walks the records of one segment.
    pub(super) fn scan<'a>(
        &self,
        entry: &SegmentEntry,
        bytes: &'a [u8],
        visit: impl FnMut(Record<'a>),
    ) -> Result<Scan, FormatError> {
        let seed = self.seed(entry.number);
        match &entry.sealed {
            Some(sealed) => segment::scan_sealed(bytes, sealed.end as usize, &seed, visit),
            None => segment::scan(bytes, &seed, visit),
        }
    }

    /// What the checksums of a segment are seeded with.
    pub(super) fn seed(&self, segment: u64) -> Seed {
        Seed {
            store: self.manifest.store,
            segment,
        }
    }

    /// Reads the whole log: where the newest version of each object lies that is not on a shelf.
    pub(super) fn log(&self) -> Result<Log, Failure> {
        let shelved: BTreeMap<&str, u64> = self
            .manifest
            .resources
            .iter()
            .map(|entry| (entry.name.as_str(), entry.shelved_revision))
            .collect();
        let mut log = Log {
            revision: self.manifest.revision,
            ..Log::default()
        };
        for entry in &self.manifest.segments {
            let name = files::segment(entry.number);
            let bytes = self.read(&name)?;
            let scan = self
                .scan(entry, &bytes, |record| log.add(&record, entry.number, &shelved))
                .map_err(|error| damaged(&self.file(&name), &error))?;
            if let Verdict::Corrupt { at, reason, .. } = scan.verdict {
                return Err(damaged(
                    &self.file(&name),
                    &FormatError {
                        offset: at as u64,
                        reason,
                    },
                ));
            }
            log.records += scan.records;
            log.revision = log.revision.max(scan.last_revision);
        }
        Ok(log)
    }

    /// What the manifest says of `resource`; nothing for one that was never shelved.
    pub(super) fn resource(&self, resource: &str) -> Option<&ResourceEntry> {
        self.manifest.resources.iter().find(|entry| entry.name == resource)
    }

    /// The shelf part in the file `number`, opened.
    pub(super) fn part(&self, number: u64) -> Result<Part, Failure> {
        let name = files::part(number);
        let bytes = self.read(&name)?;
        let shelf = Shelf::open(&bytes).map_err(|error| damaged(&self.file(&name), &error))?;
        Ok(Part {
            file: self.file(&name),
            bytes,
            shelf,
        })
    }

    /// Tells every live object of `resource` to `visit` in list order.
    pub(super) fn objects(
        &self,
        resource: &str,
        delta: &BTreeMap<String, Place>,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut changed = delta.iter().peekable();
        let parts = self
            .resource(resource)
            .map(|entry| entry.parts.as_slice())
            .unwrap_or_default();
        for part in parts {
            let part = self.part(part.file)?;
            part.shelf
                .verify(&part.bytes)
                .map_err(|error| damaged(&part.file, &error))?;
            for index in 0..part.shelf.count() {
                let key = part.shelf.key(&part.bytes, index);
                while let Some((logged, place)) = changed.next_if(|(logged, _)| logged.as_str() < key) {
                    self.visit_logged(logged, place, visit)?;
                }
                if let Some((_, place)) = changed.next_if(|(logged, _)| logged.as_str() == key) {
                    self.visit_logged(key, place, visit)?;
                    continue;
                }
                let Entry {
                    json,
                    sidecar,
                    revision,
                    ..
                } = part.shelf.entry(&part.bytes, index);
                visit(&Found {
                    key,
                    revision,
                    json: &part.bytes[json],
                    sidecar: &part.bytes[sidecar],
                })?;
            }
        }
        for (key, place) in changed {
            self.visit_logged(key, place, visit)?;
        }
        Ok(())
    }

    fn visit_logged(
        &self,
        key: &str,
        place: &Place,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if place.kind == Kind::Delete {
            return Ok(());
        }
        let json = self.read_log(place.segment, &place.json)?;
        let sidecar = self.read_log(place.segment, &place.sidecar)?;
        visit(&Found {
            key,
            revision: place.revision,
            json: &json,
            sidecar: &sidecar,
        })
    }
}

/// A live object.
pub(super) struct Found<'a> {
    pub(super) key: &'a str,
    pub(super) revision: u64,
    pub(super) json: &'a [u8],
    pub(super) sidecar: &'a [u8],
}

/// A shelf part in memory.
pub(super) struct Part {
    pub(super) file: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) shelf: Shelf,
}

impl Log {
    fn add(&mut self, record: &Record<'_>, segment: u64, shelved: &BTreeMap<&str, u64>) {
        if record.kind == Kind::Marker {
            return;
        }
        // `entry` would make a string of the name for every record.
        let logged = match self.resources.get_mut(record.resource) {
            Some(logged) => logged,
            None => self.resources.entry(record.resource.to_owned()).or_default(),
        };
        logged.bytes += record.len as u64;
        if record.revision <= shelved.get(record.resource).copied().unwrap_or_default() {
            return;
        }
        let place = Place {
            segment,
            offset: record.offset,
            len: record.len,
            revision: record.revision,
            kind: record.kind,
            json: record.json_range(),
            sidecar: record.sidecar_range(),
        };
        logged.delta.insert(record.key.to_owned(), place);
    }

    /// What was written to `resource` since it was shelved.
    pub(super) fn delta(&self, resource: &str) -> &BTreeMap<String, Place> {
        static NOTHING: BTreeMap<String, Place> = BTreeMap::new();
        self.resources.get(resource).map_or(&NOTHING, |logged| &logged.delta)
    }
}

/// The failure of taking the lock of the store at `path`.
pub(super) fn lock_failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock => Failure::new(Exit::InUse, format!("{} is in use by a server", path.display()))
            .advise("stop the server first, or look into a copy of the directory"),
        _ => Failure::io("lock", path, error),
    }
}

/// The failure for bytes that are not what was written, or that are newer than this program.
pub(super) fn damaged(file: &Path, error: &FormatError) -> Failure {
    let FormatError { offset, reason } = error;
    match reason {
        Reason::NewerFormat { .. } => Failure::new(Exit::NewerFormat, format!("{}: {reason}", file.display()))
            .advise("use the flatkube that wrote it, or a newer one"),
        _ => Failure::new(Exit::Damaged, format!("{}: offset {offset}: {reason}", file.display()))
            .advise("see what can be mended with 'flatkube store verify --repair --dry-run', or restore a backup"),
    }
}
