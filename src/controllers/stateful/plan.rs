//! What is to be done next about the Pods of a set.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#deployment-and-scaling-guarantees>. A set whose Pods
//! are ordered goes one step at a time: a Pod is made when those before it are available, and deleted when those after it are gone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::identity;
use crate::controllers::pod;
use crate::tree::Value;

/// Pods that one look makes at most.
const MAKE_MAX: usize = 500;

/// The Pods of a set.
pub(super) struct Pods {
    /// The ordinals that the set wants.
    wanted: Range<i64>,
    /// Those that it has of them, by ordinal.
    pub(super) replicas: BTreeMap<i64, Value>,
    /// Those whose ordinals it wants no longer, the highest first.
    pub(super) surplus: Vec<Value>,
}

/// Which Pod: by its ordinal, or its place in [`Pods::surplus`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Replica(i64),
    Surplus(usize),
}

/// Something that is to be done. Steps are done in their order; what fails ends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The Pod with this ordinal is missing; so may be its claims.
    Make(i64),
    /// The Pod with this ordinal has not started, and may lack claims.
    Claim(i64),
    /// A Pod keeps its identity, its volumes, and its claims their owners.
    Keep(Place),
    /// A Pod goes.
    Remove(Place),
}

/// How a set wants its Pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) is_parallel: bool,
    /// The revision that Pods are brought to; `None`: none is replaced.
    pub(super) update: Option<&'a str>,
    /// The first ordinal whose Pod is.
    pub(super) partition: i64,
    pub(super) min_ready_s: i64,
    pub(super) now_s: i64,
}

impl Pods {
    /// Sorts the Pods of a set by their ordinals.
    pub(super) fn of(set: &Value, pods: Vec<Value>) -> Self {
        let start = identity::start(set);
        let wanted = start..start + identity::replicas(set);
        let (mut replicas, mut surplus) = (BTreeMap::new(), Vec::new());
        for pod in pods {
            match identity::ordinal(set, &pod) {
                Some(ordinal) if wanted.contains(&ordinal) => drop(replicas.insert(ordinal, pod)),
                Some(ordinal) => surplus.push((ordinal, pod)),
                None => {}
            }
        }
        surplus.sort_by_key(|(ordinal, _)| Reverse(*ordinal));
        Self {
            wanted,
            replicas,
            surplus: surplus.into_iter().map(|(_, pod)| pod).collect(),
        }
    }

    pub(super) fn get(&self, place: Place) -> Option<&Value> {
        match place {
            Place::Replica(ordinal) => self.replicas.get(&ordinal),
            Place::Surplus(place) => self.surplus.get(place),
        }
    }

    /// Notes that a Pod is being deleted.
    pub(super) fn note_deletion(&mut self, place: Place) {
        let pod = match place {
            Place::Replica(ordinal) => self.replicas.get_mut(&ordinal),
            Place::Surplus(place) => self.surplus.get_mut(place),
        };
        if let Some(pod) = pod.filter(|pod| !is_deleting(pod)) {
            pod["metadata"]["deletionTimestamp"] = "now".into();
        }
    }

    /// All that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        self.replicas.values().chain(&self.surplus)
    }
}

pub(super) fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a Pod ended within the second in which it was made. It stays until that is over: Pods that a node refuses would follow each
/// other as fast as they can be written.
pub(super) fn ended_at_once(pod: &Value, now_s: i64) -> bool {
    let made_s = pod::seconds(&pod["metadata"]["creationTimestamp"]);
    pod::is_over(pod) && !is_deleting(pod) && made_s.is_some_and(|made_s| now_s <= made_s)
}

impl Wish<'_> {
    /// The next steps towards what is wished.
    pub(super) fn steps(&self, pods: &Pods) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.fill(pods, &mut steps) && self.shrink(pods, &mut steps) {
            self.update(pods, &mut steps);
        }
        steps
    }

    fn is_running(&self, pod: &Value) -> bool {
        pod["status"]["phase"] == "Running" && pod::is_available(pod, self.min_ready_s, self.now_s)
    }

    /// Whether it does its work: it is available, and not going.
    fn is_well(&self, pod: &Value) -> bool {
        pod::is_available(pod, self.min_ready_s, self.now_s) && !is_deleting(pod)
    }

    /// Every ordinal has its Pod. Says whether there may be more to do.
    fn fill(&self, pods: &Pods, steps: &mut Vec<Step>) -> bool {
        let made_max = if self.is_parallel { MAKE_MAX } else { 1 };
        let missing = pods
            .wanted
            .clone()
            .filter(|ordinal| !pods.replicas.contains_key(ordinal));
        let mut missing = missing.take(made_max).peekable();
        for (&ordinal, pod) in &pods.replicas {
            while let Some(before) = missing.next_if(|missing| *missing < ordinal) {
                steps.push(Step::Make(before));
                if !self.is_parallel {
                    return false;
                }
            }
            if pod::is_over(pod) {
                // Its successor is made when it is gone.
                if !is_deleting(pod) && !ended_at_once(pod, self.now_s) {
                    steps.push(Step::Remove(Place::Replica(ordinal)));
                }
                if self.is_parallel {
                    continue;
                }
                return false;
            }
            if pod["status"]["phase"] == "Pending" {
                steps.push(Step::Claim(ordinal));
            }
            if !self.is_parallel && (is_deleting(pod) || !self.is_running(pod)) {
                return false;
            }
            steps.push(Step::Keep(Place::Replica(ordinal)));
        }
        let before = steps.len();
        steps.extend(missing.map(Step::Make));
        self.is_parallel || steps.len() == before
    }

    /// What is beyond the size of the set goes, from the highest ordinal down.
    fn shrink(&self, pods: &Pods, steps: &mut Vec<Step>) -> bool {
        let places = || (0..pods.surplus.len()).map(Place::Surplus);
        steps.extend(places().map(Step::Keep));
        if self.is_parallel {
            let living = pods.surplus.iter().zip(places()).filter(|(pod, _)| !is_deleting(pod));
            steps.extend(living.map(|(_, place)| Step::Remove(place)));
            return true;
        }
        let Some(highest) = pods.surplus.first() else {
            return true;
        };
        // Those before it must be well; but the lowest one that is not is waited for by nobody.
        let lowest_unwell = pods.surplus.iter().rposition(|pod| !self.is_well(pod));
        if !is_deleting(highest) && (self.is_running(highest) || lowest_unwell == Some(0)) {
            steps.push(Step::Remove(Place::Surplus(0)));
        }
        false
    }

    /// One Pod of another revision goes, the one with the highest ordinal, when those after it are well.
    fn update(&self, pods: &Pods, steps: &mut Vec<Step>) {
        let Some(revision) = self.update else { return };
        let from = self.partition.max(pods.wanted.start);
        for ordinal in (from..pods.wanted.end).rev() {
            let Some(pod) = pods.replicas.get(&ordinal).filter(|pod| !pod::is_over(pod)) else {
                return;
            };
            if identity::revision_of(pod) != revision && !is_deleting(pod) {
                return steps.push(Step::Remove(Place::Replica(ordinal)));
            }
            if !self.is_well(pod) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    const WELL: &str = "well";

    /// A Pod that is well, starting, unready, over or going, of the present revision unless it says `old`.
    fn pod(name: &str, state: &str) -> Value {
        let revision = if state.contains("old") { "old" } else { "new" };
        let mut pod = json!({"metadata": {"name": name, "labels": {"controller-revision-hash": revision}},
            "status": {"phase": "Running", "conditions": []}});
        if state.contains(WELL) || state.contains("going") {
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]);
        }
        if state.contains("going") {
            pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:20Z".into();
        }
        for (word, phase) in [("starting", "Pending"), ("failed", "Failed"), ("done", "Succeeded")] {
            if state.contains(word) {
                pod["status"]["phase"] = phase.into();
            }
        }
        pod
    }

    /// The steps of a set of this size whose Pods are in these states, `""` for none.
    fn steps(wish: &Wish<'_>, size: i64, states: &[&str]) -> Vec<Step> {
        let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": size}});
        let pods = states.iter().enumerate().filter(|(_, state)| !state.is_empty());
        let pods = pods.map(|(ordinal, state)| pod(&format!("s-{ordinal}"), state));
        let pods = Pods::of(&set, pods.collect());
        let steps = wish.steps(&pods).into_iter();
        steps.filter(|step| !matches!(step, Step::Keep(_))).collect()
    }

    fn wish() -> Wish<'static> {
        Wish {
            is_parallel: false,
            update: Some("new"),
            partition: 0,
            min_ready_s: 0,
            now_s: 100,
        }
    }

    const fn gone(ordinal: i64) -> Step {
        Step::Remove(Place::Replica(ordinal))
    }

    const fn beyond(place: usize) -> Step {
        Step::Remove(Place::Surplus(place))
    }

    #[test]
    fn a_pod_is_made_when_those_before_it_are_well() {
        let wish = wish();
        assert_eq!(steps(&wish, 3, &[]), [Step::Make(0)]);
        assert_eq!(steps(&wish, 3, &["starting"]), [Step::Claim(0)]);
        assert_eq!(steps(&wish, 3, &["unready"]), []);
        assert_eq!(steps(&wish, 3, &[WELL]), [Step::Make(1)]);
        assert_eq!(steps(&wish, 3, &[WELL, "", WELL]), [Step::Make(1)]);
        assert_eq!(steps(&wish, 3, &["unready", "", WELL]), []);
        assert_eq!(steps(&wish, 2, &["failed", WELL]), [gone(0)]);
        assert_eq!(steps(&wish, 2, &["done", WELL]), [gone(0)]);
        assert_eq!(steps(&wish, 2, &["failed going", WELL]), []);
        assert_eq!(steps(&wish, 2, &["going", ""]), []);
        let patient = Wish {
            min_ready_s: 91,
            ..wish
        };
        assert_eq!(steps(&patient, 2, &[WELL]), []);
        assert_eq!(steps(&Wish { now_s: 101, ..patient }, 2, &[WELL]), [Step::Make(1)]);
    }

    #[test]
    fn a_pod_that_ends_at_once_has_its_successor_a_second_later() {
        let mut pod = pod("s-0", "failed");
        pod["metadata"]["creationTimestamp"] = "1970-01-01T00:01:40Z".into();
        let set = json!({"metadata": {"name": "s"}, "spec": {"replicas": 1}});
        let pods = Pods::of(&set, vec![pod]);
        assert_eq!(wish().steps(&pods), []);
        assert_eq!(Wish { now_s: 101, ..wish() }.steps(&pods), [gone(0)]);
    }

    #[test]
    fn pods_that_are_too_many_go_from_the_highest_down() {
        let wish = wish();
        assert_eq!(steps(&wish, 1, &[WELL, WELL, WELL]), [beyond(0)]);
        assert_eq!(steps(&wish, 1, &[WELL, WELL, "going"]), []);
        assert_eq!(steps(&wish, 1, &["unready", WELL, WELL]), []);
        // One that is not well holds up those before it, and may go itself.
        assert_eq!(steps(&wish, 1, &[WELL, WELL, "unready"]), [beyond(0)]);
        assert_eq!(steps(&wish, 1, &[WELL, "unready", "unready"]), []);
        assert_eq!(steps(&wish, 1, &[WELL, "unready", WELL]), [beyond(0)]);
        assert_eq!(steps(&wish, 0, &[WELL]), [beyond(0)]);
        assert_eq!(steps(&wish, 0, &["unready"]), [beyond(0)]);
    }

    #[test]
    fn side_by_side_nobody_waits() {
        let wish = Wish {
            is_parallel: true,
            ..wish()
        };
        assert_eq!(steps(&wish, 3, &["", "unready"]), [Step::Make(0), Step::Make(2)]);
        assert_eq!(
            steps(&wish, 1, &["unready", "unready", "going", WELL]),
            [beyond(0), beyond(2)]
        );
        assert_eq!(steps(&wish, 3, &["failed", WELL, WELL]), [gone(0)]);
        assert_eq!(steps(&wish, i64::from(i32::MAX), &[WELL]).len(), MAKE_MAX);
        // Updates go one at a time all the same.
        assert_eq!(steps(&wish, 3, &["well old", "well old", "well old"]), [gone(2)]);
        assert_eq!(steps(&wish, 3, &["well old", "well old", "unready"]), []);
        assert_eq!(steps(&wish, 3, &["well old", "well old", "unready old"]), [gone(2)]);
    }

    #[test]
    fn pods_of_another_revision_go_one_by_one_down_to_the_partition() {
        let wish = wish();
        let old = "well old";
        assert_eq!(steps(&wish, 3, &[old, old, old]), [gone(2)]);
        assert_eq!(steps(&wish, 3, &[old, old, "going old"]), []);
        assert_eq!(steps(&wish, 3, &[old, old, WELL]), [gone(1)]);
        assert_eq!(steps(&wish, 3, &[WELL, WELL, WELL]), []);
        assert_eq!(steps(&Wish { partition: 2, ..wish }, 3, &[old, old, WELL]), []);
        assert_eq!(steps(&Wish { partition: 9, ..wish }, 3, &[old, old, old]), []);
        assert_eq!(steps(&Wish { update: None, ..wish }, 3, &[old, old, old]), []);
        // The size comes first.
        assert_eq!(steps(&wish, 2, &[old, old, old]), [beyond(0)]);
    }
}
