//! Kinds that users declare: at once in discovery, explained, checked, listed with their columns, scaled, deleted.

use crate::tool::{Kubectl, columns, contains};

/// The declaration of a kind in a group of the test's own.
fn definition(group: &str) -> String {
    include_str!("../fixtures/widgets.yaml").replace("GROUP", group)
}

fn widget(group: &str, name: &str, size: u32) -> String {
    format!(
        "apiVersion: {group}/v1\nkind: Widget\nmetadata: {{name: {name}}}\n\
         spec: {{size: {size}, parts: [{{name: a, weight: 1}}], labels: {{tier: web}}}}\n"
    )
}

/// A kubectl and its group, whose definition is established.
fn declared(topic: &str) -> Option<(Kubectl, String)> {
    let kubectl = Kubectl::new(topic)?;
    let group = format!("{}.example.com", kubectl.namespace);
    kubectl.ok_with(&["apply", "-f", "-"], &definition(&group));
    contains(
        &kubectl.ok(&[
            "wait",
            "--for=condition=Established",
            &format!("crd/widgets.{group}"),
            "--timeout=30s",
        ]),
        &["condition met"],
    );
    Some((kubectl, group))
}

fn done(kubectl: &Kubectl, group: &str) {
    contains(
        &kubectl.ok(&["delete", "crd", &format!("widgets.{group}"), "--timeout=60s"]),
        &["deleted"],
    );
    contains(
        &kubectl.fails(&["get", &format!("widgets.{group}")]),
        &["the server doesn't have a resource type \"widgets\""],
    );
}

#[test]
fn a_declared_kind_is_served_at_once_and_until_it_is_deleted() {
    let Some((kubectl, group)) = declared("crd") else {
        return;
    };
    let resources = kubectl.ok(&["api-resources", "--api-group", &group, "--no-headers"]);
    contains(&resources, &["widgets", "wd", &format!("{group}/v1"), "true", "Widget"]);
    contains(
        &kubectl.ok(&["get", "crd", &format!("widgets.{group}")]),
        &["CREATED AT"],
    );
    contains(
        &kubectl.ok(&["explain", &format!("widgets.{group}"), "--recursive"]),
        &["KIND:       Widget", "parts", "weight"],
    );
    contains(
        &kubectl.ok(&["explain", &format!("widgets.{group}.spec.size")]),
        &["How large it is", "<integer>"],
    );
    let of_version_2 = [
        "explain",
        &format!("widgets.{group}.spec.size"),
        "--output=plaintext-openapiv2",
    ];
    contains(&kubectl.ok(&of_version_2), &["How large it is", "<integer>"]);

    let one = widget(&group, "one", 3);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &one), &["one created"]);
    contains(&kubectl.ok_with(&["apply", "-f", "-"], &one), &["one unchanged"]);
    let object = format!("widgets.{group}/one");
    assert_eq!(kubectl.field(&object, ".spec.mode"), "plain", "a default");
    let table = kubectl.ok(&["get", &format!("widgets.{group}")]);
    let mut lines = table.lines().map(columns);
    assert_eq!(lines.next().expect("a header"), ["NAME", "SIZE", "MODE", "AGE"]);
    assert_eq!(lines.next().expect("a row")[..3], ["one", "3", "plain"]);
    contains(
        &kubectl.ok(&["get", &format!("widgets.{group}"), "-o", "wide"]),
        &["PARTS", "a"],
    );
    contains(
        &kubectl.ok(&["get", "all", "-o", "name"]),
        &[&format!("widget.{group}/one")],
    );
    contains(&kubectl.ok(&["describe", &object]), &["Name:", "one", "Size:", "3"]);
    contains(
        &kubectl.ok(&["get", &object, "-o", "yaml"]),
        &["kind: Widget", "size: 3"],
    );
    assert_eq!(
        kubectl.ok(&[
            "get",
            &format!("widgets.{group}"),
            "--field-selector=spec.mode=plain",
            "-o",
            "name"
        ]),
        format!("widget.{group}/one\n")
    );
    done(&kubectl, &group);
}

#[test]
fn what_a_schema_forbids_is_refused() {
    let Some((kubectl, group)) = declared("crdbad") else {
        return;
    };
    let refused = |text: &str| kubectl.fails_with(&["apply", "-f", "-"], text);
    let good = widget(&group, "bad", 3);
    contains(
        &refused(&good.replace("size: 3", "size: three")),
        &["spec.size", "Invalid value", "must be of type integer"],
    );
    contains(
        &refused(&good.replace("size: 3", "size: 300")),
        &["spec.size", "should be less than or equal to 100"],
    );
    contains(
        &refused(&good.replace("size: 3, ", "")),
        &["spec.size", "Required value"],
    );
    contains(
        &refused(&good.replace("size: 3", "size: 3, sise: 4")),
        &["unknown field \"spec.sise\""],
    );
    contains(
        &refused(&good.replace("size: 3", "size: 3, mode: odd")),
        &["spec.mode", "Unsupported value: \"odd\""],
    );
    // A rule over two fields, and one over the state before.
    contains(
        &refused(&good.replace("size: 3", "size: 3, limit: 2")),
        &["size is within its limit"],
    );
    kubectl.ok_with(&["create", "-f", "-"], &good);
    contains(
        &kubectl.fails(&[
            "patch",
            &format!("widgets.{group}/bad"),
            "--type=merge",
            "-p",
            r#"{"spec":{"size":1}}"#,
        ]),
        &["size never shrinks"],
    );
    done(&kubectl, &group);
}

#[test]
fn its_objects_are_patched_scaled_edited_and_have_a_status() {
    let Some((kubectl, group)) = declared("crdops") else {
        return;
    };
    kubectl.ok_with(&["create", "-f", "-"], &widget(&group, "one", 3));
    let object = format!("widgets.{group}/one");
    kubectl.ok(&["patch", &object, "--type=merge", "-p", r#"{"spec":{"mode":"fancy"}}"#]);
    kubectl.ok(&[
        "patch",
        &object,
        "--type=json",
        "-p",
        r#"[{"op":"add","path":"/spec/parts/-","value":{"name":"b"}}]"#,
    ]);
    assert_eq!(kubectl.field(&object, ".spec.parts[*].name"), "a b");
    contains(
        &kubectl.fails(&["patch", &object, "--type=strategic", "-p", "{}"]),
        &["application/strategic-merge-patch+json"],
    );
    assert_eq!(kubectl.field(&object, ".metadata.generation"), "3");
    contains(&kubectl.ok(&["scale", &object, "--replicas=7"]), &["scaled"]);
    assert_eq!(kubectl.field(&object, ".spec.size"), "7");
    kubectl.ok(&[
        "patch",
        &object,
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"ready":true},"spec":{"size":50}}"#,
    ]);
    assert_eq!(kubectl.field(&object, ".status.ready"), "true");
    assert_eq!(kubectl.field(&object, ".spec.size"), "7");
    assert_eq!(kubectl.field(&object, ".metadata.generation"), "4");
    contains(
        &kubectl.ok(&["wait", &object, "--for=jsonpath={.status.ready}=true", "--timeout=30s"]),
        &["condition met"],
    );
    let edited = kubectl
        .command(&["edit", &object])
        .env("KUBE_EDITOR", "sed -i s/fancy/plain/")
        .output()
        .expect("kubectl runs");
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(kubectl.field(&object, ".spec.mode"), "plain");
    kubectl.ok(&["label", &object, "tier=web"]);
    kubectl.ok(&["annotate", &object, "note=words"]);
    contains(
        &kubectl.ok_with(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            &widget(&group, "one", 9),
        ),
        &["serverside-applied"],
    );
    // The other version is served from the same object.
    contains(
        &kubectl.ok(&["get", &format!("widgets.v1beta1.{group}/one"), "-o", "yaml"]),
        &[&format!("apiVersion: {group}/v1beta1"), "size: 9"],
    );
    let mut watch = kubectl.start(&["get", &object, "--watch", "-o", "jsonpath={.spec.size}{\"\\n\"}"]);
    assert_eq!(watch.line(), "9");
    kubectl.ok(&["scale", &object, "--replicas=10"]);
    assert_eq!(watch.line(), "10");
    kubectl.ok(&["delete", &object]);
    done(&kubectl, &group);
}

#[test]
fn lists_of_its_objects_are_merged_by_their_keys() {
    let Some((kubectl, group)) = declared("crdlist") else {
        return;
    };
    let object = format!("widgets.{group}/one");
    let apply = |manager: &str, text: &str| {
        let manager = format!("--field-manager={manager}");
        kubectl.ok_with(
            &["apply", "--server-side", "--force-conflicts", &manager, "-f", "-"],
            text,
        )
    };
    apply("first", &widget(&group, "one", 3));
    apply(
        "second",
        &widget(&group, "one", 3).replace("name: a, weight: 1", "name: b"),
    );
    assert_eq!(kubectl.field(&object, ".spec.parts[*].name"), "a b");
    apply("second", &widget(&group, "one", 3).replace("{name: a, weight: 1}", ""));
    assert_eq!(kubectl.field(&object, ".spec.parts[*].name"), "a");
    done(&kubectl, &group);
}

#[test]
fn deleting_a_kind_deletes_its_objects_first() {
    let Some((kubectl, group)) = declared("crdgone") else {
        return;
    };
    let held = widget(&group, "held", 3).replace("name: held", "name: held, finalizers: [example.com/hold]");
    kubectl.ok_with(&["create", "-f", "-"], &held);
    kubectl.ok_with(&["create", "-f", "-"], &widget(&group, "free", 3));
    let name = format!("crd/widgets.{group}");
    kubectl.ok(&["delete", &name, "--wait=false"]);
    kubectl.ok(&["wait", &name, "--for=condition=Terminating", "--timeout=30s"]);
    kubectl.ok(&[
        "wait",
        &format!("widgets.{group}/free"),
        "--for=delete",
        "--timeout=30s",
    ]);
    contains(
        &kubectl.fails_with(&["create", "-f", "-"], &widget(&group, "late", 3)),
        &["create not allowed while custom resource definition is terminating"],
    );
    kubectl.ok(&[
        "patch",
        &format!("widgets.{group}/held"),
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    kubectl.ok(&["wait", &name, "--for=delete", "--timeout=30s"]);
}
