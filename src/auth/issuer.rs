//! Tokens of service accounts: the keys that sign and prove them, and what they claim.
//!
//! The keys lie in `pki/`: `service-account.key` signs; `service-account.pub` holds the public keys, PEM, that signed before and
//! are still believed. Tokens are signed by ES256; keys are named in tokens and in the key set by the digest of their public
//! half, as kube-apiserver names them.

use std::path::Path;

use rcgen::PublicKeyData as _;
use ring::digest;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use super::jws::{Jwks, PublicKey, Signed, SigningKey, key_id};
use super::pki::{self, PkiError};

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

/// Signs tokens of service accounts, and proves them.
#[derive(Debug)]
pub struct Issuer {
    url: String,
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
    /// The issuer whose keys lie in `dir` (`pki/`); made if they are missing. `audiences` are those that this server itself
    /// answers to; without any, the issuer's URL.
    ///
    /// # Errors
    /// When a file can be neither read nor made, or holds no key.
    pub fn open(dir: &Path, url: &str, audiences: &[String]) -> Result<Self, PkiError> {
        let path = dir.join(KEY_FILE);
        let pair = pki::key_pair(&path)?;
        let id = key_id(&pair.subject_public_key_info());
        let signing = SigningKey::new(&pair.serialize_der(), id.clone());
        let signing = signing.map_err(|error| pki::failed("cannot use", &path, &error))?;
        let mut keys = vec![(id, signing.public())];
        let path = dir.join(OLD_KEYS_FILE);
        for spki in SubjectPublicKeyInfoDer::pem_slice_iter(&pki::read(&path)?.unwrap_or_default()) {
            let spki = spki.map_err(|error| pki::failed("cannot use", &path, &format!("{error:?}")))?;
            let key = PublicKey::of_spki(&spki)
                .ok_or_else(|| pki::failed("cannot use", &path, &"not a public key of RSA, P-256 or P-384"))?;
            let id = key_id(&spki);
            if keys.len() <= KEYS_MAX && keys.iter().all(|(known, _)| *known != id) {
                keys.push((id, key));
            }
        }
        let audiences = if audiences.is_empty() {
            vec![url.to_owned()]
        } else {
            audiences.to_vec()
        };
        Ok(Self {
            url: url.to_owned(),
            audiences,
            signing,
            keys,
        })
    }

    /// Who signs.
    pub fn url(&self) -> &str {
        &self.url
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
        claims.iss.clone_from(&self.url);
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
        if !is_legacy && whose.iss != self.url {
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
            jwks_uri: String,
            response_types_supported: [&'a str; 1],
            subject_types_supported: [&'a str; 1],
            id_token_signing_alg_values_supported: [&'a str; 1],
        }
        let told = Configuration {
            issuer: &self.url,
            jwks_uri: format!("{}/openid/v1/jwks", self.url.trim_end_matches('/')),
            response_types_supported: ["id_token"],
            subject_types_supported: ["public"],
            id_token_signing_alg_values_supported: ["ES256"],
        };
        serde_json::to_string(&told).unwrap_or_default()
    }
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
        let before = Issuer::open(dir.path(), ISSUER, &[]).unwrap();
        let token = before.sign(claims()).unwrap();
        let mut ids = vec![before.signing.id().to_owned()];
        for _ in 0..2 {
            rotate_issuer_key(dir.path()).unwrap();
            let after = Issuer::open(dir.path(), ISSUER, &[]).unwrap();
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
        let ours = Issuer::open(one.path(), ISSUER, &[]).unwrap();
        let theirs = Issuer::open(two.path(), "https://issuer.example", &[]).unwrap();
        assert!(ours.prove(&theirs.sign(claims()).unwrap()).is_none());
        assert!(ours.prove("abc.def.ghi").is_none() && ours.prove("").is_none());
    }
}
