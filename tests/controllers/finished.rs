//! Jobs that are over go after their time to live.

use serde_json::{Value, json};

use crate::Cluster;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// A Job that ended on the first of January, and is kept for so long.
async fn ended(cluster: &Cluster, name: &str, ttl_s: i32) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    // Whose status nobody else writes.
    let spec = json!({"template": template, "managedBy": "example.com/test"});
    let made = cluster
        .made(JOBS, &json!({"metadata": {"name": name}, "spec": spec}))
        .await;
    let conditions = ["SuccessCriteriaMet", "Complete"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}));
    let status = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z",
        "succeeded": 1, "conditions": conditions}});
    let path = format!("{JOBS}/{name}");
    let answer = cluster.admin.merge(&format!("{path}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    let answer = cluster
        .admin
        .merge(&path, &json!({"spec": {"ttlSecondsAfterFinished": ttl_s}}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    made
}

#[tokio::test]
async fn a_finished_job_goes_after_its_time_to_live_with_its_pods_and_not_before() {
    let cluster = Cluster::start().await;
    ended(&cluster, "kept", i32::MAX).await;
    let made = ended(&cluster, "short", i32::MAX).await;
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "short", "uid": made["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true});
    let pod = json!({"metadata": {"name": "of-short", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.made("/api/v1/namespaces/default/pods", &pod).await;
    let shorter = json!({"spec": {"ttlSecondsAfterFinished": 0}});
    cluster.admin.merge(&format!("{JOBS}/short"), &shorter).await;
    cluster.gone(&format!("{JOBS}/short")).await;
    assert_eq!(
        cluster.admin.get("/api/v1/namespaces/default/pods/of-short").await.code,
        404
    );
    assert_eq!(cluster.admin.get(&format!("{JOBS}/kept")).await.code, 200);
}
