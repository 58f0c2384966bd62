//! Simulated nodes at work with the scheduler and the controllers on one server, as a client sees it.

#[path = "../serving/client.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod client;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::controllers::Controllers;
use flatkube::hollow::{Hollow, Profile};
use flatkube::scheduler::Scheduler;
use flatkube::store::{Durability, Options};
use serde_json::{Value, json};

use client::{Answer, Client};

/// What is waited for comes sooner, unless something is wrong.
const LONG: Duration = Duration::from_secs(50);

const ADMIN: &str = "token-of-admin";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

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

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_becomes_available_and_takes_its_pods_along() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("tokens.csv"),
        format!("{ADMIN},admin,1,\"system:masters\"\n"),
    )
    .unwrap();
    let server = Server::start(config(dir.path())).await.unwrap();
    let admin = Client::new(server.http_address().unwrap(), Some(ADMIN));
    let controllers = Controllers::start(&server);
    let scheduler = Scheduler::start(&server);
    let hollow = Hollow::start(&server, 2, Profile::quick());

    let made = admin
        .post(
            DEPLOYMENTS,
            &json!({"metadata": {"name": "web"}, "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}),
        )
        .await;
    assert_eq!(made.code, 201, "{}", made.body);
    let web = format!("{DEPLOYMENTS}/web");
    until(&server, &admin, &web, |answer| {
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
        addresses.insert(pod["status"]["podIP"].as_str().unwrap().to_owned());
    }
    assert_eq!(addresses.len(), 3, "each Pod has an address of its own");

    let gone = admin.delete(&web).await;
    assert_eq!(gone.code, 200, "{}", gone.body);
    until(&server, &admin, PODS, |answer| items(answer).is_empty()).await;

    server.stop().await;
    hollow.ended().await;
    scheduler.ended().await;
    controllers.ended().await;
}
