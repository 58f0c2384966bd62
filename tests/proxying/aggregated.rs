//! An API server behind this one, in the style of metrics-server.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Answer, Started};
use crate::kubelet::{self, until};
use crate::proxies::address;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "metrics-server.kube-system.svc";

/// What the extension was asked, and by whom.
#[derive(Debug, Clone)]
struct Seen {
    target: String,
    headers: http::HeaderMap,
    client: String,
}

struct Extension {
    address: SocketAddr,
    certificate: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The code of everything, if it is none of 0.
    code: Arc<AtomicU16>,
}

impl Extension {
    async fn start(address: IpAddr) -> Extension {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let (acceptor, certificate) = kubelet::tls(&[NAME]);
        let extension = Extension {
            address: listener.local_addr().expect("an address"),
            certificate,
            seen: Arc::default(),
            code: Arc::default(),
        };
        let (seen, code) = (extension.seen.clone(), extension.code.clone());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let (acceptor, seen, code) = (acceptor.clone(), seen.clone(), code.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let client = kubelet::common_name(stream.get_ref().1);
                    let service = service_fn(move |request: Request<Incoming>| {
                        seen.lock().expect("the list").push(Seen {
                            target: request.uri().to_string(),
                            headers: request.headers().clone(),
                            client: client.clone(),
                        });
                        let code = code.load(Ordering::Relaxed);
                        async move { Ok::<_, Infallible>(respond(&request, code)) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        extension
    }

    /// The last request for a target.
    fn last(&self, target: &str) -> Seen {
        let seen = self.seen.lock().expect("the list");
        seen.iter()
            .rev()
            .find(|seen| seen.target == target)
            .unwrap_or_else(|| panic!("{target} in {seen:?}"))
            .clone()
    }
}

fn respond(request: &Request<Incoming>, code: u16) -> Response<Full<Bytes>> {
    let answer = |code: u16, body: Value| {
        let answer = Response::builder()
            .status(code)
            .header("content-type", "application/json");
        answer
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("an answer")
    };
    if code != 0 {
        return answer(code, json!({}));
    }
    let verbs = json!(["get", "list"]);
    let usage = json!({"cpu": "250m", "memory": "1Gi"});
    let head = json!({"kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {"name": "n"},
                      "timestamp": "2026-01-02T03:04:05Z", "window": "10s", "usage": usage});
    match request.uri().path() {
        "/apis/metrics.k8s.io/v1beta1" => answer(
            200,
            json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [
                {"name": "nodes", "singularName": "node", "namespaced": false, "kind": "NodeMetrics", "verbs": verbs},
                {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "PodMetrics", "verbs": verbs}]}),
        ),
        "/apis/metrics.k8s.io/v1beta1/nodes" => answer(
            200,
            json!({
            "kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [head]}),
        ),
        "/apis/metrics.k8s.io/v1beta1/nodes/n" => answer(200, head),
        "/apis/metrics.k8s.io/v1beta1/away" => Response::builder()
            .status(302)
            .header("location", "https://elsewhere.example/")
            .body(Full::default())
            .expect("an answer"),
        "/openapi/v3" => answer(
            200,
            json!({"paths": {"apis/metrics.k8s.io/v1beta1": {
            "serverRelativeURL": "/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=ABC"}}}),
        ),
        "/openapi/v3/apis/metrics.k8s.io/v1beta1" => answer(200, json!({"openapi": "3.0.0", "paths": {}})),
        _ => answer(404, json!({"kind": "Status", "code": 404})),
    }
}

async fn condition(started: &Started) -> (String, String, String) {
    let answer = started.get(&format!("{SERVICES}/v1beta1.metrics.k8s.io")).await;
    let object: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let condition = &object["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or("").to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Waits for a condition: its status and reason.
async fn told(started: &Started, status: &str, reason: &str) -> String {
    until(&format!("{reason} is never told"), async || {
        let (is, why, _) = condition(started).await;
        (is.as_str(), why.as_str()) == (status, reason)
    })
    .await;
    condition(started).await.2
}

fn kubectl(started: &Started, arguments: &[&str]) -> String {
    let output = Command::new("kubectl")
        .args(["--kubeconfig", started.server.kubeconfig.to_str().expect("plain")])
        .args(arguments)
        .env("HOME", started.dir.path())
        .output()
        .expect("kubectl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregated_api_is_found_asked_with_the_callers_name_and_missed_when_it_goes() {
    let Some(ip) = address() else { return };
    let extension = Extension::start(ip).await;
    let started = Started::new(&[]);
    started.node("n", extension.address, &[]).await;
    let node =
        json!({"status": {"capacity": {"cpu": "1", "memory": "4Gi"}, "allocatable": {"cpu": "1", "memory": "4Gi"}}});
    started.merge("/api/v1/nodes/n/status", &node).await;
    let bundle = base64::engine::general_purpose::STANDARD.encode(&extension.certificate);
    let service = json!({
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                 "caBundle": bundle, "service": {"namespace": "kube-system", "name": "metrics-server"}},
    });
    started.create(SERVICES, &service).await;
    let message = told(&started, "False", "ServiceNotFound").await;
    assert_eq!(message, "service/metrics-server in \"kube-system\" is not present");
    let answer = started.get("/apis/metrics.k8s.io/v1beta1/nodes").await;
    assert_eq!((answer.code, answer.text().as_str()), (503, "service unavailable\n"));

    let services = "/api/v1/namespaces/kube-system/services";
    started
        .create(
            services,
            &json!({"metadata": {"name": "metrics-server"}, "spec": {"ports": [{"name": "https", "port": 443}]}}),
        )
        .await;
    let message = told(&started, "False", "EndpointsNotFound").await;
    assert_eq!(
        message,
        "cannot find endpointslices for service/metrics-server in \"kube-system\""
    );
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    let slice = json!({
        "metadata": {"name": "metrics-1", "labels": {"kubernetes.io/service-name": "metrics-server"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": extension.address.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": false}}],
    });
    started.create(slices, &slice).await;
    let message = told(&started, "False", "MissingEndpoints").await;
    assert_eq!(
        message,
        "endpointslices for service/metrics-server in \"kube-system\" have no addresses with port name \"https\""
    );
    let ready = json!({"endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}]});
    started.merge(&format!("{slices}/metrics-1"), &ready).await;
    assert_eq!(told(&started, "True", "Passed").await, "all checks passed");

    // Asked with the caller's name, whatever the caller says of himself, and without his token.
    let claims = [
        ("connection", "x-remote-user, x-remote-group"),
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-a", "b"),
    ];
    let path = "/apis/metrics.k8s.io/v1beta1/nodes/n?x=%26";
    let answer = Answer::of(started.open(Method::GET, path, &claims, Bytes::new()).await).await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    let seen = extension.last(path);
    assert_eq!(seen.client, "front-proxy-client");
    assert_eq!(
        (&seen.headers["x-remote-user"], &seen.headers["host"]),
        (&"admin".parse().unwrap(), &NAME.parse().unwrap())
    );
    let groups: Vec<_> = seen.headers.get_all("x-remote-group").iter().collect();
    assert_eq!(groups, ["system:masters", "system:authenticated"]);
    assert_eq!(seen.headers["x-remote-uid"], "uid-admin");
    for gone in ["authorization", "x-remote-extra-a"] {
        assert!(seen.headers.get(gone).is_none(), "{gone}");
    }
    let anonymous = tokio::net::TcpStream::connect(started.address()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(anonymous))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", "x")
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 403);
    let answer = started.get("/apis/metrics.k8s.io/v1beta1/away").await;
    assert_eq!(answer.code, 502, "{}", answer.text());

    // In discovery, for kubectl.
    tokio::task::block_in_place(|| {
        let listed = kubectl(
            &started,
            &["api-resources", "--api-group", "metrics.k8s.io", "-o", "name"],
        );
        assert_eq!(listed, "nodes.metrics.k8s.io\npods.metrics.k8s.io\n");
        let top = kubectl(&started, &["top", "nodes"]);
        assert!(
            top.contains("250m") && top.contains("1024Mi") && top.contains("25%"),
            "{top}"
        );
        let raw = kubectl(&started, &["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"]);
        assert!(
            raw.starts_with("{\"apiVersion\":\"metrics.k8s.io/v1beta1\"") || raw.contains("NodeMetricsList"),
            "{raw}"
        );
    });
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let discovered = async || {
        let answer = Answer::of(
            started
                .open(Method::GET, "/apis", &[("accept", accept)], Bytes::new())
                .await,
        )
        .await;
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        let items = document["items"].as_array().unwrap().clone();
        items
            .into_iter()
            .find(|group| group["metadata"]["name"] == "metrics.k8s.io")
    };
    assert_eq!(discovered().await.unwrap()["versions"][0]["freshness"], "Current");
    let index = started.get("/openapi/v3").await.text();
    let index: Value = serde_json::from_str(&index).unwrap();
    assert_eq!(
        index["paths"]["apis/metrics.k8s.io/v1beta1"]["serverRelativeURL"],
        "/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=ABC"
    );
    let document = started.get("/openapi/v3/apis/metrics.k8s.io/v1beta1?hash=ABC").await;
    assert!(document.text().contains("3.0.0"), "{}", document.text());
    let group = started.get("/apis/metrics.k8s.io").await;
    assert!(
        group
            .text()
            .contains("\"preferredVersion\":{\"groupVersion\":\"metrics.k8s.io/v1beta1\""),
        "{}",
        group.text()
    );

    // A server that fails is told of, kept in discovery as stale, and not asked by clients.
    extension.code.store(500, Ordering::Relaxed);
    started
        .merge(
            &format!("{slices}/metrics-1"),
            &json!({"metadata": {"labels": {"touched": "yes"}}}),
        )
        .await;
    let message = told(&started, "False", "FailedDiscoveryCheck").await;
    assert!(
        message.contains("bad status from https://") && message.ends_with(": 500"),
        "{message}"
    );
    let stale = discovered().await.unwrap();
    assert_eq!(stale["versions"][0]["freshness"], "Stale");
    assert_eq!(stale["versions"][0]["resources"][0]["resource"], "nodes");
    extension.code.store(0, Ordering::Relaxed);
    told(&started, "True", "Passed").await;

    // Another certificate is not believed.
    let other = base64::engine::general_purpose::STANDARD.encode(kubelet::tls(&[NAME]).1);
    started
        .merge(
            &format!("{SERVICES}/v1beta1.metrics.k8s.io"),
            &json!({"spec": {"caBundle": other}}),
        )
        .await;
    let message = told(&started, "False", "FailedDiscoveryCheck").await;
    assert!(message.contains("x509"), "{message}");
    let deleted = started
        .send(
            Method::DELETE,
            &format!("{SERVICES}/v1beta1.metrics.k8s.io"),
            "application/json",
            &json!({}),
        )
        .await;
    assert_eq!(deleted.code, 200);
    until("the group is still there", async || discovered().await.is_none()).await;
    assert_eq!(started.get("/apis/metrics.k8s.io/v1beta1/nodes").await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_are_told_whom_to_believe() {
    let started = Started::new(&[]);
    let answer = started
        .get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
        .await;
    let object: Value = serde_json::from_slice(&answer.body).unwrap();
    let data = &object["data"];
    for name in ["client-ca-file", "requestheader-client-ca-file"] {
        assert!(
            data[name]
                .as_str()
                .unwrap()
                .starts_with("-----BEGIN CERTIFICATE-----\n"),
            "{name}"
        );
    }
    assert_ne!(data["client-ca-file"], data["requestheader-client-ca-file"]);
    for (name, value) in [
        ("requestheader-allowed-names", "[\"front-proxy-client\"]"),
        ("requestheader-username-headers", "[\"X-Remote-User\"]"),
        ("requestheader-uid-headers", "[\"X-Remote-Uid\"]"),
        ("requestheader-group-headers", "[\"X-Remote-Group\"]"),
        ("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]"),
    ] {
        assert_eq!(data[name], value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_custom_resources_have_their_api_services_as_long_as_they_are_served() {
    let started = Started::new(&[]);
    let version = |name: &str, stored: bool| {
        json!({"name": name, "served": true, "storage": stored,
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({
        "metadata": {"name": "widgets.shop.example.com"},
        "spec": {"group": "shop.example.com", "scope": "Namespaced",
                 "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [version("v1", true), version("v1beta1", false)]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    started.create(definitions, &definition).await;
    for name in ["v1.shop.example.com", "v1beta1.shop.example.com"] {
        let path = format!("{SERVICES}/{name}");
        until("there is no APIService", async || started.get(&path).await.code == 200).await;
        let object: Value = serde_json::from_slice(&started.get(&path).await.body).unwrap();
        let spec = &object["spec"];
        assert_eq!(
            (&spec["groupPriorityMinimum"], &spec["versionPriority"]),
            (&json!(1000), &json!(100))
        );
        assert_eq!(
            object["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"],
            "true"
        );
        assert_eq!(object["status"]["conditions"][0]["reason"], "Local");
    }
    let deleted = started
        .send(
            Method::DELETE,
            &format!("{definitions}/widgets.shop.example.com"),
            "application/json",
            &json!({}),
        )
        .await;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    for name in ["v1.shop.example.com", "v1beta1.shop.example.com", "v1.apps"] {
        let code = if name == "v1.apps" { 200 } else { 404 };
        let path = format!("{SERVICES}/{name}");
        until("an APIService is left", async || started.get(&path).await.code == code).await;
    }
}
