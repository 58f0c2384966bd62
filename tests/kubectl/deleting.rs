//! Deletion as clients ask for it, nodes that are drained, and evictions that a budget forbids.

use crate::tool::{Kubectl, contains};

fn workload(kubectl: &Kubectl) {
    kubectl.ok(&["create", "deployment", "web", "--image=web:1"]);
}

fn finalizers(kubectl: &Kubectl) -> String {
    kubectl.field("deployment/web", ".metadata.finalizers")
}

#[test]
fn each_cascade_leaves_its_finalizer() {
    // Without the garbage collector, which would take them away again.
    for (cascade, finalizer) in [("foreground", "foregroundDeletion"), ("orphan", "orphan")] {
        let Some(kubectl) = Kubectl::without_controllers(cascade) else {
            return;
        };
        workload(&kubectl);
        kubectl.ok(&[
            "patch",
            "deployment",
            "web",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":["example.com/stay"]}}"#,
        ]);
        kubectl.ok(&[
            "delete",
            "deployment",
            "web",
            &format!("--cascade={cascade}"),
            "--wait=false",
        ]);
        assert_ne!(kubectl.field("deployment/web", ".metadata.deletionTimestamp"), "");
        assert!(
            finalizers(&kubectl).contains(finalizer),
            "{cascade}: {}",
            finalizers(&kubectl)
        );
        // Asked again in the background, it waits for the other finalizer alone.
        kubectl.ok(&["delete", "deployment", "web", "--cascade=background", "--wait=false"]);
        assert_eq!(finalizers(&kubectl), r#"["example.com/stay"]"#, "{cascade}");
        kubectl.ok(&[
            "patch",
            "deployment",
            "web",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ]);
        contains(&kubectl.fails(&["get", "deployment", "web"]), &["NotFound"]);
    }
}

#[test]
fn what_is_owned_goes_or_stays_as_the_cascade_says() {
    for cascade in ["background", "foreground", "orphan"] {
        let Some(kubectl) = Kubectl::new(cascade) else { return };
        workload(&kubectl);
        let uid = kubectl.field("deployment/web", ".metadata.uid");
        let owned = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: owned\n  ownerReferences:\n  \
             - {{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, blockOwnerDeletion: true}}\n"
        );
        kubectl.ok_with(&["create", "-f", "-"], &owned);
        // kubectl waits for the deletion's end.
        kubectl.ok(&[
            "delete",
            "deployment",
            "web",
            &format!("--cascade={cascade}"),
            "--timeout=60s",
        ]);
        if cascade == "orphan" {
            assert_eq!(kubectl.field("cm/owned", ".metadata.ownerReferences"), "");
        } else {
            kubectl.ok(&["wait", "cm/owned", "--for=delete", "--timeout=60s"]);
        }
    }
}

#[test]
fn delete_waits_until_it_is_gone() {
    let Some(kubectl) = Kubectl::new("gone") else { return };
    workload(&kubectl);
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":["example.com/stay"]}}"#,
    ]);
    let mut deletion = kubectl.start(&["delete", "deployment", "web", "--timeout=60s"]);
    assert_eq!(deletion.line(), "deployment.apps \"web\" deleted");
    kubectl.ok(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.metadata.deletionTimestamp}",
        "--timeout=60s",
    ]);
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    assert!(deletion.end());
}

#[test]
fn a_dry_run_deletes_nothing_and_a_wrong_uid_neither() {
    let Some(kubectl) = Kubectl::new("dry") else { return };
    workload(&kubectl);
    contains(
        &kubectl.ok(&["delete", "deployment", "web", "--dry-run=server"]),
        &["deleted (server dry run)"],
    );
    kubectl.ok(&["get", "deployment", "web"]);
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", kubectl.namespace);
    let options = r#"{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"another"}}"#;
    contains(
        &kubectl.fails_with(&["delete", "--raw", &path, "-f", "-"], options),
        &["the UID in the precondition (another) does not match the UID in record"],
    );
    kubectl.ok(&["get", "deployment", "web"]);
}

/// A node with a Pod on it.
fn occupied_node(kubectl: &Kubectl) -> String {
    let node = format!("{}-node", kubectl.namespace);
    kubectl.ok_with(
        &["create", "-f", "-"],
        &format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n---\n\
             apiVersion: v1\nkind: Pod\nmetadata: {{name: web, labels: {{app: web}}}}\n\
             spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 0\n  containers: [{{name: web, image: 'web:1'}}]\n"
        ),
    );
    node
}

#[test]
fn a_node_is_drained() {
    let Some(kubectl) = Kubectl::new("drain") else { return };
    let node = occupied_node(&kubectl);
    contains(
        &kubectl.fails(&["drain", &node]),
        &["cannot delete", "declare no controller"],
    );
    contains(
        &kubectl.ok(&["drain", &node, "--force", "--ignore-daemonsets", "--timeout=60s"]),
        &["evicting pod", "drained"],
    );
    contains(&kubectl.fails(&["get", "pod", "web"]), &["NotFound"]);
    contains(&kubectl.ok(&["get", "node", &node]), &["SchedulingDisabled"]);
    kubectl.ok(&["delete", "node", &node]);
}

#[test]
fn a_budget_holds_an_eviction_up() {
    // Without the disruption controller, which would come to something else.
    let Some(kubectl) = Kubectl::without_controllers("budget") else {
        return;
    };
    let node = occupied_node(&kubectl);
    kubectl.ok(&["create", "pdb", "web", "--selector=app=web", "--min-available=1"]);
    let generation = kubectl.field("pdb/web", ".metadata.generation");
    let status = |allowed: u32| {
        let text = format!(
            r#"{{"status":{{"observedGeneration":{generation},"currentHealthy":1,"desiredHealthy":1,"expectedPods":1,
            "disruptionsAllowed":{allowed}}}}}"#
        );
        kubectl.ok(&[
            "patch",
            "pdb",
            "web",
            "--subresource=status",
            "--type=merge",
            "-p",
            &text,
        ]);
    };
    kubectl.ok(&[
        "patch",
        "pod",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#,
    ]);
    status(0);
    contains(
        &kubectl.fails(&["drain", &node, "--force", "--timeout=1s"]),
        &["Cannot evict pod as it would violate the pod's disruption budget."],
    );
    kubectl.ok(&["get", "pod", "web"]);
    status(1);
    kubectl.ok(&["drain", &node, "--force", "--timeout=60s"]);
    contains(&kubectl.fails(&["get", "pod", "web"]), &["NotFound"]);
    assert_eq!(kubectl.field("pdb/web", ".status.disruptionsAllowed"), "0");
    kubectl.ok(&["delete", "node", &node]);
}
