//! Quotas are charged: what a write takes is written down before the write itself is, so that no two writes take the same.
//!
//! A write that has charged a quota holds the namespace's gate until it is made or given up. Whoever counts what is there
//! ([`Quotas::still`]) waits until nobody holds it: else a write that is charged and not yet made would be forgotten.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::commit::{self, Refused};
use super::object;
use crate::admission::plugins::quota::Charge;
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::{self, Resource};
use crate::store::{Change, Precondition};

/// Gates; namespaces share them.
const GATES: usize = 64;
/// How often a charge is tried again because the quota changed meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// The gates of all namespaces.
#[derive(Debug)]
pub(in crate::api) struct Quotas {
    gates: Vec<Gate>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Gate {
    passing: Arc<RwLock<()>>,
    /// One charge at a time: they would only be in each other's way.
    charging: Mutex<()>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            gates: (0..GATES).map(|_| Gate::default()).collect(),
            hasher: RandomState::new(),
        }
    }
}

/// Holds still what is charged and not yet made.
#[derive(Debug)]
pub struct Stillness(#[allow(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>);

/// What a write has taken of quotas. To be held until it is made.
#[derive(Debug, Default)]
pub(super) struct Charged {
    charges: Vec<Charge>,
    namespace: String,
    passing: Option<OwnedRwLockReadGuard<()>>,
}

impl Quotas {
    fn gate(&self, namespace: &str) -> &Gate {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(namespace.as_bytes());
        &self.gates[hasher.finish() as usize % GATES]
    }

    /// Waits until every write in the namespace that was charged is made or given up, and lets no other begin meanwhile.
    pub(super) async fn still(&self, namespace: &str) -> Stillness {
        Stillness(self.gate(namespace).passing.clone().write_owned().await)
    }
}

/// Charges quotas: `price` says what is to be taken of those in the newest view that are not charged yet, and is asked again when a
/// quota changed.
///
/// # Errors
/// What `price` refuses with; then nothing is charged.
pub(super) async fn charge(
    api: &Api,
    namespace: &str,
    price: impl Fn(&[Charge]) -> Result<Vec<Charge>, Status>,
) -> Result<Charged, Status> {
    let gate = api.quotas.gate(namespace);
    let mut charged = Charged {
        charges: Vec::new(),
        namespace: namespace.to_owned(),
        passing: Some(gate.passing.clone().read_owned().await),
    };
    let charging = gate.charging.lock().await;
    for _ in 0..ATTEMPTS_MAX {
        let priced = match price(&charged.charges) {
            Ok(priced) => priced,
            Err(status) => {
                drop(charging);
                charged.refund(api).await;
                return Err(status);
            }
        };
        let mut is_done = true;
        for next in priced {
            is_done = write(api, namespace, &next, false).await?;
            if !is_done {
                break;
            }
            charged.charges.push(next);
        }
        if is_done {
            return Ok(charged);
        }
    }
    drop(charging);
    charged.refund(api).await;
    let why = "unable to complete resource quota evaluation: the quotas of the namespace change too often";
    Err(Status::plain(500, why))
}

fn shape() -> Result<&'static Resource, Status> {
    resources::stored("resourcequotas").ok_or_else(|| Status::internal("quotas are not served"))
}

/// Writes a charge into its quota, or takes it back; `false` when somebody else was faster, or the quota is gone.
async fn write(api: &Api, namespace: &str, charge: &Charge, back: bool) -> Result<bool, Status> {
    let shape = shape()?;
    let key = format!("{namespace}/{}", charge.name);
    let Some(current) = api
        .reader
        .store
        .view()
        .get(&shape.storage, &key)
        .map_err(Status::internal)?
    else {
        return Ok(false);
    };
    let quota = charge.apply(&object::of_stored(&current, shape)?, back);
    let prepared = commit::encode(shape, &quota)?;
    let precondition = Precondition::Revision(current.revision());
    match commit::commit(api, shape, &key, precondition, Change::Put(prepared)).await {
        Ok(_) => Ok(true),
        Err(Refused::Conflict(_)) => Ok(false),
        Err(Refused::Status(status)) => Err(status),
    }
}

impl Charged {
    /// Gives back what was taken: the write is not made. What cannot be given back is found by the next count.
    pub(super) async fn refund(self, api: &Api) {
        for charge in &self.charges {
            for _ in 0..ATTEMPTS_MAX {
                match write(api, &self.namespace, charge, true).await {
                    Ok(false) => {}
                    Ok(true) => break,
                    Err(error) => {
                        tracing::debug!(namespace = self.namespace, %error, "a quota is not given back");
                        break;
                    }
                }
            }
        }
        drop(self.passing);
    }
}
