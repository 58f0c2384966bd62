//! HTTP against the router and everything behind it, without sockets: raw bytes of a connection, and whole requests.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use flatkube::api::attack::{self, Served};
use flatkube::api::server::Limits;
use flatkube::auth::User;
use flatkube::store::Store;
use flatkube::store::disk::sim::SimDisk;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::{JoinHandle, yield_now};

use super::input::Input;
use super::written;

/// Turns without anything happening after which nothing will: all of the server runs on this thread.
const IDLE_MAX: usize = 48;
/// The most that is read of one answer, bytes.
const ANSWER_MAX: usize = 4 << 20;
/// Requests of one input.
const REQUESTS_MAX: usize = 6;

/// A server whose store is as it was when it was made.
struct Fresh {
    store: Arc<Store>,
    revision: u64,
}

impl Fresh {
    fn new(runtime: &tokio::runtime::Runtime) -> Self {
        let store = written::story(&SimDisk::new(), written::options(&Arc::new(AtomicBool::new(false))));
        runtime.block_on(async {
            let filled = settle(&store, attack::fill(&store)).await;
            filled.expect("nothing waits").expect("room");
        });
        let revision = store.view().revision();
        Self { store, revision }
    }
}

/// Runs `attack` on a server that shows the same objects every time.
fn with_server<F: Future<Output = ()>>(attack: impl FnOnce(Arc<Store>, Served) -> F) {
    thread_local! {
        static FRESH: RefCell<Option<Fresh>> = const { RefCell::new(None) };
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    FRESH.with_borrow_mut(|fresh| {
        let unchanged = fresh
            .take()
            .filter(|fresh| fresh.store.view().revision() == fresh.revision);
        let server = fresh.insert(unchanged.unwrap_or_else(|| Fresh::new(&runtime)));
        let served = Served::new(server.store.clone(), Limits::default()).expect("sound objects");
        runtime.block_on(attack(server.store.clone(), served));
    });
    // An OpenAPI document may still be rendered on another thread.
    runtime.shutdown_background();
}

/// Drives everything until `future` is ready, or nothing happens any more.
async fn settle<F: Future>(store: &Store, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut idle = 0;
    while idle < IDLE_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
        yield_now().await;
        idle = if store.commit() { 0 } else { idle + 1 };
    }
    None
}

fn connect(served: Arc<Served>, is_known: bool) -> (DuplexStream, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(256 << 10);
    let user = is_known.then(|| User::authenticated("someone", "1", vec!["system:masters".into()]));
    let serving = tokio::spawn(async move { served.connection(theirs, user).await });
    (ours, serving)
}

/// The client is gone: the connection ends. One that sent more than the server has read is missed only once something is
/// written to it, by the end of the server at the latest.
async fn end(store: &Store, served: &Served, mut serving: JoinHandle<()>) {
    let mut ended = settle(store, &mut serving).await;
    if ended.is_none() {
        served.stop();
        ended = settle(store, &mut serving).await;
    }
    if ended.is_none() {
        // Another thread still renders what was asked for (an OpenAPI document), and wakes it.
        ended = tokio::time::timeout(Duration::from_secs(20), serving).await.ok();
    }
    ended.expect("a connection without a client ends").expect("no panic");
}

/// The bytes that a client sends: HTTP/1.1 or HTTP/2. The first byte tells whether it is known, and in pieces of what size
/// they come.
pub fn connection(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let piece = [usize::MAX, 1, 7, 64][usize::from(how >> 1) % 4];
    with_server(|store, served| async move {
        let served = Arc::new(served);
        let (mut stream, serving) = connect(served.clone(), how & 1 == 0);
        let mut answer = 0;
        let mut buffer = vec![0; 16 << 10];
        for bytes in input.rest().chunks(piece.min(input.rest().len().max(1))) {
            if settle(&store, stream.write_all(bytes))
                .await
                .is_none_or(|sent| sent.is_err())
            {
                break;
            }
            // Between pieces the server gets a turn, at the end all that it can use.
            yield_now().await;
            store.commit();
        }
        while let Some(Ok(len)) = settle(&store, stream.read(&mut buffer)).await {
            answer += len;
            if len == 0 || answer > ANSWER_MAX {
                break;
            }
        }
        drop(stream);
        end(&store, &served, serving).await;
    });
}

/// Requests, one after the other on a connection, separated by the byte 0x1e. Each is a line with method, path and query;
/// lines with headers; an empty line; the body.
///
/// Every one is answered, none by an internal error; and an answer that says it is JSON is.
pub fn request(data: &[u8]) {
    let mut input = Input::new(data);
    with_server(|store, served| async move {
        let served = Arc::new(served);
        let mut client = None;
        for _ in 0..REQUESTS_MAX {
            if input.is_empty() {
                break;
            }
            let Some(request) = parse(input.until(0x1e)) else {
                continue;
            };
            let (mut sender, serving) = if let Some(client) = client.take() {
                client
            } else {
                let (stream, serving) = connect(served.clone(), true);
                let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
                let Some(Ok((sender, connection))) = settle(&store, handshake).await else {
                    panic!("the client's side of a handshake waits for nobody");
                };
                tokio::spawn(connection);
                (sender, serving)
            };
            let told = format!("{} {}", request.method(), request.uri());
            let answer = settle(&store, sender.send_request(request)).await;
            if let Some(Ok(answer)) = answer
                && look(&store, &told, answer).await
            {
                client = Some((sender, serving));
            } else {
                drop(sender);
                end(&store, &served, serving).await;
            }
        }
        if let Some((sender, serving)) = client {
            drop(sender);
            end(&store, &served, serving).await;
        }
    });
}

fn parse(text: &[u8]) -> Option<hyper::Request<Full<Bytes>>> {
    let mut input = Input::new(text);
    let first = std::str::from_utf8(input.until(b'\n')).ok()?;
    let (method, target) = first.split_once(' ')?;
    let mut request = hyper::Request::builder().method(method).uri(target);
    loop {
        let line = input.until(b'\n');
        if line.is_empty() {
            break;
        }
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(": ")?;
        // The client's own: a body as long as it says.
        if ["content-length", "transfer-encoding", "upgrade", "connection"]
            .contains(&name.to_ascii_lowercase().as_str())
        {
            return None;
        }
        request = request.header(name, value);
    }
    if method == "CONNECT" || method == "HEAD" {
        return None;
    }
    request.body(Full::new(Bytes::copy_from_slice(input.rest()))).ok()
}

/// Reads an answer; whether it was read to its end, so that the connection can take another request.
async fn look(store: &Store, told: &str, answer: hyper::Response<hyper::body::Incoming>) -> bool {
    let (head, mut body) = answer.into_parts();
    let mut text = Vec::new();
    let is_whole = loop {
        match settle(store, body.frame()).await {
            // A watch goes on.
            None => break false,
            Some(None) => break true,
            Some(Some(Ok(frame))) => {
                text.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
                if text.len() > ANSWER_MAX {
                    break false;
                }
            }
            Some(Some(Err(error))) => panic!("{told}: the answer broke off: {error}"),
        }
    };
    let header = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
    };
    let shown = String::from_utf8_lossy(&text);
    // Where upstream answers 500 to what a client did wrong, so does this server, without a reason.
    let is_internal = head.status.as_u16() == 500 && shown.contains(r#""reason":"InternalError""#);
    assert!(!is_internal, "{told}: {shown}");
    if is_whole && header("content-type") == "application/json" && header("content-encoding").is_empty() {
        for line in serde_json::Deserializer::from_slice(&text).into_iter::<serde_json::Value>() {
            line.unwrap_or_else(|error| panic!("{told}: {error}: {shown}"));
        }
    }
    is_whole
}
