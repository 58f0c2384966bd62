//! Many connections that ask at once, and one question held against the limit.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;

use crate::client::{Client, Question, Target, Transport, drain};
use crate::cost::stopwatch;
use crate::failure::Failure;
use crate::reads::TABLE;
use crate::scenario::{Batch, Round, Running};
use crate::stage::{Stage, Stock};

/// A group of connections to one server, driven from the calling thread.
pub(crate) struct Load {
    clients: Vec<Client>,
    until: Until,
}

/// When an answer counts as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When all of its body has been read.
    End,
    /// When the first bytes of its body have; the rest is read afterwards.
    FirstByte,
}

impl Load {
    pub(crate) async fn connect(target: &Target, transport: Transport, clients: usize) -> Result<Self, Failure> {
        let mut connected = Vec::with_capacity(clients);
        for _ in 0..clients {
            connected.push(Client::connect(target, transport).await?);
        }
        Ok(Self {
            clients: connected,
            until: Until::End,
        })
    }

    pub(crate) fn first(&mut self) -> &mut Client {
        &mut self.clients[0]
    }

    /// Asks `requests` times in all, every connection one question after the other. Answers must have a length in `len`,
    /// where that is given.
    pub(crate) async fn run(
        &mut self,
        requests: usize,
        len: Option<&RangeInclusive<u64>>,
        question: impl Fn(usize) -> Question,
    ) -> Result<Batch, Failure> {
        let connections = self.clients.len();
        let next = Cell::new(0);
        let until = self.until;
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
                    let received = match until {
                        Until::End => {
                            let received = client.ask(&question).await?;
                            took.push(begun.elapsed());
                            received
                        }
                        Until::FirstByte => {
                            let mut body = client.send(&question).await?;
                            let first = first_bytes(&mut body, &question.path).await?;
                            took.push(begun.elapsed());
                            first + drain(body, &question.path).await?
                        }
                    };
                    if let Some(len) = len
                        && !len.contains(&received)
                    {
                        let what = format!("an answer of {received} bytes, not {len:?}");
                        return Err(Failure::content(&question.path, what, b""));
                    }
                    bytes += received;
                }
                Ok((took, bytes))
            }
        });
        for (took, bytes) in try_join_all(jobs).await? {
            batch.took.extend(took);
            batch.bytes += bytes;
        }
        batch.cost = stop();
        Ok(batch)
    }
}

async fn first_bytes(body: &mut hyper::body::Incoming, path: &str) -> Result<u64, Failure> {
    use http_body_util::BodyExt as _;
    loop {
        match body.frame().await {
            None => return Err(Failure::content(path, "an empty body", b"")),
            Some(Err(error)) => return Err(Failure::connection(path, error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return Ok(data.len() as u64),
                _ => {}
            },
        }
    }
}

/// One question, asked again and again of the server and of the limit.
pub(crate) struct Read {
    runtime: Rc<tokio::runtime::Runtime>,
    question: Question,
    ours: Load,
    limit: Load,
    /// Its limit's body is set anew before each round: other questions use the same one.
    stock: Rc<Stock>,
    limit_body: Vec<Bytes>,
    requests: usize,
    len: RangeInclusive<u64>,
}

/// What a [`Read`] is made of.
pub(crate) struct Asked {
    pub(crate) stock: Rc<Stock>,
    pub(crate) transport: Transport,
    pub(crate) clients: usize,
    pub(crate) question: Question,
    pub(crate) until: Until,
}

impl Read {
    /// `check` judges a whole answer, as it came.
    pub(crate) fn open(
        stage: &Stage,
        asked: Asked,
        check: impl FnOnce(&Bytes) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let Asked {
            stock,
            transport,
            clients,
            question,
            until,
        } = asked;
        let runtime = stage.runtime.clone();
        let mut ours = runtime.block_on(Load::connect(&stock.served.target, transport, clients))?;
        let body = runtime.block_on(ours.first().read(&question))?;
        check(&body)?;
        let len = body.len() as u64;
        let slack = if question.accept == TABLE { AGES_LEN_MAX } else { 0 };
        // Not in the runtime: a large body is written to a file that is mapped.
        let limit_body = crate::limit::body_like(&body);
        stock.limit.set_body(limit_body.clone());
        let (limit, requests) = runtime.block_on(async {
            let mut limit = Load::connect(&stock.limit.target, transport, clients).await?;
            limit.first().ask(&question).await?;
            ours.until = until;
            limit.until = until;
            let requests = calibrate(&mut ours, &question, stage.effort.half_round).await?;
            Ok((limit, requests))
        })?;
        Ok(Self {
            runtime,
            question,
            ours,
            limit,
            stock,
            limit_body,
            requests,
            len: len - slack.min(len)..=len + slack,
        })
    }
}

impl Running for Read {
    fn ours(&mut self) -> Result<Round, Failure> {
        let question = &self.question;
        let round = self.ours.run(self.requests, Some(&self.len), |_| question.clone());
        Ok(self.runtime.block_on(round)?.into())
    }

    fn limit(&mut self) -> Result<Option<Batch>, Failure> {
        self.stock.limit.set_body(self.limit_body.clone());
        let question = &self.question;
        let round = self.limit.run(self.requests, Some(&self.len), |_| question.clone());
        Ok(Some(self.runtime.block_on(round)?))
    }
}

/// How much longer or shorter a Table gets while it is measured, as ages of what the server itself made pass from `59s` to
/// `60s` and on; compressed, too. Bytes.
const AGES_LEN_MAX: u64 = 256;
/// Fewest requests of a half round.
const REQUESTS_MIN: usize = 3;

/// How many requests take about `half_round`; warms up on the way.
async fn calibrate(load: &mut Load, question: &Question, half_round: Duration) -> Result<usize, Failure> {
    let fewest = if half_round.is_zero() {
        1
    } else {
        REQUESTS_MIN.max(load.clients.len())
    };
    if half_round.is_zero() {
        return Ok(fewest);
    }
    let mut requests = fewest;
    loop {
        let batch = load.run(requests, None, |_| question.clone()).await?;
        if batch.cost.wall >= half_round / 4 {
            let scaled = requests as f64 * half_round.as_secs_f64() / batch.cost.wall.as_secs_f64();
            return Ok((scaled as usize).max(fewest));
        }
        requests *= 4;
    }
}
