//! One thing while another goes on: lists while 2,000 writes a second are made, creates while the server shelves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use crate::answer::Expected;
use crate::client::{Client, Encoding, Question, Target, Transport};
use crate::dataset;
use crate::failure::Failure;
use crate::load::Load;
use crate::reads::TABLE;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::stage::{On, PICKED, Stage, Stock};
use crate::writes::{create_config_map, fresh_numbers};

/// Writes a second that lists are measured beside.
const WRITES_PER_S: u64 = 2_000;
/// Connections that make them; each writes once in a beat.
const WRITERS: usize = 32;
const BEAT: Duration = Duration::from_micros(1_000_000 * WRITERS as u64 / WRITES_PER_S);
/// Lists of one round; creates of a quiet round.
const LISTS: usize = 2_000;
const CREATES: usize = 640;

/// Both, for a large store of `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    let sets = Sets {
        quick: true,
        ..Sets::default()
    };
    vec![
        Scenario {
            key: Key::plain("list_under_writes", State::Live, objects),
            about: "Tables of 500 Pods while 2,000 Pods a second are patched; .quiet: while none is",
            clients: 4,
            sets,
            open: Box::new(ListUnderWrites::open),
        },
        Scenario {
            key: Key::plain("create_while_shelving", State::Live, objects),
            about: "one ConfigMap a request while all shelves of the Pods are rewritten; .quiet: while none is",
            clients: 32,
            sets,
            open: Box::new(CreateWhileShelving::open),
        },
    ]
}

struct ListUnderWrites {
    runtime: Rc<tokio::runtime::Runtime>,
    load: Load,
    question: Question,
    lists: usize,
    writers: Writers,
    _stock: Rc<Stock>,
}

impl ListUnderWrites {
    fn open(stage: &mut Stage) -> Result<Box<dyn Running>, Failure> {
        let stock = stage.stock(On::LargeLive);
        let runtime = stage.runtime.clone();
        let question = Question::get("/api/v1/pods?limit=500").accept(TABLE);
        let load = runtime.block_on(async {
            let mut load = Load::connect(&stock.served.target, Transport::Plain, 4).await?;
            let body = load.first().read(&question).await?;
            Expected::Count(500).check(&question.path, Encoding::Identity, &body)?;
            Ok(load)
        })?;
        Ok(Box::new(Self {
            runtime,
            load,
            question,
            lists: if stage.effort.half_round.is_zero() { 4 } else { LISTS },
            writers: Writers::start(stock.served.target.clone(), stage.objects),
            _stock: stock,
        }))
    }

    fn lists(&mut self) -> Result<Batch, Failure> {
        let question = &self.question;
        self.runtime
            .block_on(self.load.run(self.lists, None, |_| question.clone()))
    }
}

impl Running for ListUnderWrites {
    fn ours(&mut self) -> Result<Round, Failure> {
        let quiet = self.lists()?;
        self.writers.go_on();
        let (begun, written) = (Instant::now(), self.writers.written());
        let whole = self.lists();
        let rate = (self.writers.written() - written) as f64 / begun.elapsed().as_secs_f64();
        self.writers.pause()?;
        if self.lists == LISTS && rate < WRITES_PER_S as f64 * 0.9 {
            eprintln!("  note: {rate:.0} writes a second, not {WRITES_PER_S}");
        }
        Ok(Round {
            whole: whole?,
            parts: vec![("quiet", quiet)],
            is_mixed: true,
            ..Round::default()
        })
    }
}

/// A thread with its own clients that patches Pods at a fixed rate.
struct Writers {
    shared: Arc<Paced>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

#[derive(Default)]
struct Paced {
    is_going: AtomicBool,
    is_over: AtomicBool,
    written: AtomicU64,
}

impl Writers {
    fn start(target: Target, objects: usize) -> Self {
        let shared = Arc::new(Paced::default());
        let paced = shared.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            let writers = (0..WRITERS).map(|writer| write(&target, &paced, writer, objects));
            runtime.block_on(futures_util::future::try_join_all(writers)).map(drop)
        };
        let thread = std::thread::Builder::new()
            .name("writers".to_owned())
            .spawn(run)
            .expect("a thread");
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Returns when writes are being made.
    fn go_on(&self) {
        let before = self.written();
        self.shared.is_going.store(true, Ordering::Relaxed);
        while self.written() < before + WRITERS as u64 && !self.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pause(&mut self) -> Result<(), Failure> {
        self.shared.is_going.store(false, Ordering::Relaxed);
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(thread) => thread.join().expect("no panic"),
            None => Ok(()),
        }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn write(target: &Target, paced: &Paced, writer: usize, objects: usize) -> Result<(), Failure> {
    let mut client = Client::connect(target, Transport::Plain).await?;
    let mut beat = tokio::time::interval(BEAT);
    let mut number = writer;
    loop {
        beat.tick().await;
        if paced.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        if paced.is_going.load(Ordering::Relaxed) {
            client.ask(&patch_pod(number % objects, number)).await?;
            paced.written.fetch_add(1, Ordering::Relaxed);
            // Coprime to the writers' count, so that all Pods have their turn.
            number += WRITERS * 31;
        }
    }
}

/// A patch such as a controller makes: an annotation, with a value of its own each time.
fn patch_pod(n: usize, value: usize) -> Question {
    let body = json!({"metadata": {"annotations": {"bench.example.com/at": value.to_string()}}}).to_string();
    let path = crate::reads::pod_path(n);
    Question::write(Method::PATCH, path, "application/merge-patch+json", body.into())
}

struct CreateWhileShelving {
    runtime: Rc<tokio::runtime::Runtime>,
    load: Load,
    creates: usize,
    objects: usize,
    rounds: usize,
    stock: Rc<Stock>,
}

impl CreateWhileShelving {
    fn open(stage: &mut Stage) -> Result<Box<dyn Running>, Failure> {
        let stock = stage.stock(On::LargeShelved);
        let runtime = stage.runtime.clone();
        let load = runtime.block_on(Load::connect(&stock.served.target, Transport::Plain, 32))?;
        Ok(Box::new(Self {
            runtime,
            load,
            creates: if stage.effort.half_round.is_zero() { 32 } else { CREATES },
            objects: stage.objects,
            rounds: 0,
            stock,
        }))
    }

    fn creates(&mut self, count: usize) -> Result<Batch, Failure> {
        let questions: Vec<_> = fresh_numbers(count).map(create_config_map).collect();
        self.runtime
            .block_on(self.load.run(count, None, |n| questions[n].clone()))
    }

    /// Updates a few Pods of every part of the shelves, so that all parts are due.
    fn touch(&mut self) {
        self.rounds += 1;
        let (objects, round) = (self.objects, self.rounds);
        self.stock.served.fill((0..objects).step_by(100).map(|n| {
            let (resource, mut object) = dataset::pod(n, dataset::is_picked(n, objects, PICKED));
            object["metadata"]["annotations"]["bench.example.com/touched"] = round.to_string().into();
            (resource, object)
        }));
    }
}

impl Running for CreateWhileShelving {
    fn ours(&mut self) -> Result<Round, Failure> {
        let quiet = self.creates(self.creates)?;
        self.touch();
        let store = self.stock.served.store.clone();
        let shelving = std::thread::spawn(move || store.maintain(true));
        let mut whole = Batch::default();
        while !shelving.is_finished() {
            let batch = self.creates(32)?;
            whole.took.extend(batch.took);
            whole.bytes += batch.bytes;
            whole.cost.wall += batch.cost.wall;
        }
        shelving.join().expect("no panic");
        if whole.took.is_empty() {
            whole = self.creates(32)?;
        }
        Ok(Round {
            whole,
            parts: vec![("quiet", quiet)],
            is_mixed: true,
            ..Round::default()
        })
    }
}
