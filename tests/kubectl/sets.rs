//! Many objects as one: kustomizations, and what is taken away because the next apply leaves it out.

use std::fs;

use crate::tool::{Kubectl, contains};

fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: mine}}}}\n---\n")
}

fn names(kubectl: &Kubectl) -> String {
    kubectl.ok(&["get", "cm", "-l", "set=mine", "-o", "name"])
}

#[test]
fn a_kustomization_is_applied_changed_and_deleted() {
    let Some(kubectl) = Kubectl::new("kustomize") else {
        return;
    };
    let applied = kubectl.ok(&["apply", "-k", "kustomize/overlay"]);
    contains(
        &applied,
        &[
            "configmap/green-board-settings-",
            "service/green-board created",
            "deployment.apps/green-board created",
        ],
    );
    for line in kubectl.ok(&["apply", "-k", "kustomize/overlay"]).lines() {
        assert!(line.ends_with(" unchanged"), "{line}");
    }
    assert_eq!(kubectl.ok(&["diff", "-k", "kustomize/overlay"]), "");
    assert_eq!(kubectl.field("deployment/green-board", ".spec.replicas"), "3");
    assert_eq!(
        kubectl.field("deployment/green-board", ".spec.template.spec.containers[0].image"),
        "registry.example.com/board:2"
    );
    assert_eq!(kubectl.field("service/green-board", ".spec.ports[0].port"), "8080");
    let generated = kubectl.field(
        "deployment/green-board",
        ".spec.template.spec.containers[0].envFrom[0].configMapRef.name",
    );
    assert_eq!(kubectl.field(&format!("cm/{generated}"), ".data.level"), "info");
    kubectl.ok(&["apply", "--server-side", "--force-conflicts", "-k", "kustomize/overlay"]);
    contains(
        &kubectl.ok(&["delete", "-k", "kustomize/overlay"]),
        &[
            "service \"green-board\" deleted",
            "deployment.apps \"green-board\" deleted",
        ],
    );
    assert_eq!(
        kubectl.ok(&["get", "deployments,services", "-o", "name", "--ignore-not-found"]),
        ""
    );
}

#[test]
fn prune_takes_away_what_the_next_apply_leaves_out() {
    let Some(kubectl) = Kubectl::new("prune") else { return };
    let prune = [
        "apply",
        "--prune",
        "-l",
        "set=mine",
        "--prune-allowlist=core/v1/ConfigMap",
        "-f",
        "-",
    ];
    let both = map("a") + &map("b");
    kubectl.ok_with(&prune, &both);
    // One that was not applied is nobody's to prune.
    kubectl.ok(&["create", "cm", "c"]);
    kubectl.ok(&["label", "cm", "c", "set=mine"]);
    contains(
        &kubectl.ok_with(&prune, &map("a")),
        &["configmap/a unchanged", "configmap/b pruned"],
    );
    assert_eq!(names(&kubectl), "configmap/a\nconfigmap/c\n");
}

#[test]
fn an_apply_set_remembers_its_members() {
    let Some(kubectl) = Kubectl::new("applyset") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("set.yaml");
    let apply = |text: String| {
        fs::write(&file, text).expect("written");
        let output = kubectl
            .command(&["apply", "--server-side", "--prune", "--applyset=configmaps/set", "-f"])
            .arg(&file)
            .env("KUBECTL_APPLYSET", "true")
            .output()
            .expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    apply(map("a") + &map("b"));
    assert_eq!(names(&kubectl), "configmap/a\nconfigmap/b\n");
    contains(
        &kubectl.field("cm/set", ".metadata.annotations"),
        &["applyset.kubernetes.io/contains-group-kinds", "ConfigMap"],
    );
    contains(&apply(map("b") + &map("c")), &["configmap/a pruned"]);
    assert_eq!(names(&kubectl), "configmap/b\nconfigmap/c\n");
}
