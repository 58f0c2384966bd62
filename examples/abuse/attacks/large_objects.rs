//! Objects as large as they may be, many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::process::{Setting, Who};
use crate::siege::{Attack, Ground, Outcome};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WRITERS: usize = 32;
/// Just below 3 MiB with what stands around it.
const ARGUMENT: usize = 3_130_000;

pub(crate) struct LargeObjects;

fn pod(name: &str, round: u64) -> String {
    let argument = "x".repeat(ARGUMENT);
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "labels": {"round": format!("{round}")}},
           "spec": {"containers": [{"name": "c", "image": "i", "args": [argument]}]}})
    .to_string()
}

impl Attack for LargeObjects {
    const NAME: &'static str = "large-objects";
    const TEXT: &'static str = "32 writers at once that create, patch and delete Pods of 3 MiB, and 4 watches of them";

    fn setting(&self) -> Setting {
        Setting {
            arguments: vec!["--history-bytes=512MiB".to_owned(), "--durability=os".to_owned()],
            ..Setting::default()
        }
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let (written, watched) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut watchers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let server = ground.process.tls(Who::Attacker)?;
            let watched = watched.clone();
            watchers.spawn(async move {
                let mut connection = Connection::open(&server).await?;
                let mut answer = connection.send(&Question::get(format!("{PODS}?watch=1"))).await?;
                while let Some(data) = answer.data().await? {
                    watched.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                Ok::<(), Failure>(())
            });
        }
        let deadline = tokio::time::Instant::now() + ground.duration(30);
        let mut writers = tokio::task::JoinSet::new();
        let count = ground.size(WRITERS, 6);
        for writer in 0..count {
            let server = ground.process.plain(Who::Attacker)?;
            let written = written.clone();
            writers.spawn(async move {
                let mut connection = Connection::open(&server).await?;
                let name = format!("large-{writer}");
                let path = format!("{PODS}/{name}");
                for round in 0.. {
                    let create = Question::write(http::Method::POST, PODS, "application/json", pod(&name, round));
                    connection.ask(&create).await?;
                    let patch = json!({"metadata": {"annotations": {"round": format!("{round}")}}}).to_string();
                    let patch =
                        Question::write(http::Method::PATCH, path.clone(), "application/merge-patch+json", patch);
                    connection.ask(&patch).await?;
                    let delete = format!("{path}?gracePeriodSeconds=0");
                    connection
                        .ask(&Question::write(http::Method::DELETE, delete, "", ""))
                        .await?;
                    written.fetch_add(3, Ordering::Relaxed);
                    if tokio::time::Instant::now() >= deadline {
                        break;
                    }
                }
                Ok::<(), Failure>(())
            });
        }
        let mut faults = Vec::new();
        while let Some(done) = writers.join_next().await {
            if let Err(failure) = done? {
                faults.push(failure.to_string());
            }
        }
        let mut outcome = Outcome::new(count as u64, "writers", 1 << 30)
            .note(format!(
                "{} writes, {} MiB of events",
                written.load(Ordering::Relaxed),
                watched.load(Ordering::Relaxed) >> 20
            ))
            .expect(watched.load(Ordering::Relaxed) > 0, "the watches told of nothing")
            .holding(watchers);
        faults.truncate(5);
        outcome.faults.extend(faults);
        // The cap, and what is replaced between two looks at it.
        outcome.removed_max = 1 << 30;
        Ok(outcome)
    }
}
