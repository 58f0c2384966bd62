//! Volumes that nobody has, and claims that wait for one: so that a claim does not look at every volume of a large cluster, nor a new
//! volume at every claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{RUN_MAX, VOLUMES};
use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::resources::ResourceRef;
use crate::store::{Range, Selection};
use crate::tree::Value;

/// About 100 bytes for each volume that is not bound and each claim that waits; what is bound costs nothing.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Names of volumes that are not bound; `None` until all were looked at once.
    unbound: Option<BTreeSet<Arc<str>>>,
    /// Keys of claims that found no volume, by class.
    waiting: BTreeMap<String, BTreeSet<Arc<str>>>,
}

impl Candidates {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a volume is now; `None`: it is gone.
    pub(super) fn note(&self, name: &str, volume: Option<&Value>) {
        let is_unbound = volume.is_some_and(|volume| volume["status"]["phase"] != "Bound");
        // Before all were looked at, there is nothing to be kept.
        if let Some(unbound) = &mut self.state().unbound {
            if is_unbound {
                unbound.insert(name.into());
            } else {
                unbound.remove(name);
            }
        }
    }

    /// The volumes that are not bound.
    pub(super) fn volumes(&self, client: &Client, resource: &ResourceRef) -> Result<Vec<Value>, Failure> {
        let names: Vec<Arc<str>> = {
            // What changes while all are looked at is noted afterwards, for it waits for the lock.
            let mut state = self.state();
            if state.unbound.is_none() {
                state.unbound = Some(unbound(client, resource)?);
            }
            state.unbound.iter().flatten().cloned().collect()
        };
        let view = client.store().view();
        let mut volumes = Vec::new();
        for name in names {
            if let Some(object) = view.get(VOLUMES, &name)? {
                volumes.push(client.read(resource, &object)?);
            }
        }
        Ok(volumes)
    }

    /// Notes that a claim waits for a volume of this class.
    pub(super) fn wait(&self, class: &str, key: &str) {
        let mut state = self.state();
        state.waiting.entry(class.to_owned()).or_default().insert(key.into());
    }

    /// Notes that a claim waits no more.
    pub(super) fn waits_no_more(&self, key: &str) {
        self.state().waiting.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }

    /// The claims that wait for a volume of this class.
    pub(super) fn waiting(&self, class: &str) -> Vec<Arc<str>> {
        self.state().waiting.get(class).into_iter().flatten().cloned().collect()
    }
}

/// The names of all volumes that are not bound now.
fn unbound(client: &Client, resource: &ResourceRef) -> Result<BTreeSet<Arc<str>>, Failure> {
    let mut listing = client.store().view().list(VOLUMES, Range::default(), &Selection::all());
    let mut unbound = BTreeSet::new();
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            if client.read(resource, &object)?["status"]["phase"] != "Bound" {
                unbound.insert(object.key().into());
            }
        }
    }
    Ok(unbound)
}
