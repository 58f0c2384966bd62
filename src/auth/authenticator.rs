//! The chain of authenticators: who is it that asks, by what was shown.

use std::sync::Arc;

use http::{HeaderMap, header};

use super::{Tokens, User};

/// What makes a chain.
#[derive(Debug, Default)]
pub struct AuthenticatorConfig {
    /// Static tokens.
    pub tokens: Tokens,
}

/// The chain. A credential that is believed decides; one that is not believed is a refusal unless another one is believed;
/// without any, the caller is `system:anonymous`.
#[derive(Debug)]
pub struct Authenticator {
    tokens: Tokens,
    anonymous: Arc<User>,
}

/// A credential was shown, and none is believed. Why is told to nobody but the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unauthenticated;

/// Whom a client certificate stands for; `Err` when it is not to be believed.
pub type Certified = Result<Arc<User>, ()>;

impl Authenticator {
    /// A chain of what is configured.
    pub fn new(config: AuthenticatorConfig) -> Self {
        Self {
            tokens: config.tokens,
            anonymous: Arc::new(User::anonymous()),
        }
    }

    /// The user without credentials.
    pub fn anonymous(&self) -> &Arc<User> {
        &self.anonymous
    }

    /// Who asks: by the client certificate first, then by the bearer token, else nobody in particular.
    ///
    /// # Errors
    /// When something was shown and nothing of it is believed.
    pub fn authenticate(
        &self,
        certificate: Option<&Certified>,
        headers: &HeaderMap,
    ) -> Result<Arc<User>, Unauthenticated> {
        if let Some(Ok(user)) = certificate {
            return Ok(user.clone());
        }
        match bearer(headers) {
            Some(token) => self.user_of_token(token).ok_or(Unauthenticated),
            None if certificate.is_some() => Err(Unauthenticated),
            None => Ok(self.anonymous.clone()),
        }
    }

    /// The user of a bearer token.
    pub fn user_of_token(&self, token: &str) -> Option<Arc<User>> {
        self.tokens.user(token)
    }
}

/// The token of an `Authorization` header; `None` where there is none, or none that is a bearer's.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
