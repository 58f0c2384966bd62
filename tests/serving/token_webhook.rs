//! A webhook that knows whom tokens stand for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatkube::auth::WebhookOptions;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::Started;
use crate::client::Client;
use crate::oidc::{acceptor, review};

/// A server with a webhook, which is asked with the header `authorization: Bearer own` and answers by `answer`: a code and a status
/// of each question, whose number is told. And how often it was asked.
async fn started(answer: fn(usize, &Value) -> (u16, Value)) -> (Started, Arc<AtomicUsize>) {
    let (acceptor, ca) = acceptor();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else {
                continue;
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte.to_ascii_lowercase());
            }
            let head = String::from_utf8(head).unwrap();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split('\r').next());
            let Some(length) = length.and_then(|length| length.parse().ok()) else {
                continue;
            };
            let mut body: Vec<u8> = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            assert!(head.contains("authorization: bearer own"), "{head}");
            assert_eq!(asked["apiVersion"], "authentication.k8s.io/v1");
            let (code, status) = answer(counted.fetch_add(1, Ordering::SeqCst), &asked["spec"]);
            let body = json!({"kind": "TokenReview", "status": status}).to_string();
            let length = body.len();
            let answer = format!("HTTP/1.1 {code} Any\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let started = Started::believing(|dir, options| {
        std::fs::write(dir.join("webhook.crt"), &ca).unwrap();
        let kubeconfig = dir.join("webhook.kubeconfig");
        let text = json!({
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://localhost:{port}/review"), "certificate-authority": "webhook.crt",
            }}],
            "users": [{"name": "u", "user": {"token": "own"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        options.webhook = Some(WebhookOptions {
            config_file: kubeconfig,
            version: "v1".into(),
            cache_ttl: Duration::from_mins(10),
        });
    })
    .await;
    (started, asked)
}

#[tokio::test]
async fn the_webhook_is_asked_once_for_each_token_that_nobody_here_knows() {
    let (started, asked) = started(|_, spec| {
        assert_eq!(spec["audiences"], json!(["https://kubernetes.default.svc"]));
        let status = match spec["token"].as_str().unwrap() {
            "janes" => json!({"authenticated": true, "user": {
                "username": "jane", "uid": "7", "groups": ["team"], "extra": {"example.com/a": ["b"]},
            }}),
            "others" => json!({"authenticated": true, "user": {"username": "jane"}, "audiences": ["other"]}),
            "nobodys" => json!({"authenticated": true, "user": {"username": ""}}),
            "wrong" => json!({"authenticated": false, "error": "taken back"}),
            _ => json!({"authenticated": false}),
        };
        (200, status)
    })
    .await;
    for _ in 0..3 {
        let user = review(&started, "janes").await.unwrap();
        assert_eq!(
            user,
            json!({
                "username": "jane", "uid": "7", "groups": ["team", "system:authenticated"], "extra": {"example.com/a": ["b"]},
            })
        );
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let client = Client::new(started.server.http_address().unwrap(), Some("janes"));
    assert_eq!(client.get("/api/v1/secrets").await.code, 403);
    for (token, why) in [
        ("others", "invalid bearer token"),
        ("nobodys", "[invalid bearer token, the webhook named no user]"),
        ("wrong", "[invalid bearer token, taken back]"),
        ("unknown", "invalid bearer token"),
        ("unknown", "invalid bearer token"),
    ] {
        assert_eq!(review(&started, token).await.unwrap_err(), why);
    }
    // The administrator's own token is none of its business.
    assert_eq!(asked.load(Ordering::SeqCst), 5);
    let client = Client::new(started.server.http_address().unwrap(), Some("wrong"));
    assert_eq!(client.get("/version").await.code, 401);
}

#[tokio::test]
async fn a_webhook_that_fails_for_a_moment_is_asked_again_and_one_that_refuses_is_not() {
    let user = |number, spec: &Value| match (number, spec["token"].as_str()) {
        (0, Some("janes")) => (500, Value::Null),
        (_, Some("janes")) => (200, json!({"authenticated": true, "user": {"username": "jane"}})),
        _ => (403, Value::Null),
    };
    let (started, asked) = started(user).await;
    assert_eq!(review(&started, "janes").await.unwrap()["username"], "jane");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let told = review(&started, "x").await.unwrap_err();
    assert!(
        told.ends_with("/review\": the server answered 403 Forbidden]"),
        "{told}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}
