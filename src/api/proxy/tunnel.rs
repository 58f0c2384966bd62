//! Connections that were upgraded: bytes both ways until one side is done, and what ends them otherwise.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout};

use super::websocket::{self, Piece};

/// Bytes that are held of one direction.
const BUFFER_LEN: usize = 8 * 1024;

/// How long a side may go on when the other has ended: what is still on its way.
const AFTERGLOW: Duration = Duration::from_secs(30);

/// Bytes that went through a connection, both ways: what tells that it is not idle.
#[derive(Debug, Default)]
pub(super) struct Moved(AtomicU64);

impl Moved {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// A side was done.
    Done,
    /// A side broke off.
    Broken,
    /// Nothing was said for too long.
    Idle,
    /// The server stops.
    Stopping,
}

impl End {
    /// For figures.
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Done => "done",
            End::Broken => "broken",
            End::Idle => "idle",
            End::Stopping => "stopping",
        }
    }
}

/// Runs `work`, which tells `moved` of the bytes that it moves, until it is done, nothing moved for `idle`, or `stopped`.
pub(super) async fn hold(
    moved: &Moved,
    idle: Duration,
    stopped: impl Future<Output = ()>,
    work: impl Future<Output = io::Result<()>>,
) -> End {
    let (mut work, mut stopped) = (pin!(work), pin!(stopped));
    let (mut seen, mut since) = (moved.get(), Instant::now());
    loop {
        tokio::select! {
            ended = &mut work => return match ended {
                Ok(()) => End::Done,
                Err(error) => {
                    tracing::debug!(%error, "an upgraded connection broke off");
                    End::Broken
                }
            },
            () = &mut stopped => return End::Stopping,
            () = sleep(idle / 8) => {
                let now = moved.get();
                if now != seen {
                    (seen, since) = (now, Instant::now());
                } else if since.elapsed() >= idle {
                    return End::Idle;
                }
            }
        }
    }
}

/// Moves bytes until `from` ends, and tells `to` of the end.
async fn pump<R, W>(mut from: R, mut to: W, moved: &Moved) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        moved.add(count);
    }
}

/// The first of two directions to end well leaves the other a little time.
async fn both(
    one: impl Future<Output = io::Result<()>>,
    other: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    tokio::select! {
        ended = &mut one => {
            ended?;
            timeout(AFTERGLOW, other).await.unwrap_or(Ok(()))
        }
        ended = &mut other => {
            ended?;
            timeout(AFTERGLOW, one).await.unwrap_or(Ok(()))
        }
    }
}

/// Bytes as they are, both ways. An end of one direction is passed on; the other may go on for half a minute.
pub(super) async fn bytes<C, B>(client: C, backend: B, moved: &Moved) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (backend_read, backend_write) = tokio::io::split(backend);
    both(
        pump(client_read, backend_write, moved),
        pump(backend_read, client_write, moved),
    )
    .await
}

/// What a client sends in WebSocket messages goes to the backend as bytes, and what the backend sends comes in messages: how
/// kubectl port-forward speaks SPDY from 1.31 on (KEP-4006).
pub(super) async fn in_messages<C, B>(client: C, backend: B, moved: &Moved) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (mut backend_read, mut backend_write) = tokio::io::split(backend);
    let mut reader = websocket::Reader::new(client_read);
    let writer = websocket::Writer::new(client_write);
    let there = async {
        while let Some(piece) = reader.next().await? {
            match piece {
                Piece::Data(_, bytes) => {
                    backend_write.write_all(&bytes).await?;
                    backend_write.flush().await?;
                    moved.add(bytes.len());
                }
                // A ping keeps nothing alive: kubectl sends them as long as it runs.
                Piece::Ping(payload) => writer.pong(&payload).await?,
                Piece::Close => break,
            }
        }
        backend_write.shutdown().await
    };
    let back = async {
        let mut buffer = vec![0; BUFFER_LEN];
        loop {
            let count = backend_read.read(&mut buffer).await?;
            if count == 0 {
                writer.close(websocket::NORMAL).await?;
                return Ok(());
            }
            writer.message(&[], &buffer[..count]).await?;
            moved.add(count);
        }
    };
    both(there, back).await?;
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const IDLE: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn an_end_of_one_direction_is_passed_on_and_the_other_goes_on_for_a_while() {
        let (mut client, ours) = tokio::io::duplex(64);
        let (backend, mut kubelet) = tokio::io::duplex(64);
        let tunnel = tokio::spawn(async move {
            let moved = Moved::default();
            hold(&moved, IDLE, pending(), bytes(ours, backend, &moved)).await
        });
        client.write_all(b"the whole of it").await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        kubelet.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"the whole of it");
        kubelet.write_all(b"and the answer").await.unwrap();
        let mut answer = [0; 14];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"and the answer");
        // The kubelet never ends its own direction.
        assert_eq!(tunnel.await.unwrap(), End::Done);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_without_bytes_ends_and_one_with_some_does_not() {
        let (mut client, ours) = tokio::io::duplex(64);
        let (backend, _kubelet) = tokio::io::duplex(64);
        let begun = Instant::now();
        let tunnel = tokio::spawn(async move {
            let moved = Moved::default();
            hold(&moved, IDLE, pending(), bytes(ours, backend, &moved)).await
        });
        sleep(IDLE / 2).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(tunnel.await.unwrap(), End::Idle);
        let lasted = begun.elapsed();
        assert!(lasted >= IDLE * 3 / 2 && lasted < IDLE * 2, "{lasted:?}");
    }

    #[tokio::test]
    async fn a_tunnel_ends_with_the_server() {
        let moved = Moved::default();
        assert_eq!(hold(&moved, IDLE, ready(()), pending()).await, End::Stopping);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_read_holds_up_the_other_with_a_bounded_number_of_bytes() {
        let (mut client, ours) = tokio::io::duplex(1024);
        let (backend, kubelet) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let moved = Moved::default();
            hold(&moved, IDLE, pending(), bytes(ours, backend, &moved)).await
        });
        let mut sent = 0;
        while let Ok(count) = timeout(Duration::from_secs(5), client.write(&[0; 512])).await {
            sent += count.unwrap();
        }
        assert!(sent <= 2 * 1024 + BUFFER_LEN, "{sent} bytes wait");
        drop(kubelet);
    }
}
