//! Jobs: their Pods, how they are counted, and whose they are.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const TRACKED: &str = "batch.kubernetes.io/job-tracking";

pub(crate) fn at(name: &str) -> String {
    format!("{JOBS}/{name}")
}

/// A Job, with more in its spec.
#[allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]
pub(crate) fn job(name: &str, more: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({"template": template});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn items(answer: &Answer) -> &Vec<Value> {
    answer.body["items"].as_array().unwrap()
}

pub(crate) fn is_running(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.contains(&TRACKED.into()))
}

pub(crate) fn of_job(job: &str) -> String {
    format!("{PODS}?labelSelector=job-name%3D{job}")
}

/// The Pods of a Job that run, once there are so many.
pub(crate) async fn running(cluster: &Cluster, job: &str, count: usize) -> Vec<Value> {
    let pods = |answer: &Answer| {
        items(answer)
            .iter()
            .filter(|pod| is_running(pod))
            .cloned()
            .collect::<Vec<_>>()
    };
    pods(&cluster.until(&of_job(job), |answer| pods(answer).len() == count).await)
}

/// What a node would tell of a Pod that has ended, long ago so that nothing waits for it.
pub(crate) fn ended(code: i64) -> Value {
    let terminated = json!({"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"});
    let statuses = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated}}]);
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": statuses})
}

pub(crate) async fn tell(cluster: &Cluster, pod: &Value, status: &Value) {
    let answer = cluster
        .admin
        .merge(&format!("{PODS}/{}/status", name(pod)), &json!({"status": status}))
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

pub(crate) async fn end(cluster: &Cluster, pod: &Value, code: i64) {
    tell(cluster, pod, &ended(code)).await;
}

pub(crate) fn condition<'a>(job: &'a Value, kind: &str) -> &'a Value {
    let conditions = job["status"]["conditions"].as_array();
    let found = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == kind));
    found.unwrap_or(&Value::Null)
}

pub(crate) fn is(kind: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| condition(&answer.body, kind)["status"] == "True"
}

/// The Job, once it has that condition.
pub(crate) async fn once(cluster: &Cluster, job: &str, kind: &'static str) -> Value {
    cluster.until(&at(job), is(kind)).await.body
}

pub(crate) async fn event(cluster: &Cluster, reason: &str) -> Value {
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=reason%3D{reason}");
    cluster.until(&path, |answer| !items(answer).is_empty()).await.body["items"][0].clone()
}

#[tokio::test]
async fn a_job_has_pods_until_enough_have_succeeded() {
    let cluster = Cluster::start().await;
    let made = cluster
        .made(JOBS, &job("sum", json!({"parallelism": 2, "completions": 3})))
        .await;
    let uid = &made["metadata"]["uid"];
    let first = running(&cluster, "sum", 2).await;
    for pod in &first {
        let metadata = &pod["metadata"];
        assert_eq!(metadata["generateName"], "sum-");
        assert_eq!(metadata["finalizers"], json!([TRACKED]));
        assert_eq!(
            metadata["labels"],
            json!({"controller-uid": uid, "job-name": "sum", "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": "sum"})
        );
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": uid, "controller": true,
            "blockOwnerDeletion": true});
        assert_eq!(metadata["ownerReferences"], json!([owner]));
    }
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    tell(&cluster, &first[0], &ready).await;
    let seen = cluster
        .until(&at("sum"), |answer| answer.body["status"]["ready"] == 1)
        .await
        .body;
    let status = json!({"active": 2, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {},
        "startTime": seen["status"]["startTime"]});
    assert_eq!(seen["status"], status);
    for pod in &first {
        end(&cluster, pod, 0).await;
    }
    let last = running(&cluster, "sum", 1).await;
    end(&cluster, &last[0], 0).await;
    let over = once(&cluster, "sum", "Complete").await;
    for kind in ["SuccessCriteriaMet", "Complete"] {
        let condition = condition(&over, kind);
        assert_eq!(condition["reason"], "CompletionsReached");
        assert_eq!(condition["message"], "Reached expected number of succeeded pods");
    }
    let status = &over["status"];
    assert_eq!(
        json!([
            status["succeeded"],
            status["active"],
            status["ready"],
            status["failed"],
            status["uncountedTerminatedPods"]
        ]),
        json!([3, null, 0, null, {}])
    );
    assert!(status["completionTime"].as_str() >= status["startTime"].as_str());
    let pods = cluster.admin.get(&of_job("sum")).await;
    assert_eq!(items(&pods).len(), 3);
    assert!(!items(&pods).iter().any(is_tracked));
    assert_eq!(event(&cluster, "Completed").await["message"], "Job completed");
    let told = event(&cluster, "SuccessfulCreate").await;
    assert!(
        told["message"].as_str().unwrap().starts_with("Created pod: sum-"),
        "{told}"
    );
    assert_eq!(told["source"]["component"], "job-controller");
}

#[tokio::test]
async fn without_a_number_of_completions_one_success_lets_the_others_end() {
    let cluster = Cluster::start().await;
    cluster.made(JOBS, &job("queue", json!({"parallelism": 3}))).await;
    let pods = running(&cluster, "queue", 3).await;
    end(&cluster, &pods[0], 0).await;
    let counted = |answer: &Answer| answer.body["status"]["succeeded"] == 1 && answer.body["status"]["active"] == 2;
    cluster.until(&at("queue"), counted).await;
    end(&cluster, &pods[1], 1).await;
    end(&cluster, &pods[2], 0).await;
    let over = once(&cluster, "queue", "Complete").await;
    assert_eq!(
        json!([over["status"]["succeeded"], over["status"]["failed"]]),
        json!([2, 1])
    );
}

#[tokio::test]
async fn each_index_has_one_pod_that_knows_it() {
    let cluster = Cluster::start().await;
    let spec = json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed"});
    cluster.made(JOBS, &job("parts", spec)).await;
    let label = "batch.kubernetes.io/job-completion-index";
    let index = |pod: &Value| {
        pod["metadata"]["annotations"][label]
            .as_str()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let mut pods = running(&cluster, "parts", 3).await;
    pods.sort_by_key(index);
    for (number, pod) in pods.iter().enumerate() {
        let text = number.to_string();
        assert_eq!(
            (
                &pod["metadata"]["annotations"][label],
                &pod["metadata"]["labels"][label]
            ),
            (&json!(text), &json!(text))
        );
        assert_eq!(pod["spec"]["hostname"], format!("parts-{number}"));
        assert_eq!(pod["metadata"]["generateName"], format!("parts-{number}-"));
        let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1",
            "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}});
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([variable]));
    }
    end(&cluster, &pods[0], 0).await;
    end(&cluster, &pods[2], 0).await;
    let told = |text: &'static str| move |answer: &Answer| answer.body["status"]["completedIndexes"] == text;
    cluster.until(&at("parts"), told("0,2")).await;
    let rest = running(&cluster, "parts", 2).await;
    assert_eq!(rest.iter().map(index).max(), Some(3));
    // One that fails is made anew.
    end(&cluster, &pods[1], 1).await;
    let anew = |answer: &Answer| {
        items(answer)
            .iter()
            .filter(|pod| is_running(pod) && index(pod) == 1)
            .count()
            == 1
    };
    cluster.until(&of_job("parts"), anew).await;
    for pod in running(&cluster, "parts", 2).await {
        end(&cluster, &pod, 0).await;
    }
    let over = once(&cluster, "parts", "Complete").await;
    let status = &over["status"];
    assert_eq!(
        json!([status["completedIndexes"], status["succeeded"], status["failed"]]),
        json!(["0-3", 4, 1])
    );
}

#[tokio::test]
async fn an_indexed_job_grows_and_shrinks_with_its_parallelism() {
    let cluster = Cluster::start().await;
    let spec = |count: usize| json!({"parallelism": count, "completions": count});
    let mut made = job("elastic", spec(3));
    made["spec"]["completionMode"] = "Indexed".into();
    cluster.made(JOBS, &made).await;
    running(&cluster, "elastic", 3).await;
    for count in [5, 1] {
        let answer = cluster.admin.merge(&at("elastic"), &json!({"spec": spec(count)})).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        running(&cluster, "elastic", count).await;
    }
    let pods = running(&cluster, "elastic", 1).await;
    assert_eq!(pods[0]["spec"]["hostname"], "elastic-0");
    end(&cluster, &pods[0], 0).await;
    let over = once(&cluster, "elastic", "Complete").await;
    assert_eq!(
        json!([over["status"]["succeeded"], over["status"]["failed"]]),
        json!([1, null])
    );
}

#[tokio::test]
async fn a_suspended_job_has_no_pods_and_its_time_begins_anew() {
    let cluster = Cluster::start().await;
    let spec = json!({"parallelism": 2, "completions": 2, "suspend": true, "activeDeadlineSeconds": 100_000});
    cluster.made(JOBS, &job("sleeper", spec)).await;
    let asleep = once(&cluster, "sleeper", "Suspended").await;
    assert_eq!(condition(&asleep, "Suspended")["reason"], "JobSuspended");
    assert_eq!(asleep["status"]["startTime"], Value::Null);
    assert_eq!(items(&cluster.admin.get(&of_job("sleeper")).await).len(), 0);
    event(&cluster, "Suspended").await;
    let suspend = async |is: bool| {
        cluster
            .admin
            .merge(&at("sleeper"), &json!({"spec": {"suspend": is}}))
            .await
    };
    suspend(false).await;
    running(&cluster, "sleeper", 2).await;
    let awake = |answer: &Answer| condition(&answer.body, "Suspended")["reason"] == "JobResumed";
    let job = cluster.until(&at("sleeper"), awake).await.body;
    assert_eq!(condition(&job, "Suspended")["status"], "False");
    assert!(job["status"]["startTime"].is_string());
    event(&cluster, "Resumed").await;
    // Those that are deleted then are no failures.
    suspend(true).await;
    running(&cluster, "sleeper", 0).await;
    let again = |answer: &Answer| is("Suspended")(answer) && answer.body["status"]["terminating"] == 0;
    let asleep = cluster.until(&at("sleeper"), again).await.body;
    let status = &asleep["status"];
    assert_eq!(
        json!([status["failed"], status["active"], status["startTime"]]),
        json!([null, null, null])
    );
    event(&cluster, "SuccessfulDelete").await;
}

#[tokio::test]
async fn pods_are_taken_in_and_let_go_by_their_labels() {
    let cluster = Cluster::start().await;
    let made = cluster
        .made(JOBS, &job("foster", json!({"parallelism": 2, "completions": 2})))
        .await;
    let pods = running(&cluster, "foster", 2).await;
    let path = format!("{PODS}/{}", name(&pods[0]));
    // One that lost its owner is the Job's again.
    cluster
        .admin
        .merge(&path, &json!({"metadata": {"ownerReferences": null}}))
        .await;
    let owned = |answer: &Answer| answer.body["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"];
    let pod = cluster.until(&path, owned).await.body;
    assert!(is_tracked(&pod));
    // One whose labels are others is nobody's, and another is made.
    cluster.admin.merge(&path, &json!({"metadata": {"labels": null}})).await;
    let free = |answer: &Answer| answer.body["metadata"]["ownerReferences"].is_null() && !is_tracked(&answer.body);
    cluster.until(&path, free).await;
    running(&cluster, "foster", 2).await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_counts_as_failed_and_is_replaced() {
    let cluster = Cluster::start().await;
    cluster.made(JOBS, &job("loser", json!({"completions": 1}))).await;
    let pod = running(&cluster, "loser", 1).await.remove(0);
    // Told to go long ago.
    end(&cluster, &pod, 1).await;
    cluster.admin.delete(&format!("{PODS}/{}", name(&pod))).await;
    cluster.gone(&format!("{PODS}/{}", name(&pod))).await;
    running(&cluster, "loser", 1).await;
    cluster
        .until(&at("loser"), |answer| answer.body["status"]["failed"] == 1)
        .await;
}

#[tokio::test]
async fn who_replaces_only_failed_pods_waits_until_they_have_ended() {
    let cluster = Cluster::start().await;
    let mut made = job("patient", json!({"completions": 1, "podReplacementPolicy": "Failed"}));
    made["spec"]["template"]["spec"]["nodeName"] = "nowhere".into();
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 100.into();
    cluster.made(JOBS, &made).await;
    let pod = running(&cluster, "patient", 1).await.remove(0);
    cluster.admin.delete(&format!("{PODS}/{}", name(&pod))).await;
    let waits =
        |answer: &Answer| answer.body["status"]["terminating"] == 1 && answer.body["status"]["active"].is_null();
    let status = cluster.until(&at("patient"), waits).await.body;
    assert_eq!(status["status"]["failed"], Value::Null);
    assert_eq!(items(&cluster.admin.get(&of_job("patient")).await).len(), 1);
    end(&cluster, &pod, 1).await;
    running(&cluster, "patient", 1).await;
    cluster
        .until(&at("patient"), |answer| answer.body["status"]["failed"] == 1)
        .await;
}

#[tokio::test]
async fn what_somebody_else_manages_is_left_alone() {
    let cluster = Cluster::start().await;
    cluster
        .made(JOBS, &job("theirs", json!({"managedBy": "example.com/other"})))
        .await;
    cluster
        .made(JOBS, &job("ours", json!({"managedBy": "kubernetes.io/job-controller"})))
        .await;
    running(&cluster, "ours", 1).await;
    assert_eq!(items(&cluster.admin.get(&of_job("theirs")).await).len(), 0);
    assert_eq!(cluster.admin.get(&at("theirs")).await.body["status"], json!({}));
}

#[tokio::test]
async fn pods_go_with_their_job_or_stay_without_the_finalizer() {
    let cluster = Cluster::start().await;
    for (name, policy) in [("behind", "Background"), ("before", "Foreground"), ("alone", "Orphan")] {
        cluster
            .made(JOBS, &job(name, json!({"parallelism": 2, "completions": 3})))
            .await;
        let pods = running(&cluster, name, 2).await;
        end(&cluster, &pods[0], 0).await;
        cluster
            .until(&at(name), |answer| answer.body["status"]["succeeded"] == 1)
            .await;
        running(&cluster, name, 2).await;
        cluster
            .admin
            .delete_with(&at(name), &json!({"propagationPolicy": policy}))
            .await;
        cluster.gone(&at(name)).await;
        let done = |answer: &Answer| {
            let pods = items(answer);
            let is_free = |pod: &Value| !is_tracked(pod) && pod["metadata"]["ownerReferences"].is_null();
            if policy == "Orphan" {
                pods.len() == 3 && pods.iter().all(is_free)
            } else {
                pods.is_empty()
            }
        };
        cluster.until(&of_job(name), done).await;
    }
}

#[tokio::test]
async fn pods_whose_job_went_while_nobody_looked_can_go() {
    let mut cluster = Cluster::start().await;
    cluster
        .made(JOBS, &job("lost", json!({"parallelism": 2, "completions": 2})))
        .await;
    let pods = running(&cluster, "lost", 2).await;
    cluster = cluster.restarted().await;
    cluster
        .admin
        .delete_with(&at("lost"), &json!({"propagationPolicy": "Background"}))
        .await;
    cluster.admin.delete(&format!("{PODS}/{}", name(&pods[0]))).await;
    assert_eq!(
        items(&cluster.admin.get(&of_job("lost")).await).len(),
        2,
        "the finalizer keeps it"
    );
    cluster.start_controllers();
    cluster.until(&of_job("lost"), |answer| items(answer).is_empty()).await;
}
