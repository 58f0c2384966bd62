//! Guards against clients that do not read: of a connection's socket, and of one HTTP/2 stream among others.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::{Body, BodyError};

/// A socket whose writes fail once the peer has taken nothing for `patience`, so that a connection to a client that
/// does not read ends. Reads are left alone.
pub(super) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Runs while a write is waiting.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self {
            inner,
            patience,
            waiting: None,
        }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, result)
    }
}

tokio::task_local! {
    /// The HTTP/2 stream that the running task serves.
    static STREAM: Arc<StreamState>;
}

/// Shared by the task of one HTTP/2 stream and the body that it sends.
#[derive(Debug, Default)]
struct StreamState {
    /// Frames that were handed over so far.
    frames: AtomicU64,
    /// The last frame is still in hyper's hands: it waits for the client's window.
    waiting: AtomicBool,
}

/// Spawns the tasks of HTTP/2 streams, each under a watch: a stream that has data waiting and whose client takes none of
/// it for `patience` is dropped, which resets it and leaves the connection's other streams alone.
#[derive(Debug, Clone)]
pub(super) struct StreamExecutor {
    pub(super) patience: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let state = Arc::new(StreamState::default());
        let watched = Watched {
            future,
            state: state.clone(),
            patience: self.patience,
            stalled: None,
        };
        tokio::spawn(STREAM.scope(state, watched));
    }
}

pin_project! {
    struct Watched<F> {
        #[pin]
        future: F,
        state: Arc<StreamState>,
        patience: Duration,
        // The frame that waits, and until when.
        stalled: Option<(u64, Pin<Box<Sleep>>)>,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.future.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !this.state.waiting.load(Ordering::Relaxed) {
            *this.stalled = None;
            return Poll::Pending;
        }
        let frame = this.state.frames.load(Ordering::Relaxed);
        if this.stalled.as_ref().is_none_or(|(stalled, _)| *stalled != frame) {
            *this.stalled = Some((frame, Box::pin(sleep_until(Instant::now() + *this.patience))));
        }
        match this.stalled {
            Some((_, patience)) => patience.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

/// Largest frame handed to an HTTP/2 stream, bytes. What hyper holds of a stream whose client does not read is at most
/// two of them; slices that are larger are cut, which copies nothing.
const STREAM_FRAME_MAX: usize = 64 * 1024;

/// Bytes after which an HTTP/1.1 frame of a body that is made while it is sent takes no more slices: less than any chunk
/// that is followed by another, so that a frame holds one of them. hyper writes a frame's slices by one `writev`.
const FRAME_LEN_MAX: usize = 112 * 1024;
/// hyper gives a `writev` 64 slices; a chunk's head and end are two of them.
const FRAME_SLICES_MAX: usize = 62;

/// Whether the request that the running task serves came over HTTP/2.
pub(super) fn is_http2() -> bool {
    STREAM.try_with(|_| ()).is_ok()
}

/// Slices that are sent as one frame.
#[derive(Debug, Default)]
pub(super) struct Slices {
    first: Bytes,
    rest: VecDeque<Bytes>,
    len: usize,
}

impl Slices {
    fn push(&mut self, slice: Bytes) {
        if slice.is_empty() {
            return;
        }
        self.len += slice.len();
        if self.first.is_empty() {
            self.first = slice;
        } else {
            self.rest.push_back(slice);
        }
    }

    fn is_full(&self, len_max: usize) -> bool {
        self.len >= len_max || self.rest.len() + 1 >= FRAME_SLICES_MAX
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "{count} of {} bytes", self.len);
        self.len -= count;
        while count >= self.first.len() && !self.rest.is_empty() {
            count -= self.first.len();
            self.first = self.rest.pop_front().unwrap_or_default();
        }
        self.first.advance(count);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let all = std::iter::once(&self.first).chain(&self.rest);
        let filled = slices.iter_mut().zip(all.filter(|slice| !slice.is_empty()));
        filled.map(|(to, slice)| *to = IoSlice::new(slice)).count()
    }
}

/// A body as hyper takes it. HTTP/1.1: slices that are ready are sent together. HTTP/2: tells its stream's task when data
/// waits.
pub(super) struct Guarded {
    body: Body,
    stream: Option<Arc<StreamState>>,
    /// HTTP/2: what is left of a slice that was cut.
    rest: Bytes,
    /// HTTP/1.1: what came after slices that were sent first.
    held: Option<Result<Frame<Bytes>, BodyError>>,
}

impl Guarded {
    /// To be called in the task that serves the request.
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            stream: STREAM.try_with(Arc::clone).ok(),
            rest: Bytes::new(),
            held: None,
        }
    }

    /// As many slices as are ready.
    fn poll_slices(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        let mut slices = Slices::default();
        // What has a known length is there already: it takes no more memory when it is sent at once.
        let is_made = self.body.size_hint().exact().is_some();
        let len_max = if is_made { usize::MAX } else { FRAME_LEN_MAX };
        loop {
            let next = match self.held.take() {
                Some(held) => Poll::Ready(Some(held)),
                None => Pin::new(&mut self.body).poll_frame(cx),
            };
            let polled = match next {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        slices.push(data);
                        if !slices.is_full(len_max) && !self.body.is_end_stream() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(slices))));
                    }
                    Err(trailers) => Some(Ok(trailers)),
                },
                Poll::Ready(Some(Err(error))) => Some(Err(error)),
                // What is in hand goes first; the body is asked again after it.
                Poll::Ready(None) if slices.len == 0 => return Poll::Ready(None),
                Poll::Pending if slices.len == 0 => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => None,
            };
            if slices.len == 0 {
                return Poll::Ready(polled.map(|held| held.map(|trailers| trailers.map_data(|_| Slices::default()))));
            }
            self.held = polled;
            return Poll::Ready(Some(Ok(Frame::data(slices))));
        }
    }
}

impl HttpBody for Guarded {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        let this = &mut *self;
        let Some(stream) = &this.stream else {
            return this.poll_slices(cx);
        };
        stream.waiting.store(false, Ordering::Relaxed);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers.map_data(|_| Slices::default())))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let mut data = Slices::default();
        data.push(this.rest.split_to(this.rest.len().min(STREAM_FRAME_MAX)));
        stream.frames.fetch_add(1, Ordering::Relaxed);
        stream.waiting.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.held.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        match hint.exact() {
            Some(exact) => SizeHint::with_exact(exact + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn slices_that_are_ready_are_one_frame_and_bytes_stay_in_order() {
        let parts: Vec<Bytes> = (0..200_usize)
            .map(|n| Bytes::from(vec![n as u8; n % 7 * 1000]))
            .collect();
        let whole = parts.concat();
        let mut body = Guarded::new(Body::parts(parts));
        let mut sent = Vec::new();
        let mut frames = 0;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let mut data = frame.expect("intact").into_data().expect("data");
            frames += 1;
            // As a socket takes it that is full now and then.
            while data.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 5];
                let filled = data.chunks_vectored(&mut slices);
                let offered: Vec<u8> = slices[..filled]
                    .iter()
                    .flat_map(|slice| slice.iter().copied())
                    .collect();
                assert!(!offered.is_empty());
                let taken = offered.len().div_ceil(2);
                sent.extend_from_slice(&offered[..taken]);
                data.advance(taken);
            }
        }
        assert!(sent == whole);
        assert!((3..6).contains(&frames), "{frames}");
    }

    #[tokio::test]
    async fn a_fault_comes_after_the_bytes_before_it() {
        struct Breaks(u8);
        impl HttpBody for Breaks {
            type Data = Bytes;
            type Error = BodyError;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
                self.0 += 1;
                Poll::Ready(match self.0 {
                    1 | 2 => Some(Ok(Frame::data(Bytes::from_static(b"ab")))),
                    3 => Some(Err(BodyError::Stopping)),
                    _ => None,
                })
            }
        }
        let mut body = Guarded::new(Body::stream(Breaks(0)));
        let mut next = || std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).now_or_never();
        let first = next()
            .expect("ready")
            .expect("a frame")
            .expect("intact")
            .into_data()
            .expect("data");
        assert_eq!(first.remaining(), 4);
        assert!(matches!(next(), Some(Some(Err(BodyError::Stopping)))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_nothing_fails_its_writer() {
        use tokio::io::AsyncWriteExt as _;
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours, Duration::from_mins(1));
        let begun = Instant::now();
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_dropped_when_a_handed_frame_waits_and_lives_while_nothing_waits() {
        let stream = |hands: bool| {
            let state = Arc::new(StreamState::default());
            let inner = state.clone();
            let future = std::future::poll_fn(move |_| {
                inner.waiting.store(hands, Ordering::Relaxed);
                Poll::<()>::Pending
            });
            Watched {
                future,
                state,
                patience: Duration::from_mins(1),
                stalled: None,
            }
        };
        let begun = Instant::now();
        stream(true).await;
        assert_eq!(begun.elapsed().as_secs(), 60);
        let idle = tokio::time::timeout(Duration::from_mins(10), stream(false)).await;
        assert!(idle.is_err());
    }
}
