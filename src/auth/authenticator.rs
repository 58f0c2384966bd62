//! The chain of authenticators: who is it that asks, by what was shown.
//!
//! In kube-apiserver's order: an authenticating proxy, a client certificate, a bearer token (static, of a service account,
//! of a machine that joins, of an issuer elsewhere, known to a webhook), nobody in particular. A credential that is believed decides. One that is not believed is a refusal
//! unless another one is believed: whoever shows something wrong is told so, and is not let in as nobody.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use http::{HeaderMap, header};

use super::certificates::Presented;
use super::front_proxy::FrontProxy;
use super::issuer::{Issuer, digest_of};
use super::legacy_uses::LegacyUses;
use super::oidc::{Asking, Issuers, quoted};
use super::service_accounts::ServiceAccounts;
use super::verified::Digest;
use super::webhook::Webhook;
use super::{Tokens, User, bootstrap_tokens};
use crate::store::Store;

/// A token that a browser shows in place of `Authorization`, as a WebSocket protocol.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// What makes a chain.
#[derive(Debug)]
pub struct AuthenticatorConfig {
    /// Static tokens.
    pub tokens: Tokens,
    /// Signs and proves tokens of service accounts.
    pub issuer: Option<Arc<Issuer>>,
    /// Whether machines may join with bootstrap tokens.
    pub bootstrap_tokens: bool,
    /// The proxy that is believed.
    pub front_proxy: Option<FrontProxy>,
    /// Whether who shows nothing is `system:anonymous`; else such a request is refused. Not said: it is.
    pub anonymous: Option<bool>,
    /// Others whose tokens are believed.
    pub issuers: Issuers,
    /// How long providers of keys are waited for.
    pub asking: Asking,
    /// A webhook that knows tokens.
    pub webhook: Option<Webhook>,
}

impl Default for AuthenticatorConfig {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            issuer: None,
            bootstrap_tokens: true,
            front_proxy: None,
            anonymous: None,
            issuers: Issuers::default(),
            asking: Asking::default(),
            webhook: None,
        }
    }
}

/// The chain.
#[derive(Debug)]
pub struct Authenticator {
    store: Arc<Store>,
    tokens: Tokens,
    service_accounts: Option<ServiceAccounts>,
    bootstrap_tokens: bool,
    front_proxy: Option<FrontProxy>,
    lets_anonymous: Option<bool>,
    issuers: ArcSwap<Issuers>,
    asking: Asking,
    webhook: Option<Webhook>,
    anonymous: Arc<User>,
}

/// A credential was shown, and none is believed. Why is told to nobody but the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthenticated;

/// Whom a token stands for, and for whom it was made.
#[derive(Debug, Clone)]
pub struct Identified {
    /// The user.
    pub user: Arc<User>,
    /// Those of the audiences that were asked for that it is good for.
    pub audiences: Vec<String>,
}

impl Authenticator {
    /// A chain of what is configured, over the objects in `store`.
    pub fn new(store: Arc<Store>, config: AuthenticatorConfig) -> Self {
        Self {
            store,
            tokens: config.tokens,
            service_accounts: config.issuer.map(ServiceAccounts::new),
            bootstrap_tokens: config.bootstrap_tokens,
            front_proxy: config.front_proxy,
            lets_anonymous: config.anonymous,
            issuers: ArcSwap::from_pointee(config.issuers),
            asking: config.asking,
            webhook: config.webhook,
            anonymous: Arc::new(User::anonymous()),
        }
    }

    /// The user without credentials.
    pub fn anonymous(&self) -> &Arc<User> {
        &self.anonymous
    }

    /// Which Secrets' tokens were used.
    pub fn legacy_uses(&self) -> Option<&Arc<LegacyUses>> {
        self.service_accounts.as_ref().map(|accounts| &accounts.uses)
    }

    /// Who signs tokens of service accounts.
    pub fn issuer(&self) -> Option<&Arc<Issuer>> {
        self.service_accounts.as_ref().map(|accounts| &accounts.issuer)
    }

    /// Takes up an AuthenticationConfiguration anew, in place of the one before. Issuers that are asked as before keep their keys.
    ///
    /// # Errors
    /// What is wrong with it; what was before stays.
    pub fn configure(&self, text: &[u8]) -> Result<(), String> {
        let own = self.issuer().map_or(&[][..], |issuer| issuer.urls());
        let next = Issuers::read(text, own, self.asking, Some(&self.issuers.load()))?;
        next.fit(self.lets_anonymous)?;
        self.issuers.store(Arc::new(next));
        Ok(())
    }

    /// Whether who shows nothing gets in at this path.
    fn lets_in(&self, path: &str) -> bool {
        let issuers = self.issuers.load();
        let rule = issuers.anonymous.as_ref();
        rule.map_or(self.lets_anonymous.unwrap_or(true), |rule| rule.lets_in(path))
    }

    /// Who asks, by what the connection and the request show. A digest and a lookup for a bearer token that was
    /// proven before, nothing for a certificate. A token of another issuer may have to wait for its provider.
    ///
    /// # Errors
    /// When something was shown and nothing of it is believed.
    pub async fn authenticate(
        &self,
        certificate: Option<&Presented>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Arc<User>, Unauthenticated> {
        if let Some(presented) = certificate {
            if let Some(proxy) = self.front_proxy.as_ref().filter(|_| presented.vouches(now_s()))
                && let Some(user) = proxy.user(headers)
            {
                return Ok(Arc::new(user));
            }
            if let Some(user) = presented.user(now_s()) {
                return Ok(user.clone());
            }
        }
        match bearer(headers) {
            Some(token) => {
                let found = self.review(&token, &[]).await;
                found.map(|found| found.user).map_err(|why| {
                    tracing::debug!(why, "a bearer token is not believed");
                    Unauthenticated
                })
            }
            None if certificate.is_some_and(|presented| !presented.is_proxy()) || !self.lets_in(path) => {
                Err(Unauthenticated)
            }
            None => Ok(self.anonymous.clone()),
        }
    }

    /// Takes what a proxy said of the user out of a request, once it is known who asks.
    pub fn strip(&self, headers: &mut HeaderMap) {
        if let Some(proxy) = &self.front_proxy {
            proxy.strip(headers);
        }
    }

    /// Whom a bearer token stands for. `audiences`: for whom it must be made, one of them is enough; without any, for this
    /// server.
    ///
    /// # Errors
    /// Why it is not believed, in kube-apiserver's words, which tell who asks by TokenReview and stand in the log.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<Identified, String> {
        const INVALID: &str = "invalid bearer token";
        let mut refused = Vec::new();
        let digest = digest_of(token);
        if let Some(found) = self.known(token, digest, audiences, &mut refused) {
            return Ok(found);
        }
        let issuers = self.issuers.load_full();
        if !issuers.is_empty()
            && let Some(found) = Box::pin(issuers.user(digest, now_s(), token)).await
        {
            match found {
                Ok(user) => {
                    if let Some(audiences) = self.for_own(audiences) {
                        return Ok(Identified { user, audiences });
                    }
                }
                Err(why) => refused.push(why),
            }
        }
        if let Some(webhook) = &self.webhook {
            let own = self.issuer().map_or(&[][..], |issuer| issuer.audiences());
            let asked = if audiences.is_empty() { own } else { audiences };
            match Box::pin(webhook.user(token, asked, own)).await {
                Ok(Some((user, audiences))) => return Ok(Identified { user, audiences }),
                Ok(None) => {}
                Err(why) => refused.push(why),
            }
        }
        if refused.is_empty() {
            return Err(INVALID.into());
        }
        Err(format!("[{INVALID}, {}]", refused.join(", ")))
    }

    /// Those of the audiences that were asked for that are this server's own, for tokens that know of no audiences; `None` when it
    /// is others that are asked for.
    fn for_own(&self, asked: &[String]) -> Option<Vec<String>> {
        let own = self.issuer().map_or(&[][..], |issuer| issuer.audiences());
        let asked = if asked.is_empty() { own } else { asked };
        let audiences: Vec<String> = own.iter().filter(|it| asked.contains(it)).cloned().collect();
        (own.is_empty() || !audiences.is_empty()).then_some(audiences)
    }

    /// Whom a token stands for, if that can be told without asking anybody else. `refused`: what is told of who did not believe
    /// it.
    fn known(
        &self,
        token: &str,
        digest: Digest,
        audiences: &[String],
        refused: &mut Vec<String>,
    ) -> Option<Identified> {
        let own = self.issuer().map_or(&[][..], |issuer| issuer.audiences());
        let asked = if audiences.is_empty() { own } else { audiences };
        let both = |of: &[String]| -> Vec<String> { of.iter().filter(|it| asked.contains(it)).cloned().collect() };
        let for_own = || self.for_own(audiences);
        if let Some(user) = self.tokens.user_of(&digest)
            && let Some(audiences) = for_own()
        {
            return Some(Identified { user, audiences });
        }
        // Before it is taken apart: its issuer was looked at when it was proven, and is none of ours.
        if let Some(user) = self.issuers.load().known(&digest, now_s())
            && let Some(audiences) = for_own()
        {
            return Some(Identified { user, audiences });
        }
        let view = self.store.view();
        if let Some(accounts) = &self.service_accounts
            && let Some(found) = accounts.account(&view, now_s(), token, digest)
        {
            match found {
                Err(why) => refused.push(why),
                Ok(account) => {
                    let fitting = if account.audiences.is_empty() {
                        for_own().unwrap_or_default()
                    } else {
                        both(&account.audiences)
                    };
                    if !fitting.is_empty() {
                        return Some(Identified {
                            user: account.user.clone(),
                            audiences: fitting,
                        });
                    }
                    refused.push(format!(
                        "token audiences {} is invalid for the target audiences {}",
                        quoted(&account.audiences),
                        quoted(asked)
                    ));
                }
            }
            return None;
        }
        if self.bootstrap_tokens
            && let Some(user) = bootstrap_tokens::user(&view, now_s(), token)
            && let Some(audiences) = for_own()
        {
            return Some(Identified {
                user: Arc::new(user),
                audiences,
            });
        }
        None
    }
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// The token of an `Authorization` header, or, for what becomes a WebSocket, of a protocol; `None` where there is none, or none
/// that is a bearer's.
fn bearer(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    if let Some(value) = headers.get(header::AUTHORIZATION)
        && let Some((scheme, token)) = value.to_str().ok()?.trim().split_once(' ')
    {
        let token = token.trim();
        return (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(Cow::Borrowed(token));
    }
    let shown = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut shown = shown
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let token = shown.find_map(|protocol| protocol.trim().strip_prefix(BEARER_PROTOCOL))?;
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).ok()?;
    String::from_utf8(token)
        .ok()
        .filter(|token| !token.is_empty())
        .map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_shows_its_token_as_a_protocol() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        let value = http::HeaderValue::from_static("v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0");
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        assert_eq!(bearer(&headers).as_deref(), Some("secret"));
        headers.insert(header::AUTHORIZATION, http::HeaderValue::from_static("bEARER  other "));
        assert_eq!(bearer(&headers).as_deref(), Some("other"));
        for nothing in ["Bearer", "Bearer ", "Basic Zm9v", "x"] {
            headers.clear();
            headers.insert(header::AUTHORIZATION, http::HeaderValue::from_static(nothing));
            assert_eq!(bearer(&headers), None, "{nothing}");
        }
    }
}
