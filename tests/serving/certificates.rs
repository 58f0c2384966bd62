//! Which certificates the server shows, and how they are replaced while it runs.

use std::path::Path;
use std::sync::Arc;

use flatkube::api::server::{Limits, Server, TlsOptions, TlsVersion};
use flatkube::auth::{CertificateFiles, NamedCertificate};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Believes whatever is shown.
#[derive(Debug)]
struct Anything(rustls::crypto::CryptoProvider);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What the server shows to who asks for a name, or for an address.
async fn shown(server: &Server, name: &str) -> CertificateDer<'static> {
    let versions = &[&rustls::version::TLS12, &rustls::version::TLS13];
    handshake(server, name, versions).await.unwrap()
}

async fn handshake(
    server: &Server,
    name: &str,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> std::io::Result<CertificateDer<'static>> {
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything(provider)))
        .with_no_client_auth();
    let socket = tokio::net::TcpStream::connect(server.address()).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone())
}

async fn start(dir: &Path, tls: TlsOptions) -> Server {
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, "t,admin,1,\"system:masters\"\n").unwrap();
    let mut config = crate::config(dir, &tokens, Limits::default(), false);
    config.tls = tls;
    Server::start(config).await.unwrap()
}

/// Writes a certificate for a host and its key, and gives the certificate.
fn write(dir: &Path, stem: &str, host: &str) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![host.to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    std::fs::write(dir.join(format!("{stem}.crt")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{stem}.key")), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

#[tokio::test]
async fn certificates_of_an_operator_are_shown_by_name_and_read_again_when_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let first = write(dir.path(), "a", "kube.example.com");
    let domain = write(dir.path(), "b", "*.example.org");
    let tls = TlsOptions {
        files: CertificateFiles {
            default: Some((file("a.crt"), file("a.key"))),
            by_name: vec![NamedCertificate {
                certificate: file("b.crt"),
                key: file("b.key"),
                names: Vec::new(),
            }],
        },
        ..TlsOptions::default()
    };
    let server = start(dir.path(), tls).await;
    let own = CertificateDer::from_pem_file(dir.path().join("data/pki/server.crt")).unwrap();
    for (name, wanted) in [
        ("kube.example.com", &first),
        ("127.0.0.1", &first),
        ("elsewhere.example", &first),
        ("x.example.org", &domain),
        // Pods and the administrator ask so.
        ("kubernetes.default.svc", &own),
        ("apiserver-loopback-client", &own),
    ] {
        assert_eq!(shown(&server, name).await, *wanted, "{name}");
    }
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap();
    assert!(
        kubeconfig.contains("tls-server-name: apiserver-loopback-client\n"),
        "{kubeconfig}"
    );

    // Half of a change: the key is not that of the certificate. What was shown goes on to be.
    let key = std::fs::read(file("a.key")).unwrap();
    let second = write(dir.path(), "a", "kube.example.com");
    let new_key = std::fs::read(file("a.key")).unwrap();
    std::fs::write(file("a.key"), key).unwrap();
    server.renew_certificates().unwrap_err();
    assert_eq!(shown(&server, "127.0.0.1").await, first);
    std::fs::write(file("a.key"), new_key).unwrap();
    server.renew_certificates().unwrap();
    assert_eq!(shown(&server, "127.0.0.1").await, second);
}

#[tokio::test]
async fn the_servers_own_certificate_is_made_anew_before_it_ends_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tls = TlsOptions {
        names: vec!["kube.example.com".into(), "192.0.2.7".into()],
        ..TlsOptions::default()
    };
    let server = start(dir.path(), tls).await;
    let first = shown(&server, "localhost").await;
    let (_, parsed) = X509Certificate::from_der(&first).unwrap();
    let names = flatkube::auth::names_of(&parsed);
    for name in ["kube.example.com", "192.0.2.7", "127.0.0.1"] {
        assert!(names.iter().any(|own| own == name), "{names:?}");
    }
    // Nothing to do.
    server.renew_certificates().unwrap();
    assert_eq!(shown(&server, "localhost").await, first);

    // One that ends in a week.
    let pki = dir.path().join("data/pki");
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).unwrap();
    let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
    let key = KeyPair::from_pem(&read("server.key")).unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = time::OffsetDateTime::now_utc() + time::Duration::days(7);
    let ending = params
        .signed_by(&key, &Issuer::new(CertificateParams::default(), authority))
        .unwrap();
    std::fs::write(pki.join("server.crt"), ending.pem()).unwrap();
    server.renew_certificates().unwrap();
    let renewed = shown(&server, "localhost").await;
    assert!(renewed != first && renewed != *ending.der());
    let (_, renewed) = X509Certificate::from_der(&renewed).unwrap();
    let (_, before) = X509Certificate::from_der(&first).unwrap();
    assert!(renewed.validity().not_after >= before.validity().not_after);

    // What was taken away is made anew, with another key.
    flatkube::auth::discard(&dir.path().join("data"), false).unwrap();
    let kubeconfig = std::fs::read(server.kubeconfig()).unwrap();
    server.renew_certificates().unwrap();
    let other = shown(&server, "localhost").await;
    let (_, other) = X509Certificate::from_der(&other).unwrap();
    assert_ne!(other.public_key().raw, renewed.public_key().raw);
    assert_ne!(std::fs::read(server.kubeconfig()).unwrap(), kubeconfig);
}

#[tokio::test]
async fn versions_below_the_least_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tls = TlsOptions {
        min_version: TlsVersion::Tls13,
        ..TlsOptions::default()
    };
    let server = start(dir.path(), tls).await;
    handshake(&server, "localhost", &[&rustls::version::TLS12])
        .await
        .unwrap_err();
    handshake(&server, "localhost", &[&rustls::version::TLS13])
        .await
        .unwrap();
}
