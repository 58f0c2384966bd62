//! When each node was heard of last. Kept in memory: a server that starts gives every node its time anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::zones::Zones;

/// What is known of all nodes. About 300 bytes a node.
#[derive(Debug, Default)]
pub(super) struct Healths {
    nodes: HashMap<Box<str>, Health>,
    pub(super) zones: Zones,
}

#[derive(Debug)]
struct Health {
    uid: Box<str>,
    zone: Arc<str>,
    /// Whether it counts in its zone, and as what.
    is_ready: Option<bool>,
    /// When a sign of life was seen last.
    heard: Instant,
    /// The last sign of life of each sort, as it was written: the heartbeat of its condition, the renewal of its Lease.
    heartbeat: Box<str>,
    renewal: Box<str>,
    /// The revision at which nothing was left to be done about it, while it was ready.
    settled: u64,
}

/// What a node says.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) uid: &'a str,
    pub(super) zone: &'a str,
    pub(super) is_ready: Option<bool>,
    pub(super) heartbeat: &'a str,
}

impl Healths {
    /// Notes what a node says. Gives when it was heard of last, and whether it was not known before.
    pub(super) fn note(&mut self, name: &str, said: &Said<'_>, now: Instant) -> (Instant, bool) {
        let is_new = self.nodes.get(name).is_none_or(|known| *known.uid != *said.uid);
        if is_new {
            self.forget(name);
            let health = Health {
                uid: said.uid.into(),
                zone: said.zone.into(),
                is_ready: None,
                heard: now,
                heartbeat: said.heartbeat.into(),
                renewal: Box::default(),
                settled: 0,
            };
            self.nodes.insert(name.into(), health);
        }
        let Some(health) = self.nodes.get_mut(name) else {
            return (now, is_new);
        };
        if *health.heartbeat != *said.heartbeat {
            health.heartbeat = said.heartbeat.into();
            health.heard = now;
        }
        if (&*health.zone, health.is_ready) != (said.zone, said.is_ready) {
            if let Some(is_ready) = health.is_ready {
                self.zones.leave(&health.zone, is_ready);
            }
            health.zone = said.zone.into();
            health.is_ready = said.is_ready;
            if let Some(is_ready) = said.is_ready {
                self.zones.enter(&health.zone, is_ready);
            }
        }
        (health.heard, is_new)
    }

    /// A node's Lease was written.
    pub(super) fn renewed(&mut self, name: &str, renewal: &str, now: Instant) {
        if let Some(health) = self.nodes.get_mut(name)
            && *health.renewal != *renewal
        {
            health.renewal = renewal.into();
            health.heard = now;
        }
    }

    /// Nothing is to be done about a node that is ready, as it is at this revision.
    pub(super) fn settle(&mut self, name: &str, revision: u64) {
        if let Some(health) = self.nodes.get_mut(name) {
            health.settled = revision;
        }
    }

    /// How long a node may rest that is at this revision; `None`: it wants a look.
    pub(super) fn rest(&self, name: &str, revision: u64, grace: Duration, now: Instant) -> Option<Duration> {
        let health = self.nodes.get(name).filter(|health| health.settled == revision)?;
        let rest = (health.heard + grace).saturating_duration_since(now);
        (!rest.is_zero()).then_some(rest)
    }

    /// A node is gone. Gives its UID.
    pub(super) fn forget(&mut self, name: &str) -> Option<Box<str>> {
        let health = self.nodes.remove(name)?;
        if let Some(is_ready) = health.is_ready {
            self.zones.leave(&health.zone, is_ready);
        }
        Some(health.uid)
    }

    pub(super) fn zone(&self, name: &str) -> Option<Arc<str>> {
        self.nodes.get(name).map(|health| health.zone.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(is_ready: bool, heartbeat: &str) -> Said<'_> {
        Said {
            uid: "u",
            zone: "z",
            is_ready: Some(is_ready),
            heartbeat,
        }
    }

    #[tokio::test]
    async fn a_node_lives_by_a_new_heartbeat_or_a_new_renewal_and_not_by_the_same_again() {
        let (mut healths, start) = (Healths::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(healths.note("n", &said(true, "1"), at(0)), (at(0), true));
        assert_eq!(healths.note("n", &said(true, "1"), at(5)), (at(0), false));
        assert_eq!(healths.note("n", &said(true, "2"), at(9)), (at(9), false));
        healths.renewed("n", "r1", at(20));
        healths.renewed("n", "r1", at(30));
        healths.settle("n", 7);
        let rest = |revision, now| healths.rest("n", revision, Duration::from_secs(50), now);
        assert_eq!(rest(7, at(30)), Some(Duration::from_secs(40)));
        assert_eq!((rest(8, at(30)), rest(7, at(70))), (None, None));
    }

    #[tokio::test]
    async fn a_node_counts_once_in_its_zone() {
        let (mut healths, now) = (Healths::default(), Instant::now());
        healths.note("n", &said(true, "1"), now);
        assert!(!healths.zones.are_all_lost());
        healths.note("n", &said(false, "1"), now);
        healths.note("n", &said(false, "1"), now);
        assert!(healths.zones.are_all_lost());
        assert_eq!(healths.forget("n").as_deref(), Some("u"));
        assert!(!healths.zones.are_all_lost());
    }
}
