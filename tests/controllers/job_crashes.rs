//! The counting of Jobs survives the end of the process at every step.

use serde_json::{Value, json};

use crate::Cluster;
use crate::crashes::{seen, steps};
use crate::job::{JOBS, at, condition, end, is_running, is_tracked, job, name, of_job};

/// Whether the Job waits for its Pods.
fn is_quiet(job: &Value, pods: &[Value]) -> bool {
    let running = pods.iter().filter(|pod| is_running(pod)).count();
    running > 0
        && job["status"]["active"] == running
        && job["status"]["uncountedTerminatedPods"] == json!({})
        && pods.iter().all(|pod| is_running(pod) || !is_tracked(pod))
}

fn is_over(job: &Value) -> bool {
    ["Complete", "Failed"]
        .iter()
        .any(|kind| condition(job, kind)["status"] == "True")
}

fn list(pods: &Value) -> &[Value] {
    pods.as_array().unwrap()
}

/// Runs a Job whose first Pods fail, ending the server after every `count` writes. Gives its status and its Pods.
async fn run(spec: Value, failures: usize, count: usize) -> (Value, Vec<Value>) {
    let mut cluster = Cluster::without_controllers().await;
    cluster.made(JOBS, &job("steady", spec)).await;
    let paths = [at("steady"), of_job("steady")];
    let mut ended: Vec<String> = Vec::new();
    let mut rounds = 0;
    loop {
        cluster = steps(cluster, &paths, count, |seen| {
            is_over(&seen[0]) || is_quiet(&seen[0], list(&seen[1]))
        })
        .await;
        let seen = seen(&cluster, &paths).await;
        let (found, all) = (&seen[0], list(&seen[1]));
        if is_over(found) {
            return (found["status"].clone(), all.to_vec());
        }
        for pod in all.iter().filter(|pod| is_running(pod)) {
            let code = i64::from(ended.len() < failures);
            end(&cluster, pod, code).await;
            ended.push(name(pod).to_owned());
        }
        rounds += 1;
        assert!(rounds < 200, "it does not end: {found}");
    }
}

#[tokio::test]
async fn no_pod_is_counted_twice_or_lost_or_made_twice_wherever_the_process_ends() {
    for count in [1, 2, 3, 5] {
        let spec = json!({"parallelism": 2, "completions": 4, "backoffLimit": 9});
        let (status, pods) = run(spec, 2, count).await;
        let counts = json!([
            status["succeeded"],
            status["failed"],
            status["active"],
            status["uncountedTerminatedPods"]
        ]);
        assert_eq!(counts, json!([4, 2, null, {}]), "after every {count}");
        assert_eq!(pods.len(), 6, "after every {count}");
        assert!(!pods.iter().any(is_tracked));
    }
}

#[tokio::test]
async fn no_index_is_counted_twice_or_lost_wherever_the_process_ends() {
    for count in [1, 2, 4] {
        let spec = json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
        let (status, pods) = run(spec, 2, count).await;
        let counts = json!([
            status["completedIndexes"],
            status["failedIndexes"],
            status["succeeded"],
            status["failed"]
        ]);
        assert_eq!(counts, json!(["0-3", "", 4, 2]), "after every {count}");
        assert_eq!(pods.len(), 6, "after every {count}");
    }
}

#[tokio::test]
async fn a_job_fails_once_wherever_the_process_ends() {
    for count in [1, 2] {
        let (status, _) = run(
            json!({"parallelism": 1, "completions": 2, "backoffLimit": 2}),
            99,
            count,
        )
        .await;
        assert_eq!(
            json!([status["failed"], status["succeeded"]]),
            json!([3, null]),
            "after every {count}"
        );
        let kinds: Vec<&Value> = status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["type"])
            .collect();
        assert_eq!(kinds, [&json!("FailureTarget"), &json!("Failed")]);
    }
}
