//! Rights on some objects, some verbs, some subresources: what lies beside them.

use serde_json::json;

use crate::Started;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn rights_on_one_name_show_no_other() {
    let started = Started::new().await;
    for name in ["mine", "yours"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"k": "v"}});
        assert_eq!(started.admin().post(SECRETS, &secret).await.code, 201);
    }
    let rules = json!([{
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list", "delete"],
    }]);
    started.give("one", rules).await;
    let mallory = started.mallory();
    assert_eq!(mallory.get(&format!("{SECRETS}/mine")).await.code, 200);
    let listed = mallory
        .get(&format!("{SECRETS}?fieldSelector=metadata.name%3Dmine"))
        .await;
    assert_eq!(listed.code, 200);
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1);
    for beside in [
        "",
        "/yours",
        "?fieldSelector=metadata.name%3Dyours",
        "?fieldSelector=metadata.name!%3Dmine",
        // An escaped comma: one term, whose value looks like another one.
        "?fieldSelector=metadata.namespace!%3Dx%5C,metadata.name%3Dmine",
        "?labelSelector=metadata.name%3Dmine",
        "?fieldSelector=&fieldSelector=metadata.name%3Dmine",
    ] {
        assert_eq!(mallory.get(&format!("{SECRETS}{beside}")).await.code, 403, "{beside}");
    }
    // A collection is no object: names do not narrow its deletion.
    let path = format!("{SECRETS}?fieldSelector=metadata.name%3Dmine");
    assert_eq!(mallory.delete(&path).await.code, 403);
    assert_eq!(mallory.delete(&format!("{SECRETS}/mine?dryRun=All")).await.code, 200);
}

#[tokio::test]
async fn an_object_and_its_subresources_are_different_rights() {
    let started = Started::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]);
    started.give("pods", rules).await;
    let mallory = started.mallory();
    let pod = "/api/v1/namespaces/default/pods/p";
    assert_eq!(mallory.get(pod).await.code, 404);
    for sub in [
        "status",
        "log",
        "exec?command=sh",
        "proxy/x",
        "attach",
        "portforward",
        "ephemeralcontainers",
    ] {
        assert_eq!(mallory.get(&format!("{pod}/{sub}")).await.code, 403, "{sub}");
    }
    for sub in ["eviction", "binding", "exec?command=sh"] {
        assert_eq!(
            mallory.post(&format!("{pod}/{sub}"), &json!({})).await.code,
            403,
            "{sub}"
        );
    }
    assert_eq!(mallory.merge(&format!("{pod}/status"), &json!({})).await.code, 403);
    // Nor does the namespace say anything about others.
    assert_eq!(mallory.get("/api/v1/namespaces/kube-system/pods").await.code, 403);
    assert_eq!(mallory.get("/api/v1/pods").await.code, 403);
}

#[tokio::test]
async fn what_somebody_else_may_do_is_not_for_everybody_to_ask() {
    let started = Started::new().await;
    let mallory = started.mallory();
    let review =
        |user: &str| json!({"spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "secrets"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(mallory.post(path, &review("admin")).await.code, 403);
    let own = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}});
    let answer = mallory
        .post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &own)
        .await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.body["status"]["allowed"], false);
}
