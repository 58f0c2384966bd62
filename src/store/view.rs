//! An immutable picture of the store at one revision: what every read runs on.

use std::sync::Arc;

use super::error::Damaged;
use super::listing::{Listing, Range};
use super::object::Object;
use super::selection::Selection;

/// The state of all resources at one revision. Never changes once published; cloning shares everything.
#[derive(Clone)]
pub struct View {}

impl View {
    /// The revision whose state this is.
    pub fn revision(&self) -> u64 {
        todo!()
    }

    /// One object. O(log n).
    pub fn get(&self, _resource: &str, _key: &str) -> Result<Option<Object>, Damaged> {
        todo!()
    }

    /// A range of a resource in list order. Cheap until the first run is asked for.
    pub fn list(self: &Arc<Self>, resource: &str, range: Range, selection: &Selection) -> Listing {
        Listing::new(Arc::clone(self), resource, range, selection)
    }

    /// Number of objects of a resource, in one namespace or in all. O(log n).
    pub fn count(&self, _resource: &str, _namespace: Option<&str>) -> u64 {
        todo!()
    }

    /// Names of the storage resources that have or had objects, in byte order.
    pub fn resources(&self) -> impl Iterator<Item = &str> + '_ {
        std::iter::empty()
    }
}
