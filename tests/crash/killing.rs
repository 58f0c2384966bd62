//! When to kill: after some writes, some time after the start, or the moment that a file of the data directory is born, so
//! that the kill falls into a rotation, into shelving or into the replacement of the manifest.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::model::Ledger;

/// A moment to kill at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So many acknowledged writes after the load began.
    Writes(u64),
    /// So long after the load began.
    Time(Duration),
    /// So long after the file system told of the n-th file with such a name.
    Birth {
        of: &'static str,
        nth: u64,
        later: Duration,
    },
}

/// An unfinished shelf part, an unfinished manifest, the manifest taking its place, and a log segment.
const BIRTHS: [&str; 4] = ["shelf-", "manifest.new", "manifest", "segment-"];

/// A time of at most 2^`magnitude` microseconds, of any magnitude below.
pub(crate) fn up_to_micros(random: &mut fastrand::Rng, magnitude: u32) -> Duration {
    let bound = 1 << random.u32(..=magnitude);
    Duration::from_micros(random.u64(..bound))
}

impl Moment {
    pub(crate) fn random(random: &mut fastrand::Rng) -> Moment {
        // Sometimes after a handful of writes, sometimes after thousands.
        let writes = 1 << random.u32(..13);
        match random.u8(..10) {
            0..5 => Moment::Writes(random.u64(..writes)),
            5 => Moment::Time(Duration::from_micros(random.u64(..20_000))),
            _ => Moment::Birth {
                of: BIRTHS[random.usize(..BIRTHS.len())],
                nth: random.u64(1..30),
                later: up_to_micros(random, 12),
            },
        }
    }
}

/// Names of files that come to be in a directory.
pub(crate) struct Births(UnboundedReceiver<String>);

impl Births {
    pub(crate) fn of(store: &Path) -> Births {
        let queue = inotify::init(CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&queue, store, WatchFlags::CREATE | WatchFlags::MOVED_TO).expect("the directory is there");
        let (sender, receiver) = unbounded_channel();
        // Ends with the first birth that nobody wants to hear of: the next server's first.
        std::thread::spawn(move || {
            let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&queue, &mut buffer);
            while let Ok(event) = reader.next() {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
                if sender.send(name.unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        Births(receiver)
    }

    /// Resolves at the birth of the n-th file whose name begins with `of`.
    async fn wait(&mut self, of: &str, mut nth: u64) {
        while let Some(name) = self.0.recv().await {
            let is_it = if of == "manifest" {
                name == of
            } else {
                name.starts_with(of)
            };
            nth -= u64::from(is_it);
            if nth == 0 {
                return;
            }
        }
    }
}

impl Moment {
    /// Resolves when it has come. At the latest after ten seconds, so that rare files do not hold a test.
    pub(crate) async fn come(self, ledger: &Ledger, births: &mut Births) {
        let mut writes = ledger.writes.subscribe();
        let before = *writes.borrow();
        let moment = async {
            match self {
                Moment::Writes(count) => {
                    let reached = writes.wait_for(|writes| *writes >= before + count).await;
                    drop(reached.expect("the ledger is there"));
                }
                Moment::Time(after) => spin(after),
                Moment::Birth { of, nth, later } => {
                    births.wait(of, nth).await;
                    spin(later);
                }
            }
        };
        // Which of the two it was does not matter.
        let _ = tokio::time::timeout(Duration::from_secs(10), moment).await;
    }
}

/// Passes time to the microsecond.
pub(crate) fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
