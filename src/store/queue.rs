//! Writes that wait for the committer.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::error::WriteError;
use super::planted::{Planted, is_planted};
use super::write::{Write, Written};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// What a writer waits for.
pub(super) type Answer = oneshot::Sender<Result<Written, WriteError>>;

/// A write and who waits for it. Holds its share of the queue's room until it is dropped.
pub(super) struct Request {
    pub(super) write: Write,
    pub(super) answer: Answer,
    bytes: usize,
    _room: OwnedSemaphorePermit,
}

/// What the committer finds.
#[derive(Debug)]
pub(super) enum Taken {
    /// At least one request.
    Requests,
    /// The log is to go on in a new segment. Whoever asked waits until this is dropped.
    Rotate(Asked),
    /// None for the given time.
    Idle,
    /// None, and none will come.
    Closed,
}

/// A queue bounded by bytes: many async writers, one blocking committer.
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    /// One permit per KiB.
    room: Arc<Semaphore>,
    room_max: u32,
}

struct State {
    waiting: VecDeque<Request>,
    closed: bool,
    /// Who waits for a new segment.
    rotate: Option<Asked>,
}

/// Held as long as what was asked for is not done.
pub(super) type Asked = std::sync::mpsc::Sender<()>;

impl State {
    fn give(&mut self, bytes_max: usize, into: &mut VecDeque<Request>) {
        let mut bytes = 0;
        while let Some(request) = self.waiting.front() {
            bytes += request.bytes;
            if bytes > bytes_max && !into.is_empty() {
                break;
            }
            into.extend(self.waiting.pop_front());
        }
    }
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Queue {
        let room_max = u32::try_from(bytes_max >> 10)
            .unwrap_or(u32::MAX)
            .clamp(1, Semaphore::MAX_PERMITS as u32);
        Queue {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                closed: false,
                rotate: None,
            }),
            filled: Condvar::new(),
            room: Arc::new(Semaphore::new(room_max as usize)),
            room_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write, once there is room for it. The answer comes through the receiver.
    pub(super) async fn put(&self, write: Write) -> Result<oneshot::Receiver<Result<Written, WriteError>>, WriteError> {
        let prepared = write.change.prepared();
        let bytes = prepared.json.len() + prepared.sidecar.len() + write.key.len();
        // A write that is larger than the whole queue takes all of it.
        let permits = u32::try_from(bytes >> 10)
            .unwrap_or(u32::MAX)
            .saturating_add(1)
            .min(self.room_max);
        let room = self
            .room
            .clone()
            .acquire_many_owned(permits)
            .await
            .map_err(|_| WriteError::Closed)?;
        let (answer, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.closed {
            return Err(WriteError::Closed);
        }
        state.waiting.push_back(Request {
            write,
            answer,
            bytes,
            _room: room,
        });
        if state.waiting.len() == 1 {
            self.filled.notify_one();
        }
        Ok(receiver)
    }

    /// Moves what waits into `into`, up to `bytes_max` (but at least one). Blocks until there is something, the queue is
    /// closed and empty, or `idle` has passed.
    pub(super) fn take(&self, bytes_max: usize, idle: Option<Duration>, into: &mut VecDeque<Request>) -> Taken {
        let mut state = self.lock();
        loop {
            if let Some(asked) = state.rotate.take() {
                return Taken::Rotate(asked);
            }
            if !state.waiting.is_empty() {
                break;
            }
            if state.closed {
                return Taken::Closed;
            }
            state = match idle {
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(idle) => {
                    let (state, timeout) = self
                        .filled
                        .wait_timeout(state, idle)
                        .unwrap_or_else(PoisonError::into_inner);
                    let is_asked = !state.waiting.is_empty() || state.closed || state.rotate.is_some();
                    if timeout.timed_out() && !is_asked {
                        return Taken::Idle;
                    }
                    state
                }
            };
        }
        state.give(bytes_max, into);
        Taken::Requests
    }

    /// Asks the committer to go on in a new segment, and waits until it does or the queue is closed.
    pub(super) fn rotate(&self) {
        let (asked, done) = std::sync::mpsc::channel();
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.rotate = Some(asked);
            self.filled.notify_one();
        }
        // An error is what is waited for: nobody holds the other end any more.
        let _ = done.recv();
    }

    /// [`Queue::take`] without waiting.
    pub(super) fn take_now(&self, bytes_max: usize, into: &mut VecDeque<Request>) -> Taken {
        let mut state = self.lock();
        if let Some(asked) = state.rotate.take() {
            return Taken::Rotate(asked);
        }
        if state.waiting.is_empty() {
            return if state.closed { Taken::Closed } else { Taken::Idle };
        }
        state.give(bytes_max, into);
        Taken::Requests
    }

    /// Takes no more writes and leaves those that wait without an answer.
    pub(super) fn abandon(&self) {
        self.close();
        let mut state = self.lock();
        state.waiting.clear();
        state.rotate = None;
    }

    /// Takes no more writes. What waits is still given out by [`Queue::take`].
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        if !is_planted(Planted::CloseUnheard) {
            self.filled.notify_all();
        }
    }
}
