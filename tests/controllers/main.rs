//! Controllers at work on a server, as a client sees it.

mod accounts;
mod addresses;
mod autoscale;
mod certificates;
#[path = "../serving/client.rs"]
#[allow(dead_code, reason = "shared with tests that use more of it")]
mod client;
mod crashes;
mod cron;
mod daemons;
mod deployment;
mod devices;
mod disruption;
mod endpoints;
mod finished;
mod garbage;
mod job;
mod job_crashes;
mod job_ends;
mod joining;
mod nodes;
mod policies;
mod quota;
mod replicas;
mod runtime;
mod stateful;
mod stateful_crashes;
mod tls;
mod tokens;
mod volumes;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::controllers::{Controllers, Settings};
use flatkube::store::{Durability, Options};
use serde_json::Value;

pub(crate) use client::{Answer, Client};

/// What is waited for comes sooner, unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(50);

const ADMIN: &str = "token-of-admin";
/// Of one without rights.
const BOB: &str = "token-of-bob";

/// A server with controllers, or without them yet.
struct Cluster {
    server: Server,
    controllers: Option<Controllers>,
    admin: Client,
    dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let mut cluster = Self::without_controllers().await;
        cluster.start_controllers();
        cluster
    }

    async fn without_controllers() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("tokens.csv"),
            format!("{ADMIN},admin,1,\"system:masters\"\n{BOB},bob,2\n"),
        )
        .unwrap();
        Self::open(dir).await
    }

    async fn open(dir: tempfile::TempDir) -> Self {
        let server = Server::start(config(dir.path())).await.unwrap();
        let admin = Client::new(server.http_address().unwrap(), Some(ADMIN));
        Self {
            server,
            controllers: None,
            admin,
            dir,
        }
    }

    fn start_controllers(&mut self) {
        self.start_controllers_with(&Settings::default());
    }

    fn start_controllers_with(&mut self, settings: &Settings) {
        self.controllers = Some(Controllers::start_with(&self.server, settings));
    }

    /// The same data under a new server, whose controllers are not started.
    async fn restarted(self) -> Self {
        self.server.stop().await;
        if let Some(controllers) = self.controllers {
            controllers.ended().await;
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

    async fn gone(&self, path: &str) {
        self.until(path, |answer| answer.code == 404).await;
    }
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
        plugins: Plugins::without_accounts(),
        compress: Compress::default(),
        kubelets: KubeletAccess::default(),
        tls: flatkube::api::server::TlsOptions::default(),
        limits: Limits::default(),
        ..ServerConfig::default()
    }
}
