//! The log of a container, from the kubelet of its node.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;

use super::location::Location;
use super::{Guest, dial, forward};
use crate::api::body::{Body, Response};
use crate::api::status::Status;

/// What is read of a kubelet's error, bytes (kube-apiserver's number).
const ERROR_MAX: usize = 50_000;

/// The answer for a Pod that is on no node: it has no log yet.
pub(super) fn empty() -> Response {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Asks the kubelet, and gives on what it says as it comes.
///
/// # Errors
/// The kubelet's own, in the form in which kube-apiserver passes them on; 500 when it cannot be reached.
pub(super) async fn answer(location: &Location, name: &str, guest: Guest) -> Result<Response, Status> {
    let failed = |error: String| Status::plain(500, format!("Get \"{}\": {error}", location.url()));
    let request = http::Request::get(location.path_and_query())
        .header(header::HOST, location.authority())
        .header(header::USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.to_string()))?;
    let connection = dial::connect(location).await.map_err(failed)?;
    let answer = dial::send(connection, request).await.map_err(failed)?;
    let code = answer.status();
    if code.is_redirection() {
        let target = answer
            .headers()
            .get(header::LOCATION)
            .and_then(|value| value.to_str().ok());
        let text = format!("Get \"{}\": redirects forbidden", target.unwrap_or(""));
        return Err(Status::plain(500, text));
    }
    if !(StatusCode::OK..=StatusCode::PARTIAL_CONTENT).contains(&code) {
        let text = text(answer.into_body(), ERROR_MAX).await;
        return Err(Status::of_backend(code.as_u16(), "", "pods/log", name, &text));
    }
    let mut response = http::Response::new(forward::relay(answer.into_body(), guest));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// The beginning of a body, as text.
pub(super) async fn text(mut body: Incoming, max: usize) -> String {
    let mut bytes = BytesMut::new();
    while bytes.len() < max {
        let Some(Ok(frame)) = body.frame().await else { break };
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data[..data.len().min(max - bytes.len())]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
