//! Learns from the log which Pods want a look, and has it when it is due.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::wheel::Wheel;
use super::work::{Cluster, now_ms};
use crate::store::{Event, EventKind, Range, Selection};

/// Pods that are looked at side by side: their writes share a sync.
const LOOKS_MAX: usize = 128;
/// Objects of a listing, or events, that are taken at a time.
const RUN_MAX: usize = 256;
/// When to try again to read what could not be read.
const AGAIN: Duration = Duration::from_secs(1);

/// Lets the Pods live until the server stops.
pub(super) async fn run(cluster: Arc<Cluster>) {
    let Some(client) = cluster.nodes.first().map(|node| node.client.clone()) else {
        return;
    };
    tokio::select! {
        () = client.stopping().stopped() => {}
        () = follow(cluster) => {}
    }
}

struct Followed {
    cluster: Arc<Cluster>,
    wheel: Wheel,
    looking: HashSet<Arc<str>>,
    /// Looked at, and to be looked at again: something changed meanwhile.
    again: HashSet<Arc<str>>,
    looks: JoinSet<(Arc<str>, Option<i64>)>,
}

async fn follow(cluster: Arc<Cluster>) {
    let Some(store) = cluster.nodes.first().map(|node| node.client.store().clone()) else {
        return;
    };
    let mut followed = Followed {
        cluster,
        wheel: Wheel::default(),
        looking: HashSet::new(),
        again: HashSet::new(),
        looks: JoinSet::new(),
    };
    loop {
        let view = store.view();
        let Ok(mut follower) = store.follow("pods", None, view.revision()) else {
            continue;
        };
        let mut listing = view.list("pods", Range::default(), &Selection::all());
        loop {
            match listing.next(RUN_MAX) {
                Ok(Some(run)) => run.objects().for_each(|object| {
                    followed.cluster.note_address(&object, true);
                    if followed.cluster.node_of(&object).is_some() {
                        followed.want(object.key().into());
                    }
                }),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "Pods cannot be listed");
                    tokio::time::sleep(AGAIN).await;
                    break;
                }
            }
        }
        drop((listing, view));
        loop {
            let mut taken = 0;
            let is_behind = loop {
                match follower.next() {
                    Ok(Some(event)) => followed.note(&event),
                    Ok(None) => break false,
                    // Behind the retained history: begins anew from what is stored.
                    Err(_) => break true,
                }
                taken += 1;
                if taken == RUN_MAX {
                    break false;
                }
            };
            if is_behind {
                break;
            }
            followed.start_looks();
            let due = followed.next_in();
            tokio::select! {
                () = follower.changed() => {}
                Some(done) = followed.looks.join_next() => followed.done(done),
                () = tokio::time::sleep(due.unwrap_or(AGAIN)) => {}
            }
        }
    }
}

impl Followed {
    fn want(&mut self, key: Arc<str>) {
        if self.looking.contains(&key) {
            self.again.insert(key);
        } else {
            self.wheel.add(key, now_ms());
        }
    }

    fn note(&mut self, event: &Event) {
        if event.kind == EventKind::Deleted {
            self.cluster.note_address(&event.object, false);
            self.wheel.forget(event.object.key());
        } else if self.cluster.node_of(&event.object).is_some() {
            self.want(event.object.key().into());
        }
    }

    fn start_looks(&mut self) {
        while self.looks.len() < LOOKS_MAX
            && let Some(key) = self.wheel.take(now_ms())
        {
            if !self.looking.insert(key.clone()) {
                self.again.insert(key);
                continue;
            }
            let cluster = self.cluster.clone();
            self.looks.spawn(async move {
                let next_ms = cluster.look(key.clone()).await;
                (key, next_ms)
            });
        }
    }

    fn done(&mut self, done: Result<(Arc<str>, Option<i64>), tokio::task::JoinError>) {
        match done {
            Ok((key, next_ms)) => {
                self.looking.remove(&key);
                if self.again.remove(&key) {
                    self.wheel.add(key, now_ms());
                } else if let Some(next_ms) = next_ms {
                    self.wheel.add(key, next_ms);
                }
            }
            Err(error) => tracing::error!(%error, "a look at a Pod ended unasked"),
        }
    }

    /// How long until something is due; `None`: nothing is, or no place is free for it.
    fn next_in(&self) -> Option<Duration> {
        if self.looks.len() >= LOOKS_MAX {
            return None;
        }
        let millis = (self.wheel.next_ms()? - now_ms()).max(0);
        Some(Duration::from_millis(millis as u64))
    }
}
