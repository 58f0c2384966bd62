//! What the store gets in place of `src/sync.rs`: each operation is a place where another thread may go on.

use std::sync::{Arc, LockResult, PoisonError};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};

/// Threads of the test's scheduler.
pub(crate) mod thread {
    pub(crate) use shuttle::thread::{Builder, JoinHandle, sleep};
    pub(crate) use std::thread::panicking;
}

/// Shuttle's, whose waits never time out; here they may at any time.
#[derive(Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

/// Whether a wait timed out.
pub(crate) struct TimedOut(bool);

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, TimedOut)> {
        if thread_rng().gen_bool(0.3) {
            return Ok((guard, TimedOut(true)));
        }
        match self.0.wait(guard) {
            Ok(guard) => Ok((guard, TimedOut(false))),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), TimedOut(false)))),
        }
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A value that is replaced as a whole.
pub(crate) struct Latest<T>(Mutex<Arc<T>>);

impl<T> Latest<T> {
    pub(crate) fn new(value: T) -> Latest<T> {
        Latest(Mutex::new(Arc::new(value)))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
