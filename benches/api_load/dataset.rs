//! Complete servers with objects in them, each on a directory of its own on disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flatkube::admission::plugins::Plugins;
use flatkube::api::server::{Compress, KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::controllers::Controllers;
use flatkube::hollow::{Hollow, Profile};
use flatkube::resources::{self, Context, Resource};
use flatkube::scheduler::Scheduler;
use flatkube::store::{Change, Durability, Options, Precondition, Store, Write};
use flatkube::tree::Value;
use serde_json::json;

use crate::client::{TOKEN, Target, client_tls};
use crate::objects;

/// Writes that wait for the committer at a time while objects are loaded.
const LOADERS: usize = 256;
/// 2026-01-02T03:04:05Z.
const CREATED_S: i64 = 1_767_323_045;
/// Namespaces that ConfigMaps are spread over.
const NAMESPACES: usize = 16;

/// The file of tokens in a server's directory.
const TOKENS: &str = "tokens.csv";

/// A server with its own runtime.
pub(crate) struct Served {
    pub(crate) target: Target,
    pub(crate) data_dir: PathBuf,
    pub(crate) store: Arc<Store>,
    server: Option<Server>,
    cluster: Option<Cluster>,
    runtime: tokio::runtime::Runtime,
    durability: Durability,
    directory: tempfile::TempDir,
}

/// What makes a cluster of a server.
struct Cluster {
    controllers: Controllers,
    scheduler: Scheduler,
    hollow: Hollow,
}

impl Cluster {
    fn start(server: &Server, nodes: usize) -> Self {
        Self {
            controllers: Controllers::start(server),
            scheduler: Scheduler::start(server),
            hollow: Hollow::start(server, nodes, Profile::quick()),
        }
    }

    async fn ended(self) {
        self.controllers.ended().await;
        self.scheduler.ended().await;
        self.hollow.ended().await;
    }
}

impl Served {
    /// An empty server. `background`: it shelves when it finds it due; else [`Served::shelve`] does.
    pub(crate) fn start(durability: Durability, background: bool) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("api-load-")
            .tempdir_in(base())
            .expect("a directory");
        let tokens = format!("{TOKEN},bench,1,system:masters\n");
        std::fs::write(directory.path().join(TOKENS), tokens).expect("a file");
        Self::open(directory, durability, background)
    }

    /// A server that shelves when it finds it due, with all controllers, the scheduler and so many simulated nodes, on which
    /// nothing takes time.
    pub(crate) fn start_cluster(durability: Durability, nodes: usize) -> Self {
        let mut served = Self::start(durability, true);
        let entered = served.runtime.enter();
        let cluster = served.server.as_ref().map(|server| Cluster::start(server, nodes));
        drop(entered);
        served.cluster = cluster;
        served
    }

    /// Ends the server, calls `between`, and starts another one on the same directory, on other ports.
    pub(crate) fn restart(mut self, background: bool, between: impl FnOnce(&Path)) -> Self {
        self.stop();
        let durability = self.durability;
        let empty = tempfile::tempdir_in(base()).expect("a directory");
        let directory = std::mem::replace(&mut self.directory, empty);
        drop(self);
        between(directory.path());
        Self::open(directory, durability, background)
    }

    fn open(directory: tempfile::TempDir, durability: Durability, background: bool) -> Self {
        let data_dir = directory.path().join("data");
        let loopback = ([127, 0, 0, 1], 0).into();
        let config = ServerConfig {
            data_dir: data_dir.clone(),
            bind: loopback,
            http_bind: Some(loopback),
            authentication: AuthenticationOptions {
                token_auth_file: Some(directory.path().join(TOKENS)),
                ..AuthenticationOptions::default()
            },
            store: Options {
                durability,
                background,
                ..Options::default()
            },
            controllers: false,
            plugins: Plugins::without_accounts(),
            compress: Compress::Always,
            kubelets: KubeletAccess::default(),
            tls: flatkube::api::server::TlsOptions::default(),
            limits: Limits {
                // The client's connections are not driven between scenarios, so none of them says goodbye.
                drain: Duration::from_millis(50),
                ..Limits::default()
            },
            ..ServerConfig::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let server = runtime.block_on(Server::start(config)).expect("a server");
        let target = Target {
            plain: server.http_address().expect("an address"),
            tls: server.address(),
            client_tls: client_tls(&data_dir),
        };
        Self {
            target,
            store: server.store().clone(),
            data_dir,
            server: Some(server),
            cluster: None,
            runtime,
            durability,
            directory,
        }
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
        if let Some(cluster) = self.cluster.take() {
            self.runtime.block_on(cluster.ended());
        }
        self.store.close();
    }

    /// Moves everything onto shelves. For servers without background.
    pub(crate) fn shelve(&self) {
        self.store.maintain(true);
    }

    /// `objects` ConfigMaps of about 1.4 KB; `picked` of them, evenly spread, carry `pick=yes`.
    pub(crate) fn fill_config_maps(&self, objects: usize, picked: usize) {
        self.fill((0..objects).map(move |n| config_map(n, is_picked(n, objects, picked))));
    }

    /// `objects` Pods of about 3.5 KB in 20 namespaces; `picked` of them, evenly spread, carry `pick=yes`.
    pub(crate) fn fill_pods(&self, objects: usize, picked: usize) {
        self.fill((0..objects).map(move |n| pod(n, is_picked(n, objects, picked))));
    }

    /// The namespaces that seeded objects go into; those that are there are written anew.
    pub(crate) fn make_namespaces(&self, count: u32) {
        let resource = resources::find("", "v1", "namespaces").expect("a built-in resource");
        self.fill((0..count).map(|number| (resource, prepared(resource, objects::namespace(number)))));
    }

    /// Writes objects through the store, past HTTP and admission.
    pub(crate) fn fill(&self, objects: impl Iterator<Item = (&'static Resource, Value)>) {
        self.runtime.block_on(async {
            let mut writes = tokio::task::JoinSet::new();
            for (resource, object) in objects {
                let store = self.store.clone();
                writes.spawn(async move { write(&store, resource, &object).await });
                if writes.len() >= LOADERS {
                    writes.join_next().await.expect("a task").expect("no panic");
                }
            }
            while let Some(done) = writes.join_next().await {
                done.expect("no panic");
            }
        });
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the object with the number `n` carries `pick=yes`: `picked` of `objects` do, evenly spread.
pub(crate) fn is_picked(n: usize, objects: usize, picked: usize) -> bool {
    n.is_multiple_of(objects / picked) && n / (objects / picked) < picked
}

/// On the disk of the build, not in memory.
pub(crate) fn base() -> &'static Path {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).expect("a directory");
    base
}

/// Puts an object, whatever was there.
pub(crate) async fn write(store: &Arc<Store>, resource: &'static Resource, object: &Value) {
    let metadata = &object["metadata"];
    let key = resource.key(
        metadata["namespace"].as_str(),
        metadata["name"].as_str().expect("a name"),
    );
    let prepared = resources::encode(resource, object).expect("a valid object");
    let write = Write {
        resource: (*resource.storage).into(),
        key,
        precondition: Precondition::Any,
        uid: None,
        change: Change::Put(prepared),
    };
    store.write(write).await.expect("a write");
}

pub(crate) fn config_maps() -> &'static Resource {
    resources::find("", "v1", "configmaps").expect("a built-in resource")
}

pub(crate) fn pods() -> &'static Resource {
    resources::find("", "v1", "pods").expect("a built-in resource")
}

/// The ConfigMap with the number `n`, as it is stored.
pub(crate) fn config_map(n: usize, picked: bool) -> (&'static Resource, Value) {
    let mut object = json!({
        "metadata": {
            "name": format!("object-{n:06}"),
            "namespace": format!("ns-{}", n % NAMESPACES),
            "labels": {"app": format!("app-{}", n % 50), "tier": "back"},
        },
        "data": {"key": "v".repeat(600), "other": "w".repeat(450)},
    });
    if picked {
        object["metadata"]["labels"]["pick"] = json!("yes");
    }
    (config_maps(), prepared(config_maps(), object))
}

/// The Pod with the number `n`, running, as it is stored.
pub(crate) fn pod(n: usize, picked: bool) -> (&'static Resource, Value) {
    let seeded = objects::pod(n as u64, 20);
    let mut object: Value = serde_json::from_slice(&seeded.body).expect("JSON");
    let status: Value = serde_json::from_slice(&seeded.status).expect("JSON");
    if picked {
        object["metadata"]["labels"]["pick"] = "yes".into();
    }
    let mut object = prepared(pods(), object);
    object["status"] = status["status"].clone();
    resources::canonicalize(pods(), &mut object);
    (pods(), object)
}

/// A release as Helm 3 keeps it: a Secret with the labels that Helm selects by, and a payload of `len` bytes.
pub(crate) fn release(n: usize, len: usize) -> (&'static Resource, Value) {
    let resource = resources::find("", "v1", "secrets").expect("a built-in resource");
    let payload = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![b'x'; len * 3 / 4]);
    let object = json!({
        "metadata": {
            "name": format!("sh.helm.release.v1.release-{n:04}.v1"),
            "namespace": "default",
            "labels": {"owner": "helm", "name": format!("release-{n:04}"), "status": "deployed", "version": "1"},
        },
        "type": "helm.sh/release.v1",
        "data": {"release": payload},
    });
    (resource, prepared(resource, object))
}

/// The name of a node that a Lease belongs to.
pub(crate) fn node_name(n: usize) -> String {
    format!("node-{n:05}")
}

/// The heartbeat of a node.
pub(crate) fn lease(n: usize) -> (&'static Resource, Value) {
    let resource = resources::find("coordination.k8s.io", "v1", "leases").expect("a built-in resource");
    let object = json!({
        "metadata": {"name": node_name(n), "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node_name(n),
            "leaseDurationSeconds": 40,
            "renewTime": "2026-01-02T03:04:05.000000Z",
        },
    });
    (resource, prepared(resource, object))
}

fn prepared(resource: &'static Resource, object: impl Into<Value>) -> Value {
    let mut object = object.into();
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let context = Context {
        now_s: CREATED_S,
        namespace: namespace.as_deref(),
        name: None,
        asked: None,
    };
    resources::prepare_create(resource, &mut object, &context).expect("a valid object");
    object
}
