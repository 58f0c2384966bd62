//! Who asks: what a connection and a request show, given to the chain of authenticators.

use std::sync::Arc;

use http::HeaderMap;

use super::Api;
use super::peer::Peer;
use super::status::Status;
use crate::auth::User;

/// Who a request is from.
///
/// # Errors
/// 401 when credentials were shown that are not believed.
pub(super) async fn caller(api: &Api, peer: &Peer, path: &str, headers: &mut HeaderMap) -> Result<Arc<User>, Status> {
    let certificate = peer.certificate.as_ref();
    let found = api.authenticator.authenticate(certificate, headers, path).await;
    let user = found.map_err(|_| Status::unauthorized())?;
    api.authenticator.strip(headers);
    Ok(user)
}
