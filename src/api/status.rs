//! Status answers: how every error, and every deletion, is told to a client.
//!
//! Reasons, codes and message forms follow `k8s.io/apimachinery/pkg/api/errors`, since clients branch on `reason` and
//! people search for the messages.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use serde::Serialize;

use super::body::{Body, Response};
use crate::store::MENDED_BY;

/// An API error (or the success of a deletion), ready to be sent as a `v1` Status object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code, also sent as `code`.
    pub code: u16,
    /// Machine-readable reason, e.g. `NotFound`; empty for a success and where upstream sends none.
    pub reason: &'static str,
    /// Human-readable text.
    pub message: String,
    /// What the error is about.
    pub details: Option<Box<Details>>,
    /// Sent as `metadata.continue`: with it a list whose pages have expired can go on in the current state.
    pub continue_token: Option<String>,
}

/// `details` of a Status. Empty fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural resource name, or the kind for an invalid object, as upstream mixes them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What exactly is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds after which the client may try again; also sent as `Retry-After`.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// e.g. `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field, e.g. `spec.ports[0].port`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// `configmaps` or `deployments.apps`: how messages name a resource.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

impl Status {
    fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    fn about(code: u16, reason: &'static str, message: String, group: &str, kind: &str, name: &str) -> Self {
        let details = Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            ..Details::default()
        };
        Self {
            code,
            reason,
            message,
            details: Some(Box::new(details)),
            continue_token: None,
        }
    }

    /// 200: an object has been deleted.
    pub fn deleted(group: &str, resource: &str, name: &str, uid: &str) -> Self {
        let mut status = Self::about(200, "", String::new(), group, resource, name);
        if let Some(details) = &mut status.details {
            uid.clone_into(&mut details.uid);
        }
        status
    }

    /// 200 without details.
    pub fn success() -> Self {
        Self::failure(200, "", "")
    }

    /// 404: there is no such object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        // The one resource that upstream calls by its singular here.
        let resource = if resource == "componentstatuses" {
            "componentstatus"
        } else {
            resource
        };
        let message = format!("{} \"{name}\" not found", qualified(group, resource));
        Self::about(404, "NotFound", message, group, resource, name)
    }

    /// 404: there is no such resource, subresource or path below the API roots.
    pub fn no_resource() -> Self {
        let mut status = Self::failure(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409 on create.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::about(409, "AlreadyExists", message, group, resource, name)
    }

    /// 409: no free name was found for a `generateName`.
    pub fn generate_name_conflict(group: &str, resource: &str, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            qualified(group, resource)
        );
        let mut status = Self::about(409, "AlreadyExists", message, group, resource, name);
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = 1;
        }
        status
    }

    /// 409: the object is not what the request took it for; `why` says how.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(group, resource)
        );
        Self::about(409, "Conflict", message, group, resource, name)
    }

    /// 409: the object has a newer revision than the request was made from.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: the object breaks rules of its kind. Takes the kind, not the plural.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let listed = if texts.len() == 1 {
            texts.remove(0)
        } else {
            format!("[{}]", texts.join(", "))
        };
        let mut message = format!("{} \"{name}\" is invalid", qualified(group, kind));
        if !causes.is_empty() {
            message.push_str(": ");
            message.push_str(&listed);
        }
        let mut status = Self::about(422, "Invalid", message, group, kind, name);
        if let Some(details) = &mut status.details {
            details.causes = causes;
        }
        status
    }

    /// 400 with reason `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }

    /// 405: the resource exists but not with this method.
    pub fn method_not_supported(group: &str, resource: &str, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind \"{}\"",
            qualified(group, resource)
        );
        Self::about(405, "MethodNotAllowed", message, group, resource, "")
    }

    /// 405 without a resource: the path exists but not with this method.
    pub fn method_not_allowed() -> Self {
        let mut status = Self::failure(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(Box::default());
        status
    }

    /// 406: none of the media types that the client accepts can be made.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::failure(406, "NotAcceptable", message)
    }

    /// 415: the request body's media type is not read here.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::failure(415, "UnsupportedMediaType", message)
    }

    /// 413: the request body (or the object) is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::failure(413, "RequestEntityTooLarge", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }

    /// 403 about an object.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let subject = qualified(group, resource);
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, true) => format!("forbidden: {why}"),
            (false, true) => format!("{subject} is forbidden: {why}"),
            (_, false) => format!("{subject} \"{name}\" is forbidden: {why}"),
        };
        Self::about(403, "Forbidden", message, group, resource, name)
    }

    /// 410: the revision, or the continue token, is older than the retained history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }

    /// 410 with reason `Gone`: the position a watch asks for is no longer retained.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, "Gone", message)
    }

    /// 504: the revision asked for lies in the future and did not come within the time that a request waits.
    pub fn too_large_resource_version(asked: u64, current: u64, retry_after_seconds: u32) -> Self {
        let mut status = Self::failure(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        status.details = Some(Box::new(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge".into(),
                message: "Too large resource version".into(),
                field: String::new(),
            }],
            retry_after_seconds,
            ..Details::default()
        }));
        status
    }

    /// 504.
    pub fn timeout(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut status = Self::failure(504, "Timeout", message);
        status.details = Some(Box::new(Details {
            retry_after_seconds,
            ..Details::default()
        }));
        status
    }

    /// 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut status = Self::failure(429, "TooManyRequests", message);
        status.details = Some(Box::new(Details {
            retry_after_seconds,
            ..Details::default()
        }));
        status
    }

    /// 503.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, "ServiceUnavailable", message)
    }

    /// A failure with a code and a text, without a reason, as upstream passes on errors that it has no Status for.
    pub fn plain(code: u16, message: impl Into<String>) -> Self {
        Self::failure(code, "", message)
    }

    /// An error that a backend gave in answer to a request of this server's, in place of what it was asked for: `text` is what
    /// it said (upstream's `NewGenericServerResponse` behind its check of a log's answer).
    pub fn of_backend(code: u16, group: &str, resource: &str, name: &str, text: &str) -> Self {
        match code {
            500 => return Self::internal(text),
            400 => return Self::bad_request(text),
            _ => {}
        }
        let (reason, message) = match code {
            401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
            403 => ("Forbidden", text.to_owned()),
            404 => ("NotFound", "the server could not find the requested resource".to_owned()),
            405 => (
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource".to_owned(),
            ),
            409 => ("Conflict", "the server reported a conflict".to_owned()),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later".to_owned(),
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request".to_owned(),
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted, but may still be processing the request"
                    .to_owned(),
            ),
            501.. => (
                "InternalError",
                format!("an error on the server ({text:?}) has prevented the request from succeeding"),
            ),
            _ => (
                "",
                format!("the server responded with the status code {code} but did not return more information"),
            ),
        };
        let message = format!("{message} ( {} {name})", qualified(group, resource));
        Self::about(code, reason, message, group, resource, name)
    }

    /// 500: stored bytes are damaged; and what mends them.
    pub fn damaged(error: impl fmt::Display) -> Self {
        Self::internal(format_args!("{error}; {MENDED_BY}"))
    }

    /// 500: something failed that no client can be blamed for.
    pub fn internal(error: impl fmt::Display) -> Self {
        let error = error.to_string();
        let mut status = Self::failure(500, "InternalError", format!("Internal error occurred: {error}"));
        status.details = Some(Box::new(Details {
            causes: vec![Cause {
                message: error,
                ..Cause::default()
            }],
            ..Details::default()
        }));
        status
    }

    /// 501: a part of the Kubernetes API that this server does not have yet. `what` names it.
    pub fn not_implemented(what: &str) -> Self {
        Self::failure(
            501,
            "NotImplemented",
            format!("{what} is not supported by this server yet"),
        )
    }

    /// The Status as JSON, with the newline that kube-apiserver's encoder ends every object with.
    pub fn to_json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Wire<'a> {
            kind: &'a str,
            #[serde(rename = "apiVersion")]
            api_version: &'a str,
            metadata: Metadata<'a>,
            status: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            message: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            reason: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<&'a Details>,
            #[serde(skip_serializing_if = "Option::is_none")]
            code: Option<u16>,
        }
        #[derive(Serialize)]
        struct Metadata<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            continue_token: Option<&'a str>,
        }
        let failed = self.code >= 400;
        let wire = Wire {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {
                continue_token: self.continue_token.as_deref(),
            },
            status: if failed { "Failure" } else { "Success" },
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: failed.then_some(self.code),
        };
        let mut json = Vec::with_capacity(256);
        // Strings and integers into memory: serialization has no way to fail.
        let _ = serde_json::to_writer(&mut json, &wire);
        json.push(b'\n');
        json
    }

    /// The HTTP answer that carries this Status.
    pub fn into_response(self) -> Response {
        let body = self.to_json();
        let mut response = http::Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        );
        headers.insert(
            http::header::CACHE_CONTROL,
            http::HeaderValue::from_static("no-cache, private"),
        );
        if let Some(seconds) = self
            .details
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0)
        {
            headers.insert(http::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_status_lists_each_cause_once_in_its_message() {
        let cause = |field: &str| Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value".into(),
            field: field.into(),
        };
        let status = Status::invalid(
            "apps",
            "Deployment",
            "d",
            vec![cause("spec.selector"), cause("a"), cause("a")],
        );
        assert_eq!(
            status.message,
            "Deployment.apps \"d\" is invalid: [spec.selector: Required value, a: Required value]"
        );
        assert_eq!(status.details.unwrap().causes.len(), 3);
    }

    #[test]
    fn a_success_has_no_code_and_no_reason_on_the_wire() {
        let json = String::from_utf8(Status::deleted("", "configmaps", "x", "u-1").to_json()).unwrap();
        assert_eq!(
            json,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\",\
             \"details\":{\"name\":\"x\",\"kind\":\"configmaps\",\"uid\":\"u-1\"}}\n"
        );
    }
}
