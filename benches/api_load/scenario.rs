//! What can be measured: a scenario has a key by which its figures are found again, and opens into rounds.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::{Encoding, Transport};
use crate::cost::Cost;
use crate::failure::Failure;
use crate::stage::Stage;

/// What a row of figures is about; no two rows of a run are alike in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) transport: Transport,
    pub(crate) encoding: Encoding,
    pub(crate) state: State,
    /// Objects of the kind that is asked for.
    pub(crate) objects: usize,
}

/// Where the objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing but what the scenario itself writes.
    Empty,
    /// All on shelves.
    Shelved,
    /// All in the delta.
    Delta,
    /// On shelves, and a quarter of them in the delta too: no larger delta stays unshelved.
    #[serde(rename = "delta full")]
    DeltaFull,
    /// On shelves that are not in the page cache, in a server that has just started.
    Cold,
    /// In a server that shelves while it is asked.
    Live,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Empty => "empty",
            State::Shelved => "shelved",
            State::Delta => "delta",
            State::DeltaFull => "delta full",
            State::Cold => "cold",
            State::Live => "live",
        }
    }
}

impl Key {
    /// Over HTTP/1.1, not compressed.
    pub(crate) fn plain(name: impl Into<String>, state: State, objects: usize) -> Self {
        Self {
            name: name.into(),
            transport: Transport::Plain,
            encoding: Encoding::Identity,
            state,
            objects,
        }
    }

    pub(crate) fn over(&self, transport: Transport, encoding: Encoding) -> Self {
        Self {
            transport,
            encoding,
            ..self.clone()
        }
    }

    /// The key of a part of this scenario.
    pub(crate) fn part(&self, part: &str) -> Self {
        Self {
            name: format!("{}.{part}", self.name),
            ..self.clone()
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}/{}/{}",
            self.name,
            self.transport.name(),
            self.encoding.name(),
            self.state.name(),
            self.objects
        )
    }
}

/// One thing to measure.
pub(crate) struct Scenario {
    pub(crate) key: Key,
    /// What is asked, in a line.
    pub(crate) about: &'static str,
    /// Connections that ask at once.
    pub(crate) clients: usize,
    /// Which short forms of a run have it.
    pub(crate) sets: Sets,
    pub(crate) open: Open,
}

/// Connects, checks the content of a whole answer, and finds how many requests make a round.
pub(crate) type Open = Box<dyn Fn(&mut Stage) -> Result<Box<dyn Running>, Failure>>;

/// Which short forms of a run have a scenario.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sets {
    /// `--quick`.
    pub(crate) quick: bool,
    /// `--set compare`: small, and steady from run to run.
    pub(crate) compare: bool,
    /// So expensive that a run has one round of it.
    pub(crate) lone_round: bool,
}

/// A scenario that is ready to be measured round by round.
pub(crate) trait Running {
    /// A round against the server.
    fn ours(&mut self) -> Result<Round, Failure>;

    /// The same against the limit, where there is one.
    fn limit(&mut self) -> Result<Option<Batch>, Failure> {
        Ok(None)
    }
}

/// What a round against the server gave.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) whole: Batch,
    /// Parts of a mix, each with its own name. Their CPU cannot be told apart.
    pub(crate) parts: Vec<(&'static str, Batch)>,
    /// Bare appends with their syncs, measured by turns with the requests.
    pub(crate) syncs: Vec<Duration>,
    /// Private memory of the server for each client, bytes.
    pub(crate) private_bytes: Option<f64>,
    /// Whether others used CPU and allocated meanwhile, so that neither is an operation's.
    pub(crate) is_mixed: bool,
}

impl From<Batch> for Round {
    fn from(whole: Batch) -> Self {
        Self {
            whole,
            ..Self::default()
        }
    }
}

/// What one batch of requests took.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) took: Vec<Duration>,
    /// Of all answers' bodies, or of what was sent where that is what matters.
    pub(crate) bytes: u64,
    pub(crate) cost: Cost,
}

impl Batch {
    fn each(&self, all: f64) -> f64 {
        all / self.took.len() as f64
    }

    pub(crate) fn bytes_each(&self) -> f64 {
        self.each(self.bytes as f64)
    }

    pub(crate) fn cpu_us(&self) -> f64 {
        self.each(self.cost.server_cpu.as_secs_f64() * 1e6)
    }

    pub(crate) fn allocations(&self) -> f64 {
        self.each(self.cost.allocated.allocations as f64)
    }

    pub(crate) fn allocated_bytes(&self) -> f64 {
        self.each(self.cost.allocated.bytes as f64)
    }

    pub(crate) fn rate(&self) -> f64 {
        self.took.len() as f64 / self.cost.wall.as_secs_f64()
    }
}
