//! What a new Pod names must exist: its service account, priority class and runtime class.
//!
//! (Upstream's admission plugins ServiceAccount, Priority and RuntimeClass.) One thing differs: a service account named
//! `default` need not exist, as there is no controller yet that makes it in every namespace.

use crate::tree::Value;

use super::object;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::store::{Range, Selection, View};

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
/// Classes that every server has; none of them is the default.
const CLASSES_BUILT_IN: u64 = 2;

/// Checks what `pod` names, and gives it the priority of its class.
///
/// # Errors
/// 403 when something is missing.
pub(super) fn admit(view: &std::sync::Arc<View>, info: &RequestInfo, pod: &mut Value) -> Result<(), Status> {
    let name = object::meta(pod, "name").to_owned();
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
        class if class.is_empty() => default_class(view)?,
        class => match view.get(CLASSES, &class).map_err(Status::internal)? {
            Some(found) => Some(read(&found)?),
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
    let Some(class) = class else { return Ok(()) };
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.insert("priority", priority.into());
        spec.insert("priorityClassName", class["metadata"]["name"].clone());
        if spec.get("preemptionPolicy").is_none_or(Value::is_null) {
            let policy = class.get("preemptionPolicy").cloned();
            spec.insert(
                "preemptionPolicy",
                policy.unwrap_or_else(|| "PreemptLowerPriority".into()),
            );
        }
    }
    Ok(())
}

fn read(class: &crate::store::Object) -> Result<Value, Status> {
    serde_json::from_slice(class.json().map_err(Status::internal)?).map_err(Status::internal)
}

/// The class that Pods without one get: the one marked as global default, of several the lowest.
fn default_class(view: &std::sync::Arc<View>) -> Result<Option<Value>, Status> {
    if view.count(CLASSES, None) <= CLASSES_BUILT_IN {
        return Ok(None);
    }
    let mut found: Option<Value> = None;
    let mut listing = view.list(
        CLASSES,
        Range {
            namespace: None,
            after: None,
        },
        &Selection::all(),
    );
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        for object in run.objects() {
            let class = read(&object)?;
            let lower = found
                .as_ref()
                .is_none_or(|other| class["value"].as_i64() < other["value"].as_i64());
            if class["globalDefault"] == true && lower {
                found = Some(class);
            }
        }
    }
    Ok(found)
}
