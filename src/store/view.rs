//! An immutable picture of the store at one revision: what every read runs on.

use std::ops::Bound;
use std::sync::{Arc, Weak};

use super::error::Damaged;
use super::listing::{Listing, Range};
use super::log::{Log, RecordRef};
use super::object::Object;
use super::resource_view::ResourceView;
use super::sealing::{ResourceSealing, Sealing};
use super::selection::Selection;

/// The state of all resources at one revision. Never changes once published; cloning is O(1) and shares everything.
///
/// A view of the past ([`Store::view_at`](super::Store::view_at)) knows one resource only.
#[derive(Clone, Default)]
pub struct View {
    pub(super) revision: u64,
    /// Keeps every segment alive that the deltas point into, also when the store has retired it.
    pub(super) log: Log,
    pub(super) resources: imbl::OrdMap<Arc<str>, Arc<ResourceView>>,
    /// Who opens what is sealed of resources that come to be.
    sealing: Option<Arc<dyn Sealing>>,
}

impl View {
    /// A store with nothing in it.
    pub(super) fn empty(log: Log) -> View {
        View { log, ..View::default() }
    }

    /// The revision whose state this is.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One object. O(log n).
    pub fn get(&self, resource: &str, key: &str) -> Result<Option<Object>, Damaged> {
        let Some(resource) = self.resource(resource) else {
            return Ok(None);
        };
        let found = resource.get(&self.log, key)?;
        Ok(match &resource.sealing {
            None => found,
            Some(sealing) => found.map(|object| object.opened_by(sealing)),
        })
    }

    /// One object as it lies on the disk, for the store's own use. O(log n).
    pub(super) fn stored(&self, resource: &str, key: &str) -> Result<Option<Object>, Damaged> {
        self.resource(resource)
            .map_or(Ok(None), |resource| resource.get(&self.log, key))
    }

    /// A range of a resource in list order. Cheap until the first run is asked for.
    pub fn list(self: &Arc<Self>, resource: &str, range: Range, selection: &Selection) -> Listing {
        Listing::new(self, resource, range, selection)
    }

    /// Number of objects of a resource, in one namespace or in all. O(log n).
    pub fn count(&self, resource: &str, namespace: Option<&str>) -> u64 {
        let Some(resource) = self.resource(resource) else {
            return 0;
        };
        let Some(namespace) = namespace else {
            return resource.count(&self.log, Bound::Unbounded, None);
        };
        let (lower, upper) = keys_of_namespace(namespace);
        resource.count(&self.log, Bound::Included(&lower), Some(&upper))
    }

    /// What tells whether a resource is still the same in another view. O(log n) in the number of resources.
    pub fn state(&self, resource: &str) -> ResourceState {
        ResourceState(self.resource(resource).map(Arc::downgrade).unwrap_or_default())
    }

    /// Names of the storage resources that have or had objects, in byte order.
    pub fn resources(&self) -> impl Iterator<Item = &str> + '_ {
        self.resources.keys().map(AsRef::as_ref)
    }

    pub(super) fn resource(&self, name: &str) -> Option<&Arc<ResourceView>> {
        self.resources.get(name)
    }

    /// The resource to change; made if it is missing, copied if another view has it.
    pub(super) fn resource_mut(&mut self, name: &str) -> &mut ResourceView {
        if !self.resources.contains_key(name) {
            let sealing = self.sealing.as_ref().and_then(|by| ResourceSealing::of(by, name));
            let resource = ResourceView {
                sealing,
                ..ResourceView::default()
            };
            self.resources.insert(name.into(), Arc::new(resource));
        }
        let resource = self.resources.get_mut(name).expect("it was inserted if it was missing");
        Arc::make_mut(resource)
    }

    /// Takes `sealing` for what is there and what comes.
    pub(super) fn sealed_by(&mut self, sealing: Option<Arc<dyn Sealing>>) {
        self.sealing = sealing;
        self.cover();
    }

    /// Asks anew which resources are covered.
    pub(super) fn cover(&mut self) {
        let Some(by) = self.sealing.clone() else { return };
        let names: Vec<Arc<str>> = self.resources.keys().cloned().collect();
        for name in names {
            let sealing = ResourceSealing::of(&by, &name);
            if sealing.is_some() && self.resource(&name).is_some_and(|resource| resource.sealing.is_none()) {
                self.resource_mut(&name).sealing = sealing;
            }
        }
    }

    /// The view of one resource as it was at `revision`; `records` are all of its records after that, ascending.
    pub(super) fn past(
        &self,
        name: &str,
        revision: u64,
        records: impl IntoIterator<Item = RecordRef>,
    ) -> Result<View, Damaged> {
        let mut resources = imbl::OrdMap::new();
        if let Some((name, resource)) = self.resources.get_key_value(name) {
            resources.insert(Arc::clone(name), Arc::new(resource.before(&self.log, records)?));
        }
        Ok(View {
            revision,
            log: self.log.clone(),
            resources,
            sealing: None,
        })
    }

    /// What a shelving of one resource writes down: shelf and frozen delta, without the active one.
    pub(super) fn to_shelve(&self, name: &str) -> View {
        let mut resources = imbl::OrdMap::new();
        if let Some((name, resource)) = self.resources.get_key_value(name) {
            resources.insert(Arc::clone(name), Arc::new(resource.without_active()));
        }
        View {
            revision: self.revision,
            log: self.log.clone(),
            resources,
            sealing: None,
        }
    }
}

/// The state of a resource in a view, by which views are compared. Keeps nothing alive but the 200 bytes that it is told by.
#[derive(Clone, Default)]
pub struct ResourceState(Weak<ResourceView>);

impl ResourceState {
    /// Whether the resource is as it was: nothing of it was written or shelved since.
    pub fn is_of(&self, view: &View, resource: &str) -> bool {
        match view.resource(resource) {
            Some(now) => std::ptr::eq(Arc::as_ptr(now), self.0.as_ptr()),
            None => self.0.ptr_eq(&Weak::new()),
        }
    }
}

impl std::fmt::Debug for ResourceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResourceState")
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} resources @ {})", self.resources.len(), self.revision)
    }
}

/// First key of a namespace (inclusive) and first key behind it (exclusive): `/` is followed by `0` in byte order.
pub(super) fn keys_of_namespace(namespace: &str) -> (Vec<u8>, Vec<u8>) {
    let with = |last: u8| {
        let mut key = Vec::with_capacity(namespace.len() + 1);
        key.extend_from_slice(namespace.as_bytes());
        key.push(last);
        key
    };
    (with(b'/'), with(b'/' + 1))
}
