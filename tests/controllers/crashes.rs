//! Wherever the process ends, controllers come to the same end, and make nothing twice.

use serde_json::{Value, json};

use crate::job::{is_running, name};
use crate::{Cluster, LONG};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What is stored at these paths: objects, and the items of lists.
pub(crate) async fn seen(cluster: &Cluster, paths: &[String]) -> Vec<Value> {
    let mut seen = Vec::new();
    for path in paths {
        let body = cluster.admin.get(path).await.body;
        seen.push(if body["items"].is_array() {
            body["items"].clone()
        } else {
            body
        });
    }
    seen
}

/// Lets controllers work until what is seen has changed so many times, or nothing more is to be done; then ends them with their server.
pub(crate) async fn steps(
    mut cluster: Cluster,
    paths: &[String],
    count: usize,
    is_done: impl Fn(&[Value]) -> bool,
) -> Cluster {
    let (mut before, mut steps) = (seen(&cluster, paths).await, 0);
    cluster.start_controllers();
    let store = cluster.server.store().clone();
    let wait = async {
        while steps < count && !is_done(&before) {
            let revision = store.view().revision();
            let now = seen(&cluster, paths).await;
            if now == before {
                store.reached(revision + 1).await;
            } else {
                (before, steps) = (now, steps + 1);
            }
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("controllers do nothing");
    // Who holds the store keeps it from being opened again.
    drop(store);
    cluster.restarted().await
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"].as_array().is_some_and(|list| {
        let is_it = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        list.iter().any(is_it)
    })
}

fn is_rolled_out(deployment: &Value) -> bool {
    let status = &deployment["status"];
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|field| status[*field] == 3)
}

fn list(items: &Value) -> &[Value] {
    items.as_array().unwrap()
}

/// Rolls a Deployment out, ending the server after every `count` changes, with Pods becoming ready in between. `at_least` of
/// them are ready all the time.
async fn roll_out(mut cluster: Cluster, count: usize, at_least: usize) -> Cluster {
    let paths = [DEPLOYMENT, SETS, PODS].map(str::to_owned);
    for _ in 0..200 {
        let waits = |seen: &[Value]| list(&seen[2]).iter().any(|pod| is_running(pod) && !is_ready(pod));
        cluster = steps(cluster, &paths, count, |seen| is_rolled_out(&seen[0]) || waits(seen)).await;
        let seen = seen(&cluster, &paths).await;
        let running = || list(&seen[2]).iter().filter(|pod| is_running(pod));
        assert!(running().count() <= 4, "more than the surge: {}", seen[2]);
        assert!(
            running().filter(|pod| is_ready(pod)).count() >= at_least,
            "too few: {}",
            seen[2]
        );
        if is_rolled_out(&seen[0]) {
            return cluster;
        }
        for pod in running().filter(|pod| !is_ready(pod)) {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"});
            let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
            let answer = cluster
                .admin
                .merge(&format!("{PODS}/{}/status", name(pod)), &status)
                .await;
            assert_eq!(answer.code, 200, "{}", answer.body);
        }
    }
    panic!("it does not come to an end");
}

#[tokio::test]
async fn a_rollout_neither_lacks_pods_nor_makes_some_twice_wherever_the_process_ends() {
    for count in [1, 2, 4] {
        let mut cluster = Cluster::without_controllers().await;
        let template = |image: &str| {
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": image}]}})
        };
        let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("one")});
        let all = DEPLOYMENT.trim_end_matches("/web");
        cluster
            .made(all, &json!({"metadata": {"name": "web"}, "spec": spec}))
            .await;
        cluster = roll_out(cluster, count, 0).await;
        let answer = cluster
            .admin
            .merge(DEPLOYMENT, &json!({"spec": {"template": template("two")}}))
            .await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        cluster = roll_out(cluster, count, 3).await;
        let found = seen(&cluster, &[SETS, PODS].map(str::to_owned)).await;
        let mut sizes: Vec<i64> = list(&found[0])
            .iter()
            .map(|set| set["spec"]["replicas"].as_i64().unwrap())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [0, 3], "after every {count}");
        let images: Vec<&Value> = list(&found[1])
            .iter()
            .map(|pod| &pod["spec"]["containers"][0]["image"])
            .collect();
        assert_eq!(images, [&json!("two"); 3], "after every {count}");
    }
}
