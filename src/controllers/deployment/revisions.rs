//! The ReplicaSets of a Deployment: which is of the present template, how a new one is made, what their annotations say.

use crate::controllers::metadata::controller_reference;
use crate::tree::{Value, json};

/// Label that tells the Pods of one template from those of others.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// Number of the template, counted up by the Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Numbers that the template had before.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// `spec.replicas` of the Deployment when the set got its size.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Most Pods that all sets together might have then.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of the Deployment that are not handed on.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// Longest history that is kept, bytes.
const HISTORY_MAX: usize = 2000;

/// Letters of names that are made: no vowels, so that no words come of it.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// An annotation, `""` when there is none.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    object["metadata"]["annotations"][name].as_str().unwrap_or("")
}

/// An annotation as a number, 0 when it is none.
pub(super) fn number(object: &Value, name: &str) -> i64 {
    annotation(object, name).parse().unwrap_or(0)
}

/// Whether a set is of this template: but for the label that tells templates apart, they are the same.
pub(super) fn is_of(set: &Value, template: &Value) -> bool {
    let mut own = set["spec"]["template"].clone();
    if let Some(labels) = own["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH_LABEL);
    }
    let mut wanted = template.clone();
    if let Some(labels) = wanted["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH_LABEL);
    }
    own == wanted
}

/// A short name of a template. `collisions` makes another one of the same template.
pub(in crate::controllers) fn hash(template: &Value, collisions: i64) -> String {
    // FNV-1a, as upstream; but of the template's JSON, so the names differ from upstream's.
    let mut hash: u32 = 0x811c_9dc5;
    let text = template.to_string();
    let collisions = if collisions > 0 {
        collisions.to_string()
    } else {
        String::new()
    };
    for byte in text.bytes().chain(collisions.bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    let digits = hash.to_string();
    digits
        .bytes()
        .map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()]))
        .collect()
}

/// The ReplicaSet of the Deployment's present template, without Pods.
pub(super) fn new_set(deployment: &Value, revision: i64) -> Value {
    let hash = hash(
        &deployment["spec"]["template"],
        deployment["status"]["collisionCount"].as_i64().unwrap_or(0),
    );
    let name = deployment["metadata"]["name"].as_str().unwrap_or("");
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH_LABEL] = hash.as_str().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = hash.as_str().into();
    let mut set = json!({"metadata": {"name": format!("{name}-{hash}")}, "spec": {"replicas": 0}});
    set["metadata"]["labels"] = template["metadata"]["labels"].clone();
    set["metadata"]["ownerReferences"] = vec![controller_reference(deployment)].into();
    set["spec"]["selector"] = selector;
    set["spec"]["template"] = template;
    set["spec"]["minReadySeconds"] = deployment["spec"]["minReadySeconds"].clone();
    hand_on(deployment, &mut set, revision);
    set
}

/// Hands the Deployment's annotations on to its new set, and gives that the revision if it is higher than its own.
pub(super) fn hand_on(deployment: &Value, set: &mut Value, revision: i64) {
    let mut annotations = set["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let handed = deployment["metadata"]["annotations"].as_object();
    for (name, value) in handed.into_iter().flatten() {
        if !OWN.contains(&name.as_str()) {
            annotations.insert(name.clone(), value.clone());
        }
    }
    let old = annotation(set, REVISION).to_owned();
    if old.parse().unwrap_or(0) < revision {
        annotations.insert(REVISION, revision.to_string().into());
        if !old.is_empty() {
            let mut history: Vec<&str> = annotation(set, HISTORY)
                .split(',')
                .filter(|text| !text.is_empty())
                .collect();
            history.push(&old);
            while history.iter().map(|text| text.len() + 1).sum::<usize>() > HISTORY_MAX {
                history.remove(0);
            }
            annotations.insert(HISTORY, history.join(",").into());
        }
    }
    set["metadata"]["annotations"] = Value::Object(annotations);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "uid": "u", "annotations": {"a": "1", REVISION: "4"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "minReadySeconds": 0,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}},
        })
    }

    #[test]
    fn a_new_set_is_of_the_template_and_told_apart_by_its_label() {
        let deployment = deployment();
        let set = new_set(&deployment, 5);
        assert!(is_of(&set, &deployment["spec"]["template"]));
        let label = set["metadata"]["labels"][HASH_LABEL].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{label}"));
        for place in [
            &set["spec"]["selector"]["matchLabels"],
            &set["spec"]["template"]["metadata"]["labels"],
        ] {
            assert_eq!(place[HASH_LABEL], label);
        }
        assert_eq!((annotation(&set, REVISION), annotation(&set, "a")), ("5", "1"));
        let mut other = deployment.clone();
        other["spec"]["template"]["spec"]["containers"][0]["name"] = "d".into();
        assert!(!is_of(&set, &other["spec"]["template"]));
        other = deployment.clone();
        other["status"] = json!({"collisionCount": 1});
        assert_ne!(new_set(&other, 5)["metadata"]["name"], set["metadata"]["name"]);
    }

    #[test]
    fn a_template_that_comes_back_remembers_the_numbers_it_had() {
        let deployment = deployment();
        let mut set = new_set(&deployment, 1);
        hand_on(&deployment, &mut set, 3);
        hand_on(&deployment, &mut set, 2);
        hand_on(&deployment, &mut set, 6);
        assert_eq!((annotation(&set, REVISION), annotation(&set, HISTORY)), ("6", "1,3"));
    }
}
