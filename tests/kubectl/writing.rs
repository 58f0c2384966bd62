//! create, apply, label, annotate, edit, patch, replace, delete, diff, wait, scale.

use std::fs;

use crate::tool::{Kubectl, MAP, contains};

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: web, image: 'web:1'}
  - {name: side, image: 'side:1'}
";

#[test]
fn apply_creates_configures_and_leaves_alone() {
    let Some(kubectl) = Kubectl::new("apply") else { return };
    let apply = |text: &str| kubectl.ok_with(&["apply", "-f", "-"], text);
    assert_eq!(apply(MAP), "configmap/settings created\n");
    let revision = kubectl.field("cm/settings", ".metadata.resourceVersion");
    assert_eq!(apply(MAP), "configmap/settings unchanged\n");
    assert_eq!(kubectl.field("cm/settings", ".metadata.resourceVersion"), revision);
    // A key that is left out of the next manifest goes; one that another set stays.
    kubectl.ok(&[
        "patch",
        "cm",
        "settings",
        "--type",
        "merge",
        "-p",
        r#"{"data":{"theirs":"kept"}}"#,
    ]);
    assert_eq!(
        apply(&MAP.replace("  size: small\n", "  shape: round\n")),
        "configmap/settings configured\n"
    );
    assert_eq!(
        kubectl.field("cm/settings", ".data"),
        r#"{"colour":"red","shape":"round","theirs":"kept"}"#
    );
    assert_ne!(kubectl.field("cm/settings", ".metadata.resourceVersion"), revision);
    contains(
        &kubectl.ok(&["apply", "view-last-applied", "configmap/settings"]),
        &["shape: round"],
    );
    assert_eq!(
        kubectl.ok_with(&["apply", "--dry-run=server", "-f", "-"], &MAP.replace("red", "blue")),
        "configmap/settings configured (server dry run)\n"
    );
    assert_eq!(kubectl.field("cm/settings", ".data.colour"), "red");
}

#[test]
fn apply_merges_lists_by_their_keys() {
    let Some(kubectl) = Kubectl::new("merge") else { return };
    kubectl.ok_with(
        &["apply", "-f", "-"],
        &POD.replace("kind: Pod", "kind: Pod # with two containers"),
    );
    // Another writer sets a field of one container; the next apply changes the image of the other.
    kubectl.ok(&["set", "image", "pod/web", "side=side:2"]);
    let manifest = POD.replace("web:1", "web:3").replace(
        "  - {name: side, image: 'side:1'}\n",
        "  - {name: side, image: 'side:2'}\n",
    );
    assert_eq!(
        kubectl.ok_with(&["apply", "-f", "-"], &manifest),
        "pod/web configured\n"
    );
    assert_eq!(kubectl.field("pod/web", ".spec.containers[*].image"), "web:3 side:2");
}

#[test]
fn label_and_annotate_set_overwrite_and_remove() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("label") else {
        return;
    };
    kubectl.ok_with(&["create", "-f", "-"], MAP);
    assert_eq!(
        kubectl.ok(&["label", "cm", "settings", "tier=web"]),
        "configmap/settings labeled\n"
    );
    contains(
        &kubectl.fails(&["label", "cm", "settings", "tier=db"]),
        &["already has a value (web), and --overwrite is false"],
    );
    kubectl.ok(&["label", "--overwrite", "cm", "settings", "tier=db"]);
    assert_eq!(
        kubectl.field("cm/settings", ".metadata.labels"),
        r#"{"app":"one","tier":"db"}"#
    );
    assert_eq!(
        kubectl.ok(&["label", "cm", "settings", "tier-"]),
        "configmap/settings unlabeled\n"
    );
    assert_eq!(kubectl.field("cm/settings", ".metadata.labels"), r#"{"app":"one"}"#);
    assert_eq!(
        kubectl.ok(&["annotate", "cm", "settings", "note=first words"]),
        "configmap/settings annotated\n"
    );
    assert_eq!(
        kubectl.field("cm/settings", ".metadata.annotations.note"),
        "first words"
    );
    kubectl.ok(&["label", "cm", "--all", "swept=yes"]);
    assert_eq!(
        kubectl.ok(&["get", "cm", "-l", "swept=yes", "-o", "name"]),
        "configmap/settings\n"
    );
    contains(
        &kubectl.fails(&["label", "cm", "settings", "bad=not a label"]),
        &["a valid label must be an empty string or consist of"],
    );
}

#[test]
fn edit_writes_what_the_editor_left() {
    let Some(kubectl) = Kubectl::new("edit") else { return };
    kubectl.ok_with(&["create", "-f", "-"], MAP);
    let edit = |script: &str| {
        let output = kubectl
            .command(&["edit", "configmap", "settings"])
            .env("KUBE_EDITOR", format!("sed -i {script}"))
            .output()
            .expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    assert_eq!(edit("s/red/green/"), "configmap/settings edited\n");
    assert_eq!(kubectl.field("cm/settings", ".data.colour"), "green");
    contains(&edit("s/nothing-like-this/x/"), &["Edit cancelled, no changes made"]);
}

#[test]
fn each_type_of_patch_is_applied() {
    let Some(kubectl) = Kubectl::new("patch") else { return };
    kubectl.ok_with(&["create", "-f", "-"], POD);
    let patch = |kind: &str, text: &str| kubectl.ok(&["patch", "pod", "web", "--type", kind, "-p", text]);
    assert_eq!(
        patch(
            "strategic",
            r#"{"spec":{"containers":[{"name":"side","image":"side:2"}]}}"#
        ),
        "pod/web patched\n"
    );
    assert_eq!(kubectl.field("pod/web", ".spec.containers[*].image"), "web:1 side:2");
    assert_eq!(
        patch(
            "json",
            r#"[{"op":"replace","path":"/spec/containers/0/image","value":"web:2"},{"op":"test","path":"/metadata/name","value":"web"}]"#
        ),
        "pod/web patched\n"
    );
    assert_eq!(kubectl.field("pod/web", ".spec.containers[*].image"), "web:2 side:2");
    assert_eq!(
        patch("merge", r#"{"metadata":{"labels":{"app":null,"new":"yes"}}}"#),
        "pod/web patched\n"
    );
    assert_eq!(kubectl.field("pod/web", ".metadata.labels"), r#"{"new":"yes"}"#);
    assert_eq!(
        patch("merge", r#"{"metadata":{"labels":{"new":"yes"}}}"#),
        "pod/web patched (no change)\n"
    );
    let failed = kubectl.fails(&[
        "patch",
        "pod",
        "web",
        "--type",
        "json",
        "-p",
        r#"[{"op":"test","path":"/metadata/name","value":"other"}]"#,
    ]);
    contains(
        &failed,
        &["the server rejected our request due to an error in our request"],
    );
    let failed = kubectl.fails(&["patch", "pod", "none", "--type", "merge", "-p", "{}"]);
    contains(&failed, &["(NotFound): pods \"none\" not found"]);
}

#[test]
fn replace_needs_the_current_revision_when_it_names_one() {
    let Some(kubectl) = Kubectl::new("replace") else { return };
    kubectl.ok_with(&["create", "-f", "-"], MAP);
    let old = kubectl.ok(&["get", "cm", "settings", "-o", "yaml"]);
    assert_eq!(
        kubectl.ok_with(&["replace", "-f", "-"], &MAP.replace("red", "blue")),
        "configmap/settings replaced\n"
    );
    assert_eq!(kubectl.field("cm/settings", ".data.colour"), "blue");
    let failed = kubectl.fails_with(&["replace", "-f", "-"], &old.replace("red", "black"));
    contains(
        &failed,
        &[
            "(Conflict)",
            "the object has been modified; please apply your changes to the latest version and try again",
        ],
    );
    let uid = kubectl.field("cm/settings", ".metadata.uid");
    contains(
        &kubectl.ok_with(&["replace", "--force", "-f", "-"], MAP),
        &["deleted", "configmap/settings replaced"],
    );
    assert_ne!(kubectl.field("cm/settings", ".metadata.uid"), uid);
}

#[test]
fn delete_by_name_by_label_by_file_and_all() {
    let Some(kubectl) = Kubectl::new("delete") else { return };
    kubectl.ok(&["create", "-f", "shop.yaml"]);
    contains(
        &kubectl.ok(&["delete", "deployment", "cart"]),
        &["deployment.apps \"cart\" deleted"],
    );
    contains(
        &kubectl.fails(&["get", "deployment", "cart"]),
        &["(NotFound): deployments.apps \"cart\" not found"],
    );
    contains(
        &kubectl.ok(&["delete", "services", "-l", "app.kubernetes.io/part-of=shop"]),
        &["service \"frontend\" deleted", "service \"cart\" deleted"],
    );
    kubectl.ok(&["delete", "--ignore-not-found", "-f", "shop.yaml"]);
    assert_eq!(
        kubectl.ok(&["get", "deployments,services,hpa,pdb,ingress,secrets", "-o", "name"]),
        ""
    );
    kubectl.ok_with(&["create", "-f", "-"], MAP);
    contains(&kubectl.ok(&["delete", "configmaps", "--all"]), &["deleted"]);
    assert_eq!(kubectl.ok(&["get", "cm", "settings", "--ignore-not-found"]), "");
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_taken_away() {
    let Some(kubectl) = Kubectl::new("finalizer") else {
        return;
    };
    kubectl.ok(&["create", "-f", "pods.yaml"]);
    kubectl.ok(&["delete", "pod", "everything", "--wait=false"]);
    assert_ne!(kubectl.field("pod/everything", ".metadata.deletionTimestamp"), "");
    contains(&kubectl.ok(&["get", "pod", "everything"]), &["Terminating"]);
    // Gone with its last finalizer and its grace period.
    kubectl.ok(&[
        "patch",
        "pod",
        "everything",
        "--type",
        "merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    kubectl.ok(&[
        "delete",
        "pod",
        "everything",
        "--grace-period=0",
        "--force",
        "--ignore-not-found",
    ]);
    contains(&kubectl.fails(&["get", "pod", "everything"]), &["NotFound"]);
}

#[test]
fn diff_shows_what_apply_would_change() {
    let Some(kubectl) = Kubectl::new("diff") else { return };
    kubectl.ok_with(&["apply", "-f", "-"], MAP);
    assert_eq!(kubectl.ok_with(&["diff", "-f", "-"], MAP), "");
    let output = kubectl.run(&["diff", "-f", "-"], &MAP.replace("red", "blue"));
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    contains(
        &String::from_utf8_lossy(&output.stdout),
        &["-  colour: red", "+  colour: blue"],
    );
    assert_eq!(kubectl.field("cm/settings", ".data.colour"), "red");
}

#[test]
fn wait_sees_what_another_writes() {
    let Some(kubectl) = Kubectl::new("wait") else { return };
    kubectl.ok_with(&["create", "-f", "-"], POD);
    let waiting = kubectl.start(&[
        "wait",
        "pod/web",
        "--for=jsonpath={.status.phase}=Running",
        "--timeout=60s",
    ]);
    kubectl.ok(&[
        "patch",
        "pod",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#,
    ]);
    assert!(waiting.end());
    contains(
        &kubectl.ok(&["wait", "pod/web", "--for=condition=Ready", "--timeout=60s"]),
        &["pod/web condition met"],
    );
    let mut watching = kubectl.start(&["get", "pod", "web", "-w", "-o", "name"]);
    assert_eq!(watching.line(), "pod/web");
    let waiting = kubectl.start(&["wait", "pod/web", "--for=delete", "--timeout=60s"]);
    kubectl.ok(&["delete", "pod", "web", "--grace-period=0", "--force"]);
    assert!(waiting.end());
    contains(
        &kubectl.fails(&[
            "wait",
            "cm/kube-root-ca.crt",
            "--for=jsonpath={.data.none}=x",
            "--timeout=1s",
        ]),
        &[""],
    );
}

#[test]
fn dry_runs_change_nothing() {
    let Some(kubectl) = Kubectl::new("dryrun") else { return };
    assert_eq!(
        kubectl.ok_with(&["create", "--dry-run=server", "-f", "-"], MAP),
        "configmap/settings created (server dry run)\n"
    );
    contains(&kubectl.fails(&["get", "cm", "settings"]), &["NotFound"]);
    kubectl.ok_with(&["create", "-f", "-"], MAP);
    kubectl.ok(&["delete", "--dry-run=server", "cm", "settings"]);
    kubectl.ok(&["label", "--dry-run=server", "cm", "settings", "dry=yes"]);
    assert_eq!(kubectl.field("cm/settings", ".metadata.labels"), r#"{"app":"one"}"#);
}

#[test]
fn names_are_generated_where_asked() {
    let Some(kubectl) = Kubectl::new("generate") else {
        return;
    };
    let manifest = MAP.replace("  name: settings", "  generateName: settings-");
    let first = kubectl.ok_with(&["create", "-f", "-", "-o", "name"], &manifest);
    let second = kubectl.ok_with(&["create", "-f", "-", "-o", "name"], &manifest);
    assert!(
        first.starts_with("configmap/settings-") && first.trim_end().len() == "configmap/settings-".len() + 5,
        "{first}"
    );
    assert_ne!(first, second);
}

#[test]
fn an_object_goes_out_as_it_came_in() {
    let Some(kubectl) = Kubectl::new("roundtrip") else {
        return;
    };
    kubectl.ok(&["create", "-f", "pods.yaml"]);
    let annotations = kubectl.field("pod/everything", ".metadata.annotations");
    contains(&annotations, &["Grüße, 世界, 🚀", r#"{\"quoted\": \"\\\"yes\\\"\"}"#]);
    assert_eq!(
        kubectl.field("pod/everything", ".spec.containers[0].resources.requests.memory"),
        "1536Mi"
    );
    assert_eq!(
        kubectl.field("pod/everything", ".spec.volumes[1].secret.defaultMode"),
        "256"
    );
    assert_eq!(kubectl.field("pod/minimal", ".spec.restartPolicy"), "Always");
    assert_eq!(
        kubectl.field("pod/minimal", ".spec.containers[0].imagePullPolicy"),
        "Always"
    );
    // What get prints can be replaced without a change.
    let yaml = kubectl.ok(&["get", "pod", "minimal", "-o", "yaml"]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), &yaml).expect("written");
    kubectl.ok(&["replace", "-f", file.path().to_str().expect("a plain path")]);
    assert_eq!(kubectl.ok(&["get", "pod", "minimal", "-o", "yaml"]), yaml);
}

#[test]
fn what_is_written_as_text_into_a_secret_is_kept_as_bytes() {
    let Some(kubectl) = Kubectl::new("secret") else { return };
    let manifest =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\ndata: {old: b2xk}\nstringData: {new: words}\n";
    kubectl.ok_with(&["create", "-f", "-"], manifest);
    assert_eq!(
        kubectl.field("secret/keys", ".data"),
        r#"{"new":"d29yZHM=","old":"b2xk"}"#
    );
    assert_eq!(kubectl.field("secret/keys", ".stringData"), "");
}

#[test]
fn a_node_can_be_cordoned_and_tainted() {
    let Some(kubectl) = Kubectl::new("node") else { return };
    let name = format!("{}-node", kubectl.namespace);
    kubectl.ok_with(
        &["create", "-f", "-"],
        &format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"),
    );
    contains(&kubectl.ok(&["cordon", &name]), &["cordoned"]);
    contains(&kubectl.ok(&["get", "node", &name]), &["SchedulingDisabled"]);
    contains(&kubectl.ok(&["uncordon", &name]), &["uncordoned"]);
    contains(
        &kubectl.ok(&["taint", "node", &name, "dedicated=batch:NoSchedule"]),
        &["tainted"],
    );
    assert_eq!(
        kubectl.field(&format!("node/{name}"), ".spec.taints[0].key"),
        "dedicated"
    );
    kubectl.ok(&["delete", "node", &name]);
}
