//! Where events go: a bounded buffer, and a thread of its own that writes what is in it.
//!
//! A buffer is bounded by number and by bytes. What has no room is either dropped and counted, or waited for.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{DROPPED, ERRORS};

/// Bytes of events that wait in one buffer; above, objects are left out of events.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What becomes of an event that finds the buffer full; upstream's modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is dropped, and counted.
    Batch,
    /// The request waits until there is room.
    Blocking,
    /// As `Blocking`; and a request is refused whose first event cannot be written.
    BlockingStrict,
}

/// How events are put together.
#[derive(Debug, Clone)]
pub struct Batching {
    /// What becomes of what has no room.
    pub mode: Mode,
    /// Events that wait at most.
    pub buffer: usize,
    /// Events that are written at once at most.
    pub size_max: usize,
    /// How long a batch that is not full is waited for.
    pub wait_max: Duration,
    /// Batches a second, and how many may come at once; `None`: as many as there are.
    pub throttle: Option<(f64, u32)>,
}

/// Something that events are written to. It may block: it has a thread of its own.
pub(super) trait Backend: Send + 'static {
    /// Writes events, each a JSON object. `ending` says when to give up what takes time.
    ///
    /// # Errors
    /// Why they are lost.
    fn write(&mut self, events: &[Bytes], ending: &AtomicBool) -> Result<(), String>;
}

enum Message {
    Event(Queued),
    Close,
}

struct Queued {
    line: Bytes,
    written: Option<oneshot::Sender<bool>>,
    /// Its place, given back when it is written.
    _place: Option<OwnedSemaphorePermit>,
    _weight: Weight,
}

/// Its part of what the buffer holds.
struct Weight {
    load: Arc<Load>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Load {
    events: AtomicUsize,
    bytes: AtomicUsize,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.load.events.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer and the thread that empties it.
pub(super) struct Sink {
    name: &'static str,
    mode: Mode,
    capacity: usize,
    places: Arc<Semaphore>,
    load: Arc<Load>,
    sender: Sender<Message>,
    ending: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Sink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sink")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Sink {
    pub(super) fn start(name: &'static str, backend: impl Backend, batching: Batching) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let capacity = batching.buffer.clamp(1, Semaphore::MAX_PERMITS);
        let ending = Arc::new(AtomicBool::new(false));
        let mode = batching.mode;
        let told = ending.clone();
        let thread = thread::Builder::new()
            .name(format!("audit-{name}"))
            .spawn(move || run(name, backend, &batching, &receiver, &told))?;
        Ok(Self {
            name,
            mode,
            capacity,
            places: Arc::new(Semaphore::new(capacity)),
            load: Arc::default(),
            sender,
            ending,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Whether events wait that are as many bytes as may wait: then objects are left out.
    pub(super) fn is_heavy(&self) -> bool {
        self.load.bytes.load(Ordering::Relaxed) > BYTES_MAX
    }

    /// Takes an event, waiting for a place where the mode says so. `is_first`: nothing was done for its request yet. `false`: the
    /// request is to be refused.
    pub(super) async fn take(&self, line: Bytes, is_first: bool) -> bool {
        match self.mode {
            Mode::Batch => self.take_now(line),
            Mode::Blocking | Mode::BlockingStrict => {
                let place = self.places.clone().acquire_owned().await.ok();
                if !is_first || self.mode == Mode::Blocking {
                    self.push(line, place, None);
                    return true;
                }
                let (written, is_written) = oneshot::channel();
                self.push(line, place, Some(written));
                return is_written.await.unwrap_or(false);
            }
        }
        true
    }

    /// Takes an event of a request that nobody can let wait any more, because its answer is sent or its client is gone. Where others
    /// wait for a place, it takes none, as long as no more than twice as many events wait as may.
    pub(super) fn take_now(&self, line: Bytes) {
        let place = self.places.clone().try_acquire_owned().ok();
        let may_exceed = self.mode != Mode::Batch && self.load.events.load(Ordering::Relaxed) < 2 * self.capacity;
        if place.is_some() || may_exceed {
            self.push(line, place, None);
        } else {
            lost(self.name, DROPPED, 1);
        }
    }

    fn push(&self, line: Bytes, place: Option<OwnedSemaphorePermit>, written: Option<oneshot::Sender<bool>>) {
        self.load.events.fetch_add(1, Ordering::Relaxed);
        self.load.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let queued = Queued {
            written,
            _place: place,
            _weight: Weight {
                load: self.load.clone(),
                bytes: line.len(),
            },
            line,
        };
        if self.sender.send(Message::Event(queued)).is_err() {
            lost(self.name, DROPPED, 1);
        }
    }

    /// Writes what waits, and ends. Blocks until that is done.
    pub(super) fn close(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let _ = self.sender.send(Message::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn lost(name: &'static str, figure: &'static str, events: usize) {
    counter!(figure, "plugin" => name).increment(events as u64);
}

fn run(
    name: &'static str,
    mut backend: impl Backend,
    batching: &Batching,
    receiver: &Receiver<Message>,
    ending: &AtomicBool,
) {
    let mut throttle = batching.throttle.map(|(rate, burst)| Throttle::new(rate, burst));
    let mut is_open = true;
    while is_open {
        let Ok(Message::Event(first)) = receiver.recv() else {
            return;
        };
        let mut batch = vec![first];
        let until = Instant::now() + batching.wait_max;
        while batch.len() < batching.size_max.max(1) {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Event(next)) => batch.push(next),
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => {
                    is_open = false;
                    break;
                }
            }
        }
        if let Some(throttle) = &mut throttle {
            throttle.wait(ending);
        }
        let lines: Vec<Bytes> = batch.iter().map(|queued| queued.line.clone()).collect();
        let written = backend.write(&lines, ending);
        if let Err(why) = &written {
            tracing::error!(events = lines.len(), "audit events are lost ({name}): {why}");
            lost(name, ERRORS, lines.len());
        }
        for queued in batch {
            if let Some(told) = queued.written {
                let _ = told.send(written.is_ok());
            }
        }
    }
}

/// Lets so many batches a second pass.
struct Throttle {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Throttle {
    fn new(rate: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            rate: rate.max(0.001),
            burst,
            tokens: burst,
            at: Instant::now(),
        }
    }

    fn wait(&mut self, ending: &AtomicBool) {
        loop {
            let now = Instant::now();
            let gained = now.duration_since(self.at).as_secs_f64() * self.rate;
            (self.tokens, self.at) = ((self.tokens + gained).min(self.burst), now);
            if self.tokens >= 1.0 || ending.load(Ordering::Relaxed) {
                self.tokens -= 1.0;
                return;
            }
            thread::park_timeout(Duration::from_secs_f64((1.0 - self.tokens) / self.rate));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    /// Writes when it is told to.
    struct Slow {
        may: mpsc::Receiver<bool>,
        wrote: mpsc::Sender<usize>,
    }

    impl Backend for Slow {
        fn write(&mut self, events: &[Bytes], _: &AtomicBool) -> Result<(), String> {
            let may = self.may.recv().unwrap_or(true);
            let _ = self.wrote.send(events.len());
            if may { Ok(()) } else { Err("no".into()) }
        }
    }

    fn sink(mode: Mode) -> (Sink, mpsc::Sender<bool>, mpsc::Receiver<usize>) {
        let (allow, may) = mpsc::channel();
        let (wrote, written) = mpsc::channel();
        let batching = Batching {
            mode,
            buffer: 2,
            size_max: 1,
            wait_max: Duration::ZERO,
            throttle: None,
        };
        let sink = Sink::start("test", Slow { may, wrote }, batching).unwrap();
        (sink, allow, written)
    }

    #[test]
    fn a_full_buffer_drops_in_one_mode_and_lets_wait_in_the_others() {
        let line = || Bytes::from_static(b"{}");
        let (sink, allow, written) = sink(Mode::Batch);
        for _ in 0..5 {
            assert_eq!(sink.take(line(), true).now_or_never(), Some(true));
        }
        drop(allow);
        sink.close();
        assert_eq!(written.iter().sum::<usize>(), 2);

        let (sink, allow, written) = self::sink(Mode::Blocking);
        for _ in 0..2 {
            assert_eq!(sink.take(line(), true).now_or_never(), Some(true));
        }
        assert_eq!(sink.take(line(), true).now_or_never(), None, "there is no room");
        // Who cannot wait exceeds it, and not without end.
        for _ in 0..9 {
            sink.take_now(line());
        }
        drop(allow);
        sink.close();
        assert_eq!(written.iter().sum::<usize>(), 4);
    }

    #[tokio::test]
    async fn a_strict_buffer_tells_whether_the_first_event_is_written() {
        let line = || Bytes::from_static(b"{}");
        let (sink, allow, _written) = sink(Mode::BlockingStrict);
        allow.send(false).unwrap();
        assert!(!sink.take(line(), true).await);
        allow.send(true).unwrap();
        assert!(sink.take(line(), true).await);
        drop(allow);
        sink.close();
    }

    #[test]
    fn batches_pass_at_their_rate() {
        let mut throttle = Throttle::new(0.01, 3);
        let ending = AtomicBool::new(false);
        for _ in 0..3 {
            throttle.wait(&ending);
        }
        assert!(throttle.tokens < 1.0);
        // Nobody waits for a server that ends.
        ending.store(true, Ordering::Relaxed);
        throttle.wait(&ending);
    }
}
