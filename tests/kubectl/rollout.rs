//! scale, rollout, and what stands in for the controllers that they wait for: status written by hand.

use crate::tool::{Kubectl, contains};

fn deployment(kubectl: &Kubectl) {
    kubectl.ok(&["create", "deployment", "web", "--image=web:1", "--replicas=2"]);
}

/// Writes the status that a deployment controller would come to.
fn settle(kubectl: &Kubectl, replicas: u32) {
    let generation = kubectl.field("deployment/web", ".metadata.generation");
    let status = format!(
        r#"{{"status":{{"observedGeneration":{generation},"replicas":{replicas},"updatedReplicas":{replicas},
        "readyReplicas":{replicas},"availableReplicas":{replicas},
        "conditions":[{{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}}]}}}}"#
    );
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ]);
}

#[test]
fn scale_goes_through_the_subresource() {
    let Some(kubectl) = Kubectl::without_controllers("scale") else {
        return;
    };
    deployment(&kubectl);
    assert_eq!(
        kubectl.ok(&["scale", "deployment/web", "--replicas=5"]),
        "deployment.apps/web scaled\n"
    );
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "5");
    assert_eq!(kubectl.field("deployment/web", ".metadata.generation"), "2");
    contains(
        &kubectl.fails(&["scale", "deployment/web", "--current-replicas=3", "--replicas=1"]),
        &["Expected replicas to be 3, was 5"],
    );
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/web/scale", kubectl.namespace);
    contains(
        &kubectl.ok(&["get", "--raw", &path]),
        &["\"kind\":\"Scale\"", "\"replicas\":5", "\"selector\":\"app=web\""],
    );
    kubectl.ok(&["create", "-f", "database.yaml"]);
    kubectl.ok(&["scale", "statefulset", "postgres", "--replicas=0"]);
    assert_eq!(kubectl.field("statefulset/postgres", ".spec.replicas"), "0");
}

#[test]
fn rollout_status_ends_when_the_status_says_so() {
    let Some(kubectl) = Kubectl::without_controllers("rollout") else {
        return;
    };
    deployment(&kubectl);
    let mut rollout = kubectl.start(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    contains(&rollout.line(), &["Waiting for deployment"]);
    settle(&kubectl, 2);
    let last = loop {
        let line = rollout.line();
        if !line.starts_with("Waiting") {
            break line;
        }
    };
    assert_eq!(last, "deployment \"web\" successfully rolled out");
    assert!(rollout.end());
    contains(&kubectl.ok(&["get", "deployment", "web"]), &["2/2"]);
    contains(
        &kubectl.ok(&["wait", "--for=condition=Available", "deployment/web"]),
        &["condition met"],
    );
    contains(&kubectl.ok(&["rollout", "restart", "deployment/web"]), &["restarted"]);
    assert_eq!(kubectl.field("deployment/web", ".metadata.generation"), "2");
    contains(&kubectl.ok(&["rollout", "pause", "deployment/web"]), &["paused"]);
    contains(&kubectl.ok(&["rollout", "resume", "deployment/web"]), &["resumed"]);
}

#[test]
fn status_and_spec_are_written_apart() {
    let Some(kubectl) = Kubectl::without_controllers("status") else {
        return;
    };
    deployment(&kubectl);
    settle(&kubectl, 2);
    // The main resource does not touch the status, the subresource does not touch the spec.
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"paused":true},"status":{"replicas":9}}"#,
    ]);
    assert_eq!(kubectl.field("deployment/web", ".status.replicas"), "2");
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"spec":{"paused":false},"status":{"replicas":3}}"#,
    ]);
    assert_eq!(kubectl.field("deployment/web", ".spec.paused"), "true");
    assert_eq!(kubectl.field("deployment/web", ".status.replicas"), "3");
}

#[test]
fn set_changes_the_template() {
    let Some(kubectl) = Kubectl::without_controllers("set") else {
        return;
    };
    deployment(&kubectl);
    contains(
        &kubectl.ok(&["set", "image", "deployment/web", "web=web:2"]),
        &["image updated"],
    );
    contains(
        &kubectl.ok(&["set", "env", "deployment/web", "LEVEL=debug"]),
        &["env updated"],
    );
    contains(
        &kubectl.ok(&["set", "resources", "deployment/web", "--limits=cpu=200m,memory=64Mi"]),
        &["requirements updated"],
    );
    let container = ".spec.template.spec.containers[0]";
    assert_eq!(kubectl.field("deployment/web", &format!("{container}.image")), "web:2");
    assert_eq!(
        kubectl.field("deployment/web", &format!("{container}.env[0].value")),
        "debug"
    );
    assert_eq!(
        kubectl.field("deployment/web", &format!("{container}.resources.limits.memory")),
        "64Mi"
    );
    assert_eq!(kubectl.field("deployment/web", ".metadata.generation"), "4");
}

#[test]
fn a_rollout_is_paused_resumed_and_restarted() {
    let Some(kubectl) = Kubectl::without_controllers("pause") else {
        return;
    };
    deployment(&kubectl);
    contains(&kubectl.ok(&["rollout", "pause", "deployment/web"]), &["paused"]);
    assert_eq!(kubectl.field("deployment/web", ".spec.paused"), "true");
    contains(
        &kubectl.fails(&["rollout", "restart", "deployment/web"]),
        &["can't restart paused deployment"],
    );
    contains(&kubectl.ok(&["rollout", "resume", "deployment/web"]), &["resumed"]);
    contains(&kubectl.ok(&["rollout", "restart", "deployment/web"]), &["restarted"]);
    let annotations = kubectl.field("deployment/web", ".spec.template.metadata.annotations");
    contains(&annotations, &["kubectl.kubernetes.io/restartedAt"]);
}
