//! The garbage collector: deletes what has lost its owners, and sees to it that dependents go before, after or without their owner,
//! as its deletion asked for (<https://kubernetes.io/docs/concepts/architecture/garbage-collection/>).
//!
//! It keeps no graph of the cluster. Who depends on an object is asked of the store, whose postings list objects by the UIDs of
//! their owners; that an owner is gone is told by the log. In memory are the keys in the queue, the objects that wait for
//! their dependents, and a bounded memory of owners that were seen lately.
//!
//! | file | what it does |
//! | --- | --- |
//! | `follow` | learns from the log what wants a look |
//! | `relations` | reads owners and finalizers; finds owners and dependents in the store |
//! | `collect` | looks at one object, and acts |

mod collect;
mod follow;
mod relations;

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::failure::guarded;
use super::queue::{Done, Queue};
use crate::api::Client;

/// Keys that are looked at side by side.
const WORKERS: usize = 8;
/// Owners that are remembered to exist.
const PRESENT_MAX: usize = 1 << 16;

/// Where an object lies: the name of its resource in the store, and its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    storage: Arc<str>,
    key: Arc<str>,
}

/// What wants a look.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Work {
    /// An object that has owners, or is being deleted.
    Object(Place),
    /// The dependents of an object that is gone.
    Gone(Arc<str>),
}

/// An object that waits for its dependents.
#[derive(Debug, Clone)]
struct Waiting {
    place: Place,
    /// Dependents that go within this time bring it back once: the more there are to look through, the longer it is.
    gathered: Duration,
}

/// The collector's state.
#[derive(Debug)]
struct Collector {
    client: Client,
    queue: Queue<Work>,
    /// UIDs of owners that were there lately, with a digest of what they were called by: what names them so needs no look.
    present: Mutex<HashMap<Box<str>, u64>>,
    digests: RandomState,
    /// Objects that wait for their dependents to go first, by UID.
    waiting: Mutex<HashMap<Box<str>, Waiting>>,
    /// Resources of which an object had owners: dependents are looked for there.
    owned: Mutex<Vec<Arc<str>>>,
}

/// Collects until the server stops.
pub(super) async fn run(client: Client) {
    let stopping = client.stopping().clone();
    let collector = Arc::new(Collector {
        client,
        queue: Queue::named("generic-garbage-collector"),
        present: Mutex::default(),
        digests: RandomState::new(),
        waiting: Mutex::default(),
        owned: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    let (begun, all_begun) = tokio::sync::oneshot::channel();
    tasks.spawn(follow::all(collector.clone(), begun));
    // Before all resources were looked through, an object could seem to have no dependents.
    let all_begun = tokio::select! {
        begun = all_begun => begun.is_ok(),
        () = stopping.stopped() => false,
    };
    if all_begun {
        for _ in 0..WORKERS {
            tasks.spawn(work(collector.clone()));
        }
    }
    stopping.stopped().await;
    tasks.shutdown().await;
}

async fn work(collector: Arc<Collector>) {
    loop {
        let work = collector.queue.next().await;
        let look = async {
            match &work {
                Work::Object(place) => collector.look(place, None).await,
                Work::Gone(uid) => collector.collect_dependents(uid).await,
            }
        };
        let done = guarded(look).await.unwrap_or_else(|error| {
            tracing::debug!(?work, %error, "garbage collection is tried again");
            Done::Again
        });
        collector.queue.done(&work, done);
    }
}

/// A lock whose holders cannot leave anything half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
