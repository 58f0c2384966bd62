//! What kubectl says when something is wrong: the Status that kube-apiserver gives.

use crate::tool::{Kubectl, contains};

#[test]
fn what_is_missing_or_there_already_is_named() {
    let Some(kubectl) = Kubectl::new("missing") else { return };
    assert_eq!(
        kubectl.fails(&["get", "pod", "none"]),
        "Error from server (NotFound): pods \"none\" not found\n"
    );
    contains(
        &kubectl.fails(&["delete", "deployment", "none"]),
        &["(NotFound): deployments.apps \"none\" not found"],
    );
    kubectl.ok(&["create", "configmap", "twice"]);
    assert_eq!(
        kubectl.fails(&["create", "configmap", "twice"]),
        "error: failed to create configmap: configmaps \"twice\" already exists\n"
    );
    contains(
        &kubectl.fails(&["get", "unicorns"]),
        &["the server doesn't have a resource type \"unicorns\""],
    );
    contains(
        &kubectl.fails(&["create", "configmap", "x", "-n", "no-such-namespace"]),
        &["namespaces \"no-such-namespace\" not found"],
    );
    contains(
        &kubectl.fails(&["get", "--raw", "/apis/none/v1/things"]),
        &["the server could not find the requested resource"],
    );
}

#[test]
fn what_is_invalid_is_named_by_its_field() {
    let Some(kubectl) = Kubectl::new("invalid") else { return };
    let create = |text: &str| kubectl.fails_with(&["create", "-f", "-"], text);
    contains(
        &create("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"),
        &[
            "The ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": a lowercase RFC 1123 subdomain",
        ],
    );
    contains(
        &create("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {'bad key': x}}\n"),
        &["metadata.labels: Invalid value: \"bad key\": name part must consist of alphanumeric characters"],
    );
    contains(
        &create("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, imagge: b}]}\n"),
        &["strict decoding error: unknown field \"spec.containers[0].imagge\""],
    );
    contains(
        &create("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: many}\n"),
        &["cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"],
    );
    contains(
        &create("apiVersion: v1\nkind: Unicorn\nmetadata: {name: x}\n"),
        &["no matches for kind \"Unicorn\" in version \"v1\""],
    );
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_refused() {
    let Some(kubectl) = Kubectl::new("nobody") else { return };
    let failed = kubectl.fails(&["--server", "https://127.0.0.1:1", "get", "pods"]);
    contains(&failed, &["refused"]);
}

#[test]
fn a_wrong_token_does_not_get_in() {
    let Some(kubectl) = Kubectl::new("stranger") else {
        return;
    };
    let server = kubectl.ok(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let nothing = tempfile::NamedTempFile::new().expect("a file");
    let failed = kubectl.fails(&[
        "--kubeconfig",
        nothing.path().to_str().expect("a plain path"),
        "--server",
        &server,
        "--insecure-skip-tls-verify",
        "--token=wrong",
        "get",
        "--raw",
        "/api/v1/pods",
    ]);
    contains(&failed, &["You must be logged in to the server (Unauthorized)"]);
}
