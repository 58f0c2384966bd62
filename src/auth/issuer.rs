//! Tokens of service accounts: the keys that sign and prove them, and what they claim.
//!
//! Unless flags name others, the keys lie in `pki/`: `service-account.key` signs; `service-account.pub` holds the public keys,
//! PEM, that signed before and are still believed. Tokens are signed as the kind of the key is, by ES256 with the key that is made
//! here; keys are named in tokens and in the key set by the digest of their public half, as kube-apiserver names them.

use std::path::{Path, PathBuf};

use ring::digest;
use serde::{Deserialize, Serialize};

use super::jws::{Jwks, PublicKey, Signed};
use super::pki::{self, PkiError};
use super::signing::{SigningKey, public_keys};

/// Who signs, unless told otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// Who signed the tokens that lie in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// How far clocks may be apart, seconds: what a token's times are judged with.
pub(super) const LEEWAY_S: i64 = 60;
/// Public keys of before that are believed, the newest ones.
const KEYS_MAX: usize = 16;

/// File of the key that signs.
pub(super) const KEY_FILE: &str = "service-account.key";
/// File of the keys that signed before.
pub(super) const OLD_KEYS_FILE: &str = "service-account.pub";

/// How tokens of service accounts are made and believed, in kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct IssuerOptions {
    /// Who signs (`--service-account-issuer`): the first is named in new tokens, all are believed. None: [`ISSUER`].
    pub issuers: Vec<String>,
    /// Files of more keys that are believed (`--service-account-key-file`).
    pub key_files: Vec<PathBuf>,
    /// The key that signs (`--service-account-signing-key-file`), in place of that in `pki/`.
    pub signing_key_file: Option<PathBuf>,
    /// For whom tokens must be to be good here (`--api-audiences`). None: the issuers.
    pub audiences: Vec<String>,
    /// Where others are told to find the keys (`--service-account-jwks-uri`), in place of the issuer's `/openid/v1/jwks`.
    pub jwks_uri: Option<String>,
    /// The longest life of a token, seconds (`--service-account-max-token-expiration`).
    pub life_s_max: Option<i64>,
    /// Whether tokens of Pods live on beyond what their volumes ask for (`--service-account-extend-token-expiration`).
    pub extends: bool,
}

impl Default for IssuerOptions {
    fn default() -> Self {
        Self {
            issuers: Vec::new(),
            key_files: Vec::new(),
            signing_key_file: None,
            audiences: Vec::new(),
            jwks_uri: None,
            life_s_max: None,
            extends: true,
        }
    }
}

impl IssuerOptions {
    /// Who signs.
    pub(super) fn urls(&self) -> Vec<String> {
        if self.issuers.is_empty() {
            vec![ISSUER.to_owned()]
        } else {
            self.issuers.clone()
        }
    }
}

/// Signs tokens of service accounts, and proves them.
#[derive(Debug)]
pub struct Issuer {
    /// The first is named in new tokens; never empty.
    urls: Vec<String>,
    jwks_uri: String,
    life_s_max: Option<i64>,
    extends: bool,
    audiences: Vec<String>,
    signing: SigningKey,
    /// By their names; the first is that which signs.
    keys: Vec<(String, PublicKey)>,
}

/// What a token stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claims {
    /// For whom the token is.
    #[serde(deserialize_with = "one_or_many")]
    pub aud: Vec<String>,
    /// When it ends, Unix seconds.
    pub exp: i64,
    /// When it was made.
    pub iat: i64,
    /// Who made it.
    pub iss: String,
    /// Its own name, a UUID.
    pub jti: String,
    /// What it stands for.
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: Bound,
    /// When it begins.
    pub nbf: i64,
    /// The user's name.
    pub sub: String,
}

/// The objects that a token stands for: it is good while they are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bound {
    /// The service account's namespace, and of what else lies in one.
    pub namespace: String,
    /// A node: that which the Pod is on, or the only thing that is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Named>,
    /// A Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Named>,
    /// A Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Named>,
    /// The service account.
    pub serviceaccount: Named,
    /// From when on its use is told about, Unix seconds; 0: never.
    #[serde(skip_serializing_if = "is_zero")]
    pub warnafter: i64,
}

/// One object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its UID; may be empty for the node of a Pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What a token in a Secret claims.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct LegacyClaims {
    iss: String,
    /// The namespace.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub namespace: String,
    /// The Secret that holds it.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub secret: String,
    /// The service account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub name: String,
    /// The service account's UID.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub uid: String,
    sub: String,
}

/// A token that one of our keys signed.
#[derive(Debug)]
pub(super) enum Proven {
    Bound(Box<Claims>),
    Legacy(LegacyClaims),
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// `aud` is one text or a list of them (RFC 7519, 4.1.3).
pub(super) fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::One(one) => vec![one],
        Either::Many(many) => many,
    })
}

impl Issuer {
    /// The issuer whose keys lie in `dir` (`pki/`), where one is made if it is missing, or in the files that `options` name.
    ///
    /// # Errors
    /// When a file can be neither read nor made, or holds no key.
    pub fn open(dir: &Path, options: &IssuerOptions) -> Result<Self, PkiError> {
        let unusable = |path: &Path, why: String| pki::failed("cannot use", path, &why);
        let (path, pem) = if let Some(path) = &options.signing_key_file {
            (path.clone(), must_read(path)?)
        } else {
            let path = dir.join(KEY_FILE);
            let pem = pki::key_pair(&path)?.serialize_pem().into_bytes();
            (path, pem)
        };
        let signing = SigningKey::of_pem(&pem).map_err(|why| unusable(&path, why))?;
        let mut keys = vec![(signing.id().to_owned(), signing.public())];
        let mut add = |more: Vec<(String, PublicKey)>, max: usize| {
            for (id, key) in more {
                if keys.len() <= max && keys.iter().all(|(known, _)| *known != id) {
                    keys.push((id, key));
                }
            }
        };
        for path in &options.key_files {
            let more = public_keys(&must_read(path)?).map_err(|why| unusable(path, why))?;
            add(more, usize::MAX);
        }
        let path = dir.join(OLD_KEYS_FILE);
        let before = pki::read(&path)?.filter(|pem| options.signing_key_file.is_none() && !pem.is_empty());
        if let Some(pem) = before {
            add(public_keys(&pem).map_err(|why| unusable(&path, why))?, KEYS_MAX);
        }
        let urls = options.urls();
        let audiences = if options.audiences.is_empty() {
            urls.clone()
        } else {
            options.audiences.clone()
        };
        let jwks_uri = options.jwks_uri.clone();
        Ok(Self {
            jwks_uri: jwks_uri.unwrap_or_else(|| format!("{}/openid/v1/jwks", urls[0].trim_end_matches('/'))),
            urls,
            life_s_max: options.life_s_max,
            extends: options.extends,
            audiences,
            signing,
            keys,
        })
    }

    /// Who signs.
    pub fn url(&self) -> &str {
        &self.urls[0]
    }

    /// All whose tokens are believed here as those of service accounts.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The longest life of a token, seconds, where there is a bound.
    pub fn life_s_max(&self) -> Option<i64> {
        self.life_s_max
    }

    /// Whether tokens of Pods live on beyond what their volumes ask for.
    pub fn extends(&self) -> bool {
        self.extends
    }

    /// The audiences of this server itself.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// A token of these claims; the issuer is filled in.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn sign(&self, mut claims: Claims) -> Result<String, String> {
        claims.iss.clone_from(&self.urls[0]);
        self.signing.sign(&claims)
    }

    /// The token that a Secret holds.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn sign_legacy(&self, namespace: &str, account: &Named, secret: &str) -> Result<String, String> {
        self.signing.sign(&LegacyClaims {
            iss: LEGACY_ISSUER.into(),
            namespace: namespace.into(),
            secret: secret.into(),
            name: account.name.clone(),
            uid: account.uid.clone(),
            sub: format!("system:serviceaccount:{namespace}:{}", account.name),
        })
    }

    /// The claims of a token that is ours; `None` for one of another issuer, and for what is no token.
    ///
    /// # Errors
    /// When it says that it is ours and no key of ours signed it.
    pub(super) fn prove(&self, token: &str) -> Option<Result<Proven, String>> {
        #[derive(Deserialize)]
        struct Whose {
            #[serde(default)]
            iss: String,
        }
        let signed = Signed::parse(token)?;
        let whose: Whose = serde_json::from_slice(&signed.payload).ok()?;
        let is_legacy = whose.iss == LEGACY_ISSUER;
        if !is_legacy && !self.urls.contains(&whose.iss) {
            return None;
        }
        let mut named = self
            .keys
            .iter()
            .filter(|(id, _)| signed.key_id.is_empty() || *id == signed.key_id);
        if !named.any(|(_, key)| signed.is_by(key)) {
            return Some(Err("go-jose/go-jose: error in cryptographic primitive".into()));
        }
        let unusable = |error: serde_json::Error| format!("the claims cannot be read: {error}");
        Some(if is_legacy {
            serde_json::from_slice(&signed.payload)
                .map(Proven::Legacy)
                .map_err(unusable)
        } else {
            serde_json::from_slice(&signed.payload)
                .map(|claims| Proven::Bound(Box::new(claims)))
                .map_err(unusable)
        })
    }

    /// The public keys, as `/openid/v1/jwks` tells them.
    pub fn key_set(&self) -> String {
        let keys = self.keys.iter().map(|(id, key)| key.jwk(id)).collect();
        serde_json::to_string(&Jwks { keys }).unwrap_or_default()
    }

    /// What `/.well-known/openid-configuration` tells (OpenID Connect Discovery 1.0).
    pub fn configuration(&self) -> String {
        #[derive(Serialize)]
        struct Configuration<'a> {
            issuer: &'a str,
            jwks_uri: &'a str,
            response_types_supported: [&'a str; 1],
            subject_types_supported: [&'a str; 1],
            id_token_signing_alg_values_supported: Vec<&'a str>,
        }
        let mut algorithms: Vec<&str> = self.keys.iter().map(|(_, key)| key.algorithm()).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let told = Configuration {
            issuer: self.url(),
            jwks_uri: &self.jwks_uri,
            response_types_supported: ["id_token"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: algorithms,
        };
        serde_json::to_string(&told).unwrap_or_default()
    }
}

fn must_read(path: &Path) -> Result<Vec<u8>, PkiError> {
    pki::read(path)?.ok_or_else(|| pki::failed("cannot read", path, &"there is no such file"))
}

/// Makes a new key that signs and keeps the old one's public half, so that tokens of it stay good. A server that runs takes it
/// up when it is started again.
///
/// # Errors
/// When a file can be neither read nor written.
pub fn rotate_issuer_key(dir: &Path) -> Result<(), PkiError> {
    let path = dir.join(KEY_FILE);
    let old = pki::key_pair(&path)?;
    let old_keys = dir.join(OLD_KEYS_FILE);
    let mut kept = old.public_key_pem();
    kept.push_str(&String::from_utf8_lossy(&pki::read(&old_keys)?.unwrap_or_default()));
    // The newest first; what is beyond the bound signed tokens that ended long ago.
    let end = kept
        .match_indices("-----END")
        .nth(KEYS_MAX - 1)
        .and_then(|(at, _)| kept[at..].find('\n').map(|end| at + end + 1));
    kept.truncate(end.unwrap_or(kept.len()));
    pki::write(&old_keys, kept.as_bytes(), 0o644)?;
    let new = rcgen::KeyPair::generate().map_err(|error| pki::failed("cannot make", &path, &error))?;
    pki::write(&path, new.serialize_pem().as_bytes(), 0o600)
}

/// The SHA-256 of a token: what it is known by.
pub(super) fn digest_of(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        Claims {
            aud: vec!["a".into()],
            exp: 10,
            sub: "system:serviceaccount:n:s".into(),
            ..Claims::default()
        }
    }

    #[test]
    fn tokens_of_a_key_that_was_rotated_away_are_still_proven() {
        let dir = tempfile::tempdir().unwrap();
        let before = Issuer::open(dir.path(), &IssuerOptions::default()).unwrap();
        let token = before.sign(claims()).unwrap();
        let mut ids = vec![before.signing.id().to_owned()];
        for _ in 0..2 {
            rotate_issuer_key(dir.path()).unwrap();
            let after = Issuer::open(dir.path(), &IssuerOptions::default()).unwrap();
            ids.insert(0, after.signing.id().to_owned());
            let known: Vec<String> = after.keys.iter().map(|(id, _)| id.clone()).collect();
            assert_eq!(known, ids);
            let Some(Ok(Proven::Bound(proven))) = after.prove(&token) else {
                panic!("not proven")
            };
            assert_eq!(proven.sub, "system:serviceaccount:n:s");
            // What was signed later is unknown to the keys of before.
            assert!(matches!(before.prove(&after.sign(claims()).unwrap()), Some(Err(_))));
        }
    }

    #[test]
    fn tokens_of_others_are_none_of_ours() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = Issuer::open(one.path(), &IssuerOptions::default()).unwrap();
        let theirs = {
            let issuers = vec!["https://issuer.example".to_owned()];
            let options = IssuerOptions {
                issuers,
                ..IssuerOptions::default()
            };
            Issuer::open(two.path(), &options).unwrap()
        };
        assert!(ours.prove(&theirs.sign(claims()).unwrap()).is_none());
        assert!(ours.prove("abc.def.ghi").is_none() && ours.prove("").is_none());
    }
}
