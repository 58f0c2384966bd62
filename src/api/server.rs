//! The server as a whole: opens the store, listens, serves, stops.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection::{self, Shared, Transport};
use super::metrics;
use super::proxy::{Backends, Own};
use super::read::{Notice, Reader};
use super::renewal::Renewal;
use super::{Api, Client, Stopper, aggregation, bootstrap, legacy_tokens, tls, write};
use crate::admission::plugins::Plugins;
use crate::audit::{Audit, AuditError, AuditOptions};
use crate::auth::{
    AuthenticationOptions, Authenticator, AuthenticatorConfig, Authority, ClientCertificates, ClientIdentity,
    FlagErrors, Follower, Issuer, OpenFilesError, Pki, PkiError, Serving, User,
};
use crate::resources::KindArchiver;
use crate::resources::custom::Registry;
use crate::store::disk::RealDisk;
use crate::store::{OpenError, Options, Store};

pub use super::connection::Limits;
pub use super::proxy::{KubeletAccess, Network, Outbound};
pub use super::read::Compress;
pub use super::tls::{TlsOptions, TlsVersion};

/// How to serve.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where everything is kept: the store, and `pki/` and `admin.kubeconfig`, which are made at the first start.
    pub data_dir: PathBuf,
    /// TLS address. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// Plain HTTP address, loopback only, same authentication.
    pub http_bind: Option<SocketAddr>,
    /// Who is believed.
    pub authentication: AuthenticationOptions,
    /// Settings of the store.
    pub store: Options,
    /// Whether controllers run.
    pub controllers: bool,
    /// Built-in admission plugins that are on.
    pub plugins: Plugins,
    /// Whose large bodies are compressed.
    pub compress: Compress,
    /// Bounds on clients.
    pub limits: Limits,
    /// How kubelets are reached.
    pub kubelets: KubeletAccess,
    /// Which certificates are shown, and how TLS is spoken.
    pub tls: TlsOptions,
    /// What is recorded, and where.
    pub audit: AuditOptions,
}

impl Default for ServerConfig {
    /// A server on a free port, with everything below `flatkube-data`.
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("flatkube-data"),
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            http_bind: None,
            authentication: AuthenticationOptions::default(),
            store: Options::default(),
            controllers: true,
            plugins: Plugins::default(),
            compress: Compress::default(),
            limits: Limits::default(),
            kubelets: KubeletAccess::default(),
            tls: TlsOptions::default(),
            audit: AuditOptions::default(),
        }
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Plain HTTP is for loopback addresses only.
    #[error("plain HTTP may only listen on a loopback address, {0} is none; use the TLS address (--bind) instead")]
    NotLoopback(SocketAddr),
    /// Flags that cannot be meant.
    #[error(transparent)]
    Flags(#[from] FlagErrors),
    /// Nothing can be recorded.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The first objects cannot be written.
    #[error("cannot write the objects that every server has: {0}")]
    Bootstrap(String),
    /// Certificates, keys, the kubeconfig or the token file cannot be read or written.
    #[error("{what} {path}: {reason}")]
    File {
        /// What was tried, e.g. `cannot read`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong and, where known, what to do.
        reason: String,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    https: SocketAddr,
    http: Option<SocketAddr>,
    kubeconfig: PathBuf,
    authority: String,
    signer: Arc<Authority>,
    renewal: Arc<Renewal>,
    api: Arc<Api>,
    stopper: Stopper,
    drained: mpsc::Receiver<()>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Opens the store, makes what the first start needs, and serves.
    ///
    /// # Errors
    /// When the data directory, the certificates, the token file or an address cannot be used.
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        let ServerConfig {
            data_dir,
            bind,
            http_bind,
            authentication,
            store: store_options,
            controllers,
            plugins,
            compress,
            limits,
            kubelets,
            tls,
            audit,
        } = config;
        if let Some(address) = http_bind.filter(|address| !address.ip().is_loopback()) {
            return Err(StartError::NotLoopback(address));
        }
        authentication.check()?;
        let believed = authentication.open()?;
        let audit = Audit::open(&audit)?.map(Arc::new);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&data_dir)
            .map_err(|error| StartError::File {
                what: "cannot create",
                path: data_dir.clone(),
                reason: error.to_string(),
            })?;
        let (connections, backends) = connections_max(raise_descriptor_limit(), limits.backends);
        let limits = Limits {
            connections: limits.connections.min(connections),
            backends: limits.backends.min(backends),
            ..limits
        };
        // The addresses first: a port that is taken is told before anything is made.
        let https_listener = listen(bind).await?;
        let http_listener = match http_bind {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let https = local_address(&https_listener, bind)?;
        // The store before the certificates: a directory that is refused is left exactly as it was.
        let custom = Arc::new(Registry::default());
        let archiver = KindArchiver { custom: custom.clone() };
        let store = open_store(&data_dir.join("store"), store_options, archiver).await?;
        let is_external = tls.files.default.is_some();
        let pki = Pki::open(&data_dir, https, &tls.names, is_external)?;
        let issuer = Arc::new(Issuer::open(&data_dir.join("pki"), &authentication.accounts)?);
        let unusable = |reason| StartError::File {
            what: "cannot use",
            path: data_dir.join("pki"),
            reason,
        };
        let own = Own {
            serving: Arc::new(Serving::open(&pki, tls.files.clone())?),
            kubelet_client: Arc::new(ClientIdentity::new(&pki.kubelet_client).map_err(unusable)?),
            front_proxy_client: Arc::new(ClientIdentity::new(&pki.front_proxy_client).map_err(unusable)?),
        };
        let renewal = Renewal {
            data_dir: data_dir.clone(),
            address: https,
            names: tls.names.clone(),
            is_external,
            own: own.clone(),
            authority: pki.ca_pem.clone(),
        };
        let renewal = Arc::new(renewal);
        let mut authorities = vec![pki.ca.clone()];
        authorities.extend(believed.client_authorities);
        let certificates = ClientCertificates::new(&authorities, believed.front_proxy.clone()).map_err(unusable)?;
        let certificates = Arc::new(certificates);
        let acceptor = tls::acceptor(own.serving.clone(), certificates.clone(), &tls).map_err(unusable)?;

        bootstrap::run(&store, https).await?;
        bootstrap::tell_authorities(&store, &pki, &believed.client_ca_pem).await?;

        let (continue_key, kubeconfig) = (pki.continue_key, pki.kubeconfig.clone());
        let signer = pki.authority.clone();
        let authority = pki.ca_pem + &own.serving.authorities();
        let backends = Backends::open(own, &kubelets, limits.backends).map_err(|(path, reason)| StartError::File {
            what: "cannot use",
            path,
            reason,
        })?;

        let authenticator = Authenticator::new(
            store.clone(),
            AuthenticatorConfig {
                tokens: believed.tokens,
                issuer: Some(issuer),
                bootstrap_tokens: authentication.bootstrap_tokens,
                front_proxy: believed.front_proxy,
                anonymous: authentication.anonymous,
                issuers: believed.issuers,
                asking: authentication.asking,
                webhook: believed.webhook,
            },
        );
        let (stopper, stopping) = Stopper::new();
        let reader = Reader {
            store: store.clone(),
            stopping,
            continue_key,
            compress,
            notice: Notice::default(),
        };
        let api = Api::new(
            reader,
            authenticator,
            limits.clone(),
            Some(backends),
            custom,
            plugins,
            audit,
        )
        .map_err(StartError::Bootstrap)?;
        let api = Arc::new(api);
        // What custom resources there are is known before anybody can ask.
        let definitions = write::Definitions::open(&api).map_err(|status| StartError::Bootstrap(status.message))?;
        let (alive, drained) = mpsc::channel(1);
        let shared = Shared::new(api.clone(), certificates, limits, alive);
        let mut tasks = JoinSet::new();
        let mut http = None;
        if let (Some(listener), Some(address)) = (http_listener, http_bind) {
            http = Some(local_address(&listener, address)?);
            tasks.spawn(connection::accept(listener, Transport::Plain, shared.clone()));
        }
        tasks.spawn(connection::accept(https_listener, Transport::Tls(acceptor), shared));
        tasks.spawn(upkeep(api.clone()));
        tasks.spawn(renewal.clone().run(api.reader.stopping.clone()));
        tasks.spawn(legacy_tokens::run(api.clone()));
        if let Some((path, text)) = believed.config {
            tasks.spawn(follow(api.clone(), Follower::new(path, text)));
        }
        tasks.spawn(write::keep_own_statuses(api.clone()));
        tasks.spawn(aggregation::run(api.clone()));
        tasks.spawn(definitions.run(api.clone()));
        if controllers {
            tasks.spawn(write::clear_namespaces(api.clone()));
        }
        Ok(Self {
            https,
            http,
            kubeconfig,
            authority,
            signer,
            renewal,
            api,
            stopper,
            drained,
            tasks,
        })
    }

    /// The TLS address that is listened on, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.https
    }

    /// The plain HTTP address that is listened on.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The certificate of the authority that signed the server's own, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Who signs tokens of service accounts.
    pub fn issuer(&self) -> Option<Arc<Issuer>> {
        self.api.authenticator.issuer().cloned()
    }

    /// Makes own certificates anew that end soon or are gone, and reads those of an operator's again. The server does so by itself.
    /// Reads and writes files.
    ///
    /// # Errors
    /// When a file cannot be used; what it was for stays as it is.
    pub fn renew_certificates(&self) -> Result<(), PkiError> {
        self.renewal.renew()
    }

    /// Who signs certificates that clients ask for.
    pub fn signer(&self) -> &Arc<Authority> {
        &self.signer
    }

    /// A client within the process that writes as `user`, which `manager` is noted for.
    pub fn client(&self, user: &str, manager: &'static str) -> Client {
        let groups = match User::service_account_of(user) {
            Some((namespace, _)) => User::service_account_groups(namespace),
            None if user.starts_with("system:node:") => vec!["system:nodes".to_owned()],
            None => Vec::new(),
        };
        Client::new(self.api.clone(), User::authenticated(user, "", groups), manager)
    }

    /// Lets requests for logs of Pods on simulated nodes be answered by these. They can be named once.
    pub(crate) fn simulate(&self, nodes: Weak<dyn super::Simulated>) {
        let _ = self.api.simulated.set(nodes);
    }

    /// The store that is served.
    pub fn store(&self) -> &Arc<Store> {
        &self.api.reader.store
    }

    /// Stops: accepts nothing more, ends watches, lets other requests finish (within [`Limits::drain`]), closes the
    /// store.
    pub async fn stop(mut self) {
        self.stopper.stop();
        while self.tasks.join_next().await.is_some() {}
        let drain = self.api.limits.drain;
        if tokio::time::timeout(drain, self.drained.recv()).await.is_err() {
            tracing::warn!(
                seconds = drain.as_secs(),
                "requests were cut off that did not finish in time"
            );
        }
        if let Some(audit) = self.api.audit.clone() {
            let _ = tokio::task::spawn_blocking(move || audit.close()).await;
        }
    }
}

/// Opening reads and checks files: not for the threads that serve.
async fn open_store(directory: &Path, options: Options, archiver: KindArchiver) -> Result<Arc<Store>, StartError> {
    let path = directory.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let disk = RealDisk::create(&path).map_err(|source| OpenError::Io {
            action: "create",
            file: path.display().to_string(),
            source,
        })?;
        let store = Store::open(Arc::new(disk), options, Arc::new(archiver))?;
        store.prove_sealed()?;
        Ok::<_, OpenError>(store)
    });
    match opened.await {
        Ok(opened) => Ok(opened?),
        Err(error) => Err(StartError::Bootstrap(error.to_string())),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|source| StartError::Listen { address, source })
}

/// Descriptors bound how many connections there can be: takes what the system allows without asking. Gives how many
/// that is; `None` for no limit.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
    getrlimit(Resource::Nofile).current
}

/// Connections of clients and to backends that fit into so many descriptors: of what the server does not need itself, a quarter
/// at most is for backends. Without it, a flood of them would leave none for the store's files, and nothing could be
/// written.
fn connections_max(descriptors: Option<u64>, backends: usize) -> (usize, usize) {
    let own = |descriptors: u64| (descriptors / 4).clamp(32, 512);
    let left = descriptors.map_or(u64::MAX, |descriptors| descriptors.saturating_sub(own(descriptors)));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let backends = backends.min(left / 4).max(1);
    ((left - left.min(backends)).max(1), backends)
}

/// Looks each second whether the file that says who is believed has changed.
async fn follow(api: Arc<Api>, mut follower: Follower) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = api.reader.stopping.stopped() => return,
            _ = ticks.tick() => {
                let asked = api.clone();
                // A file system may take its time.
                let looked = tokio::task::spawn_blocking(move || {
                    let recorder = asked.metrics.recorder();
                    ::metrics::with_local_recorder(&recorder, || follower.look(&asked.authenticator));
                    follower
                });
                let Ok(back) = looked.await else { return };
                follower = back;
            }
        }
    }
}

async fn upkeep(api: Arc<Api>) {
    let mut ticks = tokio::time::interval(metrics::UPKEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = api.reader.stopping.stopped() => return,
            _ = ticks.tick() => {
                api.metrics.upkeep();
                api.fairness.upkeep();
                api.reader.notice.give(api.reader.store.overstayed());
                let store = api.reader.store.clone();
                // A file system may take its time.
                let _ = tokio::task::spawn_blocking(move || store.check_in_place()).await;
            }
        }
    }
}

impl From<OpenFilesError> for StartError {
    fn from(error: OpenFilesError) -> Self {
        match error {
            OpenFilesError::Tokens(error) => StartError::File {
                what: "token file",
                path: error.path,
                reason: error.reason,
            },
            OpenFilesError::File(error) => error.into(),
            OpenFilesError::Flags(error) => error.into(),
        }
    }
}

impl From<PkiError> for StartError {
    fn from(error: PkiError) -> Self {
        StartError::File {
            what: error.what,
            path: error.path,
            reason: error.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::connections_max;

    #[test]
    fn descriptors_are_enough_for_clients_backends_and_the_stores_files() {
        for descriptors in [64, 256, 1024, 4096, 1 << 20] {
            let (connections, backends) = connections_max(Some(descriptors), 16_384);
            let left = descriptors as usize - connections - backends;
            assert!(left >= 32, "{left} of {descriptors}");
            assert!(
                connections > backends && backends > 0,
                "{connections} and {backends} of {descriptors}"
            );
        }
        assert_eq!(connections_max(None, 16_384).1, 16_384);
    }
}
