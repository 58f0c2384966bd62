//! DaemonSets: a Pod on each node that suits, and rollouts node by node.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

fn set(image: &str) -> Value {
    let spec = json!({"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "image": image}]});
    json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec}}})
}

async fn node(cluster: &Cluster, name: &str, disk: &str) {
    let node = json!({"metadata": {"name": name, "labels": {"disk": disk}}});
    cluster.made(NODES, &node).await;
    // A new node is told not to be ready.
    let answer = cluster
        .admin
        .merge(&format!("{NODES}/{name}"), &json!({"spec": {"taints": null}}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn items(answer: &Answer) -> Vec<&Value> {
    let items = answer.body["items"].as_array().unwrap().iter();
    items
        .filter(|item| item["metadata"]["deletionTimestamp"].is_null())
        .collect()
}

fn node_of(pod: &Value) -> &str {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        .as_str()
        .unwrap()
}

fn on<'a>(pods: &[&'a Value]) -> BTreeSet<&'a str> {
    pods.iter().map(|pod| node_of(pod)).collect()
}

async fn make_ready(cluster: &Cluster) {
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    for pod in items(&cluster.admin.get(PODS).await) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        cluster.admin.merge(&format!("{PODS}/{name}/status"), &status).await;
    }
}

fn told(desired: i64, updated: i64, available: i64) -> impl Fn(&Answer) -> bool {
    move |answer| {
        let status = &answer.body["status"];
        status["observedGeneration"] == answer.body["metadata"]["generation"]
            && status["desiredNumberScheduled"] == desired
            && status["updatedNumberScheduled"].as_i64().unwrap_or(0) == updated
            && status["numberAvailable"].as_i64().unwrap_or(0) == available
    }
}

#[tokio::test]
async fn every_node_that_suits_has_one_pod_and_a_rollout_goes_from_node_to_node() {
    let cluster = Cluster::start().await;
    for name in ["a", "b"] {
        node(&cluster, name, "ssd").await;
    }
    node(&cluster, "slow", "hdd").await;
    cluster.made(SETS, &set("one")).await;
    let path = format!("{SETS}/d");
    cluster.until(&path, told(2, 2, 0)).await;
    let pods = cluster.admin.get(PODS).await;
    assert_eq!(on(&items(&pods)), BTreeSet::from(["a", "b"]));
    // A node more, and one that suits no longer.
    node(&cluster, "c", "ssd").await;
    cluster.until(&path, told(3, 3, 0)).await;
    cluster
        .admin
        .merge(&format!("{NODES}/a"), &json!({"metadata": {"labels": {"disk": "hdd"}}}))
        .await;
    let left = |answer: &Answer| on(&items(answer)) == BTreeSet::from(["b", "c"]);
    cluster.until(PODS, left).await;

    make_ready(&cluster).await;
    cluster.until(&path, told(2, 2, 2)).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    cluster.admin.merge(&path, &image).await;
    // One node at a time: the other one keeps what is available.
    cluster.until(&path, told(2, 1, 1)).await;
    make_ready(&cluster).await;
    cluster.until(&path, told(2, 2, 1)).await;
    make_ready(&cluster).await;
    cluster.until(&path, told(2, 2, 2)).await;
    let pods = cluster.admin.get(PODS).await;
    assert!(
        items(&pods)
            .iter()
            .all(|pod| pod["spec"]["containers"][0]["image"] == "two")
    );
    let revisions = cluster.admin.get(REVISIONS).await;
    assert_eq!(items(&revisions).len(), 2);
    // Back to the first template: its revision is counted anew.
    cluster
        .admin
        .merge(&path, &json!({"spec": {"template": set("one")["spec"]["template"]}}))
        .await;
    let third = |answer: &Answer| items(answer).iter().any(|revision| revision["revision"] == 3);
    cluster.until(REVISIONS, third).await;
    assert_eq!(items(&cluster.admin.get(REVISIONS).await).len(), 2);
}
