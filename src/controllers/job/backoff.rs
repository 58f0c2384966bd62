//! How long a Job waits before it makes a Pod in place of one that failed: 10 seconds, twice as long after each further failure in
//! a row, 10 minutes at most.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy> and
//! `MaxJobPodFailureBackOff` of kube-controller-manager.

use std::time::Duration;

use super::spec::Member;
use crate::resources::condition;
use crate::tree::Value;

const FIRST_MS: i64 = 10_000;
const MAX_MS: i64 = 600_000;

/// Failures in a row, since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) failures: u32,
    /// When the last one was, Unix milliseconds.
    pub(super) last_ms: i64,
}

impl Record {
    /// With Pods that ended since: the times at which they did, Unix milliseconds.
    pub(super) fn with(self, succeeded: &[i64], failed: &[i64]) -> Self {
        let Some(success_ms) = succeeded.iter().max() else {
            return Self {
                failures: self
                    .failures
                    .saturating_add(u32::try_from(failed.len()).unwrap_or(u32::MAX)),
                last_ms: failed.iter().max().copied().unwrap_or(self.last_ms),
            };
        };
        let later = || failed.iter().filter(|failed_ms| *failed_ms > success_ms);
        Self {
            failures: u32::try_from(later().count()).unwrap_or(u32::MAX),
            last_ms: later().max().copied().unwrap_or(0),
        }
    }

    /// How long there is to wait yet.
    pub(super) fn wait(self, now_ms: i64) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let doubled = (self.failures - 1).min(16);
        let due_ms = self.last_ms.saturating_add((FIRST_MS << doubled).min(MAX_MS));
        Duration::from_millis(u64::try_from(due_ms.saturating_sub(now_ms)).unwrap_or(0))
    }
}

fn milliseconds(time: &Value) -> Option<i64> {
    Some(time.as_str()?.parse::<jiff::Timestamp>().ok()?.as_millisecond())
}

/// When a Pod ended, Unix milliseconds: when its last container did; else when it ceased to be ready; else when it was told to go; else
/// when it was made.
pub(super) fn ended_ms(member: &Member<'_>) -> i64 {
    let pod = member.pod;
    let statuses = pod["status"]["containerStatuses"].as_array();
    // Of no container there is no time, and of one that has none neither.
    let containers = statuses.and_then(|statuses| {
        let times = statuses
            .iter()
            .map(|status| milliseconds(&status["state"]["terminated"]["finishedAt"]));
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    });
    let unready = || {
        let ready = condition(pod, "Ready").filter(|ready| ready["status"] == "False")?;
        milliseconds(&ready["lastTransitionTime"])
    };
    let deleted = || {
        let grace_s = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        Some(milliseconds(&pod["metadata"]["deletionTimestamp"])?.saturating_sub(grace_s.saturating_mul(1000)))
    };
    let made = || milliseconds(&pod["metadata"]["creationTimestamp"]);
    containers.or_else(unready).or_else(deleted).or_else(made).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[test]
    fn each_failure_in_a_row_doubles_the_wait_and_a_success_ends_it() {
        let mut record = Record::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            record = record.with(&[], &[1_000]);
            waits.push(record.wait(1_000).as_secs());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(record.wait(601_000), Duration::ZERO);
        assert_eq!(record.with(&[2_000], &[]), Record::default());
        let after = Record {
            failures: 2,
            last_ms: 7_000,
        };
        assert_eq!(record.with(&[2_000], &[1_000, 2_000, 7_000, 6_000]), after);
        let many = Record {
            failures: u32::MAX,
            last_ms: 0,
        };
        assert_eq!(many.with(&[], &[0]).wait(0).as_secs(), 600);
    }

    #[test]
    fn a_pod_ended_with_its_last_container_or_else_when_it_is_known_to_have() {
        let at = |pod: &Value| ended_ms(&Member::of(pod)) / 1000;
        let mut pod = json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"},
            "status": {"containerStatuses": [
                {"state": {"terminated": {"finishedAt": "1970-01-01T00:01:40Z"}}},
                {"state": {"terminated": {"finishedAt": "1970-01-01T00:01:30Z"}}}],
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"}]}});
        assert_eq!(at(&pod), 100);
        pod["status"]["containerStatuses"][1]["state"] = json!({"running": {}});
        assert_eq!(at(&pod), 60);
        pod["status"] = json!({"containerStatuses": []});
        pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:50Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        assert_eq!(at(&pod), 20);
        pod["metadata"]["deletionTimestamp"] = Value::Null;
        assert_eq!(at(&pod), 1);
    }
}
