//! The scheduler at work on a server, as a client sees it.

mod basics;
#[path = "../serving/client.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod client;
mod rules;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::scheduler::Scheduler;
use flatkube::store::{Durability, Options};
use serde_json::{Value, json};

pub(crate) use client::{Answer, Client};

/// What is waited for comes sooner, unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(50);

const ADMIN: &str = "token-of-admin";

/// A server with the scheduler, or without it yet.
struct Cluster {
    server: Server,
    scheduler: Option<Scheduler>,
    admin: Client,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let mut cluster = Self::without_scheduler().await;
        cluster.start_scheduler();
        cluster
    }

    async fn without_scheduler() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("tokens.csv"),
            format!("{ADMIN},admin,1,\"system:masters\"\n"),
        )
        .unwrap();
        Self::open(dir).await
    }

    async fn open(dir: tempfile::TempDir) -> Self {
        let server = Server::start(config(dir.path())).await.unwrap();
        let admin = Client::new(server.http_address().unwrap(), Some(ADMIN));
        Self {
            server,
            scheduler: None,
            admin,
            dir,
        }
    }

    fn start_scheduler(&mut self) {
        self.scheduler = Some(Scheduler::start(&self.server));
    }

    /// The same data under a new server, whose scheduler is not started.
    async fn restarted(self) -> Self {
        self.server.stop().await;
        if let Some(scheduler) = self.scheduler {
            scheduler.ended().await;
        }
        Self::open(self.dir).await
    }

    /// What is made of `object`.
    async fn made(&self, path: &str, object: &Value) -> Value {
        let answer = self.admin.post(path, object).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.body
    }

    /// Looks at an object after each write to the store until it is as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let store = self.server.store();
        let wait = async {
            loop {
                let revision = store.view().revision();
                let answer = self.admin.get(path).await;
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

    /// A node with 4 cores, 8 GiB and room for 10 Pods, in a zone; `edit` changes it.
    async fn node(&self, name: &str, zone: &str, edit: impl FnOnce(&mut Value)) {
        let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        let mut node = json!({"metadata": {"name": name, "labels":
                {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
            "status": {"capacity": capacity, "allocatable": capacity}});
        edit(&mut node);
        self.made("/api/v1/nodes", &node).await;
        // A new node is not ready until somebody says so.
        let ready = json!({"spec": {"taints": node["spec"]["taints"]}});
        let answer = self.admin.merge(&format!("/api/v1/nodes/{name}"), &ready).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
    }

    /// A Pod that asks for so much cpu; `edit` changes it.
    async fn pod(&self, name: &str, cpu: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
        edit(&mut pod);
        self.made(PODS, &pod).await
    }

    /// The node that a Pod goes to.
    async fn placed(&self, name: &str) -> String {
        let has_node = |answer: &Answer| answer.body["spec"]["nodeName"].is_string();
        let answer = self.until(&format!("{PODS}/{name}"), has_node).await;
        answer.body["spec"]["nodeName"].as_str().unwrap().to_owned()
    }

    /// What is told of a Pod for which no place was found, once it is told `about`.
    async fn refused(&self, name: &str, about: &str) -> Value {
        let is_told = |answer: &Answer| {
            let condition = condition(&answer.body, "PodScheduled");
            condition["status"] == "False" && condition["message"].as_str().is_some_and(|text| text.contains(about))
        };
        let answer = self.until(&format!("{PODS}/{name}"), is_told).await;
        condition(&answer.body, "PodScheduled")
    }

    /// The first Event of that reason about a Pod.
    async fn event(&self, name: &str, reason: &str) -> Value {
        let path =
            format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name},reason%3D{reason}");
        let is_there = |answer: &Answer| answer.body["items"].as_array().is_some_and(|items| !items.is_empty());
        self.until(&path, is_there).await.body["items"][0].clone()
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn condition(pod: &Value, kind: &str) -> Value {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.rfind(|condition| condition["type"] == kind);
    found.cloned().unwrap_or_default()
}

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
        compress: Compress::default(),
        kubelets: KubeletAccess::default(),
        tls: flatkube::api::server::TlsOptions::default(),
        limits: Limits::default(),
        plugins: Plugins::without_accounts(),
        ..ServerConfig::default()
    }
}
