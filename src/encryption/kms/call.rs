//! One call of gRPC over a unix socket: a request of HTTP/2 with a message of a frame, an answer of the same form, and a status in
//! its trailers.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

/// Largest answer, bytes.
const ANSWER_LEN_MAX: usize = 64 * 1024;
/// Bytes before a message: whether it is compressed, and its length.
const FRAME_LEN: usize = 5;

/// Calls a method of `KeyManagementService`. A connection for each: calls are rare, and a plugin may have started anew.
///
/// # Errors
/// What went wrong, as a sentence without its beginning.
pub(super) async fn call(socket: &Path, method: &str, message: &[u8]) -> Result<Bytes, String> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| format!("its socket {} cannot be reached: {error}", socket.display()))?;
    let told = |error: &dyn std::fmt::Display| format!("it does not speak gRPC: {error}");
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| told(&error))?;
    let connection = tokio::spawn(connection);
    let mut frame = Vec::with_capacity(FRAME_LEN + message.len());
    frame.push(0);
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://localhost/v2.KeyManagementService/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::from(frame)))
        .map_err(|error| told(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| told(&error))?;
    let (head, body) = answer.into_parts();
    let collected = Limited::new(body, ANSWER_LEN_MAX)
        .collect()
        .await
        .map_err(|error| told(&error))?;
    connection.abort();
    if head.status != StatusCode::OK {
        return Err(told(&head.status));
    }
    check_status(collected.trailers().unwrap_or(&head.headers))?;
    let bytes = collected.to_bytes();
    let frame = bytes.split_first_chunk::<FRAME_LEN>();
    match frame {
        Some(([0, len @ ..], message)) if u32::from_be_bytes(*len) as usize == message.len() => {
            Ok(bytes.slice(FRAME_LEN..))
        }
        _ => Err(told(&"its answer is not one uncompressed message")),
    }
}

/// `grpc-status` is 0, or what it says.
fn check_status(trailers: &HeaderMap) -> Result<(), String> {
    let value = |name: &str| {
        trailers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    match value("grpc-status") {
        "0" => Ok(()),
        status => Err(format!("it refuses: {} (status {status})", value("grpc-message"))),
    }
}
