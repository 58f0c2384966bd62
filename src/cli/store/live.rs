//! Reading a live cluster: any Kubernetes API server, by discovery and lists in pages.

use std::collections::{BTreeMap, HashSet};

use hyper::StatusCode;
use indicatif::ProgressBar;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::Failure;
use crate::cli::client::{Client, RequestError};

/// Objects of one page.
const PAGE_OBJECTS: u32 = 500;
/// Times that a list is begun anew because its pages became too old.
const RESTARTS_MAX: u32 = 5;

/// What is made again by whoever needs it, and is not carried from one cluster to another unless asked for.
const PASSING: [&str; 3] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];

/// What a name may not have in a path.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'%').add(b'/').add(b'?');

/// A resource that a server serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    /// `v1`, `apps/v1`.
    pub(super) api_version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) is_namespaced: bool,
    verbs: Vec<String>,
    /// It has a subresource `status`.
    pub(super) has_status: bool,
}

impl Served {
    /// The plural, and the group behind a dot where there is one.
    pub(super) fn storage_name(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.clone(),
        }
    }

    pub(super) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// The path of a collection. The namespace is one segment of it, whatever it holds.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => {
                let namespace = utf8_percent_encode(namespace, PATH);
                format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
            }
            None => format!("/{root}/{}/{}", self.api_version, self.plural),
        }
    }

    /// The path of an object.
    pub(super) fn object_path(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.path(namespace), utf8_percent_encode(name, PATH))
    }
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    preferred_version: GroupVersion,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// Everything that a server serves, each resource in the version that its group prefers, or in any that has it. Groups that do not
/// answer are left out with a warning.
pub(super) async fn discover(client: &Client, every_version: bool) -> Result<Vec<Served>, Failure> {
    let mut served = Vec::new();
    served.extend(resources_of(client, "/api/v1", "v1").await?);
    let groups: Groups = client.get("/apis").await?;
    for group in groups.groups {
        let mut known: HashSet<String> = HashSet::new();
        let preferred = std::iter::once(&group.preferred_version);
        let others = group
            .versions
            .iter()
            .filter(|version| **version != group.preferred_version);
        for GroupVersion { group_version } in preferred.chain(others) {
            match resources_of(client, &format!("/apis/{group_version}"), group_version).await {
                Ok(found) => {
                    let found = found
                        .into_iter()
                        .filter(|found| every_version || known.insert(found.plural.clone()));
                    served.extend(found);
                }
                Err(error) => eprintln!("warning: {group_version} does not say what it serves: {error}"),
            }
        }
    }
    Ok(served)
}

async fn resources_of(client: &Client, path: &str, api_version: &str) -> Result<Vec<Served>, RequestError> {
    let found: Resources = client.get(path).await?;
    let with_status: HashSet<String> = found
        .resources
        .iter()
        .filter_map(|resource| resource.name.strip_suffix("/status").map(str::to_owned))
        .collect();
    let whole = found
        .resources
        .into_iter()
        .filter(|resource| !resource.name.contains('/'));
    Ok(whole
        .map(|resource| Served {
            api_version: api_version.to_owned(),
            has_status: with_status.contains(&resource.name),
            plural: resource.name,
            kind: resource.kind,
            is_namespaced: resource.namespaced,
            verbs: resource.verbs,
        })
        .collect())
}

/// What of a cluster is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    /// Only this resource: the plural, and the group behind a dot where there is one.
    pub(super) resource: Option<String>,
    /// Only this namespace, and nothing that has none.
    pub(super) namespace: Option<String>,
    /// Events and leases, too.
    pub(super) all: bool,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Reads what is chosen, object by object, each with its `apiVersion` and `kind`. What cannot be listed is passed over with a
/// warning. How many objects of each resource were read. Memory holds a page, and namespaces and names of one resource.
pub(super) async fn read(
    client: &Client,
    choice: &Choice,
    bar: &ProgressBar,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<BTreeMap<String, u64>, Failure> {
    let mut counts = BTreeMap::new();
    let mut is_known = false;
    for served in discover(client, false).await? {
        let name = served.storage_name();
        let is_chosen = match &choice.resource {
            Some(resource) => *resource == name,
            None => choice.all || !PASSING.contains(&&*name),
        };
        is_known |= is_chosen;
        if !is_chosen || !served.can("list") || (choice.namespace.is_some() && !served.is_namespaced) {
            continue;
        }
        bar.set_message(name.clone());
        match read_resource(client, &served, choice.namespace.as_deref(), bar, take).await {
            Ok(0) => {}
            Ok(count) => drop(counts.insert(name, count)),
            Err(Broken::Take(failure)) => return Err(failure),
            Err(Broken::List(error @ RequestError::Unreachable { .. })) => return Err(error.into()),
            Err(Broken::List(error)) => bar.suspend(|| eprintln!("warning: {name} is left out: {error}")),
        }
    }
    if let (Some(resource), false) = (&choice.resource, is_known) {
        return Err(Failure::new(
            crate::cli::Exit::Usage,
            format!("the server has no resource {resource}"),
        )
        .advise("name the plural, and the group behind a dot where there is one: pods, deployments.apps"));
    }
    Ok(counts)
}

enum Broken {
    List(RequestError),
    Take(Failure),
}

async fn read_resource(
    client: &Client,
    served: &Served,
    namespace: Option<&str>,
    bar: &ProgressBar,
    take: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<u64, Broken> {
    let path = served.path(namespace);
    let (mut next, mut restarts) = (String::new(), 0);
    // A list that is begun anew gives again what was taken, and no order of lists is promised: so the keys of every object of this
    // resource are held, from the first page on.
    let mut seen: HashSet<String> = HashSet::new();
    loop {
        let page = format!(
            "{path}?limit={PAGE_OBJECTS}&continue={}",
            utf8_percent_encode(&next, NON_ALPHANUMERIC)
        );
        let page: Page = match client.get_patiently(&page).await {
            Ok(page) => page,
            Err(RequestError::Refused {
                code: StatusCode::GONE, ..
            }) if restarts < RESTARTS_MAX => {
                restarts += 1;
                next.clear();
                continue;
            }
            Err(error) => return Err(Broken::List(error)),
        };
        for mut item in page.items {
            let text = |field: &str| {
                item.get("metadata")
                    .and_then(|metadata| metadata[field].as_str())
                    .unwrap_or("")
            };
            if !seen.insert(format!("{}/{}", text("namespace"), text("name"))) {
                continue;
            }
            item.insert("apiVersion".into(), served.api_version.clone().into());
            item.insert("kind".into(), served.kind.clone().into());
            take(Value::Object(item)).map_err(Broken::Take)?;
            bar.inc(1);
        }
        if page.metadata.next.is_empty() {
            return Ok(seen.len() as u64);
        }
        next = page.metadata.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_segment_of_a_path() {
        let served = Served {
            api_version: "apps/v1".into(),
            plural: "deployments".into(),
            kind: "Deployment".into(),
            is_namespaced: true,
            verbs: Vec::new(),
            has_status: true,
        };
        assert_eq!(
            served.object_path(Some("a/../b?x"), "c#d"),
            "/apis/apps/v1/namespaces/a%2F..%2Fb%3Fx/deployments/c%23d"
        );
    }
}
