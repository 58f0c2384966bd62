//! A webhook that knows whom bearer tokens stand for (`--authentication-token-webhook-config-file`): it is asked by TokenReviews.

mod kubeconfig;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::issuer::digest_of;
use super::user::User;
use super::verified::Verified;
use crate::tree::json;
use kubeconfig::Place;

/// How long one token may take in all.
const WITHIN: Duration = Duration::from_secs(30);
/// Tries, and the wait before the second; each further one is half as long again.
const TRIES: u32 = 5;
const BACKOFF: Duration = Duration::from_millis(500);
/// Questions at a time; more are told no at once.
const ASKING_MAX: usize = 256;
/// The largest answer that is read, bytes.
const ANSWER_MAX: usize = 1024 * 1024;

/// A webhook, in kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// The kubeconfig that says where it is.
    pub config_file: PathBuf,
    /// The version of TokenReview that it speaks: `v1` or `v1beta1`.
    pub version: String,
    /// How long its answers are remembered.
    pub cache_ttl: Duration,
}

/// The webhook. Remembers 4,096 answers at most, of 300 bytes and the texts of a user each, commonly 4 MiB in all.
pub struct Webhook {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: http::Uri,
    authorization: Option<HeaderValue>,
    version: String,
    ttl: Duration,
    answers: Verified<Answer>,
    asking: Semaphore,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never what authorizes this server there.
        formatter
            .debug_struct("Webhook")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// What the webhook said.
#[derive(Debug)]
struct Answer {
    at: Instant,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Review {
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: Told,
    audiences: Vec<String>,
    error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Webhook {
    /// The webhook of a kubeconfig.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(options: &WebhookOptions) -> Result<Self, String> {
        let Place {
            url,
            tls,
            authorization,
        } = Place::read(&options.config_file)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(WITHIN / 3));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .build(connector),
            url,
            authorization,
            version: options.version.clone(),
            ttl: options.cache_ttl,
            answers: Verified::default(),
            asking: Semaphore::new(ASKING_MAX),
        })
    }

    /// Whom a token stands for, and which of the audiences that are asked for it is good for; `None` for one that the webhook does not
    /// know. `own`: audiences that an answer means which names none.
    ///
    /// # Errors
    /// What the webhook said, or why it said nothing.
    pub(super) async fn user(
        &self,
        token: &str,
        asked: &[String],
        own: &[String],
    ) -> Result<Option<(Arc<User>, Vec<String>)>, String> {
        // The longest part first: no audience can be taken for a part of a token.
        let digest = digest_of(&json!([token, asked]).to_json());
        let known = self
            .answers
            .get(&digest)
            .filter(|answer| answer.at.elapsed() < self.ttl);
        let answer = if let Some(answer) = known {
            answer
        } else {
            let status = self.ask(token, asked).await?;
            let answer = Arc::new(Answer {
                at: Instant::now(),
                status,
            });
            self.answers.insert(digest, answer.clone());
            answer
        };
        let Status {
            authenticated,
            user,
            audiences,
            error,
        } = &answer.status;
        if !authenticated {
            return if error.is_empty() { Ok(None) } else { Err(error.clone()) };
        }
        let told = if audiences.is_empty() { own } else { audiences };
        let fitting: Vec<String> = asked
            .iter()
            .filter(|audience| told.contains(audience))
            .cloned()
            .collect();
        if fitting.is_empty() && !asked.is_empty() {
            return Ok(None);
        }
        if user.username.is_empty() {
            return Err("the webhook named no user".into());
        }
        let user = User {
            name: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        };
        Ok(Some((Arc::new(user.known_or_not()), fitting)))
    }

    async fn ask(&self, token: &str, asked: &[String]) -> Result<Status, String> {
        let Ok(_place) = self.asking.try_acquire() else {
            return Err("too many requests wait for the webhook that knows tokens".into());
        };
        let body = json!({
            "apiVersion": format!("authentication.k8s.io/{}", self.version),
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": asked},
        });
        let body = Bytes::from(body.to_json());
        let tried = async {
            let mut wait = BACKOFF;
            for _ in 1..TRIES {
                match self.post(body.clone()).await {
                    Err((why, true)) => tracing::debug!(why, "the webhook that knows tokens is asked again"),
                    Err((why, false)) => return Err(why),
                    Ok(status) => return Ok(status),
                }
                tokio::time::sleep(wait).await;
                wait = wait * 3 / 2;
            }
            self.post(body.clone()).await.map_err(|(why, _)| why)
        };
        let answered = tokio::time::timeout(WITHIN, tried).await;
        answered.unwrap_or_else(|_| Err(format!("Post {:?}: context deadline exceeded", self.url.to_string())))
    }

    /// One try. An error says whether another one may help.
    async fn post(&self, body: Bytes) -> Result<Status, (String, bool)> {
        let failed = |why: String, again: bool| (format!("Post {:?}: {why}", self.url.to_string()), again);
        let mut request = http::Request::post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string(), false))?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        let answer = self.client.request(request).await;
        let (head, body) = answer.map_err(|error| failed(error.to_string(), true))?.into_parts();
        let again = head.status.is_server_error() || head.status == http::StatusCode::TOO_MANY_REQUESTS;
        if !head.status.is_success() {
            return Err(failed(format!("the server answered {}", head.status), again));
        }
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|error| failed(error.to_string(), true))?.to_bytes();
        let review: Review = serde_json::from_slice(&body).map_err(|error| failed(error.to_string(), false))?;
        Ok(review.status)
    }
}
