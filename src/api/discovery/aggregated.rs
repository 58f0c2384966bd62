//! Aggregated discovery (KEP-3352): everything in one document per API root.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::Serialize;

use super::{Document, Documents, verbs};
use crate::resources::{self, Resource, ResourceRef};

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
struct List<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<Group<'a>>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Group<'a> {
    metadata: Name<'a>,
    versions: Vec<GroupVersion<'a>>,
}

#[derive(Serialize)]
struct Name<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct GroupVersion<'a> {
    version: &'a str,
    resources: Vec<ApiResource<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    #[serde(rename = "resource")]
    name: &'a str,
    response_kind: Kind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<ApiSubresource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiSubresource<'a> {
    #[serde(rename = "subresource")]
    name: &'static str,
    response_kind: Kind<'a>,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// The document at `/api`.
pub(super) fn core(version: Version) -> &'static Document {
    static DOCUMENTS: [OnceLock<Document>; 2] = [OnceLock::new(), OnceLock::new()];
    DOCUMENTS[version as usize].get_or_init(|| {
        let listed: Vec<ResourceRef> = resources::all()
            .iter()
            .filter(|resource| resource.group.is_empty())
            .map(ResourceRef::from)
            .collect();
        list(version, vec![group("", &[("v1".into(), listed)])])
    })
}

/// The document at `/apis`.
pub(super) fn named(documents: &Documents, version: Version) -> &Document {
    documents.aggregated[version as usize].get_or_init(|| {
        list(
            version,
            documents
                .groups
                .iter()
                .map(|(name, versions)| group(name, versions))
                .collect(),
        )
    })
}

fn list(version: Version, items: Vec<Group<'_>>) -> Document {
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

fn group<'a>(name: &'a str, versions: &'a [super::Version]) -> Group<'a> {
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

fn described(resource: &Resource) -> ApiResource<'_> {
    let subresources = resource.subresources.iter().map(|sub| ApiSubresource {
        name: sub.name,
        response_kind: Kind {
            group: if sub.foreign { &sub.group } else { "" },
            version: if sub.foreign { &sub.version } else { "" },
            kind: &sub.kind,
        },
        verbs: sub.verbs,
    });
    ApiResource {
        name: &resource.plural,
        // Upstream leaves group and version of a resource's own kind empty.
        response_kind: Kind {
            group: "",
            version: "",
            kind: &resource.kind,
        },
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: &resource.singular,
        verbs: verbs(resource),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: subresources.collect(),
    }
}
