//! Quotas say what is used of them.

use serde_json::json;

use crate::{Answer, Cluster};

const CORE: &str = "/api/v1/namespaces/default";

#[tokio::test]
async fn a_quota_counts_what_is_there_and_forgets_what_is_gone() {
    let cluster = Cluster::start().await;
    let pods = format!("{CORE}/pods");
    let pod = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "300m"}, "limits": {"memory": "1Gi"}}},
        ]}})
    };
    cluster.made(&pods, &pod("before")).await;
    let hard =
        json!({"pods": "3", "requests.cpu": "700m", "limits.memory": "8Gi", "count/configmaps": "9", "secrets": "0"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    cluster.made(&format!("{CORE}/resourcequotas"), &quota).await;
    let path = format!("{CORE}/resourcequotas/q");
    let used = |pods: &str, cpu: &str, memory: &str| {
        let used = json!({"pods": pods, "requests.cpu": cpu, "limits.memory": memory, "secrets": "0"});
        let hard = hard.clone();
        move |answer: &Answer| {
            let mut status = answer.body["status"].clone();
            // The server's authority is a ConfigMap that comes by itself.
            if let Some(used) = status["used"].as_object_mut() {
                used.remove("count/configmaps");
            }
            status["used"] == used && status["hard"] == hard
        }
    };
    cluster.until(&path, used("1", "300m", "1Gi")).await;
    cluster.made(&pods, &pod("after")).await;
    cluster.until(&path, used("2", "600m", "2Gi")).await;
    let refused = cluster.admin.post(&pods, &pod("more")).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    // What has ended takes nothing.
    let over = json!({"status": {"phase": "Succeeded"}});
    cluster.admin.merge(&format!("{pods}/before/status"), &over).await;
    cluster.until(&path, used("1", "300m", "1Gi")).await;
    cluster.made(&pods, &pod("more")).await;
    for name in ["after", "more"] {
        cluster
            .admin
            .delete(&format!("{pods}/{name}?gracePeriodSeconds=0"))
            .await;
    }
    cluster.until(&path, used("0", "0", "0")).await;
}
