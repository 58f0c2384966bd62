//! What every namespace has of its own: an account for its Pods, and the server's authority.

use serde_json::json;

use crate::{Answer, Cluster};

const ACCOUNT: &str = "/api/v1/namespaces/shop/serviceaccounts/default";
const AUTHORITY: &str = "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt";

fn is_there(answer: &Answer) -> bool {
    answer.code == 200
}

#[tokio::test]
async fn a_namespace_gets_its_account_and_the_authority_and_gets_them_back() {
    let cluster = Cluster::start().await;
    cluster
        .made("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}))
        .await;
    let account = cluster.until(ACCOUNT, is_there).await.body;
    let map = cluster.until(AUTHORITY, is_there).await.body;
    assert!(
        map["data"]["ca.crt"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN CERTIFICATE-----")
    );
    let text = map["metadata"]["annotations"]["kubernetes.io/description"].as_str();
    assert!(text.unwrap().starts_with("Contains a CA bundle"), "{map}");
    let uid = |answer: &Answer| answer.body["metadata"]["uid"].clone();
    for (path, old) in [(ACCOUNT, &account), (AUTHORITY, &map)] {
        cluster.admin.delete(path).await;
        let is_new = |answer: &Answer| answer.code == 200 && uid(answer) != old["metadata"]["uid"];
        cluster.until(path, is_new).await;
    }
    // Who changes it finds it mended; what was added to it stays.
    let spoilt = json!({"metadata": {"labels": {"a": "b"}}, "data": {"ca.crt": "mine", "more": "x"}});
    cluster.admin.merge(AUTHORITY, &spoilt).await;
    let mended = |answer: &Answer| answer.body["data"] == map["data"];
    let answer = cluster.until(AUTHORITY, mended).await;
    assert_eq!(answer.body["metadata"]["labels"]["a"], "b");
    // They go with their namespace, and are not made again.
    cluster.admin.delete("/api/v1/namespaces/shop").await;
    cluster.gone("/api/v1/namespaces/shop").await;
    assert_eq!(cluster.admin.get(ACCOUNT).await.code, 404);
}

#[tokio::test]
async fn namespaces_that_were_there_before_get_theirs() {
    let mut cluster = Cluster::without_controllers().await;
    assert_eq!(
        cluster
            .admin
            .get("/api/v1/namespaces/default/serviceaccounts/default")
            .await
            .code,
        404
    );
    cluster.start_controllers();
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        cluster
            .until(&format!("{path}/serviceaccounts/default"), is_there)
            .await;
        cluster
            .until(&format!("{path}/configmaps/kube-root-ca.crt"), is_there)
            .await;
    }
}
