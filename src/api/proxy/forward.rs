//! One request to a backend, and its answer back: both bodies as streams.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;

use super::location::{Location, join};
use super::{Guest, dial, headers};
use crate::api::Stopping;
use crate::api::body::{Body, BodyError, Response};

/// Headers by which a backend would let other sites read what it says; upstream takes them out, too.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// How this server is reached: for links that come back in an answer.
#[derive(Debug, Clone)]
pub(in crate::api) struct Outside {
    /// `http` or `https`.
    pub(in crate::api) scheme: &'static str,
    /// The `Host` of the request.
    pub(in crate::api) host: String,
    /// The part of the path that is not the backend's, without `/` at its end.
    pub(in crate::api) prefix: String,
}

/// The request's head for the backend: what concerns this connection or this server's knowledge of the user is taken out; and
/// who asks is put in, if the backend is to be told.
///
/// # Errors
/// When a name cannot stand in a header.
pub(super) fn outgoing(mut fields: HeaderMap, is_upgrade: bool, guest: &Guest) -> Result<HeaderMap, String> {
    let upgrade = fields.get(header::UPGRADE).cloned();
    headers::strip_hop_by_hop(&mut fields);
    headers::strip_identity(&mut fields);
    for name in [header::EXPECT, header::CONTENT_LENGTH, header::HOST] {
        fields.remove(name);
    }
    headers::append_forwarded_for(&mut fields, guest.address.ip());
    if let Some(upgrade) = upgrade.filter(|_| is_upgrade) {
        fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        fields.insert(header::UPGRADE, upgrade);
    }
    if let Some(user) = &guest.identity {
        headers::set_identity(&mut fields, user).ok_or("the name of the user cannot stand in a header")?;
    }
    Ok(fields)
}

/// Tells the backend how it is reached from outside.
pub(super) fn tell_outside(fields: &mut HeaderMap, location: &Location, outside: &Outside) {
    let mut tell = |name: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            fields.insert(HeaderName::from_static(name), value);
        }
    };
    tell("x-forwarded-uri", &format!("{}{}", outside.prefix, location.path));
    if !outside.host.is_empty() {
        tell("x-forwarded-host", &outside.host);
        tell("x-forwarded-proto", outside.scheme);
    }
}

/// Sends a request on and gives its answer back.
///
/// # Errors
/// A sentence that says why the backend does not answer.
pub(in crate::api) async fn forward(
    location: &Location,
    method: Method,
    host: &str,
    fields: HeaderMap,
    body: Incoming,
    outside: Option<&Outside>,
    guest: Guest,
) -> Result<Response, String> {
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = location.path_and_query().parse().map_err(|error| format!("{error}"))?;
    *request.headers_mut() = fields;
    let host_value = HeaderValue::from_str(host).map_err(|error| error.to_string())?;
    request.headers_mut().insert(header::HOST, host_value);
    let answer = dial::send(dial::connect(location).await?, request).await?;
    let (mut head, body) = answer.into_parts();
    headers::strip_hop_by_hop(&mut head.headers);
    for name in CORS {
        head.headers.remove(name);
    }
    if let Some(outside) = outside
        && let Some(target) = head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok())
        && let Some(rewritten) = rewrite(target, location, host, outside)
        && let Ok(value) = HeaderValue::from_str(&rewritten)
    {
        head.headers.insert(header::LOCATION, value);
    }
    let mut response = http::Response::new(relay(body, guest));
    *response.status_mut() = match head.status {
        // Nothing here asked for one.
        StatusCode::SWITCHING_PROTOCOLS => StatusCode::BAD_GATEWAY,
        status => status,
    };
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// A redirect that stays on the backend, as one that comes through this server again; `None` for others.
fn rewrite(target: &str, location: &Location, host: &str, outside: &Outside) -> Option<String> {
    let uri: http::Uri = target.parse().ok()?;
    if let Some(authority) = uri.authority() {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let named = join(
            authority.host().trim_matches(['[', ']']),
            authority.port_u16().unwrap_or(default),
        );
        if named != location.authority() && authority.as_str() != host {
            return None;
        }
    } else if !target.starts_with('/') || target.starts_with("//") {
        return None;
    }
    let path = uri.path();
    let path = if path.starts_with(&outside.prefix) {
        path.to_owned()
    } else {
        format!("{}{path}", outside.prefix)
    };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let origin = if outside.host.is_empty() {
        String::new()
    } else {
        format!("{}://{}", outside.scheme, outside.host)
    };
    Some(format!("{origin}{path}{query}"))
}

/// A backend's body as an answer's. What it holds of the server is given back when it is done.
pub(super) fn relay(body: Incoming, guest: Guest) -> Body {
    let is_endless = body.size_hint().exact().is_none();
    if body.is_end_stream() {
        return Body::empty();
    }
    let stopping = guest.stopping.clone();
    Body::stream(Relayed {
        body,
        stopped: is_endless.then(|| Box::pin(stopped(stopping)) as _),
        _guest: guest,
    })
}

async fn stopped(stopping: Stopping) {
    stopping.stopped().await;
}

/// A body that a backend sends. Its length is not told: what is said of lengths here is of bytes that are there already.
struct Relayed {
    body: Incoming,
    /// A body without an end, such as a log that is followed, ends with the server; others may come to their end.
    stopped: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _guest: Guest,
}

impl HttpBody for Relayed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(stopped) = &mut self.stopped
            && stopped.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(BodyError::Stopping)));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(
            frame.map(|frame| frame.map_err(|error| BodyError::Other(format!("the backend broke off: {error}")))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::super::location::Reach;
    use super::*;

    #[test]
    fn a_redirect_of_the_backend_comes_through_here_again_and_others_are_left_alone() {
        let location = Location {
            tls: None,
            host: "10.0.0.5".into(),
            port: 8080,
            reach: Reach::Any,
            path: "/app".into(),
            query: String::new(),
        };
        let outside = Outside {
            scheme: "https",
            host: "api.example:6443".into(),
            prefix: "/api/v1/namespaces/n/pods/p/proxy".into(),
        };
        let of = |target| rewrite(target, &location, "api.example:6443", &outside);
        let base = "https://api.example:6443/api/v1/namespaces/n/pods/p/proxy";
        assert_eq!(of("/login?next=1").unwrap(), format!("{base}/login?next=1"));
        assert_eq!(of("http://10.0.0.5:8080/x/").unwrap(), format!("{base}/x/"));
        assert_eq!(of("https://api.example:6443/x").unwrap(), format!("{base}/x"));
        let whole = "/api/v1/namespaces/n/pods/p/proxy/x";
        assert_eq!(of(whole).unwrap(), format!("https://api.example:6443{whole}"));
        for other in [
            "relative",
            "http://elsewhere.example/x",
            "//elsewhere.example/x",
            "http://10.0.0.5/x",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
