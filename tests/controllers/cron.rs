//! CronJobs: Jobs at their times, no more of them than may be, and what becomes of them.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn every_second(name: &str, more: &Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({
        "schedule": "@every 1s", "jobTemplate": {"metadata": {"labels": {"of": name}},
            // Whose status nobody else writes.
            "spec": {"template": template, "managedBy": "example.com/test"}}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn active(answer: &Answer) -> usize {
    answer.body["status"]["active"].as_array().map_or(0, Vec::len)
}

fn jobs(answer: &Answer) -> &Vec<Value> {
    answer.body["items"].as_array().unwrap()
}

/// The end of a Job, as its controller would tell it.
async fn end(cluster: &Cluster, job: &str) {
    let conditions = ["SuccessCriteriaMet", "Complete"].map(|kind| json!({"type": kind, "status": "True"}));
    let status = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z",
        "succeeded": 1, "conditions": conditions}});
    let answer = cluster.admin.merge(&format!("{JOBS}/{job}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_job_is_made_at_its_time_and_told_of_until_it_is_over() {
    let cluster = Cluster::start().await;
    let made = cluster
        .made(
            CRON_JOBS,
            &every_second("tick", &json!({"concurrencyPolicy": "Forbid"})),
        )
        .await;
    let path = format!("{CRON_JOBS}/tick");
    let running = cluster.until(&path, |answer| active(answer) == 1).await;
    let job = running.body["status"]["active"][0]["name"].as_str().unwrap().to_owned();
    let found = cluster.admin.get(&format!("{JOBS}/{job}")).await.body;
    assert_eq!(found["metadata"]["labels"]["of"], "tick");
    assert_eq!(found["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    let scheduled = &found["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(*scheduled, running.body["status"]["lastScheduleTime"]);
    end(&cluster, &job).await;
    let over = |answer: &Answer| answer.body["status"]["lastSuccessfulTime"] == "2026-01-01T00:00:01Z";
    cluster.until(&path, over).await;
    // What is suspended makes no more, and forgets what is gone.
    cluster
        .admin
        .merge(
            &path,
            &json!({"spec": {"suspend": true, "successfulJobsHistoryLimit": 0}}),
        )
        .await;
    cluster.gone(&format!("{JOBS}/{job}")).await;
}

#[tokio::test]
async fn a_job_that_runs_is_replaced_where_that_is_asked_for() {
    let cluster = Cluster::start().await;
    let suspended = json!({"concurrencyPolicy": "Replace", "suspend": true});
    let made = cluster.made(CRON_JOBS, &every_second("tock", &suspended)).await;
    let path = format!("{CRON_JOBS}/tock");
    let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "tock", "uid": made["metadata"]["uid"],
        "controller": true});
    let job = json!({"metadata": {"name": "tock-1", "ownerReferences": [owner]},
        "spec": made["spec"]["jobTemplate"]["spec"]});
    let old = cluster.made(JOBS, &job).await;
    let active = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "tock-1", "namespace": "default",
        "uid": old["metadata"]["uid"]}]);
    let status = json!({"status": {"active": active}});
    assert_eq!(cluster.admin.merge(&format!("{path}/status"), &status).await.code, 200);
    cluster.admin.merge(&path, &json!({"spec": {"suspend": false}})).await;
    cluster.gone(&format!("{JOBS}/tock-1")).await;
    let replaced = |answer: &Answer| {
        self::active(answer) == 1 && answer.body["status"]["active"][0]["uid"] != old["metadata"]["uid"]
    };
    cluster.until(&path, replaced).await;
    assert_eq!(jobs(&cluster.admin.get(JOBS).await).len(), 1);
}
