//! What a new Pod names must exist: its service account, priority class and runtime class.
//!
//! (Upstream's admission plugins ServiceAccount, Priority and RuntimeClass.) One thing differs: a service account named
//! `default` need not exist, as there is no controller yet that makes it in every namespace.

use crate::tree::{Value, json};

use super::{classes, object};
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::store::View;

/// A field of `spec` that admission sets. It is nobody's: set after the managers of the object have been noted.
#[derive(Debug)]
pub(super) struct Fill {
    pub field: &'static str,
    pub value: Value,
}

/// Sets what admission found.
pub(super) fn fill(object: &mut Value, fills: &[Fill]) {
    if !fills.is_empty()
        && let Some(spec) = object["spec"].as_object_mut()
    {
        for Fill { field, value } in fills {
            spec.insert(*field, value.clone());
        }
    }
}

/// Notes a condition that holds from now on, if it did not before.
pub(super) fn set_condition(pod: &mut Value, kind: &str, reason: &str, message: &str) {
    let present = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|present| present["type"] == kind && present["status"] == "True");
    let since = present.map_or_else(
        || object::time(object::now_s()).into(),
        |present| present["lastTransitionTime"].clone(),
    );
    let mut condition = json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": since,
    });
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    object::set_condition(pod, condition);
}

/// Checks what `pod` names, and finds the priority of its class.
///
/// # Errors
/// 403 when something is missing.
pub(super) fn admit(view: &std::sync::Arc<View>, info: &RequestInfo, pod: &Value) -> Result<Vec<Fill>, Status> {
    let name = object::admission_name(pod).to_owned();
    let forbidden = |why: &str| Status::forbidden("", "pods", &name, why);
    let namespace = info.namespace.as_deref().unwrap_or("");
    let text = |field: &str| pod["spec"][field].as_str().unwrap_or("").to_owned();
    let exists = |resource: &str, key: &str| {
        view.get(resource, key)
            .map_err(Status::internal)
            .map(|found| found.is_some())
    };

    let account = text("serviceAccountName");
    let account = if account.is_empty() {
        text("serviceAccount")
    } else {
        account
    };
    if !matches!(account.as_str(), "" | "default") && !exists("serviceaccounts", &format!("{namespace}/{account}"))? {
        return Err(forbidden(&format!(
            "error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found"
        )));
    }
    let runtime = text("runtimeClassName");
    if !runtime.is_empty() && !exists("runtimeclasses.node.k8s.io", &runtime)? {
        return Err(forbidden(&format!(
            "pod rejected: RuntimeClass \"{runtime}\" not found"
        )));
    }
    let class = match text("priorityClassName") {
        class if class.is_empty() => classes::default_priority(view)?,
        class => match view.get(classes::PRIORITY_CLASSES, &class).map_err(Status::internal)? {
            Some(found) => Some(classes::read(&found)?),
            None => return Err(forbidden(&format!("no PriorityClass with name {class} was found"))),
        },
    };
    let priority = class.as_ref().map_or(0, |class| class["value"].as_i64().unwrap_or(0));
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != priority) {
        return Err(forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )));
    }
    let Some(class) = class else {
        return Ok(Vec::new());
    };
    let policy = class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority");
    let given = text("preemptionPolicy");
    if !given.is_empty() && given != policy {
        return Err(forbidden(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller \
             computed {policy} from the given PriorityClass name"
        )));
    }
    let mut fills = vec![
        Fill {
            field: "priority",
            value: priority.into(),
        },
        Fill {
            field: "priorityClassName",
            value: class["metadata"]["name"].clone(),
        },
    ];
    if given.is_empty() {
        fills.push(Fill {
            field: "preemptionPolicy",
            value: policy.into(),
        });
    }
    Ok(fills)
}
