//! The OpenAPI documents, as `kubectl` reads them to validate and explain.

mod custom;
mod downgrade;
mod pattern;

pub(super) use custom::WholeCache;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::Api;
use super::body::{Body, Response};
use super::discovery::match_etag;
use super::negotiate::{clauses, not_acceptable};
use super::path::Route;
use super::router::{json, plain};
use super::status::Status;
use crate::schema::openapi::{self, Document};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers one of the OpenAPI paths. A document is rendered at its first request and inflated for clients that do not
/// take gzip: too long for a thread that serves others.
pub(super) async fn answer(api: &Arc<Api>, route: Route, headers: HeaderMap) -> Result<Response, Status> {
    let api = api.clone();
    let render = move || match route {
        Route::OpenApiV2 => v2(
            &api,
            headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()),
            &headers,
        ),
        Route::OpenApiV3Document(document) => Ok(v3(&api, &document, &headers)),
        _ => Ok(plain(StatusCode::OK, custom::whole_index(&api).into())),
    };
    tokio::task::spawn_blocking(render).await.map_err(Status::internal)?
}

/// `/openapi/v2`, as JSON or in the protobuf form that kubectl asks for.
fn v2(api: &Api, accept: Option<&str>, headers: &HeaderMap) -> Result<Response, Status> {
    // Both spellings of the protobuf type are in use (`v2@v1.0` came first and is not a valid media type).
    let subtypes = [
        "com.github.proto-openapi.spec.v2.v1.0+protobuf",
        "com.github.proto-openapi.spec.v2@v1.0+protobuf",
    ];
    let Some(accept) = accept else {
        return Ok(document(&custom::whole_json(api), "application/json", headers));
    };
    for clause in clauses(accept) {
        if clause.takes("application", "json") {
            return Ok(document(&custom::whole_json(api), "application/json", headers));
        }
        if clause.kind == "application" && subtypes.contains(&clause.sub) {
            return Ok(document(&custom::whole_protobuf(api), PROTOBUF, headers));
        }
    }
    Err(not_acceptable())
}

/// `/openapi/v3/PATH`. An unknown document is a bare 404, as upstream.
fn v3(api: &Api, path: &str, headers: &HeaderMap) -> Response {
    openapi::v3(path).or_else(|| custom::document(api, path)).map_or_else(
        || {
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        },
        |found| document(&found, "application/json", headers),
    )
}

fn document(document: &Document, media_type: &'static str, headers: &HeaderMap) -> Response {
    let etag = format!("\"{}\"", document.hash);
    let mut response = match_etag(&etag, headers).unwrap_or_else(|| {
        let gzip = headers
            .get(header::ACCEPT_ENCODING)
            .and_then(|value| value.to_str().ok())
            .is_some_and(super::negotiate::takes_gzip);
        let body: Bytes = if gzip { document.gzip.clone() } else { document.plain() };
        let mut response = json(StatusCode::OK, body);
        let sent = response.headers_mut();
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        if gzip {
            sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    });
    let sent = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        sent.insert(header::ETAG, etag);
    }
    sent.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    sent.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
