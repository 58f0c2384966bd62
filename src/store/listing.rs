//! Lists: a range of a resource in list order, as few large runs.

use std::sync::Arc;

use bytes::Bytes;

use super::error::Damaged;
use super::object::Object;
use super::selection::Selection;
use super::view::View;

/// Which keys of a resource are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Only objects of this namespace.
    pub namespace: Option<String>,
    /// Only objects with a key greater than this one.
    pub after: Option<String>,
}

/// A cursor over the objects of a range in list order, which is the byte order of keys.
pub struct Listing {}

impl Listing {
    pub(super) fn new(_view: Arc<View>, _resource: &str, _range: Range, _selection: &Selection) -> Listing {
        todo!()
    }

    /// The next run: at most `max` selected objects that follow each other; `None` at the end of the range.
    pub fn next(&mut self, _max: usize) -> Result<Option<Run>, Damaged> {
        todo!()
    }

    /// Objects of the range behind the last run that was handed out, whether selected or not. O(log n).
    pub fn remaining(&self) -> u64 {
        todo!()
    }
}

/// Objects that follow each other in a list.
#[derive(Clone, Debug)]
pub enum Run {
    /// Side by side in a shelf part.
    Shelved(ShelvedRun),
    /// One, from the log.
    One(Object),
}

impl Run {
    /// Number of objects, at least 1.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Never: a run has at least one object.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Key of the last object: what a continue token names.
    pub fn last_key(&self) -> &str {
        todo!()
    }

    /// The objects in list order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        std::iter::empty()
    }
}

/// Objects that lie side by side in a shelf part, none of them changed since.
#[derive(Clone, Debug)]
pub struct ShelvedRun {}

impl ShelvedRun {
    /// Number of objects, at least 1.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Never: a run has at least one object.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The stored JSON of all of them, separated by commas: one slice of the mapped file, checked at first touch.
    pub fn json(&self) -> Result<Bytes, Damaged> {
        todo!()
    }

    /// Length of [`ShelvedRun::json`] in bytes.
    pub fn json_len(&self) -> usize {
        todo!()
    }

    /// The objects in list order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        std::iter::empty()
    }
}
