//! `apply --server-side`: who owns what, conflicts, what goes when nobody wants it any more, and what people had before.

use crate::tool::{Kubectl, MAP, contains};

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'web:1', ports: [{containerPort: 80}]}
";

fn apply(kubectl: &Kubectl, text: &str, more: &[&str]) -> String {
    kubectl.ok_with(&[&["apply", "--server-side", "-f", "-"], more].concat(), text)
}

fn managers(kubectl: &Kubectl, object: &str) -> String {
    kubectl.ok(&[
        "get",
        object,
        "--show-managed-fields",
        "-o",
        "jsonpath={range .metadata.managedFields[*]}{.manager}/{.operation} {end}",
    ])
}

#[test]
fn what_is_applied_twice_is_written_once() {
    let Some(kubectl) = Kubectl::new("ssa") else { return };
    assert_eq!(apply(&kubectl, MAP, &[]), "configmap/settings serverside-applied\n");
    assert_eq!(managers(&kubectl, "cm/settings"), "kubectl/Apply ");
    let revision = kubectl.field("cm/settings", ".metadata.resourceVersion");
    apply(&kubectl, MAP, &[]);
    assert_eq!(kubectl.field("cm/settings", ".metadata.resourceVersion"), revision);
    assert_eq!(kubectl.ok_with(&["diff", "--server-side", "-f", "-"], MAP), "");
    assert_eq!(
        kubectl.field("cm/settings", ".metadata.annotations"),
        "",
        "nothing is remembered in an annotation"
    );
}

#[test]
fn a_key_that_nobody_applies_any_more_goes() {
    let Some(kubectl) = Kubectl::new("ssadrop") else { return };
    apply(&kubectl, MAP, &[]);
    kubectl.ok(&[
        "patch",
        "cm",
        "settings",
        "--type=merge",
        "-p",
        r#"{"data":{"theirs":"kept"}}"#,
    ]);
    apply(&kubectl, &MAP.replace("  size: small\n", "  shape: round\n"), &[]);
    assert_eq!(
        kubectl.field("cm/settings", ".data"),
        r#"{"colour":"red","shape":"round","theirs":"kept"}"#
    );
    // Two who want the same: it stays until both let go.
    apply(&kubectl, MAP, &["--field-manager=second"]);
    apply(
        &kubectl,
        &MAP.replace("  colour: red\n", ""),
        &["--field-manager=second"],
    );
    assert_eq!(kubectl.field("cm/settings", ".data.colour"), "red");
    apply(&kubectl, &MAP.replace("  colour: red\n", ""), &[]);
    assert_eq!(
        kubectl.field("cm/settings", ".data"),
        r#"{"size":"small","theirs":"kept"}"#
    );
}

#[test]
fn two_who_want_different_things_meet_in_a_conflict() {
    let Some(kubectl) = Kubectl::new("conflict") else {
        return;
    };
    apply(&kubectl, DEPLOYMENT, &[]);
    let other = DEPLOYMENT.replace("replicas: 2", "replicas: 5");
    let arguments = ["apply", "--server-side", "--field-manager=scaler", "-f", "-"];
    contains(
        &kubectl.fails_with(&arguments, &other),
        &["conflict", "\"kubectl\"", ".spec.replicas", "--force-conflicts"],
    );
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "2");
    kubectl.ok_with(&[&arguments[..], &["--force-conflicts"]].concat(), &other);
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "5");
    // Now the first one is in conflict, and lets go of what it does not want to decide.
    contains(
        &kubectl.fails_with(&["apply", "--server-side", "-f", "-"], DEPLOYMENT),
        &["conflict", "\"scaler\""],
    );
    apply(&kubectl, &DEPLOYMENT.replace("  replicas: 2\n", ""), &[]);
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "5");
}

#[test]
fn lists_are_merged_by_their_keys() {
    let Some(kubectl) = Kubectl::new("ssalist") else { return };
    apply(&kubectl, DEPLOYMENT, &[]);
    let side = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - {name: side, image: 'side:1'}
";
    apply(&kubectl, side, &["--field-manager=injector"]);
    let names = ".spec.template.spec.containers[*].name";
    assert_eq!(kubectl.field("deployment/web", names), "web side");
    apply(&kubectl, &DEPLOYMENT.replace("web:1", "web:2"), &[]);
    assert_eq!(
        kubectl.field("deployment/web", ".spec.template.spec.containers[*].image"),
        "web:2 side:1"
    );
    apply(
        &kubectl,
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
        &["--field-manager=injector"],
    );
    assert_eq!(kubectl.field("deployment/web", names), "web");
}

#[test]
fn what_was_applied_by_the_client_goes_over_to_the_server() {
    let Some(kubectl) = Kubectl::new("migrate") else { return };
    kubectl.ok_with(&["apply", "-f", "-"], MAP);
    apply(&kubectl, &MAP.replace("  size: small\n", ""), &[]);
    // A key that was applied by the client before, and is not any more, goes: kubectl moves its ownership first.
    assert_eq!(kubectl.field("cm/settings", ".data"), r#"{"colour":"red"}"#);
    let managers = managers(&kubectl, "cm/settings");
    assert!(!managers.contains("client-side-apply"), "{managers}");
    // And back: a client-side apply finds its annotation kept up by the server.
    kubectl.ok_with(&["apply", "-f", "-"], &MAP.replace("red", "green"));
    assert_eq!(
        kubectl.field("cm/settings", ".data"),
        r#"{"colour":"green","size":"small"}"#
    );
}

#[test]
fn dry_runs_and_diffs_change_nothing() {
    let Some(kubectl) = Kubectl::new("ssadry") else { return };
    assert_eq!(
        apply(&kubectl, MAP, &["--dry-run=server"]),
        "configmap/settings serverside-applied (server dry run)\n"
    );
    contains(&kubectl.fails(&["get", "cm", "settings"]), &["NotFound"]);
    apply(&kubectl, MAP, &[]);
    let revision = kubectl.field("cm/settings", ".metadata.resourceVersion");
    let output = kubectl.run(&["diff", "--server-side", "-f", "-"], &MAP.replace("red", "blue"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    contains(
        &String::from_utf8_lossy(&output.stdout),
        &["-  colour: red", "+  colour: blue"],
    );
    assert_eq!(kubectl.field("cm/settings", ".metadata.resourceVersion"), revision);
}

#[test]
fn a_field_that_does_not_exist_is_refused() {
    let Some(kubectl) = Kubectl::new("ssatypo") else { return };
    contains(
        &kubectl.fails_with(
            &["apply", "--server-side", "-f", "-"],
            &DEPLOYMENT.replace("replicas", "replcas"),
        ),
        &["replcas"],
    );
}

#[test]
fn every_manifest_is_applied_by_the_server() {
    let Some(kubectl) = Kubectl::without_controllers("ssafiles") else {
        return;
    };
    for file in [
        "access.yaml",
        "batch.yaml",
        "database.yaml",
        "monitoring.yaml",
        "pods.yaml",
        "shop.yaml",
    ] {
        // Objects of the cluster may be there already, by another test's hand.
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", file];
        kubectl.ok(&arguments);
        let revisions = || {
            let columns = "custom-columns=K:.kind,N:.metadata.name,R:.metadata.resourceVersion";
            kubectl.ok(&["get", "-f", file, "-o", columns])
        };
        let before = revisions();
        kubectl.ok(&arguments);
        // Others may write the cluster's.
        let kept = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|line| !line.starts_with("Cluster") && !line.starts_with("Namespace"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(kept(&revisions()), kept(&before), "{file} was written again");
    }
}
