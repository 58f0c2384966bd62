//! Whole requests: a complete server, asked over a connection. Counted is its thread: HTTP, routing, authentication and what
//! the request is about; not the client, nor the committer, whose work `commit_1` counts.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use flatkube::admission::plugins::Plugins;
use flatkube::api::read::Compress;
use flatkube::api::server::{KubeletAccess, Limits, Server, ServerConfig};
use flatkube::auth::AuthenticationOptions;
use flatkube::store::{Durability, Store};
use tokio::sync::oneshot;

use crate::fixtures::{Data, Fixtures};
use crate::region::counted_once;
use crate::stored::{self, pod_place};
use crate::{Scenario, opened};

/// A member of `system:masters`, for whom there are no limits ...
const MASTER: &str = "instructions";
/// ... and somebody who shares with others.
const USER: &str = "instructions-user";
/// What gives that one rights.
const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/user";
const BINDING: &[u8] = br#"{"metadata":{"name":"user"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",
    "kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","name":"user"}]}"#;
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Requests before it counts.
const WARM: usize = 5;
/// Longest answer that is asked for, bytes.
const ANSWER_LEN_MAX: usize = 8 << 20;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |name, rounds, run| Scenario {
        name,
        rounds,
        data: Data::Served,
        run,
    };
    vec![
        scenario("http_get", 500, |fixtures, rounds| get(fixtures, rounds, MASTER)),
        scenario("http_get_by_user", 500, |fixtures, rounds| get(fixtures, rounds, USER)),
        scenario("http_table_500", 10, |fixtures, rounds| {
            asked(fixtures, rounds, MASTER, |client, _| {
                client.get("/api/v1/pods?limit=500", TABLE);
            });
        }),
        scenario("http_create_pod_and_status", 20, |fixtures, rounds| {
            let pods: Vec<_> = (0..rounds as usize + WARM).map(new_pod).collect();
            asked(fixtures, rounds, MASTER, move |client, round| {
                create(client, &pods[round]);
            });
        }),
    ]
}

fn get(fixtures: &Fixtures, rounds: u64, token: &'static str) {
    let paths: Vec<String> = (0..100)
        .map(|number| {
            let (namespace, name) = pod_place(number);
            format!("/api/v1/namespaces/{namespace}/pods/{name}")
        })
        .collect();
    asked(fixtures, rounds, token, move |client, round| {
        client.get(&paths[round % paths.len()], "application/json");
    });
}

/// A Pod that is to be created in the namespace `default`.
struct NewPod {
    body: Vec<u8>,
    status_path: String,
    status: Vec<u8>,
}

fn new_pod(number: usize) -> NewPod {
    let (namespace, name) = pod_place(number);
    let body = String::from_utf8(stored::pod_body(number)).expect("JSON");
    let namespace = format!(r#""namespace":"{namespace}""#);
    NewPod {
        body: body.replace(&namespace, r#""namespace":"default""#).into_bytes(),
        status_path: format!("{PODS}/{name}/status"),
        status: stored::pod_status(number),
    }
}

/// Creates a Pod, then patches its status as a kubelet would.
fn create(client: &mut Client, pod: &NewPod) {
    let json = "application/json";
    client.exchange("POST", PODS, json, json, &pod.body);
    client.exchange(
        "PATCH",
        &pod.status_path,
        json,
        "application/merge-patch+json",
        &pod.status,
    );
}

/// Counts the server while a client on a thread of its own asks `rounds` times; `ask` is told how often it was asked before.
fn asked(fixtures: &Fixtures, rounds: u64, token: &'static str, ask: impl Fn(&mut Client, usize) + Send + 'static) {
    let served = Served::start(&fixtures.served_folder());
    let address = served.server.http_address().expect("an address");
    let (warm, is_warm) = oneshot::channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let (done, is_done) = oneshot::channel();
    let client = std::thread::spawn(move || {
        if token == USER {
            Client::of(address, MASTER).exchange("PUT", RIGHTS, "application/json", "application/json", BINDING);
        }
        let mut client = Client::of(address, token);
        (0..WARM).for_each(|round| ask(&mut client, round));
        warm.send(()).expect("somebody waits");
        may_go.recv().expect("it goes on");
        (0..rounds as usize).for_each(|round| ask(&mut client, WARM + round));
        done.send(()).expect("somebody waits");
    });
    served.runtime.block_on(is_warm).expect("no panic");
    counted_once(|| {
        go.send(()).expect("a client");
        served.runtime.block_on(is_done).expect("no panic");
    });
    client.join().expect("no panic");
    served.stop();
}

/// A server that runs on this thread, whenever its runtime does.
pub(crate) struct Served {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Served {
    pub(crate) fn start(folder: &Path) -> Self {
        let tokens = folder.join("tokens.csv");
        std::fs::write(&tokens, format!("{MASTER},counter,1,system:masters\n{USER},user,2\n")).expect("a file");
        let loopback = ([127, 0, 0, 1], 0).into();
        let config = ServerConfig {
            data_dir: folder.to_owned(),
            bind: loopback,
            http_bind: Some(loopback),
            authentication: AuthenticationOptions {
                token_auth_file: Some(tokens),
                ..AuthenticationOptions::default()
            },
            store: opened::options(Durability::Os),
            controllers: false,
            plugins: Plugins::without_accounts(),
            compress: Compress::default(),
            kubelets: KubeletAccess::default(),
            tls: flatkube::api::server::TlsOptions::default(),
            limits: Limits::default(),
            ..ServerConfig::default()
        };
        let runtime = opened::runtime();
        let server = runtime.block_on(Server::start(config)).expect("a server");
        Self { server, runtime }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.server.store()
    }

    pub(crate) fn stop(self) {
        self.runtime.block_on(self.server.stop());
    }
}

/// A blocking client on one connection.
struct Client {
    socket: TcpStream,
    token: &'static str,
    buffer: Vec<u8>,
}

impl Client {
    fn of(address: SocketAddr, token: &'static str) -> Self {
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        Self {
            socket,
            token,
            buffer: vec![0; ANSWER_LEN_MAX],
        }
    }

    fn get(&mut self, path: &str, accept: &str) {
        self.exchange("GET", path, accept, "", b"");
    }

    /// Sends a request and reads the whole answer, which must be a success.
    fn exchange(&mut self, method: &str, path: &str, accept: &str, content_type: &str, body: &[u8]) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nUser-Agent: kubelet/v1.36\r\n\
             Accept: {accept}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        self.socket
            .write_all(&[head.as_bytes(), body].concat())
            .expect("a connection");
        let mut filled = 0;
        let mut end = None;
        while end.is_none_or(|end: End| !end.is_reached(&self.buffer[..filled])) {
            let read = self.socket.read(&mut self.buffer[filled..]).expect("a connection");
            assert!(read > 0, "the server closed the connection, or the answer is too long");
            filled += read;
            end = end.or_else(|| End::of(&self.buffer[..filled]));
        }
        let answer = &self.buffer[..filled];
        assert!(
            answer.starts_with(b"HTTP/1.1 20"),
            "{method} {path}: {}",
            String::from_utf8_lossy(&answer[..filled.min(500)])
        );
    }
}

/// Where an answer ends.
#[derive(Clone, Copy)]
enum End {
    /// After so many bytes.
    At(usize),
    /// With its last chunk.
    LastChunk,
}

impl End {
    /// `None` while the head is not there.
    fn of(answer: &[u8]) -> Option<Self> {
        let head_len = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&answer[..head_len]).expect("a head");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        Some(length.map_or(Self::LastChunk, |length| Self::At(head_len + length)))
    }

    fn is_reached(self, answer: &[u8]) -> bool {
        match self {
            Self::At(end) => answer.len() >= end,
            Self::LastChunk => answer.ends_with(b"\r\n0\r\n\r\n"),
        }
    }
}
