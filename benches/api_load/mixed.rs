//! A cluster's day at once: people list, Helm reads and writes its releases, kubelets beat and tell statuses, controllers
//! watch. Each part's own latency is reported.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, try_join_all};
use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::answer::Expected;
use crate::client::{Client, Encoding, Question, Target, Transport};
use crate::cost::stopwatch;
use crate::dataset;
use crate::failure::Failure;
use crate::reads::{TABLE, pod_path};
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::stage::{On, Stage, Stock};
use crate::watches::Watcher;
use crate::writes::fresh_numbers;

/// Over TLS and HTTP/2: what all these clients speak.
const TRANSPORT: Transport = Transport::Tls;
const NODES: usize = 500;
/// Heartbeats and Pod statuses a second: those of 500 nodes.
const HEARTBEATS_PER_S: u64 = 50;
const STATUSES_PER_S: u64 = 50;
const RELEASES: usize = 200;
/// Length of a release's payload, as Helm stores charts with their values, bytes.
const RELEASE_LEN: usize = 20_000;
/// Watches of controllers on Leases, and as many on Pods.
const WATCHES: usize = 10;
const MERGE_PATCH: &str = "application/merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// The mix, on `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    vec![Scenario {
        key: Key::plain("mixed", State::Live, objects).over(TRANSPORT, Encoding::Identity),
        about: "lists, Tables, Helm's releases, heartbeats, statuses and controllers' watches, all at once",
        clients: 10,
        sets: Sets {
            quick: true,
            ..Sets::default()
        },
        open: Box::new(Mixed::open),
    }]
}

/// How a part asks: its client, how often it asked, and the question that comes next.
struct Part {
    name: &'static str,
    client: Client,
    /// Time from one question to the next; none: as soon as the answer is there.
    pace: Option<Duration>,
    question: Box<dyn FnMut(usize) -> Question>,
    asked: usize,
}

struct Mixed {
    runtime: Rc<tokio::runtime::Runtime>,
    parts: Vec<Part>,
    watchers: Vec<Watcher>,
    duration: Duration,
    _stock: Rc<Stock>,
}

impl Mixed {
    fn open(stage: &mut Stage) -> Result<Box<dyn Running>, Failure> {
        let stock = stage.stock(On::LargeLive);
        let objects = stage.objects;
        stock
            .served
            .fill((0..RELEASES).map(|n| dataset::release(n, RELEASE_LEN)));
        stock.served.fill((0..NODES).map(dataset::lease));
        let target = &stock.served.target;
        let runtime = stage.runtime.clone();
        let (parts, watchers) = runtime.block_on(async {
            let parts = parts(target, objects).await?;
            check(target).await?;
            let revision = stock.served.store.view().revision();
            let mut watchers = Vec::new();
            for path in [LEASES, "/api/v1/pods"] {
                let path = format!("{path}?watch=true&resourceVersion={revision}&allowWatchBookmarks=true");
                for _ in 0..WATCHES {
                    watchers.push(Watcher::open(target, TRANSPORT, &path).await?);
                }
            }
            Ok((parts, watchers))
        })?;
        Ok(Box::new(Self {
            runtime,
            parts,
            watchers,
            duration: (stage.effort.half_round * 20).max(Duration::from_millis(100)),
            _stock: stock,
        }))
    }
}

/// What Helm's read of one release is.
fn release_of(n: usize) -> Question {
    let n = n % RELEASES;
    Question::get(format!("{SECRETS}?labelSelector=owner%3Dhelm%2Cname%3Drelease-{n:04}"))
}

async fn check(target: &Target) -> Result<(), Failure> {
    let mut client = Client::connect(target, TRANSPORT).await?;
    let body = client.read(&release_of(7)).await?;
    Expected::AtLeast(1).check(&release_of(7).path, Encoding::Identity, &body)?;
    let page = Question::get("/api/v1/pods?limit=500").accept(TABLE);
    let body = client.read(&page).await?;
    Expected::Count(500).check(&page.path, Encoding::Identity, &body)
}

async fn parts(target: &Target, objects: usize) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    let mut add = async |name, clients: u32, per_s: Option<u64>, make: fn(usize, usize) -> Question| {
        for _ in 0..clients {
            parts.push(Part {
                name,
                client: Client::connect(target, TRANSPORT).await?,
                pace: per_s.map(|per_s| Duration::from_secs(1) * clients / per_s as u32),
                question: Box::new(move |n| make(n, objects)),
                asked: 0,
            });
        }
        Ok::<_, Failure>(())
    };
    add("lists", 1, None, |n, objects| {
        // A namespace: that of some Pod.
        let path = pod_path(n % objects);
        Question::get(path[..path.rfind('/').unwrap_or(path.len())].to_owned() + "?limit=500")
    })
    .await?;
    add("tables", 1, None, |_, _| {
        Question::get("/api/v1/pods?limit=500").accept(TABLE)
    })
    .await?;
    add("release_reads", 1, None, |n, _| release_of(n)).await?;
    add("release_writes", 1, Some(20), |_, _| {
        let n = fresh_numbers(1).start;
        let (_, object) = dataset::release(RELEASES + n, RELEASE_LEN);
        Question::write(
            Method::POST,
            SECRETS.into(),
            "application/json",
            object.to_string().into(),
        )
    })
    .await?;
    add("heartbeats", 2, Some(HEARTBEATS_PER_S), |_, _| {
        let n = fresh_numbers(1).start;
        let body = json!({"spec": {"renewTime": format!("2026-01-02T03:04:05.{:06}Z", n % 1_000_000)}});
        let path = format!("{LEASES}/{}", dataset::node_name(n % NODES));
        Question::write(Method::PATCH, path, MERGE_PATCH, body.to_string().into())
    })
    .await?;
    add("statuses", 2, Some(STATUSES_PER_S), |_, objects| {
        let n = fresh_numbers(1).start;
        let body = json!({"status": {"message": format!("at {n}")}});
        let path = pod_path(n * 31 % objects) + "/status";
        Question::write(Method::PATCH, path, MERGE_PATCH, body.to_string().into())
    })
    .await?;
    Ok(parts)
}

/// When each object was last written, by its name.
type Sent = RefCell<HashMap<String, Instant>>;

impl Part {
    async fn go_on(&mut self, duration: Duration, sent: &Sent) -> Result<(&'static str, Batch), Failure> {
        let mut batch = Batch::default();
        let whole = Instant::now();
        let mut beat = self.pace.map(tokio::time::interval);
        while batch.took.is_empty() || whole.elapsed() < duration {
            if let Some(beat) = &mut beat {
                beat.tick().await;
            }
            let question = (self.question)(self.asked);
            self.asked += 1;
            let begun = Instant::now();
            if question.method == Method::PATCH {
                let path = question.path.trim_end_matches("/status");
                let name = path.rsplit('/').next().unwrap_or_default();
                sent.borrow_mut().insert(name.to_owned(), begun);
            }
            batch.bytes += self.client.ask(&question).await?;
            batch.took.push(begun.elapsed());
        }
        batch.cost.wall = whole.elapsed();
        Ok((self.name, batch))
    }
}

/// Events until `duration` is over: the time from sending the write to having read the event.
async fn follow(watcher: &mut Watcher, duration: Duration, sent: &Sent) -> Result<(&'static str, Batch), Failure> {
    #[derive(Deserialize)]
    struct Event {
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        name: String,
    }
    let mut batch = Batch::default();
    let whole = Instant::now();
    while let Ok(event) = tokio::time::timeout(duration.saturating_sub(whole.elapsed()), watcher.next()).await {
        let event = event?;
        let now = Instant::now();
        let parsed: Event =
            serde_json::from_slice(&event.0).map_err(|error| Failure::content("watch", error.to_string(), &event.0))?;
        if let Some(begun) = sent.borrow().get(&parsed.object.metadata.name) {
            batch.took.push(now - *begun);
            batch.bytes += event.0.len() as u64;
        }
    }
    batch.cost.wall = whole.elapsed();
    Ok(("events", batch))
}

impl Running for Mixed {
    fn ours(&mut self) -> Result<Round, Failure> {
        let duration = self.duration;
        let sent = Sent::default();
        let mut jobs: Vec<LocalBoxFuture<'_, Result<(&'static str, Batch), Failure>>> = Vec::new();
        for part in &mut self.parts {
            jobs.push(Box::pin(part.go_on(duration, &sent)));
        }
        for watcher in &mut self.watchers {
            jobs.push(Box::pin(follow(watcher, duration, &sent)));
        }
        let (cost, done) = self.runtime.block_on(async {
            let stop = stopwatch();
            let done = try_join_all(jobs).await?;
            Ok((stop(), done))
        })?;
        let mut round = Round::default();
        round.whole.cost = cost;
        for (name, batch) in done {
            if name != "events" {
                round.whole.took.extend(&batch.took);
                round.whole.bytes += batch.bytes;
            }
            match round.parts.iter_mut().find(|(part, _)| *part == name) {
                Some((_, all)) => {
                    all.took.extend(batch.took);
                    all.bytes += batch.bytes;
                    all.cost.wall = all.cost.wall.max(batch.cost.wall);
                }
                None => round.parts.push((name, batch)),
            }
        }
        Ok(round)
    }
}
