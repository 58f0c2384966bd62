//! Ends answers whose client takes nothing: data has waited for a minute and none of it went out.
//!
//! hyper asks a body for more only when it could send what it has, so a body cannot notice this itself. Two guards stand
//! around it:
//!
//! * [`StallGuard`] around the socket: a write that stays pending for a minute fails, and with it the connection. This is
//!   all that HTTP/1.1 needs; on HTTP/2 it notices a client that reads nothing at all.
//! * [`Bodies`], one a connection: an HTTP/2 client may keep its connection alive and starve a single stream. A body that
//!   gave out data a minute ago and was not asked for more since is stalled; the server then drops the connection.
//!
//! Both make the client see an error, never a clean end of a part of an answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::api::body::BodyError;

/// How long data may wait for a client that takes none of it.
pub const STALL_MAX: Duration = Duration::from_secs(60);

/// A socket whose writes fail with `TimedOut` once they have been pending for [`STALL_MAX`] without any progress.
#[derive(Debug)]
pub struct StallGuard<S> {
    socket: S,
    /// Set at the first pending write, kept for later ones; `waiting` says whether it counts.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<S> StallGuard<S> {
    /// Guards the writes of `socket`.
    pub fn new(socket: S) -> Self {
        Self {
            socket,
            timer: None,
            waiting: false,
        }
    }

    fn judge<T>(&mut self, outcome: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = false;
            return outcome;
        }
        let deadline = Instant::now() + STALL_MAX;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(deadline);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.judge(outcome, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.judge(outcome, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_flush(cx);
        self.judge(outcome, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.judge(outcome, cx)
    }
}

/// The long answers that one connection carries at present.
#[derive(Debug, Default)]
pub struct Bodies {
    /// At most one entry a stream; entries of finished bodies are swept when one is added.
    open: Mutex<Vec<Weak<Progress>>>,
}

impl Bodies {
    /// Resolves when a body of this connection has been stalled for [`STALL_MAX`] (up to half of that later). Never, for a
    /// connection whose clients read. Cancel-safe.
    pub async fn stalled(&self) {
        loop {
            tokio::time::sleep(STALL_MAX / 2).await;
            let now_ms = now_ms();
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if open
                .iter()
                .filter_map(Weak::upgrade)
                .any(|body| body.is_stalled(now_ms))
            {
                return;
            }
        }
    }

    fn add(&self) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|body| body.strong_count() > 0);
        open.push(Arc::downgrade(&progress));
        progress
    }
}

/// When a body last gave out data that it was not yet asked to follow up.
#[derive(Debug, Default)]
struct Progress {
    /// Milliseconds of [`now_ms`]; 0 = the body is being asked, or has nothing to give: its turn, not the client's.
    given_ms: AtomicU64,
}

impl Progress {
    fn is_stalled(&self, now_ms: u64) -> bool {
        let given_ms = self.given_ms.load(Ordering::Relaxed);
        given_ms != 0 && now_ms.saturating_sub(given_ms) >= STALL_MAX.as_millis() as u64
    }
}

/// Milliseconds since the first call, from 1 on.
fn now_ms() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// A body that keeps account of whether it is asked for more.
pub(super) struct Tracked<B> {
    body: B,
    progress: Option<Arc<Progress>>,
}

impl<B> Tracked<B> {
    pub(super) fn new(body: B, connection: Option<&Bodies>) -> Self {
        Self {
            body,
            progress: connection.map(Bodies::add),
        }
    }
}

impl<B> http_body::Body for Tracked<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(progress) = &self.progress {
            let given_ms = if frame.is_ready() { now_ms() } else { 0 };
            progress.given_ms.store(given_ms, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_makes_no_progress_for_a_minute_fails() {
        let (near, _far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near);
        let start = Instant::now();
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), STALL_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_little_now_and_then_is_served_to_the_end() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near);
        let reading = async {
            let mut taken = [0; 16];
            for _ in 0..4 {
                tokio::time::advance(STALL_MAX - Duration::from_secs(1)).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(guarded.write_all(&[7; 64]), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_asked_for_more_is_stalled_but_an_idle_one_is_not() {
        let bodies = Bodies::default();
        let data = || http_body_util::Full::new(Bytes::from_static(b"x")).map_err(|never| match never {});
        let mut taken = Tracked::new(data(), Some(&bodies));
        let patience = STALL_MAX * 3;
        assert!(tokio::time::timeout(patience, bodies.stalled()).await.is_err());
        taken.frame().await.unwrap().unwrap();
        assert!(tokio::time::timeout(patience, bodies.stalled()).await.is_ok());
        drop(taken);
        assert!(tokio::time::timeout(patience, bodies.stalled()).await.is_err());
    }
}
