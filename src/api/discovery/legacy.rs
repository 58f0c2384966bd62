//! The legacy discovery documents: APIVersions, APIGroupList, APIGroup, APIResourceList.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Serialize;

use super::{Document, Documents, verbs};
use crate::resources;
use crate::resources::custom::Served;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Group<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    preferred_version: GroupVersion<'a>,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "str::is_empty")]
    storage_version_hash: &'a str,
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(value).unwrap_or_default();
    json.push(b'\n');
    json
}

pub(super) fn root(documents: &Documents) -> &Document {
    documents.root.get_or_init(|| {
        #[derive(Serialize)]
        struct Paths {
            paths: Vec<String>,
        }
        let mut paths: Vec<String> = [
            "/.well-known/openid-configuration",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/",
            "/healthz",
            "/healthz/log",
            "/healthz/ping",
            "/healthz/store",
            "/livez",
            "/livez/log",
            "/livez/ping",
            "/livez/store",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/",
            "/readyz",
            "/readyz/log",
            "/readyz/ping",
            "/readyz/shutdown",
            "/readyz/store",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        for (group, versions) in &documents.groups {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|(version, _)| format!("/apis/{group}/{version}")));
        }
        paths.sort();
        Document::new(encode(&Paths { paths }))
    })
}

pub(super) fn versions() -> &'static Document {
    static VERSIONS: OnceLock<Document> = OnceLock::new();
    VERSIONS.get_or_init(|| {
        Document::new(b"{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[]}\n".to_vec())
    })
}

fn group_of<'a>(name: &'a str, versions: &'a [super::Version], alone: bool) -> Group<'a> {
    let versions: Vec<GroupVersion> = versions
        .iter()
        .map(|(version, _)| GroupVersion {
            group_version: format!("{name}/{version}"),
            version,
        })
        .collect();
    Group {
        kind: alone.then_some("APIGroup"),
        api_version: alone.then_some("v1"),
        name,
        preferred_version: versions[0].clone(),
        versions,
    }
}

pub(super) fn groups(documents: &Documents) -> &Document {
    documents.legacy.get_or_init(|| {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct List<'a> {
            kind: &'static str,
            api_version: &'static str,
            groups: Vec<Group<'a>>,
        }
        let groups = documents
            .groups
            .iter()
            .map(|(name, versions)| group_of(name, versions, false))
            .collect();
        Document::new(encode(&List {
            kind: "APIGroupList",
            api_version: "v1",
            groups,
        }))
    })
}

pub(super) fn group(documents: &Documents, name: &str) -> Vec<u8> {
    let found = documents.groups.iter().find(|(group, _)| *group == name);
    found.map_or_else(Vec::new, |(name, versions)| encode(&group_of(name, versions, true)))
}

pub(super) fn resources(custom: &Served, group: &str, version: &str) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct List<'a> {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_version: Option<&'static str>,
        group_version: String,
        resources: Vec<ApiResource<'a>>,
    }
    let mut listed = Vec::new();
    let built_in = || {
        resources::all()
            .iter()
            .filter(|r| r.group == group && r.version == version)
    };
    let custom = custom.version(group, version).filter(|_| built_in().next().is_none());
    let custom = custom
        .into_iter()
        .flat_map(BTreeMap::values)
        .map(|resource| &**resource);
    for resource in built_in().chain(custom) {
        listed.push(ApiResource {
            name: resource.plural.clone().into_owned(),
            singular_name: &resource.singular,
            namespaced: resource.namespaced,
            group: "",
            version: "",
            kind: &resource.kind,
            verbs: verbs(resource),
            short_names: &resource.short_names,
            categories: &resource.categories,
            storage_version_hash: &resource.storage_version_hash,
        });
        listed.extend(resource.subresources.iter().map(|sub| ApiResource {
            name: format!("{}/{}", &resource.plural, sub.name),
            singular_name: "",
            namespaced: resource.namespaced,
            group: if sub.foreign { &sub.group } else { "" },
            version: if sub.foreign { &sub.version } else { "" },
            kind: &sub.kind,
            verbs: sub.verbs,
            short_names: &[],
            categories: &[],
            storage_version_hash: "",
        }));
    }
    // The core group's list is the one that upstream sends without an apiVersion.
    let api_version = (!group.is_empty()).then_some("v1");
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    encode(&List {
        kind: "APIResourceList",
        api_version,
        group_version,
        resources: listed,
    })
}
