//! Other servers that this one asks or tells something: webhooks of authorization and of audit, named by a kubeconfig.

mod kubeconfig;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::time::timeout;

pub use kubeconfig::{Connection, KubeconfigError, read as read_kubeconfig};

/// Largest answer, bytes.
const ANSWER_MAX: usize = 1024 * 1024;
/// Connections that are kept open without use; each some 40 kB with TLS.
const IDLE_MAX: usize = 8;
/// How long.
const IDLE: Duration = Duration::from_secs(90);

/// A server that JSON is posted to. Clones share the connections.
#[derive(Clone)]
pub struct Remote {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: Arc<str>,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Remote")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// How an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Post {url:?}: {reason}")]
pub struct Unreachable {
    url: Arc<str>,
    reason: String,
}

impl Remote {
    /// The server that the current context of a kubeconfig names. Connects at the first request.
    ///
    /// # Errors
    /// When the file, or what it names, cannot be used.
    pub fn open(path: &Path) -> Result<Self, KubeconfigError> {
        let connection = kubeconfig::read(path, None)?;
        let wrong = |reason: &str| KubeconfigError::Wrong {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let config = tls(&connection).map_err(|reason| wrong(&reason))?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(Duration::from_secs(30)));
        let mut connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http();
        if let Some(name) = &connection.server_name {
            let name = ServerName::try_from(name.clone()).map_err(|_| wrong("tls-server-name is no host name"))?;
            connector = connector.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
        }
        let connector = connector.enable_http1().wrap_connector(http);
        let authorization = connection.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| wrong("the token holds control characters"))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Ok(Self {
            pool,
            url: connection.server.into(),
            authorization: authorization.transpose()?,
        })
    }

    /// Posts JSON, and gives the code and the answer, of 1 MiB at most. Redirects are not followed.
    ///
    /// # Errors
    /// When there is none `within` that time.
    pub async fn post(&self, body: Vec<u8>, within: Duration) -> Result<(u16, Bytes), Unreachable> {
        let failed = |reason: String| Unreachable {
            url: self.url.clone(),
            reason,
        };
        let exchanged = timeout(within, self.exchange(body)).await;
        exchanged
            .unwrap_or_else(|_| Err("context deadline exceeded".into()))
            .map_err(failed)
    }

    async fn exchange(&self, body: Vec<u8>) -> Result<(u16, Bytes), String> {
        let mut request = http::Request::post(&*self.url)
            .header(header::USER_AGENT, concat!("flatkube/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json, */*")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(body.into()))
            .map_err(|error| error.to_string())?;
        let answer = self.pool.request(request).await.map_err(|error| causes(&error))?;
        let code = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        Ok((code, body.map_err(|error| causes(&*error))?.to_bytes()))
    }
}

/// An error with what it comes from.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn tls(connection: &Connection) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match &connection.authority {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|_| "the certificate authority is not PEM")?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("the certificate authority is not usable: {error}"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(system_roots());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &connection.certificate else {
        return Ok(config.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "the client certificate is not PEM")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the client key is not PEM")?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(|error| error.to_string())
}

/// The authorities that the system knows; none where it has none.
pub fn system_roots() -> Vec<CertificateDer<'static>> {
    const FILES: [&str; 5] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let read = |file: &&str| {
        let certificates = CertificateDer::pem_file_iter(file).ok()?;
        let found: Vec<_> = certificates.filter_map(Result::ok).collect();
        (!found.is_empty()).then_some(found)
    };
    FILES.iter().find_map(read).unwrap_or_default()
}
