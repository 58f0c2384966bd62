//! Webhooks as they are configured at this moment, and how they are called. No lock is held meanwhile, and no view of the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base64::Engine as _;
use bytes::Bytes;
use metrics::{counter, histogram};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::Api;
use super::proxy::{self, Post, Tls};
use super::status::Status;
use super::write;
use crate::admission::webhooks::{Address, Client, Webhook};
use crate::store::View;
use crate::tree::Value;

/// Kinds of trust that are remembered; a few webhooks share one each.
const TRUSTED_MAX: usize = 256;

/// The webhooks of one kind, compiled; made anew when their configurations have changed. A webhook takes about the bytes of its
/// configuration.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    compiled: ArcSwap<Compiled>,
}

#[derive(Debug, Default)]
struct Compiled {
    /// Keys and revisions of what was compiled.
    of: Vec<(String, u64)>,
    webhooks: Vec<Arc<Webhook>>,
}

impl Webhooks {
    /// The webhooks as they are in the view: by the names of their configurations, and in their order. Costs a look at the names of
    /// the configurations.
    ///
    /// # Errors
    /// 500 when a configuration cannot be read.
    pub(super) fn all(&self, view: &Arc<View>, configurations: &str) -> Result<Arc<[Arc<Webhook>]>, Status> {
        let of = write::revisions(view, configurations)?;
        let known = self.compiled.load_full();
        if known.of == of {
            return Ok(known.webhooks.as_slice().into());
        }
        let all = write::all(view, configurations)?;
        let webhooks: Vec<Arc<Webhook>> = all.iter().flat_map(Webhook::compile).collect();
        let listed = webhooks.as_slice().into();
        self.compiled.store(Arc::new(Compiled { of, webhooks }));
        Ok(listed)
    }
}

/// A bundle (`None`: the system's), and the name that is believed by it.
type Believed = (Option<String>, String);

/// How webhooks are trusted: a configuration of TLS takes a few kB and a millisecond to make.
#[derive(Debug, Default)]
pub(super) struct Trusted {
    known: Mutex<HashMap<Believed, Result<Tls, String>>>,
}

/// Where a webhook is, resolved: what [`Post::send`] takes.
///
/// # Errors
/// A sentence that says why it cannot be called.
pub(super) fn resolve(api: &Api, view: &Arc<View>, client: &Client, within: Duration) -> Result<Post, String> {
    let query = format!("timeout={}s", within.as_secs());
    let (authority, name, path, dialled) = match &client.address {
        Address::Url(url) => {
            let uri: http::Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
            let host = uri.host().ok_or_else(|| format!("{url:?} names no host"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let authority = uri.authority().map_or_else(|| host.clone(), ToString::to_string);
            (
                authority,
                host.clone(),
                uri.path().to_owned(),
                Ok((host, uri.port_u16().unwrap_or(443))),
            )
        }
        Address::Service {
            namespace,
            name,
            port,
            path,
        } => {
            let host = format!("{name}.{namespace}.svc");
            let dialled = proxy::backend(view, namespace, name, *port);
            let dialled = dialled.map_err(|status| match status.code {
                404 => format!("service {name:?} not found"),
                _ => status.message,
            });
            (format!("{host}:{port}"), host, path.clone(), dialled)
        }
    };
    let path = if path.is_empty() { "/".to_owned() } else { path };
    let path = format!("{path}?{query}");
    let failed = |error: String| format!("Post {:?}: {error}", format!("https://{authority}{path}"));
    let dialled = dialled.map_err(failed)?;
    let tls = trust(api, client.bundle.as_deref(), &name).map_err(failed)?;
    Ok(Post {
        tls,
        dialled,
        authority,
        path,
    })
}

fn trust(api: &Api, bundle: Option<&str>, name: &str) -> Result<Tls, String> {
    let key = (bundle.map(str::to_owned), name.to_owned());
    let known = || {
        api.trusted
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    if let Some(tls) = known().get(&key) {
        return tls.clone();
    }
    let made = make_trust(api, bundle, name);
    let mut known = known();
    if known.len() >= TRUSTED_MAX {
        known.clear();
    }
    known.insert(key, made.clone());
    made
}

fn make_trust(api: &Api, bundle: Option<&str>, name: &str) -> Result<Tls, String> {
    let backends = api.backends().map_err(|status| status.message)?;
    let Some(bundle) = bundle else {
        return backends.webhook(None, name);
    };
    let unable = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let pem = base64::engine::general_purpose::STANDARD
        .decode(bundle)
        .map_err(|_| unable())?;
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let roots = roots.map_err(|_| unable())?;
    if roots.is_empty() {
        return Err(unable());
    }
    backends.webhook(Some(&roots), name)
}

/// A call that is ready to be made.
pub(super) struct Call {
    post: Result<Post, String>,
    within: Duration,
}

impl Call {
    /// To a webhook of admission.
    pub(super) fn of(api: &Api, view: &Arc<View>, webhook: &Webhook) -> Self {
        let within = Duration::from_secs(webhook.timeout_s());
        Self {
            post: resolve(api, view, &webhook.client(), within),
            within,
        }
    }

    /// Makes it.
    ///
    /// # Errors
    /// What failed.
    pub(super) async fn make(self, body: Vec<u8>) -> Result<Bytes, String> {
        let sent = match self.post {
            Ok(post) => post.send(body, self.within).await,
            Err(why) => Err(why),
        };
        sent.map_err(|why| format!("failed to call webhook: {why}"))
    }
}

/// What a refusal by a webhook is to a client.
pub(super) fn rejection(webhook: &str, said: &Value) -> Status {
    const REASONS: [&str; 17] = [
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "ServerTimeout",
        "Timeout",
        "TooManyRequests",
        "BadRequest",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "UnsupportedMediaType",
        "InternalError",
        "ServiceUnavailable",
    ];
    let denied = format!("admission webhook {webhook:?} denied the request");
    let text = |field: &str| said[field].as_str().unwrap_or("");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = said["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let mut status = Status::plain(code.filter(|code| (400..600).contains(code)).unwrap_or(400), message);
    status.reason = REASONS.into_iter().find(|known| *known == text("reason")).unwrap_or("");
    status.details = write::details(&said["details"]);
    status
}

const DURATION: &str = "apiserver_admission_webhook_admission_duration_seconds";
const REQUESTS: &str = "apiserver_admission_webhook_request_total";
const REJECTIONS: &str = "apiserver_admission_webhook_rejection_count";
const OPEN: &str = "apiserver_admission_webhook_fail_open_count";

/// A call for the metrics.
pub(super) struct Counted<'a> {
    pub name: &'a str,
    /// `admit` or `validating`, as upstream has it.
    pub kind: &'static str,
    pub operation: &'static str,
    pub begun: Instant,
}

impl Counted<'_> {
    /// A call that ended: whether the webhook refused, with which code of its own; or could not be asked.
    pub(super) fn ended(&self, refused: Option<(&'static str, u16)>, fails_open: bool) {
        let rejected = if refused.is_some() { "true" } else { "false" };
        let (name, kind, operation) = (self.name.to_owned(), self.kind, self.operation);
        let took = self.begun.elapsed().as_secs_f64();
        histogram!(DURATION, "name" => name.clone(), "type" => kind, "operation" => operation, "rejected" => rejected)
            .record(took);
        let code = refused.map_or_else(|| "200".to_owned(), |(_, code)| code.to_string());
        counter!(REQUESTS, "name" => name.clone(), "type" => kind, "operation" => operation, "rejected" => rejected,
            "code" => code.clone())
        .increment(1);
        if let Some((why, _)) = refused {
            if fails_open {
                counter!(OPEN, "name" => name, "type" => kind).increment(1);
            } else {
                counter!(REJECTIONS, "name" => name, "type" => kind, "operation" => operation, "error_type" => why,
                    "rejection_code" => code)
                .increment(1);
            }
        }
    }
}

/// Describes what is counted here.
pub(super) fn describe(recorder: &metrics_exporter_prometheus::PrometheusRecorder) {
    use metrics::Recorder as _;
    recorder.describe_histogram(
        DURATION.into(),
        None,
        "Time that calls to admission webhooks took, by webhook, type (admit: mutating; validating), operation and whether the \
         request was refused."
            .into(),
    );
    for (name, text) in [
        (REQUESTS, "Calls to admission webhooks."),
        (
            REJECTIONS,
            "Requests that a webhook refused, or that failed because it could not be asked.",
        ),
        (OPEN, "Requests that went on although a webhook could not be asked."),
    ] {
        recorder.describe_counter(name.into(), None, text.into());
    }
}
