//! How TLS is spoken with clients.

use std::sync::Arc;

use rustls::crypto::ring::cipher_suite as suites;
use rustls::{ServerConfig, SupportedCipherSuite};
use tokio_rustls::TlsAcceptor;

use crate::auth::{CertificateFiles, ClientCertificates, Serving};

/// Which certificates are shown, and how TLS is spoken.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Host names and addresses for the server's own certificate besides those that it has anyhow.
    pub names: Vec<String>,
    /// Certificates of an operator's.
    pub files: CertificateFiles,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Suites of TLS 1.2, by their names in Go; empty: all safe ones. Those of TLS 1.3 are always there, as in Go.
    pub suites: Vec<String>,
}

/// A version of TLS, by its name in kube-apiserver's flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    #[default]
    Tls12,
    /// 1.3
    Tls13,
}

/// Suites by their names in Go.
const SUITES: &[(&str, SupportedCipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", suites::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suites::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suites::TLS13_CHACHA20_POLY1305_SHA256),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

impl TlsOptions {
    /// Whether a suite is one that is spoken.
    ///
    /// # Errors
    /// A sentence with those that are.
    pub fn check_suite(name: &str) -> Result<(), String> {
        if SUITES.iter().any(|(known, _)| *known == name) {
            return Ok(());
        }
        let known: Vec<&str> = SUITES.iter().map(|(known, _)| *known).collect();
        Err(format!(
            "not a suite that is spoken; safe ones are {}",
            known.join(", ")
        ))
    }

    fn suites(&self) -> Result<Vec<SupportedCipherSuite>, String> {
        let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        let mut chosen: Vec<SupportedCipherSuite> = SUITES.iter().map(|(_, suite)| *suite).filter(is_13).collect();
        for name in &self.suites {
            Self::check_suite(name)?;
        }
        let named = |name: &str| self.suites.is_empty() || self.suites.iter().any(|wanted| wanted == name);
        for (name, suite) in SUITES {
            if named(name) && !chosen.contains(suite) {
                chosen.push(*suite);
            }
        }
        // The operator's order.
        let place = |suite: &SupportedCipherSuite| {
            let of = |wanted: &String| SUITES.iter().any(|(name, known)| name == wanted && known == suite);
            (!is_13(suite), self.suites.iter().position(of))
        };
        chosen.sort_by_key(place);
        Ok(chosen)
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, client certificates asked for but not required.
pub(super) fn acceptor(
    serving: Arc<Serving>,
    certificates: Arc<ClientCertificates>,
    options: &TlsOptions,
) -> Result<TlsAcceptor, String> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = options.suites()?;
    let versions: &[&rustls::SupportedProtocolVersion] = match options.min_version {
        TlsVersion::Tls12 if provider.cipher_suites.iter().any(|suite| suite.tls13().is_none()) => {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        }
        _ => &[&rustls::version::TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(certificates)
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_those_that_are_named_and_those_of_1_3_always() {
        let all = TlsOptions::default().suites().unwrap();
        assert_eq!(all.len(), 9);
        let some = TlsOptions {
            suites: vec![
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into(),
                "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".into(),
            ],
            ..TlsOptions::default()
        };
        let chosen = some.suites().unwrap();
        assert_eq!(chosen.len(), 5);
        assert_eq!(
            chosen[3..],
            [
                suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            ]
        );
    }
}
