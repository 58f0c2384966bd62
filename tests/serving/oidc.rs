//! Tokens that others signed: an OpenID provider within the test, and every way in which a token can be wrong.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flatkube::auth::OidcFlags;
use rcgen::{CertificateParams, DnType, KeyPair};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::client::Client;
use crate::{LONG, Started};

/// What a provider does when it is asked for its keys.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Usual,
    /// Takes the request and says nothing.
    Silent,
    /// Tells more keys than anybody reads.
    Endless,
}

/// TLS for a server of a test on `localhost`, and the certificate that vouches for it, PEM.
pub(crate) fn acceptor() -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "provider");
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), certificate.pem())
}

/// A provider of keys, for as long as the test's runtime lives.
struct Provider {
    url: String,
    ca: String,
    /// How often its keys were asked for.
    asked: Arc<AtomicUsize>,
    keys: Arc<Mutex<Value>>,
}

impl Provider {
    async fn start(mood: Mood, keys: Value) -> Self {
        let (acceptor, ca) = acceptor();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let (asked, keys) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(keys)));
        let started = Self {
            url: url.clone(),
            ca,
            asked: asked.clone(),
            keys: keys.clone(),
        };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, url, asked, keys) = (acceptor.clone(), url.clone(), asked.clone(), keys.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { return };
                        head.push(byte);
                    }
                    let body = if head.starts_with(b"GET /.well-known/openid-configuration ") {
                        json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string()
                    } else {
                        asked.fetch_add(1, Ordering::SeqCst);
                        match mood {
                            Mood::Usual => keys.lock().unwrap().to_string(),
                            Mood::Silent => std::future::pending().await,
                            Mood::Endless => " ".repeat(1 << 20),
                        }
                    };
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        started
    }

    fn flags(&self, dir: &std::path::Path) -> OidcFlags {
        let ca = dir.join("provider.crt");
        std::fs::write(&ca, &self.ca).unwrap();
        OidcFlags {
            issuer_url: self.url.clone(),
            client_id: "cluster".into(),
            ca_file: Some(ca),
            username_prefix: "o:".into(),
            groups_claim: "groups".into(),
            groups_prefix: "o:".into(),
            ..OidcFlags::default()
        }
    }

    fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": "cluster", "sub": "jane", "groups": ["team"], "exp": now() + 600})
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Who signs.
enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

impl Signer {
    fn rsa() -> Self {
        let pem = std::fs::read_to_string("src/auth/testdata/rsa.pem").unwrap();
        let der = rustls_pki_types::pem::PemObject::from_pem_slice(pem.as_bytes());
        let der: rustls_pki_types::PrivatePkcs8KeyDer<'_> = der.unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap())
    }

    fn ec() -> Self {
        let key = KeyPair::generate().unwrap().serialize_der();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, &key, &SystemRandom::new()).unwrap())
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
        }
    }

    fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(pair) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "use": "sig", "kid": id, "n": text(&n), "e": text(&e)})
            }
            Self::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": text(x), "y": text(y)})
            }
        }
    }

    fn token(&self, id: &str, claims: &Value) -> String {
        let message = message(self.algorithm(), id, claims);
        let signed = match self {
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let random = SystemRandom::new();
                pair.sign(
                    &signature::RSA_PKCS1_SHA256,
                    &random,
                    message.as_bytes(),
                    &mut signature,
                )
                .unwrap();
                signature
            }
            Self::Ec(pair) => pair
                .sign(&SystemRandom::new(), message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed))
    }
}

fn message(algorithm: &str, id: &str, claims: &Value) -> String {
    let head = json!({"alg": algorithm, "kid": id}).to_string();
    format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(head),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    )
}

/// What the server makes of a token: the user, or the error of a TokenReview.
pub(crate) async fn review(started: &Started, token: &str) -> Result<Value, String> {
    let asked = json!({"spec": {"token": token}});
    let answer = started
        .admin()
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &asked)
        .await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    let status = &answer.body["status"];
    if status["authenticated"] == true {
        return Ok(status["user"].clone());
    }
    Err(status["error"].as_str().unwrap_or("").to_owned())
}

/// The code of a request with a token.
async fn code(started: &Started, token: String) -> u16 {
    let address = started.server.http_address().unwrap();
    let client = Client::new(address, Some(token.leak()));
    client.get("/api/v1/secrets").await.code.as_u16()
}

#[tokio::test]
async fn a_token_is_a_user_and_everything_that_can_be_wrong_with_it_is_refused() {
    let signer = Signer::rsa();
    let provider = Provider::start(
        Mood::Usual,
        json!({"keys": [signer.jwk("k"), {"kty": "oct", "k": "AAAA"}]}),
    )
    .await;
    let started = Started::believing(|dir, options| options.oidc = Some(provider.flags(dir))).await;
    let claims = provider.claims();
    let good = signer.token("k", &claims);
    let user = review(&started, &good).await.unwrap();
    assert_eq!(user["username"], "o:jane");
    assert_eq!(user["groups"], json!(["o:team", "system:authenticated"]));
    assert_eq!(code(&started, good.clone()).await, 403);
    // Without a name of its key, every key is tried.
    review(&started, &signer.token("", &claims)).await.unwrap();

    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        claims
    };
    let (message_part, signature) = good.rsplit_once('.').unwrap();
    let forged = message("RS256", "k", &with("sub", json!("root")));
    let symmetric = message("HS256", "k", &claims);
    let jwk = signer.jwk("k");
    let public = URL_SAFE_NO_PAD.decode(jwk["n"].as_str().unwrap()).unwrap();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public);
    let symmetric_signature = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&secret, symmetric.as_bytes()));
    for (token, why) in [
        (
            signer.token("k", &with("exp", json!(now() - 600))),
            "oidc: verify token: oidc: token is expired (Token Expiry: ",
        ),
        (
            signer.token("k", &with("nbf", json!(now() + 600))),
            "before the nbf (not before) time: ",
        ),
        (
            signer.token("k", &with("aud", json!(["other"]))),
            "oidc: expected audience \"cluster\" got [\"other\"]",
        ),
        (
            signer.token("k", &with("sub", json!(["root"]))),
            "oidc: parse username claims \"sub\": json: cannot unmarshal array into Go value of type string",
        ),
        (
            format!("{}.", message("none", "k", &claims)),
            "unsupported algorithm, expected [\"RS256\"] got \"none\"",
        ),
        (
            format!("{symmetric}.{symmetric_signature}"),
            "unsupported algorithm, expected [\"RS256\"] got \"HS256\"",
        ),
        (
            Signer::ec().token("k", &claims),
            "unsupported algorithm, expected [\"RS256\"] got \"ES256\"",
        ),
        (format!("{forged}.{signature}"), "failed to verify id token signature"),
        (signer.token("other", &claims), "failed to verify id token signature"),
        (format!("{message_part}."), "failed to verify id token signature"),
    ] {
        let told = review(&started, &token).await.unwrap_err();
        assert!(
            told.starts_with("[invalid bearer token, oidc: ") && told.contains(why),
            "{told}"
        );
        assert_eq!(code(&started, token).await, 401);
    }
    let huge = signer.token("k", &with("more", json!("x".repeat(100_000))));
    for token in [
        signer.token("k", &with("iss", json!("https://other.example"))),
        signer.token("k", &with("exp", json!("soon"))),
        huge,
        good.replacen('.', "..", 1),
        format!("{good}.{signature}"),
    ] {
        assert_eq!(review(&started, &token).await.unwrap_err(), "invalid bearer token");
    }
    // Another issuer's token is for this server, not for others.
    let asked = json!({"spec": {"token": good, "audiences": ["elsewhere"]}});
    let answer = started
        .admin()
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &asked)
        .await;
    assert_ne!(answer.body["status"]["authenticated"], true, "{}", answer.body);
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it_and_the_old_one_is_believed_no_more() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let provider = Provider::start(Mood::Usual, json!({"keys": [old.jwk("old")]})).await;
    let started = Started::believing(|dir, options| {
        options.asking.pause = Duration::from_millis(1);
        let mut flags = provider.flags(dir);
        flags.signing_algs = vec!["ES256".into()];
        options.oidc = Some(flags);
    })
    .await;
    let claims = provider.claims();
    let before = old.token("old", &claims);
    review(&started, &before).await.unwrap();
    *provider.keys.lock().unwrap() = json!({"keys": [new.jwk("new")]});
    let after = new.token("new", &claims);
    timeout(LONG, async { while review(&started, &after).await.is_err() {} })
        .await
        .unwrap();
    // Though it was proven before.
    review(&started, &before).await.unwrap_err();
}

#[tokio::test]
async fn made_up_names_of_keys_do_not_make_the_provider_work() {
    let signer = Signer::ec();
    let provider = Provider::start(Mood::Usual, json!({"keys": [signer.jwk("k")]})).await;
    let started = Started::believing(|dir, options| {
        options.asking.pause = LONG * 10;
        let mut flags = provider.flags(dir);
        flags.signing_algs = vec!["ES256".into()];
        options.oidc = Some(flags);
    })
    .await;
    let claims = provider.claims();
    for number in 0..50 {
        review(&started, &signer.token(&format!("made-up-{number}"), &claims))
            .await
            .unwrap_err();
    }
    review(&started, &signer.token("k", &claims)).await.unwrap();
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_provider_that_is_silent_or_says_too_much_costs_its_own_users_alone() {
    for (mood, within, why) in [
        (
            Mood::Silent,
            Duration::from_millis(200),
            "fetching keys context deadline exceeded",
        ),
        (Mood::Endless, LONG, "the answer is larger than 524288 bytes"),
    ] {
        let signer = Signer::rsa();
        let provider = Provider::start(mood, Value::Null).await;
        let started = Started::believing(|dir, options| {
            options.asking.within = within;
            options.oidc = Some(provider.flags(dir));
        })
        .await;
        assert_eq!(started.admin().get("/api/v1/secrets").await.code, 200);
        let told = review(&started, &signer.token("k", &provider.claims()))
            .await
            .unwrap_err();
        assert!(told.contains(why), "{told}");
    }
}

/// A configuration for the provider, with what stands after the issuer, and of who shows nothing.
fn configuration(provider: &Provider, mappings: &str, anonymous: &str) -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": provider.url, "audiences": ["cluster", "more"], "audienceMatchPolicy": "MatchAny",
                "certificateAuthority": provider.ca,
            },
            "claimMappings": serde_json::from_str::<Value>(mappings).unwrap(),
        }],
        "anonymous": serde_json::from_str::<Value>(anonymous).unwrap(),
    })
    .to_string()
}

#[tokio::test]
async fn a_configuration_file_is_taken_up_when_it_changes_and_one_that_is_wrong_changes_nothing() {
    let signer = Signer::ec();
    let provider = Provider::start(Mood::Usual, json!({"keys": [signer.jwk("k")]})).await;
    let first = r#"{"username": {"expression": "'first:' + claims.sub"}, "groups": {"expression": "claims.groups"}}"#;
    let second = r#"{"username": {"claim": "sub", "prefix": "second:"}}"#;
    let health = r#"{"enabled": true, "conditions": [{"path": "/healthz"}]}"#;
    let mut file = PathBuf::new();
    let started = Started::believing(|dir, options| {
        file = dir.join("authentication.yaml");
        std::fs::write(&file, configuration(&provider, first, health)).unwrap();
        options.config_file = Some(file.clone());
    })
    .await;
    let token = signer.token("k", &provider.claims());
    assert_eq!(review(&started, &token).await.unwrap()["username"], "first:jane");
    let anyone = Client::new(started.server.http_address().unwrap(), None);
    assert_eq!(anyone.get("/healthz").await.code, 200);
    assert_eq!(anyone.get("/version").await.code, 401);
    assert_eq!(anyone.get("/healthz/ping").await.code, 401);

    let replace = |text: String| {
        let next = file.with_extension("new");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &file).unwrap();
    };
    replace(configuration(&provider, second, r#"{"enabled": false}"#));
    timeout(LONG, async {
        while review(&started, &token).await.unwrap()["username"] != "second:jane" {}
    })
    .await
    .unwrap();
    assert_eq!(anyone.get("/healthz").await.code, 401);
    // The keys were kept over the change.
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1);

    replace(configuration(&provider, r#"{"username": {}}"#, "null"));
    let failures = "apiserver_authentication_config_controller_automatic_reloads_total{status=\"failure\"} 1";
    timeout(LONG, async {
        loop {
            let metrics = started.admin().get("/metrics").await.body;
            if metrics.as_str().unwrap_or("").contains(failures) {
                break;
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(review(&started, &token).await.unwrap()["username"], "second:jane");
    assert_eq!(anyone.get("/healthz").await.code, 401);
}

#[tokio::test]
async fn flags_and_a_file_that_say_the_same_thing_twice_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "").unwrap();
    let file = dir.path().join("authentication.yaml");
    let text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n";
    std::fs::write(&file, text).unwrap();
    let mut told = Vec::new();
    let flags = OidcFlags {
        issuer_url: "https://a.example".into(),
        ..OidcFlags::default()
    };
    let own = OidcFlags {
        issuer_url: flatkube::auth::ISSUER.into(),
        client_id: "x".into(),
        ..OidcFlags::default()
    };
    for (config_file, oidc, anonymous) in [
        (Some(file.clone()), Some(own.clone()), None),
        (Some(file), None, Some(true)),
        (None, Some(flags), None),
        (None, Some(own), None),
    ] {
        let mut config = crate::config(dir.path(), &tokens, flatkube::api::server::Limits::default(), false);
        config.authentication.config_file = config_file;
        config.authentication.oidc = oidc;
        config.authentication.anonymous = anonymous;
        let failed = flatkube::api::server::Server::start(config).await.unwrap_err();
        told.push(failed.to_string());
    }
    assert_eq!(
        told,
        [
            "authentication-config file and oidc-* flags are mutually exclusive",
            "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file",
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            "jwt[0].issuer.url: Invalid value: \"https://kubernetes.default.svc\": URL must not overlap with disallowed issuers: \
             [https://kubernetes.default.svc]",
        ]
    );
}
