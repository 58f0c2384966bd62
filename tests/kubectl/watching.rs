//! `get --watch`: what is there, then what happens, with selectors and as Tables.

use crate::tool::{Kubectl, columns, contains};

fn create(kubectl: &Kubectl, name: &str, tier: &str) {
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{tier: {tier}}}}}\n");
    kubectl.ok_with(&["create", "-f", "-"], &manifest);
}

#[test]
fn a_watch_shows_what_is_there_and_then_what_happens() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("watch") else {
        return;
    };
    create(&kubectl, "old", "web");
    let mut watch = kubectl.start(&["get", "cm", "--watch", "--output-watch-events"]);
    assert_eq!(columns(&watch.line())[..2], ["EVENT", "NAME"]);
    assert_eq!(columns(&watch.line())[..2], ["ADDED", "old"]);
    create(&kubectl, "new", "web");
    assert_eq!(columns(&watch.line())[..2], ["ADDED", "new"]);
    kubectl.ok(&["label", "cm", "old", "touched=yes"]);
    assert_eq!(columns(&watch.line())[..2], ["MODIFIED", "old"]);
    kubectl.ok(&["delete", "cm", "new"]);
    assert_eq!(columns(&watch.line())[..2], ["DELETED", "new"]);
}

#[test]
fn a_selector_watch_tells_who_enters_and_leaves() {
    let Some(kubectl) = Kubectl::new("selwatch") else {
        return;
    };
    create(&kubectl, "stays", "web");
    create(&kubectl, "other", "db");
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=1&labelSelector=tier%3Dweb",
        kubectl.namespace
    );
    let mut watch = kubectl.start(&["get", "--raw", &path]);
    contains(&watch.line(), &["{\"type\":\"ADDED\"", "\"name\":\"stays\""]);
    kubectl.ok(&["label", "--overwrite", "cm", "other", "tier=web"]);
    contains(
        &watch.line(),
        &["{\"type\":\"ADDED\"", "\"name\":\"other\"", "\"tier\":\"web\""],
    );
    kubectl.ok(&["label", "--overwrite", "cm", "stays", "tier=db"]);
    let left = watch.line();
    // The event that takes it away shows it as it was while it was selected, under the revision of the change.
    contains(
        &left,
        &["{\"type\":\"DELETED\"", "\"name\":\"stays\"", "\"tier\":\"web\""],
    );
    let revision = kubectl.field("cm/stays", ".metadata.resourceVersion");
    contains(&left, &[&format!("\"resourceVersion\":\"{revision}\"")]);
    kubectl.ok(&["delete", "cm", "other"]);
    contains(&watch.line(), &["{\"type\":\"DELETED\"", "\"name\":\"other\""]);
}

#[test]
fn a_table_watch_shows_rows() {
    let Some(kubectl) = Kubectl::new("tablewatch") else {
        return;
    };
    kubectl.ok(&["create", "deployment", "web", "--image=web:1"]);
    let mut watch = kubectl.start(&["get", "deployments", "--watch"]);
    assert_eq!(columns(&watch.line())[..2], ["NAME", "READY"]);
    assert_eq!(columns(&watch.line())[..2], ["web", "0/1"]);
    kubectl.ok(&["scale", "deployment", "web", "--replicas=4"]);
    assert_eq!(columns(&watch.line())[..2], ["web", "0/4"]);
    kubectl.ok(&["delete", "deployment", "web"]);
    assert_eq!(columns(&watch.line())[..2], ["web", "0/4"]);
}

#[test]
fn a_watch_from_a_revision_tells_the_history_since() {
    let Some(kubectl) = Kubectl::new("history") else { return };
    create(&kubectl, "first", "web");
    let revision = kubectl.field("cm/first", ".metadata.resourceVersion");
    for number in 0..3 {
        kubectl.ok(&["annotate", "--overwrite", "cm", "first", &format!("step={number}")]);
    }
    kubectl.ok(&["delete", "cm", "first"]);
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=1&resourceVersion={revision}",
        kubectl.namespace
    );
    let mut watch = kubectl.start(&["get", "--raw", &path]);
    for number in 0..3 {
        contains(&watch.line(), &["\"MODIFIED\"", &format!("\"step\":\"{number}\"")]);
    }
    contains(&watch.line(), &["\"DELETED\"", "\"step\":\"2\""]);
}

#[test]
fn a_streamed_list_ends_with_its_bookmark() {
    // Nobody else puts anything into the namespace.
    let Some(kubectl) = Kubectl::without_controllers("stream") else {
        return;
    };
    create(&kubectl, "one", "web");
    create(&kubectl, "two", "web");
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
        kubectl.namespace
    );
    let mut watch = kubectl.start(&["get", "--raw", &path]);
    contains(&watch.line(), &["\"ADDED\"", "\"name\":\"one\""]);
    contains(&watch.line(), &["\"ADDED\"", "\"name\":\"two\""]);
    contains(
        &watch.line(),
        &["\"BOOKMARK\"", "\"k8s.io/initial-events-end\":\"true\""],
    );
    create(&kubectl, "three", "web");
    contains(&watch.line(), &["\"ADDED\"", "\"name\":\"three\""]);
}
