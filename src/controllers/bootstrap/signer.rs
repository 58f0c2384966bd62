//! The ConfigMap `kube-public/cluster-info`, signed with each token, so that a machine that knows nothing but a token can tell whether
//! the address and the authority in it are the cluster's.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::{NAMESPACE, PREFIX, SECRETS, is_token, text, tokens, wait_s};
use crate::api::Client;
use crate::auth::parts_of_bootstrap_token;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::queue::Done;
use crate::controllers::runtime::{Change, Controller};
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;

const MAPS: &str = "configmaps";
const KEY: &str = "kube-public/cluster-info";
/// What is signed.
const SIGNED: &str = "kubeconfig";
/// What the names of signatures begin with.
const SIGNATURE: &str = "jws-kubeconfig-";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// Signs the ConfigMap with all tokens that are for signing.
pub(in crate::controllers) struct BootstrapSigner {
    client: Client,
    maps: ResourceRef,
    secrets: ResourceRef,
}

impl BootstrapSigner {
    /// `None` if there are no such kinds.
    pub(in crate::controllers) fn new(client: Client) -> Option<Self> {
        Some(Self {
            client,
            maps: resources::stored(MAPS)?.into(),
            secrets: resources::stored(SECRETS)?.into(),
        })
    }

    /// The secrets of the tokens that sign, by their ids.
    fn tokens(&self, view: &Arc<View>) -> Result<BTreeMap<String, String>, Failure> {
        let now_s = jiff::Timestamp::now().as_second();
        let range = Range {
            namespace: Some(NAMESPACE.to_owned()),
            after: None,
        };
        let mut found = BTreeMap::new();
        let mut listing = view.list(SECRETS, range, &tokens());
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let secret = self.client.read(&self.secrets, &object)?;
                let (id, held) = (text(&secret, "token-id"), text(&secret, "token-secret"));
                let is_named = object.name().strip_prefix(PREFIX) == Some(&*id);
                let has_form = parts_of_bootstrap_token(&format!("{id}.{held}")).is_some();
                let signs = text(&secret, "usage-bootstrap-signing") == "true";
                if is_named && has_form && signs && wait_s(&secret, now_s) != Some(0) {
                    found.insert(id, held);
                }
            }
        }
        Ok(found)
    }
}

/// A ConfigMap with the signatures of these tokens and no others; `None`: it is so already, or has nothing to sign.
fn signed(map: &Value, tokens: &BTreeMap<String, String>) -> Option<Value> {
    let content = map["data"][SIGNED].as_str()?;
    let mut new = map.clone();
    let data = new["data"].as_object_mut()?;
    let is_kept = |name: &str| name.strip_prefix(SIGNATURE).is_none_or(|id| tokens.contains_key(id));
    let gone: Vec<String> = data
        .keys()
        .map(ToString::to_string)
        .filter(|name| !is_kept(name))
        .collect();
    for name in gone {
        data.remove(&name);
    }
    for (id, secret) in tokens {
        new["data"][&*format!("{SIGNATURE}{id}")] = signature(content, id, secret).as_str().into();
    }
    (new["data"] != map["data"]).then_some(new)
}

/// A signature by HS256 with its content left out (RFC 7515, appendix F).
fn signature(content: &str, id: &str, secret: &str) -> String {
    // Ids have no character that JSON would escape.
    let head = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(content));
    // HMAC fills short keys up with zeros, as the rule for these signatures does.
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, message.as_bytes());
    format!("{head}..{}", URL_SAFE_NO_PAD.encode(tag))
}

impl Controller for BootstrapSigner {
    fn resource(&self) -> &'static str {
        MAPS
    }

    fn watches(&self) -> &'static [&'static str] {
        &[SECRETS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let is_ours = is_token(change.object)? || change.previous.map_or(Ok(false), is_token)?;
        Ok(is_ours.then(|| KEY.into()).into_iter().collect())
    }

    fn begins_with(&self) -> Selection {
        let is = |name: &str, value: &str| Requirement::FieldIs {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let (namespace, name) = KEY.split_once('/').unwrap_or_default();
        Selection {
            requirements: vec![is("metadata.name", name), is("metadata.namespace", namespace)],
        }
    }

    fn is_about(&self, object: &Object) -> Result<bool, Damaged> {
        Ok(object.key() == KEY)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(MAPS, key)? else {
            return Ok(Done::Settled);
        };
        let tokens = self.tokens(&view)?;
        if signed(&self.client.read(&self.maps, &object)?, &tokens).is_some() {
            let edit = |old: &Value| signed(old, &tokens);
            gone_is_fine(self.client.change(&self.maps, None, key, edit).await)?;
        }
        Ok(Done::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn a_signature_is_that_of_its_content_and_token() {
        // Computed with another implementation, the key filled up with zeros to 32 bytes.
        assert_eq!(
            signature("apiVersion: v1\n", "abcdef", "0123456789abcdef"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE"
        );
    }

    #[test]
    fn signatures_are_those_of_the_tokens_that_there_are() {
        let map = json!({"data": {SIGNED: "k", "jws-kubeconfig-gone00": "x", "more": "y"}});
        let tokens = BTreeMap::from([("abcdef".to_owned(), "0123456789abcdef".to_owned())]);
        let new = signed(&map, &tokens).unwrap();
        let names: Vec<String> = new["data"]
            .as_object()
            .unwrap()
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(new["data"]["jws-kubeconfig-abcdef"].is_string() && new["data"]["more"] == "y");
        assert!(signed(&new, &tokens).is_none());
        assert!(signed(&json!({"data": {"more": "y"}}), &tokens).is_none());
        assert!(signed(&json!({}), &tokens).is_none());
    }
}
