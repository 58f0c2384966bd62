//! Logs of containers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use tokio::time::timeout;

use crate::client::Started;
use crate::kubelet::{Kubelet, until};

const LONG: Duration = Duration::from_secs(50);
const LOG: &str = "/api/v1/namespaces/default/pods/p/log";

async fn with_pod(arguments: &[&str]) -> (Started, Kubelet) {
    let kubelet = Kubelet::start().await;
    let started = Started::new(arguments);
    started.node("n", kubelet.address, &[]).await;
    started.pod("p", "n", "10.1.2.3").await;
    (started, kubelet)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_comes_from_the_kubelet_of_the_pods_node_and_nothing_of_the_client_goes_there() {
    let (started, kubelet) = with_pod(&[]).await;
    let answer = started.get(&format!("{LOG}?tailLines=3&timestamps=true")).await;
    assert_eq!(
        (answer.code, answer.text().as_str()),
        (200, "log of main with tailLines=3&timestamps=true\n")
    );
    assert_eq!(answer.headers["content-type"], "text/plain");
    let seen = kubelet.last();
    assert_eq!(
        (seen.method.as_str(), seen.client.as_str()),
        ("GET", "kube-apiserver-kubelet-client")
    );
    assert_eq!(seen.target, "/containerLogs/default/p/main?tailLines=3&timestamps=true");
    assert!(seen.headers.get("authorization").is_none());
    for (lines, code, message) in [
        (
            400,
            400,
            "container \"main\" in pod \"p\" is waiting to start: ContainerCreating",
        ),
        (
            404,
            404,
            "the server could not find the requested resource ( pods/log p)",
        ),
        (500, 500, "Internal error occurred: the disk is gone"),
        (
            503,
            503,
            "the server is currently unable to handle the request ( pods/log p)",
        ),
        (302, 500, "Get \"https://elsewhere.example/\": redirects forbidden"),
    ] {
        let answer = started.get(&format!("{LOG}?tailLines={lines}")).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message));
    }
    let port = kubelet.address.port();
    kubelet.kill();
    until("the kubelet still listens", async || {
        tokio::net::TcpStream::connect(kubelet.address).await.is_err()
    })
    .await;
    let answer = started.get(LOG).await;
    let expected = format!(
        "Get \"https://127.0.0.1:{port}/containerLogs/default/p/main\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!((answer.code, answer.message()), (500, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_followed_comes_line_by_line_and_ends_with_the_client() {
    let (started, kubelet) = with_pod(&[]).await;
    let answer = started
        .open(Method::GET, &format!("{LOG}?follow=true"), &[], Bytes::new())
        .await;
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    for line in 0..3 {
        kubelet.say();
        let frame = timeout(LONG, body.frame())
            .await
            .expect("in time")
            .expect("a line")
            .expect("intact");
        assert_eq!(frame.into_data().expect("data"), format!("line {line}\n"));
    }
    assert!(started.figure("flatkube_proxied_requests").await > 0.5);
    drop(body);
    until("the log is still followed", async || {
        started.figure("flatkube_proxied_requests").await < 0.5
    })
    .await;
    // A kubelet that goes breaks the answer off: it is not taken for whole.
    let answer = started
        .open(Method::GET, &format!("{LOG}?follow=true"), &[], Bytes::new())
        .await;
    kubelet.kill();
    let ended = timeout(LONG, answer.into_body().collect()).await.expect("in time");
    assert!(ended.is_err(), "a broken log looks whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_waits_in_the_kubelet() {
    let (started, kubelet) = with_pod(&[]).await;
    let answer = started
        .open(Method::GET, &format!("{LOG}?previous=true"), &[], Bytes::new())
        .await;
    let mut body = answer.into_body();
    body.frame().await.expect("a frame").expect("intact");
    // Until nothing moves any more.
    let mut before = usize::MAX;
    while before != kubelet.written() {
        before = kubelet.written();
        let _ = timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
    }
    // Buffers of sockets and of TLS on the way, of 1 GiB.
    assert!(before < 32 << 20, "{before} bytes were read for nobody");
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        read += frame.expect("intact").into_data().expect("data").len();
    }
    assert!(read > 1000 << 20, "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelets_certificate_is_verified_when_an_authority_is_named() {
    let kubelet = Kubelet::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.pem"), dir.path().join("bad.pem"));
    std::fs::write(&good, &kubelet.certificate).unwrap();
    std::fs::write(&bad, crate::kubelet::tls(&["127.0.0.1"]).1).unwrap();
    for (file, is_good) in [(good, true), (bad, false)] {
        let started = Started::new(&["--kubelet-certificate-authority", file.to_str().unwrap()]);
        started.node("n", kubelet.address, &[]).await;
        started.pod("p", "n", "10.1.2.3").await;
        let answer = started.get(LOG).await;
        assert_eq!(answer.code, if is_good { 200 } else { 500 }, "{}", answer.text());
        if !is_good {
            assert!(
                answer
                    .message()
                    .contains("tls: failed to verify certificate: x509: certificate signed by unknown authority")
            );
            let skipped = started.get(&format!("{LOG}?insecureSkipTLSVerifyBackend=true")).await;
            assert_eq!(skipped.code, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leads_back_to_this_server_is_not_asked_with_its_rights() {
    let started = Started::new(&[]);
    let own = started.server.url.trim_start_matches("https://").parse().unwrap();
    started.node("n", own, &[]).await;
    started.pod("p", "n", "10.1.2.3").await;
    for path in [LOG, "/api/v1/nodes/n/proxy/api/v1/secrets"] {
        let answer = started.get(path).await;
        assert!(answer.code >= 500, "{}", answer.text());
        assert!(
            answer.message().contains("the backend is this API server itself"),
            "{}",
            answer.message()
        );
    }
}
