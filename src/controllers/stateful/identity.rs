//! What makes a Pod the one with a certain number in its set: its name, labels, host name, and the volumes that are its own.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#pod-identity>.

use crate::controllers::history::HASH_LABEL;
use crate::controllers::metadata::name_of;
use crate::controllers::pod;
use crate::tree::{Value, json};

/// Label with the name of the Pod, so that a Service can select one alone.
const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label with the ordinal of the Pod.
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a Pod by its name; `None` for one that is not called as a Pod of this set.
pub(super) fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    let digits = name_of(pod).strip_prefix(name_of(set))?.strip_prefix('-')?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let ordinal: i32 = digits.parse().ok().filter(|_| is_number)?;
    Some(ordinal.into())
}

/// The first ordinal of a set.
pub(super) fn start(set: &Value) -> i64 {
    set["spec"]["ordinals"]["start"].as_i64().unwrap_or(0)
}

/// How many Pods a set wants.
pub(super) fn replicas(set: &Value) -> i64 {
    set["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Whether a set of its present size has this ordinal.
pub(super) fn is_in_range(set: &Value, ordinal: i64) -> bool {
    (0..replicas(set)).contains(&(ordinal - start(set)))
}

/// The claims of a Pod: the name of the volume, that of the claim, and the template.
pub(super) fn claims(set: &Value, ordinal: i64) -> impl Iterator<Item = (&str, String, &Value)> {
    let templates = set["spec"]["volumeClaimTemplates"].as_array();
    let set_name = name_of(set);
    templates
        .into_iter()
        .flat_map(|templates| templates.iter())
        .map(move |template| {
            let volume = name_of(template);
            (volume, format!("{volume}-{set_name}-{ordinal}"), template)
        })
}

/// The Pod of a set with this ordinal, made of the template of the revision of this name.
pub(super) fn pod_for(set: &Value, template: &Value, revision: &str, ordinal: i64) -> Value {
    let mut pod = pod::of_template(template, set);
    let name = format!("{}-{ordinal}", name_of(set));
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    pod["metadata"]["name"] = name.as_str().into();
    pod["metadata"]["namespace"] = set["metadata"]["namespace"].clone();
    pod["metadata"]["labels"][HASH_LABEL] = revision.into();
    give_labels(&mut pod, ordinal);
    // Neither can be changed later.
    pod["spec"]["hostname"] = name.as_str().into();
    if let Some(service) = set["spec"]["serviceName"].as_str().filter(|name| !name.is_empty()) {
        pod["spec"]["subdomain"] = service.into();
    }
    give_volumes(set, &mut pod, ordinal);
    pod
}

/// The revision that a Pod is of; `""` for none.
pub(super) fn revision_of(pod: &Value) -> &str {
    pod["metadata"]["labels"][HASH_LABEL].as_str().unwrap_or("")
}

/// A Pod as it should be, when it lost its labels or volumes; `None` when it has them.
pub(super) fn mended(set: &Value, pod: &Value) -> Option<Value> {
    let ordinal = ordinal(set, pod)?;
    let has_label = pod["metadata"]["labels"][NAME_LABEL] == *name_of(pod);
    let volumes = pod["spec"]["volumes"]
        .as_array()
        .map_or(&[][..], |volumes| &volumes[..]);
    let has_volumes = claims(set, ordinal).all(|(name, claim, _)| {
        let volume = volumes.iter().find(|volume| volume["name"] == *name);
        volume.is_some_and(|volume| volume["persistentVolumeClaim"]["claimName"] == claim.as_str())
    });
    if has_label && has_volumes {
        return None;
    }
    let mut new = pod.clone();
    give_labels(&mut new, ordinal);
    if !has_volumes {
        give_volumes(set, &mut new, ordinal);
    }
    Some(new)
}

fn give_labels(pod: &mut Value, ordinal: i64) {
    let name = name_of(pod).to_owned();
    pod["metadata"]["labels"][NAME_LABEL] = name.into();
    pod["metadata"]["labels"][INDEX_LABEL] = ordinal.to_string().into();
}

/// The volumes of claims stand before those of the template; one of the template with the name of a claim's gives way.
fn give_volumes(set: &Value, pod: &mut Value, ordinal: i64) {
    let mut volumes: Vec<Value> = claims(set, ordinal)
        .map(|(name, claim, _)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    if volumes.is_empty() {
        return;
    }
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        if claims(set, ordinal).all(|(name, ..)| volume["name"] != *name) {
            volumes.push(volume.clone());
        }
    }
    pod["spec"]["volumes"] = volumes.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Value {
        json!({
            "kind": "StatefulSet", "apiVersion": "apps/v1",
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"replicas": 2, "ordinals": {"start": 3}, "serviceName": "web",
                "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
                "template": {"metadata": {"labels": {"app": "web"}},
                    "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}}},
        })
    }

    #[test]
    fn a_pod_is_of_a_set_by_its_name() {
        let of = |name: &str| ordinal(&set(), &json!({"metadata": {"name": name}}));
        assert_eq!((of("web-0"), of("web-12")), (Some(0), Some(12)));
        for other in [
            "web",
            "web-",
            "web-01",
            "web-x",
            "web-+1",
            "web-1-1",
            "webs-1",
            "web-2147483648",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert!(is_in_range(&set(), 3) && is_in_range(&set(), 4));
        assert!(!is_in_range(&set(), 2) && !is_in_range(&set(), 5));
    }

    #[test]
    fn a_pod_has_its_name_its_labels_and_its_volumes() {
        let set = set();
        let pod = pod_for(&set, &set["spec"]["template"], "web-abc", 4);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "web", "controller-revision-hash": "web-abc",
                "statefulset.kubernetes.io/pod-name": "web-4", "apps.kubernetes.io/pod-index": "4"})
        );
        assert_eq!(
            (&pod["metadata"]["name"], &pod["metadata"]["generateName"]),
            (&json!("web-4"), &Value::Null)
        );
        assert_eq!(
            (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
            (&json!("web-4"), &json!("web"))
        );
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-4"}});
        assert_eq!(pod["spec"]["volumes"], json!([claim, {"name": "tmp", "emptyDir": {}}]));
        assert_eq!(mended(&set, &pod), None);
        let mut robbed = pod.clone();
        robbed["metadata"]["labels"] = json!({"app": "web", "controller-revision-hash": "web-abc"});
        assert_eq!(mended(&set, &robbed), Some(pod));
    }
}
