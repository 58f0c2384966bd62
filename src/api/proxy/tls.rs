//! How backends are trusted, and who this server is towards them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::auth::{ClientIdentity, Serving};

/// Believes every certificate, or those that a CA signed; but never this server's own: whoever leads a request back here
/// would have it made with this server's rights.
#[derive(Debug)]
struct Verifier {
    /// `None`: every certificate is believed.
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
    own: Option<Arc<Serving>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.own.as_ref().is_some_and(|own| own.shows(end_entity)) {
            return Err(rustls::Error::General("the backend is this API server itself".into()));
        }
        match &self.inner {
            None => Ok(ServerCertVerified::assertion()),
            Some(inner) => inner.verify_server_cert(end_entity, intermediates, name, ocsp, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes the configurations of TLS towards backends.
#[derive(Debug)]
pub(in crate::api) struct Trust {
    provider: Arc<CryptoProvider>,
    own: Option<Arc<Serving>>,
}

impl Trust {
    /// `own`: the certificates that this server shows its clients.
    pub(in crate::api) fn new(own: Option<Arc<Serving>>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Self { provider, own }
    }

    /// Backends whose certificates `roots` signed (`None`: all), towards whom this server is `identity`.
    ///
    /// # Errors
    /// When a certificate or a key cannot be used.
    pub(in crate::api) fn config(
        &self,
        roots: Option<&[CertificateDer<'static>]>,
        identity: Option<&Arc<ClientIdentity>>,
    ) -> Result<Arc<ClientConfig>, String> {
        let inner = match roots {
            None => None,
            Some(roots) => {
                let mut store = RootCertStore::empty();
                let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
                if added == 0 {
                    return Err("no certificate of a certificate authority in it".into());
                }
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), self.provider.clone());
                Some(builder.build().map_err(|error| error.to_string())?)
            }
        };
        let verifier = Verifier {
            inner,
            provider: self.provider.clone(),
            own: self.own.clone(),
        };
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(identity.clone()),
        };
        // An upgrade is one of HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A file that cannot be used, and why.
pub(in crate::api) type FileError = (PathBuf, String);

/// The certificates of a PEM file.
///
/// # Errors
/// When it cannot be read or holds none.
pub(in crate::api) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let failed = |reason: String| (path.to_owned(), reason);
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| failed(format!("{error:?}")))?;
    if all.is_empty() {
        return Err(failed("no certificate in it".into()));
    }
    Ok(all)
}

/// The key of a PEM file.
///
/// # Errors
/// When it cannot be read or holds none.
pub(in crate::api) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let failed = |reason: String| (path.to_owned(), reason);
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| failed(format!("no private key in it: {error:?}")))
}

/// What went wrong in a handshake, in the words of Go's TLS where people search for them.
pub(super) fn told(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            let reason = match reason {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "certificate signed by unknown authority".to_owned()
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "certificate has expired or is not yet valid".to_owned()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "certificate is not valid for the name or address of the backend".to_owned()
                }
                other => other.to_string(),
            };
            format!("tls: failed to verify certificate: x509: {reason}")
        }
        Some(rustls::Error::General(text)) => format!("tls: {text}"),
        Some(rustls::Error::InvalidMessage(_)) => "tls: first record does not look like a TLS handshake".to_owned(),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}
