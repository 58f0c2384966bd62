//! The background of aggregated APIs: whether the server behind an `APIService` is there, and what it serves; and the
//! `APIServices` of this server's own custom resources.
//!
//! Level-triggered: everything is judged anew whenever something it depends on changes, and every half minute, because a
//! server may go without a word. There are a few dozens of `APIServices`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::task::JoinSet;

use super::Remote;
use super::discovery::Known;
use crate::api::Api;
use crate::api::proxy::{self, Backend};
use crate::api::status::Status;
use crate::api::write;
use crate::store::View;
use crate::tree::{Value, json};

const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Whose `APIServices` are made and removed by this server.
const MANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// How often servers are asked whether they are there.
const RESYNC: Duration = Duration::from_secs(30);
/// How soon after a failure, at first.
const AGAIN: Duration = Duration::from_secs(1);
/// Changes that come so close together are answered at once.
const GATHER: Duration = Duration::from_millis(50);
/// Backends of one server that are asked at a time; one that answers is enough.
const ATTEMPTS: usize = 5;

/// What goes on from round to round.
#[derive(Default)]
struct Memory {
    /// What a version served last, by the name of its `APIService`.
    known: HashMap<String, Arc<Known>>,
    /// How each is trusted: the bundle (`None`: whatever certificate) and what was made of it.
    trusted: HashMap<String, (Option<String>, Result<proxy::Tls, String>)>,
}

/// Keeps aggregated APIs up until the server stops.
pub(in crate::api) async fn run(api: Arc<Api>) {
    let stopping = api.reader.stopping.clone();
    let mut memory = Memory::default();
    let mut failures = 0_u32;
    while !stopping.is_stopping() {
        let view = api.reader.store.view();
        let follow = |resource| api.reader.store.follow(resource, None, view.revision());
        // What changes while this round goes on is seen by the next one.
        let followers = (
            follow(API_SERVICES),
            follow(DEFINITIONS),
            follow("services"),
            follow("endpointslices.discovery.k8s.io"),
            follow("endpoints"),
        );
        let registered = register(&api, &view).await;
        let judged = judge(&api, &view, &mut memory).await;
        drop(view);
        let (remotes, is_well) = match registered.and(judged) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "API services cannot be kept up");
                (0, false)
            }
        };
        failures = if is_well { 0 } else { (failures + 1).min(5) };
        let pause = if is_well {
            RESYNC
        } else {
            (AGAIN * (1 << failures) / 2).min(RESYNC)
        };
        let again = async {
            if remotes == 0 && is_well {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(pause).await;
        };
        let (Ok(mut servers), Ok(mut definitions), Ok(mut services), Ok(mut slices), Ok(mut endpoints)) = followers
        else {
            tokio::select! {
                () = stopping.stopped() => return,
                () = tokio::time::sleep(AGAIN) => continue,
            }
        };
        tokio::select! {
            () = stopping.stopped() => return,
            () = again => continue,
            () = servers.changed() => {}
            () = definitions.changed() => {}
            () = services.changed(), if remotes > 0 => {}
            () = slices.changed(), if remotes > 0 => {}
            () = endpoints.changed(), if remotes > 0 => {}
        }
        tokio::select! {
            () = stopping.stopped() => return,
            () = tokio::time::sleep(GATHER) => {}
        }
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

/// `APIServices` of the versions of custom resources that are served: made where they are missing, removed where the version
/// has gone. (Upstream's autoregistration.)
async fn register(api: &Api, view: &Arc<View>) -> Result<(), Status> {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    for (group, versions) in api.custom.served().groups() {
        wanted.extend(versions.iter().map(|(version, _)| (group.to_owned(), version.clone())));
    }
    for service in write::all(view, API_SERVICES)? {
        let (group, version) = (text(&service["spec"], "group"), text(&service["spec"], "version"));
        let is_wanted = wanted.remove(&(group.to_owned(), version.to_owned()));
        let is_ours = service["metadata"]["labels"][MANAGED_LABEL] == "true";
        if !is_wanted && is_ours {
            write::remove_own(api, API_SERVICES, text(&service["metadata"], "name")).await?;
        }
    }
    for (group, version) in wanted {
        write::add_api_service(api, &group, &version).await?;
    }
    Ok(())
}

/// Judges all servers: how many there are, and whether all are well.
async fn judge(api: &Arc<Api>, view: &Arc<View>, memory: &mut Memory) -> Result<(usize, bool), Status> {
    let mut remotes: Vec<Arc<Remote>> = Vec::new();
    let mut all = write::all(view, API_SERVICES)?;
    for local in all.iter().filter(|service| service["spec"]["service"].is_null()) {
        let condition = json!({
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        write::set_condition(api, API_SERVICES, "kube-apiserver", local, condition).await?;
    }
    all.retain(|service| !service["spec"]["service"].is_null());
    let names: BTreeSet<&str> = all.iter().map(|service| text(&service["metadata"], "name")).collect();
    for gone in memory.trusted.keys().filter(|name| !names.contains(name.as_str())) {
        tell_unavailable(gone, false);
    }
    memory.known.retain(|name, _| names.contains(name.as_str()));
    memory.trusted.retain(|name, _| names.contains(name.as_str()));
    // One that does not answer holds up no other.
    let mut checks = JoinSet::new();
    for service in &all {
        let remote = described(api, service, memory);
        let (api, view, service) = (api.clone(), view.clone(), service.clone());
        checks.spawn(async move {
            let verdict = verdict(&api, &view, &remote).await;
            (service, remote, verdict)
        });
    }
    let mut is_well = true;
    while let Some(checked) = checks.join_next().await {
        let (service, mut remote, verdict) = checked.map_err(Status::internal)?;
        let name = text(&service["metadata"], "name").to_owned();
        tell_unavailable(&name, verdict.is_err());
        let (reason, message) = match verdict {
            Ok(known) => {
                let known = Arc::new(known);
                memory.known.insert(name, known.clone());
                remote.known = Some(known);
                remote.is_available = true;
                ("Passed", "all checks passed".to_owned())
            }
            Err(told) => {
                is_well = false;
                told
            }
        };
        let status = if remote.is_available { "True" } else { "False" };
        remotes.push(Arc::new(remote));
        let condition = json!({"type": "Available", "status": status, "reason": reason, "message": message});
        write::set_condition(api, API_SERVICES, "kube-apiserver", &service, condition).await?;
    }
    let count = remotes.len();
    remotes.sort_by(|one, other| (&one.group, &one.version).cmp(&(&other.group, &other.version)));
    api.aggregation.remotes.store(Arc::new(remotes));
    Ok((count, is_well))
}

/// Upstream's figure.
fn tell_unavailable(name: &str, is_unavailable: bool) {
    let figure = metrics::gauge!("aggregator_unavailable_apiservice", "name" => name.to_owned());
    figure.set(f64::from(u8::from(is_unavailable)));
}

/// What an `APIService` says, and what is remembered of it.
fn described(api: &Api, service: &Value, memory: &mut Memory) -> Remote {
    let spec = &service["spec"];
    let name = text(&service["metadata"], "name");
    let (namespace, backend) = (text(&spec["service"], "namespace"), text(&spec["service"], "name"));
    let bundle = (spec["insecureSkipTLSVerify"] != true).then(|| text(spec, "caBundle").to_owned());
    let kept = memory.trusted.get(name).filter(|(kept, _)| *kept == bundle);
    let tls = if let Some((_, tls)) = kept {
        tls.clone()
    } else {
        let tls = trust(api, bundle.as_deref(), &format!("{backend}.{namespace}.svc"));
        memory.trusted.insert(name.to_owned(), (bundle, tls.clone()));
        tls
    };
    Remote {
        group: text(spec, "group").to_owned(),
        version: text(spec, "version").to_owned(),
        namespace: namespace.to_owned(),
        service: backend.to_owned(),
        port: spec["service"]["port"].as_i64().unwrap_or(443),
        tls,
        is_available: false,
        priorities: (
            spec["groupPriorityMinimum"].as_i64().unwrap_or(0),
            spec["versionPriority"].as_i64().unwrap_or(0),
        ),
        known: memory.known.get(name).cloned(),
    }
}

/// How a server is trusted: by the authorities of its bundle, under the name of its Service.
fn trust(api: &Api, bundle: Option<&str>, name: &str) -> Result<proxy::Tls, String> {
    let backends = api.backends().map_err(|status| status.message)?;
    let Some(bundle) = bundle else {
        return backends.aggregated(None, name);
    };
    let pem = base64::engine::general_purpose::STANDARD
        .decode(bundle)
        .map_err(|error| format!("spec.caBundle: {error}"))?;
    let roots: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("spec.caBundle: {error:?}"))?;
    if roots.is_empty() {
        return Err("spec.caBundle names no certificate authority (those of this machine are not taken)".into());
    }
    backends.aggregated(Some(&roots), name)
}

/// What a server serves; or the reason and the message of why it is not available.
async fn verdict(api: &Arc<Api>, view: &Arc<View>, remote: &Remote) -> Result<Known, (&'static str, String)> {
    let (namespace, name) = (&remote.namespace, &remote.service);
    let whole = format!("service/{name} in {}", write::quoted(namespace));
    let service = proxy::service(view, namespace, name).map_err(|status| match status.code {
        404 => ("ServiceNotFound", format!("{whole} is not present")),
        _ => (
            "ServiceAccessError",
            format!("{whole} cannot be checked due to: {}", status.message),
        ),
    })?;
    if service.spec.kind == "ClusterIP" {
        let port = service.spec.ports.iter().find(|port| port.port == remote.port);
        let Some(port) = port else {
            return Err((
                "ServicePortError",
                format!("{whole} is not listening on port {}", remote.port),
            ));
        };
        let known = proxy::known(view, namespace, name, &port.name);
        let known = known.map_err(|status| {
            let text = format!("{whole} cannot be checked due to: {}", status.message);
            ("EndpointsAccessError", text)
        })?;
        match known {
            proxy::Known::Nothing => {
                return Err(("EndpointsNotFound", format!("cannot find endpointslices for {whole}")));
            }
            proxy::Known::NoneReady => {
                let port = write::quoted(&port.name);
                let text = format!("endpointslices for {whole} have no addresses with port name {port}");
                return Err(("MissingEndpoints", text));
            }
            proxy::Known::Some => {}
        }
    }
    let mut attempts = JoinSet::new();
    for _ in 0..ATTEMPTS {
        let found = proxy::backend(view, namespace, name, remote.port);
        let (host, port) = found.map_err(|status| ("FailedDiscoveryCheck", status.message))?;
        let tls = remote.tls.clone().map_err(|why| ("FailedDiscoveryCheck", why))?;
        let backend = Backend { tls, host, port };
        let (group, version) = (remote.group.clone(), remote.version.clone());
        let stopping = api.reader.stopping.clone();
        attempts.spawn(async move {
            tokio::select! {
                () = stopping.stopped() => Err("the server stops".to_owned()),
                asked = ask(&backend, &group, &version) => asked,
            }
        });
    }
    let mut failed = String::new();
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(known)) => return Ok(known),
            Ok(Err(why)) => failed = why,
            Err(error) => failed = error.to_string(),
        }
    }
    Err(("FailedDiscoveryCheck", failed))
}

/// Asks one backend what it serves.
async fn ask(backend: &Backend, group: &str, version: &str) -> Result<Known, String> {
    let path = format!("/apis/{group}/{version}");
    let url = backend.url(&path);
    let missing = |why: String| format!("failing or missing response from {url}: {why}");
    let (code, list) = backend
        .get(&path)
        .await
        .map_err(|error| missing(format!("Get \"{url}\": {error}")))?;
    if !(200..300).contains(&code) {
        return Err(missing(format!("bad status from {url}: {code}")));
    }
    let mut known = Known::read(&list, group, version).map_err(missing)?;
    known.openapi = match backend.get("/openapi/v3").await {
        Ok((200, index)) => openapi_of(&index, &path),
        _ => None,
    };
    Ok(known)
}

/// Where the document of a version is, by the server's own index.
fn openapi_of(index: &[u8], path: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Index {
        paths: HashMap<String, Item>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Item {
        #[serde(rename = "serverRelativeURL")]
        url: String,
    }
    let index: Index = serde_json::from_slice(index).ok()?;
    let path = path.trim_start_matches('/');
    let item = index.paths.get(path)?;
    item.url
        .starts_with(&format!("/openapi/v3/{path}"))
        .then(|| item.url.clone())
}
