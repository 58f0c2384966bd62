//! A user who asks for all there is, and one who asks for little: how much of the one is done before the other is answered.
//! What is counted is requests, not time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flatkube::api::server::Limits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Client, first_line};
use crate::{GREEDY, LONG, MODEST, Started};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Requests that the greedy user has under way all the time.
const UNDER_WAY: usize = 200;

/// A user with [`UNDER_WAY`] requests under way, on a thread of its own, until it is dropped.
struct Greedy {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Greedy {
    /// Sends the same request again and again, each on a connection of its own, and only looks at the code of the answer.
    fn asking(address: SocketAddr, method: &str, path: &str, more: &str, body: &str) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let asks_on = goes_on.clone();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {GREEDY}\r\n{more}connection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let ask = async move |answer: &mut Vec<u8>| {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(request.as_bytes()).await.unwrap();
            answer.clear();
            socket.read_to_end(answer).await.unwrap();
            let code = answer.get(9..12).unwrap_or_default();
            assert!(matches!(code, b"200" | b"201" | b"429"), "{:?}", answer.get(..200));
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let one = async || {
                let mut answer = Vec::new();
                while asks_on.load(Ordering::Relaxed) {
                    ask(&mut answer).await;
                }
            };
            runtime
                .unwrap()
                .block_on(futures_util::future::join_all((0..UNDER_WAY).map(|_| one())));
        });
        Self {
            goes_on,
            thread: Some(thread),
        }
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn map(generate_name: &str, keys: usize) -> Value {
    let data: serde_json::Map<String, Value> = (0..keys).map(|n| (format!("k{n}"), json!(""))).collect();
    json!({"metadata": {"generateName": generate_name}, "data": data})
}

/// The sum of a whole-numbered figure over all its labels that begin so.
async fn metric(admin: &Client, name: &str) -> usize {
    let answer = admin.get("/metrics").await;
    let text = answer.body.as_str().unwrap().to_owned();
    text.lines()
        .filter_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<usize>().ok())
        .sum()
}

async fn until_greedy(started: &Started) {
    let admin = started.admin();
    let begun = async {
        while metric(&admin, "apiserver_flowcontrol_current_inqueue_requests").await < UNDER_WAY / 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, begun).await.expect("nobody has to wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_a_greedy_user_do_not_stand_before_those_of_another() {
    let started = Started::usual().await;
    let modest = started.client(MODEST);
    let address = started.server.http_address().unwrap();
    let greedy = Greedy::asking(address, "POST", MAPS, "", &map("greedy-", 1500).to_string());
    until_greedy(&started).await;
    // Each write raises the revision by one: between two of the modest user's are those of the greedy one that were
    // done while the first answer was on its way, and the second request.
    let mut revisions = Vec::new();
    for _ in 0..20 {
        let answer = timeout(LONG, modest.post(MAPS, &map("modest-", 1)))
            .await
            .expect("starved");
        assert_eq!(answer.code, 201);
        let revision: u64 = answer.body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        revisions.push(revision);
    }
    drop(greedy);
    let mut between: Vec<u64> = revisions.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
    between.sort_unstable();
    println!("writes of the greedy user between two of the modest one: {between:?}");
    assert!(between[between.len() / 2] <= 16, "{between:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_greedy_user_do_not_stand_before_reads_of_another() {
    let started = Started::usual().await;
    let (admin, modest) = (started.admin(), started.client(MODEST));
    for _ in 0..500 {
        assert_eq!(admin.post(MAPS, &map("m-", 3)).await.code, 201);
    }
    let address = started.server.http_address().unwrap();
    let table = "accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
    let greedy = Greedy::asking(address, "GET", MAPS, table, "");
    until_greedy(&started).await;
    let dispatched = "apiserver_flowcontrol_dispatched_requests_total{priority_level=\"global-default\"";
    let mut between = Vec::new();
    for _ in 0..20 {
        let before = metric(&admin, dispatched).await;
        let answer = timeout(LONG, modest.get("/api/v1/namespaces/default"))
            .await
            .expect("starved");
        assert_eq!(answer.code, 200);
        between.push(metric(&admin, dispatched).await - before - 1);
    }
    drop(greedy);
    between.sort_unstable();
    println!("lists of the greedy user during one read of the modest one: {between:?}");
    // Where clients, this one too, share the cores with the server, what the client waits for a core counts as well, and only adds.
    assert!(between[between.len() / 4] <= 40, "{between:?}");
}

/// Begins a write with a body of 100 KB, of which half comes.
async fn half_a_body(address: SocketAddr, token: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 100000\r\n\r\n{}",
        " ".repeat(50_000)
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

#[tokio::test]
async fn large_bodies_that_do_not_come_hold_up_their_own_user_alone() {
    let limits = Limits {
        large_bodies: 4,
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let admin = started.admin();
    let mut slow = Vec::new();
    for _ in 0..10 {
        slow.push(half_a_body(started.server.http_address().unwrap(), GREEDY).await);
    }
    let all_wait = async {
        while metric(&admin, "apiserver_flowcontrol_current_inqueue_requests").await < 8 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, all_wait)
        .await
        .expect("more bodies are read than there are places");
    assert_eq!(
        metric(&admin, "flatkube_flowcontrol_places_taken{pool=\"large bodies\"}").await,
        2
    );
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(90_000)}});
    let answer = started.client(MODEST).post(MAPS, &large).await;
    assert_eq!(answer.code, 201);
    // Who hangs up leaves the line and gives back the place.
    drop(slow);
    let all_left = async {
        while metric(&admin, "flatkube_flowcontrol_places_taken{pool=\"large bodies\"}").await > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, all_left).await.expect("places are not given back");
}

#[tokio::test]
async fn a_large_body_has_to_come_at_some_rate() {
    let limits = Limits {
        body_grace: Duration::from_millis(100),
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let mut socket = half_a_body(started.server.http_address().unwrap(), MODEST).await;
    assert_eq!(first_line(&mut socket).await, "HTTP/1.1 504");
}

#[tokio::test]
async fn watches_of_a_user_are_bounded_and_those_of_masters_are_not() {
    let limits = Limits {
        watches: 4,
        ..Limits::default()
    };
    let started = Started::with(limits, false).await;
    let watch = format!("{MAPS}?watch=1");
    let mut open = Vec::new();
    for (token, codes) in [
        (GREEDY, [200, 200, 429]),
        (MODEST, [200, 429, 429]),
        (crate::ADMIN, [200; 3]),
    ] {
        for code in codes {
            let answer = started.client(token).open("GET", &watch, "", "".into()).await;
            assert_eq!(answer.status(), code, "{token}");
            if code == 429 {
                assert_eq!(answer.headers()["retry-after"], "1");
            }
            open.push(answer);
        }
    }
    assert_eq!(
        metric(&started.admin(), "apiserver_flowcontrol_rejected_requests_total").await,
        3
    );
}
