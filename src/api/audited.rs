//! Requests that are recorded: what is told of them, and at which of their stages. Nothing of this is paid for by a server without
//! an audit policy.
//!
//! A request is recorded when it is known who asks, and before anything of it is decided: whom it counts for, whether it may be
//! made, what was sent and answered is noted in its [`Recording`], which goes along in the extensions of its head.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::authorize;
use super::body::{Body, BodyError, Response};
use super::path::{self, Route};
use super::peer::Peer;
use super::status::Status;
use super::{Api, router};
use crate::audit::{Audit, Event, LEVELS, Level, Object, Outcome, Person, Stage};
use crate::auth::User;
use crate::auth::authorization::{Attributes, What};
use crate::tree::Value;

/// What tells a client the id of its request.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Of an answer so much is recorded, bytes; of a larger one nothing.
const ANSWER_MAX: usize = 4 * 1024 * 1024;
/// Letters of the name of a client's program, as upstream.
const AGENT_MAX: usize = 1024;
/// Requests that take longer are told how long.
const SLOW: Duration = Duration::from_millis(500);
/// Subresources whose answers have no end yet when they begin.
const LONG: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// Answers a request as `router::admitted` does, and records it.
pub(super) async fn answer(
    api: &Arc<Api>,
    audit: &Arc<Audit>,
    peer: &Arc<Peer>,
    user: Arc<User>,
    mut head: Parts,
    body: Incoming,
) -> Result<Response, Status> {
    let id = id_of(&head.headers);
    let recording = Recording::of(api, audit, peer, Some(&user), &head, &id);
    let Some(recording) = recording else {
        let answer = router::admitted(api, peer, user, head, body).await;
        return Ok(with_id(answer.unwrap_or_else(Status::into_response), id));
    };
    let event = recording.event().clone();
    if recording.has(Stage::RequestReceived) && !audit.record(&event, Stage::RequestReceived).await {
        return Err(Status::internal("failed to store audit event"));
    }
    drop(event);
    if recording.level == Level::RequestResponse {
        // What is answered is told as it is.
        head.headers.remove(header::ACCEPT_ENCODING);
    }
    head.extensions.insert(recording.clone());
    let ending = Ending(recording.clone());
    let answer = router::admitted(api, peer, user, head, body).await;
    let answer = recording.noted(answer.unwrap_or_else(Status::into_response));
    Ok(with_id(ending.answered(answer).await, id))
}

/// Records a request whose credentials are not believed, which `refusal` says.
pub(super) async fn refused(
    api: &Arc<Api>,
    audit: &Arc<Audit>,
    peer: &Arc<Peer>,
    head: &Parts,
    refusal: Status,
) -> Response {
    let id = id_of(&head.headers);
    let response = refusal.into_response();
    if let Some(recording) = Recording::of(api, audit, peer, None, head, &id) {
        let response = recording.noted(response);
        recording.event().user = Person::default();
        let event = recording.event().clone();
        if recording.has(Stage::ResponseStarted) {
            audit.record(&event, Stage::ResponseStarted).await;
        }
        return with_id(response, id);
    }
    with_id(response, id)
}

/// The recording of the request, if it is recorded.
pub(super) fn of<'a>(api: &Api, head: &'a Parts) -> Option<&'a Arc<Recording>> {
    api.audit.as_ref().and_then(|_| head.extensions.get::<Arc<Recording>>())
}

/// The id that a client gave its request, or one of our own.
fn id_of(headers: &HeaderMap) -> HeaderValue {
    let told = headers
        .get(&AUDIT_ID)
        .filter(|id| id.to_str().is_ok_and(|id| !id.is_empty()));
    told.cloned().unwrap_or_else(|| {
        let id = uuid::Uuid::new_v4().to_string();
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("0"))
    })
}

fn with_id(mut response: Response, id: HeaderValue) -> Response {
    response.headers_mut().insert(AUDIT_ID, id);
    response
}

/// What is known of a request that is recorded.
#[derive(Debug)]
pub struct Recording {
    audit: Arc<Audit>,
    level: Level,
    stages: [(Stage, bool); 4],
    omits_managed_fields: bool,
    /// Whether objects hold tokens, which are never told.
    holds_tokens: bool,
    is_long: bool,
    is_noted: AtomicBool,
    is_over: AtomicBool,
    begun: std::time::Instant,
    event: Mutex<Event>,
}

impl Recording {
    /// `None` when the policy wants nothing of the request.
    fn of(
        api: &Api,
        audit: &Arc<Audit>,
        peer: &Peer,
        user: Option<&User>,
        head: &Parts,
        id: &HeaderValue,
    ) -> Option<Arc<Self>> {
        let nobody = User::default();
        let user = user.unwrap_or(&nobody);
        let route = path::route(&api.custom, head.uri.path());
        authorize::asked(head, &route, |verb, what| {
            let extent = audit.policy().extent(&Attributes { user, verb, what });
            metrics::counter!(LEVELS, "level" => extent.level.name()).increment(1);
            if extent.level == Level::None {
                return None;
            }
            let (object, holds_tokens, is_long) = match what {
                What::Path(_) => (None, false, false),
                What::Resource(asked) => {
                    let object = Object {
                        resource: asked.resource.to_owned(),
                        namespace: asked.namespace.to_owned(),
                        name: asked.name.to_owned(),
                        api_group: asked.group.to_owned(),
                        api_version: version_of(&route, head.uri.path()).to_owned(),
                        subresource: asked.subresource.to_owned(),
                        ..Object::default()
                    };
                    let holds_tokens = asked.resource == "tokenreviews"
                        || asked.resource == "serviceaccounts" && asked.subresource == "token";
                    let is_long = verb == "watch" || LONG.contains(&asked.subresource);
                    (Some(object), holds_tokens, is_long)
                }
            };
            let event = Event {
                level: extent.level,
                id: id.to_str().unwrap_or("").to_owned(),
                uri: uri(head),
                verb: verb.to_owned(),
                user: user.into(),
                impersonated: None,
                source_ips: source_ips(&head.headers, peer.address.ip()),
                user_agent: user_agent(&head.headers),
                object,
                status: None,
                sent: None,
                answered: None,
                received: jiff::Timestamp::now(),
                annotations: std::collections::BTreeMap::new(),
            };
            let stages = [
                Stage::RequestReceived,
                Stage::ResponseStarted,
                Stage::ResponseComplete,
                Stage::Panic,
            ];
            Some(Arc::new(Self {
                audit: audit.clone(),
                level: extent.level,
                stages: stages.map(|stage| (stage, extent.records(stage))),
                omits_managed_fields: extent.omits_managed_fields,
                holds_tokens,
                is_long,
                is_noted: AtomicBool::new(false),
                is_over: AtomicBool::new(false),
                begun: std::time::Instant::now(),
                event: Mutex::new(event),
            }))
        })
    }

    fn event(&self) -> MutexGuard<'_, Event> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, stage: Stage) -> bool {
        self.stages.contains(&(stage, true))
    }

    /// Notes something; what was noted first stays.
    pub(super) fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<String>) {
        self.event().annotate(key, value);
    }

    /// [`Recording::annotate`] of several.
    pub(super) fn annotated<K: Into<Cow<'static, str>>>(&self, notes: impl IntoIterator<Item = (K, String)>) {
        let mut event = self.event();
        for (key, value) in notes {
            event.annotate(key, value);
        }
    }

    /// Notes whether the request may be made, and why.
    pub(super) fn decided(&self, is_allowed: bool, reason: impl Into<String>) {
        let mut event = self.event();
        event.annotate(
            "authorization.k8s.io/decision",
            if is_allowed { "allow" } else { "forbid" },
        );
        event.annotate("authorization.k8s.io/reason", reason);
    }

    /// Notes for whom the request counts.
    pub(super) fn impersonated(&self, user: &User) {
        self.event().impersonated = Some(user.into());
    }

    /// Whether objects that are sent are told.
    pub(super) fn tells_requests(&self) -> bool {
        self.level >= Level::Request
    }

    /// Notes an object that was sent: in its place what the path does not say, and itself where that is wanted.
    pub(super) fn sent(&self, object: &Value) {
        let told = self
            .tells_requests()
            .then(|| self.told(object.to_json().as_bytes()))
            .flatten();
        let mut event = self.event();
        if let Some(place) = &mut event.object {
            let metadata = &object["metadata"];
            for (field, name) in [
                (&mut place.namespace, "namespace"),
                (&mut place.name, "name"),
                (&mut place.uid, "uid"),
                (&mut place.resource_version, "resourceVersion"),
            ] {
                if field.is_empty() {
                    metadata[name].as_str().unwrap_or("").clone_into(field);
                }
            }
        }
        event.sent = told;
    }

    /// Notes a patch or the options of a deletion.
    pub(super) fn sent_raw(&self, body: &[u8]) {
        if self.tells_requests() && !body.is_empty() {
            let told = self.told(body).or_else(|| {
                // A patch may be in YAML.
                let text = std::str::from_utf8(body).ok()?;
                let options = crate::schema::yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::LastWins);
                let value: Value = serde_saphyr::from_str_with_options(text, options).ok()?;
                self.told(value.to_json().as_bytes())
            });
            self.event().sent = told;
        }
    }

    /// JSON without what is not told.
    fn told(&self, json: &[u8]) -> Option<Box<RawValue>> {
        if !self.omits_managed_fields && !self.holds_tokens {
            return serde_json::from_slice(json).ok();
        }
        let mut value: serde_json::Value = serde_json::from_slice(json).ok()?;
        if self.omits_managed_fields {
            omit_managed_fields(&mut value);
            for list in ["items", "rows"] {
                let items = value.get_mut(list).and_then(serde_json::Value::as_array_mut);
                for item in items.into_iter().flatten() {
                    omit_managed_fields(item);
                    if let Some(object) = item.get_mut("object") {
                        omit_managed_fields(object);
                    }
                }
            }
        }
        if self.holds_tokens {
            for part in ["spec", "status"] {
                if let Some(token) = value.get_mut(part).and_then(|part| part.get_mut("token")) {
                    *token = "<redacted>".into();
                }
            }
        }
        serde_json::value::to_raw_value(&value).ok()
    }

    /// Notes an answer, before it is turned into another format. Only the first time.
    pub(super) fn noted(self: &Arc<Self>, response: Response) -> Response {
        if self.is_noted.swap(true, Ordering::Relaxed) {
            return response;
        }
        let code = response.status();
        let is_json = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "application/json");
        let held = if is_json {
            response.body().held(ANSWER_MAX)
        } else {
            None
        };
        let outcome = held.as_deref().and_then(outcome);
        let tells_answer = self.level == Level::RequestResponse;
        let is_watch = self.is_long && response.body().is_made_while_sent();
        {
            let mut event = self.event();
            event.status = Some(Outcome {
                code: code.as_u16(),
                ..outcome.unwrap_or_default()
            });
            if tells_answer && is_json && !is_watch {
                match &held {
                    Some(bytes) => event.answered = self.told(bytes),
                    None if !response.body().is_made_while_sent() => event.truncate(),
                    None => {}
                }
            }
        }
        if tells_answer && is_json && !is_watch && response.body().is_made_while_sent() {
            let recording = self.clone();
            return response.map(|body| {
                Body::stream(Copied {
                    body,
                    recording,
                    copy: Some(Vec::new()),
                })
            });
        }
        response
    }

    /// Records the last stage, once.
    fn finish(&self) -> Option<(Event, Stage)> {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return None;
        }
        let mut event = self.event();
        let stage = if std::thread::panicking() {
            event.status = Some(Outcome::panic());
            Stage::Panic
        } else {
            event.status.get_or_insert_with(Outcome::closed_early);
            let took = self.begun.elapsed();
            if took > SLOW {
                event.annotate("apiserver.latency.k8s.io/total", format!("{took:?}"));
            }
            Stage::ResponseComplete
        };
        self.has(stage).then(|| (event.clone(), stage))
    }
}

/// A request that ends when this does.
struct Ending(Arc<Recording>);

impl Ending {
    /// Records what an answer that is there leaves to record; of one that is made while it is sent, when it is sent.
    async fn answered(self, answer: Response) -> Response {
        let recording = &self.0;
        if recording.is_long && recording.has(Stage::ResponseStarted) {
            let event = recording.event().clone();
            recording.audit.record(&event, Stage::ResponseStarted).await;
        }
        if answer.body().is_made_while_sent() && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return answer.map(|body| Body::stream(Watched { body, _ending: self }));
        }
        if let Some((event, stage)) = recording.finish() {
            recording.audit.record(&event, stage).await;
        }
        answer
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some((event, stage)) = self.0.finish() {
            self.0.audit.record_now(&event, stage);
        }
    }
}

/// A body whose end is the end of its request.
struct Watched {
    body: Body,
    _ending: Ending,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that is told when it has been sent, unless it is too large.
struct Copied {
    body: Body,
    recording: Arc<Recording>,
    copy: Option<Vec<u8>>,
}

impl HttpBody for Copied {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Some(copy) = &mut self.copy
        {
            if copy.len() + data.len() > ANSWER_MAX {
                self.copy = None;
            } else {
                copy.extend_from_slice(data);
            }
        }
        if matches!(polled, Poll::Ready(None)) || self.body.is_end_stream() {
            match self.copy.take() {
                Some(copy) if !copy.is_empty() => {
                    let told = self.recording.told(&copy);
                    self.recording.event().answered = told;
                }
                Some(_) => {}
                None => self.recording.event().annotate("audit.k8s.io/truncated", "true"),
            }
            // Not told again, should it be asked for more.
            self.copy = Some(Vec::new());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn omit_managed_fields(value: &mut serde_json::Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    details: Option<Box<RawValue>>,
}

/// What a Status says; `None` of any other object.
fn outcome(json: &[u8]) -> Option<Outcome> {
    if !json.starts_with(b"{\"kind\":\"Status\"") {
        return None;
    }
    let told: Told = serde_json::from_slice(json).ok()?;
    Some(Outcome {
        status: told.status.into(),
        message: told.message,
        reason: told.reason.into(),
        details: told.details,
        ..Outcome::default()
    })
}

/// The version that a path of a resource names.
fn version_of<'a>(route: &'a Route, path: &'a str) -> &'a str {
    if let Route::Resource(target) = route {
        return &target.resource.version;
    }
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("api") => parts.next(),
        _ => parts.nth(1),
    }
    .unwrap_or("")
}

/// Path and query, without a token that somebody put there.
fn uri(head: &Parts) -> String {
    const TOKEN: &str = "access_token=";
    let whole = head.uri.path_and_query().map_or("/", |it| it.as_str());
    match whole.split_once('?') {
        Some((path, query)) if query.contains(TOKEN) => {
            let told = query.split('&').map(|pair| match pair.split_once('=') {
                Some(("access_token", _)) => "access_token=<redacted>",
                _ => pair,
            });
            format!("{path}?{}", told.collect::<Vec<_>>().join("&"))
        }
        _ => whole.to_owned(),
    }
}

fn user_agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get(header::USER_AGENT)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let agent = String::from_utf8_lossy(agent);
    match agent.char_indices().nth(AGENT_MAX) {
        Some((end, _)) => format!("{}...TRUNCATED", &agent[..end]),
        None => agent.into_owned(),
    }
}

/// Where a request comes from: what proxies say, and the connection's other end last, unless they say that too.
fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<String> {
    let addresses = |name: &str| -> Vec<IpAddr> {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .filter_map(|part| part.trim().parse().ok())
            .collect()
    };
    let mut found = addresses("x-forwarded-for");
    for address in addresses("x-real-ip").into_iter().take(1) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.last() != Some(&peer) {
        found.push(peer);
    }
    found.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditOptions, Batching, Mode, Rotation};

    fn head(uri: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = http::Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_in_which_the_server_fails_is_told_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, log) = (folder.path().join("policy"), folder.path().join("log"));
        let rules = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        std::fs::write(&policy, rules).unwrap();
        let batching = Batching {
            mode: Mode::Batch,
            buffer: 9,
            size_max: 1,
            wait_max: Duration::ZERO,
            throttle: None,
        };
        let options = AuditOptions {
            policy_file: Some(policy),
            log: Some((log.clone(), Rotation::default(), batching)),
            webhook: None,
        };
        let audit = Arc::new(Audit::open(&options).unwrap().unwrap());
        let recording = Arc::new(Recording {
            audit: audit.clone(),
            level: Level::Metadata,
            stages: [
                Stage::RequestReceived,
                Stage::ResponseStarted,
                Stage::ResponseComplete,
                Stage::Panic,
            ]
            .map(|stage| (stage, true)),
            omits_managed_fields: false,
            holds_tokens: false,
            is_long: false,
            is_noted: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            begun: std::time::Instant::now(),
            event: Mutex::new(Event {
                level: Level::Metadata,
                id: "i".into(),
                uri: "/".into(),
                verb: "get".into(),
                user: Person::default(),
                impersonated: None,
                source_ips: Vec::new(),
                user_agent: String::new(),
                object: None,
                status: None,
                sent: None,
                answered: None,
                received: jiff::Timestamp::UNIX_EPOCH,
                annotations: std::collections::BTreeMap::new(),
            }),
        });
        let ending = Ending(recording.clone());
        let failed = std::thread::spawn(move || {
            let _ending = ending;
            panic!("as tests do");
        });
        assert!(failed.join().is_err());
        // Once, and not again as complete.
        drop(Ending(recording));
        audit.close();
        let told: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&log).unwrap()).unwrap();
        assert_eq!(told["stage"], "Panic");
        assert_eq!(told["responseStatus"]["code"], 500);
        assert_eq!(told["requestReceivedTimestamp"], "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn tokens_in_queries_are_not_told() {
        assert_eq!(uri(&head("/api?watch=1", &[])), "/api?watch=1");
        assert_eq!(
            uri(&head("/api?access_token=secret&a=b", &[])),
            "/api?access_token=<redacted>&a=b"
        );
    }

    #[test]
    fn addresses_are_those_that_proxies_tell_and_the_peers_last() {
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        let ips = |headers: &[(&'static str, &str)]| source_ips(&head("/", headers).headers, peer);
        assert_eq!(ips(&[]), ["10.0.0.1"]);
        assert_eq!(
            ips(&[("x-forwarded-for", "1.1.1.1, x, ::1")]),
            ["1.1.1.1", "::1", "10.0.0.1"]
        );
        assert_eq!(
            ips(&[("x-forwarded-for", "1.1.1.1"), ("x-real-ip", "10.0.0.1")]),
            ["1.1.1.1", "10.0.0.1"]
        );
    }

    #[test]
    fn long_names_of_programs_are_cut() {
        let long = "é".repeat(AGENT_MAX + 1);
        let told = user_agent(&head("/", &[("user-agent", &long)]).headers);
        assert!(told.ends_with("é...TRUNCATED"));
        assert_eq!(told.chars().count(), AGENT_MAX + 12);
    }
}
