//! Answers of writes: the object as written, or as it would have been.

use crate::tree::Value;
use http::StatusCode;
use http::header::{HeaderValue, WARNING};

use super::object;
use crate::api::body::Response;
use crate::api::read;
use crate::api::request::RequestInfo;
use crate::api::router::json;
use crate::api::status::Status;
use crate::store::Object;

/// Most Warning headers of an answer, and most bytes of all of them (upstream cuts there too).
const WARNINGS_MAX: usize = 100;
const WARNING_BYTES_MAX: usize = 4 * 1024;

/// Answers with a stored object, in the form that the client accepts.
pub(super) fn stored(
    info: &RequestInfo,
    code: StatusCode,
    object: &Object,
    warnings: &[String],
) -> Result<Response, Status> {
    Ok(with_warnings(read::object_answer(info, code, object)?, warnings))
}

/// Answers with an object that is not stored (a dry run, a final state, a Scale), in the request's version.
pub(super) fn tree(code: StatusCode, object: &Value, warnings: &[String]) -> Result<Response, Status> {
    let mut body = serde_json::to_vec(object).map_err(Status::internal)?;
    body.push(b'\n');
    Ok(with_warnings(json(code, body), warnings))
}

/// A success Status with a code, as `POST` to a subresource answers.
pub(super) fn created() -> Response {
    let body = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\"code\":201}\n";
    json(StatusCode::CREATED, body)
}

/// Adds Warning headers (RFC 7234, code 299).
pub(super) fn with_warnings(mut response: Response, warnings: &[String]) -> Response {
    let mut left = WARNING_BYTES_MAX;
    let mut sent: Vec<&str> = Vec::new();
    for warning in warnings.iter().take(WARNINGS_MAX) {
        if sent.contains(&warning.as_str()) {
            continue;
        }
        let text = format!("299 - {}", object::quoted(warning));
        let Some(rest) = left.checked_sub(text.len()) else {
            break;
        };
        left = rest;
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(WARNING, value);
            sent.push(warning);
        }
    }
    response
}
