//! What failures of Pods mean (`spec.podFailurePolicy`, KEP-3329), and which successes are enough (`spec.successPolicy`, KEP-3998).

use super::indexes::Indexes;
use super::spec::{Member, Spec};
use crate::tree::{List, Value};

/// What a failed Pod means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// One failure more.
    Counts,
    /// Nothing.
    Ignored,
    /// Its index has failed.
    FailsIndex,
    /// The Job has failed, and why.
    FailsJob(String),
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], List::as_slice)
}

/// What a failed Pod means: what the first rule says that it matches.
pub(super) fn meaning(spec: &Spec<'_>, member: &Member<'_>) -> Failed {
    let pod = member.pod;
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let key = || {
        format!(
            "{}/{}",
            text(&pod["metadata"]["namespace"]),
            text(&pod["metadata"]["name"])
        )
    };
    for (place, rule) in items(&spec.failure_policy["rules"]).iter().enumerate() {
        let codes = &rule["onExitCodes"];
        let why = if codes.is_null() {
            matching_condition(pod, &rule["onPodConditions"])
                .map(|condition| format!("Pod {} has condition {}", key(), text(&condition["type"])))
        } else {
            matching_container(pod, codes).map(|(name, code)| {
                let key = key();
                format!("Container {name} for pod {key} failed with exit code {code}")
            })
        };
        let Some(why) = why else { continue };
        match rule["action"].as_str() {
            Some("Ignore") => return Failed::Ignored,
            Some("Count") => return Failed::Counts,
            Some("FailIndex") => return Failed::FailsIndex,
            Some("FailJob") => return Failed::FailsJob(format!("{why} matching FailJob rule at index {place}")),
            _ => {}
        }
    }
    Failed::Counts
}

/// The first container that ended as the rule says: its name and code. Containers come before init containers.
fn matching_container<'a>(pod: &'a Value, rule: &Value) -> Option<(&'a str, i64)> {
    let lists = ["containerStatuses", "initContainerStatuses"].iter();
    let ended = lists
        .flat_map(|list| items(&pod["status"][*list]))
        .filter_map(|status| {
            let code = status["state"]["terminated"]["exitCode"].as_i64()?;
            Some((status["name"].as_str().unwrap_or(""), code))
        });
    let is_named = |code: i64| items(&rule["values"]).iter().any(|value| *value == code);
    ended
        .filter(|(name, code)| *code != 0 && rule["containerName"].as_str().is_none_or(|wanted| wanted == *name))
        .find(|(_, code)| match rule["operator"].as_str() {
            Some("In") => is_named(*code),
            Some("NotIn") => !is_named(*code),
            _ => false,
        })
}

fn matching_condition<'a>(pod: &'a Value, patterns: &Value) -> Option<&'a Value> {
    items(&pod["status"]["conditions"]).iter().find(|condition| {
        let is_it = |pattern: &Value| pattern["type"] == condition["type"] && pattern["status"] == condition["status"];
        items(patterns).iter().any(is_it)
    })
}

/// Whether these successes are enough: by which rule, as a sentence.
pub(super) fn met(spec: &Spec<'_>, completed: &Indexes) -> Option<String> {
    if completed.total() == 0 {
        return None;
    }
    let is_met = |rule: &Value| {
        let count = rule["succeededCount"].as_i64();
        match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let wanted = Indexes::parse(text, spec.indexes());
                let there = i64::from(wanted.shared(completed));
                wanted.total() > 0 && (there == i64::from(wanted.total()) || count.is_some_and(|count| there >= count))
            }
            None => count.is_some_and(|count| i64::from(completed.total()) >= count),
        }
    };
    let place = items(&spec.success_policy["rules"]).iter().position(is_met)?;
    Some(format!("Matched rules at index {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::json;

    #[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn of(rules: Value, status: Value) -> Failed {
        let job = json!({"spec": {"podFailurePolicy": {"rules": rules}}});
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "status": status});
        meaning(&Spec::of(&job), &Member::of(&pod))
    }

    fn ended(name: &str, code: i64) -> Value {
        json!({"name": name, "state": {"terminated": {"exitCode": code}}})
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = json!([
            {"action": "Count", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 5]}},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [40, 42]}},
        ]);
        let disrupted = json!([{"type": "DisruptionTarget", "status": "True"}]);
        let with = |code| json!({"conditions": disrupted.clone(), "containerStatuses": [ended("main", code)]});
        assert_eq!(of(rules.clone(), with(1)), Failed::Ignored);
        let without = |name, code| json!({"containerStatuses": [ended("side", 0), ended(name, code)]});
        assert_eq!(of(rules.clone(), without("main", 5)), Failed::FailsIndex);
        assert_eq!(of(rules.clone(), without("main", 42)), Failed::Counts);
        assert_eq!(of(rules.clone(), without("other", 7)), Failed::Counts);
        let text = "Container main for pod n/p failed with exit code 7 matching FailJob rule at index 3";
        assert_eq!(of(rules.clone(), without("main", 7)), Failed::FailsJob(text.into()));
        // Init containers come last, and one that runs has no code.
        let init = json!({"initContainerStatuses": [ended("main", 9)], "containerStatuses": [
            {"name": "main", "state": {"running": {}}}]});
        let text = "Container main for pod n/p failed with exit code 9 matching FailJob rule at index 3";
        assert_eq!(of(rules.clone(), init), Failed::FailsJob(text.into()));
        assert_eq!(of(rules, json!({})), Failed::Counts);
        assert_eq!(of(Value::Null, with(1)), Failed::Counts);
    }

    #[test]
    fn a_condition_can_fail_the_job() {
        let rules = json!([{"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]}]);
        let status = |is: &str| json!({"conditions": [{"type": "ConfigIssue", "status": is}]});
        let text = "Pod n/p has condition ConfigIssue matching FailJob rule at index 0";
        assert_eq!(of(rules.clone(), status("True")), Failed::FailsJob(text.into()));
        assert_eq!(of(rules, status("False")), Failed::Counts);
    }

    #[test]
    fn successes_are_enough_by_their_indexes_or_their_number() {
        let rules = json!([{"succeededIndexes": "0,2-3"}, {"succeededIndexes": "5-9", "succeededCount": 2}, {"succeededCount": 7}]);
        let job = json!({"spec": {"completionMode": "Indexed", "completions": 10, "successPolicy": {"rules": rules}}});
        let met = |text: &str| met(&Spec::of(&job), &Indexes::parse(text, 10));
        let by = |place: u8| Some(format!("Matched rules at index {place}"));
        assert_eq!(met(""), None);
        assert_eq!(met("0,2"), None);
        assert_eq!(met("0-3"), by(0));
        assert_eq!(met("1,5"), None);
        assert_eq!(met("6,9"), by(1));
        assert_eq!(met("1-4,9"), None);
        let only = json!({"spec": {"completionMode": "Indexed", "completions": 10,
            "successPolicy": {"rules": [{"succeededCount": 3}]}}});
        assert_eq!(self::met(&Spec::of(&only), &Indexes::parse("1-2", 10)), None);
        assert_eq!(self::met(&Spec::of(&only), &Indexes::parse("1-2,7", 10)), by(0));
    }
}
