//! Persistent volumes: claims get what suits them, and what is given back goes its way.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn volume(name: &str, storage: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": format!("/tmp/{name}")}}})
}

fn claim(name: &str, storage: &str, spec: &Value) -> Value {
    let mut claim = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": storage}}}});
    for (field, value) in spec.as_object().unwrap() {
        claim["spec"][field] = value.clone();
    }
    claim
}

fn at(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

fn phase(wanted: &'static str) -> impl Fn(&Answer) -> bool {
    move |answer| answer.body["status"]["phase"] == wanted
}

/// Waits until an Event with this reason and text was told.
async fn told(cluster: &Cluster, reason: &'static str, text: &'static str) {
    let is_told = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap();
        let is_it = |event: &Value| event["reason"] == reason && event["message"].as_str().unwrap().contains(text);
        events.iter().any(is_it)
    };
    cluster.until(EVENTS, is_told).await;
}

#[tokio::test]
async fn a_claim_gets_the_smallest_volume_that_suits_and_gives_it_back() {
    let cluster = Cluster::start().await;
    cluster.made(VOLUMES, &volume("large", "10Gi", "Retain")).await;
    cluster.made(VOLUMES, &volume("small", "1Gi", "Retain")).await;
    cluster.made(VOLUMES, &volume("right", "5Gi", "Retain")).await;
    for name in ["large", "small", "right"] {
        cluster.until(&at(VOLUMES, name), phase("Available")).await;
    }
    cluster.made(CLAIMS, &claim("data", "3Gi", &json!({}))).await;
    let bound = cluster.until(&at(CLAIMS, "data"), phase("Bound")).await.body;
    assert_eq!(bound["spec"]["volumeName"], "right");
    assert_eq!(bound["status"]["capacity"]["storage"], "5Gi");
    assert_eq!(bound["status"]["accessModes"], json!(["ReadWriteOnce"]));
    let annotations = &bound["metadata"]["annotations"];
    assert!(
        annotations["pv.kubernetes.io/bind-completed"] == "yes"
            && annotations["pv.kubernetes.io/bound-by-controller"] == "yes"
    );
    assert_eq!(bound["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let right = cluster.until(&at(VOLUMES, "right"), phase("Bound")).await.body;
    assert_eq!(right["spec"]["claimRef"]["uid"], bound["metadata"]["uid"]);
    assert_eq!(right["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    // A volume that is bound stays until it is given back.
    cluster.admin.delete(&at(VOLUMES, "right")).await;
    assert_eq!(cluster.admin.get(&at(VOLUMES, "right")).await.code, 200);
    cluster.admin.delete(&at(CLAIMS, "data")).await;
    cluster.gone(&at(CLAIMS, "data")).await;
    cluster.gone(&at(VOLUMES, "right")).await;
    // Retained ones wait for a person, others go.
    cluster.made(CLAIMS, &claim("next", "6Gi", &json!({}))).await;
    cluster.until(&at(VOLUMES, "large"), phase("Bound")).await;
    cluster.until(&at(CLAIMS, "next"), phase("Bound")).await;
    cluster.admin.delete(&at(CLAIMS, "next")).await;
    cluster.until(&at(VOLUMES, "large"), phase("Released")).await;
    cluster.made(VOLUMES, &volume("passing", "6Gi", "Delete")).await;
    cluster.made(CLAIMS, &claim("last", "6Gi", &json!({}))).await;
    cluster.until(&at(CLAIMS, "last"), phase("Bound")).await;
    cluster.admin.delete(&at(CLAIMS, "last")).await;
    cluster.gone(&at(VOLUMES, "passing")).await;
}

#[tokio::test]
async fn claims_wait_for_volumes_and_halves_that_name_each_other_find_each_other() {
    let cluster = Cluster::start().await;
    cluster.made(CLAIMS, &claim("early", "1Gi", &json!({}))).await;
    told(
        &cluster,
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set",
    )
    .await;
    cluster.made(VOLUMES, &volume("late", "1Gi", "Retain")).await;
    cluster.until(&at(CLAIMS, "early"), phase("Bound")).await;
    // A volume that is kept for a claim.
    let mut kept = volume("kept", "8Gi", "Retain");
    kept["spec"]["claimRef"] = json!({"namespace": "default", "name": "mine"});
    cluster.made(VOLUMES, &kept).await;
    cluster.until(&at(VOLUMES, "kept"), phase("Available")).await;
    cluster.made(CLAIMS, &claim("mine", "1Gi", &json!({}))).await;
    let mine = cluster.until(&at(CLAIMS, "mine"), phase("Bound")).await.body;
    assert_eq!(mine["spec"]["volumeName"], "kept");
    let kept = cluster.admin.get(&at(VOLUMES, "kept")).await.body;
    assert!(kept["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"].is_null());
    // A claim that names its volume, before that is there.
    cluster
        .made(CLAIMS, &claim("picky", "1Gi", &json!({"volumeName": "named"})))
        .await;
    cluster
        .made(CLAIMS, &claim("greedy", "9Gi", &json!({"volumeName": "named"})))
        .await;
    cluster.made(VOLUMES, &volume("named", "2Gi", "Retain")).await;
    cluster.until(&at(CLAIMS, "picky"), phase("Bound")).await;
    told(
        &cluster,
        "VolumeMismatch",
        "Cannot bind to requested volume \"named\": requested PV is too small",
    )
    .await;
    // Who loses its volume is lost.
    let finalizers = json!({"metadata": {"finalizers": null}});
    cluster.admin.delete(&at(VOLUMES, "named")).await;
    cluster.admin.merge(&at(VOLUMES, "named"), &finalizers).await;
    cluster.until(&at(CLAIMS, "picky"), phase("Lost")).await;
    told(&cluster, "ClaimLost", "Bound claim has lost its PersistentVolume").await;
}

#[tokio::test]
async fn classes_say_who_makes_a_volume_and_when() {
    let cluster = Cluster::start().await;
    let class = |name: &str, provisioner: &str, mode: &str| json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "allowVolumeExpansion": true});
    cluster
        .made(CLASSES, &class("outside", "example.com/disk", "Immediate"))
        .await;
    cluster
        .made(
            CLAIMS,
            &claim("outside", "1Gi", &json!({"storageClassName": "outside"})),
        )
        .await;
    told(
        &cluster,
        "ExternalProvisioning",
        "by the external provisioner 'example.com/disk'",
    )
    .await;
    let noted = |answer: &Answer| {
        answer.body["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] == "example.com/disk"
    };
    cluster.until(&at(CLAIMS, "outside"), noted).await;
    cluster
        .made(
            CLAIMS,
            &claim("nowhere", "1Gi", &json!({"storageClassName": "nowhere"})),
        )
        .await;
    told(
        &cluster,
        "ProvisioningFailed",
        "storageclass.storage.k8s.io \"nowhere\" not found",
    )
    .await;
    // Made here, for claims that say nothing.
    let mut hollow = class("hollow", "hollow.flatkube.io", "Immediate");
    hollow["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let mut silent = claim("silent", "1Gi", &json!({}));
    silent["spec"].as_object_mut().unwrap().remove("storageClassName");
    cluster.made(CLAIMS, &silent).await;
    cluster.made(CLASSES, &hollow).await;
    let bound = cluster.until(&at(CLAIMS, "silent"), phase("Bound")).await.body;
    assert_eq!(bound["spec"]["storageClassName"], "hollow");
    let made = at(VOLUMES, bound["spec"]["volumeName"].as_str().unwrap());
    cluster.until(&made, phase("Bound")).await;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(cluster.admin.merge(&at(CLAIMS, "silent"), &larger).await.code, 200);
    let grown = |answer: &Answer| answer.body["status"]["capacity"]["storage"] == "2Gi";
    cluster.until(&at(CLAIMS, "silent"), grown).await;
    cluster.admin.delete(&at(CLAIMS, "silent")).await;
    cluster.gone(&made).await;
    // When the first Pod comes.
    cluster
        .made(CLASSES, &class("patient", "hollow.flatkube.io", "WaitForFirstConsumer"))
        .await;
    cluster
        .made(
            CLAIMS,
            &claim("patient", "1Gi", &json!({"storageClassName": "patient"})),
        )
        .await;
    told(
        &cluster,
        "WaitForFirstConsumer",
        "waiting for first consumer to be created before binding",
    )
    .await;
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    cluster.admin.merge(&at(CLAIMS, "patient"), &chosen).await;
    cluster.until(&at(CLAIMS, "patient"), phase("Bound")).await;
}

#[tokio::test]
async fn a_claim_stays_while_a_pod_on_a_node_has_it() {
    let cluster = Cluster::start().await;
    cluster.made(CLAIMS, &claim("data", "1Gi", &json!({}))).await;
    let kept = |answer: &Answer| !answer.body["metadata"]["finalizers"].is_null();
    cluster.until(&at(CLAIMS, "data"), kept).await;
    let pod = json!({"metadata": {"name": "user"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
    cluster.made(PODS, &pod).await;
    cluster.admin.delete(&at(CLAIMS, "data")).await;
    // Another one that nobody has goes at once: who looks has looked at the first.
    cluster.made(CLAIMS, &claim("free", "1Gi", &json!({}))).await;
    cluster.until(&at(CLAIMS, "free"), kept).await;
    cluster.admin.delete(&at(CLAIMS, "free")).await;
    cluster.gone(&at(CLAIMS, "free")).await;
    assert_eq!(cluster.admin.get(&at(CLAIMS, "data")).await.code, 200);
    cluster.admin.delete(&format!("{PODS}/user?gracePeriodSeconds=0")).await;
    cluster.gone(&at(CLAIMS, "data")).await;
}

#[tokio::test]
async fn ephemeral_volumes_get_claims_that_are_their_pods() {
    let cluster = Cluster::start().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}}});
    let pod = json!({"metadata": {"name": "user"}, "spec": {"containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}});
    let made = cluster.made(PODS, &pod).await;
    let claim = cluster
        .until(&at(CLAIMS, "user-scratch"), |answer| answer.code == 200)
        .await
        .body;
    assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    cluster.admin.delete(&format!("{PODS}/user?gracePeriodSeconds=0")).await;
    cluster.gone(&at(CLAIMS, "user-scratch")).await;
    // A claim of that name which is not the Pod's is left alone.
    cluster.made(CLAIMS, &claim_of_another("user-scratch")).await;
    cluster.made(PODS, &pod).await;
    told(
        &cluster,
        "FailedBinding",
        "was not created for pod default/user (pod is not owner)",
    )
    .await;
}

fn claim_of_another(name: &str) -> Value {
    claim(name, "1Gi", &json!({}))
}
