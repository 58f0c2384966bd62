//! Opening a data directory: from files to the first view, and to a log that can go on.
//!
//! # What is believed
//! The manifest names everything else; a file that it does not name is removed (it was being made, or was no longer
//! needed, when the process ended). Shelves are opened and checked in their index regions. From the log, what the
//! shelves do not hold is replayed: of sealed segments the records that their footers name, of the unsealed one every
//! record, with the rules of [`flatkube_format::segment::scan`] for where the log ends.
//!
//! # Where the log ends
//! - *Cleanly* (zeroes behind the last record, or the start of a footer): it goes on in place, or is sealed there.
//! - *Torn* (an invalid record that nothing calls synced): the bytes from there on are kept in a file of their own, the
//!   segment is sealed at the cut, and the log goes on in a new one. Nothing is ever appended behind a cut.
//! - *Corrupt* (an invalid record below a synced position, or an end below the revision that the manifest knows):
//!   refused. Nothing is changed.
//!
//! What is replayed and was not proven synced is written again and synced before it is served: it may have reached the page
//! cache only, and after a sync that failed the cache takes pages for clean that the device does not have, so that a second
//! sync alone would succeed and do nothing.
//!
//! A crash during recovery is safe: until the manifest is replaced the directory means what it meant before, and the
//! file with the cut bytes is made anew.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use flatkube_format::frame::{self, Kind, Seed};
use flatkube_format::manifest::{self, Manifest, SegmentEntry};
use flatkube_format::segment::{self, Scan, Verdict, namespace_crc};
use flatkube_format::{FormatError, Reason};

use super::archive;
use super::disk::{Disk, DiskFile};
use super::engine::{Engine, remove};
use super::error::{Damaged, NoSpace, OpenError};
use super::files;
use super::log::{Entry, EntryList, Log, RecordRef};
use super::manifest::{ManifestFile, NUMBER_MAX, ReplaceError, load};
use super::map::Map;
use super::options::{Durability, Options};
use super::planted::{Planted, is_planted};
use super::resource_view::ResourceView;
use super::rotate::{Active, check_room, footer_of, initialize, open_sealed};
use super::segment::Segment;
use super::shelf_set::ShelfSet;
use super::spare::{Spare, allocate, next_len};
use super::view::View;

/// Name of the manifest's entry that holds the floor of all resources, those without an entry included. No resource has
/// this name.
pub(super) const EVERY_RESOURCE: &str = "";

/// How far revisions jump after an unclean end without syncs: more than could have been given out and lost.
pub(super) const JUMP: u64 = 1 << 32;

/// What a store starts with.
pub(super) struct Recovered {
    pub(super) engine: Arc<Engine>,
    pub(super) active: Active,
    pub(super) spare: Spare,
    pub(super) revision: u64,
}

/// Recovers the data directory of `disk`, which must be locked.
pub(super) fn recover(disk: Arc<dyn Disk>, options: Options) -> Result<Recovered, OpenError> {
    match load(&*disk)? {
        None => super::first_start::create(disk, options),
        Some(manifest) => Recovery {
            disk,
            options,
            manifest,
        }
        .run(),
    }
}

/// An I/O error as an [`OpenError`].
pub(super) fn failed<'a>(
    disk: &'a dyn Disk,
    action: &'static str,
    name: &'a str,
) -> impl Fn(io::Error) -> OpenError + 'a {
    move |source| {
        if let Some(what) = NoSpace::of(&source) {
            let directory = disk.path("");
            OpenError::NoSpace { directory, what }
        } else {
            OpenError::Io {
                action,
                file: disk.path(name),
                source,
            }
        }
    }
}

pub(super) fn replaced(disk: &dyn Disk, result: Result<(), ReplaceError>) -> Result<(), OpenError> {
    result.map_err(|error| match error {
        ReplaceError::NoSpace(what) => OpenError::NoSpace {
            directory: disk.path(""),
            what,
        },
        ReplaceError::Failed(source) => failed(disk, "replace the manifest", files::MANIFEST)(source),
    })
}

/// Removes what no manifest names. `manifest` must be on the disk for good: what it does not name, the one before it may.
pub(super) fn remove_unnamed(disk: &dyn Disk, manifest: &Manifest) -> Result<(), OpenError> {
    for name in unnamed(disk, manifest)? {
        remove(disk, &name).map_err(failed(disk, "remove it", &name))?;
    }
    Ok(())
}

/// The files that a manifest does not name.
fn unnamed(disk: &dyn Disk, manifest: &Manifest) -> Result<Vec<String>, OpenError> {
    let segments = manifest.segments.iter().map(|segment| files::segment(segment.number));
    let parts = manifest
        .resources
        .iter()
        .flat_map(|resource| &resource.parts)
        .map(|part| files::part(part.file));
    let named: std::collections::HashSet<String> = segments.chain(parts).collect();
    let mut names = disk.list().map_err(failed(disk, "list it", ""))?;
    names.retain(|name| files::is_disposable(name) && !named.contains(name));
    Ok(names)
}

struct Recovery {
    disk: Arc<dyn Disk>,
    options: Options,
    manifest: Manifest,
}

/// The unsealed segment as it was found.
struct Tail {
    file: Arc<dyn DiskFile>,
    seed: Seed,
    segment: Arc<Segment>,
    scan: Scan,
    ends_with_marker: bool,
    /// The manifest calls it sealed further behind; the rest was lost.
    was_sealed: bool,
}

enum Opened {
    Sealed(Arc<Segment>),
    Tail(Tail),
}

impl Recovery {
    fn run(mut self) -> Result<Recovered, OpenError> {
        let disk = self.disk.clone();
        let disk = &*disk;
        // Without syncs, anything of the log may be missing after a crash of the machine.
        let lossy = self.manifest.durability_os && !self.manifest.clean;

        let (log, tail, lost_from) = self.open_segments(lossy)?;
        let mut view = View::empty(log);
        self.open_shelves(&mut view)?;
        let mut revision = self.manifest.revision;
        let mut indexes = BTreeMap::new();
        Self::replay_sealed(&mut view)?;
        if let Some(tail) = &tail {
            revision = revision.max(tail.scan.last_revision);
            indexes = replay(&mut view, tail)?;
        }
        revision = view
            .log
            .segments()
            .iter()
            .filter_map(|segment| segment.seal_data())
            .fold(revision, |max, sealed| max.max(sealed.last_revision));
        if revision > NUMBER_MAX {
            return Err(Damaged {
                file: disk.path(""),
                offset: 0,
                reason: format!("the log has the revision {revision}, which no store reaches"),
            }
            .into());
        }

        // From here on the directory is changed. What is not named goes first: on a full disk its space is needed now.
        let manifest = ManifestFile::new(self.disk.clone(), self.manifest.clone());
        self.remove_unnamed(&manifest)?;
        let mut next = self.manifest.clone();
        if let Some(index) = lost_from {
            next.segments.truncate(index);
        }
        if lossy {
            revision += JUMP;
            restart_history(&mut next, &mut view, revision);
        }
        let active = match tail {
            Some(tail) => self.go_on(tail, &mut view, &mut next, indexes, revision)?,
            None => self.begin_segment(&mut view, &mut next, revision)?,
        };
        view.revision = revision;
        next.revision = revision;
        next.clean = false;
        next.durability_os = self.options.durability == Durability::Os;
        let mut current = std::mem::take(&mut self.manifest);
        let only_newer = next
            == Manifest {
                revision,
                ..current.clone()
            };
        match manifest.replace(&mut current, next) {
            // What the old one says holds as well; a full disk is no reason not to serve what is on it.
            Err(ReplaceError::NoSpace(what)) if only_newer => {
                tracing::warn!(%what, "no space for a new manifest: the old one stays");
            }
            other => replaced(disk, other)?,
        }
        if lost_from.is_some() {
            remove_unnamed(disk, &current)?;
        }
        *manifest.lock() = current;
        let mut spare = Spare::default();
        let engine = Arc::new(Engine::new(self.disk, self.options, manifest, view));
        spare.refill(&engine, &active);
        Ok(Recovered {
            engine,
            active,
            spare,
            revision,
        })
    }

    /// Removes what the manifest does not name, if there is anything.
    ///
    /// A process that ended between the rename of a manifest and the directory's sync leaves one that is there until the power
    /// goes, and then the one before it is, with what that one names. So the manifest is written anew first. Where a full disk
    /// does not take it, the sync of the directory has to do.
    fn remove_unnamed(&mut self, manifest: &ManifestFile) -> Result<(), OpenError> {
        let disk = &*self.disk;
        if unnamed(disk, &self.manifest)?.is_empty() {
            return Ok(());
        }
        let same = self.manifest.clone();
        match manifest.replace(&mut self.manifest, same) {
            Err(ReplaceError::NoSpace(_)) => disk.sync_dir().map_err(failed(disk, "sync it", ""))?,
            other => replaced(disk, other)?,
        }
        remove_unnamed(disk, &self.manifest)
    }

    /// Opens and maps all segments. In a lossy log, a segment that is not what the manifest says ends it: the index in the
    /// manifest from which on segments are lost is given, too.
    fn open_segments(&self, lossy: bool) -> Result<(Log, Option<Tail>, Option<usize>), OpenError> {
        let mut segments = Vec::new();
        let entries = &self.manifest.segments;
        for (index, entry) in entries.iter().enumerate() {
            let behind = index + 1;
            match self.open_segment(entry, lossy) {
                Ok(Opened::Sealed(segment)) => segments.push(segment),
                Ok(Opened::Tail(tail)) if behind == entries.len() || lossy => {
                    segments.push(tail.segment.clone());
                    return Ok((
                        Log::new(segments),
                        Some(tail),
                        (behind < entries.len()).then_some(behind),
                    ));
                }
                Ok(Opened::Tail(_)) => {
                    let file = self.disk.path(files::MANIFEST);
                    let reason = format!("segment {} is not sealed, but others follow it", entry.number);
                    return Err(Damaged {
                        file,
                        offset: 0,
                        reason,
                    }
                    .into());
                }
                Err(OpenError::Damaged(damaged)) if lossy => {
                    tracing::warn!(%damaged, "the log was not synced and ends early");
                    return Ok((Log::new(segments), None, Some(index)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((Log::new(segments), None, None))
    }

    fn open_segment(&self, entry: &SegmentEntry, lossy: bool) -> Result<Opened, OpenError> {
        let disk = &*self.disk;
        let name = files::segment(entry.number);
        let path = disk.path(&name);
        let seed = Seed {
            store: self.manifest.store,
            segment: entry.number,
        };
        let damaged = |error: FormatError| match error.reason {
            Reason::NewerFormat { found, supported, .. } => OpenError::NewerFormat {
                file: path.clone(),
                found,
                supported,
            },
            _ => Damaged::of(&path, &error).into(),
        };
        let file = match disk.open(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let reason = "the file is missing".into();
                return Err(Damaged {
                    file: path.clone(),
                    offset: 0,
                    reason,
                }
                .into());
            }
            other => other.map_err(failed(disk, "open it", &name))?,
        };
        let seal = |map: Arc<Map>, sealed, proven| -> Result<Opened, OpenError> {
            let opened = open_sealed(&map, &seed, sealed).map_err(|damaged| Damaged {
                file: path.clone(),
                ..damaged
            })?;
            Ok(Opened::Sealed(Arc::new(Segment::sealed(
                seed,
                entry.first_revision,
                map,
                opened,
                proven,
            ))))
        };
        if let Some(sealed) = &entry.sealed
            && !lossy
        {
            return seal(file.map().map_err(failed(disk, "map it", &name))?, sealed, false);
        }
        // Everything is looked at, through a map of its own: of the one that stays, only the valid records are published.
        let whole = file.map().map_err(failed(disk, "map it", &name))?;
        whole.publish(whole.capacity());
        let mut ends_with_marker = false;
        let scan = segment::scan(whole.bytes(), &seed, |record| {
            ends_with_marker = record.kind == Kind::Marker;
        })
        .map_err(damaged)?;
        // After a stop in order, and where nothing is ever synced, there is nothing to prove.
        let proven = if self.manifest.clean || self.manifest.durability_os {
            scan.end
        } else {
            scan.synced.min(scan.end)
        };
        let unproven = whole.bytes()[proven..scan.end].to_vec();
        drop(whole);
        let map = file.map().map_err(failed(disk, "map it", &name))?;
        let shortened = scan.verdict.runs_out() && !lossy;
        if let Verdict::Corrupt { at, reason, .. } | Verdict::Torn { at, reason, .. } = scan.verdict
            && (shortened || matches!(scan.verdict, Verdict::Corrupt { .. }))
        {
            return Err(damaged(FormatError {
                offset: at as u64,
                reason,
            }));
        }
        let reached = scan.last_revision.max(entry.first_revision - 1);
        if reached < self.manifest.revision && entry.sealed.is_none() && !self.manifest.durability_os {
            // The manifest knows of published writes that would lie here.
            let (at, reason) = match scan.verdict {
                Verdict::Torn { at, reason, .. } | Verdict::Corrupt { at, reason, .. } => (at, reason),
                Verdict::Clean => (scan.end, Reason::Magic { part: "record" }),
            };
            return Err(damaged(FormatError {
                offset: at as u64,
                reason,
            }));
        }
        if let Some(sealed) = &entry.sealed
            && scan.end == sealed.end as usize
            && scan.footer_len == Some(sealed.footer_len)
        {
            return seal(map, sealed, true);
        }
        if !unproven.is_empty() {
            file.write_at(&unproven, proven as u64)
                .map_err(failed(disk, "write its end again", &name))?;
        }
        map.publish(scan.end);
        archive::check_records(&map);
        let segment = Arc::new(Segment::active(seed, entry.first_revision, map));
        let was_sealed = entry.sealed.is_some();
        Ok(Opened::Tail(Tail {
            file,
            seed,
            segment,
            scan,
            ends_with_marker,
            was_sealed,
        }))
    }

    fn open_shelves(&self, view: &mut View) -> Result<(), OpenError> {
        let disk = &*self.disk;
        for entry in self
            .manifest
            .resources
            .iter()
            .filter(|entry| entry.name != EVERY_RESOURCE)
        {
            let mut parts = Vec::new();
            for part in &entry.parts {
                let name = files::part(part.file);
                let damaged = |reason| Damaged {
                    file: disk.path(&name),
                    offset: 0,
                    reason,
                };
                let file = match disk.open(&name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Err(damaged("the file is missing".into()).into());
                    }
                    other => other.map_err(failed(disk, "open it", &name))?,
                };
                let map = file.map().map_err(failed(disk, "map it", &name))?;
                if map.capacity() as u64 != part.bytes {
                    let reason = format!("it has {} bytes, the manifest says {}", map.capacity(), part.bytes);
                    return Err(damaged(reason).into());
                }
                map.publish(map.capacity());
                parts.push((part.clone(), map));
            }
            let shelf = ShelfSet::open(parts)?;
            let resource = ResourceView::of_shelf(shelf, entry.shelved_revision, entry.floor);
            view.resources.insert(entry.name.as_str().into(), Arc::new(resource));
        }
        Ok(())
    }

    /// Applies what the shelves do not hold of sealed segments. Each record is proven as it is read.
    fn replay_sealed(view: &mut View) -> Result<(), OpenError> {
        let log = view.log.clone();
        for segment in log.segments() {
            let Some(sealed) = segment.seal_data() else { continue };
            for (name, run) in sealed.footer.resources(segment.bytes()) {
                let shelved = view.resource(name).map_or(0, |resource| resource.shelved_revision);
                for index in sealed.footer.after(segment.bytes(), run, shelved)..run.len() {
                    let entry = sealed.footer.entry(segment.bytes(), run, index);
                    let at = RecordRef {
                        segment: segment.number(),
                        offset: entry.byte_offset() as u32,
                    };
                    view.resource_mut(name).replay(&log, at)?;
                }
            }
        }
        Ok(())
    }

    /// Makes the unsealed segment the one in use, or seals it and begins a new one.
    fn go_on(
        &self,
        tail: Tail,
        view: &mut View,
        next: &mut Manifest,
        indexes: BTreeMap<String, EntryList>,
        revision: u64,
    ) -> Result<Active, OpenError> {
        let disk = &*self.disk;
        let name = files::segment(tail.seed.segment);
        let is_whole = matches!(tail.scan.verdict, Verdict::Clean) || is_planted(Planted::AppendBehindCut);
        let in_place = is_whole && tail.scan.footer_len.is_none() && !tail.was_sealed;
        if in_place {
            tail.file.sync_data().map_err(failed(disk, "sync it", &name))?;
            let end = match tail.scan.verdict {
                // Only with the planted bug.
                Verdict::Torn { until, .. } => until.next_multiple_of(frame::ALIGN),
                _ => tail.scan.end,
            };
            let mut active = Active::new(tail.file, tail.segment, tail.seed, end as u32, tail.scan.crc);
            if !tail.ends_with_marker {
                active.marked = 0;
            }
            for (name, index) in indexes {
                (0..index.len()).for_each(|_| active.indexed(&name));
                view.resource_mut(&name).index = index;
            }
            return Ok(active);
        }
        let all = indexes.iter().map(|(name, index)| (name.as_str(), index));
        let last_revision = tail
            .scan
            .last_revision
            .max(tail.segment.first_revision().saturating_sub(1));
        let (sealed, footer) = footer_of(&tail.seed, tail.scan.end as u32, last_revision, all);
        // Before anything is changed.
        check_room(tail.segment.map(), &sealed)?;
        if let Verdict::Torn { at, until, .. } = tail.scan.verdict {
            self.keep_cut_bytes(&tail, at, until)?;
        }
        tail.file
            .write_at(&footer, sealed.end.into())
            .map_err(failed(disk, "seal it", &name))?;
        tail.file.sync_data().map_err(failed(disk, "sync it", &name))?;
        let opened = open_sealed(tail.segment.map(), &tail.seed, &sealed)?;
        seal_last(next, &mut view.log, &tail.segment, opened, sealed);
        self.begin_segment(view, next, revision)
    }

    /// A new segment behind the sealed ones.
    fn begin_segment(&self, view: &mut View, next: &mut Manifest, revision: u64) -> Result<Active, OpenError> {
        let disk = &*self.disk;
        // Not a number that was ever in use: nothing of another life may pass for records of this one.
        let number = self.manifest.segments.last().map_or(0, |entry| entry.number) + 1;
        let name = files::segment(number);
        let capacity = view.log.segments().last().map_or(0, |segment| segment.map().capacity());
        let (len, len_min) = (
            next_len(&self.options, capacity),
            self.options.segment_bytes_first.into(),
        );
        let file = allocate(disk, number, len, len_min).map_err(failed(disk, "allocate it", &name))?;
        let seed = Seed {
            store: self.manifest.store,
            segment: number,
        };
        let active = initialize(disk, file, seed, revision + 1).map_err(failed(disk, "write it", &name))?;
        next.segments.push(SegmentEntry {
            number,
            first_revision: revision + 1,
            sealed: None,
        });
        let mut segments = view.log.segments().to_vec();
        segments.push(active.segment.clone());
        view.log = Log::new(segments);
        Ok(active)
    }

    fn keep_cut_bytes(&self, tail: &Tail, at: usize, until: usize) -> Result<(), OpenError> {
        let disk = &*self.disk;
        let name = files::cut(tail.seed.segment);
        let mut bytes = vec![0; until - at];
        let kept = (|| {
            tail.file.read_at(&mut bytes, at as u64)?;
            remove(disk, &name)?;
            let file = disk.create(&name)?;
            file.allocate(bytes.len() as u64)?;
            file.write_at(&bytes, 0)?;
            file.sync_data()?;
            disk.sync_dir()
        })();
        kept.map_err(failed(disk, "keep the cut bytes", &name))?;
        tracing::warn!(
            segment = disk.path(&files::segment(tail.seed.segment)),
            at,
            bytes = bytes.len(),
            kept = disk.path(&name),
            "the log ended in a write that was not finished; it was cut there"
        );
        Ok(())
    }
}

fn seal_last(
    next: &mut Manifest,
    log: &mut Log,
    segment: &Segment,
    opened: super::segment::Sealed,
    sealed: manifest::Sealed,
) {
    let last = next.segments.last_mut().expect("the unsealed segment is named");
    last.sealed = Some(sealed);
    let mut segments = log.segments().to_vec();
    *segments.last_mut().expect("it was opened") = Arc::new(segment.seal(opened));
    *log = Log::new(segments);
}

/// Applies the records of the unsealed segment that the shelves do not hold, and indexes all.
fn replay(view: &mut View, tail: &Tail) -> Result<BTreeMap<String, EntryList>, OpenError> {
    let mut indexes: BTreeMap<String, EntryList> = BTreeMap::new();
    let log = view.log.clone();
    let mut offset = segment::HEADER_LEN;
    while offset < tail.scan.end {
        let record = tail.segment.record(offset as u32)?;
        offset = record.end();
        if record.kind == Kind::Marker {
            continue;
        }
        let at = RecordRef {
            segment: tail.segment.number(),
            offset: record.offset as u32,
        };
        let entry = Entry {
            revision: record.revision,
            offset: at.offset,
            namespace: namespace_crc(record.key),
        };
        match indexes.get_mut(record.resource) {
            Some(index) => index.push(entry),
            None => indexes.entry(record.resource.to_owned()).or_default().push(entry),
        }
        let resource = view.resource_mut(record.resource);
        if record.revision > resource.shelved_revision {
            resource.replay(&log, at)?;
        }
    }
    Ok(indexes)
}

/// Nothing before `revision` can be read as history any more.
fn restart_history(next: &mut Manifest, view: &mut View, revision: u64) {
    let names: Vec<Arc<str>> = view.resources.keys().cloned().collect();
    for name in &names {
        view.resource_mut(name).floor = revision;
    }
    for name in names.iter().map(|name| &**name).chain([EVERY_RESOURCE]) {
        raise_floor(next, name, revision);
    }
}

/// Notes in the manifest that history of a resource is gone up to `floor`.
pub(super) fn raise_floor(manifest: &mut Manifest, name: &str, floor: u64) {
    match manifest.resources.binary_search_by(|entry| (*entry.name).cmp(name)) {
        Ok(index) => manifest.resources[index].floor = floor.max(manifest.resources[index].floor),
        Err(index) => {
            let entry = manifest::ResourceEntry {
                name: name.to_owned(),
                floor,
                ..manifest::ResourceEntry::default()
            };
            manifest.resources.insert(index, entry);
        }
    }
}

/// Names the floor of all resources, if there is one.
pub(super) fn name_floor_of_every_resource(manifest: &mut Manifest, floor: u64) {
    if floor > 0 {
        raise_floor(manifest, EVERY_RESOURCE, floor);
    }
}

/// The floor of resources that have none of their own.
pub(super) fn floor_of_every_resource(manifest: &Manifest) -> u64 {
    manifest
        .resources
        .first()
        .map_or(0, |entry| if entry.name == EVERY_RESOURCE { entry.floor } else { 0 })
}
