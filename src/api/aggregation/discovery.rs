//! What aggregated servers serve, in this server's discovery documents. Spliced into the finished documents: there are few of
//! them, and seldom any.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};

use super::{Aggregation, Remote};
use crate::api::body::{Body, Response};
use crate::api::discovery::{Document, match_etag};
use crate::api::router::json;

/// Resources of one version that are taken note of.
const RESOURCES_MAX: usize = 4096;

/// What a server says of a version: its APIResourceList.
#[derive(Deserialize)]
struct List {
    #[serde(default)]
    resources: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    resource: String,
    response_kind: Kind,
    scope: &'static str,
    singular_resource: String,
    verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<ToldBelow>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldBelow {
    subresource: String,
    response_kind: Kind,
    verbs: Vec<String>,
}

#[derive(Serialize)]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

/// What is known of a version that another server serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its `resources` in aggregated discovery, as JSON.
    resources: String,
    /// Where its OpenAPI document is, with its hash, if it has one.
    pub(super) openapi: Option<String>,
}

impl Known {
    /// Of a server's APIResourceList.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn read(list: &[u8], group: &str, version: &str) -> Result<Self, String> {
        let list: List =
            serde_json::from_slice(list).map_err(|error| format!("its APIResourceList cannot be read: {error}"))?;
        let mut told: Vec<Told> = Vec::new();
        let mut below: BTreeMap<String, Vec<ToldBelow>> = BTreeMap::new();
        for listed in list.resources.into_iter().take(RESOURCES_MAX) {
            let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
            let response_kind = Kind {
                group: or(listed.group, group),
                version: or(listed.version, version),
                kind: listed.kind,
            };
            if let Some((resource, sub)) = listed.name.split_once('/') {
                below.entry(resource.to_owned()).or_default().push(ToldBelow {
                    subresource: sub.to_owned(),
                    response_kind,
                    verbs: listed.verbs,
                });
            } else {
                told.push(Told {
                    resource: listed.name,
                    response_kind,
                    scope: if listed.namespaced { "Namespaced" } else { "Cluster" },
                    singular_resource: listed.singular_name,
                    verbs: listed.verbs,
                    short_names: listed.short_names,
                    categories: listed.categories,
                    subresources: Vec::new(),
                });
            }
        }
        for resource in &mut told {
            resource.subresources = below.remove(&resource.resource).unwrap_or_default();
        }
        Ok(Self {
            resources: serde_json::to_string(&told).map_err(|error| error.to_string())?,
            openapi: None,
        })
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Groups in the order of their priorities, each with its versions in the order of theirs.
fn in_order(remotes: &[Arc<Remote>]) -> Vec<(&str, Vec<&Remote>)> {
    let mut groups: Vec<(&str, Vec<&Remote>)> = Vec::new();
    for remote in remotes {
        match groups.iter_mut().find(|(group, _)| *group == remote.group) {
            Some((_, versions)) => versions.push(remote),
            None => groups.push((&remote.group, vec![remote])),
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by(|one, other| {
            other
                .priorities
                .1
                .cmp(&one.priorities.1)
                .then(one.version.cmp(&other.version))
        });
    }
    let priority = |versions: &[&Remote]| versions.iter().map(|remote| remote.priorities.0).max();
    groups.sort_by(|(one, of_one), (other, of_other)| priority(of_other).cmp(&priority(of_one)).then(one.cmp(other)));
    groups
}

/// A version in the aggregated document.
fn aggregated_version(remote: &Remote) -> String {
    let resources = match &remote.known {
        Some(known) if known.resources != "[]" => format!("\"resources\":{},", known.resources),
        _ => String::new(),
    };
    let is_current = remote.is_available && remote.known.is_some();
    let freshness = if is_current { "Current" } else { "Stale" };
    format!(
        "{{\"version\":{},{resources}\"freshness\":\"{freshness}\"}}",
        quoted(&remote.version)
    )
}

/// A group in a legacy document, without the brace at its beginning.
fn legacy_group(group: &str, versions: &[&Remote]) -> String {
    let told = |remote: &Remote| {
        let whole = format!("{group}/{}", remote.version);
        format!(
            "{{\"groupVersion\":{},\"version\":{}}}",
            quoted(&whole),
            quoted(&remote.version)
        )
    };
    let all: Vec<String> = versions.iter().map(|remote| told(remote)).collect();
    format!(
        "\"name\":{},\"versions\":[{}],\"preferredVersion\":{}}}",
        quoted(group),
        all.join(","),
        all.first().map_or("{}", String::as_str)
    )
}

/// `document` with `items` at the end of its list.
fn append(document: &[u8], items: &str) -> Option<Vec<u8>> {
    let end = b"]}\n";
    let start = document.strip_suffix(end)?;
    let comma: &[u8] = if start.ends_with(b"[") || items.is_empty() {
        b""
    } else {
        b","
    };
    Some([start, comma, items.as_bytes(), end].concat())
}

/// The whole of a body that is there already.
async fn whole(body: Body) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    let mut body = body;
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame.ok()?.data_ref()?);
    }
    Some(bytes.freeze())
}

/// `GET /apis`: the answer `own`, which was made without regard to what the client has already, with the groups of other
/// servers. `headers` are the request's.
pub(in crate::api) async fn groups(aggregation: &Aggregation, own: Response, headers: &HeaderMap) -> Response {
    let (mut head, body) = own.into_parts();
    let Some(document) = whole(body).await else {
        return http::Response::from_parts(head, Body::empty());
    };
    let remotes = aggregation.remotes.load_full();
    let is_aggregated = head.headers.contains_key(header::ETAG);
    let mut items = String::new();
    for (group, versions) in in_order(&remotes) {
        if !items.is_empty() {
            items.push(',');
        }
        if is_aggregated {
            let told: Vec<String> = versions.iter().map(|remote| aggregated_version(remote)).collect();
            let _ = write!(
                items,
                "{{\"metadata\":{{\"name\":{}}},\"versions\":[{}]}}",
                quoted(group),
                told.join(",")
            );
        } else {
            let _ = write!(items, "{{{}", legacy_group(group, &versions));
        }
    }
    let Some(merged) = append(&document, &items) else {
        return http::Response::from_parts(head, document.into());
    };
    if !is_aggregated {
        return http::Response::from_parts(head, merged.into());
    }
    let document = Document::new(merged);
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        head.headers.insert(header::ETAG, etag);
    }
    match match_etag(&document.etag, headers) {
        None => http::Response::from_parts(head, document.body.into()),
        Some(mut unchanged) => {
            head.headers.remove(header::CONTENT_TYPE);
            *unchanged.headers_mut() = head.headers;
            unchanged
        }
    }
}

/// `GET /apis/GROUP` for a group that only other servers have; `None` for others.
pub(in crate::api) fn group(aggregation: &Aggregation, path: &str) -> Option<Response> {
    let name = path.trim_matches('/').strip_prefix("apis/")?;
    let remotes = aggregation.remotes.load_full();
    let groups = in_order(&remotes);
    let (group, versions) = groups.iter().find(|(group, _)| *group == name)?;
    let body = format!(
        "{{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",{}\n",
        legacy_group(group, versions)
    );
    Some(json(StatusCode::OK, body.into_bytes()))
}

/// `GET /openapi/v3`: the answer `own` with the documents of other servers.
pub(in crate::api) async fn openapi_index(aggregation: &Aggregation, own: Response) -> Response {
    let (head, body) = own.into_parts();
    let Some(document) = whole(body).await else {
        return http::Response::from_parts(head, Body::empty());
    };
    let mut paths = String::new();
    for remote in aggregation.remotes.load().iter() {
        if let Some(url) = remote.known.as_ref().and_then(|known| known.openapi.as_deref()) {
            let path = format!("apis/{}/{}", remote.group, remote.version);
            let _ = write!(paths, ",{}:{{\"serverRelativeURL\":{}}}", quoted(&path), quoted(url));
        }
    }
    let text = document.trim_ascii_end();
    match text.strip_suffix(b"}}") {
        Some(start) if !paths.is_empty() => {
            let merged = [start, paths.as_bytes(), b"}}", &document[text.len()..]].concat();
            http::Response::from_parts(head, merged.into())
        }
        _ => http::Response::from_parts(head, document.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = br#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[
        {"name":"pods","singularName":"pod","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]},
        {"name":"pods/sub","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]}]}"#;

    fn remote(group: &str, version: &str, priorities: (i64, i64), known: bool) -> Arc<Remote> {
        Arc::new(Remote {
            group: group.into(),
            version: version.into(),
            namespace: "n".into(),
            service: "s".into(),
            port: 443,
            tls: Err(String::new()),
            is_available: known,
            priorities,
            known: known.then(|| Arc::new(Known::read(LIST, group, version).unwrap())),
        })
    }

    async fn told(response: Response) -> String {
        String::from_utf8(whole(response.into_body()).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn groups_of_others_come_behind_this_servers_in_the_order_of_their_priorities() {
        let aggregation = Aggregation::default();
        let remotes = vec![
            remote("b.example", "v1", (100, 10), false),
            remote("a.example", "v1", (200, 10), true),
            remote("a.example", "v2", (100, 20), false),
        ];
        aggregation.remotes.store(Arc::new(remotes));
        let own = json(
            StatusCode::OK,
            "{\"kind\":\"APIGroupList\",\"groups\":[{\"name\":\"apps\"}]}\n",
        );
        let legacy = told(groups(&aggregation, own, &HeaderMap::new()).await).await;
        assert_eq!(
            legacy,
            "{\"kind\":\"APIGroupList\",\"groups\":[{\"name\":\"apps\"},\
             {\"name\":\"a.example\",\"versions\":[{\"groupVersion\":\"a.example/v2\",\"version\":\"v2\"},\
             {\"groupVersion\":\"a.example/v1\",\"version\":\"v1\"}],\
             \"preferredVersion\":{\"groupVersion\":\"a.example/v2\",\"version\":\"v2\"}},\
             {\"name\":\"b.example\",\"versions\":[{\"groupVersion\":\"b.example/v1\",\"version\":\"v1\"}],\
             \"preferredVersion\":{\"groupVersion\":\"b.example/v1\",\"version\":\"v1\"}}]}\n"
        );
        let own = || {
            let mut own = json(StatusCode::OK, "{\"items\":[{}]}\n");
            own.headers_mut()
                .insert(header::ETAG, HeaderValue::from_static("\"own\""));
            own
        };
        let answer = groups(&aggregation, own(), &HeaderMap::new()).await;
        let etag = answer.headers()[header::ETAG].clone();
        let aggregated = told(answer).await;
        let parsed: serde_json::Value = serde_json::from_str(&aggregated).unwrap();
        let versions = &parsed["items"][1]["versions"];
        assert_eq!(versions[0], serde_json::json!({"version": "v2", "freshness": "Stale"}));
        let pods = &versions[1]["resources"][0];
        assert_eq!(
            (&versions[1]["freshness"], &pods["scope"]),
            (&"Current".into(), &"Namespaced".into())
        );
        assert_eq!(pods["responseKind"]["group"], "a.example");
        assert_eq!(pods["subresources"][0]["responseKind"]["kind"], "Scale");
        let mut has = HeaderMap::new();
        has.insert(header::IF_NONE_MATCH, etag);
        assert_eq!(groups(&aggregation, own(), &has).await.status(), 304);
        let one = told(group(&aggregation, "/apis/b.example").unwrap()).await;
        assert!(
            one.starts_with("{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"b.example\","),
            "{one}"
        );
        assert!(group(&aggregation, "/apis/apps").is_none());
    }

    #[test]
    fn what_is_no_list_of_resources_is_refused() {
        for bad in [&b"<html>"[..], b"{\"resources\":[{}]}", b""] {
            assert!(Known::read(bad, "g", "v").is_err());
        }
    }
}
