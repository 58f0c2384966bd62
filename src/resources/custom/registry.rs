//! Which custom resources are served at this moment. Readers take an immutable picture of them without a lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::Definition;
use crate::resources::ResourceRef;

/// The custom resources of one server.
#[derive(Debug, Default)]
pub struct Registry {
    served: ArcSwap<Served>,
}

/// The resources of one version by their plural names.
pub type Resources = BTreeMap<String, ResourceRef>;

/// An immutable picture of the custom resources that are served.
#[derive(Debug, Default)]
pub struct Served {
    /// By group; versions in the order of discovery, the preferred one first.
    groups: BTreeMap<Arc<str>, Vec<(String, Resources)>>,
    /// The stored shape of each by the name of the resource in the store.
    stored: HashMap<Arc<str>, ResourceRef>,
    /// Raised with every picture that is published.
    pub number: u64,
}

impl Registry {
    /// What is served now. Takes no lock.
    pub fn served(&self) -> Guard<Arc<Served>> {
        self.served.load()
    }

    /// Serves these from now on. There is one publisher.
    pub fn publish(&self, mut served: Served) {
        served.number = self.served.load().number + 1;
        self.served.store(Arc::new(served));
    }
}

impl Served {
    /// The picture of these definitions.
    pub fn of<'a>(definitions: impl Iterator<Item = &'a Definition>) -> Served {
        let mut served = Served::default();
        for definition in definitions {
            if let Some(stored) = definition.stored() {
                served.stored.insert(definition.name.clone(), stored.clone());
            }
            for version in definition.versions.iter().filter(|version| version.served) {
                let resource = &version.resource;
                let versions = served.groups.entry(definition.group.clone()).or_default();
                let place = versions.iter().position(|(name, _)| *name == *resource.version);
                let place = place.unwrap_or_else(|| {
                    versions.push((resource.version.clone().into_owned(), Resources::new()));
                    versions.len() - 1
                });
                let resources = &mut versions[place].1;
                resources.insert(resource.plural.clone().into_owned(), resource.clone());
            }
        }
        for versions in served.groups.values_mut() {
            versions.sort_by(|(one, _), (other, _)| rank(one).cmp(&rank(other)));
        }
        served
    }

    /// The resource of that group, version and plural name.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&ResourceRef> {
        self.version(group, version)?.get(plural)
    }

    /// The resources of a group's version by their plural names.
    pub fn version(&self, group: &str, version: &str) -> Option<&Resources> {
        let versions = self.groups.get(group)?;
        let found = versions.iter().find(|(name, _)| name == version)?;
        Some(&found.1)
    }

    /// All groups with their versions and these with their resources, in the order of discovery.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &[(String, Resources)])> {
        self.groups
            .iter()
            .map(|(name, versions)| (&**name, versions.as_slice()))
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

/// The place of a version among those of its group: `v2`, `v1`, `v2beta1`, `v1beta2`, `v1alpha1`, then all other names by the
/// alphabet. ("Version priority" in the documentation of custom resources.)
fn rank(version: &str) -> (Reverse<(u8, u64, u64)>, &str) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let number = |text: &str| (!text.starts_with('0')).then(|| text.parse::<u64>().ok()).flatten();
        let (stage, split) = if let Some(split) = rest.split_once("beta") {
            (2, Some(split))
        } else if let Some(split) = rest.split_once("alpha") {
            (1, Some(split))
        } else {
            (3, None)
        };
        Some(match split {
            None => (stage, number(rest)?, 0),
            Some((major, minor)) => (stage, number(major)?, number(minor)?),
        })
    };
    match parsed() {
        Some(place) => (Reverse(place), ""),
        None => (Reverse((0, 0, 0)), version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_the_order_of_their_maturity() {
        let expected = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v0",
            "v1beta",
        ];
        let mut versions = expected;
        versions.sort_unstable();
        versions.sort_by(|one, other| rank(one).cmp(&rank(other)));
        assert_eq!(versions, expected);
    }
}
