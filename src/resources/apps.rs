//! The group `apps`: workloads.

use crate::tree::Value;

use super::FieldError;
use super::core::pods::spec::default_pod_spec;
use super::edit::{default_at, items_mut, object_at, remove_at, set_at};
use super::kind::Kind;
use super::lookup::{boolean, integer, list, present, text};
use super::row::Row;
use super::validate::{At, immutable};
use super::workload_rules::{
    check_collisions, check_counters, check_new_stateful_set, check_progress, check_restarts, check_rollout,
    check_selector, check_stateful_set, check_stateful_set_change, check_template, warn_name, warn_template,
};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("controllerrevisions.apps")
        .cells(revision_cells)
        .validate(|revision, errors| {
            let data = At::root(revision).get("data");
            if !data.present() {
                errors.push(data.required("data is mandatory"));
            }
        })
        .validate_update(|old, new, _, errors| immutable(old, new, "data", errors)),
    Kind::new("daemonsets.apps")
        .cells(daemon_set_cells)
        .defaults(daemon_set_defaults)
        .prepare_create(|set, _| set_at(set, "/metadata/annotations", TEMPLATE_GENERATION, "1"))
        .prepare_update(|old, new, _, _| count_template_generation(old, new))
        .validate(|set, errors| {
            let template = At::root(set).get("spec.template");
            check_selector(set, "daemonset", None, errors);
            check_template(&template, errors);
            check_restarts(&template, "DaemonSet", errors);
            check_rollout(set, "spec.updateStrategy", &["RollingUpdate", "OnDelete"], errors);
        })
        .validate_update(selector_stays)
        .validate_status(check_collisions)
        .warnings(warn_template)
        .warns_of_changed_spec()
        .checked_twice(),
    Kind::new("deployments.apps")
        .cells(|row| {
            let ready = ready_of_desired(row.object);
            row.name().text(ready).integer_at("/status/updatedReplicas");
            row.integer_at("/status/availableReplicas").age();
            containers_and_selector(row);
        })
        .defaults(deployment_defaults)
        .validate(|deployment, errors| {
            let template = At::root(deployment).get("spec.template");
            check_selector(deployment, "deployment", Some(UNSOUND), errors);
            check_template(&template, errors);
            check_restarts(&template, "ReplicaSet", errors);
            check_rollout(deployment, "spec.strategy", &["Recreate", "RollingUpdate"], errors);
            check_progress(deployment, errors);
        })
        .validate_update(selector_stays)
        .validate_status(|old, new, errors| {
            let counters = &["updatedReplicas", "readyReplicas", "availableReplicas"];
            check_counters(new, counters, "readyReplicas", errors);
            check_collisions(old, new, errors);
        })
        .counts_metadata("annotations")
        .warnings_create(warn_name)
        .warnings(warn_template)
        .warns_of_changed_spec()
        .status_keeps(&["labels"]),
    Kind::new("replicasets.apps")
        .cells(|row| {
            row.name()
                .integer_at("/spec/replicas")
                .integer_at("/status/replicas")
                .integer_at("/status/readyReplicas");
            row.age();
            containers_and_selector(row);
        })
        .defaults(|set| default_pod_spec(set, "/spec/template/spec"))
        .validate(|set, errors| {
            let template = At::root(set).get("spec.template");
            check_selector(set, "deployment", Some(UNSOUND), errors);
            check_template(&template, errors);
            check_restarts(&template, "ReplicaSet", errors);
        })
        .validate_update(selector_stays)
        .validate_status(|_, new, errors| {
            let counters = &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            check_counters(new, counters, "readyReplicas", errors);
        })
        .warnings_create(warn_name)
        .warnings(warn_template)
        .warns_of_changed_spec()
        .checked_twice(),
    Kind::new("statefulsets.apps")
        .cells(|row| {
            let ready = ready_of_desired(row.object);
            row.name()
                .text(ready)
                .age()
                .containers_at("/spec/template/spec/containers");
        })
        .defaults(stateful_set_defaults)
        .prepare_create(|set, _| drop_unavailable(None, set))
        .prepare_update(|old, new, _, _| drop_unavailable(Some(old), new))
        .validate(check_stateful_set)
        .validate_create(check_new_stateful_set)
        .validate_update(|old, new, subresource, errors| {
            if subresource.is_none() {
                check_stateful_set_change(old, new, errors);
            }
        })
        .validate_status(|old, new, errors| {
            let counters = &[
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
            ];
            check_counters(new, counters, "status.readyReplicas", errors);
            check_collisions(old, new, errors);
        })
        .warnings(stateful_set_warnings)
        .warns_of_changed_spec(),
];

const UNSOUND: &str = "invalid label selector";

fn stateful_set_warnings(set: &Value) -> Vec<String> {
    let mut warnings = warn_template(set);
    if integer(set, "/spec/revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        let warning =
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(warning.to_owned());
    }
    warnings
}

/// `maxUnavailable` of a StatefulSet is behind a feature gate (`MaxUnavailableStatefulSet`) that is off: it stays only where
/// it is already.
fn drop_unavailable(old: Option<&Value>, set: &mut Value) {
    const ROLLING: &str = "/spec/updateStrategy/rollingUpdate";
    const UNAVAILABLE: &str = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    if present(set, UNAVAILABLE) && !old.is_some_and(|old| present(old, UNAVAILABLE)) {
        remove_at(set, ROLLING, "maxUnavailable");
    }
}

fn selector_stays(old: &Value, new: &Value, _: Option<&str>, errors: &mut Vec<FieldError>) {
    immutable(old, new, "spec.selector", errors);
}

/// Counts changes of a DaemonSet's template, in text.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn revision_cells(row: &mut Row<'_>) {
    let owners = list(row.object, "/metadata/ownerReferences");
    let controller = owners.iter().find(|owner| boolean(owner, "/controller") == Some(true));
    let controller = controller.map_or("<none>".to_owned(), |owner| {
        let kind = text(owner, "/kind").to_lowercase();
        match text(owner, "/apiVersion").split_once('/') {
            Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "/name")),
            None => format!("{kind}/{}", text(owner, "/name")),
        }
    });
    row.name().text(controller).integer_at("/revision").age();
}

fn daemon_set_cells(row: &mut Row<'_>) {
    row.name();
    for counter in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        row.integer_at(&format!("/status/{counter}"));
    }
    row.labels_at("/spec/template/spec/nodeSelector").age();
    containers_and_selector(row);
}

fn daemon_set_defaults(set: &mut Value) {
    // A field of upstream's internal type that its versions show as an annotation, so it is there from the beginning.
    object_at(set, "/metadata/annotations");
    default_at(set, "/metadata/annotations", TEMPLATE_GENERATION, "0");
    default_pod_spec(set, "/spec/template/spec");
    object_at(set, "/spec/updateStrategy");
    default_at(set, "/spec/updateStrategy", "type", "RollingUpdate");
    if text(set, "/spec/updateStrategy/type") == "RollingUpdate" {
        object_at(set, "/spec/updateStrategy/rollingUpdate");
        default_at(set, "/spec/updateStrategy/rollingUpdate", "maxUnavailable", 1);
        default_at(set, "/spec/updateStrategy/rollingUpdate", "maxSurge", 0);
    }
}

fn count_template_generation(old: &Value, new: &mut Value) {
    let pointer = format!("/metadata/annotations/{TEMPLATE_GENERATION}");
    let changed = old.pointer("/spec/template") != new.pointer("/spec/template");
    if let Ok(generation) = text(old, &pointer).parse::<i64>() {
        let generation = generation.saturating_add(i64::from(changed));
        set_at(
            new,
            "/metadata/annotations",
            TEMPLATE_GENERATION,
            generation.to_string(),
        );
    }
}

fn deployment_defaults(deployment: &mut Value) {
    default_pod_spec(deployment, "/spec/template/spec");
    object_at(deployment, "/spec/strategy");
    default_at(deployment, "/spec/strategy", "type", "RollingUpdate");
    if text(deployment, "/spec/strategy/type") == "RollingUpdate" {
        object_at(deployment, "/spec/strategy/rollingUpdate");
        default_at(deployment, "/spec/strategy/rollingUpdate", "maxUnavailable", "25%");
        default_at(deployment, "/spec/strategy/rollingUpdate", "maxSurge", "25%");
    }
}

fn stateful_set_defaults(set: &mut Value) {
    default_pod_spec(set, "/spec/template/spec");
    object_at(set, "/spec/updateStrategy");
    default_at(set, "/spec/updateStrategy", "type", "RollingUpdate");
    if text(set, "/spec/updateStrategy/type") == "RollingUpdate" {
        object_at(set, "/spec/updateStrategy/rollingUpdate");
        default_at(set, "/spec/updateStrategy/rollingUpdate", "partition", 0);
    }
    for claim in items_mut(set, "/spec/volumeClaimTemplates") {
        default_at(claim, "", "kind", "PersistentVolumeClaim");
        default_at(claim, "", "apiVersion", "v1");
        default_at(claim, "/status", "phase", "Pending");
    }
}

fn ready_of_desired(workload: &Value) -> String {
    let count = |pointer| integer(workload, pointer).unwrap_or(0);
    format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"))
}

fn containers_and_selector(row: &mut Row<'_>) {
    row.containers_at("/spec/template/spec/containers")
        .selector_at("/spec/selector");
}
