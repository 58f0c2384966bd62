//! The server as a client meets it on the wire: who is let in, what bounds it, how it ends, and what writes do.

mod applying;
mod audit;
mod authenticating;
mod certificates;
mod client;
mod custom_resources;
mod deletion;
mod ecosystem;
mod ending;
mod evictions;
mod fairness;
mod floods;
mod identity;
mod limits;
mod oidc;
mod plugins;
mod policies;
mod token_webhook;
mod writes;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::store::{Durability, Options};
use serde_json::json;

/// What is waited for comes sooner, unless something is wrong.
pub(crate) const LONG: Duration = Duration::from_secs(50);

/// Tokens of the tests' token file.
pub(crate) const ADMIN: &str = "token-of-admin";

/// Tokens of users who belong to no group.
pub(crate) const GREEDY: &str = "token-of-greedy";
pub(crate) const MODEST: &str = "token-of-modest";

/// A server on free ports in a directory of its own.
pub(crate) struct Started {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
}

impl Started {
    /// With everything as usual.
    pub(crate) async fn usual() -> Self {
        Self::with(Limits::default(), false).await
    }

    /// With these limits, and controllers on or off.
    pub(crate) async fn with(limits: Limits, controllers: bool) -> Self {
        Self::configured(limits, controllers, |_| {}).await
    }

    /// [`Started::with`], with what `configure` changes.
    pub(crate) async fn configured(
        limits: Limits,
        controllers: bool,
        configure: impl FnOnce(&mut ServerConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens.csv");
        let users = format!("{ADMIN},admin,1,\"system:masters\"\n{GREEDY},greedy,2\n{MODEST},modest,3\n");
        std::fs::write(&tokens, users).unwrap();
        let mut config = config(dir.path(), &tokens, limits, controllers);
        configure(&mut config);
        let server = Server::start(config).await.unwrap();
        let started = Self { server, dir };
        let binding = json!({
            "metadata": {"name": "tests"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "greedy"}, {"kind": "User", "name": "modest"}],
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(started.admin().post(path, &binding).await.code, 201);
        started
    }

    /// With whom it believes changed; given the directory for files, and the options as they are.
    pub(crate) async fn believing(change: impl FnOnce(&Path, &mut AuthenticationOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{ADMIN},admin,1,\"system:masters\"\n")).unwrap();
        let mut config = config(dir.path(), &tokens, Limits::default(), false);
        change(dir.path(), &mut config.authentication);
        let server = Server::start(config).await.unwrap();
        Self { server, dir }
    }

    /// Stops the server and starts another one on what it left.
    pub(crate) async fn again(self) -> Self {
        let Self { server, dir } = self;
        server.stop().await;
        let tokens = dir.path().join("tokens.csv");
        let config = config(dir.path(), &tokens, Limits::default(), false);
        let server = Server::start(config).await.unwrap();
        Self { server, dir }
    }

    /// Calls the plain HTTP address as admin.
    pub(crate) fn admin(&self) -> client::Client {
        self.client(ADMIN)
    }

    /// Calls the plain HTTP address with a token.
    pub(crate) fn client(&self, token: &'static str) -> client::Client {
        client::Client::new(self.server.http_address().unwrap(), Some(token))
    }
}

fn config(dir: &Path, tokens: &Path, limits: Limits, controllers: bool) -> ServerConfig {
    ServerConfig {
        data_dir: dir.join("data"),
        bind: "127.0.0.1:0".parse().unwrap(),
        http_bind: Some("127.0.0.1:0".parse().unwrap()),
        authentication: AuthenticationOptions {
            token_auth_file: Some(tokens.to_owned()),
            ..AuthenticationOptions::default()
        },
        store: Options {
            durability: Durability::Os,
            // A test that ends removes the directory under its server.
            on_fatal: Arc::new(|_| {}),
            ..Options::default()
        },
        controllers,
        plugins: Plugins::without_accounts(),
        compress: Compress::default(),
        kubelets: KubeletAccess::default(),
        tls: flatkube::api::server::TlsOptions::default(),
        limits,
        ..ServerConfig::default()
    }
}
