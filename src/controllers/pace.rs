//! Looks at an owner of very many Pods come at intervals, so that they take a small part of the time only. Whatever happens in between
//! is seen to by the next one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::tree::Value;

/// A look that took so long is not repeated within so many times that.
const REST: u32 = 20;
/// Shorter rests are not kept: most owners have few Pods.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(1);

/// When owners may be looked at again, by their keys, and what they asked for (their generation) when they were. Only those whose Pods take
/// more than five milliseconds to read are in it (some hundred Pods), about 100 bytes each, until they are looked at again or gone.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<String, (Instant, Value)>>);

impl Pace {
    fn rests(&self) -> MutexGuard<'_, HashMap<String, (Instant, Value)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long an owner is left in peace yet. One that asks for something else now is not.
    pub(super) fn rest(&self, key: &str, owner: &Value) -> Option<Duration> {
        let mut rests = self.rests();
        let (until, generation) = rests.get(key)?;
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() || owner["metadata"]["generation"] != *generation {
            rests.remove(key);
            return None;
        }
        Some(rest)
    }

    /// Notes how long it took to read what there is of an owner. Not to be called after a look that made or deleted Pods: what is half done
    /// goes on at once.
    pub(super) fn note(&self, key: &str, owner: &Value, took: Duration) {
        let rest = took.saturating_mul(REST).min(REST_MAX);
        if rest >= REST_MIN {
            let generation = owner["metadata"]["generation"].clone();
            self.rests().insert(key.to_owned(), (Instant::now() + rest, generation));
        }
    }

    /// One that is gone rests no more.
    pub(super) fn forget(&self, key: &str) {
        self.rests().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[tokio::test(start_paused = true)]
    async fn who_takes_long_rests_unless_something_else_is_asked_for() {
        let (pace, one, two) = (
            Pace::default(),
            json!({"metadata": {"generation": 1}}),
            json!({"metadata": {"generation": 2}}),
        );
        pace.note("small", &one, Duration::from_millis(4));
        assert_eq!(pace.rest("small", &one), None);
        pace.note("large", &one, Duration::from_millis(10));
        assert_eq!(pace.rest("large", &one), Some(Duration::from_millis(200)));
        pace.note("huge", &one, Duration::from_secs(9));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(pace.rest("large", &one), None);
        assert_eq!(pace.rest("huge", &one), Some(Duration::from_millis(100)));
        assert_eq!(pace.rest("huge", &two), None);
        assert!(pace.rests().is_empty());
    }
}
