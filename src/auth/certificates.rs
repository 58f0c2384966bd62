//! Client certificates: whom a certificate that our CA signed stands for.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::User;

/// Asks clients for a certificate and lets every handshake through whose signature fits its certificate; who the client
/// is, and whether our CA says so, is decided by [`ClientCertificates::user`] afterwards. So a bad certificate is
/// answered with a 401 Status, as kube-apiserver does, not with a TLS alert that tells people little.
#[derive(Debug)]
pub struct ClientCertificates {
    inner: Arc<dyn ClientCertVerifier>,
}

impl ClientCertificates {
    /// Trusts certificates that `ca` signed.
    ///
    /// # Errors
    /// When `ca` is no usable CA certificate.
    pub fn new(ca: CertificateDer<'static>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add(ca).map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { inner })
    }

    /// The user of a presented chain: common name and organizations of a certificate that is valid now.
    ///
    /// # Errors
    /// When the chain does not lead to our CA, is out of its time, is not for clients, or names nobody.
    pub fn user(&self, chain: &[CertificateDer<'_>]) -> Result<User, String> {
        let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
        self.inner
            .verify_client_cert(leaf, intermediates, UnixTime::now())
            .map_err(|error| error.to_string())?;
        let (_, certificate) = X509Certificate::from_der(leaf).map_err(|error| error.to_string())?;
        let subject = certificate.subject();
        let name = subject
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok())
            .unwrap_or("");
        if name.is_empty() {
            return Err("the certificate has no common name".into());
        }
        let groups = subject
            .iter_organization()
            .filter_map(|group| group.as_str().ok())
            .map(str::to_owned)
            .collect();
        Ok(User::authenticated(name, "", groups))
    }
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
