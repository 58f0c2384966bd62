//! Bounds on clients: each test holds one of them to its word.

use std::time::Duration;

use bytes::Bytes;
use flatkube::api::server::Limits;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::first_line;
use crate::{ADMIN, LONG, Started};

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let limits = Limits {
        head: Duration::from_millis(200),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let mut socket = TcpStream::connect(started.server.http_address().unwrap())
        .await
        .unwrap();
    socket.write_all(b"GET /version HTTP/1.1\r\nhost: ").await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, socket.read_to_end(&mut answer))
        .await
        .expect("the connection stays open")
        .unwrap();
}

#[tokio::test]
async fn a_handshake_that_does_not_come_ends_the_connection() {
    let limits = Limits {
        handshake: Duration::from_millis(200),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let mut socket = TcpStream::connect(started.server.address()).await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, socket.read_to_end(&mut answer))
        .await
        .expect("the connection stays open")
        .unwrap();
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered() {
    let limits = Limits {
        body: Duration::from_millis(200),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let mut socket = TcpStream::connect(started.server.http_address().unwrap())
        .await
        .unwrap();
    let head = format!(
        "POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(first_line(&mut socket).await, "HTTP/1.1 504");
}

/// As many bodies as may be worked on trickle in, and one more: other writers are served nevertheless.
#[tokio::test]
async fn bodies_that_do_not_come_hold_up_nobody() {
    let limits = Limits {
        mutating_inflight: 2,
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(started.server.http_address().unwrap())
            .await
            .unwrap();
        let head = format!(
            "POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN}\r\nexpect: 100-continue\r\n\
             content-type: application/json\r\ncontent-length: 100\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // Says "continue" once the body is asked for.
        assert_eq!(first_line(&mut socket).await, "HTTP/1.1 100");
        slow.push(socket);
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let admin = started.admin();
    let answer = timeout(LONG, admin.post("/api/v1/namespaces/default/configmaps", &object))
        .await
        .expect("no answer");
    assert_eq!(answer.code, 201);
    drop(slow);
}

#[tokio::test]
async fn heads_and_bodies_have_a_size() {
    let started = Started::usual().await;
    let admin = started.admin();
    let large =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(3 << 20)}});
    let answer = admin.post("/api/v1/namespaces/default/configmaps", &large).await;
    assert_eq!(
        (answer.code.as_u16(), answer.body["reason"].as_str()),
        (413, Some("RequestEntityTooLarge"))
    );

    let mut socket = TcpStream::connect(started.server.http_address().unwrap())
        .await
        .unwrap();
    let head = format!(
        "GET /version HTTP/1.1\r\nhost: x\r\nx-large: {}\r\n\r\n",
        "y".repeat(128 << 10)
    );
    // The server may close before it has read everything.
    let _ = socket.write_all(head.as_bytes()).await;
    assert_eq!(first_line(&mut socket).await, "HTTP/1.1 431");
}

#[tokio::test]
async fn an_http2_stream_that_is_not_read_is_reset_and_its_neighbours_live() {
    let limits = Limits {
        patience: Duration::from_millis(300),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let admin = started.admin();
    for n in 0..4 {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"k": "x".repeat(512 << 10)}});
        assert_eq!(
            admin.post("/api/v1/namespaces/default/configmaps", &map).await.code,
            201
        );
    }
    let socket = TcpStream::connect(started.server.http_address().unwrap())
        .await
        .unwrap();
    let (mut send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(64 * 1024)
        .initial_connection_window_size(16 << 20)
        .handshake(TokioIo::new(socket))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = |path: &str| {
        http::Request::get(format!("http://x{path}"))
            .header("authorization", format!("Bearer {ADMIN}"))
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    let unread = send
        .send_request(request("/api/v1/namespaces/default/configmaps"))
        .await
        .unwrap();
    assert_eq!(unread.status(), 200);
    let mut watch = send
        .send_request(request("/api/v1/namespaces/default/configmaps?watch=1"))
        .await
        .unwrap()
        .into_body();
    // The first events are read, then the watch has nothing to say: that is not the same as not being read.
    let mut events = 0;
    while events < 4 {
        let frame = timeout(LONG, watch.frame()).await.expect("no event").unwrap().unwrap();
        let data = frame.into_data().unwrap();
        events += data.iter().filter(|byte| **byte == b'\n').count();
    }
    // Three times the patience: an idle watch outlives it, the stream that is not read does not.
    let silence = timeout(Duration::from_millis(900), watch.frame()).await;
    assert!(silence.is_err(), "an idle watch was ended");
    let mut body = unread.into_body();
    let end = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                other => break other,
            }
        }
    };
    let end = timeout(LONG, end).await.expect("the stream neither ends nor breaks");
    assert!(end.is_some_and(|frame| frame.is_err()), "the body ended cleanly");
    let answer = send.send_request(request("/version")).await.unwrap();
    assert_eq!(answer.status(), 200);
    let event = json!({"metadata": {"name": "last"}, "data": {}});
    assert_eq!(
        admin.post("/api/v1/namespaces/default/configmaps", &event).await.code,
        201
    );
    assert!(
        timeout(LONG, watch.frame())
            .await
            .expect("the watch is silent")
            .unwrap()
            .is_ok()
    );
    assert!(!connection.is_finished());
}
