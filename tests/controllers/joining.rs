//! How a machine joins: with a token it finds the cluster, asks for its certificate, and makes its Node.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::KeyPair;
use ring::hmac;
use serde_json::{Value, json};

use crate::certificates::{KUBELET, KUBELET_USAGES, REQUESTS, is_signed, issued, request};
use crate::tls::Tls;
use crate::{Answer, Client, Cluster};

const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const TOKEN: &str = "abcdef.0123456789abcdef";
const GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
const SIGNATURE: &str = "jws-kubeconfig-abcdef";

fn token(expiration: &str) -> Value {
    json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": expiration,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": GROUP},
    })
}

/// What kubeadm gives to machines that join.
async fn give_rights(cluster: &Cluster) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let approve = "system:certificates.k8s.io:certificatesigningrequests:";
    for (name, role, group) in [
        ("join", "system:node-bootstrapper", GROUP),
        ("first", &*format!("{approve}nodeclient"), GROUP),
        ("next", &*format!("{approve}selfnodeclient"), "system:nodes"),
    ] {
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "apiGroup": RBAC, "name": group}]});
        cluster
            .made("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
            .await;
    }
}

#[tokio::test]
async fn a_machine_joins_with_a_token_and_renews_its_certificate_with_the_one_it_got() {
    let cluster = Cluster::start().await;
    give_rights(&cluster).await;
    cluster.made(SECRETS, &token("2999-01-01T00:00:00Z")).await;
    let machine = Client::new(cluster.server.http_address().unwrap(), Some(TOKEN));
    let subject = ("system:node:n1", "system:nodes");
    let (asked, key) = request("n1", KUBELET, subject, KUBELET_USAGES, Vec::new());
    let answer = machine.post(REQUESTS, &asked).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let signed = cluster.until(&format!("{REQUESTS}/n1"), is_signed).await.body;
    assert_eq!(signed["spec"]["username"], "system:bootstrap:abcdef");
    // It may ask and nothing more.
    assert_eq!(machine.post("/api/v1/nodes", &node("n1")).await.code, 403);

    let kubelet = of(&cluster, &signed, &key);
    let (code, made) = kubelet.send("POST", "/api/v1/nodes", Some(&node("n1"))).await;
    assert_eq!(code, 201, "{made}");
    let (code, answer) = kubelet.send("POST", "/api/v1/nodes", Some(&node("n2"))).await;
    assert_eq!(code, 403, "{answer}");

    let (again, key) = request("n1-again", KUBELET, subject, KUBELET_USAGES, Vec::new());
    let (code, answer) = kubelet.send("POST", REQUESTS, Some(&again)).await;
    assert_eq!(code, 201, "{answer}");
    let signed = cluster.until(&format!("{REQUESTS}/n1-again"), is_signed).await.body;
    assert_eq!(
        signed["status"]["conditions"][0]["message"],
        "Auto approving self kubelet client certificate after SubjectAccessReview."
    );
    let (code, _) = of(&cluster, &signed, &key).send("GET", "/api/v1/nodes/n1", None).await;
    assert_eq!(code, 200);
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// A client with the certificate that a request got.
fn of(cluster: &Cluster, request: &Value, key: &KeyPair) -> Tls {
    let key = key.serialize_der().try_into().unwrap();
    Tls::new(&cluster.server, Some((vec![issued(request)], key)))
}

#[tokio::test]
async fn what_says_where_the_cluster_is_is_signed_with_every_token_that_is_good() {
    let cluster = Cluster::start().await;
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "apiVersion: v1\n"}});
    cluster.made("/api/v1/namespaces/kube-public/configmaps", &info).await;
    cluster.made(SECRETS, &token("2999-01-01T00:00:00Z")).await;
    let has = |answer: &Answer| answer.body["data"][SIGNATURE].is_string();
    let signed = cluster.until(INFO, has).await.body;
    // A detached signature by HS256 (RFC 7515, appendix F).
    let signature = signed["data"][SIGNATURE].as_str().unwrap();
    let (head, tag) = signature.split_once("..").unwrap();
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode("apiVersion: v1\n"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
    hmac::verify(&key, message.as_bytes(), &URL_SAFE_NO_PAD.decode(tag).unwrap()).unwrap();
    let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
    assert_eq!(head, json!({"alg": "HS256", "kid": "abcdef"}));
    // It goes with its token.
    cluster.admin.delete(&format!("{SECRETS}/bootstrap-token-abcdef")).await;
    cluster.until(INFO, |answer| !has(answer)).await;
}

#[tokio::test]
async fn a_token_that_has_ended_goes() {
    let cluster = Cluster::start().await;
    cluster.made(SECRETS, &token("2026-01-01T00:00:00Z")).await;
    cluster.gone(&format!("{SECRETS}/bootstrap-token-abcdef")).await;
    cluster.made(SECRETS, &token("2999-01-01T00:00:00Z")).await;
    let past = json!({"data": {"expiration": STANDARD.encode("2026-01-01T00:00:00Z")}});
    cluster
        .admin
        .merge(&format!("{SECRETS}/bootstrap-token-abcdef"), &past)
        .await;
    cluster.gone(&format!("{SECRETS}/bootstrap-token-abcdef")).await;
}
