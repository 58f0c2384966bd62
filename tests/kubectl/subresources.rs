//! Commands that go to subresources: status, scale, ephemeral containers, approvals, resizing; and `set` in its other forms.

use crate::tool::{Kubectl, contains};

#[test]
fn subresources_are_read_patched_edited_and_replaced() {
    let Some(kubectl) = Kubectl::without_controllers("sub") else {
        return;
    };
    kubectl.ok(&["create", "deployment", "web", "--image=web:1", "--replicas=2"]);
    contains(
        &kubectl.ok(&["get", "deployment", "web", "--subresource=scale"]),
        &["DESIRED", "AVAILABLE", "2"],
    );
    contains(
        &kubectl.ok(&["get", "deployment", "web", "--subresource=scale", "-o", "yaml"]),
        &["kind: Scale", "replicas: 2"],
    );
    kubectl.ok(&[
        "patch",
        "deployment",
        "web",
        "--subresource=scale",
        "--type=merge",
        "-p",
        r#"{"spec":{"replicas":3}}"#,
    ]);
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "3");
    let edited = kubectl
        .command(&["edit", "deployment", "web", "--subresource=status"])
        .env("KUBE_EDITOR", "sed -i 's/^status: {}/status: {replicas: 3}/'")
        .output()
        .expect("kubectl runs");
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(kubectl.field("deployment/web", ".status.replicas"), "3");
    let yaml = kubectl.ok(&["get", "deployment", "web", "-o", "yaml"]);
    kubectl.ok_with(
        &["replace", "--subresource=status", "-f", "-"],
        &yaml.replace("status:\n  replicas: 3", "status:\n  replicas: 4"),
    );
    assert_eq!(kubectl.field("deployment/web", ".status.replicas"), "4");
}

#[test]
fn a_pod_gets_a_container_to_look_into_it_with() {
    let Some(kubectl) = Kubectl::new("debug") else { return };
    kubectl.ok(&["run", "web", "--image=web:1"]);
    kubectl.ok(&[
        "debug",
        "pod/web",
        "--image=tools:1",
        "--target=web",
        "--container=look",
        "--attach=false",
    ]);
    assert_eq!(kubectl.field("pod/web", ".spec.ephemeralContainers[0].name"), "look");
    assert_eq!(
        kubectl.field("pod/web", ".spec.ephemeralContainers[0].targetContainerName"),
        "web"
    );
    // A copy of the Pod, to change at will.
    kubectl.ok(&[
        "debug",
        "pod/web",
        "--image=tools:1",
        "--copy-to=copy",
        "--attach=false",
    ]);
    contains(&kubectl.ok(&["get", "pods", "-o", "name"]), &["pod/copy", "pod/web"]);
}

#[test]
fn a_pod_is_resized_in_place() {
    let Some(kubectl) = Kubectl::new("resize") else { return };
    kubectl.ok_with(
        &["create", "-f", "-"],
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n\
         spec: {containers: [{name: web, image: 'web:1', resources: {requests: {cpu: 100m}, limits: {cpu: 200m}}}]}\n",
    );
    kubectl.ok(&[
        "patch",
        "pod",
        "web",
        "--subresource=resize",
        "-p",
        r#"{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"150m"}}}]}}"#,
    ]);
    assert_eq!(
        kubectl.field("pod/web", ".spec.containers[0].resources.requests.cpu"),
        "150m"
    );
    contains(
        &kubectl.fails(&[
            "patch",
            "pod",
            "web",
            "-p",
            r#"{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"50m"}}}]}}"#,
        ]),
        &["Forbidden"],
    );
}

#[test]
fn a_certificate_request_is_approved_or_denied() {
    let Some(kubectl) = Kubectl::new("csr") else { return };
    let kinds = include_str!("../fixtures/kinds.yaml");
    let request = kinds
        .split("\n---\n")
        .find(|document| document.contains("kind: CertificateSigningRequest"))
        .expect("one of every kind");
    for (verb, done, condition) in [("approve", "approved", "Approved"), ("deny", "denied", "Denied")] {
        let name = format!("{}-{verb}", kubectl.namespace);
        kubectl.ok_with(
            &["create", "-f", "-"],
            &request.replace("name: probe", &format!("name: {name}")),
        );
        contains(&kubectl.ok(&["get", "csr", &name]), &["Pending"]);
        contains(&kubectl.ok(&["certificate", verb, &name]), &[done]);
        contains(&kubectl.ok(&["get", "csr", &name]), &[condition]);
        assert_eq!(
            kubectl.field(&format!("csr/{name}"), ".status.conditions[*].type"),
            condition
        );
        kubectl.ok(&["delete", "csr", &name]);
    }
}

#[test]
fn set_changes_selectors_subjects_and_service_accounts() {
    let Some(kubectl) = Kubectl::new("setmore") else { return };
    kubectl.ok(&["create", "deployment", "web", "--image=web:1"]);
    kubectl.ok(&["set", "serviceaccount", "deployment/web", "runner"]);
    assert_eq!(
        kubectl.field("deployment/web", ".spec.template.spec.serviceAccountName"),
        "runner"
    );
    kubectl.ok(&["create", "service", "clusterip", "web", "--tcp=80"]);
    kubectl.ok(&["set", "selector", "service/web", "app=web,tier=front"]);
    assert_eq!(
        kubectl.field("service/web", ".spec.selector"),
        r#"{"app":"web","tier":"front"}"#
    );
    kubectl.ok(&["create", "rolebinding", "readers", "--clusterrole=view", "--user=jane"]);
    kubectl.ok(&["set", "subject", "rolebinding/readers", "--group=people"]);
    assert_eq!(kubectl.field("rolebinding/readers", ".subjects[*].name"), "jane people");
    kubectl.ok(&["create", "cm", "c", "--from-literal=LEVEL=info"]);
    kubectl.ok(&["set", "env", "deployment/web", "--from=configmap/c"]);
    contains(
        &kubectl.field("deployment/web", ".spec.template.spec.containers[0].env"),
        &["configMapKeyRef", "LEVEL"],
    );
    contains(&kubectl.ok(&["set", "env", "deployment/web", "--list"]), &["LEVEL"]);
}

#[test]
fn a_last_applied_configuration_is_set_edited_and_viewed() {
    let Some(kubectl) = Kubectl::new("lastapplied") else {
        return;
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1', b: '2'}\n";
    kubectl.ok_with(&["create", "-f", "-"], map);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("map.yaml");
    std::fs::write(&file, map).expect("written");
    let path = file.to_str().expect("a plain path");
    kubectl.ok(&["apply", "set-last-applied", "--create-annotation", "-f", path]);
    contains(&kubectl.ok(&["apply", "view-last-applied", "cm/c"]), &["b: \"2\""]);
    let edited = kubectl
        .command(&["apply", "edit-last-applied", "cm/c", "-o", "yaml"])
        .env("KUBE_EDITOR", "sed -i '/  b:/d'")
        .output()
        .expect("kubectl runs");
    assert!(edited.status.success(), "{edited:?}");
    let viewed = kubectl.ok(&["apply", "view-last-applied", "cm/c"]);
    assert!(!viewed.contains("b:"), "{viewed}");
    // It remembers one key alone, so that one goes with the next apply.
    kubectl.ok_with(
        &["apply", "-f", "-"],
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {c: '3'}\n",
    );
    assert_eq!(kubectl.field("cm/c", ".data"), r#"{"b":"2","c":"3"}"#);
}
