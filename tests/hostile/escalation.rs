//! Ways to give oneself more than one has.

use serde_json::{Value, json};

use crate::{RBAC, Started, binding};

fn roles() -> String {
    format!("{RBAC}/namespaces/default/roles")
}

fn bindings() -> String {
    format!("{RBAC}/namespaces/default/rolebindings")
}

fn refused(answer: &crate::client::Answer, why: &str) {
    assert_eq!(answer.code, 403, "{}", answer.body);
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains(why), "{message}");
}

const LACKING: &str = "is attempting to grant RBAC permissions not currently held";

async fn editor_of_roles() -> Started {
    let started = Started::new().await;
    let rules = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings"],
        "verbs": ["get", "create", "update", "patch"],
    }]);
    started.give("editor", rules).await;
    started
}

#[tokio::test]
async fn a_role_may_hold_no_more_than_its_writer() {
    let started = editor_of_roles().await;
    let mallory = started.mallory();
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let greedy = json!({"metadata": {"name": "greedy"}, "rules": secrets});
    refused(&mallory.post(&roles(), &greedy).await, LACKING);
    refused(
        &mallory.post(&format!("{}?dryRun=All", roles()), &greedy).await,
        LACKING,
    );
    refused(&mallory.put(&format!("{}/greedy", roles()), &greedy).await, LACKING);

    // The own role is no exception.
    let path = format!("{}/editor", roles());
    let mut own: Value = mallory.get(&path).await.body;
    own["rules"].as_array_mut().unwrap().push(secrets[0].clone());
    refused(&mallory.put(&path, &own).await, LACKING);
    refused(&mallory.merge(&path, &json!({"rules": secrets})).await, LACKING);
    let patch = json!([{"op": "add", "path": "/rules/-", "value": secrets[0]}]).to_string();
    refused(
        &mallory
            .send("PATCH", &path, "application/json-patch+json", patch.into())
            .await,
        LACKING,
    );
    let apply = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "greedy"},
        "rules": secrets,
    });
    let applied = format!("{}/greedy?fieldManager=m", roles());
    refused(
        &mallory
            .send(
                "PATCH",
                &applied,
                "application/apply-patch+yaml",
                apply.to_string().into(),
            )
            .await,
        LACKING,
    );
    // What is held may be given.
    let held = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["get"]}]);
    let modest = json!({"metadata": {"name": "modest"}, "rules": held});
    assert_eq!(mallory.post(&roles(), &modest).await.code, 201);
}

#[tokio::test]
async fn a_role_may_be_bound_only_by_who_holds_it_or_may_bind_it() {
    let started = editor_of_roles().await;
    let mallory = started.mallory();
    refused(
        &mallory
            .post(&bindings(), &binding("all", "ClusterRole", "cluster-admin"))
            .await,
        LACKING,
    );
    // A role of the same name somewhere else is another role, and one that is not there may not be bound ahead.
    assert_eq!(
        mallory.post(&bindings(), &binding("x", "Role", "missing")).await.code,
        404
    );
    let cluster = format!("{RBAC}/clusterrolebindings");
    refused(
        &mallory
            .post(&cluster, &binding("all", "ClusterRole", "cluster-admin"))
            .await,
        "cannot create resource \"clusterrolebindings\"",
    );
    let rules = json!([{
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": ["view"],
        "verbs": ["bind"],
    }]);
    started.give("binder", rules).await;
    assert_eq!(
        mallory
            .post(&bindings(), &binding("v", "ClusterRole", "view"))
            .await
            .code,
        201
    );
    refused(
        &mallory
            .post(&bindings(), &binding("a", "ClusterRole", "system:node"))
            .await,
        LACKING,
    );
}

#[tokio::test]
async fn what_is_taken_away_is_gone_with_the_next_request() {
    let started = Started::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    started.give("reader", rules).await;
    let mallory = started.mallory();
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(mallory.get(path).await.code, 200);
    assert_eq!(
        started.admin().delete(&format!("{}/reader", bindings())).await.code,
        200
    );
    assert_eq!(mallory.get(path).await.code, 403);
}

#[tokio::test]
async fn whoever_may_change_may_not_create_by_it() {
    let started = Started::new().await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": ["get", "update", "patch"]}]);
    started.give("changer", rules).await;
    let mallory = started.mallory();
    let maps = "/api/v1/namespaces/default/configmaps";
    let apply = async |path: &str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let kind = "application/apply-patch+yaml";
        mallory.send("PATCH", path, kind, body.to_string().into()).await
    };
    let why = "cannot create resource \"configmaps\"";
    refused(&apply(&format!("{maps}/m?fieldManager=m")).await, why);
    refused(&apply(&format!("{maps}/m?fieldManager=m&dryRun=All")).await, why);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let put = mallory.put("/api/v1/namespaces/default/services/s", &service).await;
    refused(&put, "cannot create resource \"services\"");
    // What is there may be changed.
    let made = started.admin().post(maps, &json!({"metadata": {"name": "m"}})).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(apply(&format!("{maps}/m?fieldManager=m")).await.code, 200);
}

#[tokio::test]
async fn a_node_may_not_have_itself_collected() {
    let started = Started::new().await;
    let made = started
        .admin()
        .post("/api/v1/nodes", &json!({"metadata": {"name": "n"}}))
        .await;
    assert_eq!(made.code, 201, "{}", made.body);
    let gone =
        json!({"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "11111111-1111-1111-1111-111111111111"});
    let patch = json!({"metadata": {"ownerReferences": [gone]}});
    let answer = started.node().merge("/api/v1/nodes/n", &patch).await;
    refused(&answer, "is not allowed to modify ownerReferences");
    let harmless = json!({"metadata": {"annotations": {"a": "1"}}});
    assert_eq!(started.node().merge("/api/v1/nodes/n", &harmless).await.code, 200);
}
