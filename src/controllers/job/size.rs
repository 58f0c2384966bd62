//! How many Pods a Job is to have now: which are made, which go, and what is waited for.

use std::collections::HashSet;
use std::time::Duration;

use super::backoff::Record;
use super::backoff::ended_ms;
use super::indexed::{pending, surplus, total_failures_of};
use super::tally::Tally;
use crate::controllers::pod;

/// Pods that one look makes or deletes at most.
const BURST: usize = 500;

/// What is to be done about the number of Pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    /// Places of Pods that go, and do not count as failed.
    Remove(Vec<usize>),
    /// So many Pods.
    Make(usize),
    /// A Pod for each of these indexes.
    MakeFor(Vec<u32>),
    /// Pods are made in place of failed ones later.
    Wait(Duration),
}

/// Decides it.
pub(super) fn act(tally: &Tally<'_>, now_ms: i64) -> Act {
    let spec = tally.spec;
    let mut active = tally.active_places();
    if spec.is_suspended {
        return remove(active);
    }
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let has = number(active.len());
    let wanted = match spec.completions {
        // Once one has succeeded the others are left to end.
        None if tally.succeeded > 0 => has,
        None => spec.parallelism,
        Some(completions) => (completions - tally.succeeded).min(spec.parallelism).max(0),
    };
    let too_many = usize::try_from(has - wanted).unwrap_or(0);
    active.sort_by_cached_key(|place| pod::deletion_order(tally.members[*place].pod, 0, now_ms / 1000));
    let mut gone = if spec.is_indexed {
        surplus(tally, &active)
    } else {
        Vec::new()
    };
    let more = too_many.saturating_sub(gone.len());
    let known: HashSet<usize> = gone.iter().copied().collect();
    gone.extend(active.into_iter().filter(|place| !known.contains(place)).take(more));
    gone.truncate(BURST);
    if !gone.is_empty() {
        return remove(gone);
    }
    let terminating = if spec.replaces_only_failed {
        number(tally.terminating())
    } else {
        0
    };
    let missing = usize::try_from(wanted - terminating - has).unwrap_or(0).min(BURST);
    if missing == 0 {
        return Act::Nothing;
    }
    if spec.backoff_limit_per_index.is_none() {
        let wait = tally.record.wait(now_ms);
        if !wait.is_zero() {
            return Act::Wait(wait);
        }
    }
    if !spec.is_indexed {
        return Act::Make(missing);
    }
    // Indexes wait by themselves.
    let (mut ready, mut soonest) = (Vec::new(), None);
    for index in pending(tally, missing) {
        match wait_of(tally, index, now_ms) {
            Duration::ZERO => ready.push(index),
            wait => soonest = Some(soonest.map_or(wait, |sooner: Duration| sooner.min(wait))),
        }
    }
    match soonest {
        _ if !ready.is_empty() => Act::MakeFor(ready),
        Some(wait) => Act::Wait(wait),
        None => Act::Nothing,
    }
}

fn remove(mut places: Vec<usize>) -> Act {
    if places.is_empty() {
        return Act::Nothing;
    }
    places.truncate(BURST);
    Act::Remove(places)
}

fn wait_of(tally: &Tally<'_>, index: u32, now_ms: i64) -> Duration {
    let Some(held) = tally.held.get(&index).map(|place| &tally.members[*place]) else {
        return Duration::ZERO;
    };
    let record = Record {
        failures: u32::try_from(total_failures_of(held) + 1).unwrap_or(u32::MAX),
        last_ms: ended_ms(held),
    };
    record.wait(now_ms)
}

#[cfg(test)]
mod tests {
    use super::super::spec::{INDEX, Member, Spec};
    use super::*;
    use crate::tree::{Value, json};

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn of(spec: Value, status: Value, phases: &[&str]) -> Act {
        let job = json!({"spec": spec, "status": status});
        let pods: Vec<Value> = phases
            .iter()
            .enumerate()
            .map(|(place, phase)| {
                let mut pod = json!({"metadata": {"uid": place.to_string(), "finalizers": [super::super::TRACKED],
                    "annotations": {INDEX: place.to_string()}, "creationTimestamp": "1970-01-01T00:00:01Z"},
                    "status": {"phase": phase.trim_end_matches('!')}});
                if phase.ends_with('!') {
                    pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:01Z".into();
                }
                pod
            })
            .collect();
        let members: Vec<Member<'_>> = pods.iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        act(&Tally::of(&job, &spec, &members, None), 100_000)
    }

    #[test]
    fn no_more_run_than_are_asked_for_at_once_or_are_left_to_do() {
        let spec = |parallelism: i64, completions: i64| json!({"parallelism": parallelism, "completions": completions});
        assert_eq!(of(spec(3, 10), json!({}), &[]), Act::Make(3));
        assert_eq!(of(spec(3, 10), json!({"succeeded": 8}), &["Running"]), Act::Make(1));
        assert_eq!(
            of(spec(3, 10), json!({"succeeded": 9}), &["Running", "Pending"]),
            Act::Remove(vec![1])
        );
        assert_eq!(of(spec(2, 10), json!({}), &["Running", "Running"]), Act::Nothing);
        assert_eq!(of(spec(0, 10), json!({}), &["Running"]), Act::Remove(vec![0]));
        assert_eq!(of(spec(9000, 10_000), json!({}), &[]), Act::Make(500));
        // Without a number of completions: as many at once, until one has succeeded.
        assert_eq!(of(json!({"parallelism": 2}), json!({}), &["Running"]), Act::Make(1));
        assert_eq!(
            of(json!({"parallelism": 2}), json!({}), &["Running", "Succeeded"]),
            Act::Nothing
        );
        let suspended = json!({"parallelism": 2, "completions": 2, "suspend": true});
        assert_eq!(
            of(suspended.clone(), json!({}), &["Running", "Running!"]),
            Act::Remove(vec![0])
        );
        assert_eq!(of(suspended, json!({}), &[]), Act::Nothing);
    }

    #[test]
    fn one_that_goes_is_replaced_at_once_or_when_it_has_ended() {
        let spec = |policy: &str| json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": policy});
        assert_eq!(
            of(spec("TerminatingOrFailed"), json!({}), &["Running", "Running!"]),
            Act::Make(1)
        );
        assert_eq!(of(spec("Failed"), json!({}), &["Running", "Running!"]), Act::Nothing);
        assert_eq!(of(spec("Failed"), json!({}), &["Running", "Failed!"]), Act::Make(1));
    }

    #[test]
    fn what_failed_lately_is_waited_for_by_the_job_or_by_its_index() {
        let mut late = json!({"parallelism": 2, "completions": 2});
        let status = json!({});
        assert_eq!(of(late.clone(), status.clone(), &["Failed"]), Act::Make(2));
        late["completionMode"] = "Indexed".into();
        assert_eq!(of(late.clone(), status.clone(), &["Failed"]), Act::MakeFor(vec![0, 1]));
        let job = json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3}});
        let pod = json!({"metadata": {"uid": "u", "finalizers": [super::super::TRACKED], "annotations": {INDEX: "0"},
            "creationTimestamp": "1970-01-01T00:01:35Z"}, "status": {"phase": "Failed"}});
        let members = [Member::of(&pod)];
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, None);
        // Index 1 need not wait for index 0.
        assert_eq!(act(&tally, 100_000), Act::MakeFor(vec![1]));
        assert_eq!(act(&tally, 105_000), Act::MakeFor(vec![0, 1]));
        let job = json!({"spec": {"parallelism": 2, "completions": 2}});
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, None);
        assert_eq!(act(&tally, 100_000), Act::Wait(Duration::from_secs(5)));
    }
}
