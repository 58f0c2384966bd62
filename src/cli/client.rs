//! A small client of the API for our own commands: keep-alive connections, JSON in and out, typed refusals.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::Deserialize;

use super::{Exit, Failure};
use crate::remote::Connection;

/// Tries of one request before it is given up.
const TRIES_MAX: u32 = 6;

/// A client of one API server. Clones share the connections.
#[derive(Clone)]
pub(super) struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    server: String,
    authorization: Option<HeaderValue>,
}

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    /// No connection, or one that broke.
    #[error("no answer from {server}: {message}")]
    Unreachable {
        /// The server's URL.
        server: String,
        /// What the transport says, causes included.
        message: String,
    },
    /// The server answered with a Status.
    #[error("{code}: {message}")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// `reason` of the Status, such as `AlreadyExists`.
        reason: String,
        /// `message` of the Status.
        message: String,
        /// The wait that the server asks for.
        retry_after: Option<Duration>,
    },
}

impl RequestError {
    /// Whether the same request may succeed when it is sent again.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            RequestError::Unreachable { .. } => true,
            RequestError::Refused { code, retry_after, .. } => {
                retry_after.is_some()
                    || matches!(*code, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            }
        }
    }

    /// The wait that the server asked for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            RequestError::Refused { retry_after, .. } => *retry_after,
            RequestError::Unreachable { .. } => None,
        }
    }

    /// Whether the server answered with this code.
    pub(super) fn is(&self, status: StatusCode) -> bool {
        matches!(self, RequestError::Refused { code, .. } if *code == status)
    }

    /// Whether the object is there already.
    pub(super) fn already_exists(&self) -> bool {
        matches!(self, RequestError::Refused { reason, .. } if reason == "AlreadyExists")
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let exit = match &error {
            RequestError::Refused { code, .. } if *code == StatusCode::INSUFFICIENT_STORAGE => Exit::DiskFull,
            _ => Exit::Failure,
        };
        let failure = Failure::new(exit, error.to_string());
        match error {
            RequestError::Unreachable { .. } => {
                failure.advise("start the server (flatkube server), or name another kubeconfig with --kubeconfig")
            }
            RequestError::Refused { .. } => failure,
        }
    }
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// An answer that is read piece by piece.
pub(super) struct Download {
    /// Bytes to come, if the server says so.
    pub(super) len: Option<u64>,
    pub(super) headers: HeaderMap,
    pub(super) body: Pieces,
}

/// The body of an answer.
pub(super) struct Pieces {
    body: Incoming,
    server: String,
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, RequestError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| unreachable(&self.server, &error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

fn unreachable(server: &str, error: &dyn std::error::Error) -> RequestError {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    RequestError::Unreachable {
        server: server.to_owned(),
        message,
    }
}

impl Client {
    /// A client of the server that `connection` names. Connects at the first request.
    pub(super) fn new(connection: &Connection) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::new(Exit::Usage, format!("kubeconfig: {what}"));
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(connection.authority.as_deref().unwrap_or_default()) {
            let certificate = certificate.map_err(|_| wrong("the certificate authority is not PEM"))?;
            roots
                .add(certificate)
                .map_err(|error| wrong(&format!("the certificate authority is not usable: {error}")))?;
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error.to_string()))?
            .with_root_certificates(roots);
        let config = match &connection.certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|_| wrong("the client certificate is not PEM"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong("the client key is not PEM"))?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| wrong(&error.to_string()))?
            }
        };
        // HTTP/1.1 on a connection for each writer: many small requests cost less than as streams of one connection.
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let mut connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http();
        if let Some(name) = &connection.server_name {
            let name = ServerName::try_from(name.clone()).map_err(|_| wrong("tls-server-name is no host name"))?;
            connector = connector.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
        }
        let connector = connector.enable_http1().wrap_connector(http);
        let authorization = connection
            .token
            .as_ref()
            .map(|token| {
                HeaderValue::try_from(format!("Bearer {token}"))
                    .map_err(|_| wrong("the token holds control characters"))
            })
            .transpose()?;
        Ok(Client {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            server: connection.server.clone(),
            authorization,
        })
    }

    /// Sends one request and reads the whole answer. Answers that are not 2xx are errors.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let response = self.answer(method, path, content_type, body).await?;
        self.whole(response.into_body()).await
    }

    /// [`Client::send`], again after a pause while the server is busy or the connection breaks. A write whose answer was lost may then
    /// be refused because it was made.
    pub(super) async fn send_patiently(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Bytes, RequestError> {
        let mut pause = Duration::from_millis(100);
        let mut tries = 1;
        loop {
            match self.send(method.clone(), path, content_type, body.clone()).await {
                Err(error) if error.is_transient() && tries < TRIES_MAX => {
                    tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
                    pause *= 2;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// [`Client::get`], again after a pause while the server is busy or the connection breaks.
    pub(super) async fn get_patiently<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let body = self.send_patiently(Method::GET, path, JSON, Bytes::new()).await?;
        self.parse(path, &body)
    }

    /// Begins to read an answer that is too large to be held.
    pub(super) async fn download(&self, path: &str) -> Result<Download, RequestError> {
        let response = self.answer(Method::GET, path, JSON, Bytes::new()).await?;
        let (head, body) = response.into_parts();
        let len = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        Ok(Download {
            len: len.and_then(|value| value.parse().ok()),
            headers: head.headers,
            body: Pieces {
                body,
                server: self.server.clone(),
            },
        })
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> RequestError {
        unreachable(&self.server, error)
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, RequestError> {
        let body = body.collect().await.map_err(|error| self.unreachable(&error))?;
        Ok(body.to_bytes())
    }

    /// Sends one request. Answers that are not 2xx are errors.
    async fn answer(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<hyper::Response<Incoming>, RequestError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header(USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, content_type);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| self.unreachable(&error))?;
        let response = self
            .pool
            .request(request)
            .await
            .map_err(|error| self.unreachable(&error))?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.parse().ok())
            .map(Duration::from_secs);
        let body = self.whole(response.into_body()).await?;
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message = if status.message.is_empty() {
            String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned()
        } else {
            status.message
        };
        Err(RequestError::Refused {
            code,
            reason: status.reason,
            message,
            retry_after,
        })
    }

    /// Reads an object or a list.
    pub(super) async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let body = self.send(Method::GET, path, JSON, Bytes::new()).await?;
        self.parse(path, &body)
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, RequestError> {
        serde_json::from_slice(body).map_err(|error| RequestError::Unreachable {
            server: self.server.clone(),
            message: format!("the answer to GET {path} is not what the API promises: {error}"),
        })
    }
}

/// What a command's requests run on.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))
}

/// The content type of whole objects.
pub(super) const JSON: &str = "application/json";
/// The content type of an RFC 7396 patch.
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
