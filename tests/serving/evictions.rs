//! Evictions, and the budgets that bound them.

use serde_json::{Value, json};

use crate::Started;
use crate::client::{Answer, Client};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A Pod on a node, running, ready or not.
async fn running(admin: &Client, name: &str, ready: bool) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(admin.post(PODS, &pod).await.code, 201);
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}});
    assert_eq!(admin.merge(&format!("{PODS}/{name}/status"), &status).await.code, 200);
}

async fn budget(admin: &Client, name: &str, status: Value) {
    let budget = json!({"metadata": {"name": name}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"app": "a"}},
    }});
    assert_eq!(admin.post(BUDGETS, &budget).await.code, 201);
    let mut status = json!({"status": status});
    status["status"]["observedGeneration"] = 1.into();
    assert_eq!(
        admin.merge(&format!("{BUDGETS}/{name}/status"), &status).await.code,
        200
    );
}

async fn evict(admin: &Client, name: &str, options: Value) -> Answer {
    let mut eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    if !options.is_null() {
        eviction["deleteOptions"] = options;
    }
    admin.post(&format!("{PODS}/{name}/eviction"), &eviction).await
}

async fn left(admin: &Client, name: &str) -> Value {
    admin.get(&format!("{BUDGETS}/{name}")).await.body["status"]["disruptionsAllowed"].clone()
}

#[tokio::test]
async fn evictions_at_once_take_no_more_than_the_budget_allows() {
    let started = Started::usual().await;
    let admin = started.admin();
    for n in 0..12 {
        running(&admin, &format!("p{n}"), true).await;
    }
    budget(
        &admin,
        "b",
        json!({"disruptionsAllowed": 5, "currentHealthy": 12, "desiredHealthy": 7}),
    )
    .await;
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let admin = admin.clone();
            tokio::spawn(async move { evict(&admin, &format!("p{n}"), Value::Null).await.code.as_u16() })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!(codes, [[201].repeat(5), [429].repeat(7)].concat());
    let status = admin.get(&format!("{BUDGETS}/b")).await.body["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert_eq!(status["disruptedPods"].as_object().unwrap().len(), 5);
    assert_eq!(
        (&status["conditions"][0]["type"], &status["conditions"][0]["reason"]),
        (&json!("DisruptionAllowed"), &json!("InsufficientPods"))
    );
    let pods = admin.get(PODS).await.body["items"].clone();
    let going = pods.as_array().unwrap().iter().filter(|pod| {
        let noted = pod["status"]["conditions"].as_array().into_iter().flatten();
        let noted = noted
            .filter(|condition| condition["type"] == "DisruptionTarget")
            .count();
        assert_eq!(noted == 1, pod["metadata"]["deletionTimestamp"].is_string());
        noted == 1
    });
    assert_eq!(going.count(), 5);
}

#[tokio::test]
async fn a_dry_run_takes_nothing() {
    let started = Started::usual().await;
    let admin = started.admin();
    running(&admin, "p", true).await;
    budget(
        &admin,
        "b",
        json!({"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}),
    )
    .await;
    let before = admin.get(&format!("{PODS}/p")).await.body;
    assert_eq!(evict(&admin, "p", json!({"dryRun": ["All"]})).await.code, 201);
    assert_eq!(left(&admin, "b").await, 1);
    assert_eq!(admin.get(&format!("{PODS}/p")).await.body, before);
    let odd = evict(&admin, "p", json!({"dryRun": ["Some"]})).await;
    assert_eq!(odd.code, 422);
    let path = format!("{PODS}/p/eviction?dryRun=All");
    let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["Some"]}});
    assert_eq!(
        admin.post(&path, &eviction).await.body["message"],
        "Non-matching dry-run options in request and content: [All] and [Some]"
    );
}

#[tokio::test]
async fn who_names_a_revision_evicts_that_one_or_none() {
    let started = Started::usual().await;
    let admin = started.admin();
    running(&admin, "p", true).await;
    let revision = admin.get(&format!("{PODS}/p")).await.body["metadata"]["resourceVersion"].clone();
    let old = evict(&admin, "p", json!({"preconditions": {"resourceVersion": "1"}})).await;
    assert_eq!(old.code, 409);
    let other = evict(&admin, "p", json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!(other.code, 409);
    let this = evict(&admin, "p", json!({"preconditions": {"resourceVersion": revision}})).await;
    assert_eq!(this.code, 201, "{}", this.body);
    let pod = admin.get(&format!("{PODS}/p")).await.body;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[tokio::test]
async fn pods_that_serve_nobody_go_whatever_the_budget_says() {
    let started = Started::usual().await;
    let admin = started.admin();
    budget(
        &admin,
        "b",
        json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}),
    )
    .await;
    running(&admin, "unready", false).await;
    running(&admin, "over", true).await;
    let over = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(admin.merge(&format!("{PODS}/over/status"), &over).await.code, 200);
    let pending = json!({"metadata": {"name": "pending", "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(admin.post(PODS, &pending).await.code, 201);
    for name in ["unready", "over", "pending"] {
        let answer = evict(&admin, name, Value::Null).await;
        assert_eq!(answer.code, 201, "{name}: {}", answer.body);
    }
    assert_eq!(admin.get(&format!("{PODS}/over")).await.code, 404);
    running(&admin, "ready", true).await;
    assert_eq!(evict(&admin, "ready", Value::Null).await.code, 429);
    budget(&admin, "second", json!({"disruptionsAllowed": 3})).await;
    let two = evict(&admin, "ready", Value::Null).await;
    assert_eq!(
        two.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
            "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."})
    );
}
