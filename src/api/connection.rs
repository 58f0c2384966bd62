//! Connections: accepting, TLS, HTTP/1.1 and HTTP/2, limits, and their end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Api;
use super::peer::{Addresses, Clock, Peer, Place, Stay, Verdict};
use super::router;
use super::stopping::Stopping;
use super::stream::{Patient, StreamExecutor};
use crate::auth::ClientCertificates;

/// Bounds on what a client can hold of the server. Each is there so that no client, however slow or hostile, can take
/// memory, a descriptor or a task for ever.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time, over all listeners; more wait in the kernel's queue. The server takes fewer where the
    /// process may not have so many descriptors.
    pub connections: usize,
    /// The share of them that one address may have, in percent. Half: whoever stands behind one address, be it a proxy or
    /// the whole of a small cluster, has room, and no single machine keeps all others out.
    pub connections_per_address_percent: usize,
    /// For a TLS handshake to complete.
    pub handshake: Duration,
    /// For a request's head to arrive, also on an idle HTTP/1.1 connection.
    pub head: Duration,
    /// For a request's body to arrive whole.
    pub body: Duration,
    /// How long a body above 32 KiB may take for nothing; then 64 KiB have to have come for each second more.
    pub body_grace: Duration,
    /// For a client to take 64 KiB of the data that waits for it (or all of it).
    pub patience: Duration,
    /// How long a connection may have no request open (kube-apiserver's `IdleTimeout`; over HTTP/1.1 `head` ends it first).
    pub idle: Duration,
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
    /// Connections to backends (kubelets, Pods, other API servers) at a time, those for `system:masters` included; others have
    /// three quarters of them. The server makes fewer where the process may not have so many descriptors.
    pub backends: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 32_768,
            connections_per_address_percent: 50,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            body: Duration::from_mins(1),
            body_grace: Duration::from_secs(5),
            patience: Duration::from_mins(1),
            idle: Duration::from_secs(90),
            drain: Duration::from_secs(10),
            head_bytes: 64 * 1024,
            streams: 250,
            requests_inflight: 400,
            mutating_inflight: 200,
            large_bodies: 128,
            answers: 1024,
            watches: 32_768,
            backends: 16_384,
        }
    }
}

/// When fewer than one in so many connections are free, clients that ask nothing get a fraction of their time: the places
/// are for those that do.
const CROWDED_PART: usize = 4;
/// That fraction.
const CROWDED_HASTE: u32 = 8;

/// Bytes of request bodies that a client may send before the server has read what came first.
const REQUEST_WINDOW: u32 = 1024 * 1024;

/// What accept loops share.
pub(super) struct Shared {
    pub api: Arc<Api>,
    pub certificates: Arc<ClientCertificates>,
    pub limits: Limits,
    pub crowd: Crowd,
    pub addresses: Arc<Addresses>,
    /// Every connection holds a clone; when all are gone, the server has drained.
    pub alive: mpsc::Sender<()>,
}

impl Shared {
    /// `alive` is cloned for every connection.
    pub(super) fn new(
        api: Arc<Api>,
        certificates: Arc<ClientCertificates>,
        limits: Limits,
        alive: mpsc::Sender<()>,
    ) -> Arc<Self> {
        let share = limits.connections * limits.connections_per_address_percent / 100;
        Arc::new(Self {
            api,
            certificates,
            crowd: Crowd::new(limits.connections),
            addresses: Arc::new(Addresses::new(share.max(1))),
            limits,
            alive,
        })
    }
}

/// How many places for connections are taken.
#[derive(Debug)]
pub(super) struct Crowd {
    free: Arc<Semaphore>,
    places: usize,
}

impl Crowd {
    pub(super) fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            places,
        }
    }

    /// `duration`, or a fraction of it while few connections are free.
    fn hurried(&self, duration: Duration) -> Duration {
        if self.free.available_permits() < self.places / CROWDED_PART {
            duration / CROWDED_HASTE
        } else {
            duration
        }
    }
}

/// How connections of a listener are read.
pub(super) enum Transport {
    Tls(TlsAcceptor),
    Plain,
}

/// Accepts until the server stops.
pub(super) async fn accept(listener: TcpListener, transport: Transport, shared: Arc<Shared>) {
    let stopping = shared.api.reader.stopping.clone();
    let transport = Arc::new(transport);
    loop {
        let permit = tokio::select! {
            biased;
            () = stopping.stopped() => return,
            permit = shared.crowd.free.clone().acquire_owned() => permit,
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
        let Some(counted) = shared.addresses.count(address.ip()) else {
            metrics::counter!("flatkube_connections_refused_total").increment(1);
            continue;
        };
        let (transport, shared) = (transport.clone(), shared.clone());
        let place = Place {
            _permit: permit,
            _counted: counted,
            _alive: shared.alive.clone(),
        };
        tokio::spawn(async move { connection(socket, address, place, &transport, &shared).await });
    }
}

async fn connection(socket: TcpStream, address: SocketAddr, place: Place, transport: &Transport, shared: &Shared) {
    let _ = socket.set_nodelay(true);
    let socket = Patient::new(socket, shared.limits.patience);
    let upgraded = socket.upgraded();
    match transport {
        Transport::Plain => {
            let peer = Arc::new(Peer::new(address, None).holding(place, upgraded, false));
            serve(
                socket,
                builder(&shared.limits, &shared.crowd),
                peer,
                &shared.api,
                &shared.crowd,
            )
            .await;
        }
        Transport::Tls(acceptor) => {
            let stopping = shared.api.reader.stopping.clone();
            let handshake = tokio::select! {
                () = stopping.stopped() => return,
                handshake = timeout(shared.crowd.hurried(shared.limits.handshake), acceptor.accept(socket)) => handshake,
            };
            let stream = match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
            };
            let tls = stream.get_ref().1;
            let certificate = tls.peer_certificates().map(|chain| shared.certificates.present(chain));
            let builder = match tls.alpn_protocol() {
                Some(b"h2") => builder(&shared.limits, &shared.crowd).http2_only(),
                _ => builder(&shared.limits, &shared.crowd).http1_only(),
            };
            let peer = Arc::new(Peer::new(address, certificate).holding(place, upgraded, true));
            serve(stream, builder, peer, &shared.api, &shared.crowd).await;
        }
    }
}

/// How HTTP is spoken: either version, told apart by the first bytes.
pub(super) fn builder(limits: &Limits, crowd: &Crowd) -> Builder<StreamExecutor> {
    let mut builder = Builder::new(StreamExecutor {
        patience: limits.patience,
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(crowd.hurried(limits.head))
        .max_buf_size(limits.head_bytes as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        // h2 takes at most a quarter more CONTINUATION frames than a list of this size needs, ends a connection whose
        // list grows to four times as much, and answers 431 in between.
        .max_header_list_size(limits.head_bytes)
        .max_concurrent_streams(limits.streams)
        // Rapid reset (CVE-2023-44487): streams that were reset before hyper took them from h2. A stream that it did take
        // ends with its task, and its request is dropped with it. h2's default, said here because it is relied on.
        .max_pending_accept_reset_streams(20)
        // Streams that h2 itself resets for what the client did wrong (CVE-2025-8671), in a connection's life: its default
        // is 1,024; no client of ours makes one.
        .max_local_error_reset_streams(100)
        // What a client may send of bodies before they are read. Bodies have 3 MiB at most, and one that is not read
        // holds no more than its stream's window. Also the defaults of hyper: 1 MiB for a connection's streams together.
        .initial_stream_window_size(REQUEST_WINDOW)
        .initial_connection_window_size(REQUEST_WINDOW)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Serves one connection until it ends.
pub(super) async fn serve<S>(
    stream: S,
    builder: Builder<StreamExecutor>,
    peer: Arc<Peer>,
    api: &Arc<Api>,
    crowd: &Crowd,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stopping: Stopping = api.reader.stopping.clone();
    let (asked, answers) = (peer.clone(), api.clone());
    let service = hyper::service::service_fn(move |request| router::answer(answers.clone(), asked.clone(), request));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let limits = &api.limits;
    let mut clock = Clock::new(Instant::now());
    let mut is_ending = false;
    let ended = loop {
        // Often enough that nothing lasts half as long again as it may.
        let shortest = limits.patience.min(crowd.hurried(limits.head.min(limits.idle)));
        let look = sleep(shortest / 2);
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            () = stopping.stopped(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = look => {
                let stay = Stay {
                    first: crowd.hurried(limits.head),
                    idle: crowd.hurried(limits.idle),
                    patience: limits.patience,
                };
                match clock.look(&peer, stay, Instant::now()) {
                    Verdict::Keep => {}
                    Verdict::Dismiss => connection.as_mut().graceful_shutdown(),
                    Verdict::End(why) => {
                        metrics::counter!("flatkube_connections_ended_total", "reason" => why).increment(1);
                        return tracing::debug!(address = %peer.address, why, "connection ended");
                    }
                }
            }
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
