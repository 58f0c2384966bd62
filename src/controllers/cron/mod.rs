//! CronJobs: a Job at each time of a schedule.
//!
//! `due` says when the next Job is to be made, and which times were missed; here Jobs are made, and forgotten when they are over.

mod due;

use std::sync::Arc;
use std::time::Duration;

use super::claim::{Kind, gone_is_fine};
use super::event::{Level, Recorder};
use super::failure::{Failure, is_terminating};
use super::finished;
use super::metadata::{Metadata, controller_reference, is_same, name_of};
use super::pod::seconds;
use super::queue::Done;
use super::runtime::{Change, Controller};
use crate::api::{Client, Delete};
use crate::resources::{self, Propagation, ResourceRef, time_text};
use crate::store::{Range, Requirement, Selection, View};
use crate::tree::{Value, json};
use due::{Due, Timetable};

const CRON_JOBS: Kind = Kind {
    storage: "cronjobs.batch",
    group: "batch",
    kind: "CronJob",
    selection: |_| None,
};
const JOBS: &str = "jobs.batch";
/// Annotation of a Job with the time that it is for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;

/// The controller of CronJobs.
pub(super) struct CronJobs {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    jobs: ResourceRef,
}

impl CronJobs {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(CRON_JOBS.storage)?.into(),
            jobs: resources::stored(JOBS)?.into(),
        })
    }
}

impl Controller for CronJobs {
    fn resource(&self) -> &'static str {
        CRON_JOBS.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[JOBS]
    }

    fn concerned(&self, change: &Change<'_>, _: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let now = CRON_JOBS.controller_of(change.object)?;
        let before = change
            .previous
            .map(|object| CRON_JOBS.controller_of(object))
            .transpose()?;
        let mut keys: Vec<Arc<str>> = now.into_iter().chain(before.flatten()).collect();
        keys.dedup();
        Ok(keys)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(object) = view.get(CRON_JOBS.storage, key)? else {
            return Ok(Done::Settled);
        };
        let cron_job = self.client.read(&self.resource, &object)?;
        let mut look = Look {
            jobs: self.jobs_of(&view, &cron_job)?,
            status: cron_job["status"].clone(),
            cron_job: &cron_job,
            now_s: jiff::Timestamp::now().as_second(),
        };
        if !look.status.is_object() {
            look.status = json!({});
        }
        let done = self.act(&mut look).await;
        // What was done counts, whatever came after it.
        self.tell_status(key, &look).await?;
        done
    }
}

/// What one look goes by.
struct Look<'a> {
    cron_job: &'a Value,
    /// The Jobs that it controls.
    jobs: Vec<Value>,
    /// As it will be.
    status: Value,
    now_s: i64,
}

impl Look<'_> {
    fn active(&self) -> Vec<Value> {
        self.status["active"]
            .as_array()
            .map_or_else(Vec::new, |list| list.to_vec())
    }

    fn is_active(&self, uid: &Value) -> bool {
        self.active().iter().any(|one| one["uid"] == *uid)
    }

    fn set_active(&mut self, active: Vec<Value>) {
        match self.status.as_object_mut() {
            Some(status) if active.is_empty() => drop(status.remove("active")),
            _ => self.status["active"] = active.into(),
        }
    }

    fn forget(&mut self, uid: &Value) {
        let mut active = self.active();
        active.retain(|one| one["uid"] != *uid);
        self.set_active(active);
    }
}

/// How a Job ended: `Complete` or `Failed`.
fn end_of(job: &Value) -> Option<&str> {
    finished::end_of(job)?["type"].as_str()
}

impl CronJobs {
    fn jobs_of(&self, view: &Arc<View>, cron_job: &Value) -> Result<Vec<Value>, Failure> {
        let uid = cron_job["metadata"]["uid"].as_str().unwrap_or("");
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(uid.to_owned())],
        };
        let range = Range {
            namespace: cron_job["metadata"]["namespace"].as_str().map(str::to_owned),
            after: None,
        };
        let mut jobs = Vec::new();
        let mut listing = view.list(JOBS, range, &owned);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                let controller = Metadata::of(&object)?.controller().map(|owner| owner.uid.clone());
                if controller.as_deref() == Some(uid) {
                    jobs.push(self.client.read(&self.jobs, &object)?);
                }
            }
        }
        Ok(jobs)
    }

    async fn act(&self, look: &mut Look<'_>) -> Result<Done, Failure> {
        self.take_note(look);
        if !look.cron_job["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Done::Settled);
        }
        self.clean_up(look).await?;
        let spec = &look.cron_job["spec"];
        let timetable = match Timetable::of(look.cron_job) {
            Ok(timetable) => timetable,
            Err((reason, text)) => {
                self.tell(look.cron_job, Level::Warning, reason, text);
                return Ok(Done::Settled);
            }
        };
        if spec["suspend"] == true {
            return Ok(Done::Settled);
        }
        let later = || match timetable.after(look.now_s) {
            // A little later, so that its second has begun.
            Some(next) => {
                let wait = u64::try_from(next - look.now_s).unwrap_or(0);
                Done::After(Duration::from_secs(wait) + Duration::from_millis(100))
            }
            None => Done::Settled,
        };
        let done = later();
        let due = match timetable.due(look.cron_job, look.now_s) {
            Due::Later => return Ok(done),
            Due::At { time_s, missed_many } => {
                if missed_many {
                    let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
                    self.tell(look.cron_job, Level::Warning, "TooManyMissedTimes", text.to_owned());
                }
                time_s
            }
        };
        if spec["startingDeadlineSeconds"]
            .as_i64()
            .is_some_and(|deadline_s| due.saturating_add(deadline_s) < look.now_s)
        {
            let text = format!("Missed scheduled time to start a job: {}", due::long_text(due));
            self.tell(look.cron_job, Level::Warning, "MissSchedule", text);
            return Ok(done);
        }
        let name = format!("{}-{}", name_of(look.cron_job), due / 60);
        if look.active().iter().any(|one| one["name"] == name.as_str())
            || seconds(&look.status["lastScheduleTime"]) == Some(due)
        {
            return Ok(done);
        }
        match spec["concurrencyPolicy"].as_str() {
            Some("Forbid") if !look.active().is_empty() => {
                let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.tell(look.cron_job, Level::Normal, "JobAlreadyActive", text.to_owned());
                return Ok(done);
            }
            Some("Replace") => {
                for one in look.active() {
                    self.delete(look, one["name"].as_str().unwrap_or(""), &one["uid"])
                        .await?;
                }
            }
            _ => {}
        }
        self.start(look, &timetable, &name, due).await?;
        Ok(done)
    }

    /// Brings the list of active Jobs up to date with what became of them.
    fn take_note(&self, look: &mut Look<'_>) {
        for job in look.jobs.clone() {
            let uid = &job["metadata"]["uid"];
            match (look.is_active(uid), end_of(&job)) {
                (false, None) => {
                    let text = format!(
                        "Saw a job that the controller did not create or forgot: {}",
                        name_of(&job)
                    );
                    self.tell(look.cron_job, Level::Warning, "UnexpectedJob", text);
                }
                (true, Some(end)) => {
                    let text = format!("Saw completed job: {}, condition: {end}", name_of(&job));
                    self.tell(look.cron_job, Level::Normal, "SawCompletedJob", text);
                    look.forget(uid);
                }
                _ => {}
            }
            if end_of(&job) == Some("Complete") {
                let (ended, last) = (&job["status"]["completionTime"], &look.status["lastSuccessfulTime"]);
                if seconds(ended) > seconds(last) {
                    look.status["lastSuccessfulTime"] = ended.clone();
                }
            }
        }
        for one in look.active() {
            if !look.jobs.iter().any(|job| job["metadata"]["uid"] == one["uid"]) {
                let text = format!("Active job went missing: {}", one["name"].as_str().unwrap_or(""));
                self.tell(look.cron_job, Level::Normal, "MissingJob", text);
                look.forget(&one["uid"]);
            }
        }
    }

    /// Deletes the oldest of the Jobs that are over, beyond the number that is kept of each sort.
    async fn clean_up(&self, look: &mut Look<'_>) -> Result<(), Failure> {
        let spec = &look.cron_job["spec"];
        for (end, limit) in [
            ("Complete", spec["successfulJobsHistoryLimit"].as_u64()),
            ("Failed", spec["failedJobsHistoryLimit"].as_u64()),
        ] {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
                continue;
            };
            let mut over: Vec<Value> = look
                .jobs
                .iter()
                .filter(|job| end_of(job) == Some(end))
                .cloned()
                .collect();
            over.sort_by_key(|job| (seconds(&job["status"]["startTime"]), name_of(job).to_owned()));
            let surplus = over.len().saturating_sub(limit);
            for job in &over[..surplus] {
                self.delete(look, name_of(job), &job["metadata"]["uid"]).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, look: &mut Look<'_>, name: &str, uid: &Value) -> Result<(), Failure> {
        let namespace = look.cron_job["metadata"]["namespace"].as_str().unwrap_or("");
        let delete = Delete {
            uid: uid.as_str().map(str::to_owned),
            propagation: Some(Propagation::Background),
            ..Delete::default()
        };
        match self
            .client
            .delete(&self.jobs, &format!("{namespace}/{name}"), &delete)
            .await
        {
            Err(status) if status.code != 404 => {
                let text = format!("Deleted job: {}", status.message);
                self.tell(look.cron_job, Level::Warning, "FailedDelete", text);
                return Err(status.into());
            }
            _ => self.tell(
                look.cron_job,
                Level::Normal,
                "SuccessfulDelete",
                format!("Deleted job {name}"),
            ),
        }
        look.forget(uid);
        look.jobs.retain(|job| job["metadata"]["uid"] != *uid);
        Ok(())
    }

    /// Makes the Job of a time.
    async fn start(&self, look: &mut Look<'_>, timetable: &Timetable, name: &str, due: i64) -> Result<(), Failure> {
        let template = &look.cron_job["spec"]["jobTemplate"];
        let namespace = look.cron_job["metadata"]["namespace"].as_str().unwrap_or("");
        let mut job = json!({"metadata": {"name": name, "ownerReferences": [controller_reference(look.cron_job)]}});
        for field in ["labels", "annotations"] {
            if template["metadata"][field].is_object() {
                job["metadata"][field] = template["metadata"][field].clone();
            }
        }
        job["metadata"]["annotations"][SCHEDULED] = timetable.text(due).into();
        job["spec"] = template["spec"].clone();
        let made = match self.client.create(&self.jobs, Some(namespace), job).await {
            Ok(made) => {
                self.tell(
                    look.cron_job,
                    Level::Normal,
                    "SuccessfulCreate",
                    format!("Created job {name}"),
                );
                made
            }
            Err(status) if is_terminating(&status) => return Ok(()),
            Err(status) if status.reason == "AlreadyExists" => {
                // Made before what was noted of it could be written.
                let found = self.client.store().view().get(JOBS, &format!("{namespace}/{name}"))?;
                let found = found.map(|found| self.client.read(&self.jobs, &found)).transpose()?;
                let owners = |job: &Value| job["metadata"]["ownerReferences"].as_array().map(|list| list.to_vec());
                let uid = &look.cron_job["metadata"]["uid"];
                let is_own =
                    |job: &Value| owners(job).is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == *uid));
                match found.filter(is_own) {
                    Some(job) => job,
                    None => return Err(status.into()),
                }
            }
            Err(status) => {
                let text = format!("Error creating job: {}", status.message);
                self.tell(look.cron_job, Level::Warning, "FailedCreate", text);
                return Err(status.into());
            }
        };
        if end_of(&made).is_none() && !look.is_active(&made["metadata"]["uid"]) {
            let mut active = look.active();
            active.push(json!({
                "kind": "Job", "apiVersion": "batch/v1", "name": name, "namespace": namespace,
                "uid": made["metadata"]["uid"].clone(), "resourceVersion": made["metadata"]["resourceVersion"].clone(),
            }));
            look.set_active(active);
        }
        look.status["lastScheduleTime"] = time_text(due).as_str().into();
        Ok(())
    }

    async fn tell_status(&self, key: &str, look: &Look<'_>) -> Result<(), Failure> {
        let edit = |old: &Value| {
            if !is_same(old, look.cron_job) || old["status"] == look.status {
                return None;
            }
            let mut new = old.clone();
            new["status"] = look.status.clone();
            Some(new)
        };
        Ok(gone_is_fine(
            self.client.change(&self.resource, Some("status"), key, edit).await,
        )?)
    }

    fn tell(&self, cron_job: &Value, level: Level, reason: &'static str, message: String) {
        self.recorder.tell(cron_job, level, reason, message);
    }
}
