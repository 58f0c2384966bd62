//! Since when a change waits to be told: from the annotation, network programming latency is measured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::backend::Backend;
use crate::controllers::pod::seconds;
use crate::resources::time_text;
use crate::tree::Value;

/// Services that are remembered; then all are forgotten. About 100 bytes each: 10 MiB at most.
const REMEMBERED_MAX: usize = 100_000;

/// The newest change that was told of each Service, Unix seconds.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    told: Mutex<HashMap<Arc<str>, i64>>,
}

impl Triggers {
    /// When the oldest change happened that was not told yet: the Service was made, or a Pod became ready or stopped being so.
    /// `None`: something else changed, of which no time is known.
    pub(super) fn since(&self, key: &str, service: &Value, pods: &[Backend]) -> Option<String> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let last = told.get(key).copied().unwrap_or(i64::MIN);
        let made = seconds(&service["metadata"]["creationTimestamp"]);
        let times = made.into_iter().chain(pods.iter().filter_map(Backend::changed_s));
        let new = || times.clone().filter(|time| *time > last);
        let oldest = new().min();
        if let Some(newest) = new().max() {
            if told.len() >= REMEMBERED_MAX {
                told.clear();
            }
            told.insert(key.into(), newest);
        }
        oldest.map(time_text)
    }

    pub(super) fn forget(&self, key: &str) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
