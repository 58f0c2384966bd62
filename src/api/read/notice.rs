//! Notice to answers that keep the past on the disk.
//!
//! An answer that is still being sent reads a view, and a view keeps its files, also those that the store has removed
//! meanwhile. They may have as much as history may ([`Options::history_bytes`](crate::store::Options::history_bytes));
//! when they have more, the answers that hold the oldest of them are broken off: over HTTP/2 the stream is reset, over
//! HTTP/1.1 the connection ends before the body does, so no client takes a part for the whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::api::body::BodyError;

/// The moment before which answers began that must end. Clones share it.
#[derive(Clone, Debug)]
pub struct Notice {
    started: Instant,
    /// Nanoseconds since `started`; 0 for none.
    before: Arc<AtomicU64>,
}

impl Default for Notice {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            before: Arc::default(),
        }
    }
}

impl Notice {
    /// Gives notice to answers that began before `before`, and takes back any other.
    pub fn give(&self, before: Option<Instant>) {
        let since = before.map_or(Duration::ZERO, |before| before.saturating_duration_since(self.started));
        let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        self.before.store(nanoseconds, Ordering::Relaxed);
    }

    /// For an answer that takes its view after this call.
    pub(in crate::api) fn begin(&self) -> Begun {
        Begun {
            notice: self.clone(),
            at: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// When an answer began.
#[derive(Clone, Debug)]
pub(in crate::api) struct Begun {
    notice: Notice,
    at: u64,
}

impl Begun {
    /// Whether the answer must end. One load.
    pub(in crate::api) fn has_overstayed(&self) -> bool {
        self.at < self.notice.before.load(Ordering::Relaxed)
    }
}

/// Counts an answer that is broken off because it got notice.
pub(in crate::api) fn overstayed() -> BodyError {
    metrics::counter!("flatkube_overstayed_answers_total").increment(1);
    BodyError::Expired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_is_for_answers_that_began_before_it_and_can_be_taken_back() {
        let notice = Notice::default();
        let old = notice.begin();
        let moment = Instant::now() + Duration::from_nanos(1);
        while Instant::now() <= moment {}
        let new = notice.begin();
        assert!(!old.has_overstayed());
        notice.give(Some(moment));
        assert!(old.has_overstayed() && !new.has_overstayed());
        notice.give(None);
        assert!(!old.has_overstayed());
    }
}
