//! Aggregated discovery (KEP-3352): everything in one document per API root.

use std::sync::OnceLock;

use serde::Serialize;

use super::{Document, groups_in_order};
use crate::resources::{self, Resource};

/// Versions of `apidiscovery.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V2,
    V2Beta1,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Version::V2 => "apidiscovery.k8s.io/v2",
            Version::V2Beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Version::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Version::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<Group>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Group {
    metadata: Name,
    versions: Vec<GroupVersion>,
}

#[derive(Serialize)]
struct Name {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'static str,
}

#[derive(Serialize)]
struct GroupVersion {
    version: &'static str,
    resources: Vec<ApiResource>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    #[serde(rename = "resource")]
    name: &'static str,
    response_kind: Kind,
    scope: &'static str,
    singular_resource: &'static str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'static [&'static str],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<ApiSubresource>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiSubresource {
    #[serde(rename = "subresource")]
    name: &'static str,
    response_kind: Kind,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

/// The document at `/api`.
pub(super) fn core(version: Version) -> &'static Document {
    static DOCUMENTS: [OnceLock<Document>; 2] = [OnceLock::new(), OnceLock::new()];
    DOCUMENTS[version as usize].get_or_init(|| {
        let listed: Vec<&'static Resource> = resources::all()
            .iter()
            .filter(|resource| resource.group.is_empty())
            .collect();
        list(version, vec![group("", &[("v1", listed)])])
    })
}

/// The document at `/apis`.
pub(super) fn named(version: Version) -> &'static Document {
    static DOCUMENTS: [OnceLock<Document>; 2] = [OnceLock::new(), OnceLock::new()];
    DOCUMENTS[version as usize].get_or_init(|| {
        list(
            version,
            groups_in_order()
                .iter()
                .map(|(name, versions)| group(name, versions))
                .collect(),
        )
    })
}

fn list(version: Version, items: Vec<Group>) -> Document {
    let list = List {
        kind: "APIGroupDiscoveryList",
        api_version: version.api_version(),
        metadata: Empty {},
        items,
    };
    let mut json = serde_json::to_vec(&list).unwrap_or_default();
    json.push(b'\n');
    Document::new(json)
}

fn group(name: &'static str, versions: &[(&'static str, Vec<&'static Resource>)]) -> Group {
    let versions = versions.iter().map(|(version, listed)| GroupVersion {
        version,
        resources: listed.iter().map(|resource| described(resource)).collect(),
        freshness: "Current",
    });
    Group {
        metadata: Name { name },
        versions: versions.collect(),
    }
}

fn described(resource: &Resource) -> ApiResource {
    let subresources = resource.subresources.iter().map(|sub| ApiSubresource {
        name: sub.name,
        response_kind: Kind {
            group: if sub.foreign { sub.group } else { "" },
            version: if sub.foreign { sub.version } else { "" },
            kind: sub.kind,
        },
        verbs: sub.verbs,
    });
    ApiResource {
        name: resource.plural,
        // Upstream leaves group and version of a resource's own kind empty.
        response_kind: Kind {
            group: "",
            version: "",
            kind: resource.kind,
        },
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: resource.singular,
        verbs: resource.verbs,
        short_names: resource.short_names,
        categories: resource.categories,
        subresources: subresources.collect(),
    }
}
