//! Nodes that live and fall silent, what becomes of their Pods, and what else is kept in order about them.

use std::time::Duration;

use flatkube::controllers::Settings;
use serde_json::{Value, json};

use crate::{Answer, Cluster};

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

async fn cluster(settings: &Settings) -> Cluster {
    let mut cluster = Cluster::without_controllers().await;
    cluster.start_controllers_with(settings);
    cluster
}

fn ready(status: &str, heartbeat: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Test",
        "lastHeartbeatTime": heartbeat, "lastTransitionTime": heartbeat}]}})
}

/// A node that says that it is ready.
async fn node(cluster: &Cluster, name: &str) {
    cluster.made(NODES, &json!({"metadata": {"name": name}})).await;
    say(cluster, name, &ready("True", "2026-01-01T00:00:00Z")).await;
}

async fn say(cluster: &Cluster, name: &str, what: &Value) {
    let answer = cluster.admin.merge(&format!("{NODES}/{name}/status"), what).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

/// A Pod that runs on a node.
async fn pod(cluster: &Cluster, name: &str, node: &str, tolerations: Value) {
    let spec = json!({"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "i"}]});
    cluster
        .made(PODS, &json!({"metadata": {"name": name}, "spec": spec}))
        .await;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let answer = cluster.admin.merge(&format!("{PODS}/{name}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

/// Taints as `key:effect`, without the domain.
fn taints(answer: &Answer) -> Vec<String> {
    let taints = answer.body["spec"]["taints"].as_array().into_iter().flatten();
    let text = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or("").replace("node.kubernetes.io/", "");
        format!("{key}:{}", taint["effect"].as_str().unwrap_or(""))
    };
    taints.map(text).collect()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

fn event<'a>(answer: &'a Answer, about: &str, reason: &str) -> Option<&'a Value> {
    let events = answer.body["items"].as_array().into_iter().flatten();
    events
        .into_iter()
        .find(|event| event["involvedObject"]["name"] == about && event["reason"] == reason)
}

/// Renews a node's Lease again and again.
async fn live(cluster: &Cluster, name: &str) {
    let mut beats = tokio::time::interval(Duration::from_millis(100));
    for beat in 0_u32.. {
        beats.tick().await;
        let renewal = format!("2026-01-01T00:00:00.{beat:06}Z");
        let path = format!("{LEASES}/{name}");
        cluster
            .admin
            .merge(&path, &json!({"spec": {"renewTime": renewal}}))
            .await;
    }
}

#[tokio::test]
async fn a_node_that_falls_silent_is_unreachable_and_its_pods_go_in_their_time() {
    let settings = Settings {
        node_monitor_grace: Duration::from_secs(2),
        node_monitor_period: Duration::from_millis(50),
        ..Settings::default()
    };
    let cluster = cluster(&settings).await;
    for name in ["alive", "silent"] {
        node(&cluster, name).await;
    }
    let lease = json!({"metadata": {"name": "alive"}, "spec": {"holderIdentity": "alive", "leaseDurationSeconds": 40}});
    cluster.made(LEASES, &lease).await;
    let at_once = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}]);
    pod(&cluster, "hasty", "silent", at_once).await;
    pod(&cluster, "patient", "silent", json!([])).await;
    let silent = format!("{NODES}/silent");
    let scenario = async {
        let found = cluster.until(&silent, |answer| taints(answer).len() == 2).await;
        assert_eq!(taints(&found), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
        assert_eq!(condition(&found.body, "Ready")["status"], "Unknown");
        assert_eq!(condition(&found.body, "Ready")["reason"], "NodeStatusUnknown");

        let hasty = cluster
            .until(&format!("{PODS}/hasty"), |answer| {
                !answer.body["metadata"]["deletionTimestamp"].is_null()
            })
            .await;
        assert_eq!(
            condition(&hasty.body, "DisruptionTarget")["reason"],
            "DeletionByTaintManager"
        );
        let patient = cluster
            .until(&format!("{PODS}/patient"), |answer| {
                condition(&answer.body, "Ready")["status"] == "False"
            })
            .await;
        assert!(patient.body["metadata"]["deletionTimestamp"].is_null());
        let told = |answer: &Answer| {
            event(answer, "silent", "NodeNotReady").is_some()
                && event(answer, "patient", "NodeNotReady").is_some()
                && event(answer, "hasty", "TaintManagerEviction").is_some()
        };
        let events = cluster.until(EVENTS, told).await;
        let text = &event(&events, "hasty", "TaintManagerEviction").unwrap()["message"];
        assert_eq!(text, "Marking for deletion Pod default/hasty");
        let alive = cluster.admin.get(&format!("{NODES}/alive")).await;
        assert_eq!(
            (condition(&alive.body, "Ready")["status"].as_str(), taints(&alive)),
            (Some("True"), vec![])
        );

        say(&cluster, "silent", &ready("True", "2026-01-01T00:10:00Z")).await;
        cluster.until(&silent, |answer| taints(answer).is_empty()).await;
        let cancelled = |answer: &Answer| {
            let events = answer.body["items"].as_array().into_iter().flatten();
            events
                .into_iter()
                .any(|event| event["message"] == "Cancelling deletion of Pod default/patient")
        };
        cluster.until(EVENTS, cancelled).await;
    };
    tokio::select! {
        () = scenario => {}
        () = live(&cluster, "alive") => {}
    }
}

#[tokio::test]
async fn conditions_and_cordons_become_taints() {
    let cluster = cluster(&Settings::default()).await;
    cluster
        .made(
            NODES,
            &json!({"metadata": {"name": "n"}, "status": ready("False", "2026-01-01T00:00:00Z")["status"]}),
        )
        .await;
    let path = format!("{NODES}/n");
    // Nobody is emptied while no node is ready anywhere.
    cluster
        .until(&path, |answer| taints(answer) == ["not-ready:NoSchedule"])
        .await;
    say(&cluster, "n", &ready("True", "2026-01-01T00:00:01Z")).await;
    cluster.until(&path, |answer| taints(answer).is_empty()).await;
    cluster
        .admin
        .merge(&path, &json!({"spec": {"unschedulable": true}}))
        .await;
    cluster
        .until(&path, |answer| taints(answer) == ["unschedulable:NoSchedule"])
        .await;
    cluster
        .admin
        .merge(&path, &json!({"spec": {"unschedulable": null}}))
        .await;
    cluster.until(&path, |answer| taints(answer).is_empty()).await;
    let found = cluster
        .until(&path, |answer| {
            !answer.body["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"].is_null()
        })
        .await;
    assert_eq!(
        found.body["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"],
        "0"
    );
}

#[tokio::test]
async fn a_no_execute_taint_evicts_who_does_not_tolerate_it() {
    let cluster = cluster(&Settings::default()).await;
    node(&cluster, "n").await;
    let toleration = |seconds: Value| json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    pod(&cluster, "none", "n", json!([])).await;
    pod(&cluster, "soon", "n", toleration(json!(1))).await;
    pod(&cluster, "ever", "n", toleration(json!(null))).await;
    let answer = cluster
        .admin
        .merge(
            &format!("{NODES}/n"),
            &json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}),
        )
        .await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    for name in ["none", "soon"] {
        let path = format!("{PODS}/{name}");
        cluster
            .until(&path, |answer| !answer.body["metadata"]["deletionTimestamp"].is_null())
            .await;
    }
    let ever = cluster.admin.get(&format!("{PODS}/ever")).await;
    assert!(ever.body["metadata"]["deletionTimestamp"].is_null(), "{}", ever.body);
}

#[tokio::test]
async fn every_node_has_a_range_of_its_own_and_that_of_one_that_went_is_given_again() {
    let settings = Settings {
        cluster_ranges: Settings::cluster_ranges("10.1.0.0/23,fd00::/63").unwrap(),
        ..Settings::default()
    };
    let cluster = cluster(&settings).await;
    let given = |answer: &Answer| answer.body["spec"]["podCIDRs"].is_array();
    let mut ranges = Vec::new();
    for name in ["a", "b"] {
        node(&cluster, name).await;
        let found = cluster.until(&format!("{NODES}/{name}"), given).await;
        assert_eq!(found.body["spec"]["podCIDR"], found.body["spec"]["podCIDRs"][0]);
        ranges.push(found.body["spec"]["podCIDRs"].clone());
    }
    assert_eq!(
        ranges,
        [
            json!(["10.1.0.0/24", "fd00::/64"]),
            json!(["10.1.1.0/24", "fd00:0:0:1::/64"])
        ]
    );
    node(&cluster, "c").await;
    cluster
        .until(EVENTS, |answer| event(answer, "c", "CIDRNotAvailable").is_some())
        .await;
    cluster.admin.delete(&format!("{NODES}/a")).await;
    let found = cluster.until(&format!("{NODES}/c"), given).await;
    assert_eq!(found.body["spec"]["podCIDRs"], ranges[0]);
}

#[tokio::test]
async fn pods_that_nobody_takes_away_are_collected() {
    let settings = Settings {
        pods_over_max: 2,
        pod_collection_period: Duration::from_millis(50),
        orphan_quarantine: Duration::ZERO,
        ..Settings::default()
    };
    let mut cluster = Cluster::without_controllers().await;
    node(&cluster, "n").await;
    for number in 0..4 {
        let name = format!("over-{number}");
        pod(&cluster, &name, "n", json!([])).await;
        cluster
            .admin
            .merge(
                &format!("{PODS}/{name}/status"),
                &json!({"status": {"phase": "Failed"}}),
            )
            .await;
    }
    pod(&cluster, "well", "n", json!([])).await;
    pod(&cluster, "orphan", "gone", json!([])).await;
    let held = json!({"metadata": {"name": "unplaced", "finalizers": ["example.com/f"]},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}});
    cluster.made(PODS, &held).await;
    cluster.admin.delete(&format!("{PODS}/unplaced")).await;
    cluster.start_controllers_with(&settings);
    cluster.gone(&format!("{PODS}/orphan")).await;
    cluster
        .until(&format!("{PODS}/unplaced"), |answer| {
            answer.body["status"]["phase"] == "Failed"
        })
        .await;
    let left = cluster
        .until(PODS, |answer| {
            answer.body["items"].as_array().is_some_and(|items| items.len() == 3)
        })
        .await;
    let names: Vec<_> = left.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, [Some("over-3"), Some("unplaced"), Some("well")]);
}

#[tokio::test]
async fn events_go_when_their_time_is_over() {
    let settings = Settings {
        event_ttl: Duration::from_secs(1),
        ..Settings::default()
    };
    let cluster = cluster(&settings).await;
    for number in 0..300 {
        let event = json!({"metadata": {"name": format!("e-{number}"), "finalizers": ["example.com/f"]},
            "involvedObject": {"namespace": "default"}, "reason": "R"});
        cluster.made(EVENTS, &event).await;
    }
    cluster
        .until(EVENTS, |answer| {
            answer.body["items"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
}
