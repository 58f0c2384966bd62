//! Where threads of the store meet: locks, counters that order something, the newest view, threads.
//!
//! They are those of the standard library and `arc-swap`, under one roof, because `tests/interleavings` compiles the store
//! a second time with a module `sync` of its own, whose every operation is a place where the test's scheduler may let
//! another thread go on. Whoever adds a way for two threads of the store to meet takes it from here, or no schedule will
//! come between. Counters that only count, and marks that nothing waits for, need not.

use std::sync::Arc;

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
pub(crate) use std::thread;

/// A value that is replaced as a whole; who has taken one keeps it.
pub(crate) struct Latest<T>(arc_swap::ArcSwap<T>);

impl<T> Latest<T> {
    pub(crate) fn new(value: T) -> Latest<T> {
        Latest(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The newest value. One atomic load.
    pub(crate) fn load(&self) -> Arc<T> {
        self.0.load_full()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}
