//! Certificates are made anew before they end, and read again when their files change, while the server runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::Stopping;
use super::proxy::Own;
use crate::auth::{Pki, PkiError};

/// How often files of an operator's are looked at, and this server's own certificates.
const LOOK: Duration = Duration::from_secs(10);
const OWN: Duration = Duration::from_mins(1);

/// What is renewed.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) data_dir: PathBuf,
    pub(super) address: SocketAddr,
    /// Names of the server's own certificate besides those that it has anyhow.
    pub(super) names: Vec<String>,
    /// Whether an operator gave the certificate that is shown.
    pub(super) is_external: bool,
    pub(super) own: Own,
    /// The authority that the server was started with, PEM.
    pub(super) authority: String,
}

impl Renewal {
    /// Makes own certificates anew that end soon or are gone, and reads all files again. Reads and writes files.
    ///
    /// # Errors
    /// The first file that cannot be used; what it was for stays as it is.
    pub(super) fn renew(&self) -> Result<(), PkiError> {
        let pki = Pki::open(&self.data_dir, self.address, &self.names, self.is_external)?;
        if pki.ca_pem != self.authority {
            tracing::warn!(
                "pki/ca.crt is another authority than this server was started with: start it again to take it up"
            );
            return Ok(());
        }
        let unusable = |reason| PkiError {
            what: "cannot use",
            path: self.data_dir.join("pki"),
            reason,
        };
        self.own.kubelet_client.renew(&pki.kubelet_client).map_err(unusable)?;
        self.own
            .front_proxy_client
            .renew(&pki.front_proxy_client)
            .map_err(unusable)?;
        self.own.serving.renew(&pki)
    }

    /// Renews until the server stops.
    pub(super) async fn run(self: Arc<Self>, stopping: Stopping) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stopping.stopped() => return,
                _ = ticks.tick() => {}
            }
            let is_time = renewed.elapsed() >= OWN;
            let renewal = self.clone();
            // Files: not for the threads that serve.
            let work = tokio::task::spawn_blocking(move || {
                (is_time || renewal.own.serving.is_outdated()).then(|| renewal.renew())
            });
            match work.await {
                Ok(None) => {}
                Ok(Some(Ok(()))) => renewed = Instant::now(),
                Ok(Some(Err(error))) => {
                    renewed = Instant::now();
                    tracing::warn!(%error, "certificates are not renewed");
                }
                Err(error) => tracing::error!(%error, "certificates are not renewed"),
            }
        }
    }
}
