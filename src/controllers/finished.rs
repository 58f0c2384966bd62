//! Jobs that are over: when they ended, and their deletion after `ttlSecondsAfterFinished` (KEP-592).

use std::time::Duration;

use super::claim::gone_is_fine;
use super::failure::Failure;
use super::pod::seconds;
use super::queue::Done;
use super::runtime::Controller;
use crate::api::{Client, Delete};
use crate::resources::{self, Propagation, ResourceRef};
use crate::tree::Value;

const JOBS: &str = "jobs.batch";

/// The controller that deletes them.
pub(super) struct FinishedJobs {
    client: Client,
    jobs: ResourceRef,
}

impl FinishedJobs {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client) -> Option<Self> {
        let jobs = resources::stored(JOBS)?.into();
        Some(Self { client, jobs })
    }
}

impl Controller for FinishedJobs {
    fn resource(&self) -> &'static str {
        JOBS
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let Some(object) = self.client.store().view().get(JOBS, key)? else {
            return Ok(Done::Settled);
        };
        let job = self.client.read(&self.jobs, &object)?;
        let Some(wait) = wait_s(&job, jiff::Timestamp::now().as_second()) else {
            return Ok(Done::Settled);
        };
        if wait > 0 {
            return Ok(Done::After(Duration::from_secs(wait)));
        }
        // The same Job at the same revision: its time to live may have been made longer.
        let delete = Delete {
            uid: job["metadata"]["uid"].as_str().map(str::to_owned),
            revision: job["metadata"]["resourceVersion"]
                .as_str()
                .and_then(|revision| revision.parse().ok()),
            propagation: Some(Propagation::Foreground),
            ..Delete::default()
        };
        gone_is_fine(self.client.delete(&self.jobs, key, &delete).await)?;
        Ok(Done::Settled)
    }
}

/// The condition that says that a Job is over: of type `Complete` or `Failed`.
pub(super) fn end_of(job: &Value) -> Option<&Value> {
    let conditions = job["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| {
        matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
    })
}

/// Seconds until a Job is to be deleted; `None` if it is not, or is on its way already.
fn wait_s(job: &Value, now_s: i64) -> Option<u64> {
    if !job["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let kept_s = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
    let ended_s = seconds(&end_of(job)?["lastTransitionTime"])?;
    Some(u64::try_from(ended_s.saturating_add(kept_s).saturating_sub(now_s)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn job(kind: &str, status: &str) -> Value {
        json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 60}, "status": {"conditions": [
            {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
            {"type": kind, "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z"}]}})
    }

    #[test]
    fn a_job_stays_for_its_time_after_its_end() {
        for kind in ["Complete", "Failed"] {
            assert_eq!(wait_s(&job(kind, "True"), 100), Some(60));
            assert_eq!(wait_s(&job(kind, "True"), 159), Some(1));
            assert_eq!(wait_s(&job(kind, "True"), 160), Some(0));
            assert_eq!(wait_s(&job(kind, "True"), 1_000), Some(0));
        }
    }

    #[test]
    fn one_that_runs_or_goes_or_has_no_such_time_is_left_alone() {
        assert_eq!(wait_s(&job("Complete", "False"), 1_000), None);
        assert_eq!(wait_s(&job("FailureTarget", "True"), 1_000), None);
        let mut going = job("Complete", "True");
        going["metadata"]["deletionTimestamp"] = "1970-01-01T00:01:50Z".into();
        assert_eq!(wait_s(&going, 1_000), None);
        let mut kept = job("Complete", "True");
        kept["spec"] = json!({});
        assert_eq!(wait_s(&kept, 1_000), None);
    }
}
