//! StatefulSets: Pods with names and numbers, made, replaced and deleted in order.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/s";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn set(replicas: i64, more: Value) -> Value {
    let mut set = json!({"metadata": {"name": "s"}, "spec": {"replicas": replicas, "serviceName": "s",
        "selector": {"matchLabels": {"app": "s"}},
        "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "one"}]}}}});
    if let Value::Object(more) = more {
        set["spec"].as_object_mut().unwrap().extend(more);
    }
    set
}

fn items(answer: &Answer) -> &[Value] {
    answer.body["items"].as_array().unwrap()
}

fn names(answer: &Answer) -> Vec<&str> {
    items(answer)
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

/// Name and image of each Pod.
fn images(answer: &Answer) -> Vec<(&str, &str)> {
    let pods = items(answer).iter();
    pods.map(|pod| {
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        (pod["metadata"]["name"].as_str().unwrap(), image)
    })
    .collect()
}

async fn set_ready(cluster: &Cluster, pod: &str, ready: &str) {
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let answer = cluster.admin.merge(&format!("{PODS}/{pod}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

async fn merge(cluster: &Cluster, path: &str, change: Value) {
    let answer = cluster.admin.merge(path, &change).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Waits until the controller has seen the set as it is and says so of these counts: all, ready, current, updated.
async fn told(cluster: &Cluster, counts: [i64; 4]) -> Value {
    let fields = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas"];
    let answer = cluster.until(SET, |answer| {
        let status = &answer.body["status"];
        let count = |field: &str| status[field].as_i64().unwrap_or(0);
        status["observedGeneration"] == answer.body["metadata"]["generation"] && fields.map(count) == counts
    });
    answer.await.body["status"].clone()
}

/// Makes Pods ready as they come, until there are these.
async fn rise(cluster: &Cluster, pods: &[&str]) {
    for pod in pods {
        cluster
            .until(&format!("{PODS}/{pod}"), |answer| answer.code == 200)
            .await;
        set_ready(cluster, pod, "True").await;
    }
}

#[tokio::test]
async fn pods_are_made_in_order_with_names_labels_and_volumes_and_go_from_the_last_one_down() {
    let cluster = Cluster::start().await;
    let claim = json!({"metadata": {"name": "data", "labels": {"tier": "db"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let more = json!({"ordinals": {"start": 4}, "volumeClaimTemplates": [claim]});
    cluster.made(SETS, &set(3, more)).await;
    told(&cluster, [1, 0, 1, 1]).await;
    // The second one waits for the first.
    assert_eq!(names(&cluster.admin.get(PODS).await), ["s-4"]);
    rise(&cluster, &["s-4", "s-5", "s-6"]).await;
    let status = told(&cluster, [3, 3, 3, 3]).await;
    assert_eq!(status["availableReplicas"], 3);
    assert_eq!(status["collisionCount"], 0);
    let revision = status["currentRevision"].as_str().unwrap();
    assert_eq!(status["updateRevision"], revision);
    let pod = cluster.admin.get(&format!("{PODS}/s-5")).await.body;
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "s", "apps.kubernetes.io/pod-index": "5", "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": "s-5"})
    );
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("s-5"), &json!("s"))
    );
    assert_eq!(
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
        "data-s-5"
    );
    let claims = cluster.admin.get(CLAIMS).await;
    assert_eq!(names(&claims), ["data-s-4", "data-s-5", "data-s-6"]);
    assert_eq!(
        items(&claims)[0]["metadata"]["labels"],
        json!({"app": "s", "tier": "db"})
    );
    let revisions = cluster.admin.get(REVISIONS).await;
    let hash = revision.strip_prefix("s-").unwrap();
    assert_eq!(
        items(&revisions)[0]["metadata"]["labels"],
        json!({"app": "s", "controller.kubernetes.io/hash": hash})
    );
    // A label that was taken away comes back.
    merge(
        &cluster,
        &format!("{PODS}/s-4"),
        json!({"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": null}}}),
    )
    .await;
    let has_label = |answer: &Answer| answer.body["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "s-4";
    cluster.until(&format!("{PODS}/s-4"), has_label).await;

    // One that is not ready holds up what goes before it.
    set_ready(&cluster, "s-4", "False").await;
    told(&cluster, [3, 2, 3, 3]).await;
    merge(&cluster, SET, json!({"spec": {"replicas": 1}})).await;
    told(&cluster, [3, 2, 3, 3]).await;
    assert_eq!(names(&cluster.admin.get(PODS).await), ["s-4", "s-5", "s-6"]);
    set_ready(&cluster, "s-4", "True").await;
    told(&cluster, [1, 1, 1, 1]).await;
    // Claims stay.
    assert_eq!(names(&cluster.admin.get(CLAIMS).await).len(), 3);
    let has_told = |message: &'static str, reason: &'static str| {
        move |answer: &Answer| {
            items(answer)
                .iter()
                .any(|event| event["message"] == message && event["reason"] == reason)
        }
    };
    for (message, reason) in [
        ("create Pod s-4 in StatefulSet s successful", "SuccessfulCreate"),
        (
            "create Claim data-s-4 Pod s-4 in StatefulSet s success",
            "SuccessfulCreate",
        ),
        ("delete Pod s-6 in StatefulSet s successful", "SuccessfulDelete"),
        ("update Pod s-4 in StatefulSet s successful", "SuccessfulUpdate"),
    ] {
        cluster.until(EVENTS, has_told(message, reason)).await;
    }
    let deleted: Vec<String> = items(&cluster.admin.get(EVENTS).await)
        .iter()
        .filter(|event| event["reason"] == "SuccessfulDelete")
        .map(|event| event["message"].as_str().unwrap()[..14].to_owned())
        .collect();
    assert_eq!(deleted, ["delete Pod s-6", "delete Pod s-5"]);
}

#[tokio::test]
async fn rollouts_go_from_the_last_pod_to_the_partition_and_back() {
    let cluster = Cluster::start().await;
    let rolling = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}});
    cluster.made(SETS, &set(3, rolling)).await;
    rise(&cluster, &["s-0", "s-1", "s-2"]).await;
    let first = told(&cluster, [3, 3, 3, 3]).await["currentRevision"].clone();
    // Nothing is beyond the partition.
    merge(&cluster, SET, image("two")).await;
    let status = told(&cluster, [3, 3, 3, 0]).await;
    assert_eq!(status["currentRevision"], first);
    assert_ne!(status["updateRevision"], first);
    // A canary.
    let partition = |partition: i64| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}});
    merge(&cluster, SET, partition(2)).await;
    told(&cluster, [3, 2, 2, 1]).await;
    set_ready(&cluster, "s-2", "True").await;
    told(&cluster, [3, 3, 2, 1]).await;
    // Pods that are lost come back as what they were.
    for pod in ["s-0", "s-2"] {
        cluster.admin.delete(&format!("{PODS}/{pod}")).await;
        told(&cluster, [3, 2, 2, 1]).await;
        set_ready(&cluster, pod, "True").await;
        told(&cluster, [3, 3, 2, 1]).await;
    }
    let pods = cluster.admin.get(PODS).await;
    assert_eq!(images(&pods), [("s-0", "one"), ("s-1", "one"), ("s-2", "two")]);
    // The rest, one after the other.
    merge(&cluster, SET, partition(0)).await;
    told(&cluster, [3, 2, 1, 2]).await;
    let pods = cluster.admin.get(PODS).await;
    assert_eq!(images(&pods), [("s-0", "one"), ("s-1", "two"), ("s-2", "two")]);
    set_ready(&cluster, "s-1", "True").await;
    told(&cluster, [3, 2, 0, 3]).await;
    set_ready(&cluster, "s-0", "True").await;
    let second = told(&cluster, [3, 3, 3, 3]).await["currentRevision"].clone();
    assert_ne!(second, first);
    // Back to the first template: its revision is counted anew.
    merge(&cluster, SET, image("one")).await;
    let status = told(&cluster, [3, 2, 2, 1]).await;
    assert_eq!(
        (&status["currentRevision"], &status["updateRevision"]),
        (&second, &first)
    );
    let revisions = cluster.admin.get(REVISIONS).await;
    let number_of = |name: &Value| {
        let revision = items(&revisions)
            .iter()
            .find(|revision| revision["metadata"]["name"] == *name);
        revision.unwrap()["revision"].clone()
    };
    assert_eq!((number_of(&first), number_of(&second)), (json!(3), json!(2)));
}

#[tokio::test]
async fn pods_of_a_set_that_updates_on_delete_are_replaced_when_they_are_deleted() {
    let cluster = Cluster::start().await;
    let more = json!({"updateStrategy": {"type": "OnDelete"}, "revisionHistoryLimit": 0});
    cluster.made(SETS, &set(2, more)).await;
    rise(&cluster, &["s-0", "s-1"]).await;
    told(&cluster, [2, 2, 2, 2]).await;
    merge(&cluster, SET, image("two")).await;
    told(&cluster, [2, 2, 2, 0]).await;
    cluster.admin.delete(&format!("{PODS}/s-0")).await;
    told(&cluster, [2, 1, 1, 1]).await;
    let pods = cluster.admin.get(PODS).await;
    assert_eq!(images(&pods), [("s-0", "two"), ("s-1", "one")]);
    // A template that no Pod has is forgotten.
    merge(&cluster, SET, image("three")).await;
    merge(&cluster, SET, image("four")).await;
    told(&cluster, [2, 1, 1, 0]).await;
    let without_the_third = |answer: &Answer| {
        let data = |revision: &Value| revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let mut images: Vec<Value> = items(answer).iter().map(data).collect();
        images.sort_by_key(Value::to_string);
        images == ["four", "one", "two"]
    };
    cluster.until(REVISIONS, without_the_third).await;
}

#[tokio::test]
async fn parallel_sets_wait_for_nobody_and_what_is_over_is_made_anew() {
    let cluster = Cluster::start().await;
    cluster
        .made(SETS, &set(4, json!({"podManagementPolicy": "Parallel"})))
        .await;
    told(&cluster, [4, 0, 4, 4]).await;
    merge(&cluster, SET, json!({"spec": {"replicas": 2}})).await;
    told(&cluster, [2, 0, 2, 2]).await;
    assert_eq!(names(&cluster.admin.get(PODS).await), ["s-0", "s-1"]);
    for phase in ["Failed", "Succeeded"] {
        let pod = cluster.admin.get(&format!("{PODS}/s-1")).await.body;
        merge(
            &cluster,
            &format!("{PODS}/s-1/status"),
            json!({"status": {"phase": phase}}),
        )
        .await;
        let is_new = |answer: &Answer| {
            answer.code == 200
                && answer.body["metadata"]["uid"] != pod["metadata"]["uid"]
                && answer.body["status"]["phase"] == "Pending"
        };
        cluster.until(&format!("{PODS}/s-1"), is_new).await;
    }
}

#[tokio::test]
async fn pods_of_the_right_name_are_taken_in_and_let_go() {
    let cluster = Cluster::start().await;
    let pod = |name: &str| {
        let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "old"}]});
        json!({"metadata": {"name": name, "labels": {"app": "s"}}, "spec": spec})
    };
    for name in ["s-0", "other-0"] {
        cluster.made(PODS, &pod(name)).await;
    }
    let update = json!({"updateStrategy": {"type": "OnDelete"}});
    cluster.made(SETS, &set(1, update)).await;
    let owner = |answer: &Answer| answer.body["metadata"]["ownerReferences"][0]["name"].clone();
    cluster
        .until(&format!("{PODS}/s-0"), |answer| owner(answer) == "s")
        .await;
    told(&cluster, [1, 0, 0, 0]).await;
    assert_eq!(owner(&cluster.admin.get(&format!("{PODS}/other-0")).await), Value::Null);
    merge(
        &cluster,
        &format!("{PODS}/s-0"),
        json!({"metadata": {"labels": {"app": "mine"}}}),
    )
    .await;
    cluster
        .until(&format!("{PODS}/s-0"), |answer| owner(answer) == Value::Null)
        .await;
    // Its place is taken as long as it is there.
    told(&cluster, [0, 0, 0, 0]).await;
    cluster.admin.delete(&format!("{PODS}/s-0")).await;
    told(&cluster, [1, 0, 1, 1]).await;
}

#[tokio::test]
async fn claims_go_with_the_pods_that_are_scaled_away_and_with_the_set() {
    let cluster = Cluster::start().await;
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    let more = json!({"volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": policy,
        "podManagementPolicy": "Parallel"});
    cluster.made(SETS, &set(2, more)).await;
    told(&cluster, [2, 0, 2, 2]).await;
    let of_set = |answer: &Answer| {
        let owners = items(answer)
            .iter()
            .map(|claim| &claim["metadata"]["ownerReferences"][0]["kind"]);
        owners.eq(["StatefulSet", "StatefulSet"])
    };
    cluster.until(CLAIMS, of_set).await;
    merge(&cluster, SET, json!({"spec": {"replicas": 1}})).await;
    cluster.until(CLAIMS, |answer| names(answer) == ["data-s-0"]).await;
    // The ordinal comes back with a claim that is new.
    merge(&cluster, SET, json!({"spec": {"replicas": 2}})).await;
    cluster.until(CLAIMS, of_set).await;
    told(&cluster, [2, 0, 2, 2]).await;
    cluster.admin.delete(SET).await;
    cluster.until(CLAIMS, |answer| items(answer).is_empty()).await;
}

#[tokio::test]
async fn what_cannot_be_made_is_told() {
    let cluster = Cluster::start().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}});
    cluster.made("/api/v1/namespaces/default/resourcequotas", &quota).await;
    let is_counted = |answer: &Answer| answer.body["status"]["hard"]["pods"] == "0";
    cluster
        .until("/api/v1/namespaces/default/resourcequotas/q", is_counted)
        .await;
    cluster.made(SETS, &set(1, json!({}))).await;
    let has_told = |answer: &Answer| {
        items(answer).iter().any(|event| {
            let message = event["message"].as_str().unwrap();
            event["reason"] == "FailedCreate"
                && message.starts_with(
                    "create Pod s-0 in StatefulSet s failed error: pods \"s-0\" is forbidden: exceeded quota",
                )
        })
    };
    cluster.until(EVENTS, has_told).await;
    cluster
        .admin
        .delete("/api/v1/namespaces/default/resourcequotas/q")
        .await;
    told(&cluster, [1, 0, 1, 1]).await;
}
