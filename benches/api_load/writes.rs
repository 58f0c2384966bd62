//! Writes: creates and patches on a server that syncs each of them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::client::{Encoding, Question, Transport};
use crate::dataset::Served;
use crate::failure::Failure;
use crate::load::Load;
use crate::objects;
use crate::scenario::{Key, Round, Running, Scenario, Sets, State};
use crate::stage::{On, PICKED, SMALL, Stage};
use flatkube::store::Durability;

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Namespaces that created objects are spread over.
pub(crate) const NAMESPACES: u32 = 20;
/// Requests of one writer alone in a round.
pub(crate) const LONE: usize = 50;
/// Requests of many writers in a round.
const MANY: usize = 500;
/// Bare syncs before a round.
const SYNCS: usize = 20;

/// The number of the next object: no name is used twice in this process.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Numbers of objects that nobody else makes.
pub(crate) fn fresh_numbers(count: usize) -> std::ops::Range<usize> {
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    first..first + count
}

/// Makes the question with a number.
type Make = fn(usize) -> Question;

/// All writes, for a large store of `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, about, clients: usize, make: Make, objects: usize, compare: bool| {
        for transport in [Transport::Plain, Transport::Tls] {
            let state = if objects == 0 { State::Empty } else { State::Delta };
            all.push(Scenario {
                key: Key::plain(name, state, objects).over(transport, Encoding::Identity),
                about,
                clients,
                sets: Sets {
                    quick: true,
                    compare: compare && transport == Transport::Plain,
                    ..Sets::default()
                },
                open: Box::new(move |stage| Writes::open(stage, transport, clients, make, objects)),
            });
        }
    };
    add("create", "one ConfigMap a request", 32, create_config_map, 0, true);
    add("create_lone", "the same by one client", 1, create_config_map, 0, false);
    add("create_pod", "one Pod a request", 32, create_pod, 0, true);
    add("create_pod_lone", "the same by one client", 1, create_pod, 0, false);
    add(
        "patch",
        "one of 1,000 ConfigMaps a request",
        32,
        patch_config_map,
        SMALL,
        true,
    );
    add(
        "create",
        "one ConfigMap a request, beside many Pods",
        32,
        create_config_map,
        objects,
        false,
    );
    all
}

pub(crate) fn create_config_map(n: usize) -> Question {
    let seeded = objects::config_map(n as u64, NAMESPACES);
    let path = format!("/api/v1/namespaces/{}/configmaps", seeded.namespace);
    Question::write(Method::POST, path, JSON, seeded.body)
}

pub(crate) fn create_pod(n: usize) -> Question {
    let seeded = objects::pod(n as u64, NAMESPACES);
    let path = format!("/api/v1/namespaces/{}/pods", seeded.namespace);
    Question::write(Method::POST, path, JSON, seeded.body)
}

fn patch_config_map(n: usize) -> Question {
    let object = n % SMALL;
    let path = format!("/api/v1/namespaces/ns-{}/configmaps/object-{object:06}", object % 16);
    let body = json!({"data": {"key": format!("value {n}")}}).to_string();
    Question::write(Method::PATCH, path, MERGE_PATCH, body.into())
}

/// Whose server is written to.
enum WrittenTo {
    Own(Box<Served>),
    Stock(Rc<crate::stage::Stock>),
}

struct Writes {
    runtime: Rc<tokio::runtime::Runtime>,
    load: Load,
    probe: SyncProbe,
    make: Make,
    requests: usize,
    _server: WrittenTo,
}

impl Writes {
    fn open(
        stage: &mut Stage,
        transport: Transport,
        clients: usize,
        make: Make,
        objects: usize,
    ) -> Result<Box<dyn Running>, Failure> {
        let server = if objects > SMALL {
            WrittenTo::Stock(stage.stock(On::LargeDelta))
        } else {
            let served = Served::start(Durability::Fsync, true);
            if objects > 0 {
                served.fill_config_maps(objects, PICKED);
            }
            WrittenTo::Own(Box::new(served))
        };
        let served = match &server {
            WrittenTo::Own(served) => served,
            WrittenTo::Stock(stock) => &stock.served,
        };
        served.make_namespaces(NAMESPACES);
        let runtime = stage.runtime.clone();
        let load = runtime.block_on(async {
            let mut load = Load::connect(&served.target, transport, clients).await?;
            check(&mut load, &make(fresh_numbers(1).start)).await?;
            Ok(load)
        })?;
        let probe = SyncProbe::new(served, make(0).body.len());
        let requests = match (stage.effort.half_round.is_zero(), clients) {
            (true, clients) => clients,
            (false, 1) => LONE,
            (false, _) => MANY,
        };
        Ok(Box::new(Self {
            runtime,
            load,
            probe,
            make,
            requests,
            _server: server,
        }))
    }
}

/// What is answered is what was written, under a revision.
async fn check(load: &mut Load, question: &Question) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        #[serde(default)]
        data: serde_json::Value,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        name: String,
        #[serde(default, rename = "resourceVersion")]
        resource_version: String,
    }
    let body = load.first().read(question).await?;
    let wrong = |what: String| Failure::content(&question.path, what, &body);
    let parse = |bytes: &[u8]| {
        serde_json::from_slice::<serde_json::Value>(bytes).map_err(|error| wrong(format!("not JSON: {error}")))
    };
    let answered: Object =
        serde_json::from_value(parse(&body)?).map_err(|error| wrong(format!("no object: {error}")))?;
    let sent = parse(&question.body)?;
    if answered.metadata.resource_version.is_empty() {
        return Err(wrong("no resourceVersion".into()));
    }
    if let Some(name) = sent["metadata"]["name"].as_str()
        && answered.metadata.name != name
    {
        return Err(wrong(format!("the object {:?}, not {name:?}", answered.metadata.name)));
    }
    if let Some(key) = sent["data"]["key"].as_str()
        && answered.data["key"] != key
    {
        return Err(wrong("the patch is not in the answer".into()));
    }
    Ok(())
}

impl Running for Writes {
    fn ours(&mut self) -> Result<Round, Failure> {
        let syncs = (0..SYNCS).map(|_| self.probe.sync()).collect();
        // Made beforehand, so that rendering them is nobody's time.
        let questions: Vec<_> = fresh_numbers(self.requests).map(self.make).collect();
        let mut whole = self
            .runtime
            .block_on(self.load.run(self.requests, None, |n| questions[n].clone()))?;
        whole.bytes = questions.iter().map(|question| question.body.len() as u64).sum();
        Ok(Round {
            syncs,
            ..Round::from(whole)
        })
    }
}

/// Measures an append into allocated space and its `fdatasync`, on the file system of the server's log.
pub(crate) struct SyncProbe {
    file: File,
    bytes: Vec<u8>,
    offset: u64,
}

impl SyncProbe {
    /// Bytes that are allocated, so that no append extends the file.
    const ALLOCATED: u64 = 8 << 20;

    pub(crate) fn new(served: &Served, bytes: usize) -> Self {
        let file = File::create(served.data_dir.join("sync-probe")).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, Self::ALLOCATED).expect("space");
        file.sync_all().expect("a sync");
        Self {
            file,
            bytes: vec![b'x'; bytes],
            offset: 0,
        }
    }

    pub(crate) fn sync(&mut self) -> Duration {
        let begun = Instant::now();
        self.file.write_all_at(&self.bytes, self.offset).expect("a write");
        rustix::fs::fdatasync(&self.file).expect("a sync");
        self.offset = (self.offset + self.bytes.len() as u64) % (Self::ALLOCATED - (1 << 20));
        begun.elapsed()
    }
}
