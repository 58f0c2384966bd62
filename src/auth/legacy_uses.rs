//! Which Secrets' tokens were used: each is to say so, once a day, by its label `kubernetes.io/legacy-token-last-used`.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Secrets that are to say that they were used. Who uses a token does not wait for that.
#[derive(Debug, Default)]
pub struct LegacyUses {
    waiting: Mutex<BTreeSet<String>>,
    added: Notify,
}

/// Secrets that wait at most; those beyond are noted at their next use.
const WAITING_MAX: usize = 1024;

impl LegacyUses {
    /// Notes that the token of a Secret was used. Gives whether there was room for that.
    pub(super) fn note(&self, key: &str) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX && !waiting.contains(key) {
            return false;
        }
        waiting.insert(key.to_owned());
        drop(waiting);
        self.added.notify_one();
        true
    }

    /// The key of the next Secret.
    pub async fn next(&self) -> String {
        loop {
            let added = self.added.notified();
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            if let Some(key) = next {
                return key;
            }
            added.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_secret_waits_once_and_not_too_many_do() {
        let uses = LegacyUses::default();
        for number in 0..WAITING_MAX {
            assert!(uses.note(&format!("{number:04}")));
        }
        assert!(uses.note("0000"));
        assert!(!uses.note("more"));
        assert_eq!(uses.next().await, "0000");
        assert!(uses.note("more"));
        assert_eq!(uses.next().await, "0001");
    }
}
