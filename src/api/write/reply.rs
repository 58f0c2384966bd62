//! Answers of writes: the object as written, or as it would have been.

use crate::tree::Value;
use http::StatusCode;
use http::header::{HeaderValue, WARNING};

use super::object;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::router::json;
use crate::api::status::{Cause, Details, Status};
use crate::api::{read, unstored};
use crate::resources;
use crate::resources::scale::{COLUMNS, scale_cells, scale_of};
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

/// Answers with an object that is not stored (a dry run, a final state), in the form that the client accepts. `object` is in
/// the stored shape.
pub(super) fn tree(
    info: &RequestInfo,
    code: StatusCode,
    object: Value,
    warnings: &[String],
) -> Result<Response, Status> {
    let resource = &info.resource;
    let shape = if resource.custom.is_some() {
        Some(&**resource)
    } else {
        resource.stored_shape()
    };
    let cells = resources::cells(shape, &object);
    let object = object::in_version(resource, object);
    let response = unstored::answer(info, code, &resource.columns, &cells, &object)?;
    Ok(with_warnings(response, warnings))
}

/// Answers with the Scale of an object.
pub(super) fn scale(info: &RequestInfo, workload: &Value, warnings: &[String]) -> Result<Response, Status> {
    let (scale, _) = scale_of(&info.resource, workload);
    let response = unstored::answer(info, StatusCode::OK, COLUMNS, &scale_cells(&scale), &scale)?;
    Ok(with_warnings(response, warnings))
}

/// The details of a Status that came from elsewhere; `None` for none.
pub(in crate::api) fn details(told: &Value) -> Option<Box<Details>> {
    told.as_object()?;
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or("").to_owned();
    let causes = told["causes"].as_array().into_iter().flatten();
    Some(Box::new(Details {
        name: text(told, "name"),
        group: text(told, "group"),
        kind: text(told, "kind"),
        uid: text(told, "uid"),
        causes: causes
            .map(|cause| Cause {
                reason: text(cause, "reason").into(),
                message: text(cause, "message"),
                field: text(cause, "field"),
            })
            .collect(),
        retry_after_seconds: told["retryAfterSeconds"]
            .as_u64()
            .and_then(|seconds| u32::try_from(seconds).ok())
            .unwrap_or(0),
    }))
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
