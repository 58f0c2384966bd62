//! Which nodes want a Pod of a DaemonSet, and how a Pod is made that runs on one node alone.
//!
//! Rules: <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#how-daemon-pods-are-scheduled>.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{NODES, RUN_MAX};
use crate::controllers::failure::Failure;
use crate::controllers::history::HASH_LABEL;
use crate::controllers::pod;
use crate::controllers::runtime::Change;
use crate::scheduler::Resident;
use crate::store::{Object, Range, Selection, View};
use crate::tree::{Value, json};

/// Label of Pods with the number of the template, which old clients go by.
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// A node as a set sees it.
pub(super) struct Node {
    pub(super) name: String,
    /// Whether it wants a Pod.
    pub(super) runs: bool,
    /// Whether it may keep the one that it has.
    pub(super) stays: bool,
}

/// All nodes. Costs a parse of each.
pub(super) fn nodes(view: &Arc<View>, set: &Value) -> Result<Vec<Node>, Failure> {
    let mut pod = pod::of_template(&set["spec"]["template"], set);
    tolerate(&mut pod);
    let named = pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned();
    let mut resident = Resident::of(&pod);
    let mut nodes = Vec::new();
    let mut listing = view.list(NODES, Range::default(), &Selection::all());
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            let node: Value = serde_json::from_slice(object.json()?)
                .map_err(|error| Failure::Metadata(object.key().to_owned(), error))?;
            let name = object.name().to_owned();
            let welcome = resident.welcome(&name, &node);
            let is_it = named.is_empty() || named == name;
            nodes.push(Node {
                runs: is_it && welcome.comes,
                stays: is_it && welcome.stays,
                name,
            });
        }
    }
    Ok(nodes)
}

/// Whether a change of a node can change who wants a Pod: what it says of its state does not.
pub(super) fn matters(change: &Change<'_>) -> Result<bool, Failure> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Face<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
        #[serde(borrow)]
        metadata: Labelled<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Labelled<'a> {
        #[serde(borrow)]
        labels: Option<&'a RawValue>,
    }
    fn face(object: &Object) -> Result<(Option<&str>, Option<&str>), Failure> {
        let face: Face<'_> = serde_json::from_slice(object.json()?)
            .map_err(|error| Failure::Metadata(object.key().to_owned(), error))?;
        Ok((face.spec.map(RawValue::get), face.metadata.labels.map(RawValue::get)))
    }
    match change.previous {
        Some(previous) if !change.is_gone => Ok(face(previous)? != face(change.object)?),
        _ => Ok(true),
    }
}

/// The node that a Pod is on, or is meant for.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    let on = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
    on.or_else(|| {
        let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = required["nodeSelectorTerms"].as_array()?;
        terms.iter().find_map(|term| {
            let fields = term["matchFields"].as_array()?;
            let name = fields
                .iter()
                .find(|field| field["key"] == "metadata.name" && field["operator"] == "In")?;
            name["values"][0].as_str()
        })
    })
}

/// A Pod of the set's template for one node: the scheduler finds it no other.
pub(super) fn pod_for(set: &Value, hash: &str, node: &str) -> Value {
    let mut pod = pod::of_template(&set["spec"]["template"], set);
    pod["metadata"]["labels"][HASH_LABEL] = hash.into();
    if let Some(generation) = set["metadata"]["annotations"][GENERATION].as_str() {
        pod["metadata"]["labels"][GENERATION_LABEL] = generation.into();
    }
    tolerate(&mut pod);
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut() {
        Some(terms) if !terms.is_empty() => {
            for term in terms.iter_mut() {
                term["matchFields"] = json!([field.clone()]);
            }
        }
        _ => *required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]}),
    }
    pod
}

/// Daemons run on nodes that others avoid or leave.
fn tolerate(pod: &mut Value) {
    let mut own = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if pod["spec"]["hostNetwork"] == true {
        own.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let known = pod["spec"]["tolerations"].as_array();
    let mut tolerations = known.map_or_else(Vec::new, |known| known.to_vec());
    for (key, effect) in own {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    pod["spec"]["tolerations"] = tolerations.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_for_one_node_whatever_else_it_asks_of_nodes() {
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
        for spec in [json!({}), json!({"affinity": affinity})] {
            let set = json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "d"},
                "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}});
            let pod = pod_for(&set, "abc", "node-7");
            assert_eq!(node_of(&pod), Some("node-7"));
            assert_eq!(
                pod["metadata"]["labels"],
                json!({"a": "b", "controller-revision-hash": "abc"})
            );
            assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
        }
    }
}
