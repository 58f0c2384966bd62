//! Tokens that have ended are deleted.

use std::time::Duration;

use super::{SECRETS, is_token, tokens, wait_s};
use crate::api::{Client, Delete};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::Controller;
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Selection};

/// Deletes the Secrets of bootstrap tokens when these end.
pub(in crate::controllers) struct TokenCleaner {
    client: Client,
    secrets: ResourceRef,
}

impl TokenCleaner {
    /// `None` if there is no such kind.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        let secrets = resources::stored(SECRETS)?.into();
        Some(Self { client, secrets })
    }
}

impl Controller for TokenCleaner {
    fn resource(&self) -> &'static str {
        SECRETS
    }

    fn begins_with(&self) -> Selection {
        tokens()
    }

    fn is_about(&self, object: &Object) -> Result<bool, Damaged> {
        is_token(object)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let Some(object) = self.client.store().view().get(SECRETS, key)? else {
            return Ok(Done::Settled);
        };
        if !is_token(&object)? {
            return Ok(Done::Settled);
        }
        let secret = self.client.read(&self.secrets, &object)?;
        match wait_s(&secret, jiff::Timestamp::now().as_second()) {
            None => {}
            Some(0) => {
                // The one that was looked at: it may have been given more time since.
                let delete = Delete {
                    uid: secret["metadata"]["uid"].as_str().map(str::to_owned),
                    revision: Some(object.revision()),
                    ..Delete::default()
                };
                gone_is_fine(self.client.delete(&self.secrets, key, &delete).await)?;
            }
            Some(wait_s) => return Ok(Done::After(Duration::from_secs(wait_s))),
        }
        Ok(Done::Settled)
    }
}
