//! Indexes of an indexed Job: what their Pods are told, and which Pods are too many.

use std::collections::{HashMap, HashSet};

use super::policies::{Failed, meaning};
use super::spec::{INDEX, Member, Spec};
use super::tally::Tally;
use crate::tree::{Value, json};

/// Annotation of a Pod of a Job with a limit for each index: failures of its index before it.
pub(super) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The same of failures that a policy passes over.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// Room that a generated name has for what the object is known by.
const PREFIX_MAX: usize = 58;

fn number(member: &Member<'_>, annotation: &str) -> i64 {
    let text = member.pod["metadata"]["annotations"][annotation].as_str();
    // What is no number, or none that was written here, is 0.
    let number = text.and_then(|text| text.parse::<i32>().ok());
    number.map_or(0, |number| i64::from(number.max(0)))
}

/// Failures of its index that count, before this Pod.
pub(super) fn failures_of(member: &Member<'_>) -> i64 {
    number(member, FAILURES)
}

/// All failures of its index before this Pod.
pub(super) fn total_failures_of(member: &Member<'_>) -> i64 {
    number(member, FAILURES) + number(member, IGNORED)
}

/// Makes a Pod of the template one for an index. `replaced`: the failed Pod of the index, in a Job with a limit for each.
pub(super) fn assign(pod: &mut Value, job_name: &str, index: u32, spec: &Spec<'_>, replaced: Option<&Member<'_>>) {
    let text = index.to_string();
    let metadata = &mut pod["metadata"];
    metadata["annotations"][INDEX] = text.as_str().into();
    metadata["labels"][INDEX] = text.as_str().into();
    let suffix = format!("-{index}-");
    let mut room = PREFIX_MAX - suffix.len();
    while !job_name.is_char_boundary(room.min(job_name.len())) {
        room -= 1;
    }
    metadata["generateName"] = format!("{}{suffix}", &job_name[..room.min(job_name.len())]).into();
    if spec.backoff_limit_per_index.is_some() {
        let (mut failures, mut ignored) =
            replaced.map_or((0, 0), |member| (number(member, FAILURES), number(member, IGNORED)));
        if let Some(replaced) = replaced {
            match meaning(spec, replaced) {
                Failed::Ignored => ignored += 1,
                _ => failures += 1,
            }
        }
        metadata["annotations"][FAILURES] = failures.to_string().into();
        if ignored > 0 {
            metadata["annotations"][IGNORED] = ignored.to_string().into();
        }
    }
    pod["spec"]["hostname"] = format!("{job_name}-{index}").into();
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let variables = container["env"].as_array();
            if variables.is_some_and(|variables| variables.iter().any(|variable| variable["name"] == VARIABLE)) {
                continue;
            }
            let mut variables = variables.map_or_else(Vec::new, |variables| variables.to_vec());
            let path = format!("metadata.labels['{INDEX}']");
            variables.push(json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
            container["env"] = variables.into();
        }
    }
}

/// The first indexes that want a Pod.
pub(super) fn pending(tally: &Tally<'_>, count: usize) -> Vec<u32> {
    let is_taken =
        |member: &&Member<'_>| member.is_active() || tally.spec.replaces_only_failed && member.is_terminating();
    let taken = tally.members.iter().filter(is_taken).filter_map(|member| member.index);
    let mut done = tally.completed.with(taken);
    if let Some(failed) = &tally.failed_indexes {
        done = done.and(failed);
    }
    done.missing(tally.spec.indexes(), count)
}

/// Of active Pods those that have no index, none of the Job's, or one that another has as well: places in `members`. Of several with one
/// index the one stays that comes last; `places` come in the order in which they may go.
pub(super) fn surplus(tally: &Tally<'_>, places: &[usize]) -> Vec<usize> {
    let mut best: HashMap<u32, usize> = HashMap::new();
    for &place in places {
        let member = &tally.members[place];
        if let Some(index) = member.index.filter(|_| member.counts(tally.spec)) {
            best.insert(index, place);
        }
    }
    let stays: HashSet<usize> = best.into_values().collect();
    places.iter().copied().filter(|place| !stays.contains(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_knows_its_index_by_label_annotation_host_name_and_variable() {
        let job = json!({"spec": {"completionMode": "Indexed", "completions": 20, "backoffLimitPerIndex": 3, "podFailurePolicy":
            {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "D", "status": "True"}]}]}}});
        let spec = Spec::of(&job);
        let template = json!({"metadata": {}, "spec": {"initContainers": [{"name": "i"}],
            "containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "env": [{"name": VARIABLE, "value": "9"}]}]}});
        let mut pod = template.clone();
        assign(&mut pod, "j", 12, &spec, None);
        assert_eq!(pod["metadata"]["annotations"], json!({INDEX: "12", FAILURES: "0"}));
        assert_eq!(pod["metadata"]["labels"], json!({INDEX: "12"}));
        assert_eq!(pod["metadata"]["generateName"], "j-12-");
        assert_eq!(pod["spec"]["hostname"], "j-12");
        let variable = json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath":
            "metadata.labels['batch.kubernetes.io/job-completion-index']"}}});
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([variable.clone()]));
        assert_eq!(pod["spec"]["containers"][0]["env"][1], variable);
        assert_eq!(pod["spec"]["containers"][1]["env"][0]["value"], "9");
        // Failures are handed on, those apart that the policy passes over.
        pod["status"] = json!({"phase": "Failed"});
        let mut second = template.clone();
        assign(&mut second, "j", 12, &spec, Some(&Member::of(&pod)));
        assert_eq!(second["metadata"]["annotations"][FAILURES], "1");
        second["status"] = json!({"phase": "Failed", "conditions": [{"type": "D", "status": "True"}]});
        let mut third = template.clone();
        assign(&mut third, "j", 12, &spec, Some(&Member::of(&second)));
        let wanted = json!({INDEX: "12", FAILURES: "1", IGNORED: "1"});
        assert_eq!(third["metadata"]["annotations"], wanted);
        assert_eq!(total_failures_of(&Member::of(&third)), 2);
        // The index stays in a name that is too long.
        assign(&mut pod, &"x".repeat(63), 12, &spec, None);
        assert_eq!(pod["metadata"]["generateName"], format!("{}-12-", "x".repeat(54)));
    }

    #[test]
    fn of_one_index_one_pod_stays_and_open_ones_are_filled_from_below() {
        let job = json!({"spec": {"completionMode": "Indexed", "completions": 6}, "status": {"completedIndexes": "0"}});
        let pod = |index: &str| json!({"metadata": {"uid": index, "annotations": {INDEX: index}}, "status": {"phase": "Running"}});
        let pods = ["2", "1", "2", "7", "x"].map(pod);
        let members: Vec<Member<'_>> = pods.iter().map(Member::of).collect();
        let spec = Spec::of(&job);
        let tally = Tally::of(&job, &spec, &members, None);
        assert_eq!(pending(&tally, 2), [3, 4]);
        assert_eq!(pending(&tally, 9), [3, 4, 5]);
        assert_eq!(surplus(&tally, &[2, 0, 1, 3, 4]), [2, 3, 4]);
    }
}
