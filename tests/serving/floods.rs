//! Clients that mean no good, each in small: what ends them, and that others do not notice. `examples/abuse` does the same
//! in large.

use std::time::Duration;

use bytes::Bytes;
use flatkube::api::server::Limits;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::{ADMIN, LONG, Started};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:method GET`, `:scheme http`, `:path /` as HPACK has them.
const GET: &[u8] = &[0x82, 0x86, 0x84];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

async fn connect(started: &Started) -> TcpStream {
    TcpStream::connect(started.server.http_address().unwrap())
        .await
        .unwrap()
}

/// Reads to the end of the connection, however it comes.
async fn ends(mut socket: TcpStream) {
    let mut answer = Vec::new();
    let end = timeout(LONG, socket.read_to_end(&mut answer)).await;
    assert!(end.is_ok(), "the connection stays open");
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_is_ended() {
    let limits = Limits {
        head: Duration::from_millis(200),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    ends(connect(&started).await).await;
    let mut speaks = connect(&started).await;
    speaks.write_all(PREFACE).await.unwrap();
    speaks.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    ends(speaks).await;
}

#[tokio::test]
async fn an_http2_connection_without_open_requests_is_ended_and_one_with_a_silent_watch_is_not() {
    let limits = Limits {
        idle: Duration::from_millis(300),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let admin = started.admin();
    let (mut send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(connect(&started).await))
        .await
        .unwrap();
    let watching = tokio::spawn(connection);
    let request = |path: &str| {
        http::Request::get(format!("http://x{path}"))
            .header("authorization", format!("Bearer {ADMIN}"))
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    let watch = "/api/v1/namespaces/default/configmaps?watch=1";
    let mut watch = send.send_request(request(watch)).await.unwrap().into_body();

    let (mut idle, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(connect(&started).await))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let answer = idle.send_request(request("/version")).await.unwrap();
    answer.into_body().collect().await.unwrap();
    let ended = timeout(LONG, connection).await.expect("an idle connection stays");
    ended.unwrap().unwrap();

    let map = json!({"metadata": {"name": "a"}, "data": {}});
    assert_eq!(
        admin.post("/api/v1/namespaces/default/configmaps", &map).await.code,
        201
    );
    let told = timeout(LONG, watch.frame()).await.expect("the watch is silent");
    assert!(told.unwrap().is_ok());
    assert!(!watching.is_finished());
}

/// The stream's task has ended when it has handed over its last frame: only the connection can watch over that.
#[tokio::test]
async fn an_answer_whose_end_is_never_taken_ends_the_connection() {
    let limits = Limits {
        patience: Duration::from_millis(300),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let (mut send, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake(TokioIo::new(connect(&started).await))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("http://x/version")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let unread = send.send_request(request).await.unwrap();
    assert_eq!(unread.status(), 200);
    assert!(
        timeout(LONG, connection).await.is_ok(),
        "the connection is held by an answer that nobody takes"
    );
}

#[tokio::test]
async fn one_address_has_a_share_of_the_connections_and_another_gets_in() {
    let limits = Limits {
        connections: 4,
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let to = started.server.http_address().unwrap();
    let ask = async |mut socket: TcpStream| {
        let mut answer = [0; 12];
        let sent = socket.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let got = timeout(LONG, socket.read_exact(&mut answer)).await.expect("no answer");
        (sent.is_ok() && got.is_ok() && &answer == b"HTTP/1.1 200").then_some(socket)
    };
    let first = ask(connect(&started).await).await.expect("the first");
    let _second = ask(connect(&started).await).await.expect("the second");
    assert!(ask(connect(&started).await).await.is_none(), "a third of one address");
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    assert!(ask(other.connect(to).await.unwrap()).await.is_some());
    drop(first);
    // The server hears of it a moment later.
    let again = async {
        while ask(connect(&started).await).await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, again).await.expect("the place is not given back");
}

/// Sends `attack` after the preface, again and again, and wants to be told to go away with `code`.
async fn is_told_to_go(started: &Started, begin: Vec<u8>, attack: impl Fn(u32) -> Vec<u8>, code: u32) {
    let socket = connect(started).await;
    let (mut read, mut write) = socket.into_split();
    let reads = tokio::spawn(async move {
        let mut told = None;
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            if read.read_exact(&mut payload).await.is_err() {
                break;
            }
            if head[3] == GOAWAY {
                told = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        told
    });
    write.write_all(PREFACE).await.unwrap();
    write.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    write.write_all(&begin).await.unwrap();
    let attacking = async {
        let mut round = 0;
        while write.write_all(&attack(round)).await.is_ok() {
            round += 1;
        }
    };
    timeout(LONG, attacking).await.expect("the connection takes it all");
    let told = timeout(LONG, reads).await.expect("the connection stays open").unwrap();
    // A reset by the kernel may overtake the frame.
    assert!(told.is_none_or(|told| told == code), "{told:?}");
}

/// `ENHANCE_YOUR_CALM`.
const CALM: u32 = 11;

#[tokio::test]
async fn a_head_without_an_end_ends_its_connection() {
    let started = Started::usual().await;
    let begin = frame(HEADERS, END_STREAM, 1, GET);
    let empty = frame(CONTINUATION, 0, 1, &[]);
    is_told_to_go(&started, begin.clone(), |_| empty.clone(), CALM).await;
    let mut filler = vec![0x00, 1, b'x', 127, 0x81, 0x7c];
    filler.resize(6 + 16_000, b'y');
    let long = frame(CONTINUATION, 0, 1, &filler);
    is_told_to_go(&started, begin, |_| long.clone(), CALM).await;
    assert_eq!(started.admin().get("/version").await.code, 200);
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_they_are_opened_end_their_connection() {
    let started = Started::usual().await;
    let burst = |round: u32| {
        let mut bytes = Vec::new();
        for number in 0..100 {
            let stream = 2 * (round * 100 + number) + 1;
            bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, GET));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        bytes
    };
    is_told_to_go(&started, Vec::new(), burst, CALM).await;
    assert_eq!(started.admin().get("/version").await.code, 200);
}
