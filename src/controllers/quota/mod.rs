//! Quotas say what is used of them. Admission adds what is created; this takes away what is gone, and counts anew what quotas are
//! new or have changed. (Upstream's resourcequota-controller.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::queue::Done;
use super::runtime::{Change, Controller};
use crate::admission::plugins::quota::{can_free, counted, recount};
use crate::api::Client;
use crate::resources::{self, ResourceRef};
use crate::store::{Damaged, Range, Selection, View};

const QUOTAS: &str = "resourcequotas";
/// When all is counted anew though nothing has happened: kube-controller-manager's number.
const RESYNC: Duration = Duration::from_mins(5);
/// What custom resources free is not followed; quotas that count them are looked at as often.
const RESYNC_CUSTOM: Duration = Duration::from_secs(30);
/// A count that took long is not made again before that many times as long has passed.
const REST: u32 = 10;

/// Keeps the status of quotas.
pub(super) struct Quotas {
    client: Client,
    quotas: ResourceRef,
    watches: &'static [&'static str],
    /// Quotas that are not to be counted again before then; those of which counting takes long.
    resting: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Quotas {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client) -> Option<Self> {
        /// One list for the life of the process.
        static WATCHES: std::sync::OnceLock<Vec<&str>> = std::sync::OnceLock::new();
        let quotas = resources::stored(QUOTAS)?.into();
        let watches = WATCHES.get_or_init(|| {
            let mut counted = counted();
            counted.retain(|storage| *storage != QUOTAS);
            counted
        });
        Some(Self {
            client,
            quotas,
            watches,
            resting: Mutex::default(),
        })
    }

    fn rests(&self, key: &str) -> Option<Duration> {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let left = resting.get(key)?.checked_duration_since(Instant::now());
        if left.is_none() {
            resting.remove(key);
        }
        left
    }

    fn rest(&self, key: &str, took: Duration) {
        if took > Duration::from_millis(10) {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            resting.insert(key.into(), Instant::now() + took * REST);
        }
    }
}

impl Controller for Quotas {
    fn resource(&self) -> &'static str {
        QUOTAS
    }

    fn watches(&self) -> &'static [&'static str] {
        self.watches
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let namespace = change.object.namespace();
        let frees = change.is_gone || change.previous.is_some() && can_free(change.storage);
        if !frees || view.count(QUOTAS, None) == 0 || namespace.is_none() {
            return Ok(Vec::new());
        }
        Ok(keys(view, namespace)?)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        if let Some(left) = self.rests(key) {
            return Ok(Done::After(left));
        }
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        // Nothing is charged meanwhile, so that nothing is forgotten.
        let _still = self.client.still(namespace).await;
        let view = self.client.store().view();
        let Some(found) = view.get(QUOTAS, key)? else {
            return Ok(Done::Settled);
        };
        let quota = self.client.read(&self.quotas, &found)?;
        let began = Instant::now();
        let status = recount(&view, namespace, &quota)?;
        self.rest(key, began.elapsed());
        if let Some(status) = status {
            let uid = quota["metadata"]["uid"].clone();
            let edit = |now: &crate::tree::Value| {
                if now["metadata"]["uid"] != uid || now["spec"] != quota["spec"] {
                    return None;
                }
                let mut quota = now.clone();
                quota["status"] = status.clone();
                Some(quota)
            };
            self.client.change(&self.quotas, Some("status"), key, edit).await?;
        }
        let hard = quota["spec"]["hard"].as_object();
        let custom = hard.is_some_and(|hard| {
            let storages = hard.keys().filter_map(|name| name.as_str().strip_prefix("count/"));
            storages
                .into_iter()
                .any(|storage| storage.contains('.') && !self.watches.contains(&storage))
        });
        Ok(Done::After(if custom { RESYNC_CUSTOM } else { RESYNC }))
    }
}

/// The keys of a namespace's quotas.
fn keys(view: &Arc<View>, namespace: Option<&str>) -> Result<Vec<Arc<str>>, Damaged> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(QUOTAS, range, &Selection::all());
    let mut keys = Vec::new();
    while let Some(run) = listing.next(64)? {
        keys.extend(run.objects().map(|object| Arc::from(object.key())));
    }
    Ok(keys)
}
