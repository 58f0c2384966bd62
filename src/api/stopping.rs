//! The one signal that the server is ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Tells every long-running answer that the server is ending. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stopping {
    signal: watch::Receiver<bool>,
    /// Set before the signal: cheap to look at for many at once.
    given: Arc<AtomicBool>,
}

/// The other end of [`Stopping`].
#[derive(Debug)]
pub struct Stopper {
    signal: watch::Sender<bool>,
    given: Arc<AtomicBool>,
}

impl Stopper {
    /// A signal that has not been given yet.
    pub fn new() -> (Self, Stopping) {
        let (sender, receiver) = watch::channel(false);
        let given = Arc::new(AtomicBool::new(false));
        let stopping = Stopping {
            signal: receiver,
            given: given.clone(),
        };
        (Self { signal: sender, given }, stopping)
    }

    /// Gives the signal. Again is harmless.
    pub fn stop(&self) {
        self.given.store(true, Ordering::SeqCst);
        self.signal.send_replace(true);
    }
}

/// Without this end nobody could give the signal any more.
impl Drop for Stopper {
    fn drop(&mut self) {
        self.given.store(true, Ordering::SeqCst);
    }
}

impl Stopping {
    /// Whether the signal was given (or its other end is gone).
    pub fn is_stopping(&self) -> bool {
        self.given.load(Ordering::SeqCst)
    }

    /// Resolves once the signal is given (also when its other end is gone). Cancel-safe.
    pub async fn stopped(&self) {
        let mut signal = self.signal.clone();
        let _ = signal.wait_for(|stopping| *stopping).await;
    }
}
