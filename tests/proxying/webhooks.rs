//! Admission webhooks, well-behaved and hostile.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Answer, Started};
use crate::kubelet;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server of webhooks: what one does stands in its path.
struct Hooks {
    address: SocketAddr,
    bundle: String,
    /// Path and review of every call.
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Hooks {
    async fn start() -> Hooks {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let (acceptor, certificate) = kubelet::tls(&["localhost"]);
        let hooks = Hooks {
            address: listener.local_addr().expect("an address"),
            bundle: base64::engine::general_purpose::STANDARD.encode(&certificate),
            seen: Arc::default(),
        };
        let seen = hooks.seen.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let service = service_fn(move |request| respond(seen.clone(), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        hooks
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// A webhook for ConfigMaps that does what stands in the path, with more settings.
    fn hook(&self, name: &str, path: &str, more: &Value) -> Value {
        let mut hook = json!({
            "name": format!("{name}.example.com"),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": self.url(path), "caBundle": self.bundle},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        });
        for (field, value) in more.as_object().expect("settings") {
            hook[field] = value.clone();
        }
        hook
    }

    /// The paths that were called, in order.
    fn calls(&self) -> Vec<String> {
        let mut seen = self.seen.lock().expect("the list");
        seen.drain(..).map(|(path, _)| path).collect()
    }

    fn last(&self) -> Value {
        let seen = self.seen.lock().expect("the list");
        seen.last().expect("a call").1.clone()
    }
}

async fn respond(
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("a review").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("JSON");
    seen.lock().expect("the list").push((path.clone(), review.clone()));
    let whole = |code: u16, body: String| {
        let body = Full::new(Bytes::from(body)).boxed();
        Ok(Response::builder().status(code).body(body).expect("an answer"))
    };
    let uid = review["request"]["uid"].clone();
    let said = |mut response: Value| {
        if response["uid"].is_null() {
            response["uid"] = uid.clone();
        }
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        whole(200, review.to_string())
    };
    let patch = |operations: Value| {
        let patch = base64::engine::general_purpose::STANDARD.encode(operations.to_string());
        said(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    };
    let object = &review["request"]["object"];
    if let Some(name) = path.strip_prefix("/note/") {
        // Writes its name behind those that are there.
        let before = object["data"]["order"].as_str().unwrap_or("");
        return patch(json!([{"op": "add", "path": "/data/order", "value": format!("{before}{name}")}]));
    }
    if path.starts_with("/convert") {
        return whole(200, convert(&path, &review["request"]).to_string());
    }
    match path.as_str() {
        "/allow" => said(json!({"allowed": true, "warnings": ["careful"], "auditAnnotations": {"a": "b"}})),
        "/deny" => {
            said(json!({"allowed": false, "status": {"code": 418, "reason": "Forbidden", "message": "not today"}}))
        }
        "/deny-silently" => said(json!({"allowed": false})),
        "/uid" => said(json!({"allowed": true, "uid": "another"})),
        "/patched-judge" => patch(json!([])),
        "/kind" => patch(json!([{"op": "replace", "path": "/kind", "value": "Secret"}])),
        "/managers" => patch(json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}])),
        "/bomb" => {
            let copy = json!({"op": "copy", "from": "/data", "path": "/data/x"});
            patch(Value::Array(vec![copy; 20_000]))
        }
        "/deep" => {
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            whole(200, deep)
        }
        "/garbage" => whole(200, "<html>".into()),
        "/error" => whole(500, "out of order".into()),
        "/redirect" => {
            let answer = Response::builder()
                .status(307)
                .header("location", "https://169.254.169.254/");
            Ok(answer.body(Full::default().boxed()).expect("an answer"))
        }
        "/endless" => {
            let part = Bytes::from(vec![b' '; 64 * 1024]);
            let parts = std::iter::repeat_with(move || Ok::<_, Infallible>(Frame::data(part.clone())));
            Ok(Response::new(
                StreamBody::new(futures_util::stream::iter(parts)).boxed(),
            ))
        }
        "/slow" => std::future::pending().await,
        _ => whole(404, String::new()),
    }
}

/// Version 1 has a size, version 2 has replicas.
fn convert(path: &str, request: &Value) -> Value {
    let wanted = &request["desiredAPIVersion"];
    let (from, to) = if *wanted == "example.com/v2" {
        ("size", "replicas")
    } else {
        ("replicas", "size")
    };
    let objects = request["objects"].as_array().expect("objects").iter().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = wanted.clone();
        if let Some(count) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = count;
        }
        if path == "/convert-renamed" {
            object["metadata"]["name"] = json!("another");
        }
        object
    });
    let mut objects: Vec<Value> = objects.collect();
    if path == "/convert-fewer" {
        objects.pop();
    }
    let result = if path == "/convert-failing" {
        json!({"status": "Failure", "message": "no way"})
    } else {
        json!({"status": "Success"})
    };
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
           "response": {"uid": request["uid"], "result": result, "convertedObjects": objects}})
}

async fn configure(started: &Started, path: &str, name: &str, hooks: Vec<Value>) {
    let _ = started
        .send(
            Method::DELETE,
            &format!("{path}/{name}"),
            "application/json",
            &json!({}),
        )
        .await;
    let configuration = json!({"metadata": {"name": name}, "webhooks": hooks});
    started.create(path, &configuration).await;
}

async fn create(started: &Started, name: &str) -> Answer {
    let map = json!({"metadata": {"name": name}, "data": {"a": "b"}});
    started.send(Method::POST, MAPS, "application/json", &map).await
}

fn object(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{}", answer.text()))
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_change_objects_in_order_and_those_that_want_it_are_asked_again() {
    let hooks = Hooks::start().await;
    let started = Started::new(&["--controllers", "off"]);
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    configure(&started, MUTATING, "b", vec![hooks.hook("c", "/note/c", &json!({}))]).await;
    configure(
        &started,
        MUTATING,
        "a",
        vec![
            hooks.hook("a", "/note/a", &again),
            hooks.hook("b", "/note/b", &json!({})),
        ],
    )
    .await;
    let answer = create(&started, "m").await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    // Only the first wants to be asked again, and others changed the object after it.
    assert_eq!(hooks.calls(), ["/note/a", "/note/b", "/note/c", "/note/a"]);
    let map = object(&answer);
    assert_eq!(map["data"]["order"], "abca");
    // What webhooks set is nobody's.
    let managed = map["metadata"]["managedFields"].to_string();
    assert!(managed.contains("f:a") && !managed.contains("f:order"), "{managed}");
    assert!(map["metadata"]["uid"].is_string());

    // The last of all is not asked again after itself.
    configure(&started, MUTATING, "b", vec![hooks.hook("c", "/note/c", &again)]).await;
    configure(&started, MUTATING, "a", vec![hooks.hook("a", "/note/a", &json!({}))]).await;
    let answer = create(&started, "n").await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert_eq!(object(&answer)["data"]["order"], "ac");
    assert_eq!(hooks.calls(), ["/note/a", "/note/c"]);

    // Reviews have upstream's shape.
    configure(&started, MUTATING, "b", vec![]).await;
    let generated = json!({"metadata": {"generateName": "g-"}, "data": {"a": "b"}});
    let path = format!("{MAPS}?fieldManager=me&dryRun=All");
    let answer = started.send(Method::POST, &path, "application/json", &generated).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    let request = hooks.last()["request"].clone();
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!((&request["kind"], &request["requestKind"]), (&kind, &kind));
    assert_eq!(
        (&request["resource"], &request["requestResource"]),
        (&resource, &resource)
    );
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["namespace"], "default");
    assert_eq!(request["dryRun"], true);
    assert_eq!(request["oldObject"], Value::Null);
    assert!(
        request.get("name").is_none() && request.get("subResource").is_none(),
        "{request}"
    );
    assert_eq!(
        request["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me"})
    );
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["object"]["kind"], "ConfigMap");
    for given in ["name", "uid", "creationTimestamp"] {
        assert!(request["object"]["metadata"].get(given).is_none(), "{given}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_judge_every_operation_and_their_refusals_are_told_as_upstream_tells_them() {
    let hooks = Hooks::start().await;
    let started = Started::new(&["--controllers", "off"]);
    assert_eq!(create(&started, "m").await.code, 201);
    configure(
        &started,
        VALIDATING,
        "v",
        vec![
            hooks.hook("first", "/allow", &json!({})),
            hooks.hook("second", "/deny", &json!({})),
        ],
    )
    .await;
    let denied = "admission webhook \"second.example.com\" denied the request: not today";
    let answer = create(&started, "n").await;
    assert_eq!((answer.code, answer.message().as_str()), (418, denied));
    assert_eq!(object(&answer)["reason"], "Forbidden");
    let mut calls = hooks.calls();
    calls.sort();
    assert_eq!(calls, ["/allow", "/deny"]);
    let one = format!("{MAPS}/m");
    let patch = json!({"data": {"a": "c"}});
    for (method, path, kind, body, operation) in [
        (
            Method::PATCH,
            one.as_str(),
            "application/merge-patch+json",
            &patch,
            "UPDATE",
        ),
        (Method::DELETE, one.as_str(), "application/json", &json!({}), "DELETE"),
        (Method::DELETE, MAPS, "application/json", &json!({}), "DELETE"),
    ] {
        let answer = started.send(method.clone(), path, kind, body).await;
        assert_eq!(
            (answer.code, answer.message().as_str()),
            (418, denied),
            "{method} {path}"
        );
        let request = hooks.last()["request"].clone();
        assert_eq!(request["operation"], operation);
        assert_eq!(request["oldObject"]["metadata"]["name"], "m");
        assert_eq!(request["object"].is_null(), operation == "DELETE");
        assert_eq!(request.get("name").is_none(), path == MAPS, "{request}");
    }
    assert_eq!(started.get(&one).await.code, 200);

    configure(
        &started,
        VALIDATING,
        "v",
        vec![hooks.hook("first", "/allow", &json!({}))],
    )
    .await;
    let answer = create(&started, "n").await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.headers["warning"], "299 - \"careful\"");

    // What webhooks are configured by is shown to none.
    let all = json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
                     "namespaceSelector": {}});
    configure(
        &started,
        VALIDATING,
        "v",
        vec![hooks.hook("all", "/deny-silently", &all)],
    )
    .await;
    let silently = "admission webhook \"all.example.com\" denied the request without explanation";
    let answer = started
        .send(
            Method::POST,
            "/api/v1/namespaces",
            "application/json",
            &json!({"metadata": {"name": "x"}}),
        )
        .await;
    assert_eq!((answer.code, answer.message().as_str()), (400, silently));
    let request = hooks.last()["request"].clone();
    assert_eq!((&request["name"], &request["namespace"]), (&json!("x"), &json!("x")));
    // A Scale, a Binding, an Eviction and a connection are what they are.
    for (path, body, kind, sub) in [
        (
            "/api/v1/namespaces/default/pods/p/binding",
            json!({"metadata": {"name": "p"}, "target": {"name": "n"}}),
            "Binding",
            "binding",
        ),
        (
            "/api/v1/namespaces/default/pods/p/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
            "Eviction",
            "eviction",
        ),
        (
            "/api/v1/namespaces/default/pods/p/exec?command=ls&stdin=true",
            json!({}),
            "PodExecOptions",
            "exec",
        ),
    ] {
        let answer = started.send(Method::POST, path, "application/json", &body).await;
        assert_eq!(answer.message(), silently, "{path}");
        let request = hooks.last()["request"].clone();
        assert_eq!(
            (&request["kind"]["kind"], &request["subResource"]),
            (&json!(kind), &json!(sub))
        );
        assert_eq!(request["object"]["kind"], kind);
    }
    let answer = started
        .send(
            Method::DELETE,
            &format!("{VALIDATING}/v"),
            "application/json",
            &json!({}),
        )
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_webhooks_cost_a_bounded_time_and_are_named() {
    let hooks = Hooks::start().await;
    let started = Started::new(&["--controllers", "off"]);
    let short = json!({"timeoutSeconds": 1});
    let begins = "Internal error occurred: failed calling webhook \"h.example.com\": ";
    for (path, why) in [
        ("/uid", "received invalid webhook response: expected response.uid=".to_owned()),
        ("/deep", "failed to call webhook: couldn't get version/kind; json parse error: ".to_owned()),
        ("/garbage", "failed to call webhook: couldn't get version/kind; json parse error: ".to_owned()),
        (
            "/error",
            "failed to call webhook: an error on the server (\"out of order\") has prevented the request from succeeding"
                .to_owned(),
        ),
        (
            "/redirect",
            "failed to call webhook: the server responded with the status code 307 but did not return more information"
                .to_owned(),
        ),
        (
            "/endless",
            format!("failed to call webhook: Post \"{}?timeout=1s\": the answer is larger than ", hooks.url("/endless")),
        ),
        (
            "/slow",
            format!("failed to call webhook: Post \"{}?timeout=1s\": context deadline exceeded", hooks.url("/slow")),
        ),
    ] {
        for kind in [MUTATING, VALIDATING] {
            configure(&started, kind, "h", vec![hooks.hook("h", path, &short)]).await;
            let begun = Instant::now();
            let answer = create(&started, "m").await;
            assert!(begun.elapsed() < Duration::from_secs(20), "{path}: {:?}", begun.elapsed());
            assert_eq!(answer.code, 500, "{path}: {}", answer.text());
            let message = answer.message();
            assert!(message.starts_with(&format!("{begins}{why}")), "{path}: {message}");
            configure(&started, kind, "h", vec![]).await;
        }
    }
    for (path, why) in [
        ("/bomb", "Internal error occurred: "),
        ("/kind", "Internal error occurred: "),
    ] {
        configure(&started, MUTATING, "h", vec![hooks.hook("h", path, &short)]).await;
        let answer = create(&started, "m").await;
        assert!((400..600).contains(&answer.code), "{path}: {}", answer.text());
        assert!(answer.message().starts_with(why), "{path}: {}", answer.message());
    }
    configure(&started, MUTATING, "h", vec![hooks.hook("h", "/managers", &short)]).await;
    let answer = create(&started, "m").await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert!(object(&answer)["metadata"]["managedFields"].is_array());
    configure(&started, MUTATING, "h", vec![]).await;
    configure(
        &started,
        VALIDATING,
        "h",
        vec![hooks.hook("h", "/patched-judge", &short)],
    )
    .await;
    let invalid =
        format!("{begins}received invalid webhook response: validating webhook may not return response.patch");
    assert_eq!(create(&started, "n").await.message(), invalid);

    // Nobody waits for those who wait for a slow webhook.
    let slow = json!({"timeoutSeconds": 30, "objectSelector": {"matchLabels": {"slow": "yes"}}});
    configure(&started, VALIDATING, "h", vec![hooks.hook("h", "/slow", &slow)]).await;
    let map = json!({"metadata": {"name": "s", "labels": {"slow": "yes"}}});
    let waiting = started.send(Method::POST, MAPS, "application/json", &map);
    let others = async {
        for at in 0..20 {
            assert_eq!(create(&started, &format!("other-{at}")).await.code, 201);
        }
    };
    tokio::select! {
        answer = waiting => panic!("{}", answer.text()),
        () = others => {}
    }

    // One that cannot be asked, and whom that does not matter.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = nobody.local_addr().expect("an address").port();
    drop(nobody);
    let away = json!({"clientConfig": {"url": format!("https://127.0.0.1:{gone}/x"), "caBundle": hooks.bundle}});
    configure(&started, VALIDATING, "h", vec![hooks.hook("h", "/x", &away)]).await;
    let refused = format!(
        "{begins}failed to call webhook: Post \"https://127.0.0.1:{gone}/x?timeout=10s\": dial tcp 127.0.0.1:{gone}: \
         connect: connection refused"
    );
    assert_eq!(create(&started, "o").await.message(), refused);
    let mut away = away;
    away["failurePolicy"] = json!("Ignore");
    configure(&started, VALIDATING, "h", vec![hooks.hook("h", "/x", &away)]).await;
    assert_eq!(create(&started, "o").await.code, 201);
    let away =
        json!({"clientConfig": {"service": {"namespace": "default", "name": "absent"}, "caBundle": hooks.bundle}});
    configure(&started, VALIDATING, "h", vec![hooks.hook("h", "/x", &away)]).await;
    let refused = format!(
        "{begins}failed to call webhook: Post \"https://absent.default.svc:443/?timeout=10s\": service \"absent\" not found"
    );
    assert_eq!(create(&started, "p").await.message(), refused);
    assert!(started.figure("apiserver_admission_webhook_fail_open_count").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_namespace_takes_with_it_goes_through_admission() {
    let hooks = Hooks::start().await;
    let started = Started::new(&[]);
    started
        .create("/api/v1/namespaces", &json!({"metadata": {"name": "going"}}))
        .await;
    started
        .create(
            "/api/v1/namespaces/going/configmaps",
            &json!({"metadata": {"name": "a"}}),
        )
        .await;
    let rule = json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let hook = hooks.hook("deleted", "/allow", &json!({"rules": [rule], "namespaceSelector": {}}));
    configure(&started, VALIDATING, "deletions", vec![hook]).await;
    hooks.calls();
    let answer = started
        .send(
            Method::DELETE,
            "/api/v1/namespaces/going",
            "application/json",
            &json!({}),
        )
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    kubelet::until("it is gone", async || {
        started.get("/api/v1/namespaces/going").await.code == 404
    })
    .await;
    let asked = hooks.last();
    let user = &asked["request"]["userInfo"]["username"];
    assert_eq!(user, "system:serviceaccount:kube-system:namespace-controller");
    // The ConfigMap that every namespace has may have been there by then.
    let calls = hooks.calls();
    assert!(calls.iter().all(|path| path == "/allow"), "{calls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_custom_resources_are_converted_by_their_webhook() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let hooks = Hooks::start().await;
    let started = Started::new(&["--controllers", "off"]);
    let version = |name: &str, field: &str, storage: bool| {
        let count = json!({"type": "integer", "maximum": 9});
        let spec = json!({"type": "object", "properties": {field: count}});
        let path = format!(".spec.{field}");
        json!({"name": name, "served": true, "storage": storage,
               "additionalPrinterColumns": [{"name": field, "type": "integer", "jsonPath": path}],
               "selectableFields": [{"jsonPath": path}],
               "subresources": {"scale": {"specReplicasPath": path, "statusReplicasPath": ".status.replicas"}},
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let conversion = |path: &str| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
               "clientConfig": {"url": hooks.url(path), "caBundle": hooks.bundle}}})
    };
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [version("v1", "size", true), version("v2", "replicas", false)],
        "conversion": conversion("/convert")}});
    started.create(DEFINITIONS, &definition).await;
    let (one, two) = (
        "/apis/example.com/v1/namespaces/default/widgets",
        "/apis/example.com/v2/namespaces/default/widgets",
    );
    kubelet::until("the resource is served", async || started.get(two).await.code == 200).await;
    hooks.calls();
    let widget = |version: &str, name: &str, spec: Value| json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    // The version that is stored costs nothing.
    started.create(one, &widget("v1", "a", json!({"size": 1}))).await;
    assert_eq!(
        object(&started.get(&format!("{one}/a")).await)["spec"],
        json!({"size": 1})
    );
    assert_eq!(hooks.calls(), Vec::<String>::new());
    let watched = format!("{two}?watch=true&resourceVersion=0&timeoutSeconds=3");
    let watch = started.get(&watched);
    let changes = async {
        let answer = started
            .send(
                Method::POST,
                two,
                "application/json",
                &widget("v2", "b", json!({"replicas": 2})),
            )
            .await;
        assert_eq!(answer.code, 201, "{}", answer.text());
        let made = object(&answer);
        assert_eq!(
            (&made["apiVersion"], &made["spec"]),
            (&json!("example.com/v2"), &json!({"replicas": 2}))
        );
        assert_eq!(
            object(&started.get(&format!("{one}/b")).await)["spec"],
            json!({"size": 2})
        );
        let patch = json!({"spec": {"replicas": 3}, "metadata": {"labels": {"x": "y"}}});
        let answer = started
            .send(
                Method::PATCH,
                &format!("{two}/a"),
                "application/merge-patch+json",
                &patch,
            )
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert_eq!(object(&answer)["spec"], json!({"replicas": 3}));
        assert_eq!(object(&answer)["metadata"]["generation"], 2);
        assert_eq!(
            object(&started.get(&format!("{one}/a")).await)["spec"],
            json!({"size": 3})
        );
        let wrong = widget("v2", "c", json!({"replicas": 10}));
        let answer = started.send(Method::POST, two, "application/json", &wrong).await;
        assert_eq!(answer.code, 422, "{}", answer.text());
        assert!(answer.message().contains("spec.replicas"), "{}", answer.message());
        hooks.calls();
        // A list is converted at once.
        let list = object(&started.get(two).await);
        assert_eq!(
            (&list["apiVersion"], &list["kind"]),
            (&json!("example.com/v2"), &json!("WidgetList"))
        );
        let items = list["items"].as_array().expect("items");
        let specs: Vec<_> = items.iter().map(|item| (&item["apiVersion"], &item["spec"])).collect();
        let version = json!("example.com/v2");
        assert_eq!(
            specs,
            [(&version, &json!({"replicas": 3})), (&version, &json!({"replicas": 2}))]
        );
        assert_eq!(hooks.calls(), ["/convert"]);
        let selected = object(&started.get(&format!("{two}?fieldSelector=spec.replicas%3D3")).await);
        let names = selected["items"].as_array().expect("items").iter();
        assert_eq!(names.map(|item| &item["metadata"]["name"]).collect::<Vec<_>>(), ["a"]);
        assert_eq!(
            started.get(&format!("{two}?fieldSelector=spec.size%3D3")).await.code,
            400
        );
        // Rows and metadata are those of the version that was asked for; so is what its managers are said to have written.
        let table = object(&started.get_as(two, "Table").await);
        assert_eq!(table["columnDefinitions"][1]["name"], "replicas");
        let rows = table["rows"].as_array().expect("rows").iter();
        let cells: Vec<_> = rows.map(|row| row["cells"].clone()).collect();
        assert_eq!(cells, [json!(["a", 3]), json!(["b", 2])]);
        let row = object(&started.get_as(&format!("{two}/a"), "Table").await);
        assert_eq!(row["rows"][0]["cells"], json!(["a", 3]));
        let partial = object(&started.get_as(&format!("{two}/a"), "PartialObjectMetadata").await);
        assert_eq!(partial["kind"], "PartialObjectMetadata");
        assert_eq!(partial["metadata"]["labels"], json!({"x": "y"}));
        let managed = |object: &Value| {
            let entries = object["metadata"]["managedFields"].as_array().expect("managers").iter();
            entries
                .map(|entry| (entry["apiVersion"].clone(), entry["fieldsV1"]["f:spec"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            managed(&made),
            [(json!("example.com/v2"), json!({".": {}, "f:replicas": {}}))]
        );
        // The patch took the size, by its name in the other version, from whoever created it.
        let patched = managed(&object(&started.get(&format!("{one}/a")).await));
        assert!(
            patched.contains(&(json!("example.com/v2"), json!({"f:replicas": {}}))),
            "{patched:?}"
        );
        assert!(
            !patched.iter().any(|(_, fields)| fields["f:size"].is_object()),
            "{patched:?}"
        );
        let scale = object(&started.get(&format!("{two}/a/scale")).await);
        assert_eq!(scale["spec"]["replicas"], 3);
    };
    let narrow = format!("{two}?watch=true&resourceVersion=0&timeoutSeconds=3&fieldSelector=spec.replicas%3D1");
    let (watch, narrow, ()) = tokio::join!(watch, started.get_as(&narrow, "Table"), changes);
    let told: Vec<Value> = narrow
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|event| (&event["type"], &event["object"]["rows"][0]["cells"]))
        .collect();
    let cells = json!(["a", 1]);
    assert_eq!(told, [(&json!("ADDED"), &cells), (&json!("DELETED"), &cells)]);
    let events: Vec<Value> = watch
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let shown: Vec<_> = events
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["object"]["spec"].clone()))
        .collect();
    let expected = [
        ("ADDED", json!({"replicas": 1})),
        ("ADDED", json!({"replicas": 2})),
        ("MODIFIED", json!({"replicas": 3})),
    ];
    assert_eq!(shown, expected);

    // Another version is stored from now on: what is stored in the old one is converted when it is read or written.
    let turned = json!({"spec": {"versions": [version("v1", "size", false), version("v2", "replicas", true)]}});
    started
        .merge(&format!("{DEFINITIONS}/widgets.example.com"), &turned)
        .await;
    kubelet::until("the other version is stored", async || {
        hooks.calls();
        let answer = object(&started.get(&format!("{one}/a")).await);
        let asked = hooks.calls();
        answer["spec"] == json!({"size": 3}) && asked.is_empty()
    })
    .await;
    assert_eq!(
        object(&started.get(&format!("{two}/a")).await)["spec"],
        json!({"replicas": 3})
    );
    let answer = started
        .send(Method::DELETE, &format!("{two}/b"), "application/json", &json!({}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());

    // What is deleted is selected by the version that was asked for.
    for (name, size) in [("c", 7), ("d", 8)] {
        started.create(one, &widget("v1", name, json!({"size": size}))).await;
    }
    let path = format!("{one}?fieldSelector=spec.size%3D7");
    let answer = started
        .send(Method::DELETE, &path, "application/json", &json!({}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.text());
    let list = object(&answer);
    let names = list["items"].as_array().expect("items").iter();
    assert_eq!(names.map(|item| &item["metadata"]["name"]).collect::<Vec<_>>(), ["c"]);
    for (name, code) in [("a", 200), ("c", 404), ("d", 200)] {
        assert_eq!(started.get(&format!("{two}/{name}")).await.code, code, "{name}");
    }

    // Hostile ones.
    let failed = "conversion webhook for example.com/v1, Kind=Widget ";
    for (path, why) in [
        ("/convert-failing", "failed: no way".to_owned()),
        ("/convert-fewer", "returned 0 objects, expected 1".to_owned()),
        (
            "/convert-renamed",
            "returned invalid converted object at index 0: must have the same name: a != another".to_owned(),
        ),
        (
            "/error",
            "failed: an error on the server (\"out of order\") has prevented the request from succeeding".to_owned(),
        ),
    ] {
        let patch = json!({"spec": {"conversion": conversion(path)}});
        started
            .merge(&format!("{DEFINITIONS}/widgets.example.com"), &patch)
            .await;
        let expected = format!("{failed}{why}");
        kubelet::until(path, async || {
            let answer = started.get(&format!("{two}/a")).await;
            answer.code == 500 && answer.message() == expected
        })
        .await;
    }
}
