//! Who is believed beside the server's own authority: others' certificates, proxies, keys of service accounts.

use std::path::Path;

use flatkube::api::server::{Limits, Server};
use flatkube::auth::{IssuerOptions, RequestHeaderOptions};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};

use crate::Started;
use crate::client::Client;
use crate::identity::{Identity, get_with};

/// An authority of a test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn client(&self, name: &str, group: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if !group.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone()], key)
    }

    fn write(&self, dir: &Path, name: &str) -> std::path::PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, &self.pem).unwrap();
        path
    }
}

/// Code and body of a GET over TLS with these lines in the head.
async fn get(started: &Started, path: &str, identity: Option<Identity>, head: &str) -> (u16, Value) {
    let (answer, _) = get_with(started, path, identity, &[b"http/1.1"], head).await;
    let code = answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (code, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// What the server says of who asks: the user's name in the sentence of a 403, or the code.
fn named((code, body): &(u16, Value)) -> String {
    let message = body["message"].as_str().unwrap_or("");
    match message.split('"').nth(3) {
        Some(_) if *code == 403 => message
            .split("User \"")
            .nth(1)
            .unwrap_or("")
            .split('"')
            .next()
            .unwrap()
            .to_owned(),
        _ => code.to_string(),
    }
}

#[tokio::test]
async fn certificates_of_another_authority_are_believed_beside_those_of_the_servers_own() {
    let (ours, strange) = (Authority::new("ours"), Authority::new("strange"));
    let started = Started::believing(|dir, options| options.client_ca_file = Some(ours.write(dir, "ca.crt"))).await;
    let path = "/api/v1/secrets";
    let (code, _) = get(&started, path, Some(ours.client("root", "system:masters")), "").await;
    assert_eq!(code, 200);
    let other = get(&started, path, Some(ours.client("jane", "team")), "").await;
    assert_eq!(named(&other), "jane");
    let (code, _) = get(&started, path, Some(strange.client("root", "system:masters")), "").await;
    assert_eq!(code, 401);
    let told = started.admin();
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let told = told.get(path).await.body["data"]["client-ca-file"].clone();
    assert_eq!(told.as_str().unwrap().matches("BEGIN CERTIFICATE").count(), 2);
}

#[tokio::test]
async fn a_proxy_says_who_asks_if_its_certificate_and_name_are_believed() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let started = Started::believing(|dir, options| {
        options.client_ca_file = Some(clients.write(dir, "clients.crt"));
        options.request_header = Some(RequestHeaderOptions {
            client_ca_file: proxies.write(dir, "proxies.crt"),
            allowed_names: vec!["front".into()],
            username_headers: vec!["X-Who".into()],
            uid_headers: vec!["X-Uid".into()],
            group_headers: vec!["X-Team".into()],
            extra_prefixes: vec!["X-More-".into()],
        });
    })
    .await;
    let path = "/api/v1/secrets";
    let said = "x-who: jane\r\nx-team: a\r\n";
    let jane = get(&started, path, Some(proxies.client("front", "")), said).await;
    assert_eq!(named(&jane), "jane");
    let root = "x-who: root\r\nx-team: system:masters\r\n";
    assert_eq!(
        get(&started, path, Some(proxies.client("front", "")), root).await.0,
        200
    );
    // Another name, another authority, or no certificate: headers are nothing.
    assert_eq!(get(&started, path, Some(proxies.client("back", "")), root).await.0, 401);
    let client = get(&started, path, Some(clients.client("front", "")), root).await;
    assert_eq!(named(&client), "front");
    assert_eq!(named(&get(&started, path, None, root).await), "system:anonymous");
    // A proxy that says nothing is nobody in particular.
    let nobody = get(&started, path, Some(proxies.client("front", "")), "").await;
    assert_eq!(named(&nobody), "system:anonymous");
}

#[tokio::test]
async fn without_anonymous_and_bootstrap_tokens_only_who_is_known_gets_in() {
    let started = Started::believing(|_, options| {
        options.anonymous = Some(false);
        options.bootstrap_tokens = false;
    })
    .await;
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
    });
    let admin = started.admin();
    let created = admin.post("/api/v1/namespaces/kube-system/secrets", &secret).await;
    assert_eq!(created.code, 201, "{}", created.body);
    let address = started.server.http_address().unwrap();
    for token in [None, Some("abcdef.0123456789abcdef")] {
        assert_eq!(Client::new(address, token).get("/healthz").await.code, 401, "{token:?}");
    }
}

#[tokio::test]
async fn tokens_of_service_accounts_are_signed_and_believed_by_the_keys_and_names_that_flags_give() {
    let pem = std::fs::read_to_string("src/auth/testdata/rsa.pem").unwrap();
    let started = Started::believing(|dir, options| {
        let key = dir.join("signing.pem");
        std::fs::write(&key, &pem).unwrap();
        options.accounts = IssuerOptions {
            issuers: vec!["https://new.example".into(), "https://old.example".into()],
            signing_key_file: Some(key),
            audiences: vec!["here".into()],
            life_s_max: Some(7200),
            ..IssuerOptions::default()
        };
    })
    .await;
    let admin = started.admin();
    let account = json!({"metadata": {"name": "robot"}});
    assert_eq!(
        admin
            .post("/api/v1/namespaces/default/serviceaccounts", &account)
            .await
            .code,
        201
    );
    let ask = json!({"spec": {"expirationSeconds": 100_000}});
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let answer = admin.post(path, &ask).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let warning = answer.headers["warning"].to_str().unwrap();
    assert!(
        warning.contains("requested expiration of 100000 seconds shortened to 7200 seconds"),
        "{warning}"
    );
    assert_eq!(answer.body["spec"]["audiences"], json!(["here"]));
    assert_eq!(answer.body["spec"]["expirationSeconds"], 7200);
    let token = answer.body["status"]["token"].as_str().unwrap().to_owned();
    let client = Client::new(started.server.http_address().unwrap(), Some(token.leak()));
    let refused = client.get("/api/v1/secrets").await;
    assert_eq!(refused.code, 403);
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .contains("system:serviceaccount:default:robot")
    );
    let told = admin.get("/.well-known/openid-configuration").await.body;
    assert_eq!(told["issuer"], "https://new.example");
    assert_eq!(told["id_token_signing_alg_values_supported"], json!(["RS256"]));
    assert_eq!(admin.get("/openid/v1/jwks").await.body["keys"][0]["kty"], "RSA");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_ends_the_start_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "").unwrap();
    let key = dir.path().join("key.pem");
    std::fs::write(&key, std::fs::read("src/auth/testdata/p521.pem").unwrap()).unwrap();
    let mut config = crate::config(dir.path(), &tokens, Limits::default(), false);
    config.authentication.accounts.signing_key_file = Some(key);
    let told = Server::start(config).await.unwrap_err().to_string();
    assert!(
        told.ends_with("key.pem: not a private key of P-256, P-384, or RSA of 2,048 to 4,096 bits"),
        "{told}"
    );
}
