//! Looks at a Job with very many Pods come at intervals, so that they take a small part of the time only. Whatever happens in between is
//! seen to by the next one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A look that took so long is not repeated within so many times that.
const REST: u32 = 20;
/// Shorter rests are not kept: most Jobs have few Pods.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(1);

/// When Jobs may be looked at again, by their keys. Only Jobs whose Pods take more than five milliseconds to read are in it (some hundred
/// Pods), about 100 bytes each, until they are looked at again or gone.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    fn rests(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a Job is left in peace yet.
    pub(super) fn rest(&self, key: &str) -> Option<Duration> {
        let mut rests = self.rests();
        let rest = rests.get(key)?.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            rests.remove(key);
            return None;
        }
        Some(rest)
    }

    /// Notes how long it took to read what there is of a Job.
    pub(super) fn note(&self, key: &str, took: Duration) {
        let rest = took.saturating_mul(REST).min(REST_MAX);
        if rest >= REST_MIN {
            self.rests().insert(key.to_owned(), Instant::now() + rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_long_rests_and_who_does_not_is_not_noted() {
        let pace = Pace::default();
        pace.note("small", Duration::from_millis(4));
        assert_eq!(pace.rest("small"), None);
        pace.note("large", Duration::from_millis(10));
        assert_eq!(pace.rest("large"), Some(Duration::from_millis(200)));
        pace.note("huge", Duration::from_secs(9));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(pace.rest("large"), None);
        assert_eq!(pace.rest("huge"), Some(Duration::from_millis(100)));
        assert!(pace.rests().len() == 1);
    }
}
