//! Answers in protobuf, for clients that ask for it: what a handler made in JSON and holds whole is told in it here.
//! Lists and watches are told while they are sent (`read/protobuf.rs`).

use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Limited};

use super::body::{Body, Response};
use super::status::Status;
use crate::schema::json_to_protobuf;

/// The media type.
pub(super) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");

/// Largest JSON body that is told in protobuf, bytes: it is held in memory whole.
const JSON_MAX: usize = 16 * 1024 * 1024;

/// The same answer in protobuf. Answers that are not JSON, that are still being made, or whose kind is not built in pass as
/// they are: clients go by the type of what they get.
///
/// # Errors
/// 406 when the body is larger than 16 MiB, 500 when it breaks off.
pub(super) async fn answer(response: Response) -> Result<Response, Status> {
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/json");
    if !is_json || response.body().is_made_while_sent() {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let collected = Limited::new(body, JSON_MAX).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Status::not_acceptable(
                "the answer is too large for application/vnd.kubernetes.protobuf, use application/json",
            )
        } else {
            Status::internal(error)
        }
    })?;
    let json = collected.to_bytes();
    let Ok(message) = json_to_protobuf(&json) else {
        return Ok(Response::from_parts(head, Body::from(json)));
    };
    metrics::counter!("flatkube_converted_reads_total", "reason" => "protobuf").increment(1);
    head.headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
    head.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(head, Body::from(message)))
}
