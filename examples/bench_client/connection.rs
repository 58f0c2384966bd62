//! One connection to the server: HTTP/1.1 in the clear, or HTTP/2 over TLS as kubectl opens it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;

use super::failure::Failure;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Where to ask, and as whom.
pub(crate) struct Server {
    uri: Uri,
    authority: String,
    tls: Option<tokio_rustls::TlsConnector>,
    authorization: Option<HeaderValue>,
}

impl Server {
    /// `pki` holds `ca.crt`, `admin.crt` and `admin.key`, as a data directory does; with a token it is who asks, and the
    /// certificate is not shown.
    pub(crate) fn new(url: &str, pki: Option<&Path>, token: Option<&str>) -> Result<Self, Failure> {
        let uri: Uri = url.parse()?;
        let authority = uri
            .authority()
            .ok_or_else(|| Failure::new(format!("{url}: no host and port")))?
            .to_string();
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => {
                let pki = pki.ok_or_else(|| Failure::new("https needs --pki"))?;
                Some(tokio_rustls::TlsConnector::from(Arc::new(client_tls(
                    pki,
                    token.is_none(),
                )?)))
            }
            _ => return Err(Failure::new(format!("{url}: neither http:// nor https://"))),
        };
        let authorization = token
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")))
            .transpose()?;
        Ok(Self {
            uri,
            authority,
            tls,
            authorization,
        })
    }
}

fn client_tls(pki: &Path, is_admin: bool) -> Result<rustls::ClientConfig, Failure> {
    let certificate = |name: &str| {
        CertificateDer::from_pem_file(pki.join(name))
            .map_err(|error| Failure::new(format!("{}/{name}: {error}", pki.display())))
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate("ca.crt")?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = if is_admin {
        let key = PrivateKeyDer::from_pem_file(pki.join("admin.key"))?;
        config.with_client_auth_cert(vec![certificate("admin.crt")?], key)?
    } else {
        config.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// What is asked.
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Question {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::write(Method::GET, path, "", Bytes::new())
    }

    pub(crate) fn write(
        method: Method,
        path: impl Into<String>,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            accept: "application/json",
            content_type,
            body: body.into(),
        }
    }

    /// The same, answered as a Table: what `kubectl get` asks for.
    pub(crate) fn table(mut self) -> Self {
        self.accept = TABLE;
        self
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// One connection; requests go one after the other.
pub(crate) struct Connection {
    sender: Sender,
    base: Uri,
    authorization: Option<HeaderValue>,
}

/// The head of a successful answer; its body is still to be read.
pub(crate) struct Answer(Incoming);

impl Answer {
    /// The next piece of the body.
    pub(crate) async fn data(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The whole body.
    pub(crate) async fn whole(self) -> Result<Bytes, Failure> {
        Ok(self.0.collect().await?.to_bytes())
    }
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> Result<Self, Failure> {
        Self::over(TcpStream::connect(&server.authority).await?, server).await
    }

    /// Over a socket that is connected to the server.
    pub(crate) async fn over(socket: TcpStream, server: &Server) -> Result<Self, Failure> {
        socket.set_nodelay(true)?;
        let sender = if let Some(tls) = &server.tls {
            let host = server.uri.host().unwrap_or_default();
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
            let stream = tls.connect(name, socket).await?;
            // The windows that Go's client opens.
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(1 << 30)
                .handshake(TokioIo::new(stream))
                .await?;
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
            tokio::spawn(connection);
            Sender::One(sender)
        };
        Ok(Self {
            sender,
            base: server.uri.clone(),
            authorization: server.authorization.clone(),
        })
    }

    /// Sends a request and waits for the head of its answer, which must be a success.
    pub(crate) async fn send(&mut self, question: &Question) -> Result<Answer, Failure> {
        let mut request = Request::new(Full::new(question.body.clone()));
        *request.method_mut() = question.method.clone();
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(question.accept));
        if !question.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(question.content_type));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let response = match &mut self.sender {
            Sender::One(sender) => {
                let host = self.base.authority().map_or("", |authority| authority.as_str());
                headers.insert(header::HOST, HeaderValue::try_from(host)?);
                *request.uri_mut() = question.path.parse()?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Two(sender) => {
                let mut parts = self.base.clone().into_parts();
                parts.path_and_query = Some(question.path.parse()?);
                *request.uri_mut() = Uri::from_parts(parts)?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(Answer(response.into_body()));
        }
        Err(refused(question, status, response.into_body()).await)
    }

    /// The body of a request that must succeed.
    pub(crate) async fn ask(&mut self, question: &Question) -> Result<Bytes, Failure> {
        self.send(question).await?.whole().await
    }
}

async fn refused(question: &Question, status: StatusCode, body: Incoming) -> Failure {
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    Failure::new(format!(
        "{} {}: {status} {}",
        question.method,
        question.path,
        String::from_utf8_lossy(&body[..body.len().min(500)])
    ))
}
