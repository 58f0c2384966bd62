//! One storage resource in a view: its shelf, and the layers of what was written since.
//!
//! From top to bottom: the *past* overlay (only in views of the past), the *active* delta that takes writes, the *frozen*
//! delta that is being shelved, the *shelf*. A key's version is that of the topmost layer that speaks of it. Layers below
//! know what is overwritten above them by bits (shadows of shelved objects, replaced slots of the frozen delta), so that a
//! candidate found in a lower layer is dismissed without a search by key.
//!
//! Number of live objects = objects on the shelf + contributions of the frozen delta (relative to the shelf) + those of the
//! active delta (relative to shelf and frozen delta together: they stay true when these two become the next shelf).

use std::ops::Bound;
use std::sync::Arc;

use flatkube_format::frame::{Kind, Record};
use flatkube_format::shelf::{PostingKind, posting_hash};
use rkyv::string::ArchivedString;

use super::archive;
use super::delta::{Delta, Put};
use super::error::Damaged;
use super::log::{EntryList, Log, RecordRef};
use super::object::Object;
use super::past::Past;
use super::sealing::ResourceSealing;
use super::shelf_set::{Place, ShelfSet};

/// One storage resource at one revision. Cloning is O(1) and a clone never changes.
#[derive(Clone, Default)]
pub struct ResourceView {
    pub(super) shelf: ShelfSet,
    pub(super) frozen: Option<Frozen>,
    pub(super) active: Delta,
    pub(super) past: Option<Arc<Past>>,
    /// Records of the resource in the active segment.
    pub(super) index: EntryList,
    /// Newest discarded revision of the resource; 0 if all history is there.
    pub(super) floor: u64,
    /// The shelf holds every write up to this revision.
    pub(super) shelved_revision: u64,
    /// How objects are opened that readers get, if some may be sealed.
    pub(super) sealing: Option<Arc<ResourceSealing>>,
}

/// A delta that takes no more writes.
#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) delta: Delta,
    /// The shelf beneath, with the shadows of this delta alone: those of the active delta are not for its shelving.
    shelf: ShelfSet,
    /// A bit per slot whose key the active delta has, too. Words at the end that are all zero may be missing.
    replaced: imbl::Vector<u64>,
}

impl Frozen {
    /// Whether the active delta has the slot's key, too.
    pub(super) fn is_replaced(&self, slot: u32) -> bool {
        self.replaced
            .get(slot as usize / 64)
            .is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn replace(&mut self, slot: u32) {
        let word = slot as usize / 64;
        while self.replaced.len() <= word {
            self.replaced.push_back(0);
        }
        self.replaced[word] |= 1 << (slot % 64);
    }
}

impl ResourceView {
    /// A resource that has nothing but a shelf.
    pub(super) fn of_shelf(shelf: ShelfSet, shelved_revision: u64, floor: u64) -> ResourceView {
        ResourceView {
            shelf,
            floor,
            shelved_revision,
            ..ResourceView::default()
        }
    }

    /// The version of a key. O(log n).
    pub(super) fn get(&self, log: &Log, key: &str) -> Result<Option<Object>, Damaged> {
        let key = key.as_bytes();
        if let Some(past) = &self.past
            && let Some(rank) = past.find(log, key)
        {
            return past.version(log, rank).map(|(_, version)| version);
        }
        for delta in self.deltas() {
            if let Some(slot) = delta.find(log, key) {
                let slot = delta.slot(slot);
                return if slot.is_tombstone() {
                    Ok(None)
                } else {
                    Object::at(log, slot.at()).map(Some)
                };
            }
        }
        let place = self.shelf.find(key);
        Ok(place.map(|Place { part, object }| Object::shelved(Arc::clone(&self.shelf.parts()[part]), object)))
    }

    /// Whether a key is live in the present layers.
    pub(super) fn is_live(&self, log: &Log, key: &[u8]) -> bool {
        for delta in self.deltas() {
            if let Some(slot) = delta.find(log, key) {
                return !delta.slot(slot).is_tombstone();
            }
        }
        self.shelf.find(key).is_some()
    }

    /// Active, then frozen.
    pub(super) fn deltas(&self) -> impl Iterator<Item = &Delta> {
        std::iter::once(&self.active).chain(self.frozen.as_ref().map(|frozen| &frozen.delta))
    }

    /// Number of live objects with a key from `lower` up to and excluding `upper`. O(log n).
    pub(super) fn count(&self, log: &Log, lower: Bound<&[u8]>, upper: Option<&[u8]>) -> u64 {
        let shelf = &self.shelf;
        let end = upper.map_or(shelf.end(), |upper| shelf.lower(Bound::Included(upper)));
        let end = if upper.is_none() {
            shelf.count()
        } else {
            shelf.rank(end)
        };
        let mut count = end as i64 - shelf.rank(shelf.lower(lower)) as i64;
        for delta in self.deltas() {
            let end = upper.map_or(delta.end(), |upper| delta.lower(log, Bound::Included(upper)));
            count += end.contribution - delta.lower(log, lower).contribution;
        }
        if let Some(past) = &self.past {
            let end = upper.map_or(past.end(), |upper| past.lower(log, Bound::Included(upper)));
            count += end.contribution - past.lower(log, lower).contribution;
        }
        // Not negative for `lower <= upper`: every contribution of -1 takes away an object that is counted beneath.
        count.max(0) as u64
    }

    /// Takes in the record at `at`, which must be the newest of the resource. O(log n).
    ///
    /// Whether the key was live before is taken from the record's kind, which the committer proved.
    pub(super) fn apply(&mut self, log: &Log, at: RecordRef) -> Result<(), Damaged> {
        self.put(log, at, |_, record| record.kind != Kind::Create)
    }

    /// [`Self::apply`] of a record that is read anew at the start, before anything is frozen: what lies beneath is looked up, one
    /// binary search, not taken from the record's kind. Right checksums do not prove that a log follows from its shelves: a
    /// repair may have left records out.
    pub(super) fn replay(&mut self, log: &Log, at: RecordRef) -> Result<(), Damaged> {
        debug_assert!(self.frozen.is_none(), "nothing is frozen while a store is opened");
        self.put(log, at, |shelf, record| shelf.find(record.key.as_bytes()).is_some())
    }

    /// `lies_beneath` tells of a key that is new in the delta whether it is live beneath.
    fn put(
        &mut self,
        log: &Log,
        at: RecordRef,
        lies_beneath: impl FnOnce(&ShelfSet, &Record<'_>) -> bool,
    ) -> Result<(), Damaged> {
        debug_assert!(self.past.is_none(), "the past takes no writes");
        let segment = log.holding(at)?;
        let record = segment.record(at.offset)?;
        let (key, tombstone) = match record.kind {
            Kind::Create | Kind::Update => (record.key.as_bytes(), false),
            Kind::Delete => (record.key.as_bytes(), true),
            Kind::Marker => return Ok(()),
        };
        let beneath = lies_beneath(&self.shelf, &record);
        let sidecar = archive::of_record(segment.map(), at.offset);
        let sidecar = sidecar.map_err(|error| Damaged::of(segment.map().file(), &error))?;
        let Put { slot, replaced } = self.active.put(log, key, at, tombstone, beneath, record.len as u64);
        if replaced.is_none() {
            match &mut self.frozen {
                Some(frozen) => match frozen.delta.find(log, key) {
                    // If the key is on the shelf, too, that was marked when the frozen delta took it.
                    Some(slot) => frozen.replace(slot),
                    None if beneath => self.shelf.shadow(key),
                    None => {}
                },
                None if beneath => self.shelf.shadow(key),
                None => {}
            }
        }
        if tombstone {
            return Ok(());
        }
        // What the version before in this delta was listed under need not be listed again.
        let before = replaced
            .filter(|slot| !slot.is_tombstone())
            .map(|slot| log.holding(slot.at()).map(|segment| (segment, slot.at().offset)))
            .transpose()?;
        let before = before.and_then(|(segment, offset)| archive::of_record(segment.map(), offset).ok());
        for label in sidecar.labels.iter() {
            let (name, value) = (label.name.as_str(), label.value.as_str());
            if before.is_none_or(|before| before.label(name) != Some(value)) {
                let name_hash = posting_hash(PostingKind::LabelName, name, "");
                let pair = posting_hash(PostingKind::Label, name, value);
                self.active.list_under(log, key, slot, Some(name_hash), pair);
            }
        }
        for field in sidecar.fields.iter() {
            let (name, value) = (field.name.as_str(), field.value.as_str());
            if !value.is_empty() && before.is_none_or(|before| before.field(name) != Some(value)) {
                self.active
                    .list_under(log, key, slot, None, posting_hash(PostingKind::Field, name, value));
            }
        }
        if !sidecar.owners.is_empty() && before.is_none_or(|before| before.owners.is_empty()) {
            let hash = posting_hash(PostingKind::Owner, "", "");
            self.active.list_under(log, key, slot, None, hash);
        }
        for owner in sidecar.owners.iter().map(ArchivedString::as_str) {
            if before.is_none_or(|before| before.owners.iter().all(|other| other != owner)) {
                let hash = posting_hash(PostingKind::Owner, "", owner);
                self.active.list_under(log, key, slot, None, hash);
            }
        }
        Ok(())
    }

    /// Closes the active delta for shelving and opens a new one. O(1). The frozen one before must have been installed.
    pub(super) fn freeze(&mut self) {
        assert!(self.frozen.is_none(), "the frozen delta is not shelved yet");
        let delta = std::mem::take(&mut self.active);
        self.frozen = Some(Frozen {
            delta,
            shelf: self.shelf.clone(),
            replaced: imbl::Vector::new(),
        });
    }

    /// Puts a shelf that holds the old shelf and the frozen delta in their place. O(later writes) if
    /// [`ShelfSet::shadowed_by`] was called on it with a recent state of the active delta, else O(active delta).
    pub(super) fn install(&mut self, log: &Log, mut shelf: ShelfSet, shelved_revision: u64) {
        shelf.shadowed_by(log, &self.active);
        self.shelf = shelf;
        self.frozen = None;
        self.shelved_revision = shelved_revision;
    }

    /// What a shelving writes down: everything but the active delta.
    pub(super) fn without_active(&self) -> ResourceView {
        let (shelf, frozen) = match &self.frozen {
            None => (ShelfSet::from_parts(self.shelf.parts().to_vec()), None),
            Some(frozen) => (
                frozen.shelf.clone(),
                Some(Frozen {
                    replaced: imbl::Vector::new(),
                    ..frozen.clone()
                }),
            ),
        };
        ResourceView {
            shelf,
            frozen,
            active: Delta::default(),
            past: None,
            ..self.clone()
        }
    }

    /// Indexes of the shelf parts into whose key range ([`ShelfSet::keys_of`]) the frozen delta wrote, ascending; `[0]` if
    /// there is no part yet.
    pub(super) fn changed_parts(&self, log: &Log) -> Vec<usize> {
        let mut changed = Vec::new();
        for slot in self.frozen.iter().flat_map(|frozen| frozen.delta.iter()) {
            let part = self.shelf.part_of(super::delta::Keys::key(log, slot.at()));
            if changed.last() != Some(&part) {
                changed.push(part);
            }
        }
        changed
    }

    /// This resource as it was before `records`, which are all of its records after some revision, ascending.
    pub(super) fn before(
        &self,
        log: &Log,
        records: impl IntoIterator<Item = RecordRef>,
    ) -> Result<ResourceView, Damaged> {
        debug_assert!(self.past.is_none(), "an overlay lies on the present");
        let past = Past::new(log, self, records)?;
        Ok(ResourceView {
            past: Some(Arc::new(past)),
            ..self.clone()
        })
    }

    /// Keys that were written since the shelf was made.
    pub(super) fn delta_len(&self) -> usize {
        self.deltas().map(Delta::len).sum()
    }

    /// Bytes of log that were written into the active delta.
    pub(super) fn delta_bytes(&self) -> u64 {
        self.active.bytes()
    }
}
