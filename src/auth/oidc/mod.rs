//! Tokens that others signed: OpenID Connect, by flags or by an AuthenticationConfiguration file.
//!
//! `configuration` is the file, `checks` what it has to be like, `claims` makes a user of what a token says, `provider` and `keys`
//! bring the keys that prove it, `follow` looks whether the file has changed.

mod checks;
mod claims;
mod configuration;
mod flags;
mod follow;
mod keys;
mod provider;

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::certificates::certificates;
use super::issuer::one_or_many;
use super::jws::Signed;
use super::user::User;
use super::verified::{Digest, Verified};
use crate::remote::system_roots;
use crate::tree::Value;
use claims::Plan;
use configuration::{Anonymous, Configuration, IssuerSection};
use keys::KeySet;
use provider::Provider;

pub use flags::OidcFlags;
pub use follow::Follower;

/// Where a token's own name stands in a user's extras.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// How long before its time a token is taken, seconds: clocks differ.
const EARLY_S: i64 = 60;
/// All algorithms that there are for tokens; kube-apiserver's are these and ES512.
pub(super) const ALGORITHMS: [&str; 8] = ["ES256", "ES384", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"];

/// How long providers of keys are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    /// For an answer.
    pub within: Duration,
    /// Between two questions to one provider, whatever keys tokens name: whoever makes up names makes no load by it.
    pub pause: Duration,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(10),
            pause: Duration::from_secs(10),
        }
    }
}

/// Issuers whose tokens are believed, and what else an AuthenticationConfiguration says.
#[derive(Debug, Default)]
pub struct Issuers {
    issuers: Vec<JwtIssuer>,
    /// Who shows nothing; `None` when nothing is said of it.
    pub(super) anonymous: Option<AnonymousRule>,
    /// Tokens that were proven: 4,096 of them at most, of 300 bytes and the texts of a user each, commonly 4 MiB in all.
    verified: Verified<Proven>,
}

/// Where who shows nothing gets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AnonymousRule {
    enabled: bool,
    /// None: everywhere.
    paths: Vec<String>,
}

impl AnonymousRule {
    /// Whether who shows nothing gets in at this path.
    pub(super) fn lets_in(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|one| one == path))
    }
}

impl From<&Anonymous> for AnonymousRule {
    fn from(told: &Anonymous) -> Self {
        Self {
            enabled: told.enabled,
            paths: told.conditions.iter().map(|condition| condition.path.clone()).collect(),
        }
    }
}

#[derive(Debug)]
struct JwtIssuer {
    section: IssuerSection,
    algorithms: Vec<String>,
    plan: Plan,
    keys: Arc<KeySet>,
}

/// A token that was proven.
#[derive(Debug)]
struct Proven {
    user: Arc<User>,
    /// From when to when, Unix seconds.
    begins_s: i64,
    ends_s: i64,
    /// The issuer's place, and which keys it had.
    issuer: usize,
    generation: u64,
}

/// What has to hold for every token (OpenID Connect Core 1.0, 2).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IdToken {
    iss: String,
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    exp: f64,
    nbf: f64,
}

impl Issuers {
    /// Those of a configuration. What is the same as in `before` keeps its keys. `own`: issuers of service accounts' tokens.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    fn new(
        configuration: &Configuration,
        algorithms: &[String],
        own: &[String],
        asking: Asking,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let plans = checks::plans(configuration, own)?;
        let mut issuers = Vec::new();
        for (plan, authenticator) in plans.into_iter().zip(&configuration.jwt) {
            let section = &authenticator.issuer;
            let known = before.and_then(|before| before.issuers.iter().find(|known| known.section.asks_as(section)));
            let keys = if let Some(known) = known {
                known.keys.clone()
            } else {
                let roots = match section.certificate_authority.as_str() {
                    "" => system_roots(),
                    pem => certificates(pem.as_bytes())?,
                };
                let provider = Provider::new(&section.url, &section.discovery_url, roots, asking.within)?;
                KeySet::new(provider, asking.pause)
            };
            issuers.push(JwtIssuer {
                section: section.clone(),
                algorithms: algorithms.to_vec(),
                plan,
                keys,
            });
        }
        Ok(Self {
            issuers,
            anonymous: configuration.anonymous.as_ref().map(AnonymousRule::from),
            verified: Verified::default(),
        })
    }

    /// Those of a file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &[u8], own: &[String], asking: Asking, before: Option<&Self>) -> Result<Self, String> {
        let all: Vec<String> = ALGORITHMS.map(str::to_owned).to_vec();
        Self::new(&Configuration::read(text)?, &all, own, asking, before)
    }

    /// Whether what is said of who shows nothing is said once.
    ///
    /// # Errors
    /// kube-apiserver's sentence, when a flag says something of it, too.
    pub(super) fn fit(&self, flag: Option<bool>) -> Result<(), String> {
        if self.anonymous.is_some() && flag.is_some() {
            return Err("--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration \
                        file"
                .into());
        }
        Ok(())
    }

    /// Whether there is no issuer.
    pub(super) fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// The user of a token that was proven before and is good still.
    pub(super) fn known(&self, digest: &Digest, now_s: i64) -> Option<Arc<User>> {
        if self.issuers.is_empty() {
            return None;
        }
        let proven = self.verified.get(digest)?;
        let generation = self.issuers.get(proven.issuer)?.keys.generation();
        if proven.generation == generation && (proven.begins_s - EARLY_S..=proven.ends_s).contains(&now_s) {
            return Some(proven.user.clone());
        }
        self.verified.remove(digest);
        None
    }

    /// The user of a token; `None` for one of none of these issuers. Costs the proof of a signature, and the wait for the
    /// provider if it has to be asked.
    ///
    /// # Errors
    /// Why it is not believed.
    pub(super) async fn user(&self, digest: Digest, now_s: i64, token: &str) -> Option<Result<Arc<User>, String>> {
        let signed = Signed::parse(token)?;
        let token: IdToken = serde_json::from_slice(&signed.payload).ok()?;
        // What Google's tokens were signed as in the beginning.
        let told = match token.iss.as_str() {
            "accounts.google.com" => "https://accounts.google.com",
            told => told,
        };
        let issuer = self.issuers.iter().position(|issuer| issuer.section.url == told)?;
        let proven = self.prove(issuer, &signed, &token, now_s).await;
        Some(proven.map(|proven| {
            let user = proven.user.clone();
            self.verified.insert(digest, Arc::new(proven));
            user
        }))
    }

    async fn prove(&self, at: usize, signed: &Signed<'_>, token: &IdToken, now_s: i64) -> Result<Proven, String> {
        let issuer = &self.issuers[at];
        let failed = |why: String| format!("oidc: verify token: {why}");
        issuer.check(signed, token, now_s).map_err(failed)?;
        let generation = issuer.keys.prove(signed).await.map_err(failed)?;
        let claims: Value =
            serde_json::from_slice(&signed.payload).map_err(|error| format!("oidc: parse claims: {error}"))?;
        Ok(Proven {
            user: Arc::new(issuer.plan.user(&claims)?),
            begins_s: token.nbf as i64,
            ends_s: token.exp as i64,
            issuer: at,
            generation,
        })
    }
}

impl JwtIssuer {
    /// What can be said of a token before its signature is looked at.
    fn check(&self, signed: &Signed<'_>, token: &IdToken, now_s: i64) -> Result<(), String> {
        let wanted = &self.section.audiences;
        if !token.aud.iter().any(|audience| wanted.contains(audience)) {
            return Err(match wanted.as_slice() {
                [one] => format!("oidc: expected audience {one:?} got {}", quoted(&token.aud)),
                many => format!("oidc: expected audience in {} got {}", quoted(many), quoted(&token.aud)),
            });
        }
        let time = |seconds: i64| {
            let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
            time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
        };
        if (token.exp as i64) < now_s {
            let ended = time(token.exp as i64);
            return Err(format!("oidc: token is expired (Token Expiry: {ended})"));
        }
        if now_s + EARLY_S < token.nbf as i64 {
            let (now, begins) = (time(now_s), time(token.nbf as i64));
            return Err(format!(
                "oidc: current time {now} before the nbf (not before) time: {begins}"
            ));
        }
        if !self.algorithms.contains(&signed.algorithm) {
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected {} got {:?}",
                quoted(&self.algorithms),
                signed.algorithm
            ));
        }
        Ok(())
    }
}

impl IssuerSection {
    /// Whether keys are asked for at the same place in the same way.
    fn asks_as(&self, other: &Self) -> bool {
        self.url == other.url
            && self.discovery_url == other.discovery_url
            && self.certificate_authority == other.certificate_authority
    }
}

/// A list as Go's `%q` shows one.
pub(super) fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

/// The keys of a JWKS, for what attacks their reader.
pub(super) fn keys_of(document: &[u8]) -> Result<provider::Keys, String> {
    provider::keys(document)
}

/// Makes users of claims by every issuer of a configuration, twice: the same both times.
pub(super) fn attack(configuration: &[u8], claims: &[u8]) {
    let Ok(read) = Configuration::read(configuration) else {
        return;
    };
    let Ok(plans) = checks::plans(&read, &[]) else { return };
    let claims: Value = serde_json::from_slice(claims).unwrap_or_default();
    for plan in &plans {
        let made = plan.user(&claims);
        assert_eq!(made, plan.user(&claims));
        assert!(made.is_err() || made.is_ok_and(|user| !user.name.is_empty()));
    }
}
