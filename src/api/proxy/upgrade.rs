//! Requests that turn their connection into something else: exec, attach, portforward, and what is proxied.
//!
//! | the client speaks | the kubelet takes | what happens here |
//! | --- | --- | --- |
//! | SPDY/3.1, or WebSocket with `v4.channel.k8s.io` and older | the same | bytes go through as they are |
//! | WebSocket, `v5.channel.k8s.io` (kubectl exec and attach from 1.30 on) | it from 1.36 on, as its node declares | bytes go through as they are |
//! | the same | SPDY/3.1 | `translate` |
//! | WebSocket, `SPDY/3.1+portforward.k8s.io` (kubectl port-forward from 1.31 on) | it from 1.36 on | bytes go through as they are |
//! | the same | SPDY/3.1 | `tunnel::in_messages` |

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::Empty;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::location::{Location, Reach};
use super::translate::{Client, Wanted};
use super::tunnel::{self, Moved};
use super::{Guest, dial, forward, headers, log, websocket};
use crate::api::body::{Body, Response};
use crate::api::peer::Peer;
use crate::api::status::Status;

/// How long an upgraded connection may be silent: kubelets' `streamingConnectionIdleTimeout`.
pub(in crate::api) const IDLE: Duration = Duration::from_hours(4);
/// For both sides to be upgraded once the backend has agreed.
const SWITCHING: Duration = Duration::from_secs(30);
/// What is read of a kubelet's refusal, bytes.
const REFUSAL_MAX: usize = 64 * 1024;

const V5: &str = "v5.channel.k8s.io";
/// What kubelets speak over SPDY.
const V4: &str = "v4.channel.k8s.io";
const SPDY: &str = "SPDY/3.1";
const TUNNEL: &str = "SPDY/3.1+";
const TUNNELLED: &str = "portforward.k8s.io";
const PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// What a stream is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// Exec or attach.
    Session(Wanted),
    PortForward,
}

/// The client's side of a request that may upgrade its connection.
pub(super) struct Asking {
    pub(super) method: Method,
    pub(super) fields: HeaderMap,
    /// `None` where the connection cannot be upgraded: HTTP/2 knows no such thing.
    pub(super) upgrade: Option<OnUpgrade>,
    pub(super) peer: Arc<Peer>,
}

impl Asking {
    /// Whether an upgrade is asked for and can be had.
    pub(super) fn is_upgrade(&self) -> bool {
        self.upgrade.is_some() && headers::is_upgrade(&self.fields)
    }

    /// Whether WebSocket or SPDY is asked for, and nothing beside it. Where this server is somebody to the backend nothing else
    /// may be: a connection that was led into HTTP/2 would ask for whatever it likes, in this server's name.
    pub(super) fn is_known(&self) -> bool {
        let mut asked = self.fields.get_all(header::UPGRADE).iter();
        let (Some(asked), None) = (asked.next(), asked.next()) else {
            return false;
        };
        ["websocket", SPDY]
            .iter()
            .any(|known| asked.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
    }
}

pub(super) fn required() -> Status {
    Status::bad_request("Upgrade request required")
}

/// Answers `exec`, `attach` and `portforward`. `takes_websockets`: the kubelet takes the newer protocols itself.
///
/// # Errors
/// 400 without an upgrade, and those of [`through`].
pub(super) async fn stream(
    location: Location,
    purpose: Purpose,
    takes_websockets: bool,
    asking: Asking,
    guest: Guest,
) -> Result<Response, Status> {
    if !asking.is_upgrade() || !asking.is_known() {
        return Err(required());
    }
    if !takes_websockets && websocket::is_asked(&asking.fields) {
        let offers = |is_it: fn(&str) -> bool| websocket::protocols(&asking.fields).any(is_it);
        match purpose {
            Purpose::Session(wanted) if offers(|protocol| protocol == V5) => {
                return session(location, wanted, asking, guest);
            }
            Purpose::PortForward if offers(|protocol| protocol.starts_with(TUNNEL)) => {
                return in_messages(location, asking, guest).await;
            }
            _ => {}
        }
    }
    let host = location.authority();
    through(&location, &host, None, asking, guest).await
}

/// A request for SPDY on a kubelet.
fn spdy_request(location: &Location, protocol: &str) -> Result<http::Request<Empty<Bytes>>, String> {
    http::Request::post(location.path_and_query())
        .header(header::HOST, location.authority())
        .header(header::USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, SPDY)
        .header(PROTOCOL, protocol)
        .body(Empty::new())
        .map_err(|error| error.to_string())
}

fn switching(fields: HeaderMap) -> Response {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = fields;
    response
}

fn no_handshake() -> Status {
    Status::bad_request("not a WebSocket handshake of version 13")
}

/// Answers a WebSocket whose kubelet speaks SPDY: the client is told by its error channel what goes wrong, as upstream does.
fn session(location: Location, wanted: Wanted, asking: Asking, guest: Guest) -> Result<Response, Status> {
    let fields = websocket::handshake(&asking.fields, Some(V5)).ok_or_else(no_handshake)?;
    let upgrade = asking.upgrade.ok_or_else(required)?;
    let peer = asking.peer;
    tokio::spawn(async move {
        let Ok(Ok(client)) = timeout(SWITCHING, upgrade).await else {
            return;
        };
        peer.upgraded();
        let moved = Moved::default();
        let work = async {
            let client = Client::begin(TokioIo::new(client), wanted).await?;
            match connect_session(&location).await {
                Ok(kubelet) => {
                    let failed = |why: &str| Status::internal(why).to_json();
                    client.run(TokioIo::new(kubelet), wanted, &moved, failed).await
                }
                Err(status) => client.finish(&status).await,
            }
        };
        let end = tunnel::hold(&moved, IDLE, guest.stopping.stopped(), work).await;
        guest.ended(end, "translated");
    });
    Ok(switching(fields))
}

/// What tells that a kubelet's refusal is a Status.
#[derive(serde::Deserialize)]
struct Kind {
    kind: String,
    status: String,
}

/// A kubelet's connection after the upgrade; or the Status that tells why there is none.
async fn connect_session(location: &Location) -> Result<Upgraded, Vec<u8>> {
    let failed = |why: String| Status::internal(why).to_json();
    let sending = |error: String| failed(format!("error sending request: Post \"{}\": {error}", location.url()));
    let request = spdy_request(location, V4).map_err(sending)?;
    let connection = dial::connect(location).await.map_err(sending)?;
    let answer = dial::send(connection, request).await.map_err(sending)?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let agreed = answer.headers().get(PROTOCOL).and_then(|value| value.to_str().ok());
        if agreed.is_some_and(|protocol| protocol != V4) {
            return Err(failed(
                "unable to upgrade connection: the kubelet speaks another protocol".into(),
            ));
        }
        let upgraded = timeout(SWITCHING, hyper::upgrade::on(answer)).await;
        return match upgraded {
            Ok(Ok(upgraded)) => Ok(upgraded),
            _ => Err(failed("unable to upgrade connection: it broke off".into())),
        };
    }
    let text = log::text(answer.into_body(), REFUSAL_MAX).await;
    let is_status =
        |text: &str| serde_json::from_str::<Kind>(text).is_ok_and(|it| it.kind == "Status" && it.status == "Failure");
    if is_status(&text) {
        return Err(text.into_bytes());
    }
    Err(failed(format!("unable to upgrade connection: {}", text.trim())))
}

/// Answers a port-forward whose SPDY comes in WebSocket messages.
async fn in_messages(location: Location, asking: Asking, guest: Guest) -> Result<Response, Status> {
    let offered: Vec<&str> = websocket::protocols(&asking.fields)
        .filter_map(|protocol| protocol.strip_prefix(TUNNEL))
        .filter(|protocol| protocol.ends_with(".k8s.io"))
        .collect();
    if !offered.contains(&TUNNELLED) {
        return Err(Status::bad_request(
            "unable to upgrade: no tunneling spdy protocols provided",
        ));
    }
    let answered = format!("{TUNNEL}{TUNNELLED}");
    let fields = websocket::handshake(&asking.fields, Some(&answered)).ok_or_else(no_handshake)?;
    let dialing = |error: String| Status::plain(500, format!("error dialing backend: {error}"));
    let request = spdy_request(&location, TUNNELLED).map_err(dialing)?;
    let connection = dial::connect(&location).await.map_err(dialing)?;
    let answer = dial::send(connection, request).await;
    let answer = answer.map_err(|error| Status::plain(500, error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer, guest);
    }
    let Some(upgrade) = asking.upgrade else {
        return Err(required());
    };
    splice(upgrade, hyper::upgrade::on(answer), asking.peer, guest, true);
    Ok(switching(fields))
}

/// Passes an upgrade on as it is asked for. `host`: what the backend is told that it is called.
///
/// # Errors
/// 400 for what is neither WebSocket nor SPDY where this server is somebody to the backend: kubelets and aggregated APIs. 500 when
/// the backend cannot be reached, or answers as if nothing had been asked for.
pub(super) async fn through(
    location: &Location,
    host: &str,
    outside: Option<&forward::Outside>,
    asking: Asking,
    guest: Guest,
) -> Result<Response, Status> {
    let is_somebody = guest.identity.is_some() || location.reach == Reach::Any;
    if is_somebody && !asking.is_known() {
        return Err(required());
    }
    let upgrade = asking.upgrade.ok_or_else(required)?;
    let mut fields = forward::outgoing(asking.fields, true, &guest).map_err(Status::internal)?;
    if let Some(outside) = outside {
        forward::tell_outside(&mut fields, location, outside);
    }
    let dialing = |error: String| match error.as_str() {
        dial::NOT_ALLOWED => Status::bad_request(error),
        _ => Status::plain(500, format!("error dialing backend: {error}")),
    };
    let mut request = http::Request::builder()
        .method(asking.method)
        .uri(location.path_and_query())
        .header(header::HOST, host)
        .body(Empty::<Bytes>::new())
        .map_err(|error| dialing(error.to_string()))?;
    request.headers_mut().extend(fields);
    let connection = dial::connect(location).await.map_err(dialing)?;
    let mut answer = dial::send(connection, request)
        .await
        .map_err(|error| Status::plain(500, error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer, guest);
    }
    let mut fields = std::mem::take(answer.headers_mut());
    let agreed = fields.get(header::UPGRADE).cloned();
    headers::strip_hop_by_hop(&mut fields);
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(agreed) = agreed {
        fields.insert(header::UPGRADE, agreed);
    }
    splice(upgrade, hyper::upgrade::on(answer), asking.peer, guest, false);
    Ok(switching(fields))
}

/// A backend that does not switch: its error is passed on.
fn refused(answer: http::Response<hyper::body::Incoming>, guest: Guest) -> Result<Response, Status> {
    let code = answer.status();
    if code.as_u16() < 400 {
        let text = format!("invalid upgrade response: status code {}", code.as_u16());
        return Err(Status::plain(500, text));
    }
    let (mut head, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut head.headers);
    let mut response = http::Response::new(forward::relay(body, guest));
    *response.status_mut() = code;
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// Joins the two sides once both are upgraded, in a task of its own.
fn splice(client: OnUpgrade, backend: OnUpgrade, peer: Arc<Peer>, guest: Guest, in_messages: bool) {
    tokio::spawn(async move {
        let both = async { tokio::try_join!(client, backend) };
        let Ok(Ok((client, backend))) = timeout(SWITCHING, both).await else {
            return;
        };
        peer.upgraded();
        let (client, backend) = (TokioIo::new(client), TokioIo::new(backend));
        let moved = Moved::default();
        let stopped = guest.stopping.stopped();
        let (end, kind) = if in_messages {
            let work = tunnel::in_messages(client, backend, &moved);
            (tunnel::hold(&moved, IDLE, stopped, work).await, "tunnelled")
        } else {
            let work = tunnel::bytes(client, backend, &moved);
            (tunnel::hold(&moved, IDLE, stopped, work).await, "through")
        };
        guest.ended(end, kind);
    });
}
