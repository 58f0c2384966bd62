//! Jobs: Pods until enough of them have succeeded.
//!
//! A look counts what there is, decides whether the Job is over and how many Pods it is to have, makes or deletes them, writes
//! what it came to, and lets those Pods go whose end is written. It goes by what is stored alone, so that it may end at any point.
//!
//! | file | what it does |
//! | --- | --- |
//! | `spec` | what a Job asks for; one Pod of it |
//! | `indexes` | sets of completion indexes |
//! | `indexed` | what an index means to its Pods |
//! | `policies` | what failures mean, and which successes are enough |
//! | `backoff` | how long a failure is waited for |
//! | `tally` | what there is |
//! | `ending` | whether it is over, and why |
//! | `size` | how many Pods there are to be |
//! | `status` | what is told, and which Pods may go then |
//! | `orphans` | Pods whose Job is gone may go, too |
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/job/>; counting: KEP-2307.

mod backoff;
mod ending;
mod indexed;
mod indexes;
mod orphans;
mod policies;
mod size;
mod spec;
mod status;
mod tally;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::claim::{Claimant, Kind, Tracking};
use super::crew::Crew;
use super::event::Recorder;
use super::failure::Failure;
use super::finished;
use super::metadata::{Metadata, is_same, name_of};
use super::pace::Pace;
use super::pod;
use super::queue::Done;
use super::runtime::{Change, Controller};
use super::selector;
use crate::api::Client;
use crate::resources::{self, DELETING, ResourceRef};
use crate::store::{Damaged, Object, Range, Requirement, Selection, View};
use crate::tree::Value;
use backoff::Record;
use ending::End;
use size::Act;
use spec::{Member, Spec};
use status::Outcome;
use tally::Tally;

const JOBS: Kind = Kind {
    storage: "jobs.batch",
    group: "batch",
    kind: "Job",
    selection: selector::selection,
};
const PODS: &str = "pods";
/// The finalizer of Pods whose end is not counted yet.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// Who manages Jobs that do not say who does.
const MANAGER: &str = "kubernetes.io/job-controller";
/// When what could not be done is tried again at the latest: nobody tells that a quota has room again.
const RETRY_MAX: Duration = Duration::from_mins(1);
/// What keys of Pods begin with in the queue, whose other keys are those of Jobs.
const POD_KEY: &str = "pod:";

/// The controller of Jobs.
pub(super) struct Jobs {
    client: Client,
    recorder: Recorder,
    resource: ResourceRef,
    pods: ResourceRef,
    /// Failures in a row, by the keys of Jobs that had any: about 150 bytes each, 15 MB for 100,000 such Jobs at work. After a restart they
    /// are found out by the Pods that are there.
    records: Mutex<HashMap<String, (String, Record)>>,
    pace: Pace,
}

impl Jobs {
    /// `None` if there is no such kind.
    pub(super) fn new(client: Client, recorder: Recorder) -> Option<Self> {
        Some(Self {
            client,
            recorder,
            resource: resources::stored(JOBS.storage)?.into(),
            pods: resources::stored(PODS)?.into(),
            records: Mutex::default(),
            pace: Pace::default(),
        })
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, (String, Record)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Failures in a row of a Job; `None`: they are not known.
    fn record(&self, key: &str, job: &Value) -> Option<Record> {
        let known = self
            .records()
            .get(key)
            .filter(|(uid, _)| job["metadata"]["uid"] == *uid)
            .map(|(_, record)| *record);
        known.or_else(|| (!has_failures(&job["status"])).then(Record::default))
    }

    fn remember(&self, key: &str, job: &Value, status: &Value, record: Record) {
        let uid = job["metadata"]["uid"].as_str().unwrap_or("");
        let mut records = self.records();
        if record != Record::default() || has_failures(status) {
            records.insert(key.to_owned(), (uid.to_owned(), record));
        } else {
            records.remove(key);
        }
    }
}

impl Controller for Jobs {
    fn resource(&self) -> &'static str {
        JOBS.storage
    }

    fn watches(&self) -> &'static [&'static str] {
        &[PODS]
    }

    fn concerned(&self, change: &Change<'_>, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let mut keys = JOBS.concerned(&self.client, &self.resource, change, view)?;
        if !change.is_gone && orphans::is_orphan(change.object, view)? {
            keys.push(orphans::key_of(change.object));
        }
        Ok(keys)
    }

    fn retry_max(&self) -> Duration {
        RETRY_MAX
    }

    fn left_over(&self, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        // Others hinder nobody, and are found when they are deleted.
        let deleting = Selection {
            requirements: vec![Requirement::FieldIs {
                name: DELETING.0.to_owned(),
                value: DELETING.1.to_owned(),
            }],
        };
        orphans::among(view, Range::default(), &deleting)
    }

    fn bereaved(&self, gone: &Object, view: &Arc<View>) -> Result<Vec<Arc<str>>, Failure> {
        let range = Range {
            namespace: gone.namespace().map(str::to_owned),
            after: None,
        };
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(gone.sidecar()?.uid.as_str().to_owned())],
        };
        orphans::among(view, range, &owned)
    }

    async fn look(&self, key: &str) -> Result<Done, Failure> {
        if let Some(pod) = key.strip_prefix(POD_KEY) {
            return self.let_orphan_go(pod).await;
        }
        let began = Instant::now();
        let view = self.client.store().view();
        let Some(object) = view.get(JOBS.storage, key)? else {
            self.records().remove(key);
            self.pace.forget(key);
            return Ok(Done::Settled);
        };
        let job = self.client.read(&self.resource, &object)?;
        if is_managed_elsewhere(&job) {
            return Ok(Done::Settled);
        }
        if finished::end_of(&job).is_some() {
            self.records().remove(key);
            // All were let go before; whoever put a finalizer on since shall not be hindered by it.
            let tracked = self.tracked_pods(&view, &job)?;
            self.let_go(tracked.iter()).await?;
            return Ok(Done::Settled);
        }
        if let Some(rest) = self.pace.rest(key, &job) {
            return Ok(Done::After(rest));
        }
        let Some(selection) = selector::selection(&job["spec"]["selector"]) else {
            return Ok(Done::Settled);
        };
        let claimant = Claimant {
            client: &self.client,
            dependents: &self.pods,
            owner: &job,
            selection: &selection,
            may_adopt: |_| true,
        };
        let record = self.record(key, &job);
        let tracking = Tracking {
            finalizer: TRACKED,
            is_settled: if record.is_some() { is_counted } else { |_| Ok(false) },
        };
        let pods = claimant.claim_tracked(&view, &tracking).await?;
        let members: Vec<Member<'_>> = pods.iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        let look = Look {
            key,
            job: &job,
            pods: &pods,
            tally: Tally::of(&job, &spec, &members, record),
            now_ms: jiff::Timestamp::now().as_millisecond(),
        };
        let took = began.elapsed();
        self.act(&look, took).await
    }
}

/// Whether a status tells of failures.
fn has_failures(status: &Value) -> bool {
    status["failed"].as_i64().unwrap_or(0) > 0 || !status["uncountedTerminatedPods"]["failed"].is_null()
}

/// Whether somebody else sees to the Job (`spec.managedBy`, KEP-4368).
fn is_managed_elsewhere(job: &Value) -> bool {
    job["spec"]["managedBy"]
        .as_str()
        .is_some_and(|manager| manager != MANAGER)
}

/// Whether a Pod is over and counted: nothing is to be learned of it. Told by its bytes, for a Job may have very many.
fn is_counted(object: &Object) -> Result<bool, Damaged> {
    let is_over = matches!(object.sidecar()?.field("status.phase"), Some("Succeeded" | "Failed"));
    Ok(is_over && !orphans::may_be_tracked(object)?)
}

/// What one look goes by.
struct Look<'a> {
    key: &'a str,
    job: &'a Value,
    pods: &'a [Value],
    tally: Tally<'a>,
    now_ms: i64,
}

/// What became of the number of Pods.
#[derive(Default)]
struct Sized {
    removed: Vec<usize>,
    made: usize,
    failed: Option<Failure>,
    wait: Option<Duration>,
}

impl Jobs {
    /// `took`: how long it took to read what the look goes by.
    async fn act(&self, look: &Look<'_>, took: Duration) -> Result<Done, Failure> {
        let (job, tally, now_s) = (look.job, &look.tally, look.now_ms / 1000);
        let is_deleting = !job["metadata"]["deletionTimestamp"].is_null();
        let mut end = ending::end(job, tally, now_s);
        let is_sized = end.is_none() && !is_deleting;
        let sized = if end.is_some() {
            self.remove(look, tally.active_places()).await
        } else if is_sized {
            self.size(look).await
        } else {
            Sized::default()
        };
        if sized.made == 0 && sized.removed.is_empty() {
            self.pace.note(look.key, job, took);
        }
        // Places of what is gone come in order.
        let stays = |place: usize| sized.removed.binary_search(&place).is_err();
        let active: Vec<usize> = tally
            .active_places()
            .into_iter()
            .filter(|place| stays(*place))
            .collect();
        if end.is_some() && !active.is_empty() {
            // It is not said that a Job ends as long as Pods of it cannot be deleted.
            end = None;
        } else if end.is_none() {
            end = ending::reached(tally, active.len() + sized.made);
        }
        let outcome = Outcome {
            end: end.as_ref(),
            active: active.len() + sized.made,
            ready: active.iter().filter(|place| pod::is_ready(&look.pods[**place])).count(),
            terminating: tally.terminating() + sized.removed.len(),
            is_sized,
            is_deleting,
        };
        let account = status::account(job, tally, &outcome, now_s);
        if !self.write(look, &account.status).await? {
            return Ok(Done::Again);
        }
        self.remember(look.key, job, &account.status, tally.record);
        for (level, reason, message) in account.events {
            self.recorder.tell(job, level, reason, message);
        }
        self.let_go(account.released.iter().map(|place| &look.pods[*place]))
            .await?;
        if let Some(failure) = sized.failed {
            return Err(failure);
        }
        Ok(self.next(look, &account.status, &sized, end.as_ref()))
    }

    /// When to look again, if nothing happens until then.
    #[allow(clippy::unused_self, reason = "it is a step of a look as the others are")]
    fn next(&self, look: &Look<'_>, status: &Value, sized: &Sized, end: Option<&End>) -> Done {
        let started_s = pod::seconds(&status["startTime"]);
        let spec = look.tally.spec;
        let deadline_s = spec
            .deadline_s
            .zip(started_s)
            .filter(|_| end.is_none() && !spec.is_suspended);
        let deadline = deadline_s.map(|(deadline_s, started_s)| {
            let due_ms = started_s.saturating_add(deadline_s).saturating_mul(1000);
            Duration::from_millis(u64::try_from(due_ms.saturating_sub(look.now_ms)).unwrap_or(0))
        });
        deadline
            .into_iter()
            .chain(sized.wait)
            .min()
            .map_or(Done::Settled, Done::After)
    }

    fn crew<'a>(&'a self, job: &'a Value) -> Crew<'a> {
        Crew {
            client: &self.client,
            recorder: &self.recorder,
            pods: &self.pods,
            owner: job,
        }
    }

    async fn remove(&self, look: &Look<'_>, places: Vec<usize>) -> Sized {
        let removed = self.crew(look.job).remove(look.pods, places).await;
        Sized {
            removed: removed.places,
            failed: removed.failed,
            ..Sized::default()
        }
    }

    /// Brings the number of Pods to what it is to be.
    async fn size(&self, look: &Look<'_>) -> Sized {
        let (job, tally) = (look.job, &look.tally);
        let template = || {
            let mut pod = pod::of_template(&job["spec"]["template"], job);
            let mut finalizers = pod["metadata"]["finalizers"]
                .as_array()
                .map_or_else(Vec::new, |list| list.to_vec());
            if !finalizers.iter().any(|finalizer| *finalizer == TRACKED) {
                finalizers.push(TRACKED.into());
            }
            pod["metadata"]["finalizers"] = finalizers.into();
            pod
        };
        let pods = match size::act(tally, look.now_ms) {
            Act::Nothing => return Sized::default(),
            Act::Wait(wait) => {
                return Sized {
                    wait: Some(wait),
                    ..Sized::default()
                };
            }
            Act::Remove(places) => {
                // They do not count as failed: first their finalizers go.
                if let Err(failure) = self.let_go(places.iter().map(|place| &look.pods[*place])).await {
                    return Sized {
                        failed: Some(failure),
                        ..Sized::default()
                    };
                }
                return self.remove(look, places).await;
            }
            Act::Make(count) => vec![template(); count],
            Act::MakeFor(indexes) => {
                let template = template();
                let pod_for = |index: u32| {
                    let mut pod = template.clone();
                    let replaced = tally.held.get(&index).map(|place| &tally.members[*place]);
                    indexed::assign(&mut pod, name_of(job), index, tally.spec, replaced);
                    pod
                };
                indexes.into_iter().map(pod_for).collect()
            }
        };
        let made = self.crew(job).make(pods.into_iter()).await;
        Sized {
            made: made.pods.len(),
            failed: made.failed,
            ..Sized::default()
        }
    }

    /// Writes the status of the Job that was looked at. `false`: it is another one by now.
    async fn write(&self, look: &Look<'_>, status: &Value) -> Result<bool, Failure> {
        if *status == look.job["status"] {
            return Ok(true);
        }
        let was_as_seen = AtomicBool::new(true);
        let edit = |old: &Value| {
            let is_as_seen = is_same(old, look.job)
                && old["status"] == look.job["status"]
                && old["metadata"]["generation"] == look.job["metadata"]["generation"];
            was_as_seen.store(is_as_seen, Ordering::Relaxed);
            if !is_as_seen {
                return None;
            }
            let mut new = old.clone();
            new["status"] = status.clone();
            Some(new)
        };
        match self.client.change(&self.resource, Some("status"), look.key, edit).await {
            // What becomes of its Pods is seen to when they have lost it.
            Err(status) if status.code == 404 => Ok(false),
            Err(status) => Err(status.into()),
            Ok(()) => Ok(was_as_seen.into_inner()),
        }
    }

    /// The Pods of a Job that still have the finalizer.
    fn tracked_pods(&self, view: &Arc<View>, job: &Value) -> Result<Vec<Value>, Failure> {
        let uid = job["metadata"]["uid"].as_str().unwrap_or("");
        let range = Range {
            namespace: job["metadata"]["namespace"].as_str().map(str::to_owned),
            after: None,
        };
        let owned = Selection {
            requirements: vec![Requirement::OwnedBy(uid.to_owned())],
        };
        let mut tracked = Vec::new();
        orphans::each(view, range, &owned, |object| {
            if orphans::may_be_tracked(object)?
                && Metadata::of(object)?.controller().is_some_and(|owner| owner.uid == uid)
            {
                tracked.push(self.client.read(&self.pods, object)?);
            }
            Ok(())
        })?;
        Ok(tracked)
    }
}
