//! How much of each zone is well, and how fast nodes may be emptied there.
//!
//! Rules: <https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction>: one node in ten seconds; one in a hundred
//! where many are not ready in a large zone, none in a small one; none anywhere while no zone has a node that is ready.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Between two nodes of a zone that begin to be emptied.
const BETWEEN: Duration = Duration::from_secs(10);
/// The same where much of a large zone is not ready.
const BETWEEN_SECONDARY: Duration = Duration::from_secs(100);
/// Zones up to this size are not emptied while much of them is not ready.
const SMALL_MAX: usize = 50;

/// Counts of nodes by zone. About 100 bytes a zone.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: HashMap<Arc<str>, Zone>,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    not_ready: usize,
    /// When the next node may be emptied.
    next: Option<Instant>,
}

impl Zone {
    /// Between two nodes; `None`: none may be emptied now.
    fn pace(&self) -> Option<Duration> {
        let all = self.ready + self.not_ready;
        // Where none at all is ready the rate is the usual one: other zones can take the Pods.
        let many = self.ready > 0 && self.not_ready > 2 && self.not_ready * 100 >= all * 55;
        match (many, all > SMALL_MAX) {
            (false, _) => Some(BETWEEN),
            (true, true) => Some(BETWEEN_SECONDARY),
            (true, false) => None,
        }
    }
}

impl Zones {
    /// A node of this zone is there.
    pub(super) fn enter(&mut self, zone: &Arc<str>, is_ready: bool) {
        let zone = self.zones.entry(zone.clone()).or_default();
        *zone.count(is_ready) += 1;
    }

    /// It is gone, or is no more as it was.
    pub(super) fn leave(&mut self, name: &Arc<str>, is_ready: bool) {
        if let Some(zone) = self.zones.get_mut(name) {
            let count = zone.count(is_ready);
            *count = count.saturating_sub(1);
            if zone.ready + zone.not_ready == 0 {
                self.zones.remove(name);
            }
        }
    }

    /// Whether no node is ready anywhere: then it is more likely that this server is what cannot be reached.
    pub(super) fn are_all_lost(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|zone| zone.ready == 0)
    }

    /// Takes the leave to empty a node of this zone; `false`: not now.
    pub(super) fn permit(&mut self, zone: &Arc<str>, now: Instant) -> bool {
        let zone = self.zones.entry(zone.clone()).or_default();
        let Some(pace) = zone.pace() else { return false };
        if zone.next.is_some_and(|next| next > now) {
            return false;
        }
        zone.next = Some(now + pace);
        true
    }
}

impl Zone {
    fn count(&mut self, is_ready: bool) -> &mut usize {
        if is_ready { &mut self.ready } else { &mut self.not_ready }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(counts: &[(&str, usize, usize)]) -> Zones {
        let mut zones = Zones::default();
        for (name, ready, not_ready) in counts {
            let name: Arc<str> = (*name).into();
            (0..*ready).for_each(|_| zones.enter(&name, true));
            (0..*not_ready).for_each(|_| zones.enter(&name, false));
        }
        zones
    }

    #[tokio::test]
    async fn one_node_in_ten_seconds_and_fewer_where_much_is_not_ready() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        for (name, ready, not_ready, pace_s) in [
            ("well", 3, 2, Some(10)),
            ("gone", 0, 5, Some(10)),
            ("large", 40, 60, Some(100)),
            ("small", 2, 3, None),
        ] {
            let mut zones = zones(&[(name, ready, not_ready)]);
            let zone = name.into();
            assert_eq!(zones.permit(&zone, now), pace_s.is_some(), "{name}");
            if let Some(pace_s) = pace_s {
                assert!(!zones.permit(&zone, later(pace_s - 1)), "{name}");
                assert!(zones.permit(&zone, later(pace_s)), "{name}");
            }
        }
    }

    #[test]
    fn nothing_is_emptied_when_no_node_is_ready_anywhere() {
        assert!(!zones(&[]).are_all_lost());
        assert!(!zones(&[("a", 0, 2), ("b", 1, 4)]).are_all_lost());
        let mut all = zones(&[("a", 0, 2), ("b", 1, 0)]);
        all.leave(&"b".into(), true);
        assert!(all.are_all_lost());
    }
}
