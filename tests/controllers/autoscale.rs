//! Autoscalers: bounds are kept without metrics, and what is missing is told.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn set(name: &str, replicas: i64) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}}}})
}

fn scaler(name: &str, min: i64, max: i64) -> Value {
    json!({"metadata": {"name": name}, "spec": {"minReplicas": min, "maxReplicas": max,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
}

fn condition<'a>(answer: &'a Answer, kind: &str) -> &'a Value {
    let conditions = answer.body["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind);
    found.unwrap_or(&Value::Null)
}

#[tokio::test]
async fn replicas_are_brought_within_their_bounds() {
    let cluster = Cluster::start().await;
    for (name, replicas, wanted) in [("few", 1, 2), ("many", 9, 5)] {
        cluster.made(SETS, &set(name, replicas)).await;
        cluster.made(SCALERS, &scaler(name, 2, 5)).await;
        let scaled = |answer: &Answer| answer.body["spec"]["replicas"] == wanted;
        cluster.until(&format!("{SETS}/{name}"), scaled).await;
        let told = |answer: &Answer| answer.body["status"]["desiredReplicas"] == wanted;
        let answer = cluster.until(&format!("{SCALERS}/{name}"), told).await;
        let able = condition(&answer, "AbleToScale");
        assert!(
            able["status"] == "True" && able["reason"] == "SucceededRescale",
            "{able}"
        );
        assert_eq!(answer.body["status"]["currentReplicas"], replicas);
        assert!(answer.body["status"]["lastScaleTime"].is_string());
    }
    let told = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap();
        let text = "New size: 5; reason: Current number of replicas above Spec.MaxReplicas";
        events
            .iter()
            .any(|event| event["reason"] == "SuccessfulRescale" && event["message"] == text)
    };
    cluster.until("/api/v1/namespaces/default/events", told).await;
}

#[tokio::test]
async fn without_metrics_it_is_told_and_nothing_changes() {
    let cluster = Cluster::start().await;
    cluster.made(SETS, &set("web", 3)).await;
    cluster
        .until(&format!("{SETS}/web"), |answer| answer.body["status"]["replicas"] == 3)
        .await;
    cluster.made(SCALERS, &scaler("web", 1, 5)).await;
    let inactive = |answer: &Answer| condition(answer, "ScalingActive")["status"] == "False";
    let answer = cluster.until(&format!("{SCALERS}/web"), inactive).await;
    let why = condition(&answer, "ScalingActive");
    assert_eq!(why["reason"], "FailedGetResourceMetric");
    assert_eq!(
        why["message"],
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable \
         to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
    );
    assert_eq!(condition(&answer, "AbleToScale")["reason"], "SucceededGetScale");
    assert_eq!(answer.body["status"]["currentReplicas"], 3);
    let told = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap();
        let is = |reason: &str| events.iter().any(|event| event["reason"] == reason);
        is("FailedGetResourceMetric") && is("FailedComputeMetricsReplicas")
    };
    cluster.until("/api/v1/namespaces/default/events", told).await;
    let set = cluster.admin.get(&format!("{SETS}/web")).await.body;
    assert_eq!(set["spec"]["replicas"], 3);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_told_of() {
    let cluster = Cluster::start().await;
    cluster.made(SCALERS, &scaler("nobody", 1, 5)).await;
    let unable = |answer: &Answer| condition(answer, "AbleToScale")["reason"] == "FailedGetScale";
    let answer = cluster.until(&format!("{SCALERS}/nobody"), unable).await;
    assert_eq!(
        condition(&answer, "AbleToScale")["message"],
        "the HPA controller was unable to get the target's current scale: replicasets.apps \"nobody\" not found"
    );
}
