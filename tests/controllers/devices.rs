//! ResourceClaims of Pods: made of templates, told to the Pods, gone with them.

use serde_json::json;

use crate::{Answer, Cluster};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";

#[tokio::test]
async fn a_pod_gets_the_claims_of_its_templates_and_is_told_their_names() {
    let cluster = Cluster::start().await;
    let pod = json!({"metadata": {"name": "user"}, "spec": {
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}});
    let made = cluster.made(PODS, &pod).await;
    let told = |answer: &Answer| {
        let events = answer.body["items"].as_array().unwrap();
        events
            .iter()
            .any(|event| event["reason"] == "FailedResourceClaimCreation")
    };
    cluster.until("/api/v1/namespaces/default/events", told).await;
    let spec = json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu.example.com"}}]}});
    let template = json!({"metadata": {"name": "one-gpu"}, "spec": {"metadata": {"labels": {"a": "b"}}, "spec": spec}});
    cluster.made(TEMPLATES, &template).await;
    let named = |answer: &Answer| answer.body["status"]["resourceClaimStatuses"][0]["name"] == "gpu";
    let answer = cluster.until(&format!("{PODS}/user"), named).await;
    let name = answer.body["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        .as_str()
        .unwrap();
    assert!(name.starts_with("user-gpu-"), "{name}");
    let at = format!("{CLAIMS}/{name}");
    let claim = cluster.admin.get(&at).await.body;
    assert_eq!(
        claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"],
        "gpu"
    );
    assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    // It goes when the Pod is done.
    cluster
        .admin
        .merge(
            &format!("{PODS}/user/status"),
            &json!({"status": {"phase": "Succeeded"}}),
        )
        .await;
    cluster.gone(&at).await;
}
