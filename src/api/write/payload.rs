//! Request bodies: how large, how long, in which media type.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::Api;
use crate::api::fairness::{Entrant, Place, WritePlace};
use crate::api::request::RequestInfo;
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

/// How fast a large body has to come once its grace is over, bytes per second.
const LARGE_RATE_MIN: f64 = 64.0 * 1024.0;

/// The whole body of a request, and the permit to work on it, which is waited for once the body is there: a client that
/// is slow takes no turn from others.
///
/// # Errors
/// 413 above [`BODY_MAX`], 504 when it does not arrive in time, 400 when it breaks off, 429 when the user's other writes
/// take too long.
pub(super) async fn read(api: &Api, info: &RequestInfo, body: Incoming) -> Result<(Bytes, Permit), Status> {
    let told = info
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let (bytes, large) = timeout(api.limits.body, collect(api, info, body, told))
        .await
        .unwrap_or_else(|_| Err(too_slow()))?;
    let place = api.fairness.write_place(Entrant::of(info)).await?;
    Ok((bytes, Permit(place, large)))
}

/// What a write holds while it is worked on: a place among the writes and, with a large body, one among those.
#[derive(Debug)]
pub(super) struct Permit(
    #[expect(dead_code, reason = "held, and given back when dropped")] WritePlace,
    #[expect(dead_code, reason = "held, and given back when dropped")] Option<Place>,
);

fn too_slow() -> Status {
    Status::timeout("the request's body did not arrive in time", 0)
}

async fn collect(
    api: &Api,
    info: &RequestInfo,
    mut body: Incoming,
    told: Option<usize>,
) -> Result<(Bytes, Option<Place>), Status> {
    let mut whole = BytesMut::with_capacity(told.unwrap_or(0).min(UNPERMITTED_MAX));
    let mut permit = None;
    let mut received = 0;
    let mut large_since = None;
    loop {
        let Some(frame) = next_frame(api, &mut body, large_since, received).await? else {
            break;
        };
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
                permit = Some(api.fairness.body_place(Entrant::of(info)).await?);
                large_since = Some((Instant::now(), received));
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

/// The next frame. A large body has to come at [`LARGE_RATE_MIN`] on the whole, once its grace is over: its place is one that
/// others wait for. `large_since` is when it got that place, and what had been received until then.
async fn next_frame(
    api: &Api,
    body: &mut Incoming,
    large_since: Option<(Instant, usize)>,
    received: usize,
) -> Result<Option<Result<Frame<Bytes>, hyper::Error>>, Status> {
    let Some((since, before)) = large_since else {
        return Ok(body.frame().await);
    };
    let rate = Duration::from_secs_f64((received - before) as f64 / LARGE_RATE_MIN);
    timeout_at(since + api.limits.body_grace + rate, body.frame())
        .await
        .map_err(|_| too_slow())
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
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    // Upstream looks twice: the router with an open mind, the handler at every letter.
    let told = match text.find(';') {
        Some(end) if end > 0 => &text[..end],
        _ => text,
    };
    if let Some((_, kind)) = PATCH_TYPES.iter().find(|(name, _)| *name == told) {
        return Ok(*kind);
    }
    let mut routed = text
        .split(',')
        .map(|part| part.split(';').next().unwrap_or("").trim_matches(' '));
    if routed.any(|part| PATCH_TYPES.iter().any(|(name, _)| *name == part)) {
        let names: Vec<&str> = PATCH_TYPES.iter().map(|(name, _)| *name).collect();
        return Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            names.join(", ")
        )));
    }
    Err(no_patch())
}

/// 415 for a media type that is no patch of the resource.
pub(super) fn no_patch() -> Status {
    let mut status = Status::unsupported_media_type("415: Unsupported Media Type");
    status.details = Some(Box::default());
    status
}

/// Media types of patches.
const PATCH_TYPES: [(&str, PatchType); 4] = [
    ("application/json-patch+json", PatchType::Plain(PatchKind::Json)),
    ("application/merge-patch+json", PatchType::Plain(PatchKind::Merge)),
    (
        "application/strategic-merge-patch+json",
        PatchType::Plain(PatchKind::Strategic),
    ),
    ("application/apply-patch+yaml", PatchType::Apply),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_told_by_its_media_type_to_the_letter() {
        let told = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, text.parse().unwrap());
            patch_type(&headers).map_err(|status| status.message)
        };
        let merge = Ok(PatchType::Plain(PatchKind::Merge));
        assert_eq!(told("application/merge-patch+json"), merge);
        assert_eq!(told("application/merge-patch+json; charset=utf-8"), merge);
        assert_eq!(told("application/merge-patch+json;charset=latin1;x=y"), merge);
        assert!(
            told("application/merge-patch+json ; charset=utf-8")
                .unwrap_err()
                .starts_with("the body")
        );
        for other in [
            "application/json",
            "application/Merge-Patch+json",
            "",
            "; application/merge-patch+json",
        ] {
            assert_eq!(told(other).unwrap_err(), "415: Unsupported Media Type", "{other}");
        }
    }
}
