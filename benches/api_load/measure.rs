//! Rounds in which the server and the limit take turns, so that whatever else the machine does meets both alike.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::client::{Client, Cost, Question, Target, Transport, stopwatch};
use crate::report::{Latency, Row};

/// Time that a half round (server or limit) should take.
const HALF_ROUND: Duration = Duration::from_millis(120);
/// Fewest requests of a half round.
const REQUESTS_MIN: usize = 3;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Rounds; the median of each figure is reported.
    pub(crate) rounds: usize,
}

/// A group of connections to one server, driven from the calling thread.
pub(crate) struct Load {
    clients: Vec<Client>,
}

impl Load {
    pub(crate) async fn connect(target: &Target, transport: Transport, clients: usize) -> Self {
        let mut connected = Vec::with_capacity(clients);
        for _ in 0..clients {
            connected.push(Client::connect(target, transport).await);
        }
        Self { clients: connected }
    }

    pub(crate) fn first(&mut self) -> &mut Client {
        &mut self.clients[0]
    }

    /// Asks `requests` times in all, every connection one question after the other.
    pub(crate) async fn run(&mut self, requests: usize, question: impl Fn(usize) -> Question) -> Batch {
        let connections = self.clients.len();
        let next = std::cell::Cell::new(0);
        let mut batch = Batch::default();
        let stop = stopwatch();
        let jobs = self.clients.iter_mut().map(|client| {
            let (next, question) = (&next, &question);
            async move {
                let mut took = Vec::with_capacity(requests / connections + 1);
                let mut bytes = 0;
                while next.get() < requests {
                    let number = next.get();
                    next.set(number + 1);
                    let question = question(number);
                    let begun = Instant::now();
                    bytes += client.ask(&question).await;
                    took.push(begun.elapsed());
                }
                (took, bytes)
            }
        });
        for (took, bytes) in futures_util::future::join_all(jobs).await {
            batch.took.extend(took);
            batch.bytes += bytes;
        }
        batch.cost = stop();
        batch
    }
}

/// What one batch of requests took.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) took: Vec<Duration>,
    pub(crate) bytes: u64,
    pub(crate) cost: Cost,
}

impl Batch {
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cost.server_cpu.as_secs_f64() * 1e6 / self.took.len() as f64
    }

    pub(crate) fn rate(&self) -> f64 {
        self.took.len() as f64 / self.cost.wall.as_secs_f64()
    }
}

/// Measures a question against the limit that answers `limit_body`. `check` judges a whole answer before anything is timed.
pub(crate) async fn read(
    name: &str,
    sides: Sides<'_>,
    clients: usize,
    question: &Question,
    check: impl Fn(&[u8]),
) -> Row {
    let Sides {
        server,
        limit,
        transport,
        effort,
        ..
    } = sides;
    let mut ours = Load::connect(server, transport, clients).await;
    let body = ours.first().read(question).await;
    check(&body);
    let bytes = body.len();
    drop(body);
    limit.set_body(sides_body(bytes, &sides));
    let mut bare = Load::connect(&limit.target, transport, clients).await;
    assert_eq!(bare.first().ask(question).await, bytes as u64);

    let requests = calibrate(&mut ours, question).await;
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        // Who goes first changes, so that neither always runs in the other's caches.
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                them.push(bare.run(requests, |_| question.clone()).await);
            } else {
                us.push(ours.run(requests, |_| question.clone()).await);
            }
        }
    }
    for batch in us.iter().chain(&them) {
        assert_eq!(
            batch.bytes,
            (bytes * requests) as u64,
            "{name}: an answer of another length"
        );
    }
    Row {
        name: name.to_owned(),
        transport: transport.name().to_owned(),
        clients,
        requests: requests * effort.rounds,
        bytes: bytes as u64,
        rate: median(us.iter().map(Batch::rate)),
        latency: Latency::of(us.iter().flat_map(|batch| batch.took.iter().copied())),
        cpu_us: median(us.iter().map(Batch::cpu_us)),
        limit_rate: Some(median(them.iter().map(Batch::rate))),
        limit_latency: Some(Latency::of(them.iter().flat_map(|batch| batch.took.iter().copied()))),
        limit_cpu_us: Some(median(them.iter().map(Batch::cpu_us))),
        cpu_share: Some(median(
            us.iter().zip(&them).map(|(us, them)| them.cpu_us() / us.cpu_us()),
        )),
        rate_share: Some(median(us.iter().zip(&them).map(|(us, them)| us.rate() / them.rate()))),
        fdatasync: None,
    }
}

/// What a measurement stands between.
#[derive(Clone, Copy)]
pub(crate) struct Sides<'a> {
    pub(crate) server: &'a Target,
    pub(crate) limit: &'a crate::limit::Limit,
    pub(crate) transport: Transport,
    pub(crate) effort: Effort,
    /// Makes a body of so many bytes out of mapped slices.
    pub(crate) mapped: &'a dyn Fn(usize) -> Vec<Bytes>,
}

/// Bodies from this size on are answered by the limit from mapped files, smaller ones from memory.
const MAPPED_LEN_MIN: usize = 256 * 1024;

fn sides_body(len: usize, sides: &Sides<'_>) -> Vec<Bytes> {
    if len < MAPPED_LEN_MIN {
        vec![Bytes::from(vec![b'x'; len])]
    } else {
        (sides.mapped)(len)
    }
}

/// How many requests take about [`HALF_ROUND`]; warms up on the way.
async fn calibrate(load: &mut Load, question: &Question) -> usize {
    let mut requests = REQUESTS_MIN.max(load.clients.len());
    loop {
        let batch = load.run(requests, |_| question.clone()).await;
        if batch.cost.wall >= HALF_ROUND / 4 {
            let scaled = requests as f64 * HALF_ROUND.as_secs_f64() / batch.cost.wall.as_secs_f64();
            return (scaled as usize).max(REQUESTS_MIN).max(load.clients.len());
        }
        requests *= 4;
    }
}

/// The middle one.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
