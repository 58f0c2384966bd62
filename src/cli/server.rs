//! `flatkube server`: from flags to a running server, and from a signal to its clean end.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::fs::Access;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::auditing::Auditing;
use super::authentication::Authentication;
use super::kubelets::Kubelets;
use super::outbound::OutboundFlags;
use super::plugins::PluginFlags;
use super::privileges::become_user;
use super::tls::TlsFlags;
use super::tuning::Tuning;
use super::{Exit, Failure};
use crate::api::server::{self, Limits, Server, ServerConfig, StartError};
use crate::audit::AuditError;
use crate::controllers::{CLUSTER_CIDR, Controllers, Settings};
use crate::encryption::{Keyring, Upkeep};
use crate::hollow::{Hollow, NODES_MAX, Profile};
use crate::scalars::go_duration;
use crate::scheduler::Scheduler;
use crate::store::{self, OpenError, Options};

/// Where a server keeps its data unless told otherwise.
pub(super) const DATA_DIR: &str = "flatkube-data";

/// Arguments of `flatkube server`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Serves the Kubernetes API over TLS. At the first start a certificate authority, certificates and a \
        kubeconfig for the administrator are made in the data directory and kept from then on. SIGTERM and SIGINT \
        end the server cleanly: it stops accepting, ends watches, lets requests finish, syncs, and exits with 0.",
    after_long_help = "\
Examples:
  Keep everything under ./data, and use it:
      flatkube server --data-dir ./data
      export KUBECONFIG=./data/admin.kubeconfig

  Reachable from other machines, on the usual port:
      flatkube server --data-dir /var/lib/flatkube --bind 0.0.0.0:6443

  A throw-away server on a free port for one test run; the ready line names its kubeconfig:
      flatkube server --ephemeral --bind 127.0.0.1:0

  Plain HTTP for a proxy on this machine, with bearer tokens from a file (token,user,uid,\"group1,group2\"):
      flatkube server --http-bind 127.0.0.1:8080 --token-auth-file tokens.csv

Files in the data directory:
  admin.kubeconfig   how the administrator reaches this server (readable by its owner alone)
  pki/               the certificate authority, the server's certificate, their keys
  store/             log segments, shelves and the manifest; see 'flatkube store --help'

Exit status: 0 after a signal; the other codes stand in 'flatkube --help'."
)]
pub(super) struct Arguments {
    /// Where everything is kept; made if it is missing
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    data_dir: PathBuf,

    /// The address to serve TLS on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    bind: SocketAddr,

    /// Serve plain HTTP too, on this loopback address, with the same authentication
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = loopback)]
    http_bind: Option<SocketAddr>,

    /// Which resources are encrypted on the disk and by which keys: kube-apiserver's EncryptionConfiguration, with the providers
    /// aesgcm, secretbox, kms (v2) and identity
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,

    /// Read that file again when it changes; what other keys encrypted is then written anew
    #[arg(long, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,

    /// When a write is acknowledged: after it is synced to disk, or when the operating system has it
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    durability: Durability,

    /// The most bytes of history that are kept for watches and for reads of the past (such as 512MiB)
    #[arg(long, value_name = "N", default_value = "4GiB", value_parser = bytes)]
    history_bytes: u64,

    /// Whether the built-in controllers and the scheduler run
    #[arg(long, value_enum, default_value_t = Switch::On)]
    controllers: Switch,

    /// Give every node a range of addresses for its Pods (spec.podCIDR) out of --cluster-cidr
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    allocate_node_cidrs: bool,

    /// What nodes get their Pods' ranges of, a /24 each (IPv4) or a /64 (IPv6); one of each family behind a comma
    #[arg(long, value_name = "CIDR[,CIDR]", default_value = CLUSTER_CIDR, value_parser = cluster_cidr)]
    cluster_cidr: String,

    /// How long a node may be silent before it is unreachable: its Pods go, after their tolerationSeconds
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration)]
    node_monitor_grace_period: Duration,

    /// How many Pods that are over may stay before the oldest of them are deleted
    #[arg(long, value_name = "N", default_value_t = Settings::default().pods_over_max)]
    terminated_pod_gc_threshold: usize,

    /// How long Events are kept after they were written last
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    event_ttl: Duration,

    /// For whom large answers are compressed, of the clients that take gzip
    #[arg(long, value_enum, default_value_t = Compress::Remote)]
    compress: Compress,

    /// The most reads that are worked on at a time; a user alone gets half of them
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_inflight, value_parser = inflight)]
    max_requests_inflight: usize,

    /// The most writes that are worked on at a time; a user alone gets half of them
    #[arg(long, value_name = "N", default_value_t = Limits::default().mutating_inflight, value_parser = inflight)]
    max_mutating_requests_inflight: usize,

    #[command(flatten)]
    plugins: PluginFlags,

    /// Simulate so many nodes, hollow-00001 and on, whose Pods start, run and end without being there
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = hollow_nodes)]
    hollow_nodes: usize,

    /// What simulated nodes are like and how fast things happen on them, in YAML
    #[arg(long, value_name = "FILE", requires = "hollow_nodes")]
    hollow_profile: Option<PathBuf>,

    #[command(flatten)]
    kubelets: Kubelets,

    #[command(flatten)]
    tls: TlsFlags,

    #[command(flatten)]
    auditing: Auditing,

    #[command(flatten)]
    outbound: OutboundFlags,

    /// Become this user (NAME, NAME:GROUP or numbers) before anything is opened or listened on, where root starts the server; there is
    /// no way back. A data directory that is made now is given to it; files that flags name must be readable for it
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    #[command(flatten)]
    tuning: Tuning,

    /// Keep nothing: a temporary data directory that is removed at exit; implies --durability=os
    #[arg(long, conflicts_with = "data_dir")]
    ephemeral: bool,

    #[command(flatten)]
    authentication: Authentication,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// An acknowledged write is on disk
    Fsync,
    /// An acknowledged write survives the end of this process, but not of the machine
    Os,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    /// All of them: for a server behind a proxy or a tunnel on its own machine
    Always,
    /// Those on other machines
    Remote,
    /// None: where CPU is scarcer than the network
    Never,
}

impl From<Compress> for server::Compress {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Always => Self::Always,
            Compress::Remote => Self::Remote,
            Compress::Never => Self::Never,
        }
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "not an address with a port, such as 127.0.0.1:8080".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("plain HTTP is served on loopback addresses only; for others there is TLS (--bind)".to_owned())
    }
}

fn inflight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => {
            Err("0 would let no request in (kube-apiserver takes it for no limit, which is not to be had here)".into())
        }
        Ok(number @ 1..=100_000) => Ok(number),
        _ => Err("not a number from 1 to 100000".into()),
    }
}

fn cluster_cidr(text: &str) -> Result<String, String> {
    Settings::cluster_ranges(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanoseconds = go_duration::nanoseconds(text).ok();
    let read = nanoseconds.and_then(|nanoseconds| Duration::try_from_secs_f64(nanoseconds / 1e9).ok());
    read.filter(|read| !read.is_zero())
        .ok_or_else(|| "not a time such as 90s or 1h30m".to_owned())
}

fn settings(arguments: &Arguments) -> Settings {
    let ranges = Settings::cluster_ranges(&arguments.cluster_cidr).unwrap_or_default();
    Settings {
        node_monitor_grace: arguments.node_monitor_grace_period,
        cluster_ranges: if arguments.allocate_node_cidrs {
            ranges
        } else {
            Vec::new()
        },
        pods_over_max: arguments.terminated_pod_gc_threshold,
        event_ttl: arguments.event_ttl,
        ..Settings::default()
    }
}

fn hollow_nodes(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= NODES_MAX);
    number.ok_or_else(|| format!("not a number up to {NODES_MAX}"))
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>().map(|size| size.as_u64())
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Before there is a second thread.
    if let Some(user) = &arguments.user {
        become_user(user, (!arguments.ephemeral).then_some(&*arguments.data_dir))?;
    }
    arguments.outbound.rules().enforce();
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
    // Held until the end: dropping it removes the directory, whichever way the server ends.
    let temporary = if arguments.ephemeral {
        let folder = tempfile::Builder::new()
            .prefix("flatkube-")
            .tempdir()
            .map_err(|error| Failure::io("make a temporary directory in", &std::env::temp_dir(), &error))?;
        Some(folder)
    } else {
        None
    };
    let data_dir = temporary
        .as_ref()
        .map_or(arguments.data_dir.clone(), |folder| folder.path().to_path_buf());
    runtime.block_on(serve(arguments, data_dir, started))
}

async fn serve(arguments: &Arguments, data_dir: PathBuf, started: Instant) -> Result<(), Failure> {
    // Before anything is opened, so that a signal during the start ends in order too.
    let mut signals = Signals::new()?;
    let _file_size = survive_file_size_limit()?;
    writable(&data_dir)?;
    let durability = match arguments.durability {
        Durability::Fsync if !arguments.ephemeral => store::Durability::Fsync,
        _ => store::Durability::Os,
    };
    let is_lax = durability == store::Durability::Os && !arguments.ephemeral;
    let keyring = match &arguments.encryption_provider_config {
        None => None,
        Some(path) => Some(Keyring::read(path).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?),
    };
    let config = ServerConfig {
        data_dir: data_dir.clone(),
        bind: arguments.bind,
        http_bind: arguments.http_bind,
        authentication: arguments.authentication.options(),
        store: Options {
            durability,
            history_bytes: arguments.history_bytes,
            sealing: keyring.clone().map(|keyring| keyring as _),
            ..arguments.tuning.options()
        },
        controllers: arguments.controllers == Switch::On,
        plugins: arguments.plugins.plugins()?,
        compress: arguments.compress.into(),
        limits: Limits {
            requests_inflight: arguments.max_requests_inflight,
            mutating_inflight: arguments.max_mutating_requests_inflight,
            ..Limits::default()
        },
        kubelets: arguments.kubelets.access(),
        tls: arguments.tls.options(),
        audit: arguments.auditing.options(),
    };
    let profile = match &arguments.hollow_profile {
        None => Profile::default(),
        Some(path) => Profile::read(path).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?,
    };
    let server = Server::start(config).await.map_err(explain)?;
    let encryption = keyring.map(|keyring| {
        let upkeep = Upkeep {
            keyring,
            store: server.store().clone(),
            reload: arguments.encryption_provider_config_automatic_reload,
        };
        tokio::spawn(upkeep.run())
    });
    let is_on = arguments.controllers == Switch::On;
    let settings = settings(arguments);
    let controllers = if is_on {
        Controllers::start_with(&server, &settings)
    } else {
        Controllers::expiry(&server, &settings)
    };
    let scheduler = is_on.then(|| Scheduler::start(&server));
    let hollow = (arguments.hollow_nodes > 0).then(|| Hollow::start(&server, arguments.hollow_nodes, profile));
    if is_lax {
        tracing::warn!(
            "durability=os: a crash of this machine may lose the newest writes, and history starts anew after it"
        );
    }
    // Nobody may be reading; that is no reason to end.
    let _ = writeln!(io::stdout(), "{}", ready_line(&server, arguments, &data_dir, started));
    let name = signals.next().await;
    tracing::info!("{name}: stopping");
    if let Some(encryption) = encryption {
        encryption.abort();
    }
    tokio::select! {
        () = stop(server, controllers, scheduler, hollow) => tracing::info!("stopped"),
        name = signals.next() => {
            return Err(Failure::new(Exit::Failure, format!("{name} again: ended before everything was finished"))
                .advise("acknowledged writes are safe; the next start takes a little longer"));
        }
    }
    Ok(())
}

async fn stop(server: Server, controllers: Controllers, scheduler: Option<Scheduler>, hollow: Option<Hollow>) {
    server.stop().await;
    controllers.ended().await;
    if let Some(scheduler) = scheduler {
        scheduler.ended().await;
    }
    if let Some(hollow) = hollow {
        hollow.ended().await;
    }
}

/// A write beyond RLIMIT_FSIZE is an error of that write. Without a handler its signal ends the process without a word.
fn survive_file_size_limit() -> Result<Signal, Failure> {
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot handle SIGXFSZ: {error}")))
}

/// Makes the data directory, for its owner alone, and tells early and plainly when it may not be written.
fn writable(data_dir: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .map_err(|error| Failure::io("make the directory", data_dir, &error))?;
    rustix::fs::access(data_dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| Failure::io("write into", data_dir, &error.into()))
}

/// One line that a person can act on and a script can wait for: it begins with `flatkube ` and holds ` ready in `.
fn ready_line(server: &Server, arguments: &Arguments, data_dir: &Path, started: Instant) -> String {
    let plain = server
        .http_address()
        .map(|address| format!(" and http://{address}"))
        .unwrap_or_default();
    format!(
        "flatkube {} ready in {} ms on https://{}{plain}, data in {}{}, export KUBECONFIG={}",
        env!("CARGO_PKG_VERSION"),
        started.elapsed().as_millis(),
        server.address(),
        data_dir.display(),
        if arguments.ephemeral { " (removed at exit)" } else { "" },
        server.kubeconfig().display(),
    )
}

/// The signals that end a server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let failed = |error| Failure::new(Exit::Failure, format!("cannot wait for signals: {error}"));
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// What a person reads when the server does not start.
pub(super) fn explain(error: StartError) -> Failure {
    match error {
        StartError::Listen { address, source } => {
            let failure = Failure::new(Exit::of_io(&source), format!("cannot listen on {address}: {source}"));
            match failure.exit() {
                Exit::AddressInUse => failure.advise(
                    "another process listens there, perhaps another flatkube: end it, or take another port with \
                     --bind 127.0.0.1:PORT (port 0 takes a free one)",
                ),
                Exit::NotPermitted => failure.advise("ports below 1024 need rights; take another with --bind"),
                _ => failure.advise("name an address of this machine with --bind"),
            }
        }
        StartError::NotLoopback(_) | StartError::Flags(_) | StartError::Audit(AuditError::Policy(_)) => {
            Failure::new(Exit::Usage, error.to_string())
        }
        StartError::File { .. } | StartError::Bootstrap(_) | StartError::Audit(_) => {
            Failure::new(Exit::Failure, error.to_string())
        }
        StartError::Store(ref open) => {
            let exit = match open {
                OpenError::InUse { .. } => Exit::InUse,
                OpenError::NewerFormat { .. } => Exit::NewerFormat,
                OpenError::Damaged(_) => Exit::Damaged,
                OpenError::Sealed { .. } => Exit::Failure,
                OpenError::NoSpace { .. } => Exit::DiskFull,
                OpenError::ReadOnly { .. } => Exit::NotPermitted,
                OpenError::Io { source, .. } => Exit::of_io(source),
            };
            // The store's sentences end with what to do.
            let text = error.to_string();
            let (message, advice) = text.rsplit_once("; ").unwrap_or((&text, ""));
            let failure = Failure::new(exit, message);
            match exit {
                Exit::NotPermitted => failure.advise("run as the user who owns it, or take another --data-dir"),
                Exit::DiskFull => failure.advise("make room, or raise the limit, and start again; nothing was lost"),
                _ if advice.is_empty() => failure,
                _ => failure.advise(advice),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert_eq!(bytes("512 MiB"), Ok(512 << 20));
        bytes("many").expect_err("not a size");
    }

    #[test]
    fn loopback_is_v4_and_v6() {
        loopback("127.0.0.1:8080").expect("loopback");
        loopback("[::1]:8080").expect("loopback");
        loopback("192.168.1.1:8080").expect_err("not loopback");
        loopback("localhost").expect_err("no port");
    }
}
