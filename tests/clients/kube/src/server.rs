//! `flatkube server` as a process: the binary that `FLATKUBE` names.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A running server that keeps nothing. Killed when dropped.
pub struct Server {
    child: Child,
    kubeconfig: PathBuf,
}

impl Server {
    /// Starts it on a free port, without built-in controllers: what changes, these tests have changed.
    ///
    /// # Panics
    /// When `FLATKUBE` does not name the binary, or it does not start.
    pub fn start() -> Self {
        let binary = std::env::var_os("FLATKUBE").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/debug/flatkube"),
            PathBuf::from,
        );
        let mut child = Command::new(&binary)
            .args([
                "server",
                "--ephemeral",
                "--bind",
                "127.0.0.1:0",
                "--controllers",
                "off",
                "--disable-admission-plugins",
                "ServiceAccount",
            ])
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; build it, or name it in FLATKUBE", binary.display()));
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut ready)
            .expect("text");
        let kubeconfig = ready
            .split("KUBECONFIG=")
            .nth(1)
            .unwrap_or_else(|| panic!("the server did not start: {ready:?}"))
            .trim()
            .into();
        Server { child, kubeconfig }
    }

    /// A client with the administrator's certificate.
    pub async fn client(&self) -> Client {
        let file = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .expect("a whole kubeconfig");
        Client::try_from(config).expect("certificates")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The newest revision of the server's store: whoever writes anything raises it.
pub async fn revision(client: &Client) -> u64 {
    let list = Api::<ConfigMap>::all(client.clone())
        .list(&ListParams::default().limit(1))
        .await
        .expect("a list");
    list.metadata
        .resource_version
        .expect("lists have one")
        .parse()
        .expect("digits")
}

/// Makes a namespace.
pub async fn namespace(client: &Client, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("a new namespace");
}
