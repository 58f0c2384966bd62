//! Requests for certificates: kubelets' are approved, what is approved is signed, and by what was signed one is let in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{Answer, BOB, Client, Cluster};

pub(crate) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A request of this name for a certificate of a user in a group.
pub(crate) fn request(
    name: &str,
    signer: &str,
    subject: (&str, &str),
    usages: &[&str],
    names: Vec<SanType>,
) -> (Value, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, subject.1);
    params.distinguished_name.push(DnType::CommonName, subject.0);
    params.subject_alt_names = names;
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let spec = json!({"request": STANDARD.encode(pem), "signerName": signer, "usages": usages,
        "expirationSeconds": 3600});
    (json!({"metadata": {"name": name}, "spec": spec}), key)
}

pub(crate) const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const KUBELET_USAGES: &[&str] = &["digital signature", "client auth"];

fn kubelet(name: &str) -> Value {
    request(
        name,
        KUBELET,
        ("system:node:n1", "system:nodes"),
        KUBELET_USAGES,
        Vec::new(),
    )
    .0
}

fn condition<'a>(request: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = request["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

pub(crate) fn is_signed(answer: &Answer) -> bool {
    answer.body["status"]["certificate"].is_string()
}

/// The certificate that a request got, DER.
pub(crate) fn issued(request: &Value) -> CertificateDer<'static> {
    let pem = STANDARD
        .decode(request["status"]["certificate"].as_str().unwrap())
        .unwrap();
    CertificateDer::from_pem_slice(&pem).unwrap()
}

/// Lets somebody approve as `kubectl certificate approve` does.
async fn approve(cluster: &Cluster, name: &str) {
    let mut asked = cluster.admin.get(&format!("{REQUESTS}/{name}")).await.body;
    asked["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "m"}]);
    let answer = cluster.admin.put(&format!("{REQUESTS}/{name}/approval"), &asked).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_kubelets_request_is_approved_when_who_asks_may_ask_and_signed_by_the_servers_authority() {
    let cluster = Cluster::start().await;
    // The admin may everything: for a kubelet, though not for himself.
    cluster.made(REQUESTS, &kubelet("ours")).await;
    let path = format!("{REQUESTS}/ours");
    let signed = cluster.until(&path, is_signed).await.body;
    let approved = condition(&signed, "Approved").unwrap();
    assert_eq!(approved["reason"], "AutoApproved");
    assert_eq!(
        approved["message"],
        "Auto approving kubelet client certificate after SubjectAccessReview."
    );
    let der = issued(&signed);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let authority = CertificateDer::from_pem_slice(cluster.server.authority().as_bytes()).unwrap();
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    certificate.verify_signature(Some(authority.public_key())).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
    let validity = certificate.validity();
    let lasts_s = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(lasts_s, 3600 + 300);
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth);
}

#[tokio::test]
async fn a_request_of_somebody_without_the_right_waits_until_he_has_it() {
    let cluster = Cluster::start().await;
    let bob = Client::new(cluster.server.http_address().unwrap(), Some(BOB));
    let rules = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}]);
    give(&cluster, "may-ask", &rules).await;
    let answer = bob.post(REQUESTS, &kubelet("bobs")).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    // One of the admin is done; bob's stays as it is.
    cluster.made(REQUESTS, &kubelet("ours")).await;
    cluster.until(&format!("{REQUESTS}/ours"), is_signed).await;
    let path = format!("{REQUESTS}/bobs");
    assert!(cluster.admin.get(&path).await.body["status"]["conditions"].is_null());
    let rules = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/nodeclient"],
        "verbs": ["create"]}]);
    give(&cluster, "may-have", &rules).await;
    let signed = cluster.until(&path, is_signed).await.body;
    assert_eq!(signed["spec"]["username"], "bob");
}

/// Gives a role of these rules to bob.
async fn give(cluster: &Cluster, name: &str, rules: &Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": name}, "rules": rules});
    cluster.made(&format!("{rbac}/clusterroles"), &role).await;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]});
    cluster.made(&format!("{rbac}/clusterrolebindings"), &binding).await;
}

#[tokio::test]
async fn what_is_approved_is_signed_or_told_why_not_and_what_is_denied_is_not() {
    let cluster = Cluster::start().await;
    let client = "kubernetes.io/kube-apiserver-client";
    let subject = ("alice", "team");
    let (good, _) = request("good", client, subject, &["client auth"], Vec::new());
    let (bad, _) = request("bad", client, subject, &["server auth"], Vec::new());
    let serving = "kubernetes.io/kubelet-serving";
    let names = vec![
        SanType::IpAddress("10.0.0.7".parse().unwrap()),
        SanType::DnsName("n1".try_into().unwrap()),
    ];
    let node = ("system:node:n1", "system:nodes");
    let usages = ["digital signature", "server auth"];
    let (server, _) = request("server", serving, node, &usages, names);
    let (other, _) = request("other", "example.com/signer", subject, &["client auth"], Vec::new());
    for asked in [&good, &bad, &server, &other] {
        cluster.made(REQUESTS, asked).await;
    }
    for name in ["bad", "other", "server", "good"] {
        approve(&cluster, name).await;
    }
    let good = cluster.until(&format!("{REQUESTS}/good"), is_signed).await.body;
    let der = issued(&good);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=team, CN=alice");
    let server = cluster.until(&format!("{REQUESTS}/server"), is_signed).await.body;
    let der = issued(&server);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(flatkube::auth::names_of(&certificate), ["n1", "10.0.0.7"]);
    let failed = |answer: &Answer| condition(&answer.body, "Failed").is_some();
    let bad = cluster.until(&format!("{REQUESTS}/bad"), failed).await.body;
    let why = condition(&bad, "Failed").unwrap();
    assert_eq!(
        (&why["reason"], &why["message"]),
        (
            &json!("SignerValidationFailure"),
            &json!("invalid usage for client certificate: server auth")
        )
    );
    let other = cluster.admin.get(&format!("{REQUESTS}/other")).await.body;
    assert!(other["status"]["certificate"].is_null() && condition(&other, "Failed").is_none());
}

#[tokio::test]
async fn a_request_that_was_judged_long_ago_is_forgotten() {
    let mut cluster = Cluster::without_controllers().await;
    for name in ["old", "new"] {
        cluster.made(REQUESTS, &kubelet(name)).await;
        let mut asked = cluster.admin.get(&format!("{REQUESTS}/{name}")).await.body;
        let mut denied = json!({"type": "Denied", "status": "True", "reason": "Test"});
        if name == "old" {
            denied["lastUpdateTime"] = json!("2026-01-01T00:00:00Z");
        }
        asked["status"]["conditions"] = json!([denied]);
        let answer = cluster.admin.put(&format!("{REQUESTS}/{name}/approval"), &asked).await;
        assert_eq!(answer.code, 200, "{}", answer.body);
    }
    cluster.start_controllers();
    cluster.gone(&format!("{REQUESTS}/old")).await;
    let kept = cluster.admin.get(&format!("{REQUESTS}/new")).await.body;
    assert!(kept["status"]["certificate"].is_null(), "{kept}");
}
