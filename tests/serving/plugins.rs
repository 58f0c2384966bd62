//! Built-in admission plugins: quotas that are never exceeded, ranges, standards of Pod security.

use serde_json::{Value, json};

use crate::Started;
use crate::client::Client;

const CORE: &str = "/api/v1/namespaces/default";

async fn quota(admin: &Client, name: &str, hard: Value, used: Value) {
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let path = format!("{CORE}/resourcequotas");
    assert_eq!(admin.post(&path, &quota).await.code, 201);
    let status = json!({"status": {"hard": hard, "used": used}});
    assert_eq!(admin.merge(&format!("{path}/{name}/status"), &status).await.code, 200);
}

async fn used(admin: &Client, name: &str) -> Value {
    let quota = admin.get(&format!("{CORE}/resourcequotas/{name}")).await;
    quota.body["status"]["used"].clone()
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test]
async fn creations_at_once_take_no_more_of_a_quota_than_there_is() {
    let started = Started::usual().await;
    let admin = started.admin();
    quota(&admin, "a", json!({"configmaps": "5"}), json!({"configmaps": "0"})).await;
    quota(
        &admin,
        "b",
        json!({"count/configmaps": "7"}),
        json!({"count/configmaps": "0"}),
    )
    .await;
    let path = format!("{CORE}/configmaps");
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (admin, path) = (admin.clone(), path.clone());
            tokio::spawn(async move { admin.post(&path, &map(&format!("m{n}"))).await.code.as_u16() })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.unwrap());
    }
    codes.sort_unstable();
    assert_eq!(codes, [[201].repeat(5), [403].repeat(11)].concat());
    assert_eq!(used(&admin, "a").await, json!({"configmaps": "5"}));
    assert_eq!(used(&admin, "b").await, json!({"count/configmaps": "5"}));
}

#[tokio::test]
async fn a_creation_that_fails_gives_back_what_it_took_of_quotas_and_a_dry_run_takes_nothing() {
    let started = Started::usual().await;
    let admin = started.admin();
    quota(&admin, "q", json!({"configmaps": "9"}), json!({"configmaps": "0"})).await;
    let path = format!("{CORE}/configmaps");
    assert_eq!(admin.post(&path, &map("m")).await.code, 201);
    assert_eq!(admin.post(&path, &map("m")).await.code, 409);
    assert_eq!(admin.post(&format!("{path}?dryRun=All"), &map("n")).await.code, 201);
    assert_eq!(used(&admin, "q").await, json!({"configmaps": "1"}));
}

#[tokio::test]
async fn a_change_of_a_service_charges_the_difference() {
    let started = Started::usual().await;
    let admin = started.admin();
    let hard = json!({"services.nodeports": "1", "services": "3"});
    quota(&admin, "q", hard, json!({"services.nodeports": "0", "services": "0"})).await;
    let path = format!("{CORE}/services");
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    assert_eq!(admin.post(&path, &service).await.code, 201);
    let open = json!({"spec": {"type": "NodePort"}});
    let refused = admin.merge(&format!("{path}/s"), &open).await;
    assert_eq!(refused.code, 403);
    let why = "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, \
               limited: services.nodeports=1";
    assert_eq!(refused.body["message"], why);
    let open = json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 1}]}});
    assert_eq!(admin.merge(&format!("{path}/s"), &open).await.code, 200);
    assert_eq!(used(&admin, "q").await["services.nodeports"], "1");
    let shut = json!({"spec": {"type": "ClusterIP"}});
    assert_eq!(admin.merge(&format!("{path}/s"), &shut).await.code, 200);
    assert_eq!(used(&admin, "q").await["services.nodeports"], "0");
}

#[tokio::test]
async fn quotas_count_what_is_in_their_scopes() {
    let started = Started::usual().await;
    let admin = started.admin();
    let path = format!("{CORE}/resourcequotas");
    let scoped = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]},
    ]}}});
    assert_eq!(admin.post(&path, &scoped).await.code, 201);
    let status = json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}});
    assert_eq!(admin.merge(&format!("{path}/q/status"), &status).await.code, 200);
    let pods = format!("{CORE}/pods");
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(admin.post(&pods, &pod("plain")).await.code, 201);
    let mut critical = pod("critical");
    critical["spec"]["priorityClassName"] = "system-node-critical".into();
    let refused = admin.post(&pods, &critical).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
}

#[tokio::test]
async fn ranges_fill_in_what_containers_do_not_say_and_refuse_what_is_out_of_them() {
    let started = Started::usual().await;
    let admin = started.admin();
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "1"}},
    ]}});
    assert_eq!(admin.post(&format!("{CORE}/limitranges"), &range).await.code, 201);
    let pods = format!("{CORE}/pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = admin.post(&pods, &pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let resources = &made.body["spec"]["containers"][0]["resources"];
    assert_eq!(
        resources,
        &json!({"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(
        made.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let container = |name: &str| json!({"name": name, "image": "i", "resources": {"limits": {"cpu": "800m"}}});
    let large = json!({"metadata": {"name": "l"}, "spec": {"containers": [container("a"), container("b")]}});
    let refused = admin.post(&pods, &large).await;
    let why = "pods \"l\" is forbidden: maximum cpu usage per Pod is 1, but limit is 1600m";
    assert_eq!((refused.code.as_u16(), &refused.body["message"]), (403, &json!(why)));
}

#[tokio::test]
async fn claims_grow_only_where_their_class_lets_them() {
    let started = Started::usual().await;
    let admin = started.admin();
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    for (name, grows) in [("fixed", false), ("elastic", true)] {
        let class = json!({"metadata": {"name": name}, "provisioner": "p", "allowVolumeExpansion": grows});
        assert_eq!(admin.post(classes, &class).await.code, 201);
        let claim = json!({"metadata": {"name": name}, "spec": {
            "storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }});
        let path = format!("{CORE}/persistentvolumeclaims");
        assert_eq!(admin.post(&path, &claim).await.code, 201);
        let bound = json!({"status": {"phase": "Bound"}});
        assert_eq!(admin.merge(&format!("{path}/{name}/status"), &bound).await.code, 200);
        let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let answer = admin.merge(&format!("{path}/{name}"), &more).await;
        assert_eq!(answer.code, if grows { 200 } else { 403 }, "{}", answer.body);
    }
}
