//! Wherever the process ends, a StatefulSet comes to the same end, in its order, and makes nothing twice.

use serde_json::{Value, json};

use crate::Cluster;
use crate::crashes::{seen, steps};
use crate::job::name;

const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/s";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

fn list(items: &Value) -> &[Value] {
    items.as_array().unwrap()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"].as_array().is_some_and(|list| {
        let is_it = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        list.iter().any(is_it)
    })
}

fn is_rolled_out(set: &Value) -> bool {
    let status = &set["status"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && status["currentRevision"] == status["updateRevision"]
        && ["replicas", "updatedReplicas", "readyReplicas"]
            .iter()
            .all(|field| status[*field] == 3)
}

/// What stands of a rollout to `image`: Pods have their ordinals from the first on, and only the last of them are new.
fn is_in_order(pods: &[Value], image: &str, at_least: usize) -> bool {
    let is_new = |pod: &&Value| pod["spec"]["containers"][0]["image"] == image;
    let names: Vec<&str> = pods.iter().map(name).collect();
    let filled = at_least > 0 || names == ["s-0", "s-1", "s-2"][..names.len()];
    let news: Vec<bool> = pods.iter().map(|pod| is_new(&pod)).collect();
    filled && news.is_sorted() && pods.iter().filter(|pod| is_ready(pod)).count() >= at_least
}

/// Rolls the set out, ending the server after every `count` changes, with one Pod becoming ready in between. `at_least` of them
/// are ready all the time.
async fn roll_out(mut cluster: Cluster, count: usize, image: &str, at_least: usize) -> Cluster {
    let paths = [SET, PODS].map(str::to_owned);
    for _ in 0..200 {
        let waits = |seen: &[Value]| list(&seen[1]).iter().any(|pod| !is_ready(pod));
        cluster = steps(cluster, &paths, count, |seen| is_rolled_out(&seen[0]) || waits(seen)).await;
        let seen = seen(&cluster, &paths).await;
        assert!(is_in_order(list(&seen[1]), image, at_least), "{}", seen[1]);
        if is_rolled_out(&seen[0]) {
            return cluster;
        }
        for pod in list(&seen[1]).iter().filter(|pod| !is_ready(pod)) {
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
async fn a_rollout_keeps_its_order_wherever_the_process_ends() {
    for count in [1, 2, 4] {
        let mut cluster = Cluster::without_controllers().await;
        let template = |image: &str| {
            json!({"metadata": {"labels": {"app": "s"}}, "spec": {"terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": image}]}})
        };
        let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "s"}}, "template": template("one")});
        let all = SET.trim_end_matches("/s");
        cluster
            .made(all, &json!({"metadata": {"name": "s"}, "spec": spec}))
            .await;
        cluster = roll_out(cluster, count, "one", 0).await;
        let change = json!({"spec": {"template": template("two")}});
        let answer = cluster.admin.merge(SET, &change).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
        cluster = roll_out(cluster, count, "two", 2).await;
        let found = seen(&cluster, &[REVISIONS, PODS].map(str::to_owned)).await;
        assert_eq!(list(&found[0]).len(), 2, "after every {count}");
        let images: Vec<&Value> = list(&found[1])
            .iter()
            .map(|pod| &pod["spec"]["containers"][0]["image"])
            .collect();
        assert_eq!(images, [&json!("two"); 3], "after every {count}");
    }
}
