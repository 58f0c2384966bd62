//! One object: a handle on its bytes in a mapped file.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flatkube_format::frame::{self, Previous, Record, Spans};
use flatkube_format::sidecar::{self, ArchivedSidecar, digit_count};

use super::archive;
use super::error::Damaged;
use super::log::{Log, RecordRef};
use super::map::Map;
use super::sealing::{OpenedObject, ResourceSealing};
use super::segment::Segment;
use super::shelf_set::Part;

/// An object at one revision. Keeps the mapped file alive that its bytes lie in; cloning costs one reference count.
#[derive(Clone)]
pub struct Object {
    place: Place,
}

#[derive(Clone)]
enum Place {
    Logged(Logged),
    Shelved {
        part: Arc<Part>,
        index: u32,
    },
    /// Of a resource whose objects may be sealed, in a reader's hands.
    Opened(Arc<OpenedObject>),
}

/// A version in a log segment.
#[derive(Clone)]
struct Logged {
    map: Arc<Map>,
    segment: u32,
    version: Version,
}

/// Where a version lies in its log segment. Its checksum was proven, so the ranges lie in the published bytes.
#[derive(Clone, Copy)]
pub(super) struct Version {
    revision: u64,
    shape: u32,
    /// Offset of the record whose own version this is; `None` for one that a later record carries as its previous.
    record: Option<NonZero<u32>>,
    key: Span,
    json: Span,
    sidecar: Span,
}

impl Version {
    /// The version that the record at `offset` carries, which was accepted before.
    pub(super) fn of(segment: &Segment, offset: u32) -> Result<Version, Damaged> {
        let spans = frame::spans(segment.bytes(), offset as usize);
        spans
            .as_ref()
            .map(|spans| Version::of_spans(offset, spans))
            .ok_or_else(|| Damaged {
                file: segment.map().file().to_owned(),
                offset: offset.into(),
                reason: "a record that was accepted before is not there".into(),
            })
    }

    fn of_spans(offset: u32, spans: &Spans) -> Version {
        let Spans {
            revision,
            shape,
            key,
            json,
            sidecar,
        } = spans;
        let [key, json, sidecar] = [key, json, sidecar].map(Span::of);
        Version {
            revision: *revision,
            shape: *shape,
            record: NonZero::new(offset),
            key,
            json,
            sidecar,
        }
    }

    /// Reads a byte at the end of the sidecar, where an archive's root is, so that the processor fetches it ahead: for several
    /// versions together, whose bytes lie far apart.
    pub(super) fn touch_sidecar(self, segment: &Segment) -> u8 {
        self.sidecar.in_map(segment.map()).last().copied().unwrap_or_default()
    }

    /// The key's bytes.
    pub(super) fn key_bytes(self, segment: &Segment) -> &[u8] {
        self.key.in_map(segment.map())
    }
}

/// A range of a file of less than 4 GiB.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn of(range: &Range<usize>) -> Span {
        Span {
            start: range.start as u32,
            len: range.len() as u32,
        }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    fn in_map(self, map: &Map) -> &[u8] {
        map.bytes().get(self.range()).unwrap_or_default()
    }
}

/// A slice of a map that grows: made over published bytes alone.
struct LoggedSlice(Arc<Map>, Span);

impl AsRef<[u8]> for LoggedSlice {
    fn as_ref(&self) -> &[u8] {
        self.1.in_map(&self.0)
    }
}

impl Object {
    /// The version that the record at `at` carries, which was accepted before.
    pub(super) fn at(log: &Log, at: RecordRef) -> Result<Object, Damaged> {
        let segment = log.holding(at)?;
        Ok(Object::of_version(segment, Version::of(segment, at.offset)?))
    }

    /// The version that the record at `at` replaced or removed, if there was one.
    pub(super) fn before(log: &Log, at: RecordRef) -> Result<Option<Object>, Damaged> {
        let segment = log.holding(at)?;
        Object::before_record(segment, &segment.record(at.offset)?)
    }

    pub(super) fn of_version(segment: &Segment, version: Version) -> Object {
        let map = Arc::clone(segment.map());
        let segment = segment.number();
        Object {
            place: Place::Logged(Logged { map, segment, version }),
        }
    }

    /// The version that a record carries.
    pub(super) fn of_record(segment: &Segment, record: &Record<'_>) -> Object {
        Object::of_version(segment, version_of_record(record))
    }

    /// The version that a record replaced or removed, if there was one.
    pub(super) fn before_record(segment: &Segment, record: &Record<'_>) -> Result<Option<Object>, Damaged> {
        match (record.previous, record.previous_ranges()) {
            (Previous::Reference { offset }, _) => Ok(Some(Object::of_record(segment, &segment.record(offset)?))),
            (Previous::Inline { revision, shape, .. }, Some((json, sidecar))) => {
                let (json, sidecar) = (Span::of(&json), Span::of(&sidecar));
                let version = Version {
                    revision,
                    shape,
                    record: None,
                    json,
                    sidecar,
                    ..version_of_record(record)
                };
                Ok(Some(Object::of_version(segment, version)))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn shelved(part: Arc<Part>, index: usize) -> Object {
        Object {
            place: Place::Shelved {
                part,
                index: index as u32,
            },
        }
    }

    /// What a reader is handed in place of an object of a resource whose objects may be sealed.
    pub(super) fn opened_by(self, sealing: &Arc<ResourceSealing>) -> Object {
        Object {
            place: Place::Opened(Arc::new(OpenedObject::new(self, sealing))),
        }
    }

    /// Makes this the object `index` of the same part; one in the log stays what it is.
    pub(super) fn move_to(&mut self, to: usize) {
        if let Place::Shelved { index, .. } = &mut self.place {
            *index = to as u32;
        }
    }

    /// Makes this another version in the log segment that it lies in; `false` if it does not lie there.
    pub(super) fn move_to_version(&mut self, to_segment: u32, to: Version) -> bool {
        match &mut self.place {
            Place::Logged(Logged { segment, version, .. }) if *segment == to_segment => {
                *version = to;
                true
            }
            _ => false,
        }
    }

    /// `namespace/name`, or `name` for objects without a namespace.
    pub fn key(&self) -> &str {
        std::str::from_utf8(self.key_bytes()).unwrap_or_default()
    }

    pub(super) fn key_bytes(&self) -> &[u8] {
        match &self.place {
            Place::Logged(logged) => logged.version.key.in_map(&logged.map),
            Place::Shelved { part, index } => part.key_bytes(*index as usize),
            Place::Opened(opened) => opened.key_bytes(),
        }
    }

    /// The namespace, if the object has one.
    pub fn namespace(&self) -> Option<&str> {
        namespace_of(self.key())
    }

    /// The name.
    pub fn name(&self) -> &str {
        name_of(self.key())
    }

    /// Revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        match &self.place {
            Place::Logged(logged) => logged.version.revision,
            Place::Shelved { part, index } => part.entry(*index as usize).revision,
            Place::Opened(opened) => opened.revision(),
        }
    }

    /// Generation of the schema under which the object was stored.
    pub fn shape(&self) -> u32 {
        match &self.place {
            Place::Logged(logged) => logged.version.shape,
            Place::Shelved { part, index } => part.entry(*index as usize).shape,
            Place::Opened(opened) => opened.shape(),
        }
    }

    /// Whether the object lies on a shelf; else it lies in the log.
    pub fn is_shelved(&self) -> bool {
        match &self.place {
            Place::Logged(_) => false,
            Place::Shelved { .. } => true,
            Place::Opened(opened) => opened.is_shelved(),
        }
    }

    /// The stored JSON, with the revision in it. Shelved bytes are proven at first touch; what is sealed is opened then.
    pub fn json(&self) -> Result<&[u8], Damaged> {
        match &self.place {
            Place::Logged(logged) => Ok(logged.version.json.in_map(&logged.map)),
            Place::Shelved { part, index } => part.json(*index as usize),
            Place::Opened(opened) => opened.json(),
        }
    }

    /// The JSON as it lies on the disk: the envelope of an object that is sealed, whoever has opened it.
    pub(super) fn stored_json(&self) -> Result<&[u8], Damaged> {
        match &self.place {
            Place::Opened(opened) => opened.stored_json(),
            _ => self.json(),
        }
    }

    /// The stored JSON as a slice that keeps its map alive. Costs one allocation if the object lies in the log.
    pub fn json_bytes(&self) -> Result<Bytes, Damaged> {
        match &self.place {
            Place::Logged(logged) => Ok(Bytes::from_owner(LoggedSlice(
                Arc::clone(&logged.map),
                logged.version.json,
            ))),
            Place::Shelved { part, index } => {
                let index = *index as usize;
                part.json_of(index..index + 1)
            }
            Place::Opened(opened) => opened.json_bytes(),
        }
    }

    /// The stored JSON before and behind the digits of its `resourceVersion`.
    pub fn json_around_revision(&self) -> Result<(&[u8], &[u8]), Damaged> {
        let json = self.json()?;
        let splice = self.sidecar()?.splice.to_native() as usize;
        let halves = json.split_at_checked(splice);
        halves
            .and_then(|(before, rest)| Some((before, rest.get(digit_count(self.revision())..)?)))
            .ok_or_else(|| self.damaged(0, "the sidecar names a splice point outside the JSON".to_owned()))
    }

    /// The record that wrote this version, if it lies in the log as a record of its own.
    pub(super) fn record(&self) -> Option<RecordRef> {
        match &self.place {
            Place::Logged(Logged { segment, version, .. }) => version.record.map(|offset| RecordRef {
                segment: *segment,
                offset: offset.get(),
            }),
            Place::Shelved { .. } => None,
            Place::Opened(opened) => opened.record(),
        }
    }

    /// The value of `metadata`, braces included.
    pub fn metadata(&self) -> Result<&[u8], Damaged> {
        let span = self.sidecar()?.metadata_span(digit_count(self.revision()));
        let metadata = self.json()?.get(span);
        metadata.ok_or_else(|| self.damaged(0, "the sidecar names a metadata span outside the JSON".to_owned()))
    }

    /// What was archived beside the JSON. Its archive is checked once, with its neighbours; only that of a version which a
    /// later record carries along, or of history from before this start, is checked on every call (some hundred
    /// nanoseconds).
    pub fn sidecar(&self) -> Result<&ArchivedSidecar, Damaged> {
        match &self.place {
            Place::Shelved { part, index } => part.archive(*index as usize),
            Place::Logged(Logged { map, version, .. }) => {
                let sidecar = match version.record {
                    Some(offset) => archive::of_record(map, offset.get()),
                    None => sidecar::access(version.sidecar.in_map(map))
                        .map_err(|error| error.at(version.sidecar.start as usize)),
                };
                sidecar.map_err(|error| Damaged::of(map.file(), &error))
            }
            Place::Opened(opened) => opened.sidecar(),
        }
    }

    /// The sidecar as it was written, its archive unchecked.
    pub fn sidecar_bytes(&self) -> Result<&[u8], Damaged> {
        match &self.place {
            Place::Logged(logged) => Ok(logged.version.sidecar.in_map(&logged.map)),
            Place::Shelved { part, index } => part.sidecar(*index as usize),
            Place::Opened(opened) => opened.sidecar_bytes(),
        }
    }

    /// Damage at an offset in the object's sidecar.
    pub(super) fn damaged(&self, offset: u64, reason: String) -> Damaged {
        let (map, sidecar) = match &self.place {
            Place::Logged(logged) => (&logged.map, u64::from(logged.version.sidecar.start)),
            Place::Shelved { part, index } => (part.map(), part.entry(*index as usize).sidecar.start as u64),
            Place::Opened(opened) => return opened.damaged(offset, reason),
        };
        Damaged {
            file: map.file().to_owned(),
            offset: sidecar + offset,
            reason,
        }
    }
}

fn version_of_record(record: &Record<'_>) -> Version {
    let json = record.json_range();
    Version {
        revision: record.revision,
        shape: record.shape,
        record: NonZero::new(record.offset as u32),
        key: Span::of(&(json.start - record.key.len()..json.start)),
        json: Span::of(&json),
        sidecar: Span::of(&record.sidecar_range()),
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @ {})", self.key(), self.revision())
    }
}

const _: () = assert!(size_of::<Object>() <= 64, "objects are moved about in lists");

/// The part of a key before the `/`.
pub(super) fn namespace_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(namespace, _)| namespace)
}

/// The part of a key behind the `/`, or all of it.
pub(super) fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}
