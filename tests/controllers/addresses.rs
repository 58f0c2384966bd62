//! Address ranges of Services, and the addresses that Services have.

use serde_json::json;

use crate::{Answer, Cluster};

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

#[tokio::test]
async fn each_address_of_a_service_has_an_object_and_keeps_its_range() {
    let cluster = Cluster::start().await;
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let made = cluster.made(SERVICES, &service).await;
    let address = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let at = format!("{ADDRESSES}/{address}");
    let object = cluster.until(&at, |answer| answer.code == 200).await.body;
    assert_eq!(
        object["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "web"})
    );
    assert_eq!(
        object["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"],
        "ipallocator.k8s.io"
    );
    // Who takes it away finds it again.
    cluster.admin.delete(&at).await;
    let is_new = |answer: &Answer| answer.code == 200 && answer.body["metadata"]["uid"] != object["metadata"]["uid"];
    cluster.until(&at, is_new).await;
    cluster.admin.delete(&format!("{SERVICES}/web")).await;
    cluster.gone(&at).await;
}

#[tokio::test]
async fn ranges_without_addresses_are_ready_and_go() {
    let cluster = Cluster::start().await;
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.201.0.0/24"]}});
    cluster.made(RANGES, &range).await;
    let ready = |answer: &Answer| answer.body["status"]["conditions"][0]["status"] == "True";
    let made = cluster.until(&format!("{RANGES}/more"), ready).await.body;
    assert_eq!(
        made["status"]["conditions"][0]["message"],
        "Kubernetes Service CIDR is ready"
    );
    let kept =
        |answer: &Answer| answer.body["metadata"]["finalizers"] == json!(["networking.k8s.io/service-cidr-finalizer"]);
    cluster.until(&format!("{RANGES}/more"), kept).await;
    cluster.admin.delete(&format!("{RANGES}/more")).await;
    cluster.gone(&format!("{RANGES}/more")).await;
}
