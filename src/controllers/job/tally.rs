//! What there is of a Job: successes and failures, those included that its status does not tell of yet.

use std::collections::{HashMap, HashSet};

use super::backoff::{Record, ended_ms};
use super::indexed::{failures_of, total_failures_of};
use super::indexes::Indexes;
use super::policies::{Failed, meaning};
use super::spec::{Member, Spec};
use crate::tree::Value;

/// Pods that the status names as ended while their finalizers may still be there (`status.uncountedTerminatedPods`).
#[derive(Default)]
pub(super) struct Uncounted<'a> {
    pub(super) succeeded: HashSet<&'a str>,
    pub(super) failed: HashSet<&'a str>,
}

impl<'a> Uncounted<'a> {
    fn of(job: &'a Value) -> Self {
        let set = |list: &str| {
            let uids = job["status"]["uncountedTerminatedPods"][list].as_array();
            uids.into_iter().flatten().filter_map(Value::as_str).collect()
        };
        Self {
            succeeded: set("succeeded"),
            failed: set("failed"),
        }
    }
}

/// The count of a Job.
pub(super) struct Tally<'a> {
    pub(super) spec: &'a Spec<'a>,
    pub(super) members: &'a [Member<'a>],
    pub(super) uncounted: Uncounted<'a>,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    /// Of an indexed Job.
    pub(super) completed: Indexes,
    /// Of one that has a limit for each index.
    pub(super) failed_indexes: Option<Indexes>,
    /// Failed Pods whose ends are kept from being counted until there is one in their place, which is to know how many failures there
    /// were: places in `members`, by index.
    pub(super) held: HashMap<u32, usize>,
    pub(super) record: Record,
}

impl<'a> Tally<'a> {
    /// `record`: failures in a row so far; `None` if they are to be found out by the Pods that are there.
    pub(super) fn of(job: &'a Value, spec: &'a Spec<'a>, members: &'a [Member<'a>], record: Option<Record>) -> Self {
        let uncounted = Uncounted::of(job);
        let is_new = |member: &&Member<'_>, known: &HashSet<&str>| {
            member.is_tracked && member.counts(spec) && !known.contains(member.uid)
        };
        let is_new_success = |member: &&Member<'_>| member.has_succeeded() && is_new(member, &uncounted.succeeded);
        let is_new_failure = |member: &&Member<'_>| member.has_failed(spec) && is_new(member, &uncounted.failed);
        let new_failed = members
            .iter()
            .filter(is_new_failure)
            .filter(|member| meaning(spec, member) != Failed::Ignored);
        let told = |field: &str| job["status"][field].as_i64().unwrap_or(0);
        let failed = told("failed") + (new_failed.count() + uncounted.failed.len()) as i64;
        let record = record.unwrap_or_else(|| {
            let times = |is: &dyn Fn(&&Member<'_>) -> bool| members.iter().filter(is).map(ended_ms).collect::<Vec<_>>();
            let succeeded = times(&|member| member.has_succeeded() && !is_new_success(member));
            let failed = times(&|member| member.has_failed(spec) && !is_new_failure(member));
            Record::default().with(&succeeded, &failed)
        });
        let times = |is: &dyn Fn(&&Member<'_>) -> bool| members.iter().filter(is).map(ended_ms).collect::<Vec<_>>();
        let record = record.with(&times(&is_new_success), &times(&is_new_failure));
        let mut tally = Self {
            spec,
            members,
            succeeded: told("succeeded")
                + (members.iter().filter(is_new_success).count() + uncounted.succeeded.len()) as i64,
            failed,
            uncounted,
            completed: Indexes::default(),
            failed_indexes: None,
            held: HashMap::new(),
            record,
        };
        if spec.is_indexed {
            tally.count_indexes(job);
        }
        tally
    }

    fn count_indexes(&mut self, job: &Value) {
        let (spec, members) = (self.spec, self.members);
        let told = |field: &str| Indexes::parse(job["status"][field].as_str().unwrap_or(""), spec.indexes());
        let (completed, failed) = (told("completedIndexes"), told("failedIndexes"));
        let tracked = || members.iter().filter(|member| member.is_tracked && member.counts(spec));
        // What the status said once stays so: no index both succeeds and fails.
        let succeeded = tracked()
            .filter(|member| member.has_succeeded())
            .filter_map(|member| member.index);
        self.completed = completed.with(succeeded.filter(|index| !failed.has(*index)));
        self.succeeded = i64::from(self.completed.total());
        if let Some(limit) = spec.backoff_limit_per_index {
            let lost = tracked()
                .filter(|member| self.fails_index(member, limit))
                .filter_map(|member| member.index);
            self.failed_indexes = Some(failed.with(lost.filter(|index| !self.completed.has(*index))));
            self.held = self.held();
        }
    }

    /// Whether its index has failed with this Pod.
    fn fails_index(&self, member: &Member<'_>, limit: i64) -> bool {
        member.has_failed(self.spec)
            && match meaning(self.spec, member) {
                Failed::Ignored => false,
                Failed::FailsIndex => true,
                Failed::Counts | Failed::FailsJob(_) => failures_of(member) >= limit,
            }
    }

    /// Of the failed Pods of each index that is neither done nor has a Pod, the one with the most failures behind it; of several
    /// such the one that ended last.
    fn held(&self) -> HashMap<u32, usize> {
        let active: HashSet<u32> = self.active().filter_map(|member| member.index).collect();
        let is_open = |index: u32| {
            let has_failed = self.failed_indexes.as_ref().is_some_and(|failed| failed.has(index));
            !has_failed && !self.completed.has(index) && !active.contains(&index)
        };
        let mut held: HashMap<u32, usize> = HashMap::new();
        for (place, member) in self.members.iter().enumerate() {
            let Some(index) = member.index else { continue };
            if !member.is_tracked || !member.counts(self.spec) || !member.has_failed(self.spec) || !is_open(index) {
                continue;
            }
            let rank = |place: usize| {
                let member = &self.members[place];
                (total_failures_of(member), ended_ms(member))
            };
            let entry = held.entry(index).or_insert(place);
            if rank(place) >= rank(*entry) {
                *entry = place;
            }
        }
        held
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &'a Member<'a>> + use<'a> {
        self.members.iter().filter(|member| member.is_active())
    }

    /// Places of those that are active.
    pub(super) fn active_places(&self) -> Vec<usize> {
        let places = 0..self.members.len();
        places.filter(|place| self.members[*place].is_active()).collect()
    }

    /// How many are going and have not ended.
    pub(super) fn terminating(&self) -> usize {
        self.members.iter().filter(|member| member.is_terminating()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    fn pod(uid: &str, phase: &str, is_tracked: bool, index: u32) -> Value {
        let finalizers: &[&str] = if is_tracked { &[super::super::TRACKED] } else { &[] };
        json!({"metadata": {"uid": uid, "finalizers": finalizers, "annotations": {super::super::spec::INDEX: index.to_string()},
            "creationTimestamp": "1970-01-01T00:00:01Z"}, "status": {"phase": phase}})
    }

    #[test]
    fn a_pod_counts_once_whether_its_status_is_written_or_its_finalizer_gone() {
        let job = json!({"spec": {}, "status": {"succeeded": 2, "failed": 1,
            "uncountedTerminatedPods": {"succeeded": ["written", "gone"], "failed": ["f"]}}});
        let pods = [
            pod("new", "Succeeded", true, 0),
            pod("written", "Succeeded", true, 0),
            pod("counted", "Succeeded", false, 0),
            pod("f", "Failed", false, 0),
            pod("new failure", "Failed", true, 0),
            pod("runs", "Running", true, 0),
        ];
        let members: Vec<Member<'_>> = pods.iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, Some(Record::default()));
        assert_eq!((tally.succeeded, tally.failed), (5, 3));
        assert_eq!(tally.active_places(), [5]);
        // The one that succeeded is not later than the one that failed.
        assert_eq!(tally.record, Record::default());
    }

    #[test]
    fn an_index_succeeds_or_fails_once() {
        let mut job = json!({"spec": {"completionMode": "Indexed", "completions": 6, "backoffLimitPerIndex": 1},
            "status": {"completedIndexes": "0", "failedIndexes": "1"}});
        let with_failures = |mut pod: Value, failures: &str| {
            pod["metadata"]["annotations"][super::super::indexed::FAILURES] = failures.into();
            pod
        };
        let pods = [
            pod("a", "Succeeded", true, 0),
            pod("b", "Succeeded", true, 1),
            pod("c", "Succeeded", true, 2),
            with_failures(pod("d", "Failed", true, 3), "1"),
            with_failures(pod("e", "Failed", true, 4), "0"),
            pod("f", "Succeeded", true, 9),
            with_failures(pod("g", "Failed", true, 5), "0"),
            pod("h", "Running", true, 5),
        ];
        let members: Vec<Member<'_>> = pods.iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, None);
        assert_eq!(tally.completed.text(), "0,2");
        assert_eq!(tally.succeeded, 2);
        assert_eq!(tally.failed_indexes.as_ref().unwrap().text(), "1,3");
        assert_eq!(tally.held, HashMap::from([(4, 4)]));
        // Fewer completions: those that are beyond count no more.
        job["spec"]["completions"] = 1.into();
        let spec = Spec::of(&job);
        assert_eq!(Tally::of(&job, &spec, &members, None).succeeded, 1);
    }
}
