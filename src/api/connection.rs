//! Connections: accepting, TLS, HTTP/1.1 and HTTP/2, limits, and their end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig as TlsConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Api;
use super::router::{self, Peer};
use super::stopping::Stopping;
use super::stream::{Patient, StreamExecutor};
use crate::auth::{ClientCertificates, Pki};

/// Bounds on what a client can hold of the server. Each is there so that no client, however slow or hostile, can take
/// memory, a descriptor or a task for ever.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time, over all listeners; more wait in the kernel's queue.
    pub connections: usize,
    /// For a TLS handshake to complete.
    pub handshake: Duration,
    /// For a request's head to arrive, also on an idle HTTP/1.1 connection.
    pub head: Duration,
    /// For a request's body to arrive whole.
    pub body: Duration,
    /// How long a body above 32 KiB may take for nothing; then 64 KiB have to have come for each second more.
    pub body_grace: Duration,
    /// How long data may wait for a client that takes none of it.
    pub patience: Duration,
    /// For requests in flight to finish when the server stops.
    pub drain: Duration,
    /// Size of a request's head, bytes.
    pub head_bytes: u32,
    /// Concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// Reads that are worked on at a time. Of this and of all below a user alone gets half, and those who belong to
    /// `system:masters` are not counted unless it is said.
    pub requests_inflight: usize,
    /// Writes that are worked on at a time; the same number for those of `system:masters`, together.
    pub mutating_inflight: usize,
    /// Bodies above 32 KiB (each may hold 3 MiB) that are read or worked on at a time, those of `system:masters` included.
    pub large_bodies: usize,
    /// Answers at a time that are made while the client reads them.
    pub answers: usize,
    /// Watches.
    pub watches: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32_768,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            body: Duration::from_mins(1),
            body_grace: Duration::from_secs(5),
            patience: Duration::from_mins(1),
            drain: Duration::from_secs(10),
            head_bytes: 64 * 1024,
            streams: 250,
            requests_inflight: 400,
            mutating_inflight: 200,
            large_bodies: 128,
            answers: 1024,
            watches: 32_768,
        }
    }
}

/// What accept loops share.
pub(super) struct Shared {
    pub api: Arc<Api>,
    pub certificates: ClientCertificates,
    pub limits: Limits,
    pub connections: Arc<Semaphore>,
    /// Every connection holds a clone; when all are gone, the server has drained.
    pub alive: mpsc::Sender<()>,
}

/// How connections of a listener are read.
pub(super) enum Transport {
    Tls(TlsAcceptor),
    Plain,
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, client certificates asked for but not required.
pub(super) fn tls(pki: &Pki) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ClientCertificates::new(pki.ca.clone())?;
    let mut config = TlsConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(pki.chain.clone(), pki.key.clone_key())
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until the server stops.
pub(super) async fn accept(listener: TcpListener, transport: Transport, shared: Arc<Shared>) {
    let stopping = shared.api.reader.stopping.clone();
    let transport = Arc::new(transport);
    loop {
        let permit = tokio::select! {
            biased;
            () = stopping.stopped() => return,
            permit = shared.connections.clone().acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            biased;
            () = stopping.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        let (Ok(permit), (socket, address)) = (
            permit,
            match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or the peer was gone already: neither ends the server.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        ) else {
            return;
        };
        let (transport, shared) = (transport.clone(), shared.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let _alive = shared.alive.clone();
            connection(socket, address, &transport, &shared).await;
        });
    }
}

async fn connection(socket: TcpStream, address: SocketAddr, transport: &Transport, shared: &Shared) {
    let _ = socket.set_nodelay(true);
    let socket = Patient::new(socket, shared.limits.patience);
    match transport {
        Transport::Plain => {
            let peer = Arc::new(Peer {
                address,
                certificate: None,
            });
            serve(socket, builder(&shared.limits), peer, &shared.api).await;
        }
        Transport::Tls(acceptor) => {
            let stopping = shared.api.reader.stopping.clone();
            let handshake = tokio::select! {
                () = stopping.stopped() => return,
                handshake = timeout(shared.limits.handshake, acceptor.accept(socket)) => handshake,
            };
            let stream = match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
            };
            let tls = stream.get_ref().1;
            let certificate = tls.peer_certificates().map(|chain| {
                shared.certificates.user(chain).map(Arc::new).map_err(|reason| {
                    tracing::debug!(%address, reason, "client certificate refused");
                })
            });
            let builder = match tls.alpn_protocol() {
                Some(b"h2") => builder(&shared.limits).http2_only(),
                _ => builder(&shared.limits).http1_only(),
            };
            serve(stream, builder, Arc::new(Peer { address, certificate }), &shared.api).await;
        }
    }
}

/// How HTTP is spoken: either version, told apart by the first bytes.
pub(super) fn builder(limits: &Limits) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor {
        patience: limits.patience,
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(limits.head_bytes)
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Serves one connection until it ends.
pub(super) async fn serve<S>(stream: S, builder: Builder<StreamExecutor>, peer: Arc<Peer>, api: &Arc<Api>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let api = api.clone();
    let stopping: Stopping = api.reader.stopping.clone();
    let service = hyper::service::service_fn(move |request| router::answer(api.clone(), peer.clone(), request));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stopping.stopped() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        if is_of_a_mapped_page(&*error) {
            tracing::error!(
                "a mapped file cannot be read (EFAULT while an answer was sent): the disk failed, or another program \
                 shortened the file; what to do: run 'flatkube store verify' on a copy of the data directory"
            );
        }
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether the kernel found a page of a slice that was to be sent unreadable. Where our own code touches such a page, the
/// process ends ([`explain_bus_errors`](crate::store::explain_bus_errors)); here the answer breaks off, which is enough
/// for who asked, but must not be silent.
fn is_of_a_mapped_page(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.raw_os_error() == Some(rustix::io::Errno::FAULT.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_what_was_to_be_sent_is_told_from_other_ends_of_a_connection() {
        #[derive(Debug, thiserror::Error)]
        #[error("while sending")]
        struct Outer(#[source] std::io::Error);
        let of = |errno: rustix::io::Errno| Outer(errno.into());
        assert!(is_of_a_mapped_page(&of(rustix::io::Errno::FAULT)));
        assert!(!is_of_a_mapped_page(&of(rustix::io::Errno::PIPE)));
        assert!(!is_of_a_mapped_page(&std::fmt::Error));
    }
}
