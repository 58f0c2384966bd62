//! Resources by what objects say of each other: kinds, and names in the store.

use crate::api::Client;
use crate::resources::{self, ResourceRef};

/// The stored resource of a kind; `apps/v1` and `Deployment`, say. `None` when none is served.
pub(super) fn resource_of(client: &Client, api_version: &str, kind: &str) -> Option<ResourceRef> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_it = |resource: &ResourceRef| resource.kind == kind && !resource.storage.is_empty();
    let built_in = resources::all()
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
        .map(ResourceRef::from);
    built_in.into_iter().find(is_it).or_else(|| {
        let served = client.custom().served();
        served
            .version(group, version)?
            .values()
            .find(|found| is_it(found))
            .cloned()
    })
}

/// The stored shape of a resource by its name in the store.
pub(super) fn stored(client: &Client, storage: &str) -> Option<ResourceRef> {
    match resources::stored(storage) {
        Some(resource) => Some(resource.into()),
        None => client.custom().served().stored(storage).cloned(),
    }
}
