//! A log and shelves without a committer: what tests of the read side write into. Files are unnamed temporary ones.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flatkube_format::frame::{self, Kind, NewRecord, Previous, Seed};
use flatkube_format::manifest::PartEntry;
use flatkube_format::object::Prepared;
use flatkube_format::segment::header;
use flatkube_format::shelf::{RowFrame, ShelfBuilder};
use flatkube_format::sidecar::{Pair, Sidecar};

use super::layer::KeyRange;
use super::listing::Listing;
use super::log::{Log, RecordRef};
use super::map::Map;
use super::segment::Segment;
use super::selection::Selection;
use super::shelf_set::{Part, ShelfSet};
use super::view::View;

const STORE: u128 = 7;

/// A view, and the log that it grows with.
pub(super) struct Fixture {
    pub(super) view: View,
    /// All records of each write, in order, with its resource and revision.
    pub(super) records: Vec<(String, u64, RecordRef)>,
    segments: Vec<Arc<Segment>>,
    segment_len: usize,
    file: File,
    end: usize,
    crc: u32,
}

impl Fixture {
    /// An empty store with segments of this length in bytes.
    pub(super) fn new(segment_len: usize) -> Fixture {
        let mut fixture = Fixture {
            view: View::empty(Log::default()),
            records: Vec::new(),
            segments: Vec::new(),
            segment_len,
            file: tempfile::tempfile().unwrap(),
            end: 0,
            crc: 0,
        };
        fixture.rotate();
        fixture
    }

    fn seed(&self) -> Seed {
        Seed {
            store: STORE,
            segment: self.segments.len() as u64,
        }
    }

    /// Opens a new segment.
    pub(super) fn rotate(&mut self) {
        let number = self.segments.len() as u64 + 1;
        let header = header(STORE, number, self.view.revision + 1);
        self.file = tempfile::tempfile().unwrap();
        self.file.set_len(self.segment_len as u64).unwrap();
        self.file.write_all_at(&header, 0).unwrap();
        let map = Map::new(&self.file, self.segment_len, &format!("segment-{number}")).unwrap();
        map.publish(header.len());
        let seed = Seed {
            store: STORE,
            segment: number,
        };
        self.segments
            .push(Arc::new(Segment::active(seed, self.view.revision + 1, Arc::new(map))));
        self.view.log = Log::new(self.segments.clone());
        (self.end, self.crc) = (header.len(), flatkube_format::segment::header_crc(&header));
    }

    /// Puts an object, whatever was there.
    pub(super) fn put(&mut self, resource: &str, key: &str, prepared: &Prepared) -> u64 {
        self.write(resource, key, Some(prepared))
    }

    /// Deletes an object, which must be there.
    pub(super) fn delete(&mut self, resource: &str, key: &str) -> u64 {
        self.write(resource, key, None)
    }

    fn write(&mut self, resource: &str, key: &str, prepared: Option<&Prepared>) -> u64 {
        let old = self.view.get(resource, key).unwrap();
        let revision = self.view.revision + 1;
        let (old_json, old_sidecar) = old.as_ref().map_or((vec![], vec![]), |old| {
            (old.json().unwrap().to_vec(), old.sidecar_bytes().unwrap().to_vec())
        });
        let last = self.segments.len() as u32;
        let earlier = old.as_ref().and_then(|_| {
            self.records.iter().rev().find(|(name, _, at)| {
                name == resource && at.segment == last && self.view.log.record(*at).unwrap().key == key
            })
        });
        let previous = match (&old, earlier) {
            (None, _) => Previous::None,
            (Some(_), Some((_, _, at))) => Previous::Reference { offset: at.offset },
            (Some(old), None) => Previous::Inline {
                revision: old.revision(),
                json: &old_json,
                sidecar: &old_sidecar,
                shape: old.shape(),
            },
        };
        let final_state = Prepared {
            json: b"{\"metadata\":{\"v\":\"\"}}".to_vec(),
            splice: 18,
            sidecar: old_sidecar.clone(),
        };
        let (kind, prepared) = match (prepared, &old) {
            (Some(prepared), None) => (Kind::Create, prepared),
            (Some(prepared), Some(_)) => (Kind::Update, prepared),
            (None, Some(_)) => (Kind::Delete, &final_state),
            (None, None) => panic!("{key} is not there"),
        };
        let record = NewRecord {
            kind,
            revision,
            resource,
            key,
            json: prepared.halves().unwrap(),
            sidecar: &prepared.sidecar,
            shape: 3,
            previous,
            synced: 0,
        };
        if self.end + frame::encoded_len(&record) > self.segment_len {
            self.rotate();
            return self.write(resource, key, (kind != Kind::Delete).then_some(prepared));
        }
        let mut bytes = Vec::new();
        self.crc = frame::encode(&record, &self.seed(), self.crc, &mut bytes);
        self.file.write_all_at(&bytes, self.end as u64).unwrap();
        let segment = self.segments.last().unwrap();
        segment.map().publish(self.end + bytes.len());
        super::archive::check_records(segment.map());
        let at = RecordRef {
            segment: segment.number(),
            offset: self.end as u32,
        };
        self.end += bytes.len();
        self.records.push((resource.to_owned(), revision, at));
        let log = self.view.log.clone();
        self.view.resource_mut(resource).apply(&log, at).unwrap();
        self.view.revision = revision;
        revision
    }

    /// Parts that hold what is frozen and shelved now, `per_part` objects each; unchanged ones are passed on.
    pub(super) fn shelve(&self, resource: &str, per_part: usize) -> ShelfSet {
        let source = Arc::new(self.view.to_shelve(resource));
        let view = source.resource(resource).unwrap();
        let changed = view.changed_parts(&source.log);
        let mut parts = Vec::new();
        for index in 0..view.shelf.parts().len().max(1) {
            if !changed.contains(&index) {
                parts.extend(view.shelf.parts().get(index).cloned());
                continue;
            }
            let (lower, upper) = view.shelf.keys_of(index);
            let range = KeyRange {
                lower: lower.map_or(std::ops::Bound::Unbounded, |key| std::ops::Bound::Included(key.into())),
                upper: upper.map(Into::into),
            };
            let mut listing = Listing::between(&source, resource, range, &Selection::all());
            let new = || {
                let builder = ShelfBuilder::new(STORE, resource, source.revision).with_rows(Some(FRAME));
                // Some as they were written before owners had postings.
                if per_part.is_multiple_of(3) {
                    builder.without_owners()
                } else {
                    builder
                }
            };
            let mut builder = new();
            while let Some(run) = listing.next(usize::MAX).unwrap() {
                for object in run.objects() {
                    let (json, sidecar) = (object.json().unwrap(), object.sidecar_bytes().unwrap());
                    builder
                        .push(object.key(), object.revision(), object.shape(), json, sidecar)
                        .unwrap();
                    if builder.count() == per_part {
                        let full = std::mem::replace(&mut builder, new());
                        parts.push(part(full));
                    }
                }
            }
            if builder.count() > 0 {
                parts.push(part(builder));
            }
        }
        ShelfSet::from_parts(parts)
    }

    /// Freezes and shelves everything.
    pub(super) fn shelve_all(&mut self, resource: &str, per_part: usize) {
        let log = self.view.log.clone();
        let revision = self.view.revision;
        self.view.resource_mut(resource).freeze();
        let shelf = self.shelve(resource, per_part);
        self.view.resource_mut(resource).install(&log, shelf, revision);
    }

    /// The view of a resource as it was.
    pub(super) fn past(&self, resource: &str, revision: u64) -> View {
        let after = self
            .records
            .iter()
            .filter(|(name, at, _)| name == resource && *at > revision);
        self.view.past(resource, revision, after.map(|&(_, _, at)| at)).unwrap()
    }
}

/// What rows of parts have around the metadata.
pub(super) const FRAME: RowFrame = RowFrame {
    before: r#"{"metadata":"#,
    behind: "}",
};

fn part(builder: ShelfBuilder) -> Arc<Part> {
    let bytes = builder.finish().concat();
    let shelf = flatkube_format::shelf::Shelf::open(&bytes).unwrap();
    let entry = PartEntry {
        file: 1,
        count: shelf.count() as u64,
        bytes: bytes.len() as u64,
        first_key: shelf.key(&bytes, 0).to_owned(),
        last_key: shelf.key(&bytes, shelf.count() - 1).to_owned(),
        header_crc: shelf.header_crc(),
    };
    Arc::new(Part::open(entry, Arc::new(map_of(&bytes))).unwrap())
}

/// A published map of these bytes.
pub(super) fn map_of(bytes: &[u8]) -> Map {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    let map = Map::new(&file, bytes.len(), "part").unwrap();
    map.publish(bytes.len());
    map
}

/// An object with these labels and fields (each sorted by name) and about `padding` bytes more.
pub(super) fn object(key: &str, labels: &[(&str, &str)], fields: &[(&str, &str)], padding: usize) -> Prepared {
    owned(key, labels, fields, &[], padding)
}

/// As [`object`], with the UIDs of owners.
pub(super) fn owned(
    key: &str,
    labels: &[(&str, &str)],
    fields: &[(&str, &str)],
    owners: &[&str],
    padding: usize,
) -> Prepared {
    let pairs = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|&(name, value)| Pair {
                name: name.into(),
                value: value.into(),
            })
            .collect()
    };
    let head = format!("{{\"metadata\":{{\"name\":\"{key}\",\"resourceVersion\":\"");
    let json = format!("{head}\"}},\"data\":\"{}\"}}", "x".repeat(padding));
    let sidecar = Sidecar {
        metadata_start: 12,
        splice: head.len() as u32,
        metadata_tail: 2,
        labels: pairs(labels),
        fields: pairs(fields),
        owners: owners.iter().map(ToString::to_string).collect(),
        ..Sidecar::default()
    };
    let prepared = Prepared {
        json: json.into_bytes(),
        splice: head.len() as u32,
        sidecar: sidecar.archive(),
    };
    prepared.check().unwrap();
    prepared
}
