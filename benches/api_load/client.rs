//! An HTTP client that costs the same whoever answers: hyper on one connection per client, all on the calling thread.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;

/// The bearer token that servers of this benchmark know.
pub(crate) const TOKEN: &str = "bench";

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// HTTP/1.1 without TLS, authenticated by a bearer token.
    Plain,
    /// HTTP/2 over TLS 1.3, authenticated by a client certificate: what kubectl does.
    Tls,
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
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
}

impl Question {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: http::Method::GET,
            path: path.into(),
            accept: "application/json",
            content_type: None,
            body: Bytes::new(),
        }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
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

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: http::StatusCode,
    pub(crate) body: hyper::body::Incoming,
}

impl Client {
    pub(crate) async fn connect(target: &Target, transport: Transport) -> Self {
        let sender = match transport {
            Transport::Plain => {
                let socket = TcpStream::connect(target.plain).await.expect("a connection");
                socket.set_nodelay(true).expect("a socket");
                let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.expect("HTTP/1.1");
                tokio::spawn(connection);
                Sender::One(sender)
            }
            Transport::Tls => {
                let socket = TcpStream::connect(target.tls).await.expect("a connection");
                socket.set_nodelay(true).expect("a socket");
                let name = ServerName::from(target.tls.ip());
                let stream = tokio_rustls::TlsConnector::from(target.client_tls.clone())
                    .connect(name, socket)
                    .await
                    .expect("TLS");
                // The windows that Go's client opens.
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(4 << 20)
                    .initial_connection_window_size(1 << 30)
                    .handshake(TokioIo::new(stream))
                    .await
                    .expect("HTTP/2");
                tokio::spawn(connection);
                Sender::Two(sender)
            }
        };
        Self { sender }
    }

    /// Sends a request; the body is still to be read.
    pub(crate) async fn send(&mut self, question: &Question) -> Answer {
        let mut request = http::Request::new(Full::new(question.body.clone()));
        *request.method_mut() = question.method.clone();
        let headers = request.headers_mut();
        headers.insert("accept", http::HeaderValue::from_static(question.accept));
        if let Some(content_type) = question.content_type {
            headers.insert("content-type", http::HeaderValue::from_static(content_type));
        }
        let response = match &mut self.sender {
            Sender::One(sender) => {
                headers.insert("host", http::HeaderValue::from_static("localhost"));
                headers.insert("authorization", http::HeaderValue::from_static("Bearer bench"));
                *request.uri_mut() = question.path.parse().expect("a path");
                sender.ready().await.expect("a connection");
                sender.send_request(request).await
            }
            Sender::Two(sender) => {
                let uri = format!("https://localhost{}", question.path);
                *request.uri_mut() = uri.parse().expect("a path");
                sender.ready().await.expect("a connection");
                sender.send_request(request).await
            }
        };
        let response = response.expect("an answer");
        Answer {
            status: response.status(),
            body: response.into_body(),
        }
    }

    /// Bytes of the body of a request that must succeed.
    pub(crate) async fn ask(&mut self, question: &Question) -> u64 {
        let mut answer = self.send(question).await;
        assert!(answer.status.is_success(), "{} {}", answer.status, question.path);
        let mut len = 0;
        while let Some(frame) = answer.body.frame().await {
            if let Ok(data) = frame.expect("a whole body").into_data() {
                len += data.len() as u64;
            }
        }
        len
    }

    /// The body of a request that must succeed.
    pub(crate) async fn read(&mut self, question: &Question) -> Bytes {
        let answer = self.send(question).await;
        let status = answer.status;
        let body = answer.body.collect().await.expect("a whole body").to_bytes();
        assert!(
            status.is_success(),
            "{status} {}: {}",
            question.path,
            String::from_utf8_lossy(&body[..body.len().min(500)])
        );
        body
    }
}

/// CPU time and time of one batch of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// CPU of everything in this process but the calling thread, which is the client.
    pub(crate) server_cpu: Duration,
    pub(crate) wall: Duration,
}

/// Starts a measurement; call the result to end it. Both on the client's thread.
pub(crate) fn stopwatch() -> impl FnOnce() -> Cost {
    let now = || {
        let read = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        (
            read(ClockId::ProcessCPUTime).saturating_sub(read(ClockId::ThreadCPUTime)),
            Instant::now(),
        )
    };
    let (cpu, begun) = now();
    move || {
        let (cpu_end, end) = now();
        Cost {
            server_cpu: cpu_end.saturating_sub(cpu),
            wall: end - begun,
        }
    }
}
