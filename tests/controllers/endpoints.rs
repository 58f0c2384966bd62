//! Where Services lead: Endpoints and EndpointSlices follow the Pods that a Service selects.

use serde_json::{Value, json};

use crate::{Answer, Cluster};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn service(name: &str, spec: &Value) -> Value {
    let mut service = json!({"metadata": {"name": name, "labels": {"tier": "web"}}, "spec": {
        "selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

fn slices_at(name: &str) -> String {
    format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{name}")
}

async fn node(cluster: &Cluster, name: &str, zone: &str) {
    let node = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}});
    cluster.made("/api/v1/nodes", &node).await;
}

/// A Pod that runs on the node, with an address.
async fn pod(cluster: &Cluster, app: &str, number: usize, node: &str, is_ready: bool) {
    let name = format!("{app}-{number}");
    let pod = json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"nodeName": node, "containers": [
        {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}]}});
    cluster.made(PODS, &pod).await;
    let address = format!("10.1.{}.{}", number / 200, number % 200 + 1);
    set_status(cluster, &name, &address, is_ready).await;
}

async fn set_status(cluster: &Cluster, name: &str, address: &str, is_ready: bool) {
    let ready = if is_ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [
        {"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let answer = cluster.admin.merge(&format!("{PODS}/{name}/status"), &status).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

fn items(answer: &Answer) -> &Vec<Value> {
    answer.body["items"].as_array().unwrap()
}

fn endpoints(slice: &Value) -> &[Value] {
    slice["endpoints"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn a_service_has_a_slice_and_endpoints_that_follow_its_pods() {
    let cluster = Cluster::start().await;
    let made = cluster.made(SERVICES, &service("web", &json!({}))).await;
    let one = |answer: &Answer| items(answer).len() == 1;
    let empty = cluster.until(&slices_at("web"), one).await.body["items"][0].clone();
    assert!(endpoints(&empty).is_empty(), "{empty}");
    assert_eq!(empty["addressType"], "IPv4");
    assert_eq!(
        empty["metadata"]["labels"],
        json!({"tier": "web", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    let owner = &empty["metadata"]["ownerReferences"][0];
    assert!(
        owner["kind"] == "Service" && owner["uid"] == made["metadata"]["uid"],
        "{owner}"
    );
    node(&cluster, "n1", "z1").await;
    pod(&cluster, "web", 0, "n1", true).await;
    pod(&cluster, "web", 1, "n1", false).await;
    let two = |answer: &Answer| endpoints(&items(answer)[0]).len() == 2;
    let slice = cluster.until(&slices_at("web"), two).await.body["items"][0].clone();
    assert_eq!(
        slice["metadata"]["name"], empty["metadata"]["name"],
        "it is written over"
    );
    assert_eq!(
        slice["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    let of = |number: usize| {
        let address = format!("10.1.0.{}", number + 1);
        endpoints(&slice)
            .iter()
            .find(|it| it["addresses"][0] == address.as_str())
            .unwrap()
    };
    assert_eq!(
        of(0)["conditions"],
        json!({"ready": true, "serving": true, "terminating": false})
    );
    assert_eq!(
        of(1)["conditions"],
        json!({"ready": false, "serving": false, "terminating": false})
    );
    assert!(of(0)["nodeName"] == "n1" && of(0)["zone"] == "z1" && of(0)["targetRef"]["name"] == "web-0");
    // The older kind says the same.
    let both = |answer: &Answer| answer.body["subsets"][0]["notReadyAddresses"][0]["ip"] == "10.1.0.2";
    let classic = cluster.until(&format!("{ENDPOINTS}/web"), both).await.body;
    assert_eq!(classic["subsets"][0]["addresses"][0]["ip"], "10.1.0.1");
    assert_eq!(
        classic["subsets"][0]["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(
        classic["metadata"]["labels"],
        json!({"tier": "web", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    // A Pod that ends serves until it has ended.
    cluster
        .admin
        .delete(&format!("{PODS}/web-0?gracePeriodSeconds=30"))
        .await;
    let ending = |answer: &Answer| {
        let wanted = json!({"ready": false, "serving": true, "terminating": true});
        items(answer)[0]["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["conditions"] == wanted)
    };
    cluster.until(&slices_at("web"), ending).await;
    cluster
        .admin
        .delete(&format!("{PODS}/web-0?gracePeriodSeconds=0"))
        .await;
    cluster
        .until(&slices_at("web"), |answer| endpoints(&items(answer)[0]).len() == 1)
        .await;
    // Labels and selectors decide.
    cluster
        .admin
        .merge(
            &format!("{PODS}/web-1"),
            &json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    cluster
        .until(&slices_at("web"), |answer| endpoints(&items(answer)[0]).is_empty())
        .await;
    cluster
        .admin
        .merge(
            &format!("{SERVICES}/web"),
            &json!({"spec": {"selector": {"app": "other"}}}),
        )
        .await;
    cluster
        .until(&slices_at("web"), |answer| endpoints(&items(answer)[0]).len() == 1)
        .await;
    // With the Service both go.
    cluster.admin.delete(&format!("{SERVICES}/web")).await;
    cluster
        .until(&slices_at("web"), |answer| items(answer).is_empty())
        .await;
    cluster.gone(&format!("{ENDPOINTS}/web")).await;
}

#[tokio::test]
async fn slices_have_a_hundred_endpoints_and_only_those_concerned_are_rewritten() {
    let mut cluster = Cluster::without_controllers().await;
    node(&cluster, "n1", "z1").await;
    for number in 0..130 {
        pod(&cluster, "web", number, "n1", true).await;
    }
    cluster
        .made(
            SERVICES,
            &service("web", &json!({"trafficDistribution": "PreferClose"})),
        )
        .await;
    cluster.start_controllers();
    let sizes = |answer: &Answer| -> Vec<usize> {
        let mut sizes: Vec<usize> = items(answer).iter().map(|slice| endpoints(slice).len()).collect();
        sizes.sort_unstable();
        sizes
    };
    let before = cluster
        .until(&slices_at("web"), |answer| sizes(answer) == [30, 100])
        .await
        .body;
    assert_eq!(
        before["items"][0]["endpoints"][0]["hints"],
        json!({"forZones": [{"name": "z1"}]})
    );
    pod(&cluster, "web", 130, "n1", true).await;
    let after = cluster
        .until(&slices_at("web"), |answer| sizes(answer) == [31, 100])
        .await
        .body;
    let full = |list: &Value| -> Value {
        let slices = list["items"].as_array().unwrap();
        let full = slices.iter().find(|slice| endpoints(slice).len() == 100).unwrap();
        full["metadata"]["resourceVersion"].clone()
    };
    assert_eq!(full(&before), full(&after));
}

#[tokio::test]
async fn headless_services_name_their_pods_and_publish_those_that_are_not_ready() {
    let cluster = Cluster::start().await;
    node(&cluster, "n1", "z1").await;
    let spec = json!({"clusterIP": "None", "publishNotReadyAddresses": true, "ports": []});
    cluster.made(SERVICES, &service("db", &spec)).await;
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {"nodeName": "n1", "hostname": "db-0",
        "subdomain": "db", "containers": [{"name": "c", "image": "i"}]}});
    cluster.made(PODS, &pod).await;
    set_status(&cluster, "db-0", "10.1.0.9", false).await;
    let one = |answer: &Answer| items(answer).len() == 1 && endpoints(&items(answer)[0]).len() == 1;
    let slice = cluster.until(&slices_at("db"), one).await.body["items"][0].clone();
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!(slice["endpoints"][0]["hostname"], "db-0");
    assert_eq!(
        slice["endpoints"][0]["conditions"],
        json!({"ready": true, "serving": false, "terminating": false})
    );
    let address = |answer: &Answer| answer.body["subsets"][0]["addresses"][0]["ip"] == "10.1.0.9";
    let classic = cluster.until(&format!("{ENDPOINTS}/db"), address).await.body;
    assert_eq!(classic["subsets"][0]["addresses"][0]["hostname"], "db-0");
    assert!(classic["subsets"][0]["ports"].is_null());
    assert_eq!(classic["metadata"]["labels"]["service.kubernetes.io/headless"], "");
}

#[tokio::test]
async fn endpoints_of_a_service_that_selects_nothing_are_mirrored() {
    let cluster = Cluster::start().await;
    let mut plain = service("custom", &json!({"ports": [{"name": "http", "port": 80}]}));
    plain["spec"].as_object_mut().unwrap().remove("selector");
    cluster.made(SERVICES, &plain).await;
    let subsets = |ip: &str, port: u32| json!([{"addresses": [{"ip": ip}], "ports": [{"name": "http", "port": port, "protocol": "TCP"}]}]);
    let made = json!({"metadata": {"name": "custom", "labels": {"mine": "yes"}, "annotations": {"note": "x"}}, "subsets": subsets("10.1.2.3", 80)});
    let owner = cluster.made(ENDPOINTS, &made).await;
    let shows = |ip: &'static str, port: u32| {
        move |answer: &Answer| {
            let slices = items(answer);
            slices.len() == 1
                && slices[0]["endpoints"][0]["addresses"][0] == ip
                && slices[0]["ports"][0]["port"] == port
        }
    };
    let first = cluster.until(&slices_at("custom"), shows("10.1.2.3", 80)).await.body["items"][0].clone();
    assert_eq!(
        first["metadata"]["labels"],
        json!({"mine": "yes", "kubernetes.io/service-name": "custom",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"})
    );
    assert_eq!(first["metadata"]["annotations"], json!({"note": "x"}));
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], owner["metadata"]["uid"]);
    cluster
        .admin
        .merge(
            &format!("{ENDPOINTS}/custom"),
            &json!({"subsets": subsets("10.2.3.4", 81)}),
        )
        .await;
    let second = cluster.until(&slices_at("custom"), shows("10.2.3.4", 81)).await.body["items"][0].clone();
    assert_eq!(first["metadata"]["name"], second["metadata"]["name"]);
    cluster.admin.delete(&format!("{ENDPOINTS}/custom")).await;
    cluster
        .until(&slices_at("custom"), |answer| items(answer).is_empty())
        .await;
    // Without a Service nothing is mirrored, and nothing deleted.
    let alone = json!({"metadata": {"name": "alone"}, "subsets": subsets("10.1.2.3", 80)});
    cluster.made(ENDPOINTS, &alone).await;
    cluster.made(SERVICES, &service("last", &json!({}))).await;
    cluster
        .until(&slices_at("last"), |answer| items(answer).len() == 1)
        .await;
    assert_eq!(cluster.admin.get(&format!("{ENDPOINTS}/alone")).await.code, 200);
    assert!(items(&cluster.admin.get(&slices_at("alone")).await).is_empty());
}

#[tokio::test]
async fn what_a_service_left_behind_while_nobody_worked_is_taken_away() {
    let cluster = Cluster::start().await;
    cluster.made(SERVICES, &service("web", &json!({}))).await;
    cluster
        .until(&format!("{ENDPOINTS}/web"), |answer| answer.code == 200)
        .await;
    let mut cluster = cluster.restarted().await;
    cluster.admin.delete(&format!("{SERVICES}/web")).await;
    assert_eq!(cluster.admin.get(&format!("{ENDPOINTS}/web")).await.code, 200);
    cluster.start_controllers();
    cluster.gone(&format!("{ENDPOINTS}/web")).await;
}
