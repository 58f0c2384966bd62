//! How a server ends.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::Started;
use flatkube::api::server::Limits;

#[tokio::test]
async fn stopping_ends_watches_cleanly_and_keeps_what_was_written() {
    let started = Started::usual().await;
    let admin = started.admin();
    let map = json!({"metadata": {"name": "kept"}, "data": {"k": "v"}});
    assert_eq!(
        admin.post("/api/v1/namespaces/default/configmaps", &map).await.code,
        201
    );
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    let mut watch = admin.open("GET", path, "", Bytes::new()).await.into_body();
    watch.frame().await.unwrap().unwrap();

    let Started { server, dir } = started;
    let begun = Instant::now();
    let reader = tokio::spawn(async move {
        while let Some(frame) = watch.frame().await {
            frame.expect("the watch broke off");
        }
    });
    server.stop().await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "stopping waited for the watch"
    );
    reader.await.unwrap();

    let tokens = dir.path().join("tokens.csv");
    let config = crate::config(dir.path(), &tokens, Limits::default(), false);
    let server = flatkube::api::server::Server::start(config).await.unwrap();
    let started = Started { server, dir };
    let found = started.admin().get("/api/v1/namespaces/default/configmaps/kept").await;
    assert_eq!(found.body["data"]["k"], "v");
}

#[tokio::test]
async fn a_taken_address_is_told_before_anything_is_made() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "").unwrap();
    let mut config = crate::config(dir.path(), &tokens, Limits::default(), false);
    config.bind = taken.local_addr().unwrap();
    let error = flatkube::api::server::Server::start(config).await.unwrap_err();
    assert!(error.to_string().contains("cannot listen on"), "{error}");
    assert!(!dir.path().join("data/pki").exists());
}

#[tokio::test]
async fn plain_http_is_for_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "").unwrap();
    let mut config = crate::config(dir.path(), &tokens, Limits::default(), false);
    config.http_bind = Some("0.0.0.0:0".parse().unwrap());
    let error = flatkube::api::server::Server::start(config).await.unwrap_err();
    assert!(error.to_string().contains("loopback"), "{error}");
}
