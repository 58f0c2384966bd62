//! Writes and what follows from them: creates, patches, how soon a watcher knows, many watchers.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::client::{Client, Question, Transport, stopwatch};
use crate::dataset::{self, Served};
use crate::limit::Limit;
use crate::measure::{Batch, Effort, Load, median};
use crate::objects;
use crate::report::{Latency, Row};
use flatkube::store::Durability;

/// All scenarios of this file.
pub(crate) const NAMES: [&str; 7] = [
    "create ConfigMap, lone",
    "create ConfigMap, 32 writers",
    "create Pod, lone",
    "create Pod, 32 writers",
    "patch ConfigMap, 32 writers",
    "watch_latency",
    "watch_fanout 100",
];

/// Requests of one writer alone in a round.
const LONE: usize = 50;
/// Requests of many writers in a round.
const MANY: usize = 1_000;
const WATCHERS: usize = 100;
/// Events of a round of fan-out.
const EVENTS: usize = 20;

/// Runs one scenario on an empty server that syncs each write.
pub(crate) fn run(runtime: &tokio::runtime::Runtime, name: &str, transport: Transport, effort: Effort) -> Row {
    let served = Served::start(Durability::Fsync, true);
    if name.starts_with("patch") {
        served.fill_config_maps(1_000, 100);
    }
    let limit = Limit::start(&served.data_dir);
    runtime.block_on(async {
        for number in 0..20 {
            let body = Bytes::from(objects::namespace(number).to_string());
            let mut client = Client::connect(&served.target, transport).await;
            client
                .ask(&Question::write(Method::POST, "/api/v1/namespaces".into(), JSON, body))
                .await;
        }
        match name {
            "create ConfigMap, lone" => create(name, &served, transport, effort, 1, config_map).await,
            "create ConfigMap, 32 writers" => create(name, &served, transport, effort, 32, config_map).await,
            "create Pod, lone" => create(name, &served, transport, effort, 1, pod).await,
            "create Pod, 32 writers" => create(name, &served, transport, effort, 32, pod).await,
            "patch ConfigMap, 32 writers" => patch(name, &served, transport, effort).await,
            "watch_latency" => watch_latency(name, &served, transport, effort).await,
            _ => fan_out(name, &served, &limit, transport, effort).await,
        }
    })
}

const JSON: &str = "application/json";

fn config_map(n: usize) -> Question {
    let seeded = objects::config_map(n as u64, 20);
    let path = format!("/api/v1/namespaces/{}/configmaps", seeded.namespace);
    Question::write(Method::POST, path, JSON, seeded.body)
}

fn pod(n: usize) -> Question {
    let seeded = objects::pod(n as u64, 20);
    let path = format!("/api/v1/namespaces/{}/pods", seeded.namespace);
    Question::write(Method::POST, path, JSON, seeded.body)
}

/// Creates objects `0..` that the seed command would make.
async fn create(
    name: &str,
    served: &Served,
    transport: Transport,
    effort: Effort,
    clients: usize,
    question: fn(usize) -> Question,
) -> Row {
    let requests = if clients == 1 { LONE } else { MANY };
    // Made beforehand, so that rendering them is nobody's time.
    let questions: Vec<_> = (0..requests * (effort.rounds + 1)).map(question).collect();
    timed_by_turns(name, served, transport, effort, clients, &questions).await
}

async fn patch(name: &str, served: &Served, transport: Transport, effort: Effort) -> Row {
    let questions: Vec<_> = (0..MANY * (effort.rounds + 1))
        .map(|n| {
            let object = n % 1_000;
            let path = format!("/api/v1/namespaces/ns-{}/configmaps/object-{object:06}", object % 16);
            let body = json!({"data": {"key": format!("value {n}")}}).to_string();
            Question::write(Method::PATCH, path, "application/merge-patch+json", body.into())
        })
        .collect();
    timed_by_turns(name, served, transport, effort, 32, &questions).await
}

/// Sends the questions in equal rounds, the first of which warms up; before each round, bare syncs are measured.
async fn timed_by_turns(
    name: &str,
    served: &Served,
    transport: Transport,
    effort: Effort,
    clients: usize,
    questions: &[Question],
) -> Row {
    let requests = questions.len() / (effort.rounds + 1);
    let bytes = questions[0].body.len();
    let mut load = Load::connect(&served.target, transport, clients).await;
    let mut probe = SyncProbe::new(served, bytes);
    let mut batches = Vec::new();
    let mut syncs = Vec::new();
    for (round, questions) in questions.chunks(requests).enumerate() {
        let sync = (0..LONE).map(|_| probe.sync()).collect::<Vec<_>>();
        let batch = load.run(requests, |n| questions[n].clone()).await;
        if round > 0 {
            batches.push(batch);
            syncs.extend(sync);
        }
    }
    row(name, transport, clients, bytes, &batches, syncs)
}

fn row(name: &str, transport: Transport, clients: usize, bytes: usize, batches: &[Batch], syncs: Vec<Duration>) -> Row {
    Row {
        name: name.to_owned(),
        transport: transport.name().to_owned(),
        clients,
        requests: batches.iter().map(|batch| batch.took.len()).sum(),
        bytes: bytes as u64,
        rate: median(batches.iter().map(Batch::rate)),
        latency: Latency::of(batches.iter().flat_map(|batch| batch.took.iter().copied())),
        cpu_us: median(batches.iter().map(Batch::cpu_us)),
        limit_rate: None,
        limit_latency: None,
        limit_cpu_us: None,
        cpu_share: None,
        rate_share: None,
        fdatasync: Some(Latency::of(syncs.into_iter())),
    }
}

/// Measures an append into allocated space and its `fdatasync`, on the file system of the server's log.
struct SyncProbe {
    file: File,
    bytes: Vec<u8>,
    offset: u64,
}

impl SyncProbe {
    /// Bytes that are allocated, so that no append extends the file.
    const ALLOCATED: u64 = 64 << 20;

    fn new(served: &Served, bytes: usize) -> Self {
        let file = File::create(served.data_dir.join("sync-probe")).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, Self::ALLOCATED).expect("space");
        file.sync_all().expect("a sync");
        Self {
            file,
            bytes: vec![b'x'; bytes],
            offset: 0,
        }
    }

    fn sync(&mut self) -> Duration {
        let begun = Instant::now();
        self.file.write_all_at(&self.bytes, self.offset).expect("a write");
        rustix::fs::fdatasync(&self.file).expect("a sync");
        self.offset = (self.offset + self.bytes.len() as u64) % (Self::ALLOCATED - (1 << 20));
        begun.elapsed()
    }
}

/// The time from sending a create until its event was read whole from another connection's watch.
async fn watch_latency(name: &str, served: &Served, transport: Transport, effort: Effort) -> Row {
    let mut watcher = Watcher::open(&served.target, transport, "/api/v1/configmaps?watch=true").await;
    watcher.until_quiet().await;
    let mut writer = Client::connect(&served.target, transport).await;
    let mut probe = SyncProbe::new(served, config_map(0).body.len());
    let (mut batches, mut syncs) = (Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let mut batch = Batch::default();
        let stop = stopwatch();
        for n in 0..LONE {
            let question = config_map(round * LONE + n);
            let sync = probe.sync();
            let begun = Instant::now();
            let (_, took) = tokio::join!(writer.ask(&question), async {
                watcher.next().await;
                begun.elapsed()
            });
            batch.took.push(took);
            if round > 0 {
                syncs.push(sync);
            }
        }
        batch.cost = stop();
        if round > 0 {
            batches.push(batch);
        }
    }
    row(name, transport, 1, config_map(0).body.len(), &batches, syncs)
}

/// Events of one write to each of many watchers, against a bare server that sends a constant event to as many.
async fn fan_out(name: &str, served: &Served, limit: &Limit, transport: Transport, effort: Effort) -> Row {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..WATCHERS {
        let mut watcher = Watcher::open(&served.target, transport, "/api/v1/configmaps?watch=true").await;
        watcher.until_quiet().await;
        ours.push(watcher);
        theirs.push(Watcher::open(&limit.target, transport, "/?watch").await);
    }
    let mut written = 0;
    let mut event_len = 0;
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let mut batch = Batch::default();
        let objects: Vec<_> = (0..EVENTS).map(|n| dataset::config_map(written + n, false)).collect();
        written += EVENTS;
        let stop = stopwatch();
        for (resource, object) in &objects {
            dataset::write(&served.store, resource, object).await;
            let begun = Instant::now();
            for event in futures_util::future::join_all(ours.iter_mut().map(Watcher::next)).await {
                event_len = event.len();
                batch.took.push(begun.elapsed());
            }
        }
        batch.cost = stop();
        limit.set_event(Bytes::from([vec![b'x'; event_len - 1], b"\n".to_vec()].concat()));
        // The limit takes the new event with new streams only.
        if round == 0 {
            for watcher in &mut theirs {
                *watcher = Watcher::open(&limit.target, transport, "/?watch").await;
            }
        }
        let mut bare = Batch::default();
        let stop = stopwatch();
        for _ in 0..EVENTS {
            limit.send_event();
            let begun = Instant::now();
            for _ in futures_util::future::join_all(theirs.iter_mut().map(Watcher::next)).await {
                bare.took.push(begun.elapsed());
            }
        }
        bare.cost = stop();
        if round > 0 {
            us.push(batch);
            them.push(bare);
        }
    }
    let bare = row(name, transport, WATCHERS, event_len, &them, Vec::new());
    Row {
        limit_rate: Some(bare.rate),
        limit_latency: Some(bare.latency),
        limit_cpu_us: Some(bare.cpu_us),
        cpu_share: Some(median(
            us.iter().zip(&them).map(|(us, them)| them.cpu_us() / us.cpu_us()),
        )),
        rate_share: Some(median(us.iter().zip(&them).map(|(us, them)| us.rate() / them.rate()))),
        fdatasync: None,
        ..row(name, transport, WATCHERS, event_len, &us, Vec::new())
    }
}

/// One watch on a connection of its own.
struct Watcher {
    _client: Client,
    body: hyper::body::Incoming,
    buffer: BytesMut,
}

impl Watcher {
    async fn open(target: &crate::client::Target, transport: Transport, path: &str) -> Self {
        let mut client = Client::connect(target, transport).await;
        let answer = client.send(&Question::get(path)).await;
        assert!(answer.status.is_success(), "{} {path}", answer.status);
        Self {
            _client: client,
            body: answer.body,
            buffer: BytesMut::new(),
        }
    }

    /// The next event: a line.
    async fn next(&mut self) -> Bytes {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return self.buffer.split_to(end + 1).freeze();
            }
            let frame = self
                .body
                .frame()
                .await
                .expect("a watch that goes on")
                .expect("intact frames");
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Reads what was there before.
    async fn until_quiet(&mut self) {
        while tokio::time::timeout(Duration::from_millis(50), self.next())
            .await
            .is_ok()
        {}
    }
}
