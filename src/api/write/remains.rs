//! What is left in a namespace that is being deleted, and how its conditions tell (the words of the namespace controller of
//! kube-controller-manager).

use std::collections::{BTreeMap, BTreeSet};

use super::object;
use crate::resources::Resource;
use crate::tree::{Value, json};

/// What one round of deletions left.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// Objects by their resource, `pods.` or `deployments.apps`.
    resources: BTreeMap<String, u64>,
    /// Objects by their finalizers.
    finalizers: BTreeMap<String, u64>,
    failures: BTreeSet<String>,
}

impl Remains {
    /// Whether nothing is left and nothing failed.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.failures.is_empty()
    }

    /// So many objects of a resource are left.
    pub(super) fn note_objects(&mut self, resource: &Resource, count: u64) {
        let name = format!("{}.{}", resource.plural, resource.group);
        *self.resources.entry(name).or_default() += count;
    }

    /// An object that is left has this finalizer.
    pub(super) fn note_finalizer(&mut self, finalizer: &str) {
        *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
    }

    /// Something could not be deleted.
    pub(super) fn note_failure(&mut self, why: String) {
        self.failures.insert(why);
    }

    /// Brings the conditions of the namespace up to date.
    pub(super) fn tell(&self, namespace: &mut Value) {
        let parts = |counts: &BTreeMap<String, u64>, word: &str| {
            let parts: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name} {word} {count} resource instances"))
                .collect();
            parts.join(", ")
        };
        let failures: Vec<&str> = self.failures.iter().map(String::as_str).collect();
        let failed = format!(
            "Failed to delete all resource types, {} remaining: {}",
            failures.len(),
            failures.join(", ")
        );
        let objects = format!("Some resources are remaining: {}", parts(&self.resources, "has"));
        let finalizers = format!("Some finalizers are remaining: {}", parts(&self.finalizers, "in"));
        // Discovery and the parsing of versions cannot fail where the resources are those of this very server.
        let gone = (false, "ContentRemoved", "All content successfully removed");
        for (kind, (holds, reason, message)) in [
            (
                "NamespaceDeletionDiscoveryFailure",
                (false, "ResourcesDiscovered", "All resources successfully discovered"),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                (
                    false,
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            ),
            (
                "NamespaceDeletionContentFailure",
                if failures.is_empty() {
                    let message = "All content successfully deleted, may be waiting on finalization";
                    (false, "ContentDeleted", message)
                } else {
                    (true, "ContentDeletionFailed", failed.as_str())
                },
            ),
            (
                "NamespaceContentRemaining",
                if self.resources.is_empty() {
                    gone
                } else {
                    (true, "SomeResourcesRemain", objects.as_str())
                },
            ),
            (
                "NamespaceFinalizersRemaining",
                if self.finalizers.is_empty() {
                    gone
                } else {
                    (true, "SomeFinalizersRemain", finalizers.as_str())
                },
            ),
        ] {
            set_condition(namespace, kind, holds, reason, message);
        }
    }
}

/// Sets a condition; its time is that of its last change from true to false or back.
fn set_condition(namespace: &mut Value, kind: &str, holds: bool, reason: &str, message: &str) {
    let status = if holds { "True" } else { "False" };
    let present = namespace["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|present| present["type"] == kind && present["status"] == status);
    let since = present.map_or_else(
        || object::time(object::now_s()).into(),
        |present| present["lastTransitionTime"].clone(),
    );
    let condition = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    });
    object::set_condition(namespace, condition);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    fn told(namespace: &Value) -> Vec<(String, String)> {
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
        conditions
            .iter()
            .map(|condition| {
                let head = ["type", "status", "reason"]
                    .map(|field| text(condition, field))
                    .join(" ");
                (head, text(condition, "message"))
            })
            .collect()
    }

    #[test]
    fn five_conditions_tell_what_is_left() {
        let mut namespace = json!({"status": {"phase": "Terminating"}});
        let mut remains = Remains::default();
        remains.note_objects(find("", "v1", "pods").unwrap(), 2);
        remains.note_objects(find("apps", "v1", "deployments").unwrap(), 1);
        remains.note_finalizer("e.com/b");
        remains.note_finalizer("e.com/a");
        remains.note_finalizer("e.com/a");
        remains.note_failure("no".to_owned());
        remains.tell(&mut namespace);
        let expected = [
            (
                "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "NamespaceDeletionContentFailure True ContentDeletionFailed",
                "Failed to delete all resource types, 1 remaining: no",
            ),
            (
                "NamespaceContentRemaining True SomeResourcesRemain",
                "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
            ),
            (
                "NamespaceFinalizersRemaining True SomeFinalizersRemain",
                "Some finalizers are remaining: e.com/a in 2 resource instances, e.com/b in 1 resource instances",
            ),
        ];
        let expected = expected.map(|(head, message)| (head.to_owned(), message.to_owned()));
        assert_eq!(told(&namespace), expected);
        namespace["status"]["conditions"][0]["lastTransitionTime"] = "2020-01-01T00:00:00Z".into();
        Remains::default().tell(&mut namespace);
        let after = told(&namespace);
        assert_eq!(after[3].0, "NamespaceContentRemaining False ContentRemoved");
        assert_eq!(after[4].1, "All content successfully removed");
        assert_eq!(
            namespace["status"]["conditions"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z",
            "what stays as it was keeps its time"
        );
    }
}
