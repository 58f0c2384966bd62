//! Asking an OpenID provider: its discovery document and its keys, over HTTPS, within a time and a size.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use crate::auth::jws::{Jwks, PublicKey};

/// The largest document that is read, bytes.
const DOCUMENT_MAX: usize = 512 * 1024;
/// Keys of one set; more are an error, for nobody has as many.
const KEYS_MAX: usize = 256;
/// Of an answer that is no success, so much is told, bytes.
const TOLD_MAX: usize = 256;

/// The way to one provider.
#[derive(Debug)]
pub(super) struct Provider {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    issuer: String,
    discovery: String,
    within: Duration,
}

#[derive(Deserialize)]
struct Discovery {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

/// Keys and their names; of a key without a name, an empty one.
pub(super) type Keys = Vec<(String, PublicKey)>;

impl Provider {
    /// The provider of `issuer`, whose discovery document is at `discovery` (empty: where the issuer's URL says), whose
    /// certificate one of `roots` signed. Asking it takes `within` at most.
    ///
    /// # Errors
    /// When none of the authorities can be used.
    pub(super) fn new(
        issuer: &str,
        discovery: &str,
        roots: Vec<CertificateDer<'static>>,
        within: Duration,
    ) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(roots);
        if added == 0 {
            tracing::warn!(issuer, "no authority is known that could vouch for this issuer");
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(within));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_http1()
            .wrap_connector(http);
        let discovery = if discovery.is_empty() {
            format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
        } else {
            discovery.to_owned()
        };
        Ok(Self {
            // Keys are asked for once an hour: no connection is kept for that.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(connector),
            issuer: issuer.to_owned(),
            discovery,
            within,
        })
    }

    /// The keys that the provider tells now.
    ///
    /// # Errors
    /// A sentence that says what failed. Redirects are failures.
    pub(super) async fn keys(&self) -> Result<Keys, String> {
        let asked = tokio::time::timeout(self.within, self.ask());
        asked.await.unwrap_or_else(|_| Err("context deadline exceeded".into()))
    }

    async fn ask(&self) -> Result<Keys, String> {
        let document = self.get(&self.discovery).await?;
        let told: Discovery = serde_json::from_slice(&document)
            .map_err(|error| format!("oidc: failed to decode provider discovery object: {error}"))?;
        if told.issuer != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                self.issuer, told.issuer
            ));
        }
        keys(&self.get(&told.jwks_uri).await?)
    }

    async fn get(&self, url: &str) -> Result<Bytes, String> {
        let failed = |why: String| format!("Get {url:?}: {why}");
        let request = http::Request::get(url)
            .header(http::header::ACCEPT, "application/json")
            .header(
                http::header::USER_AGENT,
                concat!("flatkube/", env!("CARGO_PKG_VERSION")),
            )
            .body(Empty::new())
            .map_err(|error| failed(error.to_string()))?;
        let answer = self.client.request(request).await;
        let (head, body) = answer.map_err(|error| failed(told(&error)))?.into_parts();
        let body = Limited::new(body, DOCUMENT_MAX).collect().await.map_err(|error| {
            failed(if error.is::<LengthLimitError>() {
                format!("the answer is larger than {DOCUMENT_MAX} bytes")
            } else {
                error.to_string()
            })
        })?;
        let body = body.to_bytes();
        if head.status != http::StatusCode::OK {
            let shown = String::from_utf8_lossy(&body[..body.len().min(TOLD_MAX)]).into_owned();
            return Err(failed(format!("{}: {shown:?}", head.status)));
        }
        Ok(body)
    }
}

/// The keys of a JWKS that signatures can be proven with here.
///
/// # Errors
/// When it is none, holds no such key, or too many.
pub(super) fn keys(document: &[u8]) -> Result<Keys, String> {
    let set: Jwks =
        serde_json::from_slice(document).map_err(|error| format!("oidc: failed to decode keys: {error}"))?;
    if set.keys.len() > KEYS_MAX {
        return Err(format!("oidc: more than {KEYS_MAX} keys"));
    }
    let known = |jwk: &crate::auth::jws::Jwk| Some((jwk.kid.clone(), PublicKey::of_jwk(jwk)?));
    let keys: Keys = set.keys.iter().filter_map(known).collect();
    if keys.is_empty() {
        return Err("oidc: none of the keys is of RSA, P-256 or P-384".into());
    }
    Ok(keys)
}

/// What went wrong, down to its cause.
fn told(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
