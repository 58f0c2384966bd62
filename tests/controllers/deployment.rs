//! Deployments: rollouts, their history, scaling in the middle, pauses.

use std::sync::Arc;

use flatkube::store::Store;
use serde_json::{Value, json};

use crate::{Answer, Client, Cluster};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn deployment(name: &str, replicas: usize, image: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn at(name: &str) -> String {
    format!("{DEPLOYMENTS}/{name}")
}

fn items(answer: &Answer) -> &Vec<Value> {
    answer.body["items"].as_array().unwrap()
}

fn revision(object: &Value) -> &str {
    object["metadata"]["annotations"][REVISION].as_str().unwrap_or("")
}

fn progressing(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|list| list.iter().find(|condition| condition["type"] == "Progressing"));
    found.map_or(Value::Null, |condition| condition["reason"].clone())
}

/// Whether all its Pods are of its template and available, in this revision.
fn complete(replicas: usize, number: &str) -> impl Fn(&Answer) -> bool {
    move |answer| {
        let (object, status) = (&answer.body, &answer.body["status"]);
        revision(object) == number
            && status["observedGeneration"] == object["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|field| status[*field] == replicas)
            && progressing(object) == "NewReplicaSetAvailable"
    }
}

/// Stands for the nodes: Pods become ready, unless their image is `broken`.
async fn nodes(store: Arc<Store>, admin: Client) {
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    loop {
        let revision = store.view().revision();
        for pod in items(&admin.get(PODS).await) {
            let is_new = pod["status"]["phase"] == "Pending" && pod["metadata"]["deletionTimestamp"].is_null();
            if is_new && pod["spec"]["containers"][0]["image"] != "broken" {
                let name = pod["metadata"]["name"].as_str().unwrap();
                admin.merge(&format!("{PODS}/{name}/status"), &status).await;
            }
        }
        store.reached(revision + 1).await;
    }
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start().await;
    tokio::spawn(nodes(cluster.server.store().clone(), cluster.admin.clone()));
    cluster
}

async fn sets(cluster: &Cluster) -> Vec<(String, i64)> {
    let found = cluster.admin.get(SETS).await;
    let mut sets: Vec<(String, i64)> = items(&found)
        .iter()
        .map(|set| (revision(set).to_owned(), set["spec"]["replicas"].as_i64().unwrap()))
        .collect();
    sets.sort();
    sets
}

fn pairs(list: &[(&str, i64)]) -> Vec<(String, i64)> {
    list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[tokio::test]
async fn templates_follow_each_other_and_an_old_one_that_comes_back_is_found() {
    let cluster = cluster().await;
    cluster.made(DEPLOYMENTS, &deployment("web", 4, "one")).await;
    cluster.until(&at("web"), complete(4, "1")).await;
    cluster.admin.merge(&at("web"), &image("two")).await;
    cluster.until(&at("web"), complete(4, "2")).await;
    assert_eq!(sets(&cluster).await, pairs(&[("1", 0), ("2", 4)]));
    let pods = cluster.admin.get(PODS).await;
    assert!(
        items(&pods)
            .iter()
            .all(|pod| pod["spec"]["containers"][0]["image"] == "two")
    );
    // What `kubectl rollout undo` does.
    cluster.admin.merge(&at("web"), &image("one")).await;
    let back = cluster.until(&at("web"), complete(4, "3")).await;
    // What the controller notes is no generation: only the client's three writes are.
    assert_eq!(back.body["metadata"]["generation"], 3);
    assert_eq!(sets(&cluster).await, pairs(&[("2", 0), ("3", 4)]));
    let found = cluster.admin.get(SETS).await;
    let back = items(&found).iter().find(|set| revision(set) == "3").unwrap();
    assert_eq!(
        back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"],
        "1"
    );
}

#[tokio::test]
async fn a_rollout_that_cannot_go_on_keeps_what_is_available_and_says_so() {
    let cluster = cluster().await;
    let mut stuck = deployment("web", 4, "one");
    stuck["spec"]["progressDeadlineSeconds"] = 2.into();
    cluster.made(DEPLOYMENTS, &stuck).await;
    cluster.until(&at("web"), complete(4, "1")).await;
    cluster.admin.merge(&at("web"), &image("broken")).await;
    let late = |answer: &Answer| progressing(&answer.body) == "ProgressDeadlineExceeded";
    let found = cluster.until(&at("web"), late).await;
    // A quarter more, a quarter less.
    assert_eq!(found.body["status"]["availableReplicas"], 3);
    assert_eq!(sets(&cluster).await, pairs(&[("1", 3), ("2", 2)]));
    // In the middle of it, it grows: both sets get their share.
    cluster.admin.merge(&at("web"), &json!({"spec": {"replicas": 8}})).await;
    let grown = |answer: &Answer| answer.body["status"]["replicas"] == 10;
    cluster.until(&at("web"), grown).await;
    assert_eq!(sets(&cluster).await, pairs(&[("1", 6), ("2", 4)]));
    cluster.admin.merge(&at("web"), &image("three")).await;
    cluster.until(&at("web"), complete(8, "3")).await;
}

#[tokio::test]
async fn while_it_is_paused_nothing_is_rolled_out_but_it_can_be_scaled() {
    let cluster = cluster().await;
    cluster.made(DEPLOYMENTS, &deployment("web", 2, "one")).await;
    cluster.until(&at("web"), complete(2, "1")).await;
    cluster
        .admin
        .merge(&at("web"), &json!({"spec": {"paused": true}}))
        .await;
    let paused = |answer: &Answer| progressing(&answer.body) == "DeploymentPaused";
    cluster.until(&at("web"), paused).await;
    cluster.admin.merge(&at("web"), &image("two")).await;
    cluster.admin.merge(&at("web"), &json!({"spec": {"replicas": 3}})).await;
    let scaled = |answer: &Answer| {
        let status = &answer.body["status"];
        status["replicas"] == 3 && status["observedGeneration"] == answer.body["metadata"]["generation"]
    };
    cluster.until(&at("web"), scaled).await;
    assert_eq!(sets(&cluster).await, pairs(&[("1", 3)]));
    cluster
        .admin
        .merge(&at("web"), &json!({"spec": {"paused": null}}))
        .await;
    cluster.until(&at("web"), complete(3, "2")).await;
}

#[tokio::test]
async fn what_recreates_has_never_pods_of_two_templates() {
    let cluster = cluster().await;
    let mut recreating = deployment("web", 3, "one");
    recreating["spec"]["strategy"] = json!({"type": "Recreate"});
    cluster.made(DEPLOYMENTS, &recreating).await;
    cluster.until(&at("web"), complete(3, "1")).await;
    let store = cluster.server.store().clone();
    let before = store.view().revision();
    cluster.admin.merge(&at("web"), &image("two")).await;
    cluster.until(&at("web"), complete(3, "2")).await;
    // The log tells in which order: no new Pod before the last old one went.
    let mut follower = store.follow("pods", None, before).unwrap();
    let mut old_left = 3;
    while let Some(event) = follower.next().unwrap() {
        let pod: Value = serde_json::from_slice(event.object.json().unwrap()).unwrap();
        match event.kind {
            flatkube::store::EventKind::Deleted => old_left -= 1,
            flatkube::store::EventKind::Created => {
                assert_eq!(
                    (old_left, pod["spec"]["containers"][0]["image"].as_str()),
                    (0, Some("two"))
                );
            }
            flatkube::store::EventKind::Updated => {}
        }
    }
}

#[tokio::test]
async fn old_sets_are_forgotten_and_all_goes_with_the_deployment() {
    let cluster = cluster().await;
    let mut short = deployment("web", 1, "i0");
    short["spec"]["revisionHistoryLimit"] = 2.into();
    cluster.made(DEPLOYMENTS, &short).await;
    for number in 1..=4 {
        cluster.until(&at("web"), complete(1, &number.to_string())).await;
        cluster.admin.merge(&at("web"), &image(&format!("i{number}"))).await;
    }
    cluster.until(&at("web"), complete(1, "5")).await;
    cluster.until(SETS, |answer| items(answer).len() == 3).await;
    assert_eq!(sets(&cluster).await, pairs(&[("3", 0), ("4", 0), ("5", 1)]));
    cluster.admin.delete(&at("web")).await;
    cluster.until(SETS, |answer| items(answer).is_empty()).await;
    cluster.until(PODS, |answer| items(answer).is_empty()).await;
}
