//! Workloads on simulated nodes, with nobody else's hand in it: rollouts, scaling, waiting, nodes that are emptied, and the shop of the
//! README.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use crate::process::{Server, text};
use crate::tool::{Kubectl, contains, installed};

/// Nothing takes time.
const QUICK: &str = "startMsMin: 0\nstartMsMax: 0\nreadyMs: 0\nstopMs: 0\n";
/// What is waited for comes sooner, unless something is wrong.
const TIMEOUT: &str = "--timeout=120s";

fn with_nodes(count: &str) -> Arc<Server> {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("quick.yaml");
    std::fs::write(&profile, QUICK).expect("written");
    let server = Server::start(&[
        "--ephemeral",
        "--hollow-nodes",
        count,
        "--hollow-profile",
        text(&profile),
    ]);
    Arc::new(server.unwrap_or_else(|ended| panic!("the server does not start: {ended:?}")))
}

/// A namespace of its own on a server that the tests here share.
fn kubectl(topic: &str) -> Option<Kubectl> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let program = installed().into_iter().next()?;
    let server = {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = with_nodes("3");
            *shared = Arc::downgrade(&server);
            server
        })
    };
    Some(Kubectl::on(server, &program, topic.to_owned()))
}

/// A DaemonSet or StatefulSet named `db`.
fn set(kind: &str, spec: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: {kind}
metadata: {{name: db}}
spec:
  {spec}
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec: {{containers: [{{name: db, image: 'db:1'}}]}}
"
    )
}

fn image(kubectl: &Kubectl, object: &str) -> String {
    kubectl.field(object, ".spec.template.spec.containers[0].image")
}

fn is_rolled_out(kubectl: &Kubectl, object: &str, last: &str) {
    contains(&kubectl.ok(&["rollout", "status", object, TIMEOUT]), &[last]);
}

/// Two templates, and back: what every kind that keeps a history can.
fn goes_back(kubectl: &Kubectl, object: &str, container: &str, done: &str) {
    is_rolled_out(kubectl, object, done);
    let first = image(kubectl, object);
    kubectl.ok(&["set", "image", object, &format!("{container}=other:2")]);
    kubectl.ok(&["annotate", object, "kubernetes.io/change-cause=a better one"]);
    is_rolled_out(kubectl, object, done);
    contains(&kubectl.ok(&["rollout", "history", object]), &["REVISION", "1 ", "2 "]);
    contains(
        &kubectl.ok(&["rollout", "history", object, "--revision=2"]),
        &["other:2"],
    );
    contains(&kubectl.ok(&["rollout", "undo", object]), &["rolled back"]);
    is_rolled_out(kubectl, object, done);
    assert_eq!(image(kubectl, object), first);
    // The first is now the third.
    let history = kubectl.ok(&["rollout", "history", object]);
    contains(&history, &["2 ", "3 "]);
    assert!(!history.lines().any(|line| line.starts_with("1 ")), "{history}");
    contains(
        &kubectl.ok(&["rollout", "undo", object, "--to-revision=2"]),
        &["rolled back"],
    );
    is_rolled_out(kubectl, object, done);
    assert_eq!(image(kubectl, object), "other:2");
    contains(&kubectl.ok(&["rollout", "restart", object]), &["restarted"]);
    is_rolled_out(kubectl, object, done);
}

#[test]
fn a_deployment_rolls_out_pauses_and_goes_back() {
    let Some(kubectl) = kubectl("rolling-deployment") else {
        return;
    };
    kubectl.ok(&["create", "deployment", "web", "--image=web:1", "--replicas=3"]);
    goes_back(&kubectl, "deployment/web", "web", "successfully rolled out");
    contains(&kubectl.ok(&["rollout", "pause", "deployment/web"]), &["paused"]);
    kubectl.ok(&["set", "image", "deployment/web", "web=web:3"]);
    let paused = kubectl.ok(&["rollout", "status", "deployment/web", "--watch=false"]);
    contains(&paused, &["Waiting for deployment"]);
    contains(&kubectl.ok(&["rollout", "resume", "deployment/web"]), &["resumed"]);
    is_rolled_out(&kubectl, "deployment/web", "successfully rolled out");
    kubectl.ok(&["wait", "--for=condition=Available", "deployment/web", TIMEOUT]);
    kubectl.ok(&["wait", "--for=condition=Ready", "pod", "-l", "app=web", TIMEOUT]);
    kubectl.ok(&[
        "wait",
        "--for=jsonpath={.status.readyReplicas}=3",
        "deployment/web",
        TIMEOUT,
    ]);
}

#[test]
fn a_daemon_set_rolls_out_and_goes_back() {
    let Some(kubectl) = kubectl("rolling-daemons") else {
        return;
    };
    kubectl.ok_with(&["apply", "-f", "-"], &set("DaemonSet", ""));
    goes_back(&kubectl, "daemonset/db", "db", "successfully rolled out");
    contains(
        &kubectl.fails(&["rollout", "pause", "daemonset/db"]),
        &["pausing is not supported"],
    );
    let nodes = kubectl.ok(&[
        "get",
        "pods",
        "-l",
        "app=db",
        "-o",
        "jsonpath={.items[*].spec.nodeName}",
    ]);
    let mut nodes: Vec<&str> = nodes.split(' ').collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["hollow-00001", "hollow-00002", "hollow-00003"]);
}

#[test]
fn a_stateful_set_rolls_out_scales_and_goes_back() {
    let Some(kubectl) = kubectl("rolling-set") else {
        return;
    };
    kubectl.ok_with(&["apply", "-f", "-"], &set("StatefulSet", "replicas: 2"));
    goes_back(
        &kubectl,
        "statefulset/db",
        "db",
        "partitioned roll out complete: 2 new pods",
    );
    contains(&kubectl.ok(&["scale", "statefulset/db", "--replicas=3"]), &["scaled"]);
    is_rolled_out(&kubectl, "statefulset/db", "partitioned roll out complete: 3 new pods");
    let names = || kubectl.ok(&["get", "pods", "-o", "name"]);
    assert_eq!(names(), "pod/db-0\npod/db-1\npod/db-2\n");
    contains(&kubectl.ok(&["get", "statefulset", "db"]), &["3/3"]);
    kubectl.ok(&["scale", "statefulset/db", "--replicas=1"]);
    kubectl.ok(&["wait", "--for=delete", "pod/db-2", "pod/db-1", TIMEOUT]);
    assert_eq!(names(), "pod/db-0\n");
    contains(
        &kubectl.ok(&["describe", "statefulset", "db"]),
        &[
            "create Pod db-0 in StatefulSet db successful",
            "delete Pod db-2 in StatefulSet db successful",
        ],
    );
    // A canary.
    let partition = r#"{"spec":{"replicas":2,"updateStrategy":{"rollingUpdate":{"partition":1}}}}"#;
    kubectl.ok(&["patch", "statefulset", "db", "-p", partition]);
    kubectl.ok(&["set", "image", "statefulset/db", "db=db:9"]);
    is_rolled_out(&kubectl, "statefulset/db", "partitioned roll out complete: 1 new pods");
    let images = kubectl.ok(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
    assert_eq!(images, "other:2 db:9");
}

#[test]
fn a_pod_that_its_node_refuses_is_made_anew_until_there_is_room() {
    let Some(kubectl) = kubectl("refused") else {
        return;
    };
    let spec =
        "nodeName: hollow-00001, containers: [{name: c, image: 'c:1', ports: [{containerPort: 80, hostPort: 21017}]}]";
    let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: first}}\nspec: {{{spec}}}\n");
    kubectl.ok_with(&["apply", "-f", "-"], &pod);
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/first", TIMEOUT]);
    let mut events = kubectl.start(&[
        "get",
        "events",
        "--request-timeout=120s",
        "--watch",
        "-o",
        "jsonpath={.message}{'\\n'}",
    ]);
    let template = format!("template: {{metadata: {{labels: {{app: db}}}}, spec: {{{spec}}}}}");
    let set = format!(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec: {{selector: {{matchLabels: {{app: db}}}}, {template}}}\n"
    );
    kubectl.ok_with(&["apply", "-f", "-"], &set);
    while events.line() != "delete Pod db-0 in StatefulSet db successful" {}
    kubectl.ok(&["delete", "pod/first"]);
    is_rolled_out(&kubectl, "statefulset/db", "complete: 1 new pods");
    assert_eq!(kubectl.field("pod/db-0", ".status.phase"), "Running");
}

#[test]
fn what_is_deleted_takes_along_what_it_is_told_to() {
    let Some(kubectl) = kubectl("cascades") else {
        return;
    };
    let names = |kinds: &str| kubectl.ok(&["get", kinds, "-o", "name"]);
    let new = || {
        kubectl.ok_with(&["apply", "-f", "-"], &set("StatefulSet", "replicas: 2"));
        is_rolled_out(&kubectl, "statefulset/db", "complete: 2 new pods");
    };
    new();
    kubectl.ok(&["delete", "statefulset/db", "--cascade=orphan"]);
    assert_eq!(names("pods"), "pod/db-0\npod/db-1\n");
    let uid = kubectl.field("pod/db-0", ".metadata.uid");
    // Who comes after takes them in.
    new();
    assert_eq!(kubectl.field("pod/db-0", ".metadata.uid"), uid);
    assert_eq!(kubectl.field("pod/db-0", ".metadata.ownerReferences[0].name"), "db");
    kubectl.ok(&["delete", "statefulset/db", "--cascade=foreground", TIMEOUT]);
    assert_eq!(names("pods,statefulsets,controllerrevisions"), "");
    new();
    kubectl.ok(&["delete", "statefulset/db", "--cascade=background"]);
    kubectl.ok(&["wait", "--for=delete", "pod/db-0", "pod/db-1", TIMEOUT]);
}

#[test]
fn nodes_are_emptied_and_filled_again() {
    let Some(program) = installed().into_iter().next() else {
        return;
    };
    let kubectl = Kubectl::on(with_nodes("2"), &program, "emptied".to_owned());
    kubectl.ok(&["create", "deployment", "web", "--image=web:1", "--replicas=4"]);
    is_rolled_out(&kubectl, "deployment/web", "successfully rolled out");
    contains(&kubectl.ok(&["cordon", "hollow-00001"]), &["cordoned"]);
    contains(
        &kubectl.ok(&["get", "node", "hollow-00001"]),
        &["Ready,SchedulingDisabled"],
    );
    let drained = kubectl.ok(&["drain", "hollow-00001", "--ignore-daemonsets", TIMEOUT]);
    contains(&drained, &["evicting pod emptied/web-", "node/hollow-00001 drained"]);
    is_rolled_out(&kubectl, "deployment/web", "successfully rolled out");
    let nodes = kubectl.ok(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    assert!(!nodes.contains("hollow-00001"), "{nodes}");
    contains(&kubectl.ok(&["uncordon", "hollow-00001"]), &["uncordoned"]);
    kubectl.ok(&["scale", "deployment/web", "--replicas=12"]);
    is_rolled_out(&kubectl, "deployment/web", "successfully rolled out");
    let nodes = kubectl.ok(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    assert!(nodes.contains("hollow-00001"), "{nodes}");
    // An autoscaler that knows no metrics keeps to its bounds.
    kubectl.ok(&[
        "autoscale",
        "deployment",
        "web",
        "--min=2",
        "--max=6",
        "--cpu-percent=50",
    ]);
    kubectl.ok(&["wait", "--for=jsonpath={.spec.replicas}=6", "deployment/web", TIMEOUT]);
    contains(&kubectl.fails(&["top", "pods"]), &["Metrics API not available"]);
    contains(&kubectl.fails(&["top", "nodes"]), &["Metrics API not available"]);
}

/// The README's shop, step by step.
#[test]
fn the_shop_of_the_readme_runs() {
    let Some(program) = installed().into_iter().next() else {
        return;
    };
    let kubectl = Kubectl::on(with_nodes("50"), &program, "visitor".to_owned());
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shop.yaml");
    contains(
        &kubectl.ok(&["apply", "-n", "shop", "-f", text(&shop)]),
        &["statefulset.apps/orders created"],
    );
    let shop = |arguments: &[&str]| kubectl.ok(&[arguments, &["-n", "shop"]].concat());
    for workload in ["deployment/front", "deployment/cart", "statefulset/orders"] {
        shop(&["rollout", "status", workload, TIMEOUT]);
    }
    // The autoscaler asks for one more.
    shop(&[
        "wait",
        "--for=jsonpath={.status.readyReplicas}=4",
        "deployment/front",
        TIMEOUT,
    ]);
    shop(&["wait", "--for=condition=Complete", "job/catalogue", TIMEOUT]);
    let claims = shop(&[
        "get",
        "pvc",
        "-o",
        "jsonpath={.items[*].metadata.name}={.items[*].status.phase}",
    ]);
    assert_eq!(claims, "data-orders-0 data-orders-1 data-orders-2=Bound Bound Bound");
    // Every zone has its part: a, b and c in turn.
    let nodes = shop(&[
        "get",
        "pods",
        "-l",
        "app=front",
        "-o",
        "jsonpath={.items[*].spec.nodeName}",
    ]);
    let zone = |node: &str| {
        node.strip_prefix("hollow-")
            .expect("a node")
            .parse::<u32>()
            .expect("a number")
            % 3
    };
    let zones: HashSet<u32> = nodes.split(' ').map(zone).collect();
    assert_eq!(zones.len(), 3, "{nodes}");
    contains(&shop(&["get", "endpointslices", "-o", "wide"]), &["front-", "orders-"]);
    shop(&[
        "set",
        "image",
        "statefulset/orders",
        "postgres=registry.example.com/shop/postgres:18",
    ]);
    contains(
        &shop(&["rollout", "status", "statefulset/orders", TIMEOUT]),
        &["partitioned roll out complete: 3 new pods"],
    );
    shop(&["scale", "statefulset/orders", "--replicas=1"]);
    shop(&[
        "wait",
        "--for=delete",
        "pvc/data-orders-2",
        "pvc/data-orders-1",
        TIMEOUT,
    ]);
    shop(&["create", "job", "now", "--from=cronjob/accounts"]);
    shop(&["wait", "--for=condition=Complete", "job/now", TIMEOUT]);
    kubectl.ok(&["delete", "namespace", "shop", TIMEOUT]);
}
