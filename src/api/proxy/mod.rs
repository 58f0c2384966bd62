//! Requests that are answered elsewhere: `log`, `exec`, `attach` and `portforward` by the kubelet of a Pod's node, `proxy` by a
//! Pod, a Service or a node.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `pods`, `nodes`, `services` | where a request goes, and with which options |
//! | `location`, `dial`, `tls` | which addresses are allowed, how they are reached and trusted |
//! | `headers`, `forward`, `log` | a request and its answer on their way through |
//! | `backend` | aggregated APIs |
//! | `simulated` | Pods on nodes that are not there |
//! | `post` | webhooks |
//! | `upgrade`, `tunnel` | connections that become something else |
//! | `websocket`, `spdy`, `translate` | what is spoken on them, where the two sides differ |
//!
//! A place among the requests is held only until it is known where one goes. After that it holds one among those that are
//! answered elsewhere, as long as it lasts: it costs this server little but descriptors.

mod backend;
mod dial;
mod forward;
mod headers;
mod location;
mod log;
mod nodes;
mod outbound;
mod pods;
mod post;
mod services;
mod simulated;
mod spdy;
mod tls;
mod translate;
mod tunnel;
mod upgrade;
mod websocket;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use http::header;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use metrics::{counter, gauge};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{Body, Response};
use super::fairness::{Entrant, Gated, Place};
use super::negotiate::{self, Transforms};
use super::path::Target;
use super::peer::Peer;
use super::request::{Query, RequestInfo};
use super::router;
use super::status::Status;
use super::write::quoted;
use super::{Api, Stopping, audited, write};
use crate::auth::{ClientIdentity, Identity, Serving, User};
use forward::Outside;
use location::{Location, Reach};
use pods::Pod;
use tls::Trust;
use tunnel::End;
use upgrade::{Asking, Purpose};

pub(in crate::api) use backend::Backend;
pub(in crate::api) use location::Tls;
pub use outbound::{Network, Outbound};
pub(in crate::api) use post::Post;
pub(in crate::api) use services::{Known, backend, known, service};
pub(crate) use simulated::Simulated;
pub(in crate::api) use upgrade::IDLE;

/// How kubelets are reached.
#[derive(Debug, Clone)]
pub struct KubeletAccess {
    /// A PEM file of the authorities that sign kubelets' certificates; `None`: they are not verified.
    pub certificate_authority: Option<PathBuf>,
    /// PEM files of a certificate and its key to show kubelets; `None`: one of this server's own authority.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Types of node addresses, the first that a node has is taken.
    pub address_types: Vec<String>,
}

impl Default for KubeletAccess {
    fn default() -> Self {
        let types = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];
        Self {
            certificate_authority: None,
            client: None,
            address_types: types.map(str::to_owned).to_vec(),
        }
    }
}

/// Who this server is.
#[derive(Debug, Clone)]
pub(super) struct Own {
    /// What it shows its clients.
    pub(super) serving: Arc<Serving>,
    /// What it shows kubelets.
    pub(super) kubelet_client: Arc<ClientIdentity>,
    /// What it shows aggregated API servers.
    pub(super) front_proxy_client: Arc<ClientIdentity>,
}

/// How backends are reached and trusted.
#[derive(Debug)]
pub(super) struct Backends {
    kubelet: Arc<ClientConfig>,
    kubelet_unverified: Arc<ClientConfig>,
    /// Pods and Services: their certificates cannot be known.
    unverified: Arc<ClientConfig>,
    address_types: Vec<String>,
    trust: Trust,
    front_proxy: Arc<ClientIdentity>,
    /// How many connections there may be.
    connections: Arc<Semaphore>,
}

impl Backends {
    /// Reads the files that `access` names.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub(super) fn open(own: Own, access: &KubeletAccess, connections: usize) -> Result<Self, (PathBuf, String)> {
        let Own {
            serving,
            kubelet_client,
            front_proxy_client,
        } = own;
        let trust = Trust::new(Some(serving));
        let own = |reason| (Path::new("pki").to_owned(), reason);
        let shown = match &access.client {
            None => None,
            Some((certificate, key)) => {
                let identity = Identity {
                    chain: tls::certificates(certificate)?,
                    key: tls::key(key)?,
                };
                let identity = ClientIdentity::new(&identity).map_err(|reason| (certificate.clone(), reason))?;
                Some(Arc::new(identity))
            }
        };
        let identity = shown.as_ref().unwrap_or(&kubelet_client);
        let kubelet_unverified = trust
            .config(None, Some(identity))
            .map_err(|reason| match &access.client {
                None => own(reason),
                Some((certificate, _)) => (certificate.clone(), reason),
            })?;
        let kubelet = match &access.certificate_authority {
            None => kubelet_unverified.clone(),
            Some(path) => trust
                .config(Some(&tls::certificates(path)?), Some(identity))
                .map_err(|reason| (path.clone(), reason))?,
        };
        Ok(Self {
            kubelet,
            kubelet_unverified,
            unverified: trust.config(None, None).map_err(own)?,
            address_types: access.address_types.clone(),
            trust,
            front_proxy: front_proxy_client,
            connections: Arc::new(Semaphore::new(connections)),
        })
    }

    /// Trust in an aggregated API server: by the authorities `roots` (`None`: whatever it shows), under `name`.
    ///
    /// # Errors
    /// When none of the authorities can be used.
    pub(super) fn aggregated(&self, roots: Option<&[CertificateDer<'static>]>, name: &str) -> Result<Tls, String> {
        Ok(Tls {
            config: self.trust.config(roots, Some(&self.front_proxy))?,
            name: name.to_owned(),
        })
    }
}

/// A request on its stay with a backend: what it holds of this server.
struct Guest {
    address: SocketAddr,
    stopping: Stopping,
    /// Who asks, if the backend is to be told.
    identity: Option<Arc<User>>,
    _place: Option<Place>,
    _connection: OwnedSemaphorePermit,
    _open: Open,
}

const OPEN: &str = "flatkube_proxied_requests";
const ENDED: &str = "flatkube_upgraded_connections_total";

/// Counted while it lives.
struct Open(&'static str);

impl Open {
    fn new(subresource: &'static str) -> Self {
        gauge!(OPEN, "subresource" => subresource).increment(1.0);
        Self(subresource)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        gauge!(OPEN, "subresource" => self.0).decrement(1.0);
    }
}

impl Guest {
    /// Takes a place for a request of `entrant`.
    ///
    /// # Errors
    /// 429 when the user has as many as it may, or there are no more for anybody.
    fn new(
        api: &Api,
        address: SocketAddr,
        entrant: Entrant<'_>,
        subresource: &'static str,
        identity: Option<Arc<User>>,
    ) -> Result<Self, Status> {
        let place = api.fairness.stay(entrant)?;
        let connections = api.backends()?.connections.clone();
        let connection = connections.try_acquire_owned();
        Ok(Self {
            address,
            stopping: api.reader.stopping.clone(),
            identity,
            _place: place,
            _connection: connection
                .map_err(|_| Status::too_many_requests("Too many requests, please try again later.", 1))?,
            _open: Open::new(subresource),
        })
    }

    /// Notes how an upgraded connection ended.
    fn ended(self, end: End, kind: &'static str) {
        drop(self);
        counter!(ENDED, "kind" => kind, "end" => end.name()).increment(1);
    }
}

/// Whether a path is answered elsewhere.
pub(super) fn is_elsewhere(target: &Target) -> bool {
    let sub = target.subresource.as_ref().map_or("", |sub| sub.name);
    target.resource.group.is_empty()
        && match &*target.resource.plural {
            "pods" => matches!(sub, "log" | "exec" | "attach" | "portforward" | "proxy"),
            "services" | "nodes" => sub == "proxy",
            _ => false,
        }
}

/// What is to be done.
enum Plan {
    /// Nothing but this answer.
    Answer(Response),
    Log(Location),
    Stream(Location, Purpose, bool),
    Proxy(Location, Outside),
}

/// Answers a request of [`is_elsewhere`].
pub(super) async fn answer(
    api: &Arc<Api>,
    peer: &Arc<Peer>,
    user: Arc<User>,
    target: Target,
    mut head: http::request::Parts,
    body: Incoming,
) -> Result<Response, Status> {
    let begun = Instant::now();
    let query = Query::new(head.uri.query().unwrap_or(""));
    let verb = router::verb(&target, &head.method, &query)?;
    let rest = target.rest;
    let info = RequestInfo {
        verb,
        resource: target.resource,
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
        query,
        answer: negotiate::negotiate(None, None, Transforms::None, || false)?,
        user,
        peer: peer.address,
        audit: audited::of(api, &head).cloned(),
        headers: http::HeaderMap::new(),
    };
    let _in_flight = api.metrics.begin(verb);
    let mut planned = None;
    let planning = async {
        if info.subresource_name() != "log" {
            write::connect(api, &info).await?;
        }
        planned = Some(plan(api, peer, &info, rest.as_deref(), &head)?);
        Ok(http::Response::new(Body::empty()))
    };
    let passed = Gated::new(&api.fairness, Entrant::of(&info), planning).await;
    let result = match (passed, planned) {
        (Ok(_), Some(Plan::Answer(response))) => Ok(response),
        (Ok(_), Some(plan)) => {
            let asking = Asking {
                method: head.method,
                upgrade: head.extensions.remove::<OnUpgrade>(),
                fields: head.headers,
                peer: peer.clone(),
            };
            run(api, &info, plan, asking, body).await
        }
        (Ok(_), None) => Err(Status::internal("nothing was planned")),
        (Err(status), _) => Err(status),
    };
    let response = result.unwrap_or_else(Status::into_response);
    api.metrics.request(&info, response.status(), begun);
    Ok(response)
}

async fn run(api: &Api, info: &RequestInfo, plan: Plan, asking: Asking, body: Incoming) -> Result<Response, Status> {
    let guest = Guest::new(api, info.peer, Entrant::of(info), info.subresource_name(), None)?;
    let name = info.name.as_deref().unwrap_or("");
    match plan {
        Plan::Answer(response) => Ok(response),
        Plan::Log(location) => log::answer(&location, name, guest).await,
        Plan::Stream(location, purpose, takes_websockets) => {
            upgrade::stream(location, purpose, takes_websockets, asking, guest).await
        }
        Plan::Proxy(location, outside) => {
            let host = match outside.host.as_str() {
                "" => location.authority(),
                host => host.to_owned(),
            };
            if asking.is_upgrade() {
                return upgrade::through(&location, &host, Some(&outside), asking, guest).await;
            }
            let mut fields = forward::outgoing(asking.fields, false, &guest).map_err(Status::internal)?;
            forward::tell_outside(&mut fields, &location, &outside);
            let sent = forward::forward(&location, asking.method, &host, fields, body, Some(&outside), guest).await;
            sent.map_err(|error| match error.as_str() {
                dial::NOT_ALLOWED => Status::bad_request(error),
                _ => Status::service_unavailable(format!("error trying to reach service: {error}")),
            })
        }
    }
}

/// Finds out where a request goes.
fn plan(
    api: &Api,
    peer: &Peer,
    info: &RequestInfo,
    rest: Option<&str>,
    head: &http::request::Parts,
) -> Result<Plan, Status> {
    let view = api.reader.store.view();
    let backends = api.backends()?;
    let (id, sub) = (info.name.as_deref().unwrap_or(""), info.subresource_name());
    if sub == "proxy" {
        let ends_in_slash = head.uri.path().ends_with('/');
        let path = location::encode_path(&location::clean(rest.unwrap_or(""), ends_in_slash));
        let query = head.uri.query().unwrap_or("").to_owned();
        let is_upgrade = headers::is_upgrade(&head.headers);
        let is_bare = path.is_empty() && !is_upgrade && matches!(head.method.as_str(), "GET" | "HEAD");
        let location = match &*info.resource.plural {
            "pods" => pod_proxied(&view, backends, info, id, path, query)?,
            "nodes" => nodes::proxied(&view, backends, id, path, query)?,
            _ => {
                let namespace = info.namespace.as_deref().unwrap_or("");
                services::proxied(&view, backends, namespace, id, path, query)?
            }
        };
        if is_bare {
            return redirect_to_root(head).map(Plan::Answer);
        }
        return Ok(Plan::Proxy(location, outside(peer, info, head)));
    }
    let pod = pod(&view, info, id)?;
    let asked = info.query.get("container").unwrap_or_default();
    let namespace = info.namespace.as_deref().unwrap_or("");
    if sub == "log" {
        let options = pods::log_options(&info.query, id)?;
        let container = pod.container(id, &asked)?;
        let Ok(node) = pod.node(id) else {
            return Ok(Plan::Answer(log::empty()));
        };
        if let Some(nodes) = api.simulated(node) {
            let object = stored(&view, info, id)?;
            return simulated::log(&*nodes, &object, container, &info.query).map(Plan::Answer);
        }
        let kubelet = nodes::Kubelet::of(&view, backends, node)?;
        let path = location::encode_path(&format!("/containerLogs/{namespace}/{id}/{container}"));
        return Ok(Plan::Log(kubelet.at(
            backends,
            path,
            options.query,
            options.is_unverified,
        )));
    }
    let (purpose, path, query) = if sub == "portforward" {
        let query = pods::port_forward_options(&info.query)?;
        (Purpose::PortForward, format!("/portForward/{namespace}/{id}"), query)
    } else {
        let (wanted, query) = pods::stream_options(&info.query, sub == "exec");
        let container = pod.container(id, &asked)?;
        let path = format!("/{sub}/{namespace}/{id}/{container}");
        (Purpose::Session(wanted), path, query)
    };
    let node = pod.node(id)?;
    if api.simulated(node).is_some() {
        return Err(simulated::nothing_runs(id, node));
    }
    let kubelet = nodes::Kubelet::of(&view, backends, node)?;
    let location = kubelet.at(backends, location::encode_path(&path), query, false);
    Ok(Plan::Stream(location, purpose, kubelet.takes_websockets))
}

fn stored(view: &crate::store::View, info: &RequestInfo, name: &str) -> Result<crate::store::Object, Status> {
    let key = info.resource.key(info.namespace.as_deref(), name);
    let found = view.get(&info.resource.storage, &key).map_err(Status::damaged)?;
    found.ok_or_else(|| Status::not_found("", "pods", name))
}

fn pod(view: &crate::store::View, info: &RequestInfo, name: &str) -> Result<Pod, Status> {
    let found = stored(view, info, name)?;
    serde_json::from_slice(found.json().map_err(Status::damaged)?).map_err(Status::internal)
}

/// Where a request for `pods/ID/proxy` goes.
fn pod_proxied(
    view: &crate::store::View,
    backends: &Backends,
    info: &RequestInfo,
    id: &str,
    path: String,
    query: String,
) -> Result<Location, Status> {
    let (scheme, name, port) =
        location::split(id).ok_or_else(|| Status::bad_request(format!("invalid pod request {}", quoted(id))))?;
    let pod = pod(view, info, name)?;
    let declared = pod
        .first_port()
        .filter(|_| port.is_empty())
        .map(|port| port.to_string());
    let address = pod.address()?.to_string();
    elsewhere(
        backends,
        scheme,
        &address,
        declared.as_deref().unwrap_or(port),
        path,
        query,
    )
}

/// A place on a Pod, a Service's Pod or a node, but for its kubelet. `port` may be empty.
///
/// # Errors
/// 503 for what is no port, in upstream's words.
fn elsewhere(
    backends: &Backends,
    scheme: &str,
    host: &str,
    port: &str,
    path: String,
    query: String,
) -> Result<Location, Status> {
    let is_https = scheme == "https";
    let port = match port {
        "" if is_https => 443,
        "" => 80,
        text => text.parse().map_err(|_| {
            let error = format!("dial tcp: lookup tcp/{text}: unknown port");
            Status::service_unavailable(format!("error trying to reach service: {error}"))
        })?,
    };
    let tls = is_https.then(|| Tls {
        config: backends.unverified.clone(),
        name: host.to_owned(),
    });
    Ok(Location {
        tls,
        host: host.to_owned(),
        port,
        reach: Reach::Proxyable,
        path,
        query,
    })
}

/// How a request for `proxy` came.
fn outside(peer: &Peer, info: &RequestInfo, head: &http::request::Parts) -> Outside {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| head.uri.authority().map(http::uri::Authority::as_str));
    let namespace = info
        .namespace
        .as_ref()
        .map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
    let name = info.name.as_deref().unwrap_or("");
    let prefix = format!("/api/v1/{namespace}{}/{name}/proxy", info.resource.plural);
    Outside {
        scheme: if peer.is_tls { "https" } else { "http" },
        host: host.unwrap_or("").to_owned(),
        prefix: location::encode_path(&prefix),
    }
}

/// A browser's links are relative to a path that ends in `/`.
fn redirect_to_root(head: &http::request::Parts) -> Result<Response, Status> {
    let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
    let target = format!("{}/{query}", head.uri.path())
        .parse()
        .map_err(Status::internal)?;
    response.headers_mut().insert(header::LOCATION, target);
    Ok(response)
}

/// Describes what is counted here.
pub(super) fn describe(recorder: &metrics_exporter_prometheus::PrometheusRecorder) {
    use metrics::Recorder as _;
    recorder.describe_gauge(
        OPEN.into(),
        None,
        "Requests that are being answered by kubelets, Pods, Services and nodes, upgraded connections included.".into(),
    );
    recorder.describe_counter(
        ENDED.into(),
        None,
        "Upgraded connections that ended, by what was done (through, tunnelled, translated) and why (done, broken, idle, \
         stopping)."
            .into(),
    );
}
