//! How many Pods there should be, by what controls those that there are.

use std::collections::BTreeMap;

use super::Pod;
use crate::api::Client;
use crate::controllers::failure::Failure;
use crate::controllers::kinds::resource_of;
use crate::controllers::metadata::{Metadata, Owner};
use crate::controllers::percent::resolve;
use crate::resources::{ResourceRef, scale};
use crate::store::View;
use crate::tree::Value;

/// What a budget comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: i64,
    /// Healthy Pods that there must be.
    pub(super) desired: i64,
    /// Whether Pods without a controller were left out.
    pub(super) has_unmanaged: bool,
}

/// What a budget comes to; or why that cannot be told.
pub(super) fn of(
    client: &Client,
    view: &View,
    budget: &Value,
    pods: &[Pod],
) -> Result<Result<Counts, String>, Failure> {
    let (spec, namespace) = (&budget["spec"], budget["metadata"]["namespace"].as_str().unwrap_or(""));
    let (max, min) = (&spec["maxUnavailable"], &spec["minAvailable"]);
    if max.is_null()
        && let Some(desired) = min.as_i64()
    {
        let expected = pods.len() as i64;
        return Ok(Ok(Counts {
            expected,
            desired,
            has_unmanaged: false,
        }));
    }
    let mut counts = match scale(client, view, namespace, pods)? {
        Ok(counts) => counts,
        Err(why) => return Ok(Err(why)),
    };
    if !max.is_null() {
        counts.desired = (counts.expected - resolve(max, counts.expected, true)).max(0);
    } else if !min.is_null() {
        counts.desired = resolve(min, counts.expected, true);
    }
    Ok(Ok(counts))
}

/// The sum of what all the controllers of these Pods ask for.
fn scale(client: &Client, view: &View, namespace: &str, pods: &[Pod]) -> Result<Result<Counts, String>, Failure> {
    let mut by_controller: BTreeMap<String, (String, i64)> = BTreeMap::new();
    let mut has_unmanaged = false;
    for pod in pods {
        let Some(controller) = pod.metadata.controller() else {
            has_unmanaged = true;
            continue;
        };
        if by_controller.contains_key(&controller.uid) {
            continue;
        }
        match replicas(client, view, namespace, controller)? {
            Ok(Some(found)) => drop(by_controller.insert(controller.uid.clone(), found)),
            Ok(None) => return Ok(Err(format!("found no controllers for pod \"{}\"", pod.name))),
            Err(why) => return Ok(Err(why)),
        }
    }
    // Several ReplicaSets may be one Deployment's.
    let by_scaled: BTreeMap<String, i64> = by_controller.into_values().collect();
    Ok(Ok(Counts {
        expected: by_scaled.values().sum(),
        desired: 0,
        has_unmanaged,
    }))
}

/// The UID of what is scaled, and how many Pods it asks for; `None` if it is not there.
fn replicas(
    client: &Client,
    view: &View,
    namespace: &str,
    owner: &Owner,
) -> Result<Result<Option<(String, i64)>, String>, Failure> {
    let Some(resource) = resource_of(client, &owner.api_version, &owner.kind) else {
        return Ok(Err(format!(
            "no matches for kind \"{}\" in version \"{}\"",
            owner.kind, owner.api_version
        )));
    };
    let Some((resource, object)) = found(view, &resource, namespace, owner)? else {
        return Ok(Ok(None));
    };
    // A ReplicaSet of a Deployment is one of several.
    if resource.storage == "replicasets.apps"
        && let Some(above) = Metadata::of(&object)?.controller()
        && above.kind == "Deployment"
    {
        let Some(above_resource) = resource_of(client, &above.api_version, "Deployment") else {
            return Ok(Ok(None));
        };
        let Some((resource, object)) = found(view, &above_resource, namespace, above)? else {
            return Ok(Ok(None));
        };
        return Ok(Ok(Some((above.uid.clone(), wanted(client, resource, &object)?))));
    }
    if resource.subresource("scale").is_none() {
        return Ok(Err(format!(
            "{} does not implement the scale subresource",
            resource.qualified()
        )));
    }
    Ok(Ok(Some((owner.uid.clone(), wanted(client, resource, &object)?))))
}

/// The object that an owner reference means, if it is that one.
fn found<'a>(
    view: &View,
    resource: &'a ResourceRef,
    namespace: &str,
    owner: &Owner,
) -> Result<Option<(&'a ResourceRef, crate::store::Object)>, Failure> {
    let key = resource.key(resource.namespaced.then_some(namespace), &owner.name);
    let Some(object) = view.get(&resource.storage, &key)? else {
        return Ok(None);
    };
    let is_it = object.sidecar()?.uid == owner.uid.as_str();
    Ok(is_it.then_some((resource, object)))
}

fn wanted(client: &Client, resource: &ResourceRef, object: &crate::store::Object) -> Result<i64, Failure> {
    let (scale, _) = scale::scale_of(resource, &client.read(resource, object)?);
    Ok(scale["spec"]["replicas"].as_i64().unwrap_or(0))
}
