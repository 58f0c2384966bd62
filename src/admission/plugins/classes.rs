//! Classes that objects name, and those that they get when they name none: one PriorityClass and one IngressClass at most is the
//! default, of storage classes the newest that is marked. (Upstream's admission plugins Priority, RuntimeClass, DefaultStorageClass and
//! DefaultIngressClass.)

use std::sync::Arc;

use super::{Refused, all_in, forbidden, items, read, text};
use crate::store::{Damaged, View};
use crate::tree::{Map, Value};

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";
const RUNTIME_CLASSES: &str = "runtimeclasses.node.k8s.io";
const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";
const INGRESS_CLASSES: &str = "ingressclasses.networking.k8s.io";

fn named(class: &Value) -> &str {
    text(&class["metadata"]["name"])
}

/// Of the classes that are marked as default the newest; of several of one second the first by name.
fn defaults(view: &Arc<View>, classes: &str, mark: &str) -> Result<Vec<Value>, Damaged> {
    if view.count(classes, None) == 0 {
        return Ok(Vec::new());
    }
    let mut defaults = all_in(view, classes, None)?;
    defaults.retain(|class| class["metadata"]["annotations"][mark] == "true");
    defaults.sort_by(|one, other| {
        let age = |class: &Value| text(&class["metadata"]["creationTimestamp"]).to_owned();
        age(other).cmp(&age(one)).then_with(|| named(one).cmp(named(other)))
    });
    Ok(defaults)
}

fn set(object: &mut Value, field: &'static str, value: Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(field, value);
    }
}

/// Gives a claim without a storage class the default one.
///
/// # Errors
/// When classes cannot be read.
pub(super) fn choose_storage(view: &Arc<View>, claim: &mut Value) -> Result<(), Refused> {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    let is_open = claim["spec"]["storageClassName"].is_null() && claim["metadata"]["annotations"][OLD].is_null();
    if is_open
        && let Some(class) = defaults(view, STORAGE_CLASSES, "storageclass.kubernetes.io/is-default-class")?.first()
    {
        set(claim, "storageClassName", named(class).into());
    }
    Ok(())
}

/// Gives an Ingress without a class the default one.
///
/// # Errors
/// 403 when several classes are the default.
pub(super) fn choose_ingress(view: &Arc<View>, ingress: &mut Value) -> Result<(), Refused> {
    let spec = &ingress["spec"];
    let annotations = &ingress["metadata"]["annotations"];
    if !spec["ingressClassName"].is_null() || !annotations["kubernetes.io/ingress.class"].is_null() {
        return Ok(());
    }
    let defaults = defaults(view, INGRESS_CLASSES, "ingressclass.kubernetes.io/is-default-class")?;
    if defaults.len() > 1 {
        return Err(forbidden(format!(
            "{} default IngressClasses were found, only 1 allowed",
            defaults.len()
        )));
    }
    if let Some(class) = defaults.first() {
        set(ingress, "ingressClassName", named(class).into());
    }
    Ok(())
}

/// The PriorityClass that Pods without one get: the one marked as global default, of several the lowest.
fn default_priority(view: &Arc<View>) -> Result<Option<Value>, Damaged> {
    /// Classes that every server has; none of them is the default.
    const BUILT_IN: u64 = 2;
    if view.count(PRIORITY_CLASSES, None) <= BUILT_IN {
        return Ok(None);
    }
    let mut classes = all_in(view, PRIORITY_CLASSES, None)?;
    classes.retain(|class| class["globalDefault"] == true);
    Ok(classes.into_iter().min_by_key(|class| class["value"].as_i64()))
}

/// Refuses a second PriorityClass that is the default.
///
/// # Errors
/// 403.
pub(super) fn check_only_default(view: &Arc<View>, new: &Value) -> Result<(), Refused> {
    if new["globalDefault"] != true {
        return Ok(());
    }
    match default_priority(view)? {
        Some(class) if named(&class) != named(new) => Err(forbidden(format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            named(&class)
        ))),
        _ => Ok(()),
    }
}

/// Gives a Pod the priority of its class.
///
/// # Errors
/// 403 when there is no such class, or the Pod says another priority.
pub(super) fn prioritize(view: &Arc<View>, pod: &mut Value) -> Result<(), Refused> {
    let spec = &pod["spec"];
    let class = match text(&spec["priorityClassName"]) {
        "" => default_priority(view)?,
        name => match view.get(PRIORITY_CLASSES, name)? {
            Some(found) => Some(read(&found)?),
            None => return Err(forbidden(format!("no PriorityClass with name {name} was found"))),
        },
    };
    let differs = |kind: &str, field: &str, given: &str, computed: &str| {
        Err(forbidden(format!(
            "the {kind} value of {field} ({given}) must not be provided in pod spec; priority admission controller computed \
             {computed} from the given PriorityClass name"
        )))
    };
    let priority = class.as_ref().map_or(0, |class| class["value"].as_i64().unwrap_or(0));
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return differs("integer", "priority", &given.to_string(), &priority.to_string());
    }
    let policy = class.as_ref().map_or("", |class| text(&class["preemptionPolicy"]));
    let policy = if policy.is_empty() {
        "PreemptLowerPriority"
    } else {
        policy
    };
    let given = text(&spec["preemptionPolicy"]);
    if !given.is_empty() && given != policy {
        return differs("string", "PreemptionPolicy", given, policy);
    }
    set(pod, "priority", priority.into());
    if let Some(class) = &class {
        set(pod, "priorityClassName", named(class).into());
    }
    set(pod, "preemptionPolicy", policy.into());
    Ok(())
}

/// The RuntimeClass that a Pod names.
fn runtime_of(view: &View, pod: &Value) -> Result<Option<Value>, Refused> {
    match text(&pod["spec"]["runtimeClassName"]) {
        "" => Ok(None),
        name => match view.get(RUNTIME_CLASSES, name)? {
            Some(found) => Ok(Some(read(&found)?)),
            None => Err(forbidden(format!("pod rejected: RuntimeClass \"{name}\" not found"))),
        },
    }
}

const ANOTHER_OVERHEAD: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Gives a Pod what its RuntimeClass takes besides, and where it may run.
///
/// # Errors
/// 403 when there is no such class, or the Pod says otherwise.
pub(super) fn give_overhead(view: &View, pod: &mut Value) -> Result<(), Refused> {
    let Some(class) = runtime_of(view, pod)? else {
        return Ok(());
    };
    let overhead = &class["overhead"]["podFixed"];
    if class["overhead"].is_object() {
        let own = &pod["spec"]["overhead"];
        if !own.is_null() && own != overhead {
            return Err(forbidden(ANOTHER_OVERHEAD));
        }
        if !overhead.is_null() {
            set(pod, "overhead", overhead.clone());
        }
    }
    let scheduling = &class["scheduling"];
    if let Some(selector) = scheduling["nodeSelector"].as_object() {
        let mut merged = pod["spec"]["nodeSelector"]
            .as_object()
            .cloned()
            .unwrap_or_else(Map::new);
        for (key, value) in selector {
            match merged.get(key.as_str()) {
                Some(own) if own != value => {
                    let (key, own, value) = (key.as_str(), text(own), text(value));
                    return Err(forbidden(format!(
                        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                    )));
                }
                _ => {
                    merged.insert(key.clone(), value.clone());
                }
            }
        }
        set(pod, "nodeSelector", Value::Object(merged));
    }
    let own: Vec<Value> = items(&pod["spec"]["tolerations"]).cloned().collect();
    let more: Vec<Value> = items(&scheduling["tolerations"])
        .filter(|more| !own.contains(more))
        .cloned()
        .collect();
    if !more.is_empty() {
        set(
            pod,
            "tolerations",
            own.into_iter().chain(more).collect::<Vec<_>>().into(),
        );
    }
    Ok(())
}

/// A Pod has the overhead of its RuntimeClass, and no other.
///
/// # Errors
/// 403.
pub(super) fn check_overhead(view: &View, pod: &Value) -> Result<(), Refused> {
    let own = &pod["spec"]["overhead"];
    if own.is_null() && text(&pod["spec"]["runtimeClassName"]).is_empty() {
        return Ok(());
    }
    let class = runtime_of(view, pod)?;
    match class.as_ref().map(|class| &class["overhead"]) {
        Some(overhead) if overhead.is_object() => {
            if overhead["podFixed"] == *own {
                Ok(())
            } else {
                Err(forbidden(ANOTHER_OVERHEAD))
            }
        }
        _ if !own.is_null() => Err(forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
        _ => Ok(()),
    }
}
