//! What others prove service account tokens with: `/openid/v1/jwks` and `/.well-known/openid-configuration`.

use http::{HeaderValue, StatusCode, header};

use super::Api;
use super::body::Response;
use super::router::{json, not_found};
use crate::auth::Issuer;

/// The public keys.
pub(super) fn key_set(api: &Api) -> Response {
    document(api, "application/jwk-set+json", Issuer::key_set)
}

/// Where the keys are.
pub(super) fn configuration(api: &Api) -> Response {
    document(api, "application/json", Issuer::configuration)
}

fn document(api: &Api, kind: &'static str, text: impl FnOnce(&Issuer) -> String) -> Response {
    let Some(issuer) = api.authenticator.issuer() else {
        return not_found();
    };
    let mut response = json(StatusCode::OK, text(issuer).into_bytes());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // An hour: as long as who proves tokens may go without looking for new keys.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}
