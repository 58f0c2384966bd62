//! What a Job tells of itself, and which of its Pods may go then.
//!
//! No Pod is counted twice or lost, whenever the process ends. The end of a Pod is first written into the status
//! (`uncountedTerminatedPods`, or its index), then its finalizer goes, then, when no finalizer is seen any more, the UID in the status
//! becomes one more in a counter. Each step is found again by what is stored.

use std::collections::HashSet;

use super::ending::End;
use super::policies::{Failed, meaning};
use super::spec::Member;
use super::tally::Tally;
use crate::controllers::event::Level;
use crate::resources::{condition, time_text};
use crate::tree::{List, Value, json};

/// UIDs of ended Pods in a status at most, so that it stays below 20 KB.
const UNCOUNTED_MAX: usize = 500;

/// What a look has come to.
pub(super) struct Outcome<'a> {
    pub(super) end: Option<&'a End>,
    pub(super) active: usize,
    pub(super) ready: usize,
    pub(super) terminating: usize,
    /// The number of Pods was seen to: it tells whether the Job is suspended.
    pub(super) is_sized: bool,
    pub(super) is_deleting: bool,
}

/// What is to be written, and what may be done when it is.
pub(super) struct Account {
    pub(super) status: Value,
    /// Places of Pods whose finalizers go.
    pub(super) released: Vec<usize>,
    /// What is told as Events.
    pub(super) events: Vec<(Level, &'static str, String)>,
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().map_or_else(Vec::new, |list| list.to_vec())
}

/// Draws up the account.
pub(super) fn account(job: &Value, tally: &Tally<'_>, outcome: &Outcome<'_>, now_s: i64) -> Account {
    let mut account = Account {
        status: job["status"].clone(),
        released: Vec::new(),
        events: Vec::new(),
    };
    if !account.status.is_object() {
        account.status = json!({});
    }
    if account.status["startTime"].is_null() && (!tally.spec.is_suspended || outcome.end.is_some()) {
        account.status["startTime"] = time_text(now_s).into();
    }
    let is_full = account.count(tally, outcome);
    account.set_count("active", outcome.active);
    account.status["ready"] = outcome.ready.into();
    account.status["terminating"] = outcome.terminating.into();
    match outcome.end {
        Some(end) if !end.is_told => account.set(end.first(), "True", &end.reason, &end.message, now_s),
        Some(end) => {
            let uncounted = &account.status["uncountedTerminatedPods"];
            let is_counted = list(&uncounted["succeeded"]).is_empty() && list(&uncounted["failed"]).is_empty();
            if is_counted && !is_full && account.released.is_empty() && outcome.terminating == 0 && outcome.active == 0
            {
                account.finish(tally, end, now_s);
            }
        }
        None if outcome.is_sized => account.tell_suspension(tally, now_s),
        None => {}
    }
    account
}

impl Account {
    /// 0 is not told.
    fn set_count(&mut self, field: &'static str, count: usize) {
        match self.status.as_object_mut() {
            Some(fields) if count == 0 => drop(fields.remove(field)),
            _ => self.status[field] = count.into(),
        }
    }

    /// Moves on the counting of each Pod that has ended by one step. `true`: there are more than fit.
    fn count(&mut self, tally: &Tally<'_>, outcome: &Outcome<'_>) -> bool {
        let tracked: HashSet<&str> = tally
            .members
            .iter()
            .filter(|member| member.is_tracked)
            .map(|member| member.uid)
            .collect();
        let mut uncounted = [Vec::new(), Vec::new()];
        for (kept, field) in uncounted.iter_mut().zip(["succeeded", "failed"]) {
            let before = list(&self.status["uncountedTerminatedPods"][field]);
            let count = before.len();
            kept.extend(
                before
                    .into_iter()
                    .filter(|uid| tracked.contains(uid.as_str().unwrap_or(""))),
            );
            let counted = self.status[field].as_u64().unwrap_or(0) + (count - kept.len()) as u64;
            self.set_count(field, usize::try_from(counted).unwrap_or(usize::MAX));
        }
        let mut members: Vec<(usize, &Member<'_>)> = tally.members.iter().enumerate().collect();
        if tally.spec.is_indexed {
            members.sort_by_key(|(_, member)| member.index);
        }
        let mut is_full = false;
        for (place, member) in members {
            if !member.is_tracked || !may_be_released(tally, outcome, place) {
                continue;
            }
            if uncounted[0].len() + uncounted[1].len() >= UNCOUNTED_MAX {
                is_full = true;
                break;
            }
            self.released.push(place);
            let is_known = |known: &HashSet<&str>| known.contains(member.uid);
            let is_success = member.has_succeeded() && !is_known(&tally.uncounted.failed);
            if is_success {
                // An index is enough not to count a success twice.
                if !tally.spec.is_indexed && !is_known(&tally.uncounted.succeeded) {
                    uncounted[0].push(member.uid.into());
                }
                continue;
            }
            // With the Job failed, what has not ended has failed, too.
            let has_failed = member.has_failed(tally.spec) || outcome.end.is_some_and(|end| !end.is_success);
            if has_failed
                && !is_known(&tally.uncounted.failed)
                && member.counts(tally.spec)
                && meaning(tally.spec, member) != Failed::Ignored
            {
                uncounted[1].push(member.uid.into());
            }
        }
        let [succeeded, failed] = uncounted;
        let mut uncounted = json!({});
        for (field, uids) in [("succeeded", succeeded), ("failed", failed)] {
            if !uids.is_empty() {
                uncounted[field] = uids.into();
            }
        }
        self.status["uncountedTerminatedPods"] = uncounted;
        if tally.spec.is_indexed {
            self.set_count("succeeded", tally.completed.total() as usize);
            match self.status.as_object_mut() {
                Some(fields) if tally.completed.total() == 0 => drop(fields.remove("completedIndexes")),
                _ => self.status["completedIndexes"] = tally.completed.text().into(),
            }
            if let Some(failed) = &tally.failed_indexes {
                self.status["failedIndexes"] = failed.text().into();
            }
        }
        is_full
    }

    /// Sets a condition; without a change of state it stays as it is.
    fn set(&mut self, kind: &str, state: &str, reason: &str, message: &str, now_s: i64) {
        let time = time_text(now_s);
        let new = json!({"type": kind, "status": state, "reason": reason, "message": message,
            "lastProbeTime": time, "lastTransitionTime": time});
        let mut conditions = list(&self.status["conditions"]);
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(old) => *old = new,
            None => conditions.push(new),
        }
        self.status["conditions"] = List::from(conditions).into();
    }

    fn finish(&mut self, tally: &Tally<'_>, end: &End, now_s: i64) {
        self.set(end.last(), "True", &end.reason, &end.message, now_s);
        if !end.is_success {
            let reason = REASONS.iter().find(|reason| **reason == end.reason).copied();
            self.events
                .push((Level::Warning, reason.unwrap_or("JobFailed"), end.message.clone()));
            return;
        }
        self.status["completionTime"] = time_text(now_s).into();
        if tally
            .spec
            .completions
            .is_some_and(|completions| tally.succeeded > completions)
        {
            let text = "Too many succeeded pods running after completion count reached";
            self.events
                .push((Level::Warning, "TooManySucceededPods", text.to_owned()));
        }
        self.events
            .push((Level::Normal, "Completed", "Job completed".to_owned()));
    }

    fn tell_suspension(&mut self, tally: &Tally<'_>, now_s: i64) {
        let before = json!({"status": self.status.clone()});
        let is = |state: &str| condition(&before, "Suspended").is_some_and(|condition| condition["status"] == state);
        if tally.spec.is_suspended {
            // When it goes on, its time begins anew.
            if let Some(fields) = self.status.as_object_mut() {
                fields.remove("startTime");
            }
            if !is("True") {
                self.set("Suspended", "True", "JobSuspended", "Job suspended", now_s);
                self.events
                    .push((Level::Normal, "Suspended", "Job suspended".to_owned()));
            }
        } else if is("True") {
            self.set("Suspended", "False", "JobResumed", "Job resumed", now_s);
            self.status["startTime"] = time_text(now_s).into();
            self.events.push((Level::Normal, "Resumed", "Job resumed".to_owned()));
        }
    }
}

/// Reasons of failures, as Events have them.
const REASONS: [&str; 5] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
];

/// Whether a Pod's finalizer may go once what it came to is written.
fn may_be_released(tally: &Tally<'_>, outcome: &Outcome<'_>, place: usize) -> bool {
    let member = &tally.members[place];
    if outcome.is_deleting || outcome.end.is_some() || member.has_succeeded() {
        return true;
    }
    let is_held = member.index.is_some_and(|index| tally.held.get(&index) == Some(&place));
    member.has_failed(tally.spec) && !is_held
}
