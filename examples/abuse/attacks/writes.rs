//! A steady load of writes with the watches that controllers have: no attack, but what a busy cluster does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Mutex;

use crate::canary::quantile;
use crate::connection::{Connection, Question};
use crate::failure::Failure;
use crate::process::{Setting, Who, metric};
use crate::siege::{Attack, Ground, Outcome};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const WRITERS: u64 = 32;
const NODES: u64 = 100;
/// Pods that a writer keeps.
const PODS_KEPT: usize = 40;
/// Cap of history, bytes.
const HISTORY: &str = "--history-bytes=512MiB";

pub(crate) struct SteadyWrites {
    pub(crate) seconds: u64,
}

/// What writers and watches note.
#[derive(Default)]
struct Figures {
    writes: AtomicU64,
    creates_ms: Mutex<Vec<f64>>,
    lags_ms: Mutex<Vec<f64>>,
    events: AtomicU64,
    broken: Mutex<Vec<String>>,
}

impl Attack for SteadyWrites {
    const NAME: &'static str = "steady-writes";
    const TEXT: &'static str = "2,000 writes a second (half of them Leases; Pods created, patched, deleted) by 32 writers, with 51 \
                                watches over TLS: Pods by node, by label, all; Leases; --history-bytes=512MiB, every write synced";

    fn setting(&self) -> Setting {
        Setting {
            arguments: vec![HISTORY.to_owned()],
            ..Setting::default()
        }
    }

    async fn run(&self, ground: &Ground) -> Result<Outcome, Failure> {
        let rate = ground.size(2_000, 400);
        let duration = ground.duration(self.seconds);
        let figures = Arc::new(Figures::default());
        let epoch = Instant::now();
        let mut watches = tokio::task::JoinSet::new();
        let by_node = (0..20).map(|node| format!("{PODS}?watch=1&fieldSelector=spec.nodeName%3Dnode-{node}"));
        let by_owner = (0..20).map(|owner| format!("{PODS}?watch=1&labelSelector=owner%3Downer-{owner}"));
        let others = (0..5).map(|_| format!("{LEASES}?watch=1"));
        let all = (0..6).map(|_| format!("{PODS}?watch=1"));
        for path in by_node.chain(by_owner).chain(others).chain(all) {
            let server = ground.process.tls(Who::Attacker)?;
            let figures = figures.clone();
            watches.spawn(async move {
                if let Err(failure) = watch(&server, &path, epoch, &figures).await {
                    figures.broken.lock().await.push(format!("{path}: {failure}"));
                }
            });
        }
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let server = ground.process.tls(Who::Attacker)?;
            let figures = figures.clone();
            writers.spawn(async move {
                let every = Duration::from_secs_f64(WRITERS as f64 / f64::from(rate));
                write(&server, writer, every, epoch, duration, &figures).await
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        let seconds = epoch.elapsed().as_secs_f64();
        let writes = figures.writes.load(Ordering::Relaxed);
        let mut creates = std::mem::take(&mut *figures.creates_ms.lock().await);
        let mut lags = std::mem::take(&mut *figures.lags_ms.lock().await);
        creates.sort_by(f64::total_cmp);
        lags.sort_by(f64::total_cmp);
        let broken = figures.broken.lock().await.clone();
        let mut outcome = Outcome::new(writes, "writes", 192 << 20)
            .note(format!(
                "{:.0} writes a second; creates p50 {:.2} ms, p99 {:.2} ms; {} events, from before the write p50 {:.2} ms, p99 \
                 {:.2} ms, max {:.0} ms; {} watches had to list again",
                writes as f64 / seconds,
                quantile(&creates, 0.5),
                quantile(&creates, 0.99),
                figures.events.load(Ordering::Relaxed),
                quantile(&lags, 0.5),
                quantile(&lags, 0.99),
                quantile(&lags, 1.0),
                metric(&ground.process, "flatkube_followers_too_old").await?,
            ))
            .note(format!(
                "log {} MiB at the end",
                metric(&ground.process, "flatkube_log_bytes").await? >> 20
            ))
            .expect(broken.is_empty(), format!("watches broke: {broken:?}"))
            .holding(watches);
        outcome.left_max = 64 << 20;
        outcome.removed_max = 256 << 20;
        Ok(outcome)
    }
}

/// Reads a watch; each event tells when its writer began.
async fn watch(
    server: &crate::connection::Server,
    path: &str,
    epoch: Instant,
    figures: &Figures,
) -> Result<(), Failure> {
    const MARK: &str = "\"begun\":\"";
    let mut connection = Connection::open(server).await?;
    let mut answer = connection.send(&Question::get(path)).await?;
    let mut text = String::new();
    while let Some(data) = answer.data().await? {
        text.push_str(&String::from_utf8_lossy(&data));
        let now = epoch.elapsed();
        let Some(end) = text.rfind('\n') else { continue };
        let mut lags = Vec::new();
        for line in text[..end].lines() {
            if line.contains("\"type\":\"ERROR\"") {
                return Err(Failure::new(line.chars().take(200).collect::<String>()));
            }
            let begun = line
                .split_once(MARK)
                .and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
            if let Some(begun) = begun
                && !line.contains("\"type\":\"DELETED\"")
            {
                lags.push(now.saturating_sub(Duration::from_micros(begun)).as_secs_f64() * 1e3);
            }
        }
        figures.events.fetch_add(lags.len() as u64, Ordering::Relaxed);
        // Enough for quantiles; all of them would be tens of millions.
        let mut kept = figures.lags_ms.lock().await;
        kept.extend(lags.into_iter().step_by(10));
        drop(kept);
        text.drain(..=end);
    }
    Err(Failure::new("the watch ended"))
}

async fn write(
    server: &crate::connection::Server,
    writer: u64,
    every: Duration,
    epoch: Instant,
    duration: Duration,
    figures: &Figures,
) -> Result<(), Failure> {
    let mut connection = Connection::open(server).await?;
    let lease = format!("{LEASES}/lease-{writer}");
    let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": format!("lease-{writer}")},
                        "spec": {"holderIdentity": format!("node-{writer}")}});
    connection
        .ask(&Question::write(
            http::Method::POST,
            LEASES,
            "application/json",
            object.to_string(),
        ))
        .await?;
    let mut ticks = tokio::time::interval(every);
    let mut pods = VecDeque::new();
    let mut number = 0_u64;
    while epoch.elapsed() < duration {
        ticks.tick().await;
        number += 1;
        let begun = Instant::now();
        let mark = json!({"metadata": {"annotations": {"begun": epoch.elapsed().as_micros().to_string()}}});
        let patch = |path: String| {
            Question::write(
                http::Method::PATCH,
                path,
                "application/merge-patch+json",
                mark.to_string(),
            )
        };
        let question = match (number % 6, pods.front()) {
            (0 | 2 | 4, _) => patch(lease.clone()),
            (3, Some(pod)) => patch(format!("{PODS}/{pod}")),
            (5, Some(_)) if pods.len() > PODS_KEPT => {
                let pod = pods.pop_front().unwrap_or_default();
                Question::write(
                    http::Method::DELETE,
                    format!("{PODS}/{pod}?gracePeriodSeconds=0"),
                    "",
                    "",
                )
            }
            _ => {
                let name = format!("pod-{writer}-{number}");
                let key = writer * 7 + number;
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "labels": {"owner": format!("owner-{}", key % NODES), "app": "load"},
                                 "annotations": mark["metadata"]["annotations"]},
                    "spec": {"nodeName": format!("node-{}", key % NODES),
                             "containers": [{"name": "c", "image": "registry.example/app:1", "env": [{"name": "A", "value": "b"}]}]},
                });
                pods.push_back(name);
                Question::write(http::Method::POST, PODS, "application/json", pod.to_string())
            }
        };
        let is_create = question.method == http::Method::POST;
        connection.ask(&question).await?;
        figures.writes.fetch_add(1, Ordering::Relaxed);
        if is_create {
            figures
                .creates_ms
                .lock()
                .await
                .push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
