//! Jobs: failures, limits and policies, and what is told of their end.

use serde_json::{Value, json};

use crate::job::{JOBS, at, condition, end, ended, event, is, job, of_job, once, running, tell};
use crate::{Answer, Cluster};

/// The reason and the message of a Job's failure, told alike in both conditions and the Event.
async fn failure(cluster: &Cluster, name: &str) -> (Value, Value, Value) {
    let over = once(cluster, name, "Failed").await;
    let failed = condition(&over, "Failed");
    for field in ["reason", "message"] {
        assert_eq!(condition(&over, "FailureTarget")[field], failed[field]);
    }
    let told = event(cluster, failed["reason"].as_str().unwrap()).await;
    assert_eq!(
        (&told["type"], &told["message"]),
        (&json!("Warning"), &failed["message"])
    );
    assert_eq!(over["status"]["uncountedTerminatedPods"], json!({}));
    assert_eq!(over["status"]["completionTime"], Value::Null);
    (
        failed["reason"].clone(),
        failed["message"].clone(),
        over["status"].clone(),
    )
}

#[tokio::test]
async fn a_job_fails_with_more_failures_than_its_limit_and_its_other_pods_go() {
    let cluster = Cluster::start().await;
    cluster
        .made(
            JOBS,
            &job("weak", json!({"parallelism": 2, "completions": 2, "backoffLimit": 1})),
        )
        .await;
    let first = running(&cluster, "weak", 2).await;
    end(&cluster, &first[0], 1).await;
    let again = |answer: &Answer| answer.body["status"]["failed"] == 1 && answer.body["status"]["active"] == 2;
    cluster.until(&at("weak"), again).await;
    end(&cluster, &first[1], 1).await;
    let (reason, message, status) = failure(&cluster, "weak").await;
    assert_eq!(reason, "BackoffLimitExceeded");
    assert_eq!(message, "Job has reached the specified backoff limit");
    // The one that ran failed with the Job.
    assert_eq!(
        json!([status["failed"], status["active"], status["terminating"]]),
        json!([3, null, 0])
    );
    cluster
        .until(&of_job("weak"), |answer| {
            answer.body["items"].as_array().unwrap().len() == 2
        })
        .await;
}

#[tokio::test]
async fn restarts_of_containers_count_where_they_are_started_again() {
    let cluster = Cluster::start().await;
    let mut made = job("restless", json!({"backoffLimit": 2}));
    made["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure".into();
    cluster.made(JOBS, &made).await;
    let pod = running(&cluster, "restless", 1).await.remove(0);
    let restarts = |count: i64| {
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": count, "state": {"running": {}}}]})
    };
    tell(&cluster, &pod, &restarts(2)).await;
    assert_eq!(failure(&cluster, "restless").await.0, "BackoffLimitExceeded");
}

#[tokio::test]
async fn a_job_fails_at_its_deadline() {
    let cluster = Cluster::start().await;
    cluster
        .made(JOBS, &job("late", json!({"activeDeadlineSeconds": 1})))
        .await;
    running(&cluster, "late", 1).await;
    let (reason, message, status) = failure(&cluster, "late").await;
    assert_eq!(
        (reason, message),
        (
            json!("DeadlineExceeded"),
            json!("Job was active longer than specified deadline")
        )
    );
    assert_eq!(status["failed"], 1);
}

#[tokio::test]
async fn a_failure_is_waited_for_and_a_success_is_not() {
    let cluster = Cluster::start().await;
    cluster.made(JOBS, &job("slow", json!({"completions": 2}))).await;
    let pod = running(&cluster, "slow", 1).await.remove(0);
    end(&cluster, &pod, 0).await;
    let pod = running(&cluster, "slow", 1).await.remove(0);
    let mut just_now = ended(1);
    just_now["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = jiff::Timestamp::now().to_string().into();
    tell(&cluster, &pod, &just_now).await;
    let waits = |answer: &Answer| answer.body["status"]["failed"] == 1 && answer.body["status"]["active"].is_null();
    cluster.until(&at("slow"), waits).await;
    let began = std::time::Instant::now();
    running(&cluster, "slow", 1).await;
    assert!(began.elapsed().as_secs() >= 7, "it came after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_policy_passes_over_failures_or_fails_the_job() {
    let cluster = Cluster::start().await;
    let rules = json!([
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
    ]);
    let spec = json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
    cluster.made(JOBS, &job("strict", spec)).await;
    let pod = running(&cluster, "strict", 1).await.remove(0);
    let mut disrupted = ended(1);
    disrupted["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    tell(&cluster, &pod, &disrupted).await;
    let pod = running(&cluster, "strict", 1).await.remove(0);
    assert_eq!(
        cluster.admin.get(&at("strict")).await.body["status"]["failed"],
        Value::Null
    );
    end(&cluster, &pod, 42).await;
    let (reason, message, status) = failure(&cluster, "strict").await;
    assert_eq!(reason, "PodFailurePolicy");
    let name = crate::job::name(&pod);
    let text = format!("Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 1");
    assert_eq!((message, &status["failed"]), (json!(text), &json!(1)));
}

#[tokio::test]
async fn an_index_fails_for_itself_and_its_pods_know_how_often() {
    let cluster = Cluster::start().await;
    let spec = json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    cluster.made(JOBS, &job("each", spec)).await;
    let host = |pod: &Value| pod["spec"]["hostname"].as_str().unwrap().to_owned();
    let mut pods = running(&cluster, "each", 3).await;
    pods.sort_by_key(host);
    let failures = "batch.kubernetes.io/job-index-failure-count";
    assert_eq!(pods[0]["metadata"]["annotations"][failures], "0");
    end(&cluster, &pods[1], 1).await;
    let second = |answer: &Answer| {
        let items = answer.body["items"].as_array().unwrap();
        items
            .iter()
            .find(|pod| pod["metadata"]["annotations"][failures] == "1")
            .cloned()
    };
    let answer = cluster.until(&of_job("each"), |answer| second(answer).is_some()).await;
    let replacement = second(&answer).unwrap();
    assert_eq!(host(&replacement), "each-1");
    end(&cluster, &replacement, 1).await;
    cluster
        .until(&at("each"), |answer| answer.body["status"]["failedIndexes"] == "1")
        .await;
    // The others go on.
    end(&cluster, &pods[0], 0).await;
    end(&cluster, &pods[2], 0).await;
    let (reason, message, status) = failure(&cluster, "each").await;
    assert_eq!(
        (reason, message),
        (json!("FailedIndexes"), json!("Job has failed indexes"))
    );
    let counts = json!([
        status["completedIndexes"],
        status["failedIndexes"],
        status["succeeded"],
        status["failed"]
    ]);
    assert_eq!(counts, json!(["0,2", "1", 2, 2]));
}

#[tokio::test]
async fn too_many_failed_indexes_end_a_job() {
    let cluster = Cluster::start().await;
    let rules = json!([{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}]);
    let spec = json!({"parallelism": 4, "completions": 9, "completionMode": "Indexed", "backoffLimitPerIndex": 5,
        "maxFailedIndexes": 1, "podFailurePolicy": {"rules": rules}});
    cluster.made(JOBS, &job("most", spec)).await;
    for pod in &running(&cluster, "most", 4).await[..2] {
        end(&cluster, pod, 7).await;
    }
    let (reason, message, _) = failure(&cluster, "most").await;
    assert_eq!(reason, "MaxFailedIndexesExceeded");
    assert_eq!(
        message,
        "Job has exceeded the specified maximal number of failed indexes"
    );
}

#[tokio::test]
async fn a_success_policy_ends_a_job_early() {
    let cluster = Cluster::start().await;
    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let spec = json!({"parallelism": 2, "completions": 5, "completionMode": "Indexed", "successPolicy": policy});
    cluster.made(JOBS, &job("leader", spec)).await;
    let pods = running(&cluster, "leader", 2).await;
    let leader = pods.iter().find(|pod| pod["spec"]["hostname"] == "leader-0").unwrap();
    end(&cluster, leader, 0).await;
    let over = once(&cluster, "leader", "Complete").await;
    for kind in ["SuccessCriteriaMet", "Complete"] {
        let found = condition(&over, kind);
        assert_eq!(
            (&found["reason"], &found["message"]),
            (&json!("SuccessPolicy"), &json!("Matched rules at index 0"))
        );
    }
    let status = &over["status"];
    assert_eq!(
        json!([
            status["succeeded"],
            status["completedIndexes"],
            status["failed"],
            status["active"],
            status["terminating"]
        ]),
        json!([1, "0", null, null, 0])
    );
    running(&cluster, "leader", 0).await;
}

#[tokio::test]
async fn a_job_is_not_over_before_its_pods_are() {
    let cluster = Cluster::start().await;
    let mut made = job("last", json!({"parallelism": 2, "completions": 2, "backoffLimit": 0}));
    made["spec"]["template"]["spec"]["nodeName"] = "nowhere".into();
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 100.into();
    cluster.made(JOBS, &made).await;
    let pods = running(&cluster, "last", 2).await;
    end(&cluster, &pods[0], 1).await;
    let target = |answer: &Answer| is("FailureTarget")(answer) && answer.body["status"]["failed"] == 2;
    let waits = cluster.until(&at("last"), target).await.body;
    assert_eq!(
        (condition(&waits, "Failed"), &waits["status"]["terminating"]),
        (&Value::Null, &json!(1))
    );
    end(&cluster, &pods[1], 1).await;
    let over = once(&cluster, "last", "Failed").await;
    assert_eq!(
        json!([over["status"]["failed"], over["status"]["terminating"]]),
        json!([2, 0])
    );
}

#[tokio::test]
async fn what_others_tell_of_a_job_stays_with_what_is_told_of_it() {
    let cluster = Cluster::start().await;
    cluster
        .made(JOBS, &job("shared", json!({"parallelism": 1, "completions": 1})))
        .await;
    let pod = running(&cluster, "shared", 1).await.remove(0);
    cluster
        .until(&at("shared"), |answer| answer.body["status"]["active"] == 1)
        .await;
    let theirs = json!({"status": {"conditions": [{"type": "Theirs", "status": "True"}]}});
    assert_eq!(
        cluster
            .admin
            .merge(&format!("{}/status", at("shared")), &theirs)
            .await
            .code,
        200
    );
    end(&cluster, &pod, 0).await;
    let over = once(&cluster, "shared", "Complete").await;
    assert_eq!(condition(&over, "Theirs")["status"], "True");
}
