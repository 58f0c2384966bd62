//! The keys of one issuer: fetched in the background, remembered, fetched again when a token names one that is not known.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, Semaphore};

use super::provider::{Keys, Provider};
use crate::auth::jws::Signed;

/// After this time keys are fetched again, though none is missing: what the provider took away is not believed for ever.
const AGE_MAX: Duration = Duration::from_hours(1);
/// Requests that may wait for keys at a time; more are told no at once.
const WAITING_MAX: usize = 64;

/// Keys of one issuer. Half a MiB at most, and commonly 2 KiB.
#[derive(Debug)]
pub(super) struct KeySet {
    provider: Provider,
    /// Between two questions to the provider.
    pause: Duration,
    known: ArcSwapOption<Known>,
    /// Who holds it asks the provider. When that was done last, and what failed.
    asking: Mutex<(Option<Instant>, String)>,
    waiting: Semaphore,
}

#[derive(Debug)]
struct Known {
    keys: Keys,
    since: Instant,
    /// Rises with each fetch that brought other keys.
    generation: u64,
}

impl KeySet {
    /// The keys of a provider. Begins to fetch them, where a runtime is there for it.
    pub(super) fn new(provider: Provider, pause: Duration) -> Arc<Self> {
        let set = Arc::new(Self {
            provider,
            pause,
            known: ArcSwapOption::empty(),
            asking: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(keep(Arc::downgrade(&set), pause));
        }
        set
    }

    /// Which keys are known: raised when there are others; 0 for none.
    pub(super) fn generation(&self) -> u64 {
        self.known.load().as_ref().map_or(0, |known| known.generation)
    }

    /// Whether a key of this issuer signed it; gives the generation of keys that it is among. Waits for the provider if no known
    /// key did, and it was not asked lately.
    ///
    /// # Errors
    /// When none did, or the provider cannot be asked.
    pub(super) async fn prove(&self, signed: &Signed<'_>) -> Result<u64, String> {
        const UNPROVEN: &str = "failed to verify signature: failed to verify id token signature";
        let seen = match &*self.known.load() {
            Some(known) if known.proves(signed) => return Ok(known.generation),
            // A key that is known by its name did not sign it: asking again changes nothing.
            Some(known) if known.names(&signed.key_id) => return Err(UNPROVEN.into()),
            known => known.as_ref().map(|known| known.since),
        };
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err("failed to verify signature: too many requests wait for the provider's keys".into());
        };
        let failed = self.fetch(seen).await.err();
        match &*self.known.load() {
            Some(known) if known.proves(signed) => Ok(known.generation),
            Some(_) => Err(UNPROVEN.into()),
            None => Err(match failed {
                Some(why) => format!("failed to verify signature: fetching keys {why}"),
                None => UNPROVEN.into(),
            }),
        }
    }

    /// Fetches keys, unless somebody has done so since `seen`, or has just tried.
    async fn fetch(&self, seen: Option<Instant>) -> Result<(), String> {
        let mut asking = self.asking.lock().await;
        let known = self.known.load_full();
        if known.as_ref().map(|known| known.since) != seen {
            return Ok(());
        }
        let (last, why) = &mut *asking;
        if last.is_some_and(|last| last.elapsed() < self.pause) {
            return if why.is_empty() { Ok(()) } else { Err(why.clone()) };
        }
        *last = Some(Instant::now());
        match self.provider.keys().await {
            Ok(keys) => {
                why.clear();
                let before = known.as_ref().map_or(0, |known| known.generation);
                let same = known.as_ref().is_some_and(|known| known.keys == keys);
                self.known.store(Some(Arc::new(Known {
                    keys,
                    since: Instant::now(),
                    generation: before + u64::from(!same),
                })));
                Ok(())
            }
            Err(error) => {
                tracing::warn!(error, "the keys of an OpenID issuer cannot be fetched");
                why.clone_from(&error);
                Err(error)
            }
        }
    }
}

impl Known {
    fn proves(&self, signed: &Signed<'_>) -> bool {
        let named = |name: &str| signed.key_id.is_empty() || name == signed.key_id;
        self.keys.iter().any(|(name, key)| named(name) && signed.is_by(key))
    }

    fn names(&self, id: &str) -> bool {
        !id.is_empty() && self.keys.iter().any(|(name, _)| name == id)
    }
}

/// Fetches keys until there are some, and again whenever they are old, as long as somebody holds the set. Keys that are known
/// stay believed while the provider cannot be reached.
async fn keep(set: Weak<KeySet>, pause: Duration) {
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(set) = set.upgrade() else { return };
        let since = set.known.load().as_ref().map(|known| known.since);
        if since.is_none_or(|since| since.elapsed() >= AGE_MAX) {
            // What failed is in the log.
            let _ = set.fetch(since).await;
        }
    }
}
