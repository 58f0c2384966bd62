//! Wakes those who wait for a revision.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::planted::{Planted, is_planted};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Announces that a revision was reached. Many wait, one rings. A waiter that is not woken costs one waker.
#[derive(Debug, Default)]
pub(super) struct Bell {
    revision: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Raised by every ring: tells a waiter whether its waker is still in the list.
    round: u64,
    wakers: Vec<Option<Waker>>,
    /// Places that their listeners left: the list is bounded by the listeners alive at once.
    free: Vec<usize>,
}

/// One waiter's place in a bell. At most one waker of it is in the list.
#[derive(Debug)]
pub(super) struct Listener {
    bell: Arc<Bell>,
    place: Option<(u64, usize)>,
}

impl Bell {
    /// Announces `revision`, which must not be lower than one announced before, and wakes everybody.
    pub(super) fn ring(&self, revision: u64) {
        self.revision.store(revision, Ordering::SeqCst);
        let wakers = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.wakers.is_empty() {
                return;
            }
            waiting.round += 1;
            waiting.free.clear();
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Listener {
    pub(super) fn new(bell: Arc<Bell>) -> Listener {
        Listener { bell, place: None }
    }

    /// Ready when a revision above `after` was announced.
    pub(super) fn poll_above(&mut self, after: u64, context: &mut Context<'_>) -> Poll<()> {
        if self.bell.revision.load(Ordering::SeqCst) > after {
            return Poll::Ready(());
        }
        let mut waiting = self.bell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked again under the lock: a ring before it would have missed us.
        if !is_planted(Planted::SleepUnchecked) && self.bell.revision.load(Ordering::SeqCst) > after {
            return Poll::Ready(());
        }
        let round = waiting.round;
        match self.place {
            Some((of, index)) if of == round => match &mut waiting.wakers[index] {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            },
            _ => {
                let waker = Some(context.waker().clone());
                let index = if let Some(index) = waiting.free.pop() {
                    waiting.wakers[index] = waker;
                    index
                } else {
                    waiting.wakers.push(waker);
                    waiting.wakers.len() - 1
                };
                self.place = Some((round, index));
            }
        }
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((round, index)) = self.place {
            let mut waiting = self.bell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.round == round {
                waiting.wakers[index] = None;
                waiting.free.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_listener_is_woken_once_per_ring_and_leaves_nothing_behind() {
        let bell = Arc::new(Bell::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut listener = Listener::new(bell.clone());
        for _ in 0..3 {
            assert!(listener.poll_above(0, &mut context).is_pending());
        }
        bell.ring(1);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(listener.poll_above(0, &mut context).is_ready());
        for _ in 0..1000 {
            let mut other = Listener::new(bell.clone());
            assert!(other.poll_above(1, &mut context).is_pending());
        }
        assert_eq!(bell.waiting.lock().unwrap().wakers.len(), 1);
    }

    #[test]
    fn places_left_between_living_listeners_do_not_pile_up() {
        let bell = Arc::new(Bell::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut living = Listener::new(bell.clone());
        for _ in 0..1000 {
            let mut next = Listener::new(bell.clone());
            assert!(next.poll_above(0, &mut context).is_pending());
            living = next;
        }
        drop(living);
        assert!(bell.waiting.lock().unwrap().wakers.len() <= 2);
    }

    #[tokio::test]
    async fn ringing_from_another_thread_is_not_missed() {
        let bell = Arc::new(Bell::default());
        let mut listener = Listener::new(bell.clone());
        let ringer = std::thread::spawn(move || (1..=10_000).for_each(|revision| bell.ring(revision)));
        for after in 0..10_000 {
            poll_fn(|context| listener.poll_above(after, context)).await;
        }
        ringer.join().unwrap();
    }
}
