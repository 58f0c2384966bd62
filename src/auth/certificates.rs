//! Client certificates: whom a certificate that an authority of ours signed stands for.

use std::fmt::Write as _;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{FrontProxy, User};
use crate::resources::common_name;

/// The uid of a user in a certificate's subject (Kubernetes' own arc of object identifiers).
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Asks clients for a certificate and lets every handshake through whose signature fits its certificate; who the client
/// is, and whether an authority says so, is decided by [`ClientCertificates::present`] afterwards. So a bad certificate is
/// answered with a 401 Status, as kube-apiserver does, not with a TLS alert that tells people little.
#[derive(Debug)]
pub struct ClientCertificates {
    inner: Arc<dyn ClientCertVerifier>,
    /// Of proxies that say who asks, and which of them are believed.
    proxies: Option<(Arc<dyn ClientCertVerifier>, FrontProxy)>,
    /// Names of all authorities: clients choose what to show by them.
    hints: Vec<DistinguishedName>,
}

/// What a client's certificate says of it.
#[derive(Debug)]
pub struct Presented {
    user: Option<Arc<User>>,
    is_proxy: bool,
    /// When the certificate ends, Unix seconds.
    ends_s: i64,
}

impl Presented {
    /// As of a certificate of `user` that never ends: for what attacks the server from within.
    pub(crate) fn of(user: User) -> Self {
        Self {
            user: Some(Arc::new(user)),
            is_proxy: false,
            ends_s: i64::MAX,
        }
    }

    /// Whom it stands for; `None` when it is not to be believed, or not any more.
    pub(super) fn user(&self, now_s: i64) -> Option<&Arc<User>> {
        self.user.as_ref().filter(|_| now_s <= self.ends_s)
    }

    /// Whether it is that of a proxy, which says in headers who asks.
    pub(super) fn is_proxy(&self) -> bool {
        self.is_proxy
    }

    /// Whether what it says is to be believed still.
    pub(super) fn vouches(&self, now_s: i64) -> bool {
        self.is_proxy && now_s <= self.ends_s
    }
}

impl ClientCertificates {
    /// Trusts certificates that `authorities` signed, and proxies.
    ///
    /// # Errors
    /// When an authority is no usable CA certificate.
    pub fn new(authorities: &[CertificateDer<'static>], proxy: Option<FrontProxy>) -> Result<Self, String> {
        let proxies = match proxy {
            None => None,
            Some(proxy) => {
                let authorities = certificates(&proxy.authorities)?;
                Some((verifier(&authorities)?, proxy))
            }
        };
        let inner = verifier(authorities)?;
        let mut hints = inner.root_hint_subjects().to_vec();
        if let Some((verifier, _)) = &proxies {
            hints.extend_from_slice(verifier.root_hint_subjects());
        }
        Ok(Self { inner, proxies, hints })
    }

    /// What a chain says, now. A chain that is not to be believed stands for nobody; why stands in the log.
    pub fn present(&self, chain: &[CertificateDer<'_>]) -> Presented {
        let mut presented = Presented {
            user: None,
            is_proxy: false,
            ends_s: 0,
        };
        let parsed = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let Some((_, certificate)) = parsed else {
            return presented;
        };
        presented.ends_s = certificate.validity().not_after.timestamp();
        if let Some((verifier, proxy)) = &self.proxies
            && verify(&**verifier, chain).is_ok()
            && proxy.allows(&common_name(certificate.subject()))
        {
            presented.is_proxy = true;
        }
        match verify(&*self.inner, chain).and_then(|()| user(&chain[0], &certificate)) {
            Ok(user) => presented.user = Some(Arc::new(user)),
            Err(reason) => tracing::debug!(reason, "client certificate refused"),
        }
        presented
    }
}

/// The certificates in a PEM file, in their order.
///
/// # Errors
/// When there is none, or one is damaged.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| format!("{error:?}"))?;
    if found.is_empty() {
        return Err("there is no certificate in it".into());
    }
    Ok(found)
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone()).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| error.to_string())
}

fn verify(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> Result<(), String> {
    let (leaf, intermediates) = chain.split_first().ok_or("no certificate")?;
    let verified = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
    verified.map(drop).map_err(|error| error.to_string())
}

/// The user of a certificate: common name, uid and organizations. `leaf`: its bytes.
fn user(leaf: &[u8], certificate: &X509Certificate<'_>) -> Result<User, String> {
    let name = common_name(certificate.subject());
    if name.is_empty() {
        return Err("the certificate has no common name".into());
    }
    let subject = certificate.subject();
    let groups = subject
        .iter_organization()
        .filter_map(|group| group.as_str().ok())
        .map(str::to_owned)
        .collect();
    let uid = subject
        .iter_attributes()
        .find(|attribute| attribute.attr_type().to_id_string() == UID);
    let uid = uid.and_then(|uid| uid.as_str().ok()).unwrap_or("");
    let mut user = User::authenticated(name, uid, groups);
    let digest = ring::digest::digest(&ring::digest::SHA256, leaf);
    let mut id = "X509SHA256=".to_owned();
    for byte in digest.as_ref() {
        let _ = write!(id, "{byte:02x}");
    }
    user.extra
        .insert("authentication.kubernetes.io/credential-id".into(), vec![id]);
    Ok(user)
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
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
