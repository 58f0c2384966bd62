//! Signed JSON (RFC 7515, compact form): taking it apart, making it, and the keys for both (RFC 7517, 7518).
//!
//! The algorithms are those of kube-apiserver's service account and OIDC tokens that ring has. `none` and the symmetric ones
//! are not among them: a public key must never serve as a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey as X509Key;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The longest token that is looked at, bytes. Headers of requests are bounded anyway; bodies of TokenReviews are not as tightly.
const TOKEN_MAX: usize = 64 * 1024;

/// A token that was taken apart. Nothing of it is proven until [`Signed::is_by`] says so.
#[derive(Debug)]
pub(super) struct Signed<'a> {
    /// How it says it is signed, e.g. `ES256`.
    pub(super) algorithm: String,
    /// The key that it says it is signed with; may be empty.
    pub(super) key_id: String,
    /// The JSON that is signed.
    pub(super) payload: Vec<u8>,
    message: &'a [u8],
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    crit: Option<Vec<String>>,
}

impl<'a> Signed<'a> {
    /// Takes a token apart; `None` for what is none.
    pub(super) fn parse(token: &'a str) -> Option<Self> {
        if token.len() > TOKEN_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        // Who asks for extensions to be understood means it (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return None;
        }
        Some(Self {
            algorithm: header.alg,
            key_id: header.kid,
            payload: URL_SAFE_NO_PAD.decode(payload).ok()?,
            message: message.as_bytes(),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// Whether `key` signed it.
    pub(super) fn is_by(&self, key: &PublicKey) -> bool {
        match key {
            PublicKey::Ec { curve, point } => {
                let algorithm: &signature::EcdsaVerificationAlgorithm = match (curve, self.algorithm.as_str()) {
                    (Curve::P256, "ES256") => &signature::ECDSA_P256_SHA256_FIXED,
                    (Curve::P384, "ES384") => &signature::ECDSA_P384_SHA384_FIXED,
                    _ => return false,
                };
                let key = UnparsedPublicKey::new(algorithm, point);
                key.verify(self.message, &self.signature).is_ok()
            }
            PublicKey::Rsa { n, e } => {
                let parameters = match self.algorithm.as_str() {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
                    "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
                    "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
                    "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return false,
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, self.message, &self.signature).is_ok()
            }
        }
    }
}

/// A curve of NIST's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
}

impl Curve {
    /// The DER of an AlgorithmIdentifier of keys on it, without the sequence's head.
    pub(super) fn identifier(self) -> &'static [u8] {
        match self {
            Self::P256 => &[
                0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7,
            ],
            Self::P384 => &[
                0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 5, 0x2b, 0x81, 0x04, 0, 0x22,
            ],
        }
    }
}

/// The tag of a sequence in DER.
pub(super) const SEQUENCE: u8 = 0x30;

/// A value of DER (X.690): tag, length, content.
pub(super) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.iter().copied().skip_while(|byte| *byte == 0).collect();
    let mut value = vec![tag];
    if content.len() >= 0x80 {
        value.push(0x80 | length.len() as u8);
        value.extend(length);
    } else {
        value.push(content.len() as u8);
    }
    value.extend(content);
    value
}

/// A positive number in DER, of its big-endian bytes.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let leads = bytes.first().is_none_or(|byte| byte & 0x80 != 0);
    let sign: &[u8] = if leads { &[0] } else { &[] };
    der(0x02, &[sign, bytes].concat())
}

/// A key that proves signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// Of ECDSA: a point, uncompressed.
    Ec { curve: Curve, point: Vec<u8> },
    /// Of RSA: modulus and exponent, without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

/// A key as a JWKS tells it (RFC 7517). Members that are not of the key's kind are left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Jwk {
    #[serde(rename = "use", default, skip_serializing_if = "String::is_empty")]
    pub(super) used_for: String,
    #[serde(default)]
    pub(super) kty: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) kid: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) crv: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) alg: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) x: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) y: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) n: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) e: String,
}

/// A set of keys.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Jwks {
    pub(super) keys: Vec<Jwk>,
}

impl PublicKey {
    /// The key of a SubjectPublicKeyInfo; `None` for kinds of keys that are not known here.
    pub(super) fn of_spki(der: &[u8]) -> Option<Self> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        match info.parsed().ok()? {
            X509Key::RSA(key) => {
                let trimmed = |bytes: &[u8]| bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
                Some(Self::Rsa {
                    n: trimmed(key.modulus),
                    e: trimmed(key.exponent),
                })
            }
            X509Key::EC(point) => Self::of_point(point.data().to_vec()),
            _ => None,
        }
    }

    fn of_point(point: Vec<u8>) -> Option<Self> {
        let curve = match (point.first(), point.len()) {
            (Some(4), 65) => Curve::P256,
            (Some(4), 97) => Curve::P384,
            _ => return None,
        };
        Some(Self::Ec { curve, point })
    }

    /// The key that a JWKS tells; `None` for kinds of keys that are not known here, and for encryption.
    pub(super) fn of_jwk(jwk: &Jwk) -> Option<Self> {
        if !matches!(jwk.used_for.as_str(), "" | "sig") {
            return None;
        }
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("RSA", _) => Some(Self::Rsa {
                n: bytes(&jwk.n)?.into_iter().skip_while(|byte| *byte == 0).collect(),
                e: bytes(&jwk.e)?.into_iter().skip_while(|byte| *byte == 0).collect(),
            }),
            ("EC", "P-256" | "P-384") => {
                let mut point = vec![4];
                point.extend(bytes(&jwk.x)?);
                point.extend(bytes(&jwk.y)?);
                Self::of_point(point)
            }
            _ => None,
        }
    }

    /// The algorithm that its owner signs tokens with.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::Ec { curve: Curve::P256, .. } => "ES256",
            Self::Ec { curve: Curve::P384, .. } => "ES384",
            Self::Rsa { .. } => "RS256",
        }
    }

    /// The key as a SubjectPublicKeyInfo (RFC 5280, 4.1; RFC 3279, 2.3), DER.
    pub(super) fn spki(&self) -> Vec<u8> {
        const RSA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 0x05, 0];
        let (algorithm, key) = match self {
            Self::Ec { curve, point } => (der(SEQUENCE, curve.identifier()), point.clone()),
            Self::Rsa { n, e } => {
                let numbers = [integer(n), integer(e)].concat();
                (der(SEQUENCE, RSA), der(SEQUENCE, &numbers))
            }
        };
        let key = der(0x03, &[&[0], key.as_slice()].concat());
        der(SEQUENCE, &[algorithm, key].concat())
    }

    /// The key as a JWKS tells it, under the name `id`.
    pub(super) fn jwk(&self, id: &str) -> Jwk {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let shared = Jwk {
            used_for: "sig".into(),
            kid: id.to_owned(),
            ..Jwk::default()
        };
        match self {
            Self::Ec { curve, point } => {
                let crv = match curve {
                    Curve::P256 => "P-256",
                    Curve::P384 => "P-384",
                };
                let (x, y) = point[1..].split_at(point.len() / 2);
                Jwk {
                    kty: "EC".into(),
                    crv: crv.into(),
                    alg: self.algorithm().into(),
                    x: text(x),
                    y: text(y),
                    ..shared
                }
            }
            Self::Rsa { n, e } => Jwk {
                kty: "RSA".into(),
                alg: self.algorithm().into(),
                n: text(n),
                e: text(e),
                ..shared
            },
        }
    }
}

/// The name of a key: the digest of its SubjectPublicKeyInfo, as kube-apiserver names keys.
pub(super) fn key_id(key: &PublicKey) -> String {
    URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, &key.spki()))
}

#[cfg(test)]
mod tests {
    use super::super::signing::SigningKey;
    use super::*;

    fn key() -> SigningKey {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        SigningKey::of_pem(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_key_is_written_down_as_others_write_it() {
        let pair = rcgen::KeyPair::generate().unwrap();
        let spki = rcgen::PublicKeyData::subject_public_key_info(&pair);
        assert_eq!(PublicKey::of_spki(&spki).unwrap().spki(), spki);
    }

    #[test]
    fn a_token_is_by_the_key_that_signed_it_and_by_no_other() {
        let (one, other) = (key(), key());
        let token = one.sign(&[1, 2]).unwrap();
        let signed = Signed::parse(&token).unwrap();
        assert_eq!(
            (signed.payload.as_slice(), signed.key_id.as_str()),
            (&b"[1,2]"[..], one.id())
        );
        assert!(signed.is_by(&one.public()) && !signed.is_by(&other.public()));
        let told = PublicKey::of_jwk(&one.public().jwk("k")).unwrap();
        assert_eq!(told, one.public());
    }

    #[test]
    fn a_changed_payload_another_algorithm_and_none_are_not_believed() {
        let key = key();
        let token = key.sign(&[1]).unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        let head = |alg: &str| URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"{alg}\"}}"));
        let changed = URL_SAFE_NO_PAD.encode("[2]");
        for forged in [
            format!("{}.{changed}.{}", parts[0], parts[2]),
            format!("{}.{}.", head("none"), parts[1]),
            format!("{}.{}.{}", head("HS256"), parts[1], parts[2]),
            format!("{}.{}.{}", head("RS256"), parts[1], parts[2]),
        ] {
            let signed = Signed::parse(&forged).unwrap();
            assert!(!signed.is_by(&key.public()), "{forged}");
        }
        for rubbish in ["", ".", "..", "a.b", "a.b.c", "é.é.é"] {
            assert!(Signed::parse(rubbish).is_none(), "{rubbish}");
        }
    }
}
