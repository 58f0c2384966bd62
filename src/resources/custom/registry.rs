//! Which custom resources are served at this moment. Readers take an immutable picture of them without a lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use crate::resources::ResourceRef;

/// The custom resources of one server.
#[derive(Debug, Default)]
pub struct Registry {
    served: ArcSwap<Served>,
}

/// An immutable picture of the custom resources that are served.
#[derive(Debug, Default)]
pub struct Served {
    /// By group, then by version in the order of discovery (the preferred one first), then by plural name.
    groups: BTreeMap<String, Vec<(String, BTreeMap<String, ResourceRef>)>>,
    /// The stored shape of each by the name of the resource in the store.
    stored: HashMap<String, ResourceRef>,
}

impl Registry {
    /// What is served now. Takes no lock.
    pub fn served(&self) -> Guard<Arc<Served>> {
        self.served.load()
    }

    /// Serves these from now on.
    pub fn publish(&self, served: Served) {
        self.served.store(Arc::new(served));
    }
}

impl Served {
    /// The resource of that group, version and plural name.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&ResourceRef> {
        self.version(group, version)?.get(plural)
    }

    /// The resources of a group's version by their plural names.
    pub fn version(&self, group: &str, version: &str) -> Option<&BTreeMap<String, ResourceRef>> {
        let versions = self.groups.get(group)?;
        let found = versions.iter().find(|(name, _)| name == version)?;
        Some(&found.1)
    }

    /// Whether something of that group is served.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The resource in whose shape objects with that name in the store are stored.
    pub fn stored(&self, storage: &str) -> Option<&ResourceRef> {
        self.stored.get(storage)
    }

    /// All resources in the shapes that they are stored in.
    pub fn all_stored(&self) -> impl Iterator<Item = &ResourceRef> {
        self.stored.values()
    }
}
