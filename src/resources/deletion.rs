//! What a delete does to an object: away at once, or marked and kept until its grace period or its finalizers are over.
//! Rules: <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>, `DeleteOptions` of the API.

use crate::tree::{Value, json};

use super::lookup::{count, integer, list, text, texts, time_s};
use super::strategy::{metadata_of, time_text};
use super::{Context, Refusal, Resource, custom};

/// What of `DeleteOptions` decides about the object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteRequest {
    /// `gracePeriodSeconds`.
    pub grace_s: Option<i64>,
    /// `propagationPolicy`.
    pub propagation: Option<Propagation>,
    /// `orphanDependents`, the older form of it; it weighs more.
    pub orphan: Option<bool>,
}

impl DeleteRequest {
    /// What becomes of dependents, if the request says.
    fn dependents(&self) -> Option<Propagation> {
        match self.orphan {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => self.propagation,
        }
    }
}

/// What becomes of an owner's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

/// What a delete does.
#[derive(Debug, Clone, PartialEq)]
pub enum Deletion {
    /// The object goes. Its last state, which the client is shown and watchers get.
    Remove(Value),
    /// The object is written with these marks and stays for now.
    Mark(Value),
    /// It is being deleted already, and this request changes nothing.
    Pending,
}

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Decides what a delete request does to the object `old` (in its stored shape).
///
/// The caller writes [`Deletion::Mark`] under the precondition that `old` has not changed meanwhile.
pub fn prepare_delete(
    resource: &Resource,
    old: &Value,
    request: &DeleteRequest,
    context: &Context<'_>,
) -> Result<Deletion, Refusal> {
    forbidden(resource, old)?;
    if resource.storage == "namespaces"
        && let Some(deletion) = namespace(old, request, context)?
    {
        return Ok(deletion);
    }
    if resource.storage == "customresourcedefinitions.apiextensions.k8s.io"
        && text(old, "/metadata/deletionTimestamp").is_empty()
    {
        return Ok(Deletion::Mark(custom::ending(old, context.now_s)));
    }
    let mut object = old.clone();
    let marked = if resource.storage == "pods" {
        match gracefully(&mut object, old, request, context)? {
            Grace::Pending => return Ok(Deletion::Pending),
            Grace::Given(grace_s) => grace_s > 0,
            Grace::None => false,
        }
    } else {
        false
    };
    let finalizers = finalizers(resource, old, request);
    let pending = !finalizers.is_empty();
    let metadata = metadata_of(&mut object)?;
    if pending {
        metadata.insert("finalizers", json!(finalizers));
    } else {
        metadata.remove("finalizers");
    }
    if pending && !marked {
        mark(&mut object, old, context)?;
        return Ok(if object == *old {
            Deletion::Pending
        } else {
            Deletion::Mark(object)
        });
    }
    Ok(if marked {
        Deletion::Mark(object)
    } else {
        Deletion::Remove(object)
    })
}

/// Whether an update leaves an object that is to go now: it was marked, its grace is over and no finalizer is left.
pub fn is_gone(resource: &Resource, object: &Value) -> bool {
    let marked = !text(object, "/metadata/deletionTimestamp").is_empty();
    let waits = integer(object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) > 0
        || count(object, "/metadata/finalizers") > 0
        || (resource.storage == "namespaces" && count(object, "/spec/finalizers") > 0);
    marked && !waits
}

/// Objects that the API server itself relies on.
fn forbidden(resource: &Resource, object: &Value) -> Result<(), Refusal> {
    let name = text(object, "/metadata/name");
    let why = match &*resource.storage {
        "priorityclasses.scheduling.k8s.io" if name.starts_with("system-") => {
            "this is a system priority class and cannot be deleted"
        }
        "namespaces" if matches!(name, "default" | "kube-system" | "kube-public") => {
            "this namespace may not be deleted"
        }
        _ => return Ok(()),
    };
    Err(Refusal::Forbidden(why.to_owned()))
}

/// A namespace terminates: the first request marks it, and it goes once its content has, which the finalizers of its spec
/// stand for. `None` when those are gone: then it is deleted as any object is.
fn namespace(old: &Value, request: &DeleteRequest, context: &Context<'_>) -> Result<Option<Deletion>, Refusal> {
    if !text(old, "/metadata/deletionTimestamp").is_empty() {
        return Ok((count(old, "/spec/finalizers") > 0).then_some(Deletion::Pending));
    }
    let mut object = old.clone();
    let before = texts(old, "/metadata/finalizers");
    // Of the two finalizers of the garbage collector, unlike elsewhere, the older option asks for one or the other.
    let asked = match (request.orphan, request.propagation) {
        (Some(true), _) | (None, Some(Propagation::Orphan)) => Some(Some(ORPHAN)),
        (Some(false), _) | (None, Some(Propagation::Foreground)) => Some(Some(FOREGROUND)),
        (None, Some(Propagation::Background)) => Some(None),
        (None, None) => None,
    };
    let metadata = metadata_of(&mut object)?;
    metadata.insert("deletionTimestamp", context.now().into());
    if let Some(asked) = asked {
        let mut finalizers: Vec<&str> = before
            .iter()
            .copied()
            .filter(|finalizer| !is_collectors(finalizer) || asked == Some(finalizer))
            .collect();
        finalizers.extend(asked.filter(|asked| !before.contains(asked)));
        if finalizers != before {
            if finalizers.is_empty() {
                metadata.remove("finalizers");
            } else {
                metadata.insert("finalizers", json!(finalizers));
            }
        }
    }
    object["status"]["phase"] = "Terminating".into();
    Ok(Some(Deletion::Mark(object)))
}

/// Whether the garbage collector takes this finalizer away.
fn is_collectors(finalizer: &str) -> bool {
    matches!(finalizer, ORPHAN | FOREGROUND)
}

enum Grace {
    /// The kubelet is not asked: there is none, or the Pod is over.
    None,
    /// Seconds that the Pod has, 0 included.
    Given(i64),
    Pending,
}

/// Pods on a node have time to end; a later request may only shorten it.
fn gracefully(
    object: &mut Value,
    old: &Value,
    request: &DeleteRequest,
    context: &Context<'_>,
) -> Result<Grace, Refusal> {
    let metadata = metadata_of(object)?;
    if let Some(marked_s) = time_s(old, "/metadata/deletionTimestamp") {
        // None left: only finalizers keep it, or the server ended between the mark and the removal.
        let left_s = integer(old, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        if left_s == 0 {
            return Ok(Grace::None);
        }
        let Some(wanted_s) = request.grace_s.map(|wanted_s| if wanted_s < 0 { 1 } else { wanted_s }) else {
            return Ok(Grace::Pending);
        };
        if wanted_s >= left_s {
            return Ok(Grace::Pending);
        }
        metadata.insert(
            "deletionTimestamp".to_owned(),
            time_text(marked_s - left_s + wanted_s).into(),
        );
        metadata.insert("deletionGracePeriodSeconds", wanted_s.into());
        return Ok(Grace::Given(wanted_s));
    }
    let own_s = integer(old, "/spec/terminationGracePeriodSeconds").unwrap_or(30);
    let over = matches!(text(old, "/status/phase"), "Succeeded" | "Failed");
    let grace_s = match request.grace_s.unwrap_or(own_s) {
        _ if text(old, "/spec/nodeName").is_empty() || over => 0,
        negative @ ..0 => negative.signum().abs(),
        grace_s => grace_s,
    };
    metadata.insert(
        "deletionTimestamp".to_owned(),
        time_text(context.now_s + grace_s).into(),
    );
    metadata.insert("deletionGracePeriodSeconds", grace_s.into());
    bump_generation(object, old)?;
    Ok(Grace::Given(grace_s))
}

/// Marks an object that waits for its finalizers.
fn mark(object: &mut Value, old: &Value, context: &Context<'_>) -> Result<(), Refusal> {
    let metadata = metadata_of(object)?;
    if time_s(old, "/metadata/deletionTimestamp").is_none_or(|marked_s| marked_s > context.now_s) {
        metadata.insert("deletionTimestamp", context.now().into());
    }
    metadata.insert("deletionGracePeriodSeconds", 0.into());
    if text(old, "/metadata/deletionTimestamp").is_empty() {
        bump_generation(object, old)?;
    }
    Ok(())
}

fn bump_generation(object: &mut Value, old: &Value) -> Result<(), Refusal> {
    if let Some(generation) = integer(old, "/metadata/generation").filter(|&generation| generation > 0) {
        metadata_of(object)?.insert("generation", (generation + 1).into());
    }
    Ok(())
}

/// The finalizers after this request: the garbage collector's two come and go with the propagation policy.
fn finalizers<'a>(resource: &Resource, old: &'a Value, request: &DeleteRequest) -> Vec<&'a str> {
    let before = texts(old, "/metadata/finalizers");
    // Jobs and replication controllers of before garbage collection left their Pods behind, and still do.
    let orphans_by_default = matches!(&*resource.storage, "jobs.batch" | "replicationcontrollers");
    let asked = match request.dependents() {
        // What an object says itself weighs more than the kind's default.
        None if resource.storage != "events" && before.iter().any(|finalizer| is_collectors(finalizer)) => {
            return before;
        }
        None if orphans_by_default => Some(ORPHAN),
        None | Some(Propagation::Background) => None,
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
    };
    let mut finalizers: Vec<&str> = before
        .into_iter()
        .filter(|finalizer| !is_collectors(finalizer))
        .collect();
    // Events own nothing.
    if resource.storage != "events" {
        finalizers.extend(asked);
    }
    debug_assert!(finalizers.len() <= list(old, "/metadata/finalizers").len() + 1);
    finalizers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    const NOW: Context<'static> = Context {
        now_s: 1000,
        namespace: None,
        name: None,
        asked: None,
    };

    fn delete(resource: &str, old: &Value, grace_s: Option<i64>, propagation: Option<Propagation>) -> Deletion {
        let (group, plural) = resource.split_once('/').unwrap_or(("", resource));
        let resource = find(group, "v1", plural).unwrap();
        let request = DeleteRequest {
            grace_s,
            propagation,
            orphan: None,
        };
        prepare_delete(resource, old, &request, &NOW).unwrap()
    }

    fn marks(deletion: &Deletion) -> (String, Option<i64>) {
        let Deletion::Mark(object) = deletion else {
            panic!("not marked: {deletion:?}")
        };
        let grace_s = integer(object, "/metadata/deletionGracePeriodSeconds");
        (text(object, "/metadata/deletionTimestamp").to_owned(), grace_s)
    }

    #[test]
    fn a_pod_on_a_node_has_its_grace_and_later_requests_only_shorten_it() {
        let pod = json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        let first = delete("pods", &pod, None, None);
        assert_eq!(marks(&first), ("1970-01-01T00:17:10Z".to_owned(), Some(30)));
        let Deletion::Mark(marked) = first else { unreachable!() };
        assert_eq!(integer(&marked, "/metadata/generation"), Some(2));
        assert_eq!(delete("pods", &marked, None, None), Deletion::Pending);
        assert_eq!(delete("pods", &marked, Some(40), None), Deletion::Pending);
        assert_eq!(
            marks(&delete("pods", &marked, Some(10), None)),
            ("1970-01-01T00:16:50Z".to_owned(), Some(10))
        );
        assert!(matches!(delete("pods", &marked, Some(0), None), Deletion::Remove(_)));
    }

    #[test]
    fn a_pod_without_a_node_goes_at_once() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 30}});
        assert!(matches!(delete("pods", &pod, None, None), Deletion::Remove(_)));
    }

    #[test]
    fn a_pod_whose_deletion_was_broken_off_can_be_deleted_again() {
        let mut pod = json!({"metadata": {
            "name": "p", "deletionTimestamp": "1970-01-01T00:16:40Z", "deletionGracePeriodSeconds": 0,
        }});
        assert_eq!(delete("pods", &pod, None, None), Deletion::Remove(pod.clone()));
        assert_eq!(delete("pods", &pod, Some(0), None), Deletion::Remove(pod.clone()));
        pod["metadata"]["finalizers"] = json!(["e.com/a"]);
        assert_eq!(delete("pods", &pod, Some(0), None), Deletion::Pending);
    }

    #[test]
    fn finalizers_keep_an_object_until_they_are_gone() {
        let object = json!({"metadata": {"name": "c", "finalizers": ["e.com/a"]}});
        let Deletion::Mark(marked) = delete("configmaps", &object, None, None) else {
            panic!("not marked")
        };
        assert_eq!(integer(&marked, "/metadata/deletionGracePeriodSeconds"), Some(0));
        assert_eq!(delete("configmaps", &marked, None, None), Deletion::Pending);
        let resource = find("", "v1", "configmaps").unwrap();
        assert!(!is_gone(resource, &marked));
        let mut freed = marked;
        freed["metadata"]["finalizers"] = json!([]);
        assert!(is_gone(resource, &freed));
        assert!(!is_gone(resource, &json!({"metadata": {"name": "c"}})));
    }

    #[test]
    fn the_propagation_policy_sets_the_garbage_collectors_finalizers() {
        let plain = json!({"metadata": {"name": "d", "generation": 1}});
        let with = |policy| match delete("apps/deployments", &plain, None, policy) {
            Deletion::Mark(object) => json!(list(&object, "/metadata/finalizers")),
            Deletion::Remove(_) => json!("removed"),
            Deletion::Pending => json!("pending"),
        };
        assert_eq!(with(None), json!("removed"));
        assert_eq!(with(Some(Propagation::Background)), json!("removed"));
        assert_eq!(with(Some(Propagation::Foreground)), json!(["foregroundDeletion"]));
        assert_eq!(with(Some(Propagation::Orphan)), json!(["orphan"]));
        assert!(matches!(delete("batch/jobs", &plain, None, None), Deletion::Mark(_)));
    }

    #[test]
    fn a_namespace_terminates_until_its_finalizers_are_gone() {
        let namespace =
            json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let Deletion::Mark(marked) = delete("namespaces", &namespace, None, None) else {
            panic!("not marked")
        };
        assert_eq!(text(&marked, "/status/phase"), "Terminating");
        assert_eq!(delete("namespaces", &marked, None, None), Deletion::Pending);
        let mut freed = marked;
        freed["spec"]["finalizers"] = json!([]);
        assert!(matches!(delete("namespaces", &freed, None, None), Deletion::Remove(_)));
        freed["metadata"]["finalizers"] = json!(["e.com/a"]);
        let again = delete("namespaces", &freed, None, None);
        assert_eq!(marks(&again).1, Some(0), "kept as any object with finalizers");
    }

    #[test]
    fn a_namespace_without_finalizers_is_marked_before_it_goes() {
        let bare = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"phase": "Active"}});
        let Deletion::Mark(marked) = delete("namespaces", &bare, None, None) else {
            panic!("not marked")
        };
        assert!(matches!(delete("namespaces", &marked, None, None), Deletion::Remove(_)));
    }

    #[test]
    fn a_namespace_has_the_finalizer_that_the_policy_asks_for() {
        let namespace = json!({
            "metadata": {"name": "n", "finalizers": ["e.com/a", "orphan"]}, "spec": {"finalizers": ["kubernetes"]},
        });
        let after = |propagation, orphan| {
            let request = DeleteRequest {
                grace_s: None,
                propagation,
                orphan,
            };
            match prepare_delete(find("", "v1", "namespaces").unwrap(), &namespace, &request, &NOW).unwrap() {
                Deletion::Mark(object) => json!(list(&object, "/metadata/finalizers")),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after(None, None), json!(["e.com/a", "orphan"]));
        assert_eq!(after(Some(Propagation::Background), None), json!(["e.com/a"]));
        assert_eq!(after(Some(Propagation::Orphan), None), json!(["e.com/a", "orphan"]));
        assert_eq!(
            after(Some(Propagation::Foreground), None),
            json!(["e.com/a", "foregroundDeletion"])
        );
        assert_eq!(after(None, Some(true)), json!(["e.com/a", "orphan"]));
        assert_eq!(after(None, Some(false)), json!(["e.com/a", "foregroundDeletion"]));
    }
}
