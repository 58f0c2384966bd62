//! Resources, selectors, taints, ports, gates; what is told of it; what a restart changes: nothing.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{Answer, Cluster, PODS};

fn unedited(_: &mut Value) {}

#[tokio::test]
async fn a_pod_goes_where_there_is_room_and_is_told_if_there_is_none() {
    let cluster = Cluster::start().await;
    cluster.pod("early", "3", unedited).await;
    let condition = cluster.refused("early", "").await;
    assert_eq!(condition["message"], "no nodes available to schedule pods");
    assert_eq!(condition["reason"], "Unschedulable");
    cluster.node("a", "z1", unedited).await;
    assert_eq!(cluster.placed("early").await, "a");
    let answer = cluster.admin.get(&format!("{PODS}/early")).await.body;
    assert_eq!(crate::condition(&answer, "PodScheduled")["status"], "True");
    let event = cluster.event("early", "Scheduled").await;
    assert_eq!(event["message"], "Successfully assigned default/early to a");
    assert_eq!(
        (&event["type"], &event["source"]["component"]),
        (&"Normal".into(), &"default-scheduler".into())
    );
    cluster.pod("big", "2", unedited).await;
    let condition = cluster.refused("big", "0/1").await;
    let text = condition["message"].as_str().unwrap();
    assert!(
        text.starts_with("0/1 nodes are available: 1 Insufficient cpu."),
        "{text}"
    );
    assert_eq!(cluster.event("big", "FailedScheduling").await["message"], text);
    // The one that goes leaves room.
    cluster
        .admin
        .delete(&format!("{PODS}/early?gracePeriodSeconds=0"))
        .await;
    assert_eq!(cluster.placed("big").await, "a");
}

#[tokio::test]
async fn what_nodes_lack_is_counted() {
    let cluster = Cluster::start().await;
    cluster
        .node("a", "z1", |node| {
            node["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
        })
        .await;
    cluster
        .node("b", "z1", |node| node["spec"]["unschedulable"] = true.into())
        .await;
    cluster
        .node("c", "z1", |node| node["status"]["allocatable"]["pods"] = "0".into())
        .await;
    for name in ["d", "e"] {
        cluster.node(name, "z2", unedited).await;
    }
    let zone = |zone: &'static str| {
        move |pod: &mut Value| pod["spec"]["nodeSelector"] = json!({"topology.kubernetes.io/zone": zone})
    };
    cluster.pod("p", "5", zone("z1")).await;
    let text = cluster.refused("p", "0/5").await["message"].to_string();
    assert!(
        text.contains(
            "0/5 nodes are available: 1 Insufficient cpu, 1 Too many pods, 1 node(s) had untolerated taint {k: v}, \
             1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector."
        ),
        "{text}"
    );
    cluster.pod("q", "1", zone("z2")).await;
    assert!(["d", "e"].contains(&cluster.placed("q").await.as_str()));
    cluster
        .pod("t", "1", |pod| {
            zone("z1")(pod);
            pod["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
        })
        .await;
    assert_eq!(cluster.placed("t").await, "a");
}

#[tokio::test]
async fn a_port_of_a_node_is_had_once() {
    let cluster = Cluster::start().await;
    cluster.node("a", "z1", unedited).await;
    let port = |ip: &'static str| {
        move |pod: &mut Value| {
            pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": ip}]);
        }
    };
    cluster.pod("one", "100m", port("127.0.0.1")).await;
    cluster.placed("one").await;
    cluster.pod("other", "100m", port("127.0.0.2")).await;
    cluster.placed("other").await;
    cluster.pod("all", "100m", port("0.0.0.0")).await;
    cluster
        .refused("all", "1 node(s) didn't have free ports for the requested pod ports")
        .await;
}

#[tokio::test]
async fn pods_with_gates_and_those_of_other_schedulers_are_left_alone() {
    let cluster = Cluster::start().await;
    cluster.node("a", "z1", unedited).await;
    cluster
        .pod("gated", "1", |pod| {
            pod["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
        })
        .await;
    cluster
        .pod("other", "1", |pod| pod["spec"]["schedulerName"] = "mine".into())
        .await;
    cluster.pod("plain", "1", unedited).await;
    cluster.placed("plain").await;
    let gated = cluster.admin.get(&format!("{PODS}/gated")).await.body;
    let condition = crate::condition(&gated, "PodScheduled");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&"False".into(), &"SchedulingGated".into())
    );
    assert!(gated["spec"]["nodeName"].is_null());
    cluster
        .admin
        .merge(&format!("{PODS}/gated"), &json!({"spec": {"schedulingGates": []}}))
        .await;
    assert_eq!(cluster.placed("gated").await, "a");
    let other = cluster.admin.get(&format!("{PODS}/other")).await.body;
    assert!(
        other["spec"]["nodeName"].is_null() && other["status"]["conditions"].is_null(),
        "{other}"
    );
}

#[tokio::test]
async fn many_pods_fill_nodes_evenly_and_never_over_also_after_a_restart() {
    let mut cluster = Cluster::without_scheduler().await;
    for number in 0..6 {
        cluster.node(&format!("n{number}"), "z1", unedited).await;
    }
    for number in 0..20 {
        cluster.pod(&format!("p{number}"), "1", unedited).await;
    }
    cluster.start_scheduler();
    for number in 0..20 {
        cluster.placed(&format!("p{number}")).await;
    }
    let mut cluster = cluster.restarted().await;
    for number in 20..30 {
        cluster.pod(&format!("p{number}"), "1", unedited).await;
    }
    cluster.start_scheduler();
    let is_full = |answer: &Answer| {
        let items = answer.body["items"].as_array().unwrap();
        let placed = items.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        let refused = |pod: &&Value| crate::condition(pod, "PodScheduled")["status"] == "False";
        placed == 24 && items.iter().filter(refused).count() == 6
    };
    let list = cluster.until(PODS, is_full).await.body;
    let mut on: HashMap<&str, usize> = HashMap::new();
    for pod in list["items"].as_array().unwrap() {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *on.entry(node).or_default() += 1;
        }
    }
    assert!(on.len() == 6 && on.values().all(|count| *count == 4), "{on:?}");
}

#[tokio::test]
async fn a_pod_for_one_node_waits_for_that_node() {
    let cluster = Cluster::start().await;
    cluster.node("a", "z1", unedited).await;
    let on = |name: &'static str| {
        move |pod: &mut Value| {
            pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}});
        }
    };
    cluster.pod("mine", "1", on("a")).await;
    assert_eq!(cluster.placed("mine").await, "a");
    cluster.pod("later", "1", on("b")).await;
    cluster
        .refused("later", "1 node(s) didn't satisfy plugin(s) [NodeAffinity]")
        .await;
    cluster.node("b", "z1", unedited).await;
    assert_eq!(cluster.placed("later").await, "b");
}
