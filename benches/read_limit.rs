//! What reads cost, held against the limit: a bare hyper server in the same process that answers a constant body of the same
//! length over the same transport (loopback, HTTP/1.1, one connection).
//!
//! Both are measured by the CPU time of the server's thread, taken by turns in short rounds, so that neighbours on the
//! machine disturb neither. `share` is the limit's CPU time divided by ours: 1.00 = nothing but the transport.
//!
//! ```text
//! cargo bench --bench read_limit            # 10,000 objects
//! cargo bench --bench read_limit -- 100000
//! cargo bench --bench read_limit -- shelved     # only the rows whose name contains the word
//! ```

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flatkube::api::body::{Body, Response};
use flatkube::api::negotiate::{Answer, MetaVersion, Shape};
use flatkube::api::read::{self, Reader};
use flatkube::api::request::{Query, RequestInfo, Verb};
use flatkube::api::{Stopper, Stopping};
use flatkube::auth::User;
use flatkube::resources::{self, Resource};
use flatkube::store::disk::RealDisk;
use flatkube::store::{
    ArchiveError, Archiver, Change, Durability, Options, Precondition, Prepared, RowFrame, Run, Selection, Store, Write,
};
use flatkube_format::sidecar::Sidecar;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;

/// Rounds whose best decides; each runs limit and reading once.
const ROUNDS: usize = 31;
/// CPU time that one half of a round should take.
const HALF_ROUND: Duration = Duration::from_millis(15);

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let large = arguments
        .iter()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(10_000);
    let only = arguments
        .into_iter()
        .find(|argument| argument.parse::<usize>().is_err())
        .unwrap_or_default();
    println!(
        "{:<46} {:>10} {:>10} {:>10} {:>7}",
        "what", "bytes", "limit µs", "µs", "share"
    );
    let measure = |fixture: &Fixture, rows: &[(&str, &str)]| {
        let mut last = None;
        for (what, path) in rows.iter().filter(|(what, _)| what.contains(&only)) {
            last = Some(fixture.measure(what, path));
        }
        last
    };
    let small = Fixture::new(1_000, 100);
    small.shelve();
    measure(
        &small,
        &[
            ("get", "/v1/ns-0/configmaps/object-000000"),
            ("list 1,000 shelved", "/list"),
            ("list 1,000 shelved, limit=500", "/list?limit=500"),
            ("list 1,000 shelved, one by one", "/list?labelSelector=app!%3Dnone"),
            ("table 1,000 shelved", "/table"),
            ("table 1,000 shelved, no objects", "/table?includeObject=None"),
        ],
    );
    let by_label = [("label: 100 of 1,000 shelved", "/list?labelSelector=pick%3Dyes")];
    let of_small = measure(&small, &by_label);
    let fresh = Fixture::new(1_000, 100);
    measure(
        &fresh,
        &[
            ("get from the delta", "/v1/ns-0/configmaps/object-000000"),
            ("list 1,000 from the delta", "/list"),
            ("label: 100 of 1,000 from the delta", "/list?labelSelector=pick%3Dyes"),
        ],
    );
    if !only.is_empty() && !"label: 100 of many, shelved".contains(&only) {
        return;
    }
    let big = Fixture::new(large, 100);
    big.shelve();
    let name = format!("label: 100 of {large} shelved");
    let of_large = big.measure(&name, "/list?labelSelector=pick%3Dyes");
    if let Some(of_small) = of_small {
        println!("100 of {large} costs {:.2} times 100 of 1,000", of_large / of_small);
    }
}

/// A store with ConfigMaps and a server thread in front of it.
struct Fixture {
    store: Arc<Store>,
    address: SocketAddr,
    limit: Arc<Mutex<Bytes>>,
    _directory: tempfile::TempDir,
    _stopper: Stopper,
}

impl Fixture {
    /// `objects` ConfigMaps of about 1.4 KB in 16 namespaces; `picked` of them, evenly spread, carry `pick=yes`.
    fn new(objects: usize, picked: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let disk = Arc::new(RealDisk::create(directory.path()).expect("a data directory"));
        let options = Options {
            durability: Durability::Os,
            background: false,
            ..Options::default()
        };
        let store = Store::open(disk, options, Arc::new(KindArchiver)).expect("a store");
        fill(&store, objects, picked);
        let (stopper, stopping) = Stopper::new();
        let limit = Arc::new(Mutex::new(Bytes::new()));
        let address = serve(store.clone(), stopping, limit.clone());
        Self {
            store,
            address,
            limit,
            _directory: directory,
            _stopper: stopper,
        }
    }

    fn shelve(&self) {
        self.store.maintain(true);
        let view = self.store.view();
        let mut listing = view.list("configmaps", flatkube::store::Range::default(), &Selection::all());
        let run = listing.next(16).expect("intact bytes");
        assert!(matches!(run, Some(Run::Shelved(_))), "the store is shelved");
    }

    /// `body` in a mapped file: behind the revision of a shelved object that is not JSON.
    fn mapped(&self, body: &[u8]) -> Bytes {
        let json = [b"{\"\"}", body].concat();
        let sidecar = Sidecar {
            splice: 2,
            metadata_tail: 2,
            ..Sidecar::default()
        };
        let prepared = Prepared {
            json,
            splice: 2,
            sidecar: sidecar.archive(),
        };
        write(&self.store, "limits", "limit".to_owned(), Precondition::Any, prepared);
        self.store.maintain(true);
        let object = self
            .store
            .view()
            .get("limits", "limit")
            .expect("intact bytes")
            .expect("an object");
        let stored = object.json_bytes().expect("intact bytes");
        stored.slice(stored.len() - body.len()..)
    }

    /// Prints a row; returns microseconds of CPU a request.
    fn measure(&self, what: &str, path: &str) -> f64 {
        let mut client = Client::new(self.address);
        let body = client.get(path);
        assert!(
            body.starts_with(b"{\"kind\":"),
            "{}",
            String::from_utf8_lossy(&body[..body.len().min(300)])
        );
        *self.limit.lock().expect("no panic") = if body.len() < MAPPED_LEN_MIN {
            Bytes::from(body.clone())
        } else {
            self.mapped(&body)
        };
        let requests = client.calibrate(path);
        let (mut limit, mut ours) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            limit = limit.min(client.cpu_us("/limit", requests));
            ours = ours.min(client.cpu_us(path, requests));
        }
        println!(
            "{what:<46} {:>10} {limit:>10.1} {ours:>10.1} {:>7.2}",
            body.len(),
            limit / ours
        );
        ours
    }
}

/// Limits from this length on lie in a mapped file, as the bodies do that are held against them, in bytes.
const MAPPED_LEN_MIN: usize = 64 * 1024;

struct KindArchiver;

impl Archiver for KindArchiver {
    fn layout(&self, resource: &str) -> u32 {
        resources::layout(resource)
    }

    fn archive(&self, _: &str, _: &str, _: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        unreachable!("the layout does not change")
    }

    fn row_frame(&self, resource: &str) -> Option<RowFrame> {
        resources::KindArchiver.row_frame(resource)
    }
}

fn configmaps() -> &'static Resource {
    resources::find("", "v1", "configmaps").expect("a built-in resource")
}

fn fill(store: &Arc<Store>, objects: usize, picked: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let every = objects / picked;
    runtime.block_on(async {
        let mut writes = tokio::task::JoinSet::new();
        for n in 0..objects {
            let namespace = format!("ns-{}", n % 16);
            let name = format!("object-{n:06}");
            let mut object = json!({
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": format!("00000000-0000-4000-8000-{n:012}"),
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                    "labels": {"app": format!("app-{}", n % 50), "tier": "back"},
                },
                "data": {"key": "v".repeat(600), "other": "w".repeat(450)},
            });
            if n % every == 0 {
                object["metadata"]["labels"]["pick"] = json!("yes");
            }
            let prepared = resources::encode(configmaps(), &object).expect("a valid object");
            let write = Write {
                resource: "configmaps".into(),
                key: format!("{namespace}/{name}"),
                precondition: Precondition::Absent,
                uid: None,
                change: Change::Put(prepared),
            };
            let store = store.clone();
            writes.spawn(async move { store.write(write).await.map(drop) });
            if writes.len() >= 256 {
                writes
                    .join_next()
                    .await
                    .expect("a task")
                    .expect("no panic")
                    .expect("a write");
            }
        }
        while let Some(done) = writes.join_next().await {
            done.expect("no panic").expect("a write");
        }
    });
}

/// Makes one write and waits for it.
fn write(store: &Store, resource: &str, key: String, precondition: Precondition, prepared: Prepared) {
    let change = Change::Put(prepared);
    let write = Write {
        resource: resource.into(),
        key,
        precondition,
        uid: None,
        change,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(store.write(write)).expect("a write");
}

/// A server on a thread of its own, which tells its CPU time at `/cpu`.
fn serve(store: Arc<Store>, stopping: Stopping, limit: Arc<Mutex<Bytes>>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reader = Arc::new(Reader {
        store,
        stopping,
        continue_key: [1; 32],
        compress: read::Compress::default(),
    });
    let serving = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            listener.set_nonblocking(true).expect("a socket");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            while let Ok((socket, _)) = listener.accept().await {
                let (reader, limit) = (reader.clone(), limit.clone());
                let service = service_fn(move |request| {
                    let (reader, limit) = (reader.clone(), limit.clone());
                    async move { Ok::<_, Infallible>(answer(&reader, &limit, &request).await) }
                });
                socket.set_nodelay(true).expect("a socket");
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .max_buf_size(64 * 1024)
                        .serve_connection(TokioIo::new(socket), service),
                );
            }
        });
    };
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(serving)
        .expect("a thread");
    address
}

async fn answer(reader: &Reader, limit: &Mutex<Bytes>, request: &http::Request<hyper::body::Incoming>) -> Response {
    let path = request.uri().path();
    let mut info = RequestInfo {
        verb: Verb::List,
        resource: configmaps(),
        subresource: None,
        namespace: None,
        name: None,
        query: Query::new(request.uri().query().unwrap_or("")),
        answer: Answer::default(),
        user: Arc::new(User::default()),
        peer: ([127, 0, 0, 1], 1).into(),
        headers: request.headers().clone(),
    };
    let answered = match path {
        "/limit" => return Response::new(Body::from(limit.lock().expect("no panic").clone())),
        "/cpu" => return Response::new(Body::from(thread_cpu_ns().to_string().into_bytes())),
        "/list" => read::list(reader, &info).await,
        "/table" => {
            info.answer.shape = Shape::Table(MetaVersion::V1);
            read::list(reader, &info).await
        }
        path => {
            let mut names = path.rsplit('/');
            info.verb = Verb::Get;
            info.name = names.next().map(str::to_owned);
            info.namespace = names.nth(1).map(str::to_owned);
            read::get(reader, &info).await
        }
    };
    answered.unwrap_or_else(flatkube::api::status::Status::into_response)
}

/// Nanoseconds that this thread has run, from the kernel's scheduler.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// A blocking client that reads bodies whole, of known length or in chunks.
struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        Self {
            socket,
            buffer: vec![0; 256 * 1024],
        }
    }

    /// How many requests take about [`HALF_ROUND`].
    fn calibrate(&mut self, path: &str) -> usize {
        let us = self.cpu_us(path, 20).max(1.0);
        ((HALF_ROUND.as_micros() as f64 / us) as usize).max(20)
    }

    /// Microseconds of server CPU a request.
    fn cpu_us(&mut self, path: &str, requests: usize) -> f64 {
        let begun = self.server_cpu_ns();
        for _ in 0..requests {
            self.exchange(path, None);
        }
        (self.server_cpu_ns() - begun) as f64 / 1000.0 / requests as f64
    }

    fn server_cpu_ns(&mut self) -> u64 {
        let body = self.get("/cpu");
        std::str::from_utf8(&body).expect("digits").parse().expect("digits")
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        let mut body = Vec::new();
        self.exchange(path, Some(&mut body));
        body
    }

    fn exchange(&mut self, path: &str, mut body: Option<&mut Vec<u8>>) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        self.socket.write_all(request.as_bytes()).expect("a connection");
        let mut head = Vec::new();
        let mut rest = loop {
            let n = self.read();
            head.extend_from_slice(&self.buffer[..n]);
            if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                break head.split_off(end + 4);
            }
        };
        let head = String::from_utf8(head).expect("a head").to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
        if let Some(length) = length {
            let mut left = length - rest.len();
            while left > 0 {
                let n = self.read();
                left -= n;
                if body.is_some() {
                    rest.extend_from_slice(&self.buffer[..n]);
                }
            }
            if let Some(body) = body {
                body.append(&mut rest);
            }
            return;
        }
        // Chunked: the end is the only place where a chunk of no bytes stands; JSON does not contain it.
        while !rest.ends_with(b"\r\n0\r\n\r\n") {
            let n = self.read();
            if body.is_none() && rest.len() > 16 {
                rest.drain(..rest.len() - 16);
            }
            rest.extend_from_slice(&self.buffer[..n]);
        }
        if let Some(body) = body.take() {
            unchunk(&rest, body);
        }
    }

    fn read(&mut self) -> usize {
        let n = self.socket.read(&mut self.buffer).expect("a connection");
        assert!(n > 0, "the server closed the connection");
        n
    }
}

fn unchunk(mut chunks: &[u8], body: &mut Vec<u8>) {
    loop {
        let line_end = chunks
            .windows(2)
            .position(|window| window == b"\r\n")
            .expect("a chunk size");
        let size = std::str::from_utf8(&chunks[..line_end]).expect("a chunk size");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            return;
        }
        let begin = line_end + 2;
        body.extend_from_slice(&chunks[begin..begin + size]);
        chunks = &chunks[begin + size + 2..];
    }
}
