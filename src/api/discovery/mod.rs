//! Discovery: which groups, versions and resources are served; the legacy documents and the aggregated one.
//!
//! Every document is made when it is first asked for and sent from memory from then on, until the custom resources that are
//! served change.

mod aggregated;
mod legacy;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::Api;
use super::body::{Body, Response};
use super::negotiate::{Clause, clauses, not_acceptable};
use super::router::json;
use super::status::Status;
use crate::resources::custom::{Registry, Served, VERBS_ENDING};
use crate::resources::{self, Resource, ResourceRef};

/// What is known about one state of the custom resources.
#[derive(Debug, Default)]
struct Documents {
    /// Number of that state.
    number: u64,
    groups: Vec<Group>,
    root: OnceLock<Document>,
    legacy: OnceLock<Document>,
    aggregated: [OnceLock<Document>; 2],
}

/// The documents of one server.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    documents: ArcSwapOption<Documents>,
}

impl Discovery {
    /// Those of what is served now.
    fn documents(&self, custom: &Registry) -> Arc<Documents> {
        let served = custom.served();
        if let Some(known) = self.documents.load_full().filter(|known| known.number == served.number) {
            return known;
        }
        let anew = Arc::new(Documents {
            number: served.number,
            groups: groups_in_order(&served),
            ..Documents::default()
        });
        self.documents.store(Some(anew.clone()));
        anew
    }
}

/// A document that is made once.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) body: Bytes,
    pub(super) etag: String,
}

impl Document {
    pub(super) fn new(body: Vec<u8>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, &body);
        let mut etag = String::from("\"");
        for byte in digest.as_ref() {
            use std::fmt::Write as _;
            let _ = write!(etag, "{byte:02X}");
        }
        etag.push('"');
        Self {
            body: body.into(),
            etag,
        }
    }
}

/// A version with its resources.
type Version = (String, Vec<ResourceRef>);
/// A group with its versions.
type Group = (String, Vec<Version>);

/// Groups in discovery order with their resources by version; the preferred version comes first. The core group is not
/// among them. Groups of custom resources come behind the others, by name.
fn groups_in_order(custom: &Served) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for resource in resources::all().iter().filter(|resource| !resource.group.is_empty()) {
        let group = find_or_push(&mut groups, &resource.group);
        let version = find_or_push(group, &resource.version);
        version.push(resource.into());
    }
    for (name, versions) in custom.groups() {
        for (version, resources) in versions {
            // A version that is built in is served as it is.
            let built_in = resources::all()
                .iter()
                .any(|it| it.group == name && it.version == *version);
            if !built_in {
                let group = find_or_push(&mut groups, name);
                find_or_push(group, version).extend(resources.values().cloned());
            }
        }
    }
    groups
}

fn find_or_push<'a, T: Default>(list: &'a mut Vec<(String, T)>, name: &str) -> &'a mut T {
    let place = list.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
        list.push((name.to_owned(), T::default()));
        list.len() - 1
    });
    &mut list[place].1
}

/// Which discovery format an `Accept` header asks for.
enum Wanted {
    Legacy,
    Aggregated(aggregated::Version),
}

fn wanted(accept: Option<&str>) -> Result<Wanted, Status> {
    let Some(accept) = accept else {
        return Ok(Wanted::Legacy);
    };
    for clause in clauses(accept) {
        if !clause.takes("application", "json") {
            continue;
        }
        match (clause.parameter("as"), clause.parameter("g")) {
            ("", _) => return Ok(Wanted::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io") => match clause.parameter("v") {
                "v2" => return Ok(Wanted::Aggregated(aggregated::Version::V2)),
                "v2beta1" => return Ok(Wanted::Aggregated(aggregated::Version::V2Beta1)),
                _ => {}
            },
            _ => {}
        }
    }
    // YAML and protobuf clients of these documents do not exist; a Table of them neither.
    if clauses(accept).iter().any(|clause| is_object(clause)) {
        Ok(Wanted::Legacy)
    } else {
        Err(not_acceptable())
    }
}

fn is_object(clause: &Clause<'_>) -> bool {
    clause.takes("application", "json") || clause.takes("application", "yaml")
}

/// `GET /`: the paths that are served.
pub(super) fn root(api: &Api) -> Response {
    let documents = api.discovery.documents(&api.custom);
    json(StatusCode::OK, legacy::root(&documents).body.clone())
}

/// `GET /api`.
pub(super) fn versions(accept: Option<&str>, headers: &HeaderMap) -> Result<Response, Status> {
    match wanted(accept)? {
        Wanted::Legacy => Ok(json(StatusCode::OK, legacy::versions().body.clone())),
        Wanted::Aggregated(version) => Ok(aggregated_answer(aggregated::core(version), version, headers)),
    }
}

/// `GET /apis`.
pub(super) fn groups(api: &Api, accept: Option<&str>, headers: &HeaderMap) -> Result<Response, Status> {
    let wanted = wanted(accept)?;
    let documents = api.discovery.documents(&api.custom);
    match wanted {
        Wanted::Legacy => Ok(json(StatusCode::OK, legacy::groups(&documents).body.clone())),
        Wanted::Aggregated(version) => {
            let document = aggregated::named(&documents, version);
            Ok(aggregated_answer(document, version, headers))
        }
    }
}

/// `GET /apis/GROUP`.
pub(super) fn group(api: &Api, group: &str, accept: Option<&str>) -> Result<Response, Status> {
    wanted(accept)?;
    let documents = api.discovery.documents(&api.custom);
    Ok(json(StatusCode::OK, legacy::group(&documents, group)))
}

/// `GET /api/v1`, `GET /apis/GROUP/VERSION`.
pub(super) fn resources(api: &Api, group: &str, version: &str, accept: Option<&str>) -> Result<Response, Status> {
    wanted(accept)?;
    let custom = api.custom.served();
    Ok(json(StatusCode::OK, legacy::resources(&custom, group, version)))
}

/// The verbs that are told: nothing is created or changed of a resource whose definition is being deleted.
fn verbs(resource: &Resource) -> &'static [&'static str] {
    match &resource.custom {
        Some(custom) if custom.terminating => VERBS_ENDING,
        _ => resource.verbs,
    }
}

fn aggregated_answer(document: &Document, version: aggregated::Version, headers: &HeaderMap) -> Response {
    let mut response = match_etag(&document.etag, headers).unwrap_or_else(|| {
        let mut response = json(StatusCode::OK, document.body.clone());
        let media_type = HeaderValue::from_static(version.media_type());
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response
    });
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// 304 when `If-None-Match` names `etag` (which bears its quotes).
pub(super) fn match_etag(etag: &str, headers: &HeaderMap) -> Option<Response> {
    let asked = headers.get(header::IF_NONE_MATCH)?.to_str().ok()?;
    if !asked.split(',').any(|one| one.trim().trim_start_matches("W/") == etag) {
        return None;
    }
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    Some(response)
}
