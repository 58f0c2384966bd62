//! A modest client that has nothing to do with the attack: it asks for little, now and then, and notes how long it waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use super::connection::{Answer, Connection, Question, Server};
use super::failure::Failure;

const MAPS: &str = "/api/v1/namespaces/canary/configmaps";
/// Longer than anything may take: what takes longer has failed.
const LONG: Duration = Duration::from_secs(20);
/// Between rounds.
const PAUSE: Duration = Duration::from_millis(25);

/// What the canary waited for, in milliseconds, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct Song {
    /// Reading an object.
    pub(crate) get: Vec<f64>,
    /// Writing one.
    pub(crate) create: Vec<f64>,
    /// From before it was written until its watch told of it.
    pub(crate) event: Vec<f64>,
    pub(crate) failures: Vec<String>,
}

/// The `share` (0 to 1) of sorted values lies at or below what is given; 0 for none.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// A canary on a thread and with connections of its own.
pub(crate) struct Canary {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Song>,
}

impl Canary {
    pub(crate) fn start(server: Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(sing(&server, &ended)),
                Err(error) => Song {
                    failures: vec![error.to_string()],
                    ..Song::default()
                },
            }
        });
        Self { stop, thread }
    }

    /// Ends it after the round that it is in.
    pub(crate) fn end(self) -> Song {
        self.stop.store(true, Ordering::Relaxed);
        let mut song = self.thread.join().unwrap_or_else(|_| Song {
            failures: vec!["the canary panicked".to_owned()],
            ..Song::default()
        });
        for times in [&mut song.get, &mut song.create, &mut song.event] {
            times.sort_by(f64::total_cmp);
        }
        song
    }
}

struct Lines {
    connection: Connection,
    watch: Answer,
    _watched_by: Connection,
    /// What came of the watch and was not looked at.
    told: String,
}

async fn open(server: &Server) -> Result<Lines, Failure> {
    let connection = Connection::open(server).await?;
    let mut watched_by = Connection::open(server).await?;
    let watch = watched_by
        .send(&Question::get(format!("{MAPS}?watch=1&resourceVersion=0")))
        .await?;
    Ok(Lines {
        connection,
        watch,
        _watched_by: watched_by,
        told: String::new(),
    })
}

async fn sing(server: &Server, ended: &AtomicBool) -> Song {
    let mut song = Song::default();
    let mut lines = None;
    let mut number = 0_u64;
    let run = std::process::id();
    while !ended.load(Ordering::Relaxed) {
        number += 1;
        let name = format!("canary-{run}-{}-{number}", song.failures.len());
        let round = async {
            let opened = match lines.take() {
                Some(lines) => lines,
                None => open(server).await?,
            };
            one_round(opened, &name, &mut song).await
        };
        match timeout(LONG, round).await {
            Ok(Ok(kept)) => lines = Some(kept),
            Ok(Err(failure)) => song.failures.push(failure.to_string()),
            Err(_) => song.failures.push(format!("a round took longer than {LONG:?}")),
        }
        tokio::time::sleep(PAUSE).await;
    }
    song
}

async fn one_round(mut lines: Lines, name: &str, song: &mut Song) -> Result<Lines, Failure> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    let path = format!("{MAPS}/{name}");
    let begun = Instant::now();
    lines
        .connection
        .ask(&Question::write(
            http::Method::POST,
            MAPS,
            "application/json",
            object.to_string(),
        ))
        .await?;
    let created = begun.elapsed();
    while !lines.told.contains(name) {
        let data = lines.watch.data().await?;
        let data = data.ok_or_else(|| Failure::new("the watch ended"))?;
        lines.told.push_str(&String::from_utf8_lossy(&data));
    }
    let told = begun.elapsed();
    lines.told.clear();
    let begun = Instant::now();
    let answer = lines.connection.ask(&Question::get(path.clone())).await?;
    let got = begun.elapsed();
    if !String::from_utf8_lossy(&answer).contains(name) {
        return Err(Failure::new(format!("GET {path}: another object")));
    }
    // As `kubectl get` asks.
    let table = lines.connection.ask(&Question::get(MAPS).table()).await?;
    if !String::from_utf8_lossy(&table).contains(name) {
        return Err(Failure::new(format!(
            "GET {MAPS}: a Table without what was just written"
        )));
    }
    lines
        .connection
        .ask(&Question::write(http::Method::DELETE, path, "", ""))
        .await?;
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    song.create.push(ms(created));
    song.event.push(ms(told));
    song.get.push(ms(got));
    Ok(lines)
}
