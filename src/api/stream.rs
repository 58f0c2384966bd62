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
use super::peer::{LastFrame, Open};
use super::proxy;
use super::read::{Begun, Notice, overstayed};

/// Bytes that a client must take of what waits for it within its patience: a client that takes one byte a second, and so
/// never nothing, would hold a connection, what waits for it, and the files behind that for days.
pub(super) const TAKEN_MIN: usize = 64 * 1024;

/// Reads of a connection, of some 8 KiB each, after which other tasks get their turn. (The runtime's own bound is 128: that
/// is 100,000 of the smallest frames.)
const READS_PER_TURN: u8 = 8;

/// A socket whose writes fail once data has waited for `patience` and the peer took less than [`TAKEN_MIN`] of it, so that a
/// connection to a client that does not read ends. And one that is read in turns: a client that always has more to say, in
/// frames of a few bytes that each want an answer, does not keep a thread from others.
pub(super) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Whether the connection was upgraded: then it is a person's terminal, which may stand still for hours and holds little.
    upgraded: Arc<AtomicBool>,
    /// Reads that were answered since the last one that was not.
    reads: u8,
    /// From a write that did not go out whole until everything is flushed.
    waiting: Option<Box<Waiting>>,
}

struct Waiting {
    until: Pin<Box<Sleep>>,
    /// Bytes that were taken since it runs.
    taken: usize,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, patience: Duration) -> Self {
        Self {
            inner,
            patience,
            upgraded: Arc::default(),
            reads: 0,
            waiting: None,
        }
    }

    /// What tells it that the connection was upgraded.
    pub(super) fn upgraded(&self) -> Arc<AtomicBool> {
        self.upgraded.clone()
    }

    fn patience(&self) -> Duration {
        if self.upgraded.load(Ordering::Relaxed) {
            proxy::IDLE
        } else {
            self.patience
        }
    }

    /// Judges a write.
    fn judge(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let patience = self.patience();
        match result {
            Poll::Ready(Ok(count)) => {
                if let Some(waiting) = &mut self.waiting {
                    waiting.taken += count;
                    if waiting.taken >= TAKEN_MIN {
                        waiting.taken = 0;
                        waiting.until.as_mut().reset(Instant::now() + patience);
                    }
                }
                result
            }
            Poll::Ready(Err(_)) => result,
            Poll::Pending => self.wait(cx),
        }
    }

    /// The peer's turn: pending, or an error once it has had its time.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.patience();
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::new(Waiting {
                until: Box::pin(sleep_until(Instant::now() + patience)),
                taken: 0,
            })
        });
        ready!(waiting.until.as_mut().poll(cx));
        metrics::counter!("flatkube_slow_clients_ended_total", "at" => "connection").increment(1);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }

    /// Judges a flush: when it is done, nothing waits.
    fn judge_flush(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        self.wait(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.reads == READS_PER_TURN {
            self.reads = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.reads = if result.is_ready() { self.reads + 1 } else { 0 };
        result
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
        self.judge_flush(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge_flush(cx, result)
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
        if let Some((_, patience)) = this.stalled {
            ready!(patience.as_mut().poll(cx));
            metrics::counter!("flatkube_slow_clients_ended_total", "at" => "stream").increment(1);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Largest frame handed to an HTTP/2 stream, bytes. What hyper holds of a stream whose client does not read is at most
/// two of them; slices that are larger are cut, which copies nothing.
const STREAM_FRAME_MAX: usize = 64 * 1024;
/// Largest slice that is handed to an HTTP/1.1 connection at one go, bytes. While it waits the body is not asked, so it is
/// not told either that the files behind it must be given back.
const HTTP1_SLICE_MAX: usize = 1024 * 1024;

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
    /// HTTP/2: this is the end of an answer.
    last: Option<LastFrame>,
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
    open: Open,
    stream: Option<Arc<StreamState>>,
    /// What is left of a slice that was cut: it keeps the file that it lies in, which may have to be given back.
    rest: Bytes,
    notice: Notice,
    /// When the slice came that `rest` is the end of.
    slice_begun: Option<Begun>,
    /// HTTP/1.1: what came after slices that were sent first.
    held: Option<Result<Frame<Bytes>, BodyError>>,
}

impl Guarded {
    /// To be called in the task that serves the request.
    pub(super) fn new(body: Body, open: Open, notice: &Notice) -> Self {
        Self {
            body,
            open,
            stream: STREAM.try_with(Arc::clone).ok(),
            rest: Bytes::new(),
            notice: notice.clone(),
            slice_begun: None,
            held: None,
        }
    }

    /// Notes that a slice is cut, whose end waits for the client.
    fn begin_slice(&mut self) {
        self.slice_begun = (!self.rest.is_empty()).then(|| self.notice.begin());
    }

    /// Breaks off in the middle of a slice whose file must be given back.
    fn check_slice(&self) -> Result<(), BodyError> {
        match &self.slice_begun {
            Some(begun) if !self.rest.is_empty() && begun.has_overstayed() => Err(overstayed()),
            _ => Ok(()),
        }
    }

    /// As many slices as are ready.
    fn poll_slices(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BodyError>>> {
        self.check_slice()?;
        let mut slices = Slices::default();
        // What has a known length is there already: it takes no more memory when it is sent at once.
        let is_made = self.body.size_hint().exact().is_some();
        let len_max = if is_made { usize::MAX } else { FRAME_LEN_MAX };
        loop {
            let next = if self.rest.is_empty() {
                match self.held.take() {
                    Some(held) => Poll::Ready(Some(held)),
                    None => Pin::new(&mut self.body).poll_frame(cx),
                }
            } else {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
            };
            let polled = match next {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => {
                        if !is_made && data.len() > HTTP1_SLICE_MAX {
                            self.rest = data.split_off(HTTP1_SLICE_MAX);
                            if self.slice_begun.is_none() {
                                self.begin_slice();
                            }
                        } else {
                            self.slice_begun = None;
                        }
                        slices.push(data);
                        if !slices.is_full(len_max) && !self.is_end_stream() {
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
        this.check_slice()?;
        let is_new = this.rest.is_empty();
        if is_new {
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
        if is_new && !this.rest.is_empty() {
            this.slice_begun = Some(this.notice.begin());
        }
        if this.rest.is_empty() && this.body.is_end_stream() {
            data.last = Some(this.open.last_frame());
        }
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
    use crate::api::peer::Peer;

    fn open() -> Open {
        Arc::new(Peer::new("127.0.0.1:1".parse().expect("an address"), None)).begin()
    }

    #[tokio::test]
    async fn slices_that_are_ready_are_one_frame_and_bytes_stay_in_order() {
        let parts: Vec<Bytes> = (0..200_usize)
            .map(|n| Bytes::from(vec![n as u8; n % 7 * 1000]))
            .collect();
        let whole = parts.concat();
        let mut body = Guarded::new(Body::parts(parts), open(), &Notice::default());
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
        let mut body = Guarded::new(Body::stream(Breaks(0)), open(), &Notice::default());
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

    /// A watch told of one object of 3 MiB: its file stays on the disk as long as the client has not taken all of it.
    #[tokio::test]
    async fn an_answer_breaks_off_in_the_middle_of_a_slice_whose_file_must_be_given_back() {
        struct Made(Option<Bytes>);
        impl HttpBody for Made {
            type Data = Bytes;
            type Error = BodyError;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
                Poll::Ready(self.0.take().map(|slice| Ok(Frame::data(slice))))
            }
        }
        for stream in [None, Some(Arc::new(StreamState::default()))] {
            let notice = Notice::default();
            let slice = Bytes::from(vec![b'x'; 3 << 20]);
            let mut body = Guarded::new(Body::stream(Made(Some(slice))), open(), &notice);
            body.stream = stream;
            let mut next = || std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).now_or_never();
            assert!(matches!(next(), Some(Some(Ok(_)))));
            notice.give(Some(std::time::Instant::now() + Duration::from_secs(1)));
            assert!(matches!(next(), Some(Some(Err(BodyError::Expired)))));
        }
    }

    #[tokio::test]
    async fn a_client_that_always_has_more_to_say_is_read_in_turns() {
        use tokio::io::AsyncReadExt as _;
        let mut endless = Patient::new(tokio::io::repeat(1), Duration::from_mins(1));
        let mut buffer = [0; 16];
        for _ in 0..2 {
            for _ in 0..READS_PER_TURN {
                assert!(endless.read(&mut buffer).now_or_never().is_some());
            }
            assert!(endless.read(&mut buffer).now_or_never().is_none(), "others get no turn");
        }
    }

    /// As a client that reads a byte a second: it never takes nothing, and would take a day for these bytes.
    #[tokio::test(start_paused = true)]
    async fn a_socket_that_takes_next_to_nothing_fails_its_writer_and_one_that_takes_enough_does_not() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for (bytes_a_second, outlives) in [(1, false), (TAKEN_MIN / 30, true)] {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            let mut ours = Patient::new(ours, Duration::from_mins(1));
            tokio::spawn(async move {
                let mut buffer = vec![0; bytes_a_second];
                let mut seconds = tokio::time::interval(Duration::from_secs(1));
                loop {
                    seconds.tick().await;
                    if theirs.read_exact(&mut buffer).await.is_err() {
                        return;
                    }
                }
            });
            let begun = Instant::now();
            let result = ours.write_all(&vec![0; 4 * TAKEN_MIN]).await;
            assert_eq!(result.is_ok(), outlives, "{bytes_a_second} bytes a second: {result:?}");
            let seconds = begun.elapsed().as_secs();
            assert!(if outlives { seconds > 100 } else { seconds == 60 }, "{seconds} s");
        }
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
