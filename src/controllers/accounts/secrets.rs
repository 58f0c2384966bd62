//! Secrets that hold tokens of service accounts: filled when somebody makes one, gone with their account.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::api::status::Status;
use crate::api::{Client, Delete};
use crate::auth::{Issuer, Named};
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;

const SECRETS: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
/// The type of such Secrets.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// Annotations that name the account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// Fills Secrets of this type with a token, the authority and the namespace, and deletes them when their account is gone.
pub(in crate::controllers) struct TokenSecrets {
    client: Client,
    secrets: ResourceRef,
    accounts: ResourceRef,
    issuer: Arc<Issuer>,
    /// Base64 of PEM.
    authority: String,
}

/// The Secrets that hold tokens of accounts.
fn holders() -> Selection {
    Selection {
        requirements: vec![Requirement::FieldIs {
            name: "type".to_owned(),
            value: TOKEN_TYPE.to_owned(),
        }],
    }
}

/// The account that a Secret says it is for: its name, and its UID if it says one.
fn account_of(secret: &Value) -> Option<(&str, &str)> {
    let annotations = &secret["metadata"]["annotations"];
    let name = annotations[ACCOUNT_NAME].as_str().filter(|name| !name.is_empty())?;
    Some((name, annotations[ACCOUNT_UID].as_str().unwrap_or("")))
}

impl TokenSecrets {
    /// `authority`: PEM. `None` if there are no such kinds, or nobody signs tokens.
    pub(in crate::controllers) fn new(client: Client, issuer: Option<Arc<Issuer>>, authority: &str) -> Option<Self> {
        Some(Self {
            client,
            secrets: resources::stored(SECRETS)?.into(),
            accounts: resources::stored(ACCOUNTS)?.into(),
            issuer: issuer?,
            authority: STANDARD.encode(authority),
        })
    }

    /// What is to be stored in place of a Secret of an account; `None`: it has everything, or takes nothing.
    fn filled(&self, secret: &Value, account: &Named) -> Result<Option<Value>, String> {
        let is_empty = |part: &str| secret["data"][part].as_str().is_none_or(str::is_empty);
        let has_all =
            secret["data"]["ca.crt"] == self.authority.as_str() && !is_empty("namespace") && !is_empty("token");
        if has_all || secret["immutable"] == true {
            return Ok(None);
        }
        let metadata = &secret["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("");
        let mut new = secret.clone();
        new["data"]["ca.crt"] = self.authority.as_str().into();
        if is_empty("namespace") {
            new["data"]["namespace"] = STANDARD.encode(namespace).into();
        }
        if is_empty("token") {
            let name = metadata["name"].as_str().unwrap_or("");
            let token = self.issuer.sign_legacy(namespace, account, name)?;
            new["data"]["token"] = STANDARD.encode(token).into();
        }
        new["metadata"]["annotations"][ACCOUNT_NAME] = account.name.as_str().into();
        new["metadata"]["annotations"][ACCOUNT_UID] = account.uid.as_str().into();
        Ok(Some(new))
    }

    /// Takes the name of a Secret that is gone out of the accounts that name it.
    async fn forget(&self, view: &Arc<View>, key: &str) -> Result<(), Failure> {
        let Some((namespace, name)) = key.split_once('/') else {
            return Ok(());
        };
        let range = Range {
            namespace: Some(namespace.to_owned()),
            after: None,
        };
        let mut listing = view.list(ACCOUNTS, range, &Selection::all());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let without = |old: &Value| {
                    let held = old["secrets"].as_array()?;
                    let kept: Vec<Value> = held.iter().filter(|held| held["name"] != name).cloned().collect();
                    (kept.len() < held.len()).then(|| {
                        let mut new = old.clone();
                        new["secrets"] = kept.into();
                        new
                    })
                };
                if without(&self.client.read(&self.accounts, &object)?).is_some() {
                    gone_is_fine(self.client.change(&self.accounts, None, object.key(), without).await)?;
                }
            }
        }
        Ok(())
    }
}

impl Controller for TokenSecrets {
    fn resource(&self) -> &'static str {
        SECRETS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[ACCOUNTS]
    }

    /// The Secrets of an account that came or went.
    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        if !change.is_gone && change.previous.is_some() {
            return Ok(Vec::new());
        }
        let range = Range {
            namespace: change.object.namespace().map(str::to_owned),
            after: None,
        };
        let mut keys = Vec::new();
        let mut listing = view.list(SECRETS, range, &holders());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let secret = self.client.read(&self.secrets, &object)?;
                if account_of(&secret).is_some_and(|(name, _)| name == change.object.name()) {
                    keys.push(object.key().into());
                }
            }
        }
        Ok(keys)
    }

    fn begins_with(&self) -> Selection {
        holders()
    }

    fn is_about(&self, object: &Object) -> Result<bool, Damaged> {
        holders().matches(object)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(SECRETS, key)? else {
            self.forget(&view, key).await?;
            return Ok(Done::Settled);
        };
        let secret = self.client.read(&self.secrets, &object)?;
        let metadata = &secret["metadata"];
        if secret["type"] != TOKEN_TYPE || !metadata["deletionTimestamp"].is_null() {
            return Ok(Done::Settled);
        }
        let Some((name, uid)) = account_of(&secret) else {
            return Ok(Done::Settled);
        };
        let account_key = self.accounts.key(object.namespace(), name);
        let account = match view.get(ACCOUNTS, &account_key)? {
            Some(account) => Some(account.sidecar()?.uid.to_string()).filter(|found| uid.is_empty() || found == uid),
            None => None,
        };
        let Some(account) = account else {
            let delete = Delete {
                uid: metadata["uid"].as_str().map(str::to_owned),
                ..Delete::default()
            };
            gone_is_fine(self.client.delete(&self.secrets, key, &delete).await)?;
            return Ok(Done::Settled);
        };
        let account = Named {
            name: name.to_owned(),
            uid: account,
        };
        if let Some(filled) = self.filled(&secret, &account).map_err(Status::internal)? {
            // What was looked at, and nothing else: a token names its Secret.
            let edit = |old: &Value| {
                (old["metadata"]["resourceVersion"] == metadata["resourceVersion"]).then(|| filled.clone())
            };
            gone_is_fine(self.client.change(&self.secrets, None, key, edit).await)?;
        }
        Ok(Done::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_secret_says_whose_it_is() {
        let of = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        assert_eq!(account_of(&of(json!({}))), None);
        assert_eq!(account_of(&of(json!({ACCOUNT_NAME: ""}))), None);
        assert_eq!(account_of(&of(json!({ACCOUNT_NAME: "a"}))), Some(("a", "")));
        assert_eq!(
            account_of(&of(json!({ACCOUNT_NAME: "a", ACCOUNT_UID: "u"}))),
            Some(("a", "u"))
        );
    }
}
