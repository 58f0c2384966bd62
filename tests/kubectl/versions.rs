//! Each kubectl of this machine, from 1.27 on: the things that its users do daily.

use std::path::Path;

use crate::tool::{Kubectl, contains, installed, unchanged, uncontrolled_server};

fn short_pass(program: &Path) {
    let kubectl = Kubectl::on(uncontrolled_server(), program, "version".to_owned());
    contains(
        &kubectl.ok(&["version"]),
        &["Client Version", "Server Version: ", "v1.36.2"],
    );
    for line in kubectl.ok(&["apply", "-f", "shop.yaml"]).lines() {
        assert!(line.ends_with(" created"), "{}: {line}", program.display());
    }
    unchanged(&kubectl, "shop.yaml");
    contains(
        &kubectl.ok(&["get", "deployments", "-o", "wide"]),
        &["NAME", "SELECTOR", "frontend", "0/3"],
    );
    contains(
        &kubectl.ok(&["get", "all"]),
        &["service/frontend", "deployment.apps/cart"],
    );
    contains(&kubectl.ok(&["describe", "deployment", "frontend"]), &["3 desired"]);
    contains(&kubectl.quiet(&["explain", "deployment.spec.replicas"]), &["replicas"]);
    contains(&kubectl.quiet(&["api-resources"]), &["deployments", "cronjobs"]);
    let mut watch = kubectl.start(&["get", "configmap", "shop-config", "--watch", "-o", "name"]);
    assert_eq!(watch.line(), "configmap/shop-config");
    kubectl.ok(&["label", "configmap", "shop-config", "touched=yes"]);
    assert_eq!(watch.line(), "configmap/shop-config");
    kubectl.ok(&["scale", "deployment", "cart", "--replicas=4"]);
    assert_eq!(kubectl.field("deployment/cart", ".spec.replicas"), "4");
    kubectl.ok(&[
        "patch",
        "deployment",
        "cart",
        "-p",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"cart","image":"cart:2"}]}}}}"#,
    ]);
    assert_eq!(
        kubectl.field("deployment/cart", ".spec.template.spec.containers[0].image"),
        "cart:2"
    );
    let failed = kubectl.fails_with(
        &["apply", "-f", "-"],
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, imagge: b}]}\n",
    );
    contains(&failed, &["unknown field", "imagge"]);
    contains(&kubectl.fails(&["get", "pod", "none"]), &["(NotFound)"]);
    kubectl.ok(&["delete", "--wait=false", "-f", "shop.yaml"]);
}

#[test]
fn every_installed_kubectl_does_its_daily_work() {
    let programs = installed();
    std::thread::scope(|scope| {
        for program in programs.iter().skip(1) {
            scope.spawn(|| short_pass(program));
        }
    });
}
