//! Aggregated APIs: groups and versions that another API server serves behind a Service, told by an `APIService`.
//!
//! Requests for such a version are passed on with the name of who asks in headers (`X-Remote-User`, `-Uid`, `-Group`), which
//! that server believes because this one shows a certificate of the front proxy's authority; the ConfigMap
//! `kube-system/extension-apiserver-authentication` tells it of both.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `availability` | the background: who is there, what it serves, the status of each `APIService` |
//! | `discovery` | its groups in this server's documents |

mod availability;
mod discovery;

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::StatusCode;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use super::Api;
use super::body::Response;
use super::peer::Peer;
use super::proxy::{self, Backend, Tls};
use super::router::plain;
use super::status::Status;
use crate::auth::User;

pub(super) use availability::run;
pub(super) use discovery::{group, groups, openapi_index};

/// The aggregated APIs of a server. Looked at without a lock.
#[derive(Debug, Default)]
pub(super) struct Aggregation {
    remotes: ArcSwap<Vec<Arc<Remote>>>,
}

/// A group and version that another server serves.
#[derive(Debug)]
pub(super) struct Remote {
    group: String,
    version: String,
    /// Of the Service that leads to it.
    namespace: String,
    service: String,
    port: i64,
    /// How it is trusted; or why it cannot be.
    tls: Result<Tls, String>,
    is_available: bool,
    /// Of the group, of the version within it.
    priorities: (i64, i64),
    /// What it serves, as far as that is known.
    known: Option<Arc<discovery::Known>>,
}

impl Aggregation {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.remotes.load().is_empty()
    }

    /// The server that answers a path below `/apis/GROUP/VERSION`, or for the OpenAPI document of that version.
    pub(super) fn find(&self, path: &str) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        if remotes.is_empty() {
            return None;
        }
        let path: Cow<'_, str> = if path.contains('%') {
            percent_decode_str(path).decode_utf8().ok()?
        } else {
            Cow::Borrowed(path)
        };
        let path = path.trim_matches('/');
        let rest = path.strip_prefix("openapi/v3/").unwrap_or(path).strip_prefix("apis/")?;
        let mut segments = rest.split('/');
        let (group, version) = (segments.next()?, segments.next()?);
        // By these objects it is mended that something is passed on wrongly.
        if group == "apiregistration.k8s.io" {
            return None;
        }
        let found = remotes
            .iter()
            .find(|remote| remote.group == group && remote.version == version);
        found.cloned()
    }

    /// Whether a path is that of a group (`/apis/GROUP`) with versions that other servers serve.
    pub(super) fn has_group(&self, path: &str) -> bool {
        let group = path.trim_matches('/').strip_prefix("apis/");
        group.is_some_and(|group| self.remotes.load().iter().any(|remote| remote.group == group))
    }
}

/// An error in plain text, as upstream's aggregator gives it.
fn failed(code: StatusCode, text: &str) -> Response {
    plain(code, format!("{text}\n").into_bytes().into())
}

/// Passes a request on to the server that answers it.
///
/// # Errors
/// 429 when the user has too many open. What the other server is to blame for is an answer in plain text.
pub(super) async fn answer(
    api: &Arc<Api>,
    peer: &Arc<Peer>,
    user: Arc<User>,
    remote: &Remote,
    head: http::request::Parts,
    body: Incoming,
) -> Result<Response, Status> {
    let unavailable = || failed(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
    if !remote.is_available {
        return Ok(unavailable());
    }
    let tls = match &remote.tls {
        Ok(tls) => tls.clone(),
        Err(why) => return Ok(failed(StatusCode::INTERNAL_SERVER_ERROR, why)),
    };
    let view = api.reader.store.view();
    let backend = proxy::backend(&view, &remote.namespace, &remote.service, remote.port);
    drop(view);
    let Ok((host, port)) = backend else {
        return Ok(unavailable());
    };
    let backend = Backend { tls, host, port };
    let answered = backend.answer(api, peer, user, head, body).await?;
    Ok(answered.unwrap_or_else(|error| {
        let text = format!("error trying to reach service: {error}");
        failed(StatusCode::SERVICE_UNAVAILABLE, &text)
    }))
}

/// Asks the server of a path, with its query, as this server itself: the code and the body. `None`: there is none.
///
/// # Errors
/// Inside, a sentence that says what failed.
pub(super) async fn ask(api: &Api, path: &str) -> Option<Result<(u16, Bytes), String>> {
    let remote = api.aggregation.find(path.split('?').next().unwrap_or(path))?;
    if !remote.is_available {
        return Some(Ok((StatusCode::SERVICE_UNAVAILABLE.as_u16(), Bytes::new())));
    }
    let tls = match &remote.tls {
        Ok(tls) => tls.clone(),
        Err(why) => return Some(Err(why.clone())),
    };
    let backend = proxy::backend(
        &api.reader.store.view(),
        &remote.namespace,
        &remote.service,
        remote.port,
    );
    let (host, port) = match backend {
        Ok(found) => found,
        Err(status) => return Some(Err(status.message)),
    };
    Some(Backend { tls, host, port }.get(path).await)
}

/// Redirects of an aggregated server are not followed by clients that took this server for it.
fn is_redirect(response: &Response) -> bool {
    response.status().is_redirection() && response.headers().contains_key(http::header::LOCATION)
}

/// What is answered in place of a redirect.
pub(super) fn without_redirect(response: Response) -> Response {
    if is_redirect(&response) {
        let text = "the backend attempted to redirect this request, which is not permitted";
        let mut answer = http::Response::new(text.into());
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        return answer;
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_server_of_its_version_alone() {
        let aggregation = Aggregation::default();
        assert!(aggregation.find("/apis/metrics.k8s.io/v1beta1").is_none());
        let remote = Remote {
            group: "metrics.k8s.io".into(),
            version: "v1beta1".into(),
            namespace: "kube-system".into(),
            service: "metrics-server".into(),
            port: 443,
            tls: Err(String::new()),
            is_available: true,
            priorities: (100, 100),
            known: None,
        };
        aggregation.remotes.store(Arc::new(vec![Arc::new(remote)]));
        for path in [
            "/apis/metrics.k8s.io/v1beta1",
            "/apis/metrics.k8s.io/v1beta1/nodes?x",
            "//apis/metrics.k8s.io/v1beta1/namespaces/a/pods/b",
            "/apis/metrics%2Ek8s.io/v1beta1/nodes",
            "/openapi/v3/apis/metrics.k8s.io/v1beta1",
        ] {
            let path = path.split('?').next().unwrap();
            assert!(aggregation.find(path).is_some(), "{path}");
        }
        for path in [
            "/apis/metrics.k8s.io",
            "/apis/metrics.k8s.io/v1",
            "/apis/metrics.k8s.io/v1beta1x/nodes",
            "/api/v1/nodes",
            "/apis/%ff/v1beta1",
            "/openapi/v2",
        ] {
            assert!(aggregation.find(path).is_none(), "{path}");
        }
    }
}
