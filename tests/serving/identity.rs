//! Who is let in, and how.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use crate::Started;
use crate::client::Client;
use flatkube::api::server::Limits;

pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The head and body of a GET over TLS, HTTP/1.1, as the client of that certificate.
async fn get(started: &Started, path: &str, identity: Option<Identity>, alpn: &[&[u8]]) -> (String, Option<Vec<u8>>) {
    get_with(started, path, identity, alpn, "").await
}

/// With more lines of the head, each with its end.
pub(crate) async fn get_with(
    started: &Started,
    path: &str,
    identity: Option<Identity>,
    alpn: &[&[u8]],
    head: &str,
) -> (String, Option<Vec<u8>>) {
    let pki = started.dir.path().join("data/pki");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pki.join("ca.crt")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let socket = tokio::net::TcpStream::connect(started.server.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
        .unwrap();
    let spoken = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    if spoken.as_deref() == Some(b"h2") {
        return (String::new(), spoken);
    }
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // The server closes without close_notify once it has answered; what came is complete.
    let _ = stream.read_to_string(&mut answer).await;
    (answer, spoken)
}

fn admin(started: &Started) -> Identity {
    let pki = started.dir.path().join("data/pki");
    (
        vec![CertificateDer::from_pem_file(pki.join("admin.crt")).unwrap()],
        PrivateKeyDer::from_pem_file(pki.join("admin.key")).unwrap(),
    )
}

#[tokio::test]
async fn the_administrators_certificate_opens_the_api_and_a_strangers_is_answered_with_401() {
    let started = Started::usual().await;
    let (answer, _) = get(&started, "/api/v1/namespaces", Some(admin(&started)), &[b"http/1.1"]).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"NamespaceList\""), "{answer}");

    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "kubernetes-admin");
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:masters");
    let stranger = params.self_signed(&key).unwrap();
    let identity = (
        vec![stranger.der().clone()],
        PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
    );
    let (answer, _) = get(&started, "/api/v1/namespaces", Some(identity), &[b"http/1.1"]).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("\"reason\":\"Unauthorized\""), "{answer}");
}

#[tokio::test]
async fn http2_is_spoken_with_clients_that_offer_it() {
    let started = Started::usual().await;
    let (_, spoken) = get(&started, "/healthz", None, &[b"h2", b"http/1.1"]).await;
    assert_eq!(spoken.as_deref(), Some(&b"h2"[..]));
    let (answer, spoken) = get(&started, "/healthz", None, &[b"http/1.1"]).await;
    assert_eq!(spoken.as_deref(), Some(&b"http/1.1"[..]));
    assert!(answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn without_credentials_only_health_and_version_are_readable() {
    let started = Started::usual().await;
    let anyone = Client::new(started.server.http_address().unwrap(), None);
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"] {
        assert_eq!(anyone.get(path).await.code, 200, "{path}");
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/metrics",
        "/openapi/v3",
        "/api/v1/secrets",
        "/nothing",
    ] {
        let answer = anyone.get(path).await;
        assert_eq!(answer.code, 403, "{path}");
        assert_eq!(answer.body["kind"], "Status", "{path}");
    }
    let wrong = Client::new(started.server.http_address().unwrap(), Some("nobody's"));
    assert_eq!(wrong.get("/version").await.code, 401);
    assert_eq!(started.admin().get("/api/v1/secrets").await.code, 200);
}

#[tokio::test]
async fn certificates_and_the_kubeconfig_outlive_a_restart() {
    let started = Started::usual().await;
    let before = std::fs::read(started.server.kubeconfig()).unwrap();
    let address = started.server.address();
    let Started { server, dir } = started;
    server.stop().await;
    let tokens = dir.path().join("tokens.csv");
    let mut config = crate::config(dir.path(), &tokens, Limits::default(), false);
    config.bind = address;
    let server = flatkube::api::server::Server::start(config).await.unwrap();
    assert_eq!(std::fs::read(server.kubeconfig()).unwrap(), before);
    let started = Started { server, dir };
    let (answer, _) = get(
        &started,
        "/api/v1/namespaces/default",
        Some(admin(&started)),
        &[b"http/1.1"],
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
