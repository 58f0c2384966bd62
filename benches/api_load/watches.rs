//! Watches: how soon an event is there, and what it costs to send it to many.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use http_body_util::BodyExt as _;
use serde::Deserialize;

use crate::client::{Client, Encoding, Question, Target, Transport};
use crate::cost::stopwatch;
use crate::dataset::{self, Served};
use crate::failure::Failure;
use crate::limit::Limit;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::stage::{SMALL, Stage};
use crate::writes::{self, LONE, SyncProbe};
use flatkube::store::Durability;

pub(crate) const WATCH: &str = "/api/v1/configmaps?watch=true";
/// Events of a round of fan-out, divided by watchers.
const SENT: usize = 2_000;

/// All watches. Events are not compressed, so there is no gzip among them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for transport in [Transport::Plain, Transport::Tls] {
        let is_plain = transport == Transport::Plain;
        all.push(Scenario {
            key: Key::plain("watch_latency", State::Empty, 0).over(transport, Encoding::Identity),
            about: "from sending a create until another client has its event",
            clients: 1,
            sets: Sets {
                quick: true,
                ..Sets::default()
            },
            open: Box::new(move |stage| WatchLatency::open(stage, transport)),
        });
        for (name, watchers) in [("watch_fanout_100", 100), ("watch_fanout_1000", 1_000)] {
            all.push(Scenario {
                key: Key::plain(name, State::Delta, 1).over(transport, Encoding::Identity),
                about: "one write's event to each of many watchers; an operation is an event of one of them",
                clients: watchers,
                sets: Sets {
                    quick: watchers <= SMALL / 10,
                    compare: watchers <= SMALL / 10 && is_plain,
                    lone_round: false,
                },
                open: Box::new(move |stage| FanOut::open(stage, transport, watchers)),
            });
        }
    }
    all
}

struct WatchLatency {
    runtime: Rc<tokio::runtime::Runtime>,
    watcher: Watcher,
    writer: Client,
    probe: SyncProbe,
    events: usize,
    _served: Served,
}

impl WatchLatency {
    fn open(stage: &mut Stage, transport: Transport) -> Result<Box<dyn Running>, Failure> {
        let served = Served::start(Durability::Fsync, true);
        served.make_namespaces(writes::NAMESPACES);
        let runtime = stage.runtime.clone();
        let (watcher, writer) = runtime.block_on(async {
            let mut watcher = Watcher::open(&served.target, transport, WATCH).await?;
            watcher.until_quiet().await?;
            let mut writer = Client::connect(&served.target, transport).await?;
            let question = writes::create_config_map(writes::fresh_numbers(1).start);
            writer.ask(&question).await?;
            watcher.next().await?.check("ADDED", &name_in(&question.body))?;
            Ok((watcher, writer))
        })?;
        let probe = SyncProbe::new(&served, writes::create_config_map(0).body.len());
        Ok(Box::new(Self {
            runtime,
            watcher,
            writer,
            probe,
            events: if stage.effort.half_round.is_zero() { 5 } else { LONE },
            _served: served,
        }))
    }
}

fn name_in(body: &[u8]) -> String {
    let object: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

impl Running for WatchLatency {
    fn ours(&mut self) -> Result<Round, Failure> {
        let Self {
            watcher,
            writer,
            probe,
            events,
            ..
        } = self;
        self.runtime.block_on(async {
            let mut batch = Batch::default();
            let mut syncs = Vec::new();
            // The probes are the client's, so their CPU is not counted; their time is not in any latency.
            let stop = stopwatch();
            for number in writes::fresh_numbers(*events) {
                let question = writes::create_config_map(number);
                syncs.push(probe.sync());
                let begun = Instant::now();
                let (answer, event) = tokio::join!(writer.ask(&question), async {
                    let event = watcher.next().await;
                    event.map(|event| (event, begun.elapsed()))
                });
                answer?;
                let (event, took) = event?;
                batch.bytes += event.0.len() as u64;
                batch.took.push(took);
            }
            batch.cost = stop();
            Ok(Round {
                syncs,
                ..Round::from(batch)
            })
        })
    }
}

/// Many watchers of the server, and as many of a bare server that sends a constant event of the same size.
struct FanOut {
    runtime: Rc<tokio::runtime::Runtime>,
    ours: Vec<Watcher>,
    theirs: Vec<Watcher>,
    events: usize,
    limit: Limit,
    served: Served,
}

impl FanOut {
    fn open(stage: &mut Stage, transport: Transport, watchers: usize) -> Result<Box<dyn Running>, Failure> {
        let served = Served::start(Durability::Os, false);
        let limit = Limit::start(&served.data_dir);
        let runtime = stage.runtime.clone();
        let (ours, theirs) = runtime.block_on(async {
            let (resource, object) = dataset::config_map(0, false);
            dataset::write(&served.store, resource, &object).await;
            let revision = served.store.view().revision();
            let path = format!("{WATCH}&resourceVersion={revision}");
            let mut ours = Vec::new();
            for _ in 0..watchers {
                ours.push(Watcher::open(&served.target, transport, &path).await?);
            }
            dataset::write(&served.store, resource, &object).await;
            let mut event_len = 0;
            for watcher in &mut ours {
                let event = watcher.next().await?;
                event.check("MODIFIED", "object-000000")?;
                event_len = event.0.len();
            }
            limit.set_event(Bytes::from([vec![b'x'; event_len - 1], b"\n".to_vec()].concat()));
            let mut theirs = Vec::new();
            for _ in 0..watchers {
                theirs.push(Watcher::open(&limit.target, transport, "/?watch").await?);
            }
            Ok((ours, theirs))
        })?;
        Ok(Box::new(Self {
            runtime,
            events: if stage.effort.half_round.is_zero() {
                1
            } else {
                (SENT / watchers).max(2)
            },
            ours,
            theirs,
            limit,
            served,
        }))
    }
}

/// Waits for the next event of each.
async fn everywhere(watchers: &mut [Watcher], batch: &mut Batch) -> Result<(), Failure> {
    let begun = Instant::now();
    let events = watchers.iter_mut().map(|watcher| async move {
        let event = watcher.next().await?;
        Ok((begun.elapsed(), event.0.len()))
    });
    for (took, len) in try_join_all(events).await? {
        batch.took.push(took);
        batch.bytes += len as u64;
    }
    Ok(())
}

impl Running for FanOut {
    fn ours(&mut self) -> Result<Round, Failure> {
        let (resource, object) = dataset::config_map(0, false);
        let mut batch = Batch::default();
        self.runtime.clone().block_on(async {
            let stop = stopwatch();
            for _ in 0..self.events {
                dataset::write(&self.served.store, resource, &object).await;
                everywhere(&mut self.ours, &mut batch).await?;
            }
            batch.cost = stop();
            Ok(batch.into())
        })
    }

    fn limit(&mut self) -> Result<Option<Batch>, Failure> {
        let mut batch = Batch::default();
        self.runtime.clone().block_on(async {
            let stop = stopwatch();
            for _ in 0..self.events {
                self.limit.send_event();
                everywhere(&mut self.theirs, &mut batch).await?;
            }
            batch.cost = stop();
            Ok(Some(batch))
        })
    }
}

/// One event: a line.
pub(crate) struct Event(pub(crate) Bytes);

impl Event {
    /// Judges its type and whose it is.
    pub(crate) fn check(&self, kind: &str, name: &str) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Whole {
            r#type: String,
            object: Object,
        }
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            name: String,
        }
        let wrong = |what: String| Failure::content(WATCH, what, &self.0);
        let event: Whole = serde_json::from_slice(&self.0).map_err(|error| wrong(format!("not an event: {error}")))?;
        if event.r#type != kind || event.object.metadata.name != name {
            return Err(wrong(format!("not the event {kind} of {name:?}")));
        }
        Ok(())
    }
}

/// One watch on a connection of its own.
pub(crate) struct Watcher {
    _client: Client,
    path: String,
    body: hyper::body::Incoming,
    buffer: BytesMut,
}

impl Watcher {
    pub(crate) async fn open(target: &Target, transport: Transport, path: &str) -> Result<Self, Failure> {
        let mut client = Client::connect(target, transport).await?;
        let body = client.send(&Question::get(path)).await?;
        Ok(Self {
            _client: client,
            path: path.to_owned(),
            body,
            buffer: BytesMut::new(),
        })
    }

    pub(crate) async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok(Event(self.buffer.split_to(end + 1).freeze()));
            }
            let frame = self.body.frame().await;
            let frame = frame.ok_or_else(|| Failure::content(&self.path, "the watch ended", &self.buffer))?;
            let frame = frame.map_err(|error| Failure::connection(&self.path, error))?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Reads what was there before.
    pub(crate) async fn until_quiet(&mut self) -> Result<(), Failure> {
        while let Ok(event) = tokio::time::timeout(Duration::from_millis(50), self.next()).await {
            event?;
        }
        Ok(())
    }
}
