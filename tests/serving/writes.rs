//! What writes do, as upstream does it.

use std::time::Duration;

use flatkube::api::server::Limits;
use serde_json::{Value, json};

use crate::Started;
use crate::client::Client;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn made(admin: &Client, body: &Value) -> Value {
    let answer = admin.post(MAPS, body).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn a_change_that_changes_nothing_keeps_the_revision() {
    let started = Started::usual().await;
    let admin = started.admin();
    let created = made(&admin, &map("a")).await;
    let put = admin.put(&format!("{MAPS}/a"), &map("a")).await;
    assert_eq!(revision(&put.body), revision(&created));
    let patched = admin.merge(&format!("{MAPS}/a"), &json!({"data": {"k": "v"}})).await;
    assert_eq!(revision(&patched.body), revision(&created));
    let changed = admin.merge(&format!("{MAPS}/a"), &json!({"data": {"k": "w"}})).await;
    assert!(revision(&changed.body) > revision(&created));
}

#[tokio::test]
async fn an_old_revision_is_a_conflict_and_none_takes_what_is_there() {
    let started = Started::usual().await;
    let admin = started.admin();
    let first = made(&admin, &map("a")).await;
    let mut second = first.clone();
    second["data"]["k"] = "2".into();
    assert_eq!(admin.put(&format!("{MAPS}/a"), &second).await.code, 200);
    let refused = admin.put(&format!("{MAPS}/a"), &second).await;
    assert_eq!(
        (refused.code.as_u16(), refused.body["reason"].as_str()),
        (409, Some("Conflict"))
    );
    assert_eq!(admin.put(&format!("{MAPS}/a"), &map("a")).await.code, 200);
}

#[tokio::test]
async fn patches_of_many_clients_at_once_are_all_kept() {
    let started = Started::usual().await;
    let admin = started.admin();
    made(&admin, &map("a")).await;
    let tasks: Vec<_> = (0..24)
        .map(|n| {
            let admin = admin.clone();
            let patch = json!({"data": {format!("k{n}"): "v"}});
            tokio::spawn(async move { admin.merge(&format!("{MAPS}/a"), &patch).await.code })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    let found = admin.get(&format!("{MAPS}/a")).await;
    assert_eq!(found.body["data"].as_object().unwrap().len(), 25);
}

#[tokio::test]
async fn creating_a_taken_name_is_a_conflict_and_generated_names_differ() {
    let started = Started::usual().await;
    let admin = started.admin();
    made(&admin, &map("a")).await;
    let again = admin.post(MAPS, &map("a")).await;
    assert_eq!(
        (again.code.as_u16(), again.body["reason"].as_str()),
        (409, Some("AlreadyExists"))
    );
    let generated = json!({"metadata": {"generateName": "g-"}});
    let (one, two) = (made(&admin, &generated).await, made(&admin, &generated).await);
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn a_dry_run_answers_as_if_and_keeps_nothing() {
    let started = Started::usual().await;
    let admin = started.admin();
    let dry = admin.post(&format!("{MAPS}?dryRun=All"), &map("a")).await;
    assert_eq!(dry.code, 201);
    assert_eq!(dry.body["data"]["k"], "v");
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.code, 404);
    made(&admin, &map("a")).await;
    let dry = admin
        .merge(&format!("{MAPS}/a?dryRun=All"), &json!({"data": {"k": "w"}}))
        .await;
    assert_eq!(dry.body["data"]["k"], "w");
    assert_eq!(admin.delete(&format!("{MAPS}/a?dryRun=All")).await.code, 200);
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.body["data"]["k"], "v");
}

#[tokio::test]
async fn finalizers_hold_a_deleted_object_until_the_last_is_gone() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut held = map("a");
    held["metadata"]["finalizers"] = json!(["example.com/one"]);
    made(&admin, &held).await;
    let deleted = admin.delete(&format!("{MAPS}/a")).await;
    assert!(
        deleted.body["metadata"]["deletionTimestamp"].is_string(),
        "{}",
        deleted.body
    );
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.code, 200);
    let freed = admin
        .merge(&format!("{MAPS}/a"), &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(freed.code, 200);
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test]
async fn a_pod_on_a_node_has_its_grace_period_and_others_go_at_once() {
    let started = Started::usual().await;
    let admin = started.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: Option<&str>| {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        pod
    };
    assert_eq!(admin.post(pods, &pod("free", None)).await.code, 201);
    assert_eq!(admin.post(pods, &pod("bound", Some("n"))).await.code, 201);
    assert_eq!(admin.delete(&format!("{pods}/free")).await.code, 200);
    assert_eq!(admin.get(&format!("{pods}/free")).await.code, 404);
    let going = admin.delete(&format!("{pods}/bound")).await;
    assert_eq!(going.body["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(
        admin.delete(&format!("{pods}/bound?gracePeriodSeconds=0")).await.code,
        200
    );
    assert_eq!(admin.get(&format!("{pods}/bound")).await.code, 404);
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_the_selector_goes() {
    let started = Started::usual().await;
    let admin = started.admin();
    for n in 0..40 {
        let mut labelled = map(&format!("m{n}"));
        labelled["metadata"]["labels"] = json!({"half": (n % 2).to_string()});
        made(&admin, &labelled).await;
    }
    let deleted = admin.delete(&format!("{MAPS}?labelSelector=half%3D1")).await;
    assert_eq!(deleted.body["items"].as_array().unwrap().len(), 20);
    let left = admin.get(MAPS).await;
    let left = left.body["items"].as_array().unwrap();
    assert_eq!(left.len(), 20);
    assert!(left.iter().all(|item| item["metadata"]["labels"]["half"] == "0"));
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_is_missing_or_going() {
    let started = Started::usual().await;
    let admin = started.admin();
    assert_eq!(
        admin.post("/api/v1/namespaces/none/configmaps", &map("a")).await.code,
        404
    );
    assert_eq!(
        admin
            .post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
            .await
            .code,
        201
    );
    let going = admin.delete("/api/v1/namespaces/n").await;
    assert_eq!(going.body["status"]["phase"], "Terminating");
    let refused = admin.post("/api/v1/namespaces/n/configmaps", &map("a")).await;
    assert_eq!(
        (refused.code.as_u16(), refused.body["reason"].as_str()),
        (403, Some("Forbidden"))
    );
    // Without controllers nobody clears it.
    assert_eq!(admin.get("/api/v1/namespaces/n").await.code, 200);
}

#[tokio::test]
async fn with_controllers_a_deleted_namespace_goes_with_what_is_in_it() {
    let started = Started::with(Limits::default(), true).await;
    let admin = started.admin();
    assert_eq!(
        admin
            .post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))
            .await
            .code,
        201
    );
    for n in 0..50 {
        assert_eq!(
            admin
                .post("/api/v1/namespaces/n/configmaps", &map(&format!("m{n}")))
                .await
                .code,
            201
        );
    }
    assert_eq!(admin.delete("/api/v1/namespaces/n").await.code, 200);
    let gone = async {
        while admin.get("/api/v1/namespaces/n").await.code != 404 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("the namespace stays");
    assert_eq!(
        admin.get("/api/v1/namespaces/n/configmaps").await.body["items"],
        json!([])
    );
}

#[tokio::test]
async fn unknown_fields_are_warned_of_refused_or_ignored_as_asked() {
    let started = Started::usual().await;
    let admin = started.admin();
    let mut odd = map("a");
    odd["bogus"] = 1.into();
    let warned = admin.post(&format!("{MAPS}?dryRun=All"), &odd).await;
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"bogus\\\"\"");
    let strict = admin.post(&format!("{MAPS}?fieldValidation=Strict"), &odd).await;
    assert_eq!(strict.code, 400);
    let ignored = admin.post(&format!("{MAPS}?fieldValidation=Ignore"), &odd).await;
    assert_eq!(ignored.code, 201);
    assert!(ignored.headers.get("warning").is_none());
    assert!(ignored.body.get("bogus").is_none());
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let started = Started::usual().await;
    let admin = started.admin();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(admin.post(deployments, &deployment).await.code, 201);
    let scale = admin.get(&format!("{deployments}/d/scale")).await;
    assert_eq!(scale.body["spec"]["replicas"], 2);
    assert_eq!(scale.body["status"]["selector"], "app=a");
    let scaled = admin
        .merge(&format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 5}}))
        .await;
    assert_eq!(scaled.body["spec"]["replicas"], 5);
    assert_eq!(admin.get(&format!("{deployments}/d")).await.body["spec"]["replicas"], 5);
}

#[tokio::test]
async fn services_get_addresses_that_are_free_again_when_they_go() {
    let started = Started::usual().await;
    let admin = started.admin();
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, address: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    assert_eq!(admin.post(services, &service("a", "10.96.5.5")).await.code, 201);
    assert_eq!(admin.post(services, &service("b", "10.96.5.5")).await.code, 422);
    assert_eq!(admin.delete(&format!("{services}/a")).await.code, 200);
    assert_eq!(admin.post(services, &service("b", "10.96.5.5")).await.code, 201);
    let free = admin
        .post(
            services,
            &json!({"metadata": {"name": "c"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    assert!(
        free.body["spec"]["clusterIP"].as_str().unwrap().starts_with("10.96."),
        "{}",
        free.body
    );
}
