//! ReplicaSets and replication controllers: as many Pods as are asked for, whatever happens to them.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn template(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn set(name: &str, replicas: usize) -> Value {
    let labels = json!({"app": name});
    json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(&labels)}})
}

fn at(name: &str) -> String {
    format!("{SETS}/{name}")
}

/// What the status says when so many Pods are there.
fn has(replicas: usize) -> impl Fn(&Answer) -> bool {
    move |answer| {
        let (status, generation) = (&answer.body["status"], &answer.body["metadata"]["generation"]);
        status["replicas"] == replicas && status["observedGeneration"] == *generation
    }
}

async fn pods(cluster: &Cluster, app: &str) -> Vec<Value> {
    let list = cluster
        .admin
        .get(&format!("{PODS}?labelSelector=app%3D{app}"))
        .await
        .body;
    list["items"].as_array().unwrap().clone()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap()
}

async fn make_ready(cluster: &Cluster, pod: &Value) {
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let answer = cluster
        .admin
        .merge(&format!("{PODS}/{}/status", name(pod)), &status)
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_set_has_as_many_pods_as_it_asks_for_and_no_doubles() {
    let cluster = Cluster::start().await;
    let made = cluster.made(SETS, &set("web", 7)).await;
    cluster.until(&at("web"), has(7)).await;
    let first = pods(&cluster, "web").await;
    assert_eq!(first.len(), 7);
    let reference = &first[0]["metadata"]["ownerReferences"][0];
    assert_eq!(
        *reference,
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": made["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true})
    );
    assert!(name(&first[0]).starts_with("web-"));
    // One that goes is replaced; fewer and none are asked for.
    cluster
        .admin
        .delete(&format!("{PODS}/{}?gracePeriodSeconds=0", name(&first[0])))
        .await;
    let seen = |answer: &Answer| {
        let items = answer.body["items"].as_array().unwrap();
        items.len() == 7 && items.iter().all(|pod| name(pod) != name(&first[0]))
    };
    cluster.until(&format!("{PODS}?labelSelector=app%3Dweb"), seen).await;
    for replicas in [3, 0, 2] {
        let scaled = cluster
            .admin
            .merge(&at("web"), &json!({"spec": {"replicas": replicas}}))
            .await;
        assert_eq!(scaled.code, 200, "{}", scaled.body);
        cluster.until(&at("web"), has(replicas)).await;
        assert_eq!(pods(&cluster, "web").await.len(), replicas);
    }
}

#[tokio::test]
async fn pods_that_are_ready_are_counted_and_those_that_are_not_go_first() {
    let cluster = Cluster::start().await;
    cluster.made(SETS, &set("web", 3)).await;
    cluster.until(&at("web"), has(3)).await;
    let made = pods(&cluster, "web").await;
    make_ready(&cluster, &made[0]).await;
    make_ready(&cluster, &made[2]).await;
    let ready = |answer: &Answer| {
        answer.body["status"]["readyReplicas"] == 2 && answer.body["status"]["availableReplicas"] == 2
    };
    cluster.until(&at("web"), ready).await;
    cluster.admin.merge(&at("web"), &json!({"spec": {"replicas": 2}})).await;
    cluster.until(&at("web"), has(2)).await;
    let left = pods(&cluster, "web").await;
    let names: Vec<&str> = left.iter().map(name).collect();
    assert!(
        names.contains(&name(&made[0])) && names.contains(&name(&made[2])),
        "{names:?}"
    );
}

#[tokio::test]
async fn pods_without_a_controller_are_taken_in_and_pods_with_other_labels_let_go() {
    let cluster = Cluster::start().await;
    let labels = json!({"app": "web"});
    let mut orphan = template(&labels);
    orphan["metadata"]["name"] = "orphan".into();
    cluster.made(PODS, &orphan).await;
    let made = cluster.made(SETS, &set("web", 2)).await;
    cluster.until(&at("web"), has(2)).await;
    let adopted = cluster.admin.get(&format!("{PODS}/orphan")).await.body;
    assert_eq!(
        adopted["metadata"]["ownerReferences"][0]["uid"],
        made["metadata"]["uid"]
    );
    cluster
        .admin
        .merge(
            &format!("{PODS}/orphan"),
            &json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    let free = |answer: &Answer| answer.body["metadata"]["ownerReferences"].is_null();
    cluster.until(&format!("{PODS}/orphan"), free).await;
    let two = |answer: &Answer| answer.body["items"].as_array().unwrap().len() == 2;
    cluster.until(&format!("{PODS}?labelSelector=app%3Dweb"), two).await;
    // One more of the kind is one too many.
    cluster
        .admin
        .merge(
            &format!("{PODS}/orphan"),
            &json!({"metadata": {"labels": {"app": "web"}}}),
        )
        .await;
    cluster.until(&format!("{PODS}?labelSelector=app%3Dweb"), two).await;
}

#[tokio::test]
async fn a_set_that_goes_takes_its_pods_along_or_leaves_them() {
    let cluster = Cluster::start().await;
    cluster.made(SETS, &set("web", 3)).await;
    cluster.made(SETS, &set("db", 3)).await;
    cluster.until(&at("web"), has(3)).await;
    cluster.until(&at("db"), has(3)).await;
    cluster
        .admin
        .delete(&format!("{}?propagationPolicy=Foreground", at("web")))
        .await;
    cluster
        .admin
        .delete(&format!("{}?propagationPolicy=Orphan", at("db")))
        .await;
    cluster.gone(&at("web")).await;
    cluster.gone(&at("db")).await;
    assert_eq!(pods(&cluster, "web").await.len(), 0);
    let left = pods(&cluster, "db").await;
    assert!(left.len() == 3 && left.iter().all(|pod| pod["metadata"]["ownerReferences"].is_null()));
    cluster.made(SETS, &set("db", 3)).await;
    cluster.until(&at("db"), has(3)).await;
    let again = pods(&cluster, "db").await;
    assert_eq!(
        again.iter().map(name).collect::<Vec<_>>(),
        left.iter().map(name).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn what_was_asked_for_while_nobody_worked_is_made_up_for_without_doubles() {
    let cluster = Cluster::start().await;
    cluster.made(SETS, &set("web", 4)).await;
    cluster.until(&at("web"), has(4)).await;
    let mut cluster = cluster.restarted().await;
    cluster.admin.merge(&at("web"), &json!({"spec": {"replicas": 6}})).await;
    cluster.start_controllers();
    cluster.until(&at("web"), has(6)).await;
    assert_eq!(pods(&cluster, "web").await.len(), 6);
}

#[tokio::test]
async fn replication_controllers_work_like_sets_and_events_tell_of_it() {
    let cluster = Cluster::start().await;
    let labels = json!({"app": "old"});
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let controller = json!({"metadata": {"name": "old"}, "spec": {"replicas": 2, "selector": labels, "template": template(&labels)}});
    cluster.made(path, &controller).await;
    cluster.until(&format!("{path}/old"), has(2)).await;
    let two = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap().iter();
        events.filter(|event| event["reason"] == "SuccessfulCreate").count() == 2
    };
    cluster
        .until(
            "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dold",
            two,
        )
        .await;
}
