//! Operations on paths: what each is called, takes and answers, by rule from the table of paths.

use crate::schema::Schema;
use crate::schema::blob::layout::{ACTIONS, METHODS};
use crate::schema::blob::{BUILT_IN, PathEntry};
use std::collections::{BTreeMap, HashMap};

/// Name of the schema of a patch's body.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

const LIST_PARAMETERS: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
const WRITE_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH_PARAMETERS: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE_PARAMETERS: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const DELETE_COLLECTION_PARAMETERS: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
const LOG_PARAMETERS: &[&str] = &[
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];

const JSON: &[&str] = &["application/json"];
const OBJECTS: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
];
const LOGS: &[&str] = &[
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/yaml",
    "text/plain",
];
const STREAMS: &[&str] = &[
    "application/json",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/yaml",
];
const ANYTHING: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// What an operation answers with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Schema(Schema<'static>),
    Text,
}

/// One operation of one path.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// HTTP method in lower case.
    pub(super) method: &'static str,
    /// `x-kubernetes-action`; empty for discovery.
    pub(super) action: &'static str,
    pub(super) id: String,
    pub(super) description: String,
    pub(super) tag: String,
    /// Group, version, kind of what goes in or out.
    pub(super) kind: Option<(&'static str, &'static str, &'static str)>,
    /// Query parameters beside those of the path.
    pub(super) query: &'static [&'static str],
    /// Schema of the body, whether it must be there, and its media types.
    pub(super) body: Option<(Schema<'static>, bool, &'static [&'static str])>,
    pub(super) answer: Answer,
    pub(super) produces: &'static [&'static str],
    /// Status codes that carry the answer.
    pub(super) codes: &'static [&'static str],
}

/// One path of a document.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// `/api/v1/namespaces/{namespace}/pods/{name}`
    pub(super) template: String,
    /// Names of the parameters in the path.
    pub(super) names: Vec<&'static str>,
    /// Whether every operation takes `pretty`.
    pub(super) pretty: bool,
    /// The kind that the names are of.
    pub(super) kind: &'static str,
    /// Sorted by method.
    pub(super) operations: Vec<Operation>,
}

/// All documents: key (`api/v1`, `apis/apps/v1`, `version`) to paths, sorted by path.
pub(super) fn documents() -> BTreeMap<String, Vec<Path>> {
    let entries: Vec<PathEntry<'static>> = (0..BUILT_IN.path_count()).map(|number| BUILT_IN.path(number)).collect();
    let resources = resources(&entries);
    let mut documents: BTreeMap<String, Vec<Path>> = BTreeMap::new();
    for entry in &entries {
        let Some(place) = Place::of(entry.path) else { continue };
        let Some(resource) = resources.get(&(place.base, place.resource)) else {
            continue;
        };
        let document = documents.entry(place.base.to_owned()).or_default();
        document.push(path(entry, &place, resource, entry.path.to_owned(), false));
        if has(entry, "watch") {
            let rest = &entry.path[place.base.len() + 1..];
            document.push(path(
                entry,
                &place,
                resource,
                format!("/{}/watch{rest}", place.base),
                true,
            ));
        }
    }
    for (key, id, description, tag, schema) in discovery(documents.keys().map(String::as_str)) {
        let answer = schema.map_or(Answer::Text, Answer::Schema);
        let operation = Operation {
            method: "get",
            action: "",
            id,
            description,
            tag,
            kind: None,
            query: &[],
            body: None,
            answer,
            produces: match key.as_str() {
                "version" | ".well-known/openid-configuration" => JSON,
                "openid/v1/jwks" => &["application/jwk-set+json"],
                _ => OBJECTS,
            },
            codes: &["200"],
        };
        let path = format!("/{key}/");
        let path = Path {
            template: path,
            names: Vec::new(),
            pretty: false,
            kind: "",
            operations: vec![operation],
        };
        documents.entry(key).or_default().push(path);
    }
    for document in documents.values_mut() {
        document.sort_by(|a, b| a.template.cmp(&b.template));
    }
    documents
}

struct Resource {
    kind: &'static str,
    namespaced: bool,
}

/// Kind and scope of each resource of each group-version.
fn resources(entries: &[PathEntry<'static>]) -> HashMap<(&'static str, &'static str), Resource> {
    let mut resources: HashMap<_, Resource> = HashMap::new();
    for entry in entries {
        let Some(place) = Place::of(entry.path) else { continue };
        let resource = resources.entry((place.base, place.resource)).or_insert(Resource {
            kind: entry.kind,
            namespaced: false,
        });
        if place.subresource.is_none() {
            resource.kind = entry.kind;
        }
        resource.namespaced |= place.namespaced;
    }
    resources
}

/// The parts of a path.
struct Place {
    /// `api/v1`
    base: &'static str,
    group: &'static str,
    version: &'static str,
    namespaced: bool,
    resource: &'static str,
    named: bool,
    subresource: Option<&'static str>,
    /// Ends in `{path}`.
    tail: bool,
}

impl Place {
    fn of(path: &'static str) -> Option<Place> {
        let path = path.strip_prefix('/')?;
        let segments: Vec<&'static str> = path.split('/').collect();
        let (group, version, base_segments) = match segments.as_slice() {
            ["api", version, ..] => ("", *version, 2),
            ["apis", group, version, ..] => (*group, *version, 3),
            _ => return None,
        };
        let length = segments[..base_segments]
            .iter()
            .map(|segment| segment.len() + 1)
            .sum::<usize>()
            - 1;
        let mut rest = &segments[base_segments..];
        let namespaced = rest.len() > 2 && rest.starts_with(&["namespaces", "{namespace}"]);
        if namespaced {
            rest = &rest[2..];
        }
        Some(Place {
            base: &path[..length],
            group,
            version,
            namespaced,
            resource: rest.first()?,
            named: rest.get(1) == Some(&"{name}"),
            subresource: rest.get(2).copied(),
            tail: rest.last() == Some(&"{path}"),
        })
    }
}

fn has(entry: &PathEntry<'_>, action: &str) -> bool {
    ACTIONS
        .iter()
        .position(|known| *known == action)
        .is_some_and(|bit| entry.actions & (1 << bit) != 0)
}

fn path(entry: &PathEntry<'static>, place: &Place, resource: &Resource, path: String, watch: bool) -> Path {
    let mut operations = Vec::new();
    if watch {
        let action = if place.named { "watch" } else { "watchlist" };
        operations.push(operation(entry, place, resource, action, "GET"));
    } else {
        for action in ACTIONS
            .into_iter()
            .filter(|action| *action != "watch" && has(entry, action))
        {
            if action == "connect" {
                for (bit, method) in METHODS.into_iter().enumerate() {
                    if entry.methods & (1 << bit) != 0 {
                        operations.push(operation(entry, place, resource, action, method));
                    }
                }
            } else {
                operations.push(operation(entry, place, resource, action, method(action)));
            }
        }
    }
    operations.sort_by_key(|operation| operation.method);
    let mut names = Vec::new();
    if place.named {
        names.push("name");
    }
    if place.namespaced {
        names.push("namespace");
    }
    if place.tail {
        names.push("path");
    }
    let pretty = operations.iter().all(|operation| operation.action != "connect");
    Path {
        template: path,
        names,
        pretty,
        kind: entry.kind,
        operations,
    }
}

fn method(action: &str) -> &'static str {
    match action {
        "post" => "POST",
        "put" => "PUT",
        "patch" => "PATCH",
        "delete" | "deletecollection" => "DELETE",
        _ => "GET",
    }
}

fn operation(
    entry: &PathEntry<'static>,
    place: &Place,
    resource: &Resource,
    action: &'static str,
    method: &'static str,
) -> Operation {
    let (kind, subresource) = (entry.kind, place.subresource.unwrap_or_default());
    let of = || Schema::of(entry.group, entry.version, kind);
    let meta = |name: &str| Schema::named(&format!("{META}.{name}"));
    let options = || meta("DeleteOptions").map(|schema| (schema, false, ANYTHING));
    let answer = match action {
        "list" => Schema::of(entry.group, entry.version, &format!("{kind}List")),
        "delete" | "deletecollection" => meta("Status"),
        "watch" | "watchlist" => meta("WatchEvent"),
        "connect" => None,
        _ if subresource == "log" => None,
        _ => of(),
    };
    let body = match action {
        "post" | "put" => of().map(|schema| (schema, true, ANYTHING)),
        "patch" => Schema::named(PATCH).map(|schema| (schema, true, PATCHES)),
        "delete" | "deletecollection" => options(),
        _ => None,
    };
    let query: &[&str] = match (action, kind) {
        ("list" | "watch" | "watchlist", _) => LIST_PARAMETERS,
        ("post" | "put", _) => WRITE_PARAMETERS,
        ("patch", _) => PATCH_PARAMETERS,
        ("delete", _) => DELETE_PARAMETERS,
        ("deletecollection", _) => DELETE_COLLECTION_PARAMETERS,
        ("connect", "PodExecOptions") => &["command", "container", "stderr", "stdin", "stdout", "tty"],
        ("connect", "PodAttachOptions") => &["container", "stderr", "stdin", "stdout", "tty"],
        ("connect", "PodPortForwardOptions") => &["ports"],
        ("connect", _) => &["path"],
        _ if subresource == "log" => LOG_PARAMETERS,
        _ => &[],
    };
    Operation {
        method: lower(method),
        action,
        id: identifier(place, resource, action, method),
        description: describe(action, resource.kind, subresource, lower(method)),
        tag: format!("{}_{}", tag(place.group), place.version),
        kind: Some((entry.group, entry.version, kind)),
        query,
        body,
        answer: answer.map_or(Answer::Text, Answer::Schema),
        produces: match action {
            "list" | "watch" | "watchlist" => STREAMS,
            "connect" => ANYTHING,
            _ if subresource == "log" => LOGS,
            _ => OBJECTS,
        },
        codes: match action {
            "post" => &["200", "201", "202"],
            "put" | "patch" => &["200", "201"],
            "delete" => &["200", "202"],
            _ => &["200"],
        },
    }
}

fn lower(method: &'static str) -> &'static str {
    match method {
        "DELETE" => "delete",
        "HEAD" => "head",
        "OPTIONS" => "options",
        "PATCH" => "patch",
        "POST" => "post",
        "PUT" => "put",
        _ => "get",
    }
}

/// `readCoreV1NamespacedPodStatus`
fn identifier(place: &Place, resource: &Resource, action: &str, method: &'static str) -> String {
    let mut id = String::from(match action {
        "get" => "read",
        "post" => "create",
        "put" => "replace",
        "deletecollection" => "delete",
        "watchlist" => "watch",
        other => other,
    });
    id += &group_title(place.group);
    id += &capital(place.version);
    if action == "connect" {
        id += &capital(lower(method));
    }
    if action == "deletecollection" {
        id += "Collection";
    }
    if place.namespaced {
        id += "Namespaced";
    }
    id += resource.kind;
    if action == "watchlist" {
        id += "List";
    }
    id += &capital(place.subresource.unwrap_or_default());
    if resource.namespaced && !place.namespaced {
        id += "ForAllNamespaces";
    }
    if place.tail {
        id += "WithPath";
    }
    id
}

fn describe(action: &str, kind: &str, subresource: &str, method: &str) -> String {
    let of = if subresource.is_empty() {
        String::new()
    } else {
        format!("{subresource} of ")
    };
    match action {
        "list" => format!("List or watch objects of kind {kind}."),
        "get" => format!("Read {of}one {kind}."),
        "post" => format!("Create {of}a {kind}."),
        "put" => format!("Replace {of}one {kind}."),
        "patch" => format!("Change parts of {of}one {kind}."),
        "delete" => format!("Delete one {kind}."),
        "deletecollection" => format!("Delete the objects of kind {kind} that are selected."),
        "watch" => format!("Watch one {kind}. Deprecated: list with watch and a field selector instead."),
        "watchlist" => format!("Watch objects of kind {kind}. Deprecated: list with watch instead."),
        _ => format!("Connect {} requests to {of}one {kind}.", method.to_uppercase()),
    }
}

/// `apps` → `Apps`, `rbac.authorization.k8s.io` → `RbacAuthorization`
fn group_title(group: &str) -> String {
    match group {
        "" => "Core".to_owned(),
        group => group
            .strip_suffix(".k8s.io")
            .unwrap_or(group)
            .split('.')
            .map(capital)
            .collect(),
    }
}

fn tag(group: &str) -> String {
    let title = group_title(group);
    title[..1].to_lowercase() + &title[1..]
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

type Discovery = (String, String, String, String, Option<Schema<'static>>);

/// What answers discovery: document, operation id, description, tag, schema of the answer.
fn discovery<'d>(documents: impl Iterator<Item = &'d str>) -> Vec<Discovery> {
    let meta = |name: &str| Schema::named(&format!("{META}.{name}"));
    let mut found: Vec<Discovery> = Vec::new();
    for document in documents {
        let (group, version) = match document.split('/').collect::<Vec<_>>().as_slice() {
            ["api", version] => ("", (*version).to_owned()),
            ["apis", group, version] => (*group, (*version).to_owned()),
            _ => continue,
        };
        let title = group_title(group);
        found.push((
            document.to_owned(),
            format!("get{title}{}APIResources", capital(&version)),
            "List the resources of this version.".to_owned(),
            format!("{}_{version}", tag(group)),
            meta("APIResourceList"),
        ));
        let key = format!("apis/{group}");
        if !group.is_empty() && found.iter().all(|(known, ..)| *known != key) {
            let id = format!("get{title}APIGroup");
            found.push((
                key,
                id,
                "Describe this API group.".to_owned(),
                tag(group),
                meta("APIGroup"),
            ));
        }
    }
    let info = Schema::named("io.k8s.apimachinery.pkg.version.Info");
    for (key, id, description, tag, schema) in [
        (
            "api",
            "getCoreAPIVersions",
            "List the versions of the legacy group.",
            "core",
            meta("APIVersions"),
        ),
        (
            "apis",
            "getAPIVersions",
            "List the API groups.",
            "apis",
            meta("APIGroupList"),
        ),
        (
            "version",
            "getCodeVersion",
            "Say which version this server is.",
            "version",
            info,
        ),
        (
            ".well-known/openid-configuration",
            "getServiceAccountIssuerOpenIDConfiguration",
            "Where the keys of the issuer of service account tokens are.",
            "WellKnown",
            None,
        ),
        (
            "openid/v1/jwks",
            "getServiceAccountIssuerOpenIDKeyset",
            "The keys of the issuer of service account tokens.",
            "openid",
            None,
        ),
    ] {
        found.push((
            key.to_owned(),
            id.to_owned(),
            description.to_owned(),
            tag.to_owned(),
            schema,
        ));
    }
    found
}
