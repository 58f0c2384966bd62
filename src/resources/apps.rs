//! The group `apps`: workloads.

use serde_json::Value;

use super::kind::Kind;
use super::lookup::{boolean, integer, list, text};
use super::row::Row;

pub(super) const KINDS: &[Kind] = &[
    Kind::new("controllerrevisions.apps").cells(|row| {
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
    }),
    Kind::new("daemonsets.apps").cells(|row| {
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
    }),
    Kind::new("deployments.apps").cells(|row| {
        let workload = row.object;
        row.name()
            .text(ready_of_desired(workload))
            .integer_at("/status/updatedReplicas");
        row.integer_at("/status/availableReplicas").age();
        containers_and_selector(row);
    }),
    Kind::new("replicasets.apps").cells(|row| {
        row.name()
            .integer_at("/spec/replicas")
            .integer_at("/status/replicas")
            .integer_at("/status/readyReplicas");
        row.age();
        containers_and_selector(row);
    }),
    Kind::new("statefulsets.apps").cells(|row| {
        let workload = row.object;
        row.name()
            .text(ready_of_desired(workload))
            .age()
            .containers_at("/spec/template/spec/containers");
    }),
];

fn ready_of_desired(workload: &Value) -> String {
    let count = |pointer| integer(workload, pointer).unwrap_or(0);
    format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"))
}

fn containers_and_selector(row: &mut Row<'_>) {
    row.containers_at("/spec/template/spec/containers")
        .selector_at("/spec/selector");
}
