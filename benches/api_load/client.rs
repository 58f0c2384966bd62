//! An HTTP client that costs the same whoever answers: hyper on one connection per client, all on the calling thread.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::failure::Failure;

/// The bearer token that servers of this benchmark know.
pub(crate) const TOKEN: &str = "bench";

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Transport {
    /// HTTP/1.1 without TLS, authenticated by a bearer token.
    #[serde(rename = "plain")]
    Plain,
    /// HTTP/2 over TLS 1.3, authenticated by a client certificate: what kubectl does.
    #[serde(rename = "tls+h2")]
    Tls,
}

/// What the client takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    #[default]
    Identity,
    /// The answer has to be compressed.
    Gzip,
}

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
        }
    }
}

impl Transport {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Plain => "plain",
            Transport::Tls => "tls+h2",
        }
    }
}

/// Where a server listens, on either transport.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) client_tls: Arc<rustls::ClientConfig>,
}

/// A client's TLS settings from the data directory of a server.
pub(crate) fn client_tls(data_dir: &Path) -> Arc<rustls::ClientConfig> {
    let pki = data_dir.join("pki");
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(pki.join("ca.crt")).expect("a certificate"))
        .expect("a certificate");
    let chain = vec![CertificateDer::from_pem_file(pki.join("admin.crt")).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(pki.join("admin.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .expect("a client certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// What is asked, without the body.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) encoding: Encoding,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
}

impl Question {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: http::Method::GET,
            path: path.into(),
            accept: "application/json",
            encoding: Encoding::Identity,
            content_type: None,
            body: Bytes::new(),
        }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    pub(crate) fn write(method: http::Method, path: String, content_type: &'static str, body: Bytes) -> Self {
        Self {
            method,
            content_type: Some(content_type),
            body,
            ..Self::get(path)
        }
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// One connection.
pub(crate) struct Client {
    sender: Sender,
}

impl Client {
    pub(crate) async fn connect(target: &Target, transport: Transport) -> Result<Self, Failure> {
        let address = match transport {
            Transport::Plain => target.plain,
            Transport::Tls => target.tls,
        };
        Self::handshake(target, transport, address)
            .await
            .map_err(|error| Failure::connection(&format!("connect to {address}"), error))
    }

    async fn handshake(
        target: &Target,
        transport: Transport,
        address: SocketAddr,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let sender = match transport {
            Transport::Plain => {
                let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
                tokio::spawn(connection);
                Sender::One(sender)
            }
            Transport::Tls => {
                let stream = tokio_rustls::TlsConnector::from(target.client_tls.clone())
                    .connect(ServerName::from(address.ip()), socket)
                    .await?;
                // The windows that Go's client opens.
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(4 << 20)
                    .initial_connection_window_size(1 << 30)
                    .handshake(TokioIo::new(stream))
                    .await?;
                tokio::spawn(connection);
                Sender::Two(sender)
            }
        };
        Ok(Self { sender })
    }

    /// Sends a request that must succeed; the body is still to be read.
    pub(crate) async fn send(&mut self, question: &Question) -> Result<hyper::body::Incoming, Failure> {
        let broken = |error: hyper::Error| Failure::connection(&question.path, error);
        let mut request = http::Request::new(Full::new(question.body.clone()));
        *request.method_mut() = question.method.clone();
        let headers = request.headers_mut();
        headers.insert("accept", http::HeaderValue::from_static(question.accept));
        if question.encoding == Encoding::Gzip {
            headers.insert("accept-encoding", http::HeaderValue::from_static("gzip"));
        }
        if let Some(content_type) = question.content_type {
            headers.insert("content-type", http::HeaderValue::from_static(content_type));
        }
        let response = match &mut self.sender {
            Sender::One(sender) => {
                headers.insert("host", http::HeaderValue::from_static("localhost"));
                headers.insert("authorization", http::HeaderValue::from_static("Bearer bench"));
                *request.uri_mut() = question.path.parse().expect("a path");
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                let uri = format!("https://localhost{}", question.path);
                *request.uri_mut() = uri.parse().expect("a path");
                sender.ready().await.map_err(broken)?;
                sender.send_request(request).await
            }
        };
        let response = response.map_err(broken)?;
        let status = response.status();
        let encoding = if response.headers().contains_key("content-encoding") {
            Encoding::Gzip
        } else {
            Encoding::Identity
        };
        if !status.is_success() || encoding != question.encoding {
            let what = if status.is_success() {
                format!("the answer is {}, not {}", encoding.name(), question.encoding.name())
            } else {
                format!("{} failed", question.method)
            };
            let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
            return Err(Failure::answer(&question.path, status, what, &body));
        }
        Ok(response.into_body())
    }

    /// Bytes of the body of a request that must succeed.
    pub(crate) async fn ask(&mut self, question: &Question) -> Result<u64, Failure> {
        let body = self.send(question).await?;
        drain(body, &question.path).await
    }

    /// The body of a request that must succeed.
    pub(crate) async fn read(&mut self, question: &Question) -> Result<Bytes, Failure> {
        let body = self.send(question).await?.collect().await;
        Ok(body
            .map_err(|error| Failure::connection(&question.path, error))?
            .to_bytes())
    }
}

/// Reads a body to its end; returns its bytes.
pub(crate) async fn drain(mut body: hyper::body::Incoming, path: &str) -> Result<u64, Failure> {
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::connection(path, error))?;
        if let Ok(data) = frame.into_data() {
            len += data.len() as u64;
        }
    }
    Ok(len)
}
