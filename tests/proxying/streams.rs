//! Connections that are upgraded.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::calls::TOKEN;
use crate::client::{Answer, Started};
use crate::kubelet::{Kubelet, until};

const LONG: Duration = Duration::from_secs(50);
const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true&stderr=true";

async fn with_pod(features: &[&str]) -> (Started, Kubelet) {
    let kubelet = Kubelet::start().await;
    let started = Started::new(&[]);
    started.node("n", kubelet.address, features).await;
    started.pod("p", "n", "10.1.2.3").await;
    (started, kubelet)
}

/// The head of an upgrade of WebSocket.
fn handshake(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\nX-Remote-User: root\r\n\r\n"
    )
}

/// A connection after this head was sent and answered: the answer's head, and the connection.
async fn raw(started: &Started, head: &str) -> (String, TcpStream) {
    let mut socket = TcpStream::connect(started.address()).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(
            timeout(LONG, socket.read_u8())
                .await
                .expect("an answer")
                .expect("it goes on"),
        );
    }
    (String::from_utf8(answer).unwrap(), socket)
}

/// A client's message.
fn message(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x82, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

/// The next frame to a client: opcode and payload.
async fn heard(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let first = timeout(LONG, socket.read_u8())
        .await
        .expect("a frame")
        .expect("it goes on");
    let len = match socket.read_u8().await.unwrap() {
        126 => usize::from(socket.read_u16().await.unwrap()),
        127 => socket.read_u64().await.unwrap() as usize,
        len => usize::from(len),
    };
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).await.unwrap();
    (first & 15, payload)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_websocket_reaches_kubelets_that_take_it_and_those_that_do_not() {
    for features in [&[][..], &["ExtendWebSocketsToKubelet"]] {
        let (started, kubelet) = with_pod(features).await;
        let (head, mut socket) = raw(&started, &handshake(EXEC, "v5.channel.k8s.io")).await;
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
        assert!(
            head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
            "{head}"
        );
        assert_eq!(heard(&mut socket).await, (2, vec![1]));
        socket.write_all(&message(b"\0hello")).await.unwrap();
        assert_eq!(heard(&mut socket).await, (2, b"\x01hello".to_vec()));
        assert!(started.figure("flatkube_proxied_requests").await > 0.5);
        socket.write_all(&message(&[255, 0])).await.unwrap();
        loop {
            let (opcode, payload) = heard(&mut socket).await;
            if opcode == 8 {
                break;
            }
            if payload[0] == 3 {
                assert_eq!(payload[1..], *br#"{"metadata":{},"status":"Success"}"#);
            }
        }
        drop(socket);
        until("the session is still open", async || {
            started.figure("flatkube_proxied_requests").await < 0.5
        })
        .await;
        let seen = kubelet.last();
        let (upgrade, method) = if features.is_empty() {
            ("SPDY/3.1", "POST")
        } else {
            ("websocket", "GET")
        };
        assert_eq!(
            (seen.headers["upgrade"].to_str().unwrap(), seen.method.as_str()),
            (upgrade, method)
        );
        assert_eq!(seen.client, "kube-apiserver-kubelet-client");
        assert_eq!(seen.target, "/exec/default/p/main?command=cat&error=1&input=1&output=1");
        for name in ["authorization", "x-remote-user"] {
            assert!(seen.headers.get(name).is_none(), "{name} was sent on");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_with_a_session_is_told_in_it_and_before_it_by_a_status() {
    let (started, kubelet) = with_pod(&[]).await;
    let answer = started.get(EXEC).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (400, "Upgrade request required")
    );
    let refused = EXEC.replace("cat", "refuse");
    let (_, mut socket) = raw(&started, &handshake(&refused, "v5.channel.k8s.io")).await;
    heard(&mut socket).await;
    let (_, status) = heard(&mut socket).await;
    let text = String::from_utf8(status[1..].to_vec()).unwrap();
    assert!(
        text.contains("unable to upgrade connection: container not found (\\\"main\\\")"),
        "{text}"
    );
    // Others get the kubelet's own answer.
    let spdy = [
        ("connection", "Upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
    ];
    let answer = Answer::of(started.open(Method::POST, &refused, &spdy, Bytes::new()).await).await;
    assert_eq!(
        (answer.code, answer.text().as_str()),
        (404, "container not found (\"main\")")
    );
    let none = EXEC.replace("command=cat", "container=none");
    let answer = Answer::of(started.open(Method::POST, &none, &spdy, Bytes::new()).await).await;
    assert_eq!(
        (answer.code, answer.message().as_str()),
        (400, "container none is not valid for pod p")
    );
    kubelet.kill();
    until("the kubelet still listens", async || {
        TcpStream::connect(kubelet.address).await.is_err()
    })
    .await;
    let answer = Answer::of(started.open(Method::POST, EXEC, &spdy, Bytes::new()).await).await;
    let refused = format!(
        "error dialing backend: dial tcp {}: connect: connection refused",
        kubelet.address
    );
    assert_eq!((answer.code, answer.message()), (500, refused));
}

/// Through the proxy of a node: WebSocket as it is; and nothing but SPDY and WebSocket where sessions are.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_goes_through_a_proxy_and_sessions_take_no_other() {
    let (started, kubelet) = with_pod(&[]).await;
    let path = "/api/v1/nodes/n/proxy/exec/default/p/main?output=1&input=1";
    let (head, mut socket) = raw(&started, &handshake(path, "v4.channel.k8s.io")).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(heard(&mut socket).await, (2, vec![1]));
    socket.write_all(&message(b"\0through")).await.unwrap();
    assert_eq!(heard(&mut socket).await, (2, b"\x01through".to_vec()));
    let seen = kubelet.last();
    assert_eq!(seen.target, "/exec/default/p/main?output=1&input=1");
    assert!(seen.headers.get("authorization").is_none());
    for other in ["h2c", "tls/1.0", ""] {
        let asked = handshake(EXEC, "v4.channel.k8s.io").replace("Upgrade: websocket", &format!("Upgrade: {other}"));
        let (head, _) = raw(&started, &asked).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{other}: {head}");
        let asked = handshake(path, "v4.channel.k8s.io").replace("Upgrade: websocket", &format!("Upgrade: {other}"));
        let (head, _) = raw(&started, &asked).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{other}: {head}");
    }
    let both = handshake(path, "v4.channel.k8s.io").replace("Upgrade: websocket", "Upgrade: websocket\r\nUpgrade: h2c");
    let (head, _) = raw(&started, &both).await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(kubelet.last().target, seen.target, "it was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_dies_ends_its_sessions_and_is_no_success() {
    let (started, kubelet) = with_pod(&[]).await;
    let (_, mut socket) = raw(&started, &handshake(EXEC, "v5.channel.k8s.io")).await;
    heard(&mut socket).await;
    socket.write_all(&message(b"\0x")).await.unwrap();
    heard(&mut socket).await;
    kubelet.kill();
    let (_, status) = heard(&mut socket).await;
    let text = String::from_utf8(status[1..].to_vec()).unwrap();
    assert!(
        text.contains("Failure") && text.contains("the connection to the kubelet broke off"),
        "{text}"
    );
    assert_eq!(heard(&mut socket).await.0, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_waits_for_who_reads_it_and_loses_nothing() {
    let (started, _kubelet) = with_pod(&[]).await;
    let flood = EXEC.replace("cat", "flood").replace("stdin=true&", "");
    let (_, mut socket) = raw(&started, &handshake(&flood, "v5.channel.k8s.io")).await;
    let before = resident(&started);
    // The client reads nothing while the kubelet says 64 MiB: what waits, waits in sockets.
    let _ = timeout(Duration::from_secs(2), std::future::pending::<()>()).await;
    let grown = resident(&started).saturating_sub(before);
    assert!(
        grown < 16 << 20,
        "{grown} bytes are held of a session that nobody reads"
    );
    let mut count = 0;
    loop {
        let (opcode, payload) = heard(&mut socket).await;
        match (opcode, payload.first()) {
            (8, _) => break,
            (_, Some(1)) => count += payload.len() - 1,
            _ => {}
        }
    }
    assert_eq!(count, (64 << 20) + 4);
}

/// Bytes of the server's memory that are its own.
fn resident(started: &Started) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", started.server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// What is open when the server stops ends with it, and holds it up by nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_with_the_server() {
    let (started, _kubelet) = with_pod(&[]).await;
    let (_, mut socket) = raw(&started, &handshake(EXEC, "v5.channel.k8s.io")).await;
    heard(&mut socket).await;
    let begun = std::time::Instant::now();
    let ended = tokio::task::spawn_blocking(move || started.server.end("TERM"))
        .await
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    let _ = timeout(LONG, async {
        while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
    })
    .await;
}

/// Figures of `docs/reliability.md`. Sessions over plain HTTP, so one TLS connection each: the kubelet's.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_open_sessions_cost_little_each() {
    let (started, _kubelet) = with_pod(&[]).await;
    let one = |_| async {
        let (head, mut socket) = raw(&started, &handshake(EXEC, "v5.channel.k8s.io")).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        heard(&mut socket).await;
        socket.write_all(&message(b"\0x")).await.unwrap();
        heard(&mut socket).await;
        socket
    };
    let _few = futures_util::future::join_all((0..50).map(one)).await;
    let before = resident(&started);
    let mut all = Vec::new();
    for _ in 0..10 {
        all.extend(futures_util::future::join_all((0..100).map(one)).await);
    }
    let each = (resident(&started) - before) / all.len();
    println!("{each} bytes for each of {} sessions", all.len());
    assert!(each < 128 << 10, "{each} bytes each");
    assert_eq!(started.get("/readyz").await.code, 200);
}
