//! The committer: the one thread that gives out revisions and writes the log.
//!
//! # One batch
//! 1. *Stage*: take what waits. For each write in order of arrival: check its precondition against the published view
//!    and what is staged before it, give it the next revision, encode its record into one buffer.
//! 2. *Flush*: one `pwrite` of the buffer into allocated space behind the log's end, one `fdatasync`, and a look whether
//!    the directory and the file are still where they were.
//! 3. *Publish*: raise the map's published mark, apply the records to the working view, publish it.
//! 4. Wake followers, answer the writers.
//!
//! There is no delay to collect a batch: while one is synced the next one gathers by itself.
//!
//! # Why a crash is safe at any point
//! Nothing is answered or readable before the sync of step 2 returned. Before that, the batch's records are a tail
//! that recovery may find whole, in part or not at all; it keeps the valid prefix, and a record is valid only if all
//! records before it are (checksums are chained). So what survives of unanswered writes are whole writes, in order.
//!
//! # Cost
//! A record is copied once into the buffer and passed over once for its checksum (measured cheaper than combining
//! checksums of parts), then applied to the delta and its postings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use flatkube_format::frame::{self, Kind, NewRecord, Previous};
use flatkube_format::manifest::Manifest;
use flatkube_format::segment::namespace_crc;
use flatkube_format::{Reason, sidecar};

use super::archive;
use super::engine::{Counters, Engine};
use super::error::{Damaged, NoSpace, WriteError};
use super::files;
use super::log::{Entry, RecordRef};
use super::manifest::ReplaceError;
use super::object::Object;
use super::options::Durability;
use super::planted::{Planted, is_planted};
use super::queue::{Answer, Request, Taken};
use super::rotate::{Active, RotateError, footer_growth};
use super::shelving;
use super::spare::Spare;
use super::write::{Change, Precondition, Written};

/// Bytes of the batch buffer that are kept between batches.
const BUFFER_KEPT: usize = 256 << 10;

pub(super) struct Committer {
    pub(super) engine: Arc<Engine>,
    pub(super) active: Active,
    pub(super) spare: Spare,
    /// Revision of the newest staged or published record.
    pub(super) revision: u64,
    /// Checksum of the newest record in `buffer`, or on disk.
    crc: u32,
    /// The staged records, to be written at `active.end`.
    buffer: Vec<u8>,
    staged: Vec<Staged>,
    /// What the staged records add to the segment's footer, at most.
    staged_footer: usize,
    /// Newest staged record of each key.
    heads: HashMap<(Arc<str>, String), usize>,
    /// Who lost against a staged write and waits to be shown it.
    lost: Vec<(Answer, usize)>,
}

/// A record in the buffer.
struct Staged {
    request: Request,
    kind: Kind,
    revision: u64,
    /// In the segment, in bytes.
    offset: u32,
    len: u32,
}

/// What a key holds at the moment of a write.
enum Current {
    Absent,
    Staged(usize),
    Stored(Object),
}

/// Why a write was not staged.
enum Refusal {
    Answer(WriteError),
    LostTo(usize),
    /// It does not fit behind what is in the segment. It takes at most `len` bytes of another one, where it must bring its
    /// previous version along, the growth of the footer included.
    NoRoom {
        len: usize,
        delete: bool,
    },
}

impl From<Damaged> for Refusal {
    fn from(damaged: Damaged) -> Refusal {
        Refusal::Answer(damaged.into())
    }
}

impl Committer {
    pub(super) fn new(engine: Arc<Engine>, active: Active, spare: Spare, revision: u64) -> Committer {
        Committer {
            engine,
            crc: active.crc,
            active,
            spare,
            revision,
            buffer: Vec::new(),
            staged: Vec::new(),
            staged_footer: 0,
            heads: HashMap::new(),
            lost: Vec::new(),
        }
    }

    /// Commits until the queue is closed.
    pub(super) fn run(mut self) {
        let mut waiting = VecDeque::new();
        loop {
            let idle = self.unmarked().then_some(self.engine.options.idle_marker);
            match self
                .engine
                .queue
                .take(self.engine.options.batch_bytes_max, idle, &mut waiting)
            {
                Taken::Requests => self.commit(&mut waiting),
                Taken::Rotate(_asked) => self.begin_segment(),
                Taken::Idle => self.mark(),
                Taken::Closed => return self.finish(),
            }
        }
    }

    /// Commits one batch of what waits now, or says of an idle log that it is synced. Whether there was a batch.
    pub(super) fn run_once(&mut self) -> bool {
        let mut waiting = VecDeque::new();
        match self
            .engine
            .queue
            .take_now(self.engine.options.batch_bytes_max, &mut waiting)
        {
            Taken::Requests => {
                self.commit(&mut waiting);
                return true;
            }
            Taken::Rotate(_asked) => self.begin_segment(),
            Taken::Idle if self.unmarked() => self.mark(),
            Taken::Idle | Taken::Closed => {}
        }
        false
    }

    fn commit(&mut self, waiting: &mut VecDeque<Request>) {
        while let Some(request) = waiting.pop_front() {
            self.submit(request);
        }
        self.flush();
    }

    /// Goes on in a new segment, of the size that a new store begins with, unless the one in use is such a one. Without space it stays.
    pub(super) fn begin_segment(&mut self) {
        self.flush();
        let is_large = self.active.segment.map().capacity() > self.engine.options.segment_bytes_first as usize;
        if (is_large || self.active.has_records()) && self.failed().is_none() {
            // It is as large as the log had grown; its number is the new segment's.
            self.spare.take();
            // No space, or told to the engine.
            let _ = self.rotate_from(0, false, 0);
            self.spare.refill(&self.engine, &self.active);
        }
    }

    /// Stages a request or answers it.
    fn submit(&mut self, request: Request) {
        let refusal = match self.failed() {
            Some(error) => Refusal::Answer(error),
            None => match self.stage(&request) {
                Ok(staged) => return self.take(request, staged),
                Err(Refusal::NoRoom { len, delete }) => {
                    self.flush();
                    // Revisions of what could not be flushed must not get into a manifest.
                    let rotated = match self.failed() {
                        Some(error) => Err(error),
                        None => self.rotate(len, delete),
                    };
                    match rotated.map(|()| self.stage(&request)) {
                        Err(error) => Refusal::Answer(error),
                        Ok(Ok(staged)) => return self.take(request, staged),
                        Ok(Err(refusal)) => refusal,
                    }
                }
                Err(refusal) => refusal,
            },
        };
        // Who no longer waits for the answer does not get it.
        match refusal {
            Refusal::Answer(error) => drop(request.answer.send(Err(error))),
            Refusal::LostTo(index) => self.lost.push((request.answer, index)),
            Refusal::NoRoom { .. } => drop(request.answer.send(Err(NoSpace::Device.into()))),
        }
    }

    fn take(&mut self, request: Request, (kind, offset, len): (Kind, u32, u32)) {
        let key = (request.write.resource.clone(), request.write.key.clone());
        self.heads.insert(key, self.staged.len());
        self.staged.push(Staged {
            request,
            kind,
            revision: self.revision,
            offset,
            len,
        });
    }

    /// Checks the write and encodes its record behind those in the buffer.
    fn stage(&mut self, request: &Request) -> Result<(Kind, u32, u32), Refusal> {
        let write = &request.write;
        let delete = matches!(write.change, Change::Delete(_));
        let prepared = write.change.prepared();
        let halves = prepared
            .halves()
            .ok_or_else(|| Refusal::Answer(WriteError::Key(write.key.clone())))?;
        if self.spare.starved().is_some() && !delete {
            // The segment in use was the reserve: it takes deletes only, until there is a reserve again.
            self.spare.refill(&self.engine, &self.active);
            if let Some(what) = self.spare.starved() {
                return Err(Refusal::Answer(what.into()));
            }
        }

        let view = self.engine.view();
        let current = self.current(&view, request)?;
        self.check(request, &current)?;
        let (json, sidecar);
        let stored_previous = match &current {
            Current::Stored(object) if !self.is_in_active(object) => {
                (json, sidecar) = (object.stored_json()?, object.sidecar_bytes()?);
                Some(Previous::Inline {
                    revision: object.revision(),
                    json,
                    sidecar,
                    shape: object.shape(),
                })
            }
            _ => None,
        };
        let previous = match &current {
            Current::Absent => Previous::None,
            Current::Staged(index) => Previous::Reference {
                offset: self.staged[*index].offset,
            },
            Current::Stored(object) => match (stored_previous, object.record()) {
                (Some(inline), _) => inline,
                (None, Some(at)) => Previous::Reference { offset: at.offset },
                (None, None) => unreachable!("what is in the active segment is a record"),
            },
        };
        let kind = match (&current, delete) {
            (_, true) => Kind::Delete,
            (Current::Absent, false) => Kind::Create,
            (_, false) => Kind::Update,
        };
        let record = NewRecord {
            kind,
            revision: self.revision + 1,
            resource: &write.resource,
            key: &write.key,
            json: halves,
            sidecar: &prepared.sidecar,
            shape: 0,
            previous,
            synced: self.active.synced,
        };
        let len = frame::check(&record).map_err(|error| Refusal::Answer(refused(&error.reason, &write.key)))?;
        let footer = footer_growth(&write.resource);
        if !self
            .active
            .has_room(self.buffer.len() + len, self.staged_footer + footer)
        {
            // In the next segment the previous version must come along whole.
            let previous = match &current {
                Current::Absent => 0,
                Current::Staged(index) => self.staged[*index].len as usize,
                Current::Stored(object) => object.stored_json()?.len() + object.sidecar_bytes()?.len(),
            };
            return Err(Refusal::NoRoom {
                len: len + previous + frame::ALIGN + footer,
                delete,
            });
        }
        let offset = self.active.end + self.buffer.len() as u32;
        self.crc = frame::encode(&record, &self.active.seed, self.crc, &mut self.buffer);
        self.revision += 1;
        self.staged_footer += footer;
        Ok((kind, offset, len as u32))
    }

    fn current(&self, view: &super::view::View, request: &Request) -> Result<Current, Damaged> {
        let write = &request.write;
        // The key is cloned for the lookup only when something is staged at all.
        if !self.heads.is_empty()
            && let Some(&index) = self.heads.get(&(write.resource.clone(), write.key.clone()))
        {
            return Ok(match self.staged[index].kind {
                Kind::Delete => Current::Absent,
                _ => Current::Staged(index),
            });
        }
        Ok(view
            .stored(&write.resource, &write.key)?
            .map_or(Current::Absent, Current::Stored))
    }

    fn check(&self, request: &Request, current: &Current) -> Result<(), Refusal> {
        let write = &request.write;
        let revision = match current {
            Current::Absent => None,
            Current::Staged(index) => Some(self.staged[*index].revision),
            Current::Stored(object) => Some(object.revision()),
        };
        let delete = matches!(write.change, Change::Delete(_));
        let holds = match write.precondition {
            Precondition::Absent => revision.is_none(),
            Precondition::Exists => revision.is_some(),
            Precondition::Revision(expected) => revision == Some(expected),
            Precondition::Any => true,
        };
        let holds = holds && (revision.is_some() || !delete);
        let holds = holds
            && match (&write.uid, current) {
                (None, _) => true,
                (Some(_), Current::Absent) => false,
                (Some(uid), Current::Staged(index)) => {
                    let prepared = self.staged[*index].request.write.change.prepared();
                    sidecar::access(&prepared.sidecar).is_ok_and(|archived| archived.uid.as_str() == uid)
                }
                (Some(uid), Current::Stored(object)) => object.sidecar()?.uid.as_str() == uid,
            };
        if holds {
            return Ok(());
        }
        Err(match current {
            Current::Absent => Refusal::Answer(WriteError::Conflict { current: None }),
            Current::Staged(index) => Refusal::LostTo(*index),
            Current::Stored(object) => Refusal::Answer(WriteError::Conflict {
                current: Some(Box::new(object.clone())),
            }),
        })
    }

    fn is_in_active(&self, object: &Object) -> bool {
        object
            .record()
            .is_some_and(|at| u64::from(at.segment) == self.active.seed.segment)
    }

    /// Writes, syncs and publishes what is staged, and answers.
    pub(super) fn flush(&mut self) {
        if self.staged.is_empty() {
            debug_assert!(self.lost.is_empty() && self.buffer.is_empty());
            return;
        }
        let result = self.write_and_sync().and_then(|()| self.publish());
        let result = match result {
            Ok(()) if is_planted(Planted::PublishBeforeSync) => self.sync(),
            result => result,
        };
        self.heads.clear();
        self.staged_footer = 0;
        if self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        let staged = std::mem::take(&mut self.staged);
        let lost = std::mem::take(&mut self.lost);
        if let Err(reason) = result {
            let failed = || WriteError::Failed(reason.clone());
            for staged in staged {
                drop(staged.request.answer.send(Err(failed())));
            }
            for (answer, _) in lost {
                drop(answer.send(Err(failed())));
            }
            return;
        }
        let view = self.engine.view();
        let object = |offset| {
            Object::at(
                &view.log,
                RecordRef {
                    segment: self.active.segment.number(),
                    offset,
                },
            )
        };
        for (answer, index) in lost {
            let conflict = object(staged[index].offset).map_or_else(WriteError::from, |object| WriteError::Conflict {
                current: Some(Box::new(object)),
            });
            drop(answer.send(Err(conflict)));
        }
        for Staged {
            request,
            revision,
            offset,
            ..
        } in staged
        {
            let written = object(offset)
                .map(|object| Written { revision, object })
                .map_err(WriteError::from);
            drop(request.answer.send(written));
        }
    }

    fn write_and_sync(&mut self) -> Result<(), String> {
        let engine = &self.engine;
        self.active
            .file
            .write_at(&self.buffer, self.active.end.into())
            .map_err(|error| engine.fail("write the log", &error))?;
        if engine.options.durability == Durability::Fsync && !is_planted(Planted::PublishBeforeSync) {
            self.sync()?;
        }
        // Synced into a file that nobody will find again is not kept.
        self.engine.check_in_place(Some(&*self.active.file))?;
        self.active.end += self.buffer.len() as u32;
        self.active.crc = self.crc;
        if self.engine.options.durability == Durability::Fsync {
            self.active.synced = self.active.end;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), String> {
        let start = Instant::now();
        self.active
            .file
            .sync_data()
            .map_err(|error| self.engine.fail("sync the log", &error))?;
        let counters = &self.engine.counters;
        Counters::add(&counters.log_syncs, 1);
        Counters::add(&counters.log_sync_nanoseconds, start.elapsed().as_nanos() as u64);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), String> {
        let engine = self.engine.clone();
        self.active.segment.map().publish(self.active.end as usize);
        archive::check_records(self.active.segment.map());
        let segment = self.active.segment.number();
        let mut working = engine.working();
        let log = working.view.log.clone();
        let mut due = false;
        for staged in &self.staged {
            let at = RecordRef {
                segment,
                offset: staged.offset,
            };
            let write = &staged.request.write;
            let resource = working.view.resource_mut(&write.resource);
            // Cannot happen: the record was encoded a moment ago. If it does, memory or disk are not to be trusted.
            resource
                .apply(&log, at)
                .map_err(|damaged| engine.fail("read back the log", &damaged))?;
            let namespace = namespace_crc(&write.key);
            resource.index.push(Entry {
                revision: staged.revision,
                offset: staged.offset,
                namespace,
            });
            due |= shelving::is_due(&engine.options, resource);
            self.active.indexed(&write.resource);
        }
        working.view.revision = self.revision;
        if is_planted(Planted::RingBeforePublish) {
            self.ring();
        }
        working.publish();
        Counters::add(&engine.counters.batches, 1);
        Counters::add(&engine.counters.records, self.staged.len() as u64);

        self.ring();
        engine.signal.written(due);
        Ok(())
    }

    /// Wakes who waits for what is staged.
    fn ring(&self) {
        let engine = &self.engine;
        let mut last: Option<&Arc<str>> = None;
        for staged in self.staged.iter().rev() {
            let resource = &staged.request.write.resource;
            if last.is_none_or(|last| !Arc::ptr_eq(last, resource) && last != resource) {
                if let Some(bell) = engine.existing_bell(resource) {
                    bell.ring(self.revision);
                }
                last = Some(resource);
            }
        }
        engine.reached.ring(self.revision);
    }

    fn failed(&self) -> Option<WriteError> {
        self.engine
            .failure()
            .map(|reason| WriteError::Failed(reason.to_owned()))
    }

    /// Whether the log does not yet say of its end that it is synced.
    fn unmarked(&self) -> bool {
        self.engine.options.durability == Durability::Fsync
            && self.active.synced > self.active.marked
            && self.engine.failure().is_none()
    }

    /// Appends a marker that calls everything before it synced. It is not synced itself: if it is lost, damage to the
    /// last record before it passes for a torn tail.
    fn mark(&mut self) {
        if self.append_marker().is_ok() {
            self.active.marked = self.active.end;
        }
    }

    fn append_marker(&mut self) -> Result<(), String> {
        debug_assert!(self.staged.is_empty());
        let marker = NewRecord {
            kind: Kind::Marker,
            revision: self.revision,
            resource: "",
            key: "",
            json: [b"", b""],
            sidecar: b"",
            shape: 0,
            previous: Previous::None,
            synced: self.active.synced,
        };
        let len = frame::encoded_len(&marker);
        if !self.active.has_room_for_marker(len) {
            self.active.marked = self.active.synced;
            return Ok(());
        }
        self.buffer.clear();
        self.crc = frame::encode(&marker, &self.active.seed, self.crc, &mut self.buffer);
        let written = self.active.file.write_at(&self.buffer, self.active.end.into());
        self.buffer.clear();
        written.map_err(|error| self.engine.fail("write the log", &error))?;
        self.active.end += len as u32;
        self.active.crc = self.crc;
        Ok(())
    }

    /// The end in order: everything synced, a marker, the manifest says clean.
    pub(super) fn finish(mut self) {
        if self.engine.failure().is_none() {
            // A failure was told by the hook.
            let _ = self.end_in_order();
        }
    }

    fn end_in_order(&mut self) -> Result<(), String> {
        if self.engine.options.durability == Durability::Os {
            self.sync()?;
            self.active.synced = self.active.end;
            let view = self.engine.view();
            for segment in view
                .log
                .segments()
                .iter()
                .filter(|segment| segment.seal_data().is_some())
            {
                let name = files::segment(segment.number().into());
                let synced = self.engine.disk.open(&name).and_then(|file| file.sync_data());
                synced.map_err(|error| self.engine.fail("sync the log", &error))?;
            }
        }
        if self.active.synced > self.active.marked {
            self.append_marker()?;
        }
        if self.active.end > self.active.synced {
            self.sync()?;
        }
        let mut manifest = self.engine.manifest.lock();
        let next = Manifest {
            clean: true,
            revision: self.revision,
            ..manifest.clone()
        };
        match self.engine.manifest.replace(&mut manifest, next) {
            // Without the mark the next start looks closer at the log; nothing is lost.
            Ok(()) | Err(ReplaceError::NoSpace(_)) => Ok(()),
            Err(ReplaceError::Failed(error)) => Err(self.engine.fail("replace the manifest", &error)),
        }
    }

    /// Seals the segment in use and goes on in a new one with room for `len` bytes.
    fn rotate(&mut self, len: usize, delete: bool) -> Result<(), WriteError> {
        let capacity = self.active.segment.map().capacity();
        self.rotate_from(len, delete, capacity)
    }

    fn rotate_from(&mut self, len: usize, delete: bool, grows_from: usize) -> Result<(), WriteError> {
        debug_assert!(self.staged.is_empty());
        let rotated = super::rotate::rotate(
            &self.engine,
            &mut self.active,
            &mut self.spare,
            self.revision,
            len,
            delete,
            grows_from,
        );
        rotated.map_err(|error| match error {
            RotateError::NoSpace(what) => what.into(),
            RotateError::Failed(reason) => WriteError::Failed(reason),
        })?;
        self.crc = self.active.crc;
        Ok(())
    }
}

fn refused(reason: &Reason, key: &str) -> WriteError {
    match *reason {
        Reason::Limit {
            field: "record length",
            value,
            limit,
        } => WriteError::TooLarge {
            bytes: value as usize,
            max: limit as usize,
        },
        _ => WriteError::Key(key.to_owned()),
    }
}
