//! Request bodies: how large, how long, in which media type.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::api::Api;
use crate::api::status::Status;
use crate::patch::PatchKind;
use crate::schema::Syntax;

/// Largest request body, bytes (kube-apiserver's limit).
pub(super) const BODY_MAX: usize = 3 * 1024 * 1024;

/// What client-go sends when it may choose.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How much of a body that is refused is read nevertheless, bytes: a client that is still sending sees an answer only
/// once it has sent everything.
const DRAINED_MAX: usize = 4 * BODY_MAX;

/// What of a body is read without a permit, bytes: nearly every object fits, so that clients whose bodies trickle in hold
/// up none but large ones.
const UNPERMITTED_MAX: usize = 32 * 1024;

/// The whole body of a request, and the permit to work on it, which is waited for once the body is there: a client that
/// is slow takes no turn from others.
///
/// # Errors
/// 413 above [`BODY_MAX`], 504 when it does not arrive in time, 400 when it breaks off.
pub(super) async fn read<'a>(
    api: &'a Api,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<(Bytes, SemaphorePermit<'a>), Status> {
    let told = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let (bytes, _held) = timeout(api.limits.body, collect(&api.bodies, body, told))
        .await
        .unwrap_or_else(|_| Err(Status::timeout("the request's body did not arrive in time", 0)))?;
    // Closed only when the server is gone.
    let permit = api.writing.acquire().await.map_err(Status::internal)?;
    Ok((bytes, permit))
}

async fn collect(
    large: &Semaphore,
    mut body: Incoming,
    told: Option<usize>,
) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Status> {
    let mut whole = BytesMut::with_capacity(told.unwrap_or(0).min(UNPERMITTED_MAX));
    let mut permit = None;
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        if received == data.len() && body.is_end_stream() {
            return if received > BODY_MAX {
                Err(too_large())
            } else {
                Ok((data, None))
            };
        }
        if received <= BODY_MAX {
            if received > UNPERMITTED_MAX && permit.is_none() {
                permit = Some(large.acquire().await.map_err(Status::internal)?);
                whole.reserve(told.unwrap_or(0).min(BODY_MAX).saturating_sub(whole.len()));
            }
            whole.extend_from_slice(&data);
        } else if received > DRAINED_MAX || told.is_some_and(|told| told > DRAINED_MAX) {
            break;
        }
    }
    if received > BODY_MAX {
        Err(too_large())
    } else {
        Ok((whole.freeze(), permit))
    }
}

fn too_large() -> Status {
    Status::too_large(format!("Request entity too large: limit is {BODY_MAX}"))
}

/// The media type without its parameters, in lower case; empty when there is none.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    text.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// An object in a body, and how it is written.
///
/// # Errors
/// 415 for media types that objects are not read in.
pub(super) fn object(headers: &HeaderMap, body: Bytes) -> Result<(Syntax, Bytes), Status> {
    Ok((syntax(headers)?, body))
}

/// How an object in the body is written. No media type means JSON.
///
/// # Errors
/// 415 for media types that objects are not read in.
fn syntax(headers: &HeaderMap) -> Result<Syntax, Status> {
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(Syntax::Json),
        "application/yaml" => Ok(Syntax::Yaml),
        PROTOBUF => Ok(Syntax::Protobuf),
        _ => Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// What a PATCH request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchType {
    Plain(PatchKind),
    /// Server-side apply.
    Apply,
}

/// The kind of a patch.
///
/// # Errors
/// 415 for media types that are no patch.
pub(super) fn patch_type(headers: &HeaderMap) -> Result<PatchType, Status> {
    match media_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchType::Plain(PatchKind::Json)),
        "application/merge-patch+json" => Ok(PatchType::Plain(PatchKind::Merge)),
        "application/strategic-merge-patch+json" => Ok(PatchType::Plain(PatchKind::Strategic)),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => {
            let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
            status.details = Some(Box::default());
            Err(status)
        }
    }
}
