//! A client over TLS, with a certificate or without.

use std::sync::Arc;

use bytes::Bytes;
use flatkube::api::server::Server;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

pub(crate) struct Tls {
    inner: Client<hyper_rustls::HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
}

impl Tls {
    /// One that believes the server's own authority.
    pub(crate) fn new(
        server: &Server,
        identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(server.authority().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .build();
        Self {
            inner: Client::builder(TokioExecutor::new()).build(connector),
            url: format!("https://{}", server.address()),
        }
    }

    /// The code and the body of an answer.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(Full::new(body.map(Value::to_string).unwrap_or_default().into()))
            .unwrap();
        let answer = self.inner.request(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}
