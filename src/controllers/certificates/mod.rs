//! CertificateSigningRequests: kubelets' are approved, what is approved is signed, and what is done with is forgotten.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>.

mod approval;
mod cleaning;
mod requests;
mod signing;

use std::sync::Arc;
use std::time::Duration;

use super::claim::gone_is_fine;
use super::failure::Failure;
use super::queue::Done;
use super::runtime::Controller;
use crate::api::{Client, Delete};
use crate::auth::Authority;
use crate::resources::{self, ResourceRef};
use crate::tree::Value;

const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

/// Approves, signs and forgets requests for certificates. What upstream does in six controllers under one user is done here in one
/// look, so that a kubelet's request is answered with two writes and no waiting in between.
pub(super) struct SigningRequests {
    client: Client,
    requests: ResourceRef,
    authority: Arc<Authority>,
}

impl SigningRequests {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, authority: Arc<Authority>) -> Option<Self> {
        Some(Self {
            client,
            requests: resources::stored(REQUESTS)?.into(),
            authority,
        })
    }

    /// Writes what `edit` makes of a part of a request.
    async fn change(
        &self,
        key: &str,
        part: &'static str,
        edit: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), Failure> {
        Ok(gone_is_fine(
            self.client.change(&self.requests, Some(part), key, edit).await,
        )?)
    }
}

impl Controller for SigningRequests {
    fn resource(&self) -> &'static str {
        REQUESTS
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let Some(object) = self.client.store().view().get(REQUESTS, key)? else {
            return Ok(Done::Settled);
        };
        let request = self.client.read(&self.requests, &object)?;
        let now_s = jiff::Timestamp::now().as_second();
        let wait = cleaning::wait_s(&request, now_s);
        if wait == Some(0) {
            let delete = Delete {
                uid: request["metadata"]["uid"].as_str().map(str::to_owned),
                revision: Some(object.revision()),
                ..Delete::default()
            };
            gone_is_fine(self.client.delete(&self.requests, key, &delete).await)?;
            return Ok(Done::Settled);
        }
        let done = if requests::has(&request, "Approved") {
            self.sign(key, &request, now_s).await?
        } else {
            self.approve(key, &request).await?
        };
        Ok(match (done, wait) {
            (Done::Settled, Some(wait_s)) => Done::After(Duration::from_secs(wait_s)),
            (done, _) => done,
        })
    }
}
