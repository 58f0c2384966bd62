//! Simulated nodes at work with the scheduler and the controllers on one server, as a client sees it.

#[path = "../serving/client.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod client;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::controllers::{Controllers, Settings};
use flatkube::hollow::{Hollow, Profile};
use flatkube::scheduler::Scheduler;
use flatkube::store::{Durability, Options};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use client::{Answer, Client};

/// What is waited for comes sooner, unless something is wrong.
const LONG: Duration = Duration::from_secs(50);

const ADMIN: &str = "token-of-admin";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const NODES: &str = "/api/v1/nodes";

fn config(dir: &Path) -> ServerConfig {
    ServerConfig {
        data_dir: dir.join("data"),
        bind: "127.0.0.1:0".parse().unwrap(),
        http_bind: Some("127.0.0.1:0".parse().unwrap()),
        authentication: AuthenticationOptions {
            token_auth_file: Some(dir.join("tokens.csv")),
            ..AuthenticationOptions::default()
        },
        store: Options {
            durability: Durability::Os,
            // A test that ends removes the directory under its server.
            on_fatal: Arc::new(|_| {}),
            ..Options::default()
        },
        controllers: true,
        plugins: Plugins::without_accounts(),
        compress: Compress::default(),
        kubelets: KubeletAccess::default(),
        tls: flatkube::api::server::TlsOptions::default(),
        limits: Limits::default(),
        ..ServerConfig::default()
    }
}

/// Looks at an object after each write to the store until it is as wanted.
async fn until(server: &Server, admin: &Client, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let store = server.store();
    let wait = async {
        loop {
            let revision = store.view().revision();
            let answer = admin.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            store.reached(revision + 1).await;
        }
    };
    tokio::time::timeout(LONG, wait)
        .await
        .unwrap_or_else(|_| panic!("{path} never was as it should be"))
}

fn items(answer: &Answer) -> &Vec<Value> {
    answer.body["items"].as_array().unwrap()
}

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|list| {
        list.iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    })
}

/// A server with everything at work.
struct Cluster {
    server: Server,
    admin: Client,
    controllers: Controllers,
    scheduler: Scheduler,
    hollow: Hollow,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start(nodes: usize, profile: Profile, settings: &Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = format!("{ADMIN},admin,1,\"system:masters\"\n");
        std::fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        let server = Server::start(config(dir.path())).await.unwrap();
        Self {
            admin: Client::new(server.http_address().unwrap(), Some(ADMIN)),
            controllers: Controllers::start_with(&server, settings),
            scheduler: Scheduler::start(&server),
            hollow: Hollow::start(&server, nodes, profile),
            server,
            _dir: dir,
        }
    }

    async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        until(&self.server, &self.admin, path, wanted).await
    }

    async fn made(&self, path: &str, object: &Value) {
        let made = self.admin.post(path, object).await;
        assert_eq!(made.code, 201, "{}", made.body);
    }

    async fn end(self) {
        self.server.stop().await;
        self.hollow.ended().await;
        self.scheduler.ended().await;
        self.controllers.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_becomes_available_and_takes_its_pods_along() {
    let cluster = Cluster::start(2, Profile::quick(), &Settings::default()).await;
    let admin = &cluster.admin;
    cluster
        .made(
            DEPLOYMENTS,
            &json!({"metadata": {"name": "web"}, "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}),
        )
        .await;
    let web = format!("{DEPLOYMENTS}/web");
    cluster
        .until(&web, |answer| {
            answer.body["status"]["availableReplicas"] == 3 && is_true(&answer.body, "Available")
        })
        .await;

    let pods = admin.get(PODS).await;
    assert_eq!(items(&pods).len(), 3, "{}", pods.body);
    let mut addresses = std::collections::BTreeSet::new();
    for pod in items(&pods) {
        assert_eq!(pod["status"]["phase"], "Running", "{pod}");
        assert!(is_true(pod, "Ready"), "{pod}");
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        assert!(["hollow-00001", "hollow-00002"].contains(&node), "{pod}");
        let node = admin.get(&format!("{NODES}/{node}")).await;
        assert!(node.body["spec"]["taints"].is_null(), "{}", node.body);
        let range = node.body["spec"]["podCIDR"]
            .as_str()
            .unwrap()
            .strip_suffix(".0/24")
            .unwrap();
        let address = pod["status"]["podIP"].as_str().unwrap();
        assert!(address.starts_with(&format!("{range}.")), "{address} is not of {range}");
        addresses.insert(address.to_owned());
    }
    assert_eq!(addresses.len(), 3, "each Pod has an address of its own");

    let gone = admin.delete(&web).await;
    assert_eq!(gone.code, 200, "{}", gone.body);
    cluster.until(PODS, |answer| items(answer).is_empty()).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_log_and_events_and_nothing_to_talk_to() {
    let cluster = Cluster::start(1, Profile::quick(), &Settings::default()).await;
    let pod = |name: &str, command: &[&str]| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox", "command": command}]}});
    cluster
        .made(PODS, &pod("p", &["sh", "-c", "echo one; echo two; sleep 3600"]))
        .await;
    cluster.made(PODS, &pod("silent", &["sleep", "3600"])).await;
    cluster
        .made(PODS, &{
            let mut pod = pod("waiting", &[]);
            pod["metadata"]["annotations"] = json!({"hollow.flatkube.io/image-pull": "fail"});
            pod
        })
        .await;
    for name in ["p", "silent"] {
        cluster
            .until(&format!("{PODS}/{name}"), |answer| is_true(&answer.body, "Ready"))
            .await;
    }
    let log = async |name: &str, query: &str| {
        let path = format!("{PODS}/{name}/log{query}");
        let answer = cluster.admin.open("GET", &path, "application/json", Bytes::new()).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(log("p", "").await, (200, "one\ntwo\n".to_owned()));
    assert_eq!(log("p", "?tailLines=1").await, (200, "two\n".to_owned()));
    assert!(log("silent", "").await.1.contains("on the simulated node hollow-00001"));
    let waiting = |answer: &Answer| {
        answer.body["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    };
    cluster.until(&format!("{PODS}/waiting"), waiting).await;
    let (code, text) = log("waiting", "").await;
    assert!(
        code == 400 && text.contains("trying and failing to pull image"),
        "{code} {text}"
    );
    let exec = cluster
        .admin
        .post(&format!("{PODS}/p/exec?command=ls&stdout=true"), &json!({}))
        .await;
    assert_eq!(exec.code, 501, "{}", exec.body);
    assert_eq!(exec.body["reason"], "NotImplemented");

    cluster.admin.delete(&format!("{PODS}/p")).await;
    let told = |answer: &Answer| {
        let of_pod = items(answer)
            .iter()
            .filter(|event| event["involvedObject"]["name"] == "p");
        // Its node may not have been ready yet.
        let mut reasons: Vec<&str> = of_pod
            .filter_map(|event| event["reason"].as_str())
            .filter(|reason| *reason != "FailedScheduling")
            .collect();
        reasons.sort_unstable();
        reasons == ["Created", "Killing", "Pulled", "Scheduled", "Started"]
    };
    let events = cluster.until(EVENTS, told).await;
    let started = items(&events)
        .iter()
        .find(|event| event["reason"] == "Started")
        .unwrap();
    assert_eq!(
        started["source"],
        json!({"component": "kubelet", "host": "hollow-00001"})
    );
    assert_eq!(started["involvedObject"]["fieldPath"], "spec.containers{c}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_is_unreachable_until_it_goes_on() {
    let profile = Profile {
        lease_renew_s: 1,
        ..Profile::quick()
    };
    let settings = Settings {
        node_monitor_grace: Duration::from_secs(4),
        node_monitor_period: Duration::from_millis(100),
        ..Settings::default()
    };
    let cluster = Cluster::start(2, profile, &settings).await;
    let (first, second) = (format!("{NODES}/hollow-00001"), format!("{NODES}/hollow-00002"));
    for path in [&first, &second] {
        cluster.until(path, |answer| is_true(&answer.body, "Ready")).await;
    }
    let stopped = |value: Value| json!({"metadata": {"annotations": {"hollow.flatkube.io/stopped": value}}});
    cluster.admin.merge(&first, &stopped(json!("true"))).await;
    let has = |answer: &Answer, effect: &str| {
        let taints = answer.body["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["effect"] == effect))
    };
    let found = cluster
        .until(&first, |answer| has(answer, "NoExecute") && has(answer, "NoSchedule"))
        .await;
    assert!(!is_true(&found.body, "Ready"), "{}", found.body);
    let other = cluster.admin.get(&second).await;
    assert!(
        is_true(&other.body, "Ready") && other.body["spec"]["taints"].is_null(),
        "{}",
        other.body
    );
    cluster.admin.merge(&first, &stopped(Value::Null)).await;
    cluster
        .until(&first, |answer| {
            is_true(&answer.body, "Ready") && answer.body["spec"]["taints"].is_null()
        })
        .await;
    cluster.end().await;
}
