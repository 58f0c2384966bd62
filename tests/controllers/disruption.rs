//! Disruption budgets: what may be evicted, by what there is and what there should be.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn budget(name: &str, spec: &Value) -> Value {
    let mut budget = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    for (field, value) in spec.as_object().unwrap() {
        budget["spec"][field] = value.clone();
    }
    budget
}

fn set(replicas: usize) -> Value {
    let labels = json!({"app": "web"});
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

async fn names(cluster: &Cluster) -> Vec<String> {
    let list = cluster.admin.get(PODS).await.body;
    let pods = list["items"].as_array().unwrap().iter();
    pods.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn make_ready(cluster: &Cluster, name: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let answer = cluster.admin.merge(&format!("{PODS}/{name}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn says(expected: i64, desired: i64, healthy: i64, allowed: i64) -> impl Fn(&Answer) -> bool {
    move |answer| {
        let (status, generation) = (&answer.body["status"], &answer.body["metadata"]["generation"]);
        status["expectedPods"] == expected
            && status["desiredHealthy"] == desired
            && status["currentHealthy"] == healthy
            && status["disruptionsAllowed"] == allowed
            && status["observedGeneration"] == *generation
    }
}

#[tokio::test]
async fn what_may_be_evicted_follows_the_pods_that_are_ready() {
    let cluster = Cluster::start().await;
    cluster
        .made(BUDGETS, &budget("whole", &json!({"minAvailable": 2})))
        .await;
    cluster
        .made(BUDGETS, &budget("part", &json!({"maxUnavailable": "25%"})))
        .await;
    let at = |name: &str| format!("{BUDGETS}/{name}");
    let empty = cluster.until(&at("whole"), says(0, 2, 0, 0)).await.body;
    assert_eq!(empty["status"]["conditions"][0]["reason"], "InsufficientPods");
    cluster.made(SETS, &set(4)).await;
    cluster
        .until(&format!("{SETS}/web"), |answer| answer.body["status"]["replicas"] == 4)
        .await;
    cluster.until(&at("part"), says(4, 3, 0, 0)).await;
    let pods = names(&cluster).await;
    for pod in &pods[..3] {
        make_ready(&cluster, pod).await;
    }
    let one = cluster.until(&at("whole"), says(4, 2, 3, 1)).await.body;
    let condition = &one["status"]["conditions"][0];
    assert!(
        condition["type"] == "DisruptionAllowed" && condition["reason"] == "SufficientPods",
        "{condition}"
    );
    cluster.until(&at("part"), says(4, 3, 3, 0)).await;
    make_ready(&cluster, &pods[3]).await;
    cluster.until(&at("part"), says(4, 3, 4, 1)).await;
    cluster.admin.delete(&at("whole")).await;
    // One is evicted, and a second one is not.
    let evict = |name: &str| {
        let (path, body) = (format!("{PODS}/{name}/eviction"), json!({"metadata": {"name": name}}));
        let admin = cluster.admin.clone();
        async move { admin.post(&path, &body).await.code.as_u16() }
    };
    assert_eq!(evict(&pods[0]).await, 201);
    assert_eq!(evict(&pods[1]).await, 429);
}

#[tokio::test]
async fn pods_that_nobody_scales_are_told_of() {
    let cluster = Cluster::start().await;
    let pod = json!({"metadata": {"name": "alone", "labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.made(PODS, &pod).await;
    make_ready(&cluster, "alone").await;
    cluster
        .made(BUDGETS, &budget("part", &json!({"maxUnavailable": 1})))
        .await;
    cluster.until(&format!("{BUDGETS}/part"), says(0, 0, 1, 0)).await;
    let told = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap();
        events.iter().any(|event| event["reason"] == "UnmanagedPods")
    };
    cluster.until("/api/v1/namespaces/default/events", told).await;
    // Owned by what has no scale.
    let map = cluster
        .made(
            "/api/v1/namespaces/default/configmaps",
            &json!({"metadata": {"name": "owner"}}),
        )
        .await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": map["metadata"]["uid"], "controller": true}]);
    cluster
        .admin
        .merge(
            &format!("{PODS}/alone"),
            &json!({"metadata": {"ownerReferences": owner}}),
        )
        .await;
    let failed = |answer: &Answer| answer.body["status"]["conditions"][0]["reason"] == "SyncFailed";
    let body = cluster.until(&format!("{BUDGETS}/part"), failed).await.body;
    let text = &body["status"]["conditions"][0]["message"];
    assert_eq!(text, "configmaps does not implement the scale subresource");
}

#[tokio::test]
async fn what_a_pod_says_of_a_disruption_that_came_to_nothing_is_taken_back() {
    let cluster = Cluster::start().await;
    let pod = json!({"metadata": {"name": "stays"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.made(PODS, &pod).await;
    let said = json!({"status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let answer = cluster.admin.merge(&format!("{PODS}/stays/status"), &said).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let taken_back = |answer: &Answer| answer.body["status"]["conditions"][0]["status"] == "False";
    cluster.until(&format!("{PODS}/stays"), taken_back).await;
}
