//! Keys in PEM files: those that sign tokens, and those that prove them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use serde::Serialize;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::jws::{Curve, PublicKey, SEQUENCE, der, key_id};

/// Keys of one file that are looked at.
const KEYS_MAX: usize = 64;

/// A key that signs tokens: by ES256, ES384 or RS256, as its kind is.
pub(super) struct SigningKey {
    id: String,
    public: PublicKey,
    pair: Pair,
    random: SystemRandom,
}

enum Pair {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key itself.
        formatter
            .debug_struct("SigningKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The first private key of a PEM text: `PRIVATE KEY`, `EC PRIVATE KEY` or `RSA PRIVATE KEY`.
    ///
    /// # Errors
    /// When there is none, or it is no key of P-256, P-384, or RSA of 2,048 to 4,096 bits.
    pub(super) fn of_pem(pem: &[u8]) -> Result<Self, String> {
        for section in sections(pem) {
            let (kind, der) = section?;
            if let Some(key) = Self::of_section(kind, &der) {
                return key;
            }
        }
        Err("there is no private key in it".into())
    }

    /// `None` for what is no private key.
    fn of_section(kind: SectionKind, document: &[u8]) -> Option<Result<Self, String>> {
        let random = SystemRandom::new();
        let found = match kind {
            SectionKind::PrivateKey => ec(Curve::P256, document, &random)
                .or_else(|| ec(Curve::P384, document, &random))
                .or_else(|| RsaKeyPair::from_pkcs8(document).ok().map(of_rsa)),
            SectionKind::EcPrivateKey => [Curve::P256, Curve::P384]
                .into_iter()
                .find_map(|curve| ec(curve, &pkcs8(curve, document), &random)),
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(document).ok().map(of_rsa),
            _ => return None,
        };
        let key = found.map(|(public, pair)| Self {
            id: key_id(&public),
            public,
            pair,
            random,
        });
        Some(key.ok_or_else(|| "not a private key of P-256, P-384, or RSA of 2,048 to 4,096 bits".into()))
    }

    /// The key that proves what this one signs.
    pub(super) fn public(&self) -> PublicKey {
        self.public.clone()
    }

    /// The name of the key.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// A token of `claims`. Costs a signature.
    ///
    /// # Errors
    /// When claims are no JSON, or the system has no random bytes.
    pub(super) fn sign(&self, claims: &impl Serialize) -> Result<String, String> {
        #[derive(Serialize)]
        struct Head<'a> {
            alg: &'a str,
            kid: &'a str,
        }
        let head = Head {
            alg: self.public.algorithm(),
            kid: &self.id,
        };
        let head = serde_json::to_vec(&head).map_err(|error| error.to_string())?;
        let claims = serde_json::to_vec(claims).map_err(|error| error.to_string())?;
        let mut token = URL_SAFE_NO_PAD.encode(head);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let message = token.as_bytes();
        let signature = match &self.pair {
            Pair::Ec(pair) => pair.sign(&self.random, message).map(|it| it.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &self.random, message, &mut signature)
                    .map(|()| signature)
            }
        };
        let signature = signature.map_err(|_| "the system gives no random bytes".to_owned())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }
}

fn ec(curve: Curve, pkcs8: &[u8], random: &SystemRandom) -> Option<(PublicKey, Pair)> {
    let algorithm = match curve {
        Curve::P256 => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        Curve::P384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
    };
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8, random).ok()?;
    let point = pair.public_key().as_ref().to_vec();
    Some((PublicKey::Ec { curve, point }, Pair::Ec(pair)))
}

fn of_rsa(pair: RsaKeyPair) -> (PublicKey, Pair) {
    let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(pair.public());
    (PublicKey::Rsa { n, e }, Pair::Rsa(pair))
}

/// A key of SEC 1 (RFC 5915) in the wrapping of PKCS #8 (RFC 5208).
fn pkcs8(curve: Curve, sec1: &[u8]) -> Vec<u8> {
    let version = der(0x02, &[0]);
    let algorithm = der(SEQUENCE, curve.identifier());
    der(SEQUENCE, &[version, algorithm, der(0x04, sec1)].concat())
}

/// The public keys of a PEM text, with their names: of public and private keys and of certificates.
///
/// # Errors
/// When there is none, or one cannot be used.
pub(super) fn public_keys(pem: &[u8]) -> Result<Vec<(String, PublicKey)>, String> {
    let mut keys: Vec<(String, PublicKey)> = Vec::new();
    for section in sections(pem) {
        let (kind, der) = section?;
        let unknown = || "not a public key of RSA, P-256 or P-384".to_owned();
        let key = match kind {
            SectionKind::PublicKey => PublicKey::of_spki(&der).ok_or_else(unknown)?,
            SectionKind::Certificate => {
                let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
                PublicKey::of_spki(certificate.public_key().raw).ok_or_else(unknown)?
            }
            kind => match SigningKey::of_section(kind, &der) {
                Some(key) => key?.public(),
                None => continue,
            },
        };
        let id = key_id(&key);
        if keys.iter().all(|(known, _)| *known != id) {
            keys.push((id, key));
        }
    }
    if keys.is_empty() {
        return Err("there is no key of RSA or ECDSA in it".into());
    }
    Ok(keys)
}

fn sections(pem: &[u8]) -> impl Iterator<Item = Result<(SectionKind, Vec<u8>), String>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem)
        .take(KEYS_MAX)
        .map(|section| section.map_err(|error| format!("{error:?}")))
}

#[cfg(test)]
mod tests {
    use super::super::jws::Signed;
    use super::*;

    /// `openssl ecparam -name NAME -genkey -noout`, `openssl genrsa [-traditional] 2048`, and PKCS #8 of rcgen.
    const RSA: &str = include_str!("testdata/rsa.pem");
    const RSA_TRADITIONAL: &str = include_str!("testdata/rsa-traditional.pem");
    const P256: &str = include_str!("testdata/p256.pem");
    const P384: &str = include_str!("testdata/p384.pem");
    const P521: &str = include_str!("testdata/p521.pem");

    #[test]
    fn each_kind_of_key_signs_and_its_public_half_proves_it() {
        for (pem, algorithm) in [
            (RSA, "RS256"),
            (RSA_TRADITIONAL, "RS256"),
            (P256, "ES256"),
            (P384, "ES384"),
        ] {
            let key = SigningKey::of_pem(pem.as_bytes()).unwrap();
            let token = key.sign(&["claims"]).unwrap();
            let signed = Signed::parse(&token).unwrap();
            assert_eq!(signed.algorithm, algorithm);
            let told = public_keys(pem.as_bytes()).unwrap();
            assert_eq!(told[0].0, signed.key_id);
            assert!(signed.is_by(&told[0].1), "{algorithm}");
            let other = PublicKey::of_spki(&told[0].1.spki()).unwrap();
            assert_eq!(other, told[0].1, "{algorithm}");
        }
    }

    #[test]
    fn what_is_no_such_key_is_told() {
        for (pem, why) in [
            (P521, "not a private key of P-256"),
            ("", "no private key"),
            (
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "not a private key of P-256",
            ),
        ] {
            let told = SigningKey::of_pem(pem.as_bytes()).unwrap_err();
            assert!(told.contains(why), "{told}");
            public_keys(pem.as_bytes()).unwrap_err();
        }
    }
}
