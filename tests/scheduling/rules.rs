//! Preemption, volumes, affinity and spreading.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{Answer, Cluster, PODS, condition};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn classes(cluster: &Cluster) {
    for (name, value) in [("low", 10), ("high", 1000)] {
        cluster
            .made(CLASSES, &json!({"metadata": {"name": name}, "value": value}))
            .await;
    }
}

fn of_class(name: &'static str) -> impl Fn(&mut Value) {
    move |pod| pod["spec"]["priorityClassName"] = name.into()
}

#[tokio::test]
async fn a_pod_of_higher_priority_takes_the_place_of_the_least_important() {
    let cluster = Cluster::start().await;
    classes(&cluster).await;
    cluster.node("a", "z1", |_| ()).await;
    cluster.pod("middle", "2", of_class("high")).await;
    cluster.pod("least", "2", of_class("low")).await;
    cluster.placed("middle").await;
    cluster.placed("least").await;
    // Of equal priority nobody leaves.
    cluster.pod("equal", "2", of_class("low")).await;
    let text = cluster.refused("equal", "preemption").await["message"].to_string();
    let wanted = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                  1 No preemption victims found for incoming pod.";
    assert!(text.contains(wanted), "{text}");
    let high = cluster.pod("high", "2", of_class("high")).await;
    let is_told = |answer: &Answer| condition(&answer.body, "DisruptionTarget")["status"] == "True";
    let is_leaving = |answer: &Answer| {
        answer.code == 404 || is_told(answer) && answer.body["metadata"]["deletionTimestamp"].is_string()
    };
    cluster.until(&format!("{PODS}/least"), is_leaving).await;
    let event = cluster.event("least", "Preempted").await;
    let uid = high["metadata"]["uid"].as_str().unwrap();
    assert_eq!(event["message"], format!("Preempted by pod {uid} on node a"));
    // Who has to leave has time to: there is nobody here who ends it.
    let waits = |answer: &Answer| answer.body["status"]["nominatedNodeName"] == "a";
    cluster.until(&format!("{PODS}/high"), waits).await;
    cluster
        .admin
        .delete(&format!("{PODS}/least?gracePeriodSeconds=0"))
        .await;
    assert_eq!(cluster.placed("high").await, "a");
    let middle = cluster.admin.get(&format!("{PODS}/middle")).await.body;
    assert!(middle["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_pod_that_never_preempts_waits() {
    let cluster = Cluster::start().await;
    classes(&cluster).await;
    let never = json!({"metadata": {"name": "patient"}, "value": 5000, "preemptionPolicy": "Never"});
    cluster.made(CLASSES, &never).await;
    cluster.node("a", "z1", |_| ()).await;
    cluster.pod("low", "3", of_class("low")).await;
    cluster.placed("low").await;
    cluster.pod("patient", "3", of_class("patient")).await;
    cluster
        .refused("patient", "not eligible due to preemptionPolicy=Never.")
        .await;
    let low = cluster.admin.get(&format!("{PODS}/low")).await.body;
    assert!(low["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn pods_go_apart_together_and_evenly() {
    let cluster = Cluster::start().await;
    for (name, zone) in [("a", "z1"), ("b", "z1"), ("c", "z2"), ("d", "z2")] {
        cluster.node(name, zone, |_| ()).await;
    }
    let labelled = |app: &'static str, edit: fn(&mut Value, Value)| {
        move |pod: &mut Value| {
            pod["metadata"]["labels"] = json!({"app": app});
            edit(&mut pod["spec"], json!({"matchLabels": {"app": app}}));
        }
    };
    let apart = labelled("apart", |spec, selector| {
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"topologyKey": "topology.kubernetes.io/zone", "labelSelector": selector}]);
    });
    for name in ["apart-0", "apart-1", "apart-2"] {
        cluster.pod(name, "100m", &apart).await;
    }
    let zones = [cluster.placed("apart-0").await, cluster.placed("apart-1").await].map(|node| *node < *"c");
    assert_ne!(zones[0], zones[1]);
    cluster
        .refused("apart-2", "4 node(s) didn't match pod anti-affinity rules")
        .await;
    let together = labelled("together", |spec, selector| {
        spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]);
    });
    for name in ["together-0", "together-1", "together-2"] {
        cluster.pod(name, "100m", &together).await;
    }
    let first = cluster.placed("together-0").await;
    assert_eq!(cluster.placed("together-1").await, first);
    assert_eq!(cluster.placed("together-2").await, first);
    let even = labelled("even", |spec, selector| {
        spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    });
    let mut on: HashMap<String, usize> = HashMap::new();
    for number in 0..8 {
        cluster.pod(&format!("even-{number}"), "100m", &even).await;
        *on.entry(cluster.placed(&format!("even-{number}")).await).or_default() += 1;
    }
    assert!(on.len() == 4 && on.values().all(|count| *count == 2), "{on:?}");
}

#[tokio::test]
async fn a_claim_that_waits_is_told_the_node_and_a_volume_holds_its_pods_to_nodes() {
    let cluster = Cluster::start().await;
    cluster.node("a", "z1", |_| ()).await;
    cluster.node("b", "z2", |_| ()).await;
    let using = |pod: &mut Value| {
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    };
    cluster.pod("p", "1", using).await;
    cluster
        .refused(
            "p",
            "0/2 nodes are available: persistentvolumeclaim \"data\" not found.",
        )
        .await;
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.made("/apis/storage.k8s.io/v1/storageclasses", &class).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.made(CLAIMS, &claim).await;
    cluster
        .refused("p", "2 node(s) didn't find available persistent volumes to bind")
        .await;
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local", "local": {"path": "/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}]}}}});
    cluster.made("/api/v1/persistentvolumes", &volume).await;
    let is_told = |answer: &Answer| answer.body["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "b";
    cluster.until(&format!("{CLAIMS}/data"), is_told).await;
    // What the volume controller does then.
    cluster
        .admin
        .merge(&format!("{CLAIMS}/data"), &json!({"spec": {"volumeName": "pv"}}))
        .await;
    let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}}});
    let answer = cluster.admin.merge(&format!("{CLAIMS}/data/status"), &bound).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(cluster.placed("p").await, "b");
}
