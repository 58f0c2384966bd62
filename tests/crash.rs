//! A real process under load, killed again and again with SIGKILL: every acknowledged write is there after the restart,
//! and no other is there in half.
//!
//! Eight writers own ten keys each and know, for each key, the last acknowledged version and the one that was under way
//! when the connection broke. After a restart a key must be at one of the two, byte for byte.
//!
//! `FLATKUBE_CRASH_SECONDS` lengthens the test (60), `FLATKUBE_CRASH_SEED` repeats one.

#[path = "process/client.rs"]
mod client;
mod process;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Answer, Client};
use hyper::StatusCode;
use serde_json::{Value, json};

const WRITERS: u64 = 8;
const KEYS: u64 = 10;
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

/// What a writer knows of one key. A version is the number that the object's `data` is made of, and its revision.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    acknowledged: Option<(u64, String)>,
    under_way: Option<Change>,
}

/// A write whose answer has not come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Put(u64),
    Delete,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The object of a key in the version `number`: from 100 bytes to 60 KiB, all of it a function of the number.
fn object(name: &str, number: u64) -> Value {
    let length = 1 << (number % 10);
    let text = format!("{number:016x} ").repeat(length);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "number": number.to_string() } },
        "data": { "number": number.to_string(), "text": text },
    })
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn start(folder: &Path) -> (process::Server, SocketAddr) {
    let path = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let server = process::Server::start(&[
        "--data-dir",
        &path("data"),
        "--http-bind",
        "127.0.0.1:0",
        "--token-auth-file",
        &path("tokens.csv"),
        "--history-bytes",
        "64MiB",
    ])
    .unwrap_or_else(|ended| panic!("the server does not start again: {ended:?}"));
    let address = server.http_address();
    (server, address)
}

/// Writes to its own keys until the connection breaks. `writes` counts acknowledgements of all writers.
async fn write(
    address: SocketAddr,
    writer: u64,
    mut known: Vec<Known>,
    seed: u64,
    writes: Arc<AtomicU64>,
) -> Vec<Known> {
    let mut random = Random(seed ^ (writer << 32));
    let Ok(mut client) = Client::connect(address).await else {
        return known;
    };
    loop {
        let key = random.below(KEYS);
        let name = format!("map-{writer}-{key}");
        let path = format!("{COLLECTION}/{name}");
        let known = &mut known[key as usize];
        let number = random.next();
        let answer: Result<Answer, _> = match &known.acknowledged {
            None => {
                known.under_way = Some(Change::Put(number));
                client.post(COLLECTION, &object(&name, number)).await
            }
            Some(_) if random.below(4) == 0 => {
                known.under_way = Some(Change::Delete);
                client.delete(&path).await
            }
            Some(_) => {
                known.under_way = Some(Change::Put(number));
                client.put(&path, &object(&name, number)).await
            }
        };
        let Ok(answer) = answer else { break };
        assert!(answer.status.is_success(), "{name}: {answer:?}");
        writes.fetch_add(1, Ordering::SeqCst);
        known.acknowledged = match known.under_way.take().expect("set above") {
            Change::Delete => None,
            Change::Put(number) => {
                let revision = answer.json()["metadata"]["resourceVersion"]
                    .as_str()
                    .expect("a revision")
                    .to_owned();
                Some((number, revision))
            }
        };
    }
    known
}

/// Compares what is there with what the writers know, and takes it as the new truth. Returns the highest revision.
async fn settle(address: SocketAddr, known: &mut [Vec<Known>]) -> u64 {
    let mut client = Client::connect(address).await.expect("it listens");
    let list = client.get(COLLECTION, "application/json").await.expect("a list").json();
    let items = list["items"].as_array().expect("items");
    let mut live = 0;
    for (writer, keys) in known.iter_mut().enumerate() {
        for (key, known) in keys.iter_mut().enumerate() {
            let name = format!("map-{writer}-{key}");
            let answer = client
                .get(&format!("{COLLECTION}/{name}"), "application/json")
                .await
                .expect("an answer");
            let found = match answer.status {
                StatusCode::NOT_FOUND => None,
                StatusCode::OK => {
                    let found = answer.json();
                    let number = found["data"]["number"]
                        .as_str()
                        .and_then(|text| text.parse().ok())
                        .expect("a number");
                    let whole = object(&name, number);
                    assert_eq!(found["data"], whole["data"], "{name} is there in half");
                    assert_eq!(found["metadata"]["labels"], whole["metadata"]["labels"], "{name}");
                    let item = items.iter().find(|item| item["metadata"]["name"] == name.as_str());
                    let item = item.unwrap_or_else(|| panic!("{name} is not in the list"));
                    assert_eq!(item["data"], found["data"], "{name} differs in the list");
                    live += 1;
                    Some((
                        number,
                        found["metadata"]["resourceVersion"]
                            .as_str()
                            .expect("a revision")
                            .to_owned(),
                    ))
                }
                other => panic!("{name}: {other}: {answer:?}"),
            };
            let as_acknowledged = found == known.acknowledged;
            let as_under_way = match known.under_way {
                None => false,
                Some(Change::Delete) => found.is_none(),
                Some(Change::Put(number)) => found.as_ref().is_some_and(|(there, _)| *there == number),
            };
            assert!(
                as_acknowledged || as_under_way,
                "{name}: found {found:?}, but knew {known:?}"
            );
            *known = Known {
                acknowledged: found,
                under_way: None,
            };
        }
    }
    assert_eq!(
        items
            .iter()
            .filter(|item| item["metadata"]["name"]
                .as_str()
                .is_some_and(|name| name.starts_with("map-")))
            .count(),
        live
    );
    list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a revision")
}

#[test]
fn acknowledged_writes_survive_sigkill_at_any_moment() {
    let seed = setting("FLATKUBE_CRASH_SEED", u64::from(std::process::id()));
    let until = Instant::now() + Duration::from_secs(setting("FLATKUBE_CRASH_SECONDS", 60));
    println!("FLATKUBE_CRASH_SEED={seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().expect("a folder");
    client::write_tokens(&folder.path().join("tokens.csv"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");

    let mut known = vec![vec![Known::default(); KEYS as usize]; WRITERS as usize];
    let mut highest = 0;
    let mut rounds = 0_u64;
    let mut acknowledged = 0;
    while Instant::now() < until {
        let (server, address) = start(folder.path());
        let revision = runtime.block_on(settle(address, &mut known));
        assert!(revision >= highest, "revisions went back from {highest} to {revision}");
        highest = revision;
        // Sometimes after a handful of writes, sometimes after thousands.
        let magnitude = random.below(13);
        let kill_after = random.below(1 << magnitude);
        let writes = Arc::new(AtomicU64::new(0));
        known = runtime.block_on(async {
            let writers: Vec<_> = known
                .drain(..)
                .enumerate()
                .map(|(writer, known)| {
                    let seed = seed ^ rounds;
                    tokio::spawn(write(address, writer as u64, known, seed, Arc::clone(&writes)))
                })
                .collect();
            while writes.load(Ordering::SeqCst) < kill_after {
                tokio::task::yield_now().await;
                assert!(
                    !writers.iter().all(tokio::task::JoinHandle::is_finished),
                    "all writers ended by themselves"
                );
            }
            let ended = server.end("KILL");
            assert!(!ended.status.success());
            let mut known = Vec::new();
            for writer in writers {
                known.push(writer.await.expect("a writer's assertion"));
            }
            known
        });
        acknowledged += writes.load(Ordering::SeqCst);
        rounds += 1;
        if random.below(4) == 0 {
            // Killed while it starts, too: recovery itself may be cut off anywhere.
            let data = folder.path().join("data");
            let mut starting = Command::new(process::FLATKUBE)
                .args([
                    "server",
                    "--bind",
                    "127.0.0.1:0",
                    "--data-dir",
                    data.to_str().expect("a plain path"),
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            let after = Instant::now() + Duration::from_micros(random.below(30_000));
            while Instant::now() < after {
                std::hint::spin_loop();
            }
            starting.kill().expect("a signal");
            starting.wait().expect("its end");
        }
        if rounds.is_multiple_of(8) {
            process::flatkube_ok(&[
                "store",
                "verify",
                folder.path().join("data").to_str().expect("a plain path"),
            ]);
        }
    }
    println!("{rounds} times killed, {acknowledged} writes acknowledged, none lost");
    assert!(
        rounds >= 5 && acknowledged > 1_000,
        "{rounds} rounds with {acknowledged} writes are too few to show anything"
    );

    let (server, address) = start(folder.path());
    runtime.block_on(settle(address, &mut known));
    let ended = server.end("TERM");
    assert!(ended.status.success(), "{ended:?}");
}
