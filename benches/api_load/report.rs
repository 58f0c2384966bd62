//! Figures: a Markdown table for people, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scenario::Key;

/// Percentiles of how long requests took, microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
}

impl Latency {
    pub(crate) fn of(took: impl Iterator<Item = Duration>) -> Self {
        let mut took: Vec<f64> = took.map(microseconds).collect();
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (took.len() as f64 * share) as usize;
            took.get(index.min(took.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0.0)
        };
        Self {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
        }
    }
}

fn microseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// How many requests took how long: `[upper bound in microseconds, count]` in ascending order, a sixth to a fifth apart;
/// buckets that nothing fell into are left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Histogram(Vec<(f64, u64)>);

impl Histogram {
    /// Buckets of each doubling.
    const STEPS: f64 = 4.0;

    pub(crate) fn of(took: impl Iterator<Item = Duration>) -> Self {
        let mut buckets = std::collections::BTreeMap::new();
        for took in took {
            let step = (microseconds(took).max(1.0).log2() * Self::STEPS).ceil() as u32;
            *buckets.entry(step).or_insert(0) += 1;
        }
        let upper_us = |step: u32| ((f64::from(step) / Self::STEPS).exp2() * 10.0).round() / 10.0;
        Self(
            buckets
                .into_iter()
                .map(|(step, count)| (upper_us(step), count))
                .collect(),
        )
    }
}

/// What one side of a scenario came to. All but the rate and the latency are for one operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Operations a second.
    pub(crate) rate: f64,
    pub(crate) latency: Latency,
    /// CPU of the whole process without the client's thread. None for parts of a mix.
    pub(crate) cpu_us: Option<f64>,
    pub(crate) allocations: Option<f64>,
    pub(crate) allocated_bytes: Option<f64>,
}

/// The figures of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) clients: usize,
    pub(crate) requests: usize,
    /// Of one answer's body, or of what is sent where that is what matters.
    pub(crate) bytes: u64,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    pub(crate) histogram: Histogram,
    pub(crate) limit: Option<Figures>,
    /// The limit's CPU divided by ours: 1 = nothing but the transport.
    pub(crate) cpu_share: Option<f64>,
    /// Our rate divided by the limit's.
    pub(crate) rate_share: Option<f64>,
    /// One append of about the same size and its `fdatasync`, measured by turns with the requests.
    pub(crate) fdatasync: Option<Latency>,
    /// Private memory of the server for each idle client, bytes.
    pub(crate) private_bytes: Option<f64>,
}

/// The heading of the table of [`Row::markdown`].
pub(crate) const HEAD: &str = "\
| scenario | clients | bytes | ops/s | p50 | p90 | p99 | CPU/op | allocations/op | allocated/op | limit p50 | limit CPU/op | limit/ours CPU | ours/limit ops/s | other |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |";

impl Row {
    pub(crate) fn markdown(&self) -> String {
        let Figures {
            rate,
            latency,
            cpu_us,
            allocations,
            allocated_bytes,
        } = &self.figures;
        let mut line = format!(
            "| {} | {} | {} | {} | {} | {} | {}",
            self.key,
            self.clients,
            self.bytes,
            per_second(*rate),
            time(latency.p50_us),
            time(latency.p90_us),
            time(latency.p99_us),
        );
        let mut cell = |text: Option<String>| {
            let _ = write!(line, " | {}", text.unwrap_or_default());
        };
        cell(cpu_us.map(time));
        cell(allocations.map(|count| format!("{count:.1}")));
        cell(allocated_bytes.map(size));
        cell(self.limit.as_ref().map(|limit| time(limit.latency.p50_us)));
        cell(self.limit.as_ref().and_then(|limit| limit.cpu_us).map(time));
        cell(self.cpu_share.map(|share| format!("{share:.2}")));
        cell(self.rate_share.map(|share| format!("{share:.2}")));
        cell(
            self.fdatasync
                .map(|latency| format!("fdatasync p50 {}", time(latency.p50_us)))
                .or(self
                    .private_bytes
                    .map(|bytes| format!("private {} a client", size(bytes)))),
        );
        line.push_str(" |");
        line
    }
}

/// For each scenario that is measured busy and quiet, how much longer its slowest requests take when busy.
pub(crate) fn beside_quiet(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let quiet = row.key.part("quiet");
        if let Some(quiet) = rows.iter().find(|other| other.key == quiet) {
            let times = row.figures.latency.p99_us / quiet.figures.latency.p99_us;
            lines.push(format!("{}: p99 is {times:.1} times that of quiet", row.key));
        }
    }
    lines
}

pub(crate) fn per_second(rate: f64) -> String {
    if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

pub(crate) fn time(us: f64) -> String {
    if us < 1_000.0 {
        format!("{us:.1} µs")
    } else if us < 1_000_000.0 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

fn size(bytes: f64) -> String {
    if bytes < 10_240.0 {
        format!("{bytes:.0} B")
    } else if bytes < 1024.0 * 1024.0 * 10.0 {
        format!("{:.1} KiB", bytes / 1024.0)
    } else {
        format!("{:.1} MiB", bytes / 1024.0 / 1024.0)
    }
}
