//! What a hostile user tries: somebody with a valid token and no rights, or few, who wants more. Each test is one way; what stands
//! against it is in `docs/security.md`.

#[path = "../serving/client.rs"]
#[allow(dead_code, reason = "it is for more than these tests")]
mod client;
mod escalation;
mod everything;
mod narrowed;

use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::store::{Durability, Options};
use serde_json::{Value, json};

/// What is waited for comes sooner, unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(50);
const ADMIN: &str = "token-of-admin";
const MALLORY: &str = "token-of-mallory";
const NODE: &str = "token-of-node";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server with an administrator, and with `mallory`, who has no rights.
pub(crate) struct Started {
    server: Server,
    _dir: tempfile::TempDir,
}

impl Started {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens.csv");
        let users = format!(
            "{ADMIN},admin,1,\"system:masters\"\n{MALLORY},mallory,2\n{NODE},system:node:n,3,\"system:nodes\"\n"
        );
        std::fs::write(&tokens, users).unwrap();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(ServerConfig {
            data_dir: dir.path().join("data"),
            bind: loopback,
            http_bind: Some(loopback),
            authentication: AuthenticationOptions {
                token_auth_file: Some(tokens),
                ..AuthenticationOptions::default()
            },
            store: Options {
                durability: Durability::Os,
                // A test that ends removes the directory under its server.
                on_fatal: Arc::new(|_| {}),
                ..Options::default()
            },
            controllers: false,
            compress: Compress::default(),
            kubelets: KubeletAccess::default(),
            tls: flatkube::api::server::TlsOptions::default(),
            plugins: Plugins::default(),
            limits: Limits::default(),
            ..ServerConfig::default()
        });
        Self {
            server: server.await.unwrap(),
            _dir: dir,
        }
    }

    pub(crate) fn admin(&self) -> client::Client {
        client::Client::new(self.server.http_address().unwrap(), Some(ADMIN))
    }

    pub(crate) fn mallory(&self) -> client::Client {
        client::Client::new(self.server.http_address().unwrap(), Some(MALLORY))
    }

    /// The kubelet of the node `n`.
    pub(crate) fn node(&self) -> client::Client {
        client::Client::new(self.server.http_address().unwrap(), Some(NODE))
    }

    /// Gives mallory rules in the namespace `default`, under this name.
    pub(crate) async fn give(&self, name: &str, rules: Value) {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let answer = self
            .admin()
            .post(&format!("{RBAC}/namespaces/default/roles"), &role)
            .await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        let binding = binding(name, "Role", name);
        let path = format!("{RBAC}/namespaces/default/rolebindings");
        let answer = self.admin().post(&path, &binding).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
    }
}

/// A binding of a role to mallory.
pub(crate) fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}],
    })
}
