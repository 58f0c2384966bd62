//! Figures: a Markdown table for people, JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

/// Percentiles of how long requests took, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
}

impl Latency {
    pub(crate) fn of(took: impl Iterator<Item = Duration>) -> Self {
        let mut took: Vec<f64> = took.map(|took| took.as_secs_f64() * 1e6).collect();
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (took.len() as f64 * share) as usize;
            took.get(index.min(took.len().saturating_sub(1)))
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
        }
    }
}

/// The figures of one scenario. Rates are per second; CPU is that of the whole process without the client's thread.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) transport: String,
    pub(crate) clients: usize,
    pub(crate) requests: usize,
    /// Of one answer's body.
    pub(crate) bytes: u64,
    pub(crate) rate: f64,
    pub(crate) latency: Latency,
    pub(crate) cpu_us: f64,
    pub(crate) limit_rate: Option<f64>,
    pub(crate) limit_latency: Option<Latency>,
    pub(crate) limit_cpu_us: Option<f64>,
    /// The limit's CPU divided by ours: 1 = nothing but the transport.
    pub(crate) cpu_share: Option<f64>,
    /// Our rate divided by the limit's.
    pub(crate) rate_share: Option<f64>,
    /// One append of about the same size and its `fdatasync`, measured by turns with the requests.
    pub(crate) fdatasync: Option<Latency>,
}

pub(crate) const HEAD: &str = "\
| scenario | transport | clients | bytes | ops/s | p50 | p90 | p99 | CPU/op | limit CPU/op | limit/ours CPU | ours/limit ops/s | fdatasync p50 |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |";

impl Row {
    pub(crate) fn markdown(&self) -> String {
        let mut line = format!(
            "| {} | {} | {} | {} | {:.0} | {} | {} | {} | {}",
            self.name,
            self.transport,
            self.clients,
            self.bytes,
            self.rate,
            time(self.latency.p50_us),
            time(self.latency.p90_us),
            time(self.latency.p99_us),
            time(self.cpu_us),
        );
        let mut cell = |text: Option<String>| {
            let _ = write!(line, " | {}", text.unwrap_or_default());
        };
        cell(self.limit_cpu_us.map(time));
        cell(self.cpu_share.map(|share| format!("{share:.2}")));
        cell(self.rate_share.map(|share| format!("{share:.2}")));
        cell(self.fdatasync.map(|latency| time(latency.p50_us)));
        line.push_str(" |");
        line
    }
}

fn time(us: f64) -> String {
    if us < 1_000.0 {
        format!("{us:.1} µs")
    } else if us < 1_000_000.0 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}
