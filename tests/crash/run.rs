//! The run from kill to kill: starts the server, compares everything, loads it, ends it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::killing::{Births, Moment};
use crate::model::{self, Kind, Ledger, revision};
use crate::mount::Mount;
use crate::process::Server;
use crate::watcher::{Objects, SENTINEL, Told, Watcher, objects};
use crate::writer::Writer;

const WRITERS: usize = 32;
/// Four of everything, two of objects with even numbers; half of each for each kind.
const WATCHERS: usize = 6;
/// A watcher that has not seen the last write after this long has missed it.
const PATIENCE: Duration = Duration::from_mins(1);
/// Lists of the past that are asked for again after a restart.
const PAST_LISTS: usize = 4;

/// How a server ends.
pub(crate) enum End<'a> {
    /// By SIGKILL.
    Killed,
    /// By SIGTERM, in order.
    InOrder,
    /// By itself, because its disk took no more: the power of this one was cut.
    PowerCut(&'a mut Mount),
}

/// Figures of a run.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) killed: u64,
    pub(crate) powerless: u64,
    pub(crate) killed_starting: u64,
    pub(crate) ended_in_order: u64,
    pub(crate) verified: u64,
    /// Kills that left an unfinished shelf part, an unfinished manifest, a cut log.
    pub(crate) unfinished_shelves: u64,
    pub(crate) unfinished_manifests: u64,
    pub(crate) cut_logs: u64,
    pub(crate) past_lists: u64,
    pub(crate) starts: Vec<Duration>,
}

impl Figures {
    /// Looks at what a kill left.
    fn look(&mut self, store: &Path) {
        let entries = std::fs::read_dir(store).expect("the store's directory");
        let names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let is_new = |name: &String| name.starts_with("shelf-") && name.contains(".new");
        self.unfinished_shelves += u64::from(names.iter().any(is_new));
        self.unfinished_manifests += u64::from(names.iter().any(|name| name == "manifest.new"));
        self.cut_logs = names.iter().filter(|name| name.starts_with("cut-")).count() as u64;
    }

    fn report(&mut self, ledger: &Ledger, events: &AtomicU64) -> String {
        self.starts.sort();
        let (middle, last) = (self.starts.len() / 2, self.starts.len() - 1);
        format!(
            "{} kills under load, {} power cuts ({} left an unfinished shelf part, {} an unfinished manifest, {} logs were cut), {} while \
             starting, {} ends in order, {} times verified; {} writes acknowledged, {} events, {} lists of the past; start \
             to ready p50 {} ms, max {} ms",
            self.killed,
            self.powerless,
            self.unfinished_shelves,
            self.unfinished_manifests,
            self.cut_logs,
            self.killed_starting,
            self.ended_in_order,
            self.verified,
            *ledger.writes.borrow(),
            events.load(Ordering::Relaxed),
            self.past_lists,
            self.starts.get(middle).map_or(0, Duration::as_millis),
            self.starts.get(last).map_or(0, Duration::as_millis),
        )
    }
}

/// What the next watcher tells.
async fn hear(told: &mut mpsc::UnboundedReceiver<Told>) -> Told {
    let next = tokio::time::timeout(PATIENCE, told.recv()).await;
    next.expect("a watcher did not see the last write")
        .expect("the watchers ended before the server did")
}

async fn get(client: &mut Client, path: &str) -> Bytes {
    let answer = client.get(path, "application/json").await.expect("an answer");
    assert_eq!(answer.status, StatusCode::OK, "{path}: {answer:?}");
    answer.body
}

/// A list as it was.
struct PastList {
    path: &'static str,
    revision: u64,
    body: Bytes,
}

/// The run between kills.
pub(crate) struct Run {
    pub(crate) ledger: Arc<Ledger>,
    events: Arc<AtomicU64>,
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
    past: Vec<PastList>,
    pub(crate) figures: Figures,
    round: u64,
}

impl Run {
    pub(crate) fn new() -> Run {
        let (ledger, events) = (Arc::new(Ledger::default()), Arc::new(AtomicU64::new(0)));
        let selective = |watcher: usize| watcher % 3 == 2;
        let watchers = (0..WATCHERS).map(|watcher| (Kind::ALL[watcher % 2], selective(watcher)));
        Run {
            writers: (0..WRITERS).map(Writer::new).collect(),
            watchers: watchers
                .map(|(kind, selective)| Watcher::new(kind, selective, ledger.clone(), events.clone()))
                .collect(),
            ledger,
            events,
            past: Vec::new(),
            figures: Figures::default(),
            round: 0,
        }
    }

    /// Compares what is there with what the writers know, and takes it as the new truth.
    async fn settle(&mut self, client: &mut Client, random: &mut fastrand::Rng) {
        let mut found: [Objects; 2] = Default::default();
        for (kind, found) in Kind::ALL.into_iter().zip(&mut found) {
            let list = serde_json::from_slice(&get(client, kind.collection()).await).expect("JSON");
            *found = objects(kind, &list);
            let (now, before) = (revision(&list), self.ledger.highest());
            assert!(now >= before, "revisions went back from {before} to {now}");
            for (name, (version, revision)) in &*found {
                self.ledger.give_out(kind, name, *revision);
                self.ledger.check_sent(name, *version);
                // One by one for some: another way through shelf and delta.
                if random.u8(..16) == 0 {
                    let object = serde_json::from_slice(&get(client, &kind.path(name)).await).expect("JSON");
                    assert_eq!(
                        (kind.version(&object), model::revision(&object)),
                        (*version, *revision),
                        "{name}"
                    );
                }
            }
        }
        for writer in &mut self.writers {
            writer.settle(|kind, name| found[kind as usize].get(name).copied());
        }
        let keys = self.writers.iter().flat_map(|writer| &writer.keys);
        let live = keys.filter(|(_, _, known)| known.acknowledged.is_some()).count();
        let there: usize = found
            .iter()
            .map(|found| found.keys().filter(|name| *name != SENTINEL).count())
            .sum();
        assert_eq!(there, live, "objects that nobody wrote");
    }

    /// Asks again for lists of before the kill.
    async fn look_back(&mut self, client: &mut Client) {
        for list in &self.past {
            let path = format!(
                "{}?resourceVersion={}&resourceVersionMatch=Exact",
                list.path, list.revision
            );
            let answer = client.get(&path, "application/json").await.expect("an answer");
            match answer.status {
                // History may have gone.
                StatusCode::GONE => continue,
                StatusCode::OK => {}
                other => panic!("{path}: {other}: {answer:?}"),
            }
            assert!(answer.body == list.body, "{path} is not what it was");
            self.figures.past_lists += 1;
        }
    }

    /// Changes the sentinels, waits until all watchers have seen that, and compares all that they know with lists.
    async fn compare(&mut self, client: &mut Client, told: &mut mpsc::UnboundedReceiver<Told>) {
        // Who lists anew must have done so before.
        for _ in 0..WATCHERS {
            assert!(matches!(hear(told).await, Told::Listed), "a write that nobody made");
        }
        let mut sentinels = [0; 2];
        // Even: seen by selective watchers, too. Half, so that no writer's number is the same.
        let number = (u64::MAX / 2 + 1) + self.round * 2;
        for kind in Kind::ALL {
            self.ledger.sending(SENTINEL, number);
            let answer = if self.round == 0 {
                client
                    .post(kind.collection(), &kind.object(SENTINEL, "none", number))
                    .await
            } else {
                let (path, patch) = (kind.path(SENTINEL), kind.patch(number, None).to_string());
                let header = [("content-type", "application/merge-patch+json")];
                client.send(hyper::Method::PATCH, &path, &header, patch).await
            };
            let answer = answer.expect("an answer");
            assert!(answer.status.is_success(), "{answer:?}");
            sentinels[kind as usize] = revision(&answer.json());
        }
        let mut lists: [[Objects; 2]; 2] = Default::default();
        for kind in Kind::ALL {
            for (selector, list) in ["", "?labelSelector=parity%3Deven"]
                .into_iter()
                .zip(&mut lists[kind as usize])
            {
                let body = get(client, &format!("{}{selector}", kind.collection())).await;
                let json = serde_json::from_slice(&body).expect("JSON");
                *list = objects(kind, &json);
                if selector.is_empty() {
                    self.past.push(PastList {
                        path: kind.collection(),
                        revision: revision(&json),
                        body,
                    });
                }
            }
            let [all, even] = &lists[kind as usize];
            let is_even = |(_, (version, _)): &(&String, &(model::Version, u64))| version.number.is_multiple_of(2);
            assert!(
                all.iter().filter(is_even).eq(even.iter()),
                "a selected list is not its part of the whole"
            );
        }
        let superfluous = self.past.len().saturating_sub(PAST_LISTS);
        self.past.drain(..superfluous);
        let acknowledged = std::mem::take(&mut *self.ledger.acknowledged.lock().expect("no writer is running"));
        for _ in 0..WATCHERS {
            let Told::Snapshot(snapshot) = hear(told).await else {
                panic!("a watcher lists twice");
            };
            assert_eq!(snapshot.sentinel, sentinels[snapshot.kind as usize]);
            let list = &lists[snapshot.kind as usize][usize::from(snapshot.selective)];
            assert!(
                snapshot.objects == *list,
                "events do not add up to the list: {:?}",
                first_difference(&snapshot.objects, list)
            );
            for written in &acknowledged {
                let hidden = snapshot.selective && !written.version.number.is_multiple_of(2);
                if written.kind != snapshot.kind || written.revision <= snapshot.since || hidden {
                    continue;
                }
                let seen = snapshot.seen.get(&written.revision);
                let told = seen.is_some_and(|(name, version, added)| {
                    *name == written.name
                        && *version == written.version
                        && (snapshot.selective || *added == written.created)
                });
                assert!(told, "a watcher was told {seen:?} of {written:?}");
            }
        }
    }

    /// What was done so far, in one sentence.
    pub(crate) fn report(&mut self) -> String {
        self.figures.report(&self.ledger, &self.events)
    }

    /// One life of a server on the directory `store`, from its start to its end at `moment`.
    pub(crate) async fn live(
        &mut self,
        command: &mut Command,
        store: &Path,
        random: &mut fastrand::Rng,
        moment: Moment,
        end: End<'_>,
    ) {
        let started = Instant::now();
        let server =
            Server::spawn(command).unwrap_or_else(|ended| panic!("the server does not start again: {ended:?}"));
        self.figures.starts.push(started.elapsed());
        let address = server.http_address();
        let (sender, mut told) = mpsc::unbounded_channel();
        let watchers: Vec<_> = self
            .watchers
            .drain(..)
            .map(|mut watcher| {
                if random.u8(..8) == 0 {
                    watcher.forget();
                }
                tokio::spawn(watcher.run(address, sender.clone()))
            })
            .collect();
        drop(sender);
        let mut client = Client::connect(address).await.expect("it listens");
        self.settle(&mut client, random).await;
        self.look_back(&mut client).await;
        self.compare(&mut client, &mut told).await;

        let mut births = Births::of(store);
        let (floor, seed) = (self.ledger.highest(), random.u64(..));
        let writers: Vec<_> = self
            .writers
            .drain(..)
            .map(|writer| tokio::spawn(writer.run(address, seed, floor, self.ledger.clone())))
            .collect();
        moment.come(&self.ledger, &mut births).await;
        assert!(
            !writers.iter().all(tokio::task::JoinHandle::is_finished),
            "all writers ended by themselves before {moment:?}"
        );
        match end {
            End::Killed => {
                let ended = server.kill();
                assert_eq!(ended.signal(), Some(9), "it had ended before: {ended:?}");
                self.figures.killed += 1;
                self.figures.look(store);
            }
            End::InOrder => {
                let ended = tokio::task::spawn_blocking(|| server.end("TERM"))
                    .await
                    .expect("its end");
                assert!(ended.status.success(), "{ended:?}");
                self.figures.ended_in_order += 1;
            }
            End::PowerCut(mount) => {
                self.ledger.set_powerless(true);
                assert!(mount.cut_power(), "the file system can be shut down");
                let ended = tokio::task::spawn_blocking(|| server.wait_at_most(PATIENCE))
                    .await
                    .expect("its end");
                // Aborted for a write that failed, or ended for a page that could not be read.
                assert!(!ended.status.success() && ended.status.signal() != Some(9), "{ended:?}");
                assert!(mount.unmount() && mount.mount(), "mounted anew");
                self.figures.powerless += 1;
                self.figures.look(store);
            }
        }
        self.round += 1;
        for writer in writers {
            self.writers.push(writer.await.expect("a writer's assertion"));
        }
        for watcher in watchers {
            self.watchers.push(watcher.await.expect("a watcher's assertion"));
        }
        self.ledger.set_powerless(false);
    }
}

fn first_difference<'a>(left: &'a Objects, right: &'a Objects) -> Option<(&'a String, impl std::fmt::Debug)> {
    let names = left.keys().chain(right.keys());
    names
        .map(|name| (name, (left.get(name), right.get(name))))
        .find(|(_, (left, right))| left != right)
}
