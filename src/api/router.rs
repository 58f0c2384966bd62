//! From an HTTP request to the handler that answers it: who asks, what the path names, whether the method fits.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use hyper::body::Incoming;

use super::body::{Body, Response};
use super::fairness::{Entrant, Gated};
use super::negotiate::{self, Format, Transforms};
use super::path::{self, Route, Target};
use super::peer::Peer;
use super::request::{Query, RequestInfo, Verb};
use super::status::Status;
use super::stream::Guarded;
use super::{
    Api, aggregation, audited, authenticate, authorize, backup, compact, conversion, discovery, health, impersonate,
    openapi, openid, protobuf, proxy, read, version, write, yaml,
};
use crate::auth::User;
use crate::resources::Resource;
use crate::schema::Schema;

/// Answers one request. Never fails: every error is a Status.
pub(super) async fn answer(
    api: Arc<Api>,
    peer: Arc<Peer>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Guarded>, Infallible> {
    let open = peer.begin();
    let response = route(&api, &peer, request).await.unwrap_or_else(Status::into_response);
    let (head, body) = response.into_parts();
    Ok(http::Response::from_parts(
        head,
        Guarded::new(body, open, &api.reader.notice),
    ))
}

async fn route(api: &Arc<Api>, peer: &Arc<Peer>, request: http::Request<Incoming>) -> Result<Response, Status> {
    let (mut head, body) = request.into_parts();
    let user = match authenticate::caller(api, peer, head.uri.path(), &mut head.headers).await {
        Ok(user) => user,
        // Saying no takes time, too.
        Err(status) => {
            let entrant = Entrant::other(api.authenticator.anonymous());
            let refused = Gated::new(&api.fairness, entrant, ready(Err(status))).await;
            return match (&api.audit, refused) {
                (Some(audit), Err(status)) => Ok(Box::pin(audited::refused(api, audit, peer, &head, status)).await),
                (_, refused) => refused,
            };
        }
    };
    match &api.audit {
        Some(audit) => Box::pin(audited::answer(api, audit, peer, user, head, body)).await,
        None => admitted(api, peer, user, head, body).await,
    }
}

/// Answers a request of which is known who asks.
pub(super) async fn admitted(
    api: &Arc<Api>,
    peer: &Arc<Peer>,
    user: Arc<User>,
    mut head: http::request::Parts,
    body: Incoming,
) -> Result<Response, Status> {
    let user = match impersonate::caller(api, user.clone(), &mut head.headers) {
        Ok(counted) => {
            if let Some(recording) = audited::of(api, &head)
                && !Arc::ptr_eq(&counted, &user)
            {
                recording.impersonated(&counted);
            }
            counted
        }
        Err(status) => return Gated::new(&api.fairness, Entrant::other(&user), ready(Err(status))).await,
    };
    let route = path::route(&api.custom, head.uri.path());
    if let Err(status) = authorize::check(api, &user, &head, &route) {
        return Gated::new(&api.fairness, Entrant::other(&user), ready(Err(status))).await;
    }
    if let Some(remote) = api.aggregation.find(head.uri.path()) {
        return Box::pin(aggregation::answer(api, peer, user, &remote, head, body)).await;
    }
    match route {
        Route::Health(which, check) => Ok(health::answer(
            api,
            which,
            check.as_deref(),
            head.uri.query().unwrap_or(""),
        )),
        Route::Resource(target) => resource(api, peer, user, target, head, body).await,
        route => {
            let work = other(api, &user, route, head);
            Gated::new(&api.fairness, Entrant::other(&user), work).await
        }
    }
}

/// Answers requests for what is no resource, and those of callers without credentials.
async fn other(api: &Arc<Api>, user: &User, route: Route, head: http::request::Parts) -> Result<Response, Status> {
    let path = head.uri.path();
    let accept = text(&head.headers, &header::ACCEPT);
    let get = || {
        if head.method == Method::GET {
            Ok(())
        } else {
            Err(Status::method_not_allowed())
        }
    };
    match route {
        Route::Version => get().map(|()| version::answer()),
        Route::Backup => get().and_then(|()| backup::answer(api, user)),
        Route::Compact if head.method == Method::POST => {
            let query = Query::new(head.uri.query().unwrap_or(""));
            Box::pin(compact::answer(api, user, &query)).await
        }
        Route::Compact => Err(Status::method_not_allowed()),
        Route::KeySet => get().map(|()| openid::key_set(api)),
        Route::OpenIdConfiguration => get().map(|()| openid::configuration(api)),
        Route::Metrics => get().map(|()| api.metrics.answer(api)),
        Route::Root => get().map(|()| discovery::root(api)),
        Route::Versions => {
            get()?;
            discovery::versions(accept, &head.headers)
        }
        // Upstream answers every method here.
        Route::Groups if api.aggregation.is_empty() => discovery::groups(api, accept, &head.headers),
        Route::Groups => {
            let own = discovery::groups(api, accept, &HeaderMap::new())?;
            Ok(Box::pin(aggregation::groups(&api.aggregation, own, &head.headers)).await)
        }
        Route::Group(group) => get().and_then(|()| discovery::group(api, &group, accept)),
        Route::GroupVersion(group, version) => get().and_then(|()| discovery::resources(api, &group, &version, accept)),
        Route::OpenApiV3 if !api.aggregation.is_empty() => {
            get()?;
            let own = Box::pin(openapi::answer(api, route, head.headers)).await?;
            Ok(Box::pin(aggregation::openapi_index(&api.aggregation, own)).await)
        }
        Route::OpenApiV2 | Route::OpenApiV3 | Route::OpenApiV3Document(_) => {
            get()?;
            Box::pin(openapi::answer(api, route, head.headers)).await
        }
        Route::NotFound if api.aggregation.has_group(path) => {
            get()?;
            Ok(aggregation::group(&api.aggregation, path).unwrap_or_else(not_found))
        }
        // The first two were answered before.
        Route::Resource(_) | Route::Health(..) | Route::NoResource => Err(Status::no_resource()),
        Route::NotFound => Ok(not_found()),
    }
}

/// 404 in plain text, for paths outside of the API.
pub(super) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n".into())
}

/// A plain-text answer.
pub(super) fn plain(status: StatusCode, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = http::Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

async fn resource(
    api: &Arc<Api>,
    peer: &Arc<Peer>,
    user: Arc<User>,
    target: Target,
    head: http::request::Parts,
    body: Incoming,
) -> Result<Response, Status> {
    if proxy::is_elsewhere(&target) {
        return Box::pin(proxy::answer(api, peer, user, target, head, body)).await;
    }
    let begun = Instant::now();
    let query = Query::new(head.uri.query().unwrap_or(""));
    let verb = verb(&target, &head.method, &query)?;
    let accept = text(&head.headers, &header::ACCEPT);
    let encoding = text(&head.headers, &header::ACCEPT_ENCODING);
    let transforms = if target.resource.is_review() {
        Transforms::None
    } else {
        Transforms::Objects
    };
    let answer = negotiate::negotiate(accept, encoding, transforms, || {
        let resource = &target.resource;
        resource.custom.is_none() && Schema::of(&resource.group, &resource.version, &resource.kind).is_some()
    })?;
    let info = RequestInfo {
        verb,
        resource: target.resource,
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
        query,
        answer,
        user,
        peer: peer.address,
        audit: audited::of(api, &head).cloned(),
        headers: head.headers,
    };
    let _in_flight = api.metrics.begin(verb);
    let result = Gated::new(&api.fairness, Entrant::of(&info), handle(api, &info, body)).await;
    let mut response = result.unwrap_or_else(Status::into_response);
    if let Some(warning) = deprecation(&info.resource) {
        response.headers_mut().append(header::WARNING, warning);
    }
    api.metrics.request(&info, response.status(), begun);
    if let Some(recording) = &info.audit {
        response = recording.noted(response);
    }
    match answer.format {
        Format::Json => Ok(response),
        Format::Yaml => Box::pin(yaml::answer(response)).await,
        Format::Protobuf => Box::pin(protobuf::answer(response)).await,
    }
}

/// The Warning that every answer about a deprecated resource carries.
fn deprecation(resource: &Resource) -> Option<HeaderValue> {
    if resource.deprecation.is_empty() {
        return None;
    }
    HeaderValue::from_str(&format!("299 - {}", super::read::quoted(&resource.deprecation))).ok()
}

/// The verb of a request for a resource.
///
/// # Errors
/// 405 when the resource, or the subresource, does not have it.
pub(super) fn verb(target: &Target, method: &Method, query: &Query) -> Result<Verb, Status> {
    let named = target.name.is_some();
    let is_proxied = target.subresource.as_ref().is_some_and(|sub| sub.name == "proxy");
    let verb = match *method {
        Method::HEAD | Method::OPTIONS if is_proxied => Verb::Get,
        Method::GET if target.watch => Verb::Watch,
        Method::GET if named => Verb::Get,
        Method::GET if query.flag("watch") => Verb::Watch,
        Method::GET => Verb::List,
        Method::POST if !named || target.subresource.is_some() => Verb::Create,
        Method::PUT if named => Verb::Update,
        Method::PATCH if named => Verb::Patch,
        Method::DELETE if named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => return Err(Status::method_not_allowed()),
    };
    let verbs = target
        .subresource
        .as_ref()
        .map_or(target.resource.verbs, |sub| sub.verbs);
    // Objects in namespaces are written below their namespace.
    let unscoped = target.resource.namespaced
        && target.namespace.is_none()
        && matches!(verb, Verb::Create | Verb::DeleteCollection);
    if target.watch && verb != Verb::Watch || unscoped || !verbs.contains(&verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    Ok(verb)
}

async fn handle(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    match info.verb {
        Verb::Watch if info.answer.format == Format::Yaml => Err(Status::not_acceptable(
            "only the following media types are accepted: application/json;stream=watch, \
             application/vnd.kubernetes.protobuf;stream=watch",
        )),
        _ if conversion::is_needed(&info.resource) => Box::pin(handle_converted(api, info, body)).await,
        Verb::Get | Verb::List | Verb::Watch => read(api, info).await,
        // A request's future is moved into its connection's: the large and rare ones are kept out of it.
        _ => Box::pin(write::answer(api, info, body)).await,
    }
}

/// A request about objects that a webhook converts.
async fn handle_converted(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    let converting = conversion::begin(info)?;
    let response = match info.verb {
        Verb::Get | Verb::List | Verb::Watch => read(api, &converting.asked).await?,
        _ => write::answer(api, &converting.asked, body).await?,
    };
    conversion::answer(api, info, converting, response).await
}

async fn read(api: &Arc<Api>, info: &RequestInfo) -> Result<Response, Status> {
    match (info.verb, info.subresource_name()) {
        (Verb::Get, "") => read::get(&api.reader, info).await,
        (Verb::Get, "scale") => Box::pin(write::get_scale(api, info)).await,
        // `status` and the like show the object itself; the kind of `log` is told as Pod, but it is none.
        (Verb::Get, sub)
            if sub != "log"
                && info
                    .subresource
                    .as_ref()
                    .is_some_and(|sub| sub.kind == info.resource.kind) =>
        {
            read::get(&api.reader, info).await
        }
        (Verb::List, _) => read::list(&api.reader, info).await,
        (Verb::Watch, _) => Box::pin(read::watch(&api.reader, info)).await,
        _ => Err(Status::method_not_allowed()),
    }
}
