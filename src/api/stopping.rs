//! The one signal that the server is ending.

use tokio::sync::watch;

/// Tells every long-running answer that the server is ending. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stopping {
    signal: watch::Receiver<bool>,
}

/// The other end of [`Stopping`].
#[derive(Debug)]
pub struct Stopper {
    signal: watch::Sender<bool>,
}

impl Stopper {
    /// A signal that has not been given yet.
    pub fn new() -> (Self, Stopping) {
        let (sender, receiver) = watch::channel(false);
        (Self { signal: sender }, Stopping { signal: receiver })
    }

    /// Gives the signal. Again is harmless.
    pub fn stop(&self) {
        self.signal.send_replace(true);
    }
}

impl Stopping {
    /// Whether the signal was given.
    pub fn is_stopping(&self) -> bool {
        *self.signal.borrow()
    }

    /// Resolves once the signal is given (also when its other end is gone). Cancel-safe.
    pub async fn stopped(&self) {
        let mut signal = self.signal.clone();
        let _ = signal.wait_for(|stopping| *stopping).await;
    }
}
