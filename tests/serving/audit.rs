//! What the audit log says of requests, by level and stage. What is expected is what kube-apiserver writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use flatkube::api::server::{Limits, ServerConfig};
use flatkube::audit::{AuditOptions, Batching, Mode, Rotation};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{ADMIN, Started};

/// A server that records by these rules.
struct Audited {
    started: Started,
    log: PathBuf,
    folder: tempfile::TempDir,
}

impl Audited {
    async fn new(rules: &Value, also: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules});
        for (key, value) in also.as_object().unwrap() {
            policy[key] = value.clone();
        }
        let file = folder.path().join("policy.yaml");
        std::fs::write(&file, policy.to_string()).unwrap();
        let log = folder.path().join("audit.log");
        let batching = Batching {
            mode: Mode::BlockingStrict,
            buffer: 100,
            size_max: 10,
            wait_max: Duration::ZERO,
            throttle: None,
        };
        let rotation = Rotation {
            bytes_max: 1 << 30,
            ..Rotation::default()
        };
        let audit = AuditOptions {
            policy_file: Some(file),
            log: Some((log.clone(), rotation, batching)),
            webhook: None,
        };
        let configure = |config: &mut ServerConfig| config.audit = audit;
        let started = Started::configured(Limits::default(), false, configure).await;
        Self { started, log, folder }
    }

    /// Stops, and gives the events of requests for paths that begin so.
    async fn events(self, path: &str) -> Vec<Value> {
        self.started.server.stop().await;
        events(&self.log, path)
    }
}

fn events(log: &Path, path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events
        .filter(|event| event["requestURI"].as_str().unwrap().starts_with(path))
        .collect()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn metadata_tells_who_did_what_at_each_stage_and_no_object() {
    let audited = Audited::new(&json!([{"level": "Metadata"}]), &json!({})).await;
    let client = audited.started.client(ADMIN);
    let made = client
        .post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "secret-text"}}))
        .await;
    assert_eq!(made.code, 201);
    let id = made.headers["audit-id"].to_str().unwrap().to_owned();
    let text_of = |events: &[Value]| serde_json::to_string(events).unwrap();
    let events = audited.events(MAPS).await;
    assert!(!text_of(&events).contains("secret-text"));
    let [received, complete] = events.as_slice() else {
        panic!("{events:?}")
    };
    for (event, stage) in [(received, "RequestReceived"), (complete, "ResponseComplete")] {
        assert_eq!(event["stage"], stage);
        assert_eq!(event["auditID"], id);
        assert_eq!(event["level"], "Metadata");
        assert_eq!(
            (&event["kind"], &event["apiVersion"]),
            (&json!("Event"), &json!("audit.k8s.io/v1"))
        );
        assert_eq!(event["verb"], "create");
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
        assert_eq!(
            event["user"],
            json!({"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]})
        );
        let time = event["requestReceivedTimestamp"].as_str().unwrap();
        assert_eq!(time.len(), "2026-01-02T03:04:05.678901Z".len(), "{time}");
    }
    // What was sent says which object it was.
    assert_eq!(received["requestReceivedTimestamp"], received["stageTimestamp"]);
    let place = json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"});
    assert_eq!(received["objectRef"], place);
    let place = json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"});
    assert_eq!(complete["objectRef"], place);
    assert_eq!(received["responseStatus"], Value::Null);
    assert_eq!(complete["responseStatus"], json!({"metadata": {}, "code": 201}));
    let annotations = json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""});
    assert_eq!(complete["annotations"], annotations);
}

#[tokio::test]
async fn requests_and_answers_are_told_where_the_policy_says_so_and_tokens_never() {
    let rules = json!([
        {"level": "Request", "resources": [{"resources": ["secrets"]}]},
        {"level": "RequestResponse", "omitManagedFields": true},
    ]);
    let audited = Audited::new(&rules, &json!({"omitStages": ["RequestReceived"]})).await;
    let client = audited.started.client(ADMIN);
    client
        .post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}))
        .await;
    let patch = json!({"data": {"k": "w"}});
    client.merge(&format!("{MAPS}/a"), &patch).await;
    client.get(MAPS).await;
    client
        .delete_with(&format!("{MAPS}/a"), &json!({"gracePeriodSeconds": 0}))
        .await;
    let secrets = "/api/v1/namespaces/default/secrets";
    client.post(secrets, &json!({"metadata": {"name": "s"}})).await;
    client.get(&format!("{secrets}/s")).await;
    let account = "/api/v1/namespaces/default/serviceaccounts";
    client.post(account, &json!({"metadata": {"name": "robot"}})).await;
    let token = client
        .post(&format!("{account}/robot/token"), &json!({"spec": {}}))
        .await;
    let token = token.body["status"]["token"].as_str().unwrap().to_owned();
    let review = "/apis/authentication.k8s.io/v1/tokenreviews";
    client.post(review, &json!({"spec": {"token": token}})).await;

    let log = audited.log.clone();
    let folder = audited.folder;
    audited.started.server.stop().await;
    let of = |path| events(&log, path);
    let [created, patched, listed, deleted] = of(MAPS).try_into().unwrap();
    assert_eq!(created["requestObject"]["kind"], "ConfigMap");
    assert_eq!(created["requestObject"]["data"], json!({"k": "v"}));
    assert_eq!(created["responseObject"]["metadata"]["name"], "a");
    assert_eq!(created["responseObject"]["metadata"]["managedFields"], Value::Null);
    assert_eq!((&patched["verb"], &patched["requestObject"]), (&json!("patch"), &patch));
    assert_eq!(patched["responseObject"]["data"], json!({"k": "w"}));
    assert_eq!(listed["responseObject"]["items"][0]["data"], json!({"k": "w"}));
    assert_eq!(
        listed["responseObject"]["items"][0]["metadata"]["managedFields"],
        Value::Null
    );
    assert_eq!(deleted["requestObject"]["gracePeriodSeconds"], 0);
    assert_eq!(deleted["responseStatus"]["status"], "Success");
    assert_eq!(deleted["responseStatus"]["details"]["name"], "a");
    let [created, got] = of(secrets).try_into().unwrap();
    assert_eq!(created["requestObject"]["metadata"]["name"], "s");
    assert_eq!(created["responseObject"], Value::Null);
    assert_eq!(
        (&got["requestObject"], &got["responseObject"]),
        (&Value::Null, &Value::Null)
    );
    let made = of(&format!("{account}/robot/token"));
    assert_eq!(made[0]["responseObject"]["status"]["token"], "<redacted>");
    assert!(!std::fs::read_to_string(&log).unwrap().contains(&token));
    drop(folder);
}

#[tokio::test]
async fn refusals_are_told_with_their_reason() {
    let audited = Audited::new(
        &json!([{"level": "Metadata"}]),
        &json!({"omitStages": ["RequestReceived"]}),
    )
    .await;
    let client = audited.started.client(ADMIN);
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/x";
    let headers = [("impersonate-user", "nobody"), ("audit-id", "of-the-client")];
    let answer = client.get_with(path, &headers).await;
    assert_eq!(
        (answer.code.as_u16(), &answer.headers["audit-id"]),
        (403, &headers[1].1.parse().unwrap())
    );
    let stranger = audited.started.client("nobody's token");
    assert_eq!(stranger.get("/api/v1/nodes").await.code, 401);
    let (log, _folder) = (audited.log.clone(), audited.folder);
    audited.started.server.stop().await;
    let [refused] = events(&log, path).try_into().unwrap();
    assert_eq!(
        (&refused["auditID"], &refused["user"]["username"]),
        (&json!("of-the-client"), &json!("admin"))
    );
    assert_eq!(
        refused["impersonatedUser"],
        json!({"username": "nobody", "groups": ["system:authenticated"]})
    );
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    let status = &refused["responseStatus"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")));
    assert_eq!(
        status["details"],
        json!({"name": "x", "group": "rbac.authorization.k8s.io", "kind": "clusterroles"})
    );
    let [unknown] = events(&log, "/api/v1/nodes").try_into().unwrap();
    assert_eq!(
        (&unknown["stage"], &unknown["user"]),
        (&json!("ResponseStarted"), &json!({}))
    );
    assert_eq!(unknown["responseStatus"]["code"], 401);
    assert_eq!(unknown["annotations"], Value::Null);
}

#[tokio::test]
async fn a_watch_is_told_when_it_begins_and_when_it_ends() {
    let rules = json!([{"level": "RequestResponse", "verbs": ["watch"]}]);
    let audited = Audited::new(&rules, &json!({})).await;
    let client = audited.started.client(ADMIN);
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1");
    let answer = client.open("GET", &path, "", Bytes::new()).await;
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap();
    let events = audited.events(MAPS).await;
    let stages: Vec<&str> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[2]["responseStatus"], json!({"metadata": {}, "code": 200}));
    assert_eq!(events[2]["responseObject"], Value::Null);
    let slow = &events[2]["annotations"]["apiserver.latency.k8s.io/total"];
    assert!(slow.as_str().is_some(), "{}", events[2]);
}

#[tokio::test]
async fn what_admission_notes_and_for_whom_a_request_counts_is_told() {
    let audited = Audited::new(
        &json!([{"level": "Metadata"}]),
        &json!({"omitStages": ["RequestReceived"]}),
    )
    .await;
    let client = audited.started.client(ADMIN);
    let labels = json!({"pod-security.kubernetes.io/audit": "restricted"});
    let space = json!({"metadata": {"name": "watched", "labels": labels}});
    client.post("/api/v1/namespaces", &space).await;
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let policy = json!({"metadata": {"name": "named"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "true"}, {"expression": "false", "message": "never"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'pod ' + object.metadata.name"}],
    }});
    assert_eq!(client.post(policies, &policy).await.code, 201);
    let binding =
        json!({"metadata": {"name": "bound"}, "spec": {"policyName": "named", "validationActions": ["Audit"]}});
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    assert_eq!(client.post(bindings, &binding).await.code, 201);
    let pods = "/api/v1/namespaces/watched/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(pods, &pod).await.code, 201);
    let [event] = audited.events(pods).await.try_into().unwrap();
    let annotations = &event["annotations"];
    assert_eq!(
        annotations["pod-security.kubernetes.io/enforce-policy"],
        "privileged:latest"
    );
    let violations = annotations["pod-security.kubernetes.io/audit-violations"]
        .as_str()
        .unwrap();
    assert!(
        violations.starts_with("would violate PodSecurity \"restricted:latest\": "),
        "{violations}"
    );
    assert_eq!(annotations["named/who"], "pod p");
    assert_eq!(
        annotations["validation.policy.admission.k8s.io/validation_failure"],
        r#"[{"message":"never","policy":"named","binding":"bound","expressionIndex":1,"validationActions":["Audit"]}]"#
    );
}

#[tokio::test]
async fn another_server_is_told_lists_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = folder.path().join("policy.yaml");
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
    std::fs::write(&file, policy.to_string()).unwrap();
    let config = folder.path().join("webhook.yaml");
    let address = listener.local_addr().unwrap();
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}/events")}}],
        "users": [{"name": "u", "user": {"token": "token-of-audit"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    std::fs::write(&config, kubeconfig.to_string()).unwrap();
    let batching = Batching {
        mode: Mode::Batch,
        buffer: 100,
        size_max: 2,
        wait_max: super::LONG,
        throttle: None,
    };
    let audit = AuditOptions {
        policy_file: Some(file),
        log: None,
        webhook: Some((config, Duration::ZERO, batching)),
    };
    let configure = |config: &mut ServerConfig| config.audit = audit;
    let started = Started::configured(Limits::default(), false, configure).await;
    // Whatever was there before this: lists of two come.
    let client = started.client(ADMIN);
    client.get("/api/v1/nodes").await;
    let (mut socket, _) = tokio::time::timeout(super::LONG, listener.accept())
        .await
        .unwrap()
        .unwrap();
    let mut request = Vec::new();
    let list = loop {
        use tokio::io::AsyncReadExt as _;
        let read = tokio::time::timeout(super::LONG, socket.read_buf(&mut request)).await;
        assert!(read.unwrap().unwrap() > 0, "it was hung up");
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(list) = serde_json::from_str::<Value>(body)
        {
            assert!(head.starts_with("POST /events HTTP/1.1"), "{head}");
            assert!(
                head.to_lowercase().contains("authorization: bearer token-of-audit"),
                "{head}"
            );
            break list;
        }
    };
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("EventList"), &json!("audit.k8s.io/v1"))
    );
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    drop(socket);
    drop(listener);
    started.server.stop().await;
}
