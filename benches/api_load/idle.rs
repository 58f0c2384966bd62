//! What a watch costs that nothing happens to: the private memory of a server in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::client::{Encoding, Target, Transport, client_tls};
use crate::dataset::{self, Served};
use crate::failure::Failure;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::watches::{WATCH, Watcher};
use flatkube::store::Durability;

const WATCHES: usize = 1_000;

/// Idle watches over both transports.
pub(crate) fn scenarios() -> Vec<Scenario> {
    [Transport::Plain, Transport::Tls]
        .into_iter()
        .map(|transport| Scenario {
            key: Key::plain("watch_idle", State::Empty, 0).over(transport, Encoding::Identity),
            about: "private memory of each of 1,000 watches on connections of their own; times are those of opening one",
            clients: WATCHES,
            sets: Sets {
                quick: true,
                compare: false,
                lone_round: true,
            },
            open: Box::new(move |stage| {
                Ok(Box::new(Idle {
                    runtime: stage.runtime.clone(),
                    transport,
                    watches: if stage.effort.half_round.is_zero() { 50 } else { WATCHES },
                }))
            }),
        })
        .collect()
}

struct Idle {
    runtime: Rc<tokio::runtime::Runtime>,
    transport: Transport,
    watches: usize,
}

impl Running for Idle {
    /// A server of its own for every round: memory that one round's watches gave back would serve the next round's.
    fn ours(&mut self) -> Result<Round, Failure> {
        let server = Alone::start().map_err(|error| Failure::connection("a server in its own process", error))?;
        let target = server.target();
        self.runtime.block_on(async {
            // The first ones pay for what is made once.
            let mut watchers = Vec::new();
            for _ in 0..4 {
                watchers.push(Watcher::open(&target, self.transport, WATCH).await?);
            }
            let before = server.anonymous_bytes();
            let mut batch = Batch::default();
            let whole = Instant::now();
            for _ in 0..self.watches {
                let begun = Instant::now();
                watchers.push(Watcher::open(&target, self.transport, WATCH).await?);
                batch.took.push(begun.elapsed());
            }
            batch.cost.wall = whole.elapsed();
            let private = server.anonymous_bytes() - before;
            Ok(Round {
                private_bytes: Some(private / self.watches as f64),
                is_mixed: true,
                ..Round::from(batch)
            })
        })
    }
}

/// What a serving process tells on its first line.
#[derive(Serialize, Deserialize)]
struct Ready {
    plain: SocketAddr,
    tls: SocketAddr,
    data_dir: PathBuf,
}

/// The other side: serves until stdin ends.
pub(crate) fn serve() -> ExitCode {
    let served = Served::start(Durability::Os, false);
    let (resource, object) = dataset::config_map(0, false);
    served.fill(std::iter::once((resource, object)));
    let ready = Ready {
        plain: served.target.plain,
        tls: served.target.tls,
        data_dir: served.data_dir.clone(),
    };
    println!("{}", serde_json::to_string(&ready).expect("addresses"));
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}

/// A server in a process of its own.
struct Alone {
    child: Child,
    ready: Ready,
}

impl Alone {
    fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let ready = serde_json::from_str(&line)?;
        Ok(Self { child, ready })
    }

    fn target(&self) -> Target {
        Target {
            plain: self.ready.plain,
            tls: self.ready.tls,
            client_tls: client_tls(&self.ready.data_dir),
        }
    }

    /// Private anonymous memory of the process.
    fn anonymous_bytes(&self) -> f64 {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("Anonymous:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) * 1024.0
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Its stdin ends, so it ends.
        self.child.stdin = None;
        let _ = self.child.wait();
    }
}
