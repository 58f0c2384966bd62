//! Whether a Job is over, and why.

use super::policies::{self, Failed, meaning};
use super::spec::Member;
use super::tally::Tally;
use crate::controllers::pod::seconds;
use crate::resources::condition;
use crate::tree::Value;

/// How a Job ends. It is told in two steps: first that it will end so, then, when all its Pods are counted and gone, that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Its status says so already.
    pub(super) is_told: bool,
}

impl End {
    fn new(is_success: bool, reason: &str, message: impl Into<String>) -> Self {
        Self {
            is_success,
            reason: reason.to_owned(),
            message: message.into(),
            is_told: false,
        }
    }

    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self::new(false, reason, message)
    }

    /// The condition that says that it will end so.
    pub(super) fn first(&self) -> &'static str {
        if self.is_success {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        }
    }

    /// The condition that says that it has.
    pub(super) fn last(&self) -> &'static str {
        if self.is_success { "Complete" } else { "Failed" }
    }
}

/// Whether a Job is over by what happened so far; what was told once stays so.
pub(super) fn end(job: &Value, tally: &Tally<'_>, now_s: i64) -> Option<End> {
    let told = |kind: &str, is_success: bool| {
        let condition = condition(job, kind).filter(|condition| condition["status"] == "True")?;
        let text = |field: &str| condition[field].as_str().unwrap_or("").to_owned();
        Some(End {
            is_told: true,
            ..End::new(is_success, &text("reason"), text("message"))
        })
    };
    told("SuccessCriteriaMet", true)
        .or_else(|| told("FailureTarget", false))
        .or_else(|| failed_by_policy(tally))
        .or_else(|| {
            if tally.failed > tally.spec.backoff_limit || restarted_too_often(tally) {
                return Some(End::failure(
                    "BackoffLimitExceeded",
                    "Job has reached the specified backoff limit",
                ));
            }
            if deadline_s(job, tally).is_some_and(|deadline_s| deadline_s <= now_s) {
                return Some(End::failure(
                    "DeadlineExceeded",
                    "Job was active longer than specified deadline",
                ));
            }
            None
        })
        .or_else(|| failed_by_indexes(tally))
        .or_else(|| {
            let rule = policies::met(tally.spec, &tally.completed)?;
            Some(End::new(true, "SuccessPolicy", rule))
        })
}

/// Whether a Job has all the successes that it asked for, while so many Pods are active.
pub(super) fn reached(tally: &Tally<'_>, active: usize) -> Option<End> {
    let is_reached = active == 0 && tally.succeeded >= tally.spec.completions.unwrap_or(1);
    is_reached.then(|| End::new(true, "CompletionsReached", "Reached expected number of succeeded pods"))
}

/// When a Job is over whatever its Pods do, Unix seconds. One that is suspended has time.
pub(super) fn deadline_s(job: &Value, tally: &Tally<'_>) -> Option<i64> {
    let deadline_s = tally.spec.deadline_s.filter(|_| !tally.spec.is_suspended)?;
    Some(seconds(&job["status"]["startTime"])?.saturating_add(deadline_s))
}

fn failed_by_policy(tally: &Tally<'_>) -> Option<End> {
    if tally.spec.failure_policy.is_null() {
        return None;
    }
    let failed = tally.members.iter().filter(|member| member.has_failed(tally.spec));
    failed
        .filter_map(|member| match meaning(tally.spec, member) {
            Failed::FailsJob(why) => Some(why),
            _ => None,
        })
        .map(|why| End::failure("PodFailurePolicy", why))
        .next()
}

/// Containers that are started again in their Pods have the Job's limit among them.
fn restarted_too_often(tally: &Tally<'_>) -> bool {
    if *tally.spec.restart_policy != "OnFailure" {
        return false;
    }
    let running = tally
        .members
        .iter()
        .filter(|member| matches!(member.pod["status"]["phase"].as_str(), Some("Running" | "Pending")));
    let restarts: i64 = running.map(Member::restarts).sum();
    restarts >= tally.spec.backoff_limit.max(1)
}

fn failed_by_indexes(tally: &Tally<'_>) -> Option<End> {
    let failed = i64::from(tally.failed_indexes.as_ref()?.total());
    if tally.spec.failed_indexes_max.is_some_and(|most| failed > most) {
        let text = "Job has exceeded the specified maximal number of failed indexes";
        return Some(End::failure("MaxFailedIndexesExceeded", text));
    }
    if failed > 0 && failed + i64::from(tally.completed.total()) >= tally.spec.completions.unwrap_or(0) {
        return Some(End::failure("FailedIndexes", "Job has failed indexes"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::spec::{INDEX, Spec};
    use super::*;
    use crate::tree::json;

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn of(spec: Value, status: Value, pods: Value, now_s: i64) -> Option<(&'static str, String, bool)> {
        let job = json!({"spec": spec, "status": status});
        let members: Vec<Member<'_>> = pods.as_array().unwrap().iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, None);
        let end = end(&job, &tally, now_s).or_else(|| reached(&tally, tally.active().count()))?;
        Some((end.first(), end.reason, end.is_told))
    }

    fn pod(phase: &str, index: u32) -> Value {
        json!({"metadata": {"uid": index.to_string(), "finalizers": [super::super::TRACKED], "annotations": {INDEX: index.to_string()}},
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": 2,
                "state": {"terminated": {"exitCode": 3}}}]}})
    }

    #[allow(clippy::unnecessary_wraps, reason = "it is compared with what may be none")]
    fn some(kind: &'static str, reason: &str) -> Option<(&'static str, String, bool)> {
        Some((kind, reason.to_owned(), false))
    }

    #[test]
    fn failures_beyond_the_limit_end_a_job_and_so_do_restarts() {
        let failures = || json!([pod("Failed", 0), pod("Failed", 1)]);
        assert_eq!(
            of(json!({"backoffLimit": 2, "completions": 1}), json!({}), failures(), 0),
            None
        );
        let exceeded = some("FailureTarget", "BackoffLimitExceeded");
        assert_eq!(
            of(
                json!({"backoffLimit": 2, "completions": 1}),
                json!({"failed": 1}),
                failures(),
                0
            ),
            exceeded
        );
        let restarting = |limit: i64| {
            json!({"backoffLimit": limit, "completions": 1,
            "template": {"spec": {"restartPolicy": "OnFailure"}}})
        };
        assert_eq!(of(restarting(3), json!({}), json!([pod("Running", 0)]), 0), None);
        assert_eq!(of(restarting(2), json!({}), json!([pod("Running", 0)]), 0), exceeded);
        assert_eq!(of(restarting(0), json!({}), json!([pod("Running", 0)]), 0), exceeded);
    }

    #[test]
    fn a_deadline_ends_a_job_that_is_not_suspended() {
        let spec = |suspend: bool| json!({"activeDeadlineSeconds": 10, "completions": 1, "suspend": suspend});
        let status = || json!({"startTime": "1970-01-01T00:00:05Z"});
        assert_eq!(of(spec(false), status(), json!([]), 14), None);
        assert_eq!(
            of(spec(false), status(), json!([]), 15),
            some("FailureTarget", "DeadlineExceeded")
        );
        assert_eq!(of(spec(true), status(), json!([]), 15), None);
    }

    #[test]
    fn what_was_told_stays_so() {
        let told =
            |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m"}]});
        let spec = || json!({"completions": 1});
        assert_eq!(
            of(spec(), told("FailureTarget"), json!([pod("Succeeded", 0)]), 0),
            Some(("FailureTarget", "R".into(), true))
        );
        assert_eq!(
            of(spec(), told("SuccessCriteriaMet"), json!([]), 0),
            Some(("SuccessCriteriaMet", "R".into(), true))
        );
        assert_eq!(
            of(spec(), json!({}), json!([pod("Succeeded", 0)]), 0),
            some("SuccessCriteriaMet", "CompletionsReached")
        );
        assert_eq!(of(spec(), json!({"succeeded": 1}), json!([pod("Running", 0)]), 0), None);
        assert_eq!(
            of(json!({}), json!({}), json!([pod("Succeeded", 0)]), 0),
            some("SuccessCriteriaMet", "CompletionsReached")
        );
    }

    #[test]
    fn policies_and_indexes_end_a_job() {
        let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]);
        let spec = json!({"completions": 1, "podFailurePolicy": {"rules": rules}});
        assert_eq!(
            of(spec, json!({}), json!([pod("Failed", 0)]), 0),
            some("FailureTarget", "PodFailurePolicy")
        );
        let indexed = |more: Value| {
            let mut spec = json!({"completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 0, "backoffLimit": i32::MAX});
            for (field, value) in more.as_object().unwrap() {
                spec[field] = value.clone();
            }
            spec
        };
        let pods = || json!([pod("Failed", 0), pod("Failed", 1), pod("Succeeded", 2)]);
        assert_eq!(of(indexed(json!({})), json!({}), pods(), 0), None);
        let max = indexed(json!({"maxFailedIndexes": 1}));
        assert_eq!(
            of(max, json!({}), pods(), 0),
            some("FailureTarget", "MaxFailedIndexesExceeded")
        );
        let done = json!({"completedIndexes": "3"});
        assert_eq!(
            of(indexed(json!({})), done, pods(), 0),
            some("FailureTarget", "FailedIndexes")
        );
        let policy = indexed(json!({"successPolicy": {"rules": [{"succeededIndexes": "2"}]}}));
        assert_eq!(
            of(policy, json!({}), pods(), 0),
            some("SuccessCriteriaMet", "SuccessPolicy")
        );
    }
}
