//! `rollout history` and `undo`, from the revisions that controllers keep; here they are written by hand.

use crate::tool::{Kubectl, contains};

/// The ReplicaSet that a Deployment controller would keep of `image` as `revision`.
fn kept_replica_set(kubectl: &Kubectl, revision: u32, image: &str) {
    let uid = kubectl.field("deployment/web", ".metadata.uid");
    let manifest = format!(
        "apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-{revision}
  labels: {{app: web, pod-template-hash: h{revision}}}
  annotations: {{deployment.kubernetes.io/revision: '{revision}'}}
  ownerReferences:
  - {{apiVersion: apps/v1, kind: Deployment, name: web, uid: {uid}, controller: true, blockOwnerDeletion: true}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: web, pod-template-hash: h{revision}}}}}
  template:
    metadata: {{labels: {{app: web, pod-template-hash: h{revision}}}}}
    spec: {{containers: [{{name: web, image: '{image}'}}]}}
"
    );
    kubectl.ok_with(&["create", "-f", "-"], &manifest);
}

#[test]
fn a_deployment_goes_back_to_a_kept_replica_set() {
    let Some(kubectl) = Kubectl::without_controllers("history") else {
        return;
    };
    kubectl.ok(&["create", "deployment", "web", "--image=web:2"]);
    kept_replica_set(&kubectl, 1, "web:1");
    kept_replica_set(&kubectl, 2, "web:2");
    kubectl.ok(&["annotate", "deployment", "web", "deployment.kubernetes.io/revision=2"]);
    let history = kubectl.ok(&["rollout", "history", "deployment/web"]);
    let revisions: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.parse::<u32>().is_ok())
        .collect();
    assert_eq!(revisions, ["1", "2"], "{history}");
    contains(
        &kubectl.ok(&["rollout", "history", "deployment/web", "--revision=1"]),
        &["revision #1", "web:1"],
    );
    assert_eq!(
        kubectl.ok(&["rollout", "undo", "deployment/web", "--dry-run=server"]),
        "deployment.apps/web rolled back (server dry run)\n"
    );
    let image = ".spec.template.spec.containers[0].image";
    assert_eq!(kubectl.field("deployment/web", image), "web:2");
    kubectl.ok(&["rollout", "undo", "deployment/web", "--to-revision=1"]);
    assert_eq!(kubectl.field("deployment/web", image), "web:1");
    assert_eq!(
        kubectl.field("deployment/web", ".spec.template.metadata.labels"),
        r#"{"app":"web"}"#
    );
    kubectl.ok(&["rollout", "pause", "deployment/web"]);
    contains(
        &kubectl.fails(&["rollout", "undo", "deployment/web"]),
        &["cannot rollback a paused deployment"],
    );
}

#[test]
fn daemon_sets_and_stateful_sets_go_back_to_a_controller_revision() {
    let Some(kubectl) = Kubectl::without_controllers("revisions") else {
        return;
    };
    for (kind, more) in [("DaemonSet", ""), ("StatefulSet", "serviceName: web, ")] {
        let object = format!("{}/web", kind.to_lowercase());
        let pod = |image: &str| {
            format!("{{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: web, image: '{image}'}}]}}}}")
        };
        kubectl.ok_with(
            &["create", "-f", "-"],
            &format!(
                "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\n\
                 spec: {{{more}selector: {{matchLabels: {{app: web}}}}, template: {}}}\n",
                pod("web:2")
            ),
        );
        let uid = kubectl.field(&object, ".metadata.uid");
        for revision in [1, 2] {
            let name = format!("{}-{revision}", kind.to_lowercase());
            // The patch that leads back: the whole template.
            let template = pod(&format!("web:{revision}")).replacen('{', "{$patch: replace, ", 1);
            kubectl.ok_with(
                &["create", "-f", "-"],
                &format!(
                    "apiVersion: apps/v1\nkind: ControllerRevision\nmetadata:\n  name: {name}\n  labels: {{app: web}}\n  \
                     ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: web, uid: {uid}, controller: true}}]\n\
                     revision: {revision}\ndata: {{spec: {{template: {template}}}}}\n"
                ),
            );
        }
        let history = kubectl.ok(&["rollout", "history", &object]);
        contains(&history, &["REVISION", "\n1 ", "\n2 "]);
        kubectl.ok(&["rollout", "undo", &object, "--to-revision=1"]);
        assert_eq!(
            kubectl.field(&object, ".spec.template.spec.containers[0].image"),
            "web:1",
            "{kind}"
        );
        contains(&kubectl.ok(&["rollout", "restart", &object]), &["restarted"]);
        contains(
            &kubectl.field(&object, ".spec.template.metadata.annotations"),
            &["kubectl.kubernetes.io/restartedAt"],
        );
    }
}
