//! Cluster addresses and node ports of Services: taken before a Service is written, set free when it goes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::Value;

use crate::resources::allocation::Allocations;
use crate::resources::{Refusal, Resource};
use crate::store::{Range, Selection, Store};

/// What is taken, under one lock.
#[derive(Debug, Default)]
pub(in crate::api) struct Services {
    allocations: Mutex<Allocations>,
}

impl Services {
    /// Notes what the stored Services have.
    ///
    /// # Errors
    /// When a stored Service cannot be read.
    pub(in crate::api) fn open(store: &Store) -> Result<Self, String> {
        let services = Self::default();
        let range = Range {
            namespace: None,
            after: None,
        };
        let mut listing = store.view().list("services", range, &Selection::all());
        while let Some(run) = listing.next(256).map_err(|error| error.to_string())? {
            for object in run.objects() {
                let json = object.json().map_err(|error| error.to_string())?;
                let service: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
                services.lock().note(&service);
            }
        }
        Ok(services)
    }

    fn lock(&self) -> MutexGuard<'_, Allocations> {
        // A panic under the lock leaves bits that are taken too long at worst.
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a prepared Service what it needs. Does nothing for other kinds.
    pub(super) fn allocate(
        &self,
        shape: &Resource,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        if shape.storage == "services" {
            self.lock().allocate(new, old, dry_run)
        } else {
            Ok(())
        }
    }

    /// Sets free what `gone` had and `kept` has not. Does nothing for other kinds.
    pub(super) fn release(&self, shape: &Resource, gone: &Value, kept: Option<&Value>) {
        if shape.storage == "services" {
            self.lock().release(gone, kept);
        }
    }
}
