//! The segment in use, and how the log goes on in the next one.
//!
//! # Order of a rotation, and why a crash is safe at any point
//! 1. The footer is written behind the records of the old segment, and synced. A crash leaves an unsealed segment with a
//!    footer, or a part of one, behind its records: recovery seals it there.
//! 2. The new segment's header is written and synced, then the directory. A crash leaves a file that no manifest names.
//! 3. The manifest is replaced: the old segment sealed, the new one named.
//! 4. Only then are records written to the new one.
//!
//! Space is [`super::spare`]'s matter.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use flatkube_format::frame::Seed;
use flatkube_format::manifest::{self, SegmentEntry};
use flatkube_format::segment::{self, Footer, FooterBuilder, FooterEntry};

use super::disk::{Disk, DiskFile};
use super::engine::{Engine, remove, unix_seconds};
use super::error::{Damaged, NoSpace};
use super::files;
use super::log::EntryList;
use super::manifest::ReplaceError;
use super::map::Map;
use super::options::Durability;
use super::segment::{Sealed, Segment};
use super::spare::{Spare, allocate, next_len};

/// Bytes of a footer besides its entries: head, alignment, and for each resource its name and this much.
const FOOTER_HEAD: usize = 256;
const FOOTER_RESOURCE: usize = 64;
const FOOTER_ENTRY: usize = 16;
/// Bytes that a record leaves for the marker behind it, without which damage to it could pass for a torn tail.
const MARKER: usize = 128;

/// The segment in use, as its one writer knows it.
pub(super) struct Active {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) segment: Arc<Segment>,
    pub(super) seed: Seed,
    /// End of what was written.
    pub(super) end: u32,
    /// Checksum of the last record, or of the segment's header.
    pub(super) crc: u32,
    /// Everything below is on disk.
    pub(super) synced: u32,
    /// End of the last marker.
    pub(super) marked: u32,
    /// Bytes that the footer will need.
    footer: usize,
    resources: HashSet<Box<str>>,
}

impl Active {
    pub(super) fn new(file: Arc<dyn DiskFile>, segment: Arc<Segment>, seed: Seed, end: u32, crc: u32) -> Active {
        Active {
            file,
            segment,
            seed,
            end,
            crc,
            synced: end,
            marked: end,
            footer: FOOTER_HEAD,
            resources: HashSet::new(),
        }
    }

    /// Whether a record of `len` bytes fits behind the end, a marker behind it, and then the footer, which grows by
    /// `footer` bytes.
    pub(super) fn has_room(&self, len: usize, footer: usize) -> bool {
        self.end as usize + len + MARKER + self.footer + footer <= self.segment.map().capacity()
    }

    /// Whether there is a record of any resource in it.
    pub(super) fn has_records(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether a marker of `len` bytes fits behind the end, and the footer behind it.
    pub(super) fn has_room_for_marker(&self, len: usize) -> bool {
        self.end as usize + len + self.footer <= self.segment.map().capacity()
    }

    /// Counts a record of `resource` in the footer.
    pub(super) fn indexed(&mut self, resource: &str) {
        self.footer += FOOTER_ENTRY;
        if !self.resources.contains(resource) {
            self.resources.insert(resource.into());
            self.footer += FOOTER_RESOURCE + resource.len();
        }
    }
}

/// The most bytes that a record of `resource` adds to a footer.
pub(super) fn footer_growth(resource: &str) -> usize {
    FOOTER_ENTRY + FOOTER_RESOURCE + resource.len()
}

/// Why the log cannot go on in a new segment.
#[derive(Debug)]
pub(super) enum RotateError {
    /// No space; the segment in use stays the one in use.
    NoSpace(NoSpace),
    /// The disk failed, which was told to [`Engine::fail`].
    Failed(String),
}

/// Makes the allocated `file` an empty segment: header written, everything synced.
pub(super) fn initialize(
    disk: &dyn Disk,
    file: Arc<dyn DiskFile>,
    seed: Seed,
    first_revision: u64,
) -> io::Result<Active> {
    let header = segment::header(seed.store, seed.segment, first_revision);
    file.write_at(&header, 0)?;
    file.sync_data()?;
    disk.sync_dir()?;
    let map = file.map()?;
    map.publish(header.len());
    let segment = Arc::new(Segment::active(seed, first_revision, map));
    Ok(Active::new(
        file,
        segment,
        seed,
        header.len() as u32,
        segment::header_crc(&header),
    ))
}

/// Writes the footer behind the records of a segment; not synced.
fn write_footer<'a>(
    file: &dyn DiskFile,
    seed: &Seed,
    end: u32,
    last_revision: u64,
    indexes: impl Iterator<Item = (&'a str, &'a EntryList)>,
) -> io::Result<manifest::Sealed> {
    let (sealed, footer) = footer_of(seed, end, last_revision, indexes);
    file.write_at(&footer, end.into())?;
    Ok(sealed)
}

/// The footer of a segment whose records end at `end`, and what a manifest says of it then.
pub(super) fn footer_of<'a>(
    seed: &Seed,
    end: u32,
    last_revision: u64,
    indexes: impl Iterator<Item = (&'a str, &'a EntryList)>,
) -> (manifest::Sealed, Vec<u8>) {
    let mut builder = FooterBuilder::new(*seed);
    for (resource, index) in indexes {
        for entry in (0..index.len()).map(|at| index.get(at)) {
            let entry = FooterEntry {
                revision: entry.revision,
                offset: entry.offset / 16,
                namespace: entry.namespace,
            };
            builder.push(resource, entry);
        }
    }
    let footer = builder.encode(end);
    let sealed = manifest::Sealed {
        end,
        footer_len: footer.len() as u32,
        last_revision,
        sealed_at: unix_seconds(),
    };
    (sealed, footer)
}

/// Refuses a segment's file that is too short for the footer behind its records.
pub(super) fn check_room(map: &Map, sealed: &manifest::Sealed) -> Result<(), Damaged> {
    let wanted = sealed.end as usize + sealed.footer_len as usize;
    if wanted <= map.capacity() {
        return Ok(());
    }
    Err(Damaged {
        file: map.file().to_owned(),
        offset: map.capacity() as u64,
        reason: format!("the segment is shorter than it was: its records and their footer take {wanted} bytes"),
    })
}

/// Publishes a sealed segment's bytes, whatever they are, and opens its footer.
pub(super) fn open_sealed(map: &Map, seed: &Seed, sealed: &manifest::Sealed) -> Result<Sealed, Damaged> {
    let (end, len) = (sealed.end as usize, sealed.footer_len as usize);
    check_room(map, sealed)?;
    map.publish(end + len);
    let footer = Footer::open(map.bytes(), end, len, seed).map_err(|error| Damaged::of(map.file(), &error))?;
    Ok(Sealed {
        end: sealed.end,
        footer_len: sealed.footer_len,
        last_revision: sealed.last_revision,
        at: sealed.sealed_at,
        footer,
    })
}

/// Seals `active` and puts a new segment in its place, with room for `len` bytes of a record and its entry in the footer: the spare, or
/// one that is larger than `grows_from` bytes.
pub(super) fn rotate(
    engine: &Arc<Engine>,
    active: &mut Active,
    spare: &mut Spare,
    revision: u64,
    len: usize,
    delete: bool,
    grows_from: usize,
) -> Result<(), RotateError> {
    let disk = &*engine.disk;
    let failed = |action: &str, error: &dyn std::fmt::Display| RotateError::Failed(engine.fail(action, error));
    let number = active.seed.segment + 1;
    let needed = (segment::HEADER_LEN + len + MARKER + FOOTER_HEAD) as u64;
    let len_min = u64::from(engine.options.segment_bytes_first);
    let len_new = next_len(&engine.options, grows_from).max(needed);

    // Space first: until here nothing has changed.
    let file = match spare.take() {
        Some(file) if file.len().is_ok_and(|len| len >= needed) => file,
        _ => match allocate(disk, number, len_new, needed.max(len_min)) {
            Ok(file) => file,
            Err(error) => {
                return Err(match NoSpace::of(&error) {
                    Some(what) => RotateError::NoSpace(what),
                    None => failed("allocate a log segment", &error),
                });
            }
        },
    };
    match allocate(disk, number + 1, next_len(&engine.options, len_new as usize), len_min) {
        Ok(next) => spare.put(engine, next),
        Err(error) => match NoSpace::of(&error) {
            Some(what) if delete => spare.starve(what),
            Some(what) => {
                spare.put(engine, file);
                return Err(RotateError::NoSpace(what));
            }
            None => return Err(failed("allocate a log segment", &error)),
        },
    }

    let view = engine.view();
    let indexes = view.resources.iter().map(|(name, resource)| (&**name, &resource.index));
    let sealed = write_footer(&*active.file, &active.seed, active.end, revision, indexes)
        .map_err(|error| failed("seal a log segment", &error))?;
    if engine.options.durability == Durability::Fsync {
        active
            .file
            .sync_data()
            .map_err(|error| failed("sync the log", &error))?;
    }
    let seed = Seed {
        segment: number,
        ..active.seed
    };
    let fresh =
        initialize(disk, file.clone(), seed, revision + 1).map_err(|error| failed("begin a log segment", &error))?;

    let mut manifest = engine.manifest.lock();
    let mut next = manifest.clone();
    next.revision = revision;
    let last = next.segments.last_mut().expect("the manifest names the segment in use");
    debug_assert_eq!(last.number, active.seed.segment);
    last.sealed = Some(sealed);
    next.segments.push(SegmentEntry {
        number,
        first_revision: revision + 1,
        sealed: None,
    });
    let mut replaced = engine.manifest.replace(&mut manifest, next.clone());
    if let Err(ReplaceError::NoSpace(what)) = replaced
        && spare.take().is_some()
    {
        // The spare's space is there for this, too.
        let _ = remove(disk, &files::segment(number + 1));
        if delete {
            spare.starve(what);
            replaced = engine.manifest.replace(&mut manifest, next);
        }
    }
    match replaced {
        Ok(()) => {}
        Err(ReplaceError::NoSpace(what)) => {
            // The old segment goes on, over the footer that is behind its end and was not published.
            spare.put(engine, file);
            return Err(RotateError::NoSpace(what));
        }
        Err(ReplaceError::Failed(error)) => return Err(failed("replace the manifest", &error)),
    }

    let sealed = open_sealed(active.segment.map(), &active.seed, &sealed)
        .map_err(|damaged| failed("read back the log", &damaged))?;
    let mut working = engine.working();
    working
        .view
        .log
        .rotate(Arc::new(active.segment.seal(sealed)), fresh.segment.clone());
    let indexed = working
        .view
        .resources
        .iter()
        .filter(|(_, resource)| !resource.index.is_empty());
    let indexed: Vec<Arc<str>> = indexed.map(|(name, _)| name.clone()).collect();
    for name in &indexed {
        working.view.resource_mut(name).index = EntryList::default();
    }
    working.publish();
    *active = fresh;
    Ok(())
}
