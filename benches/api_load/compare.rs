//! Baselines: writing them, and what has changed since one was written.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::report::{Row, per_second, time};

/// All figures of one run of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    pub(crate) environment: Environment,
    pub(crate) rows: Vec<Row>,
}

impl Baseline {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{} is no baseline: {error}", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let mut text = serde_json::to_string_pretty(self).expect("figures");
        text.push('\n');
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// How much worse a figure may become, as a share of what it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins {
    /// Of ops/s, downwards, and of CPU/op, upwards.
    pub(crate) rate: f64,
    /// Of p99, upwards.
    pub(crate) p99: f64,
}

/// A figure of both sides.
struct Pair {
    name: &'static str,
    old: f64,
    new: f64,
    /// How much worse it became: 0.1 is a tenth.
    worse: f64,
    margin: f64,
    show: fn(f64) -> String,
}

/// What has changed, as a Markdown table, and in which scenarios something became worse than its margin.
pub(crate) struct Comparison {
    pub(crate) table: String,
    pub(crate) regressed: Vec<String>,
    pub(crate) compared: usize,
}

/// Compares what both have. Where they come from different processors, ratios to the limit are compared, because
/// absolute figures would compare the processors.
pub(crate) fn compare(old: &Baseline, new: &Baseline, margins: Margins) -> Comparison {
    let is_same_machine = old.environment.cpu == new.environment.cpu && old.environment.cpus == new.environment.cpus;
    let mut comparison = Comparison {
        table: "| scenario | figure | old | new | change | |\n| --- | --- | --: | --: | --: | --- |\n".to_owned(),
        regressed: Vec::new(),
        compared: 0,
    };
    for row in &new.rows {
        let Some(before) = old.rows.iter().find(|before| before.key == row.key) else {
            continue;
        };
        let pairs = if is_same_machine {
            absolute(before, row, margins)
        } else {
            relative(before, row, margins)
        };
        comparison.compared += usize::from(!pairs.is_empty());
        let mut is_worse = false;
        for pair in pairs {
            let verdict = if pair.worse > pair.margin { "**worse**" } else { "" };
            is_worse |= pair.worse > pair.margin;
            let _ = writeln!(
                comparison.table,
                "| {} | {} | {} | {} | {:+.1}% | {verdict} |",
                row.key,
                pair.name,
                (pair.show)(pair.old),
                (pair.show)(pair.new),
                (pair.new / pair.old - 1.0) * 100.0,
            );
        }
        if is_worse {
            comparison.regressed.push(row.key.to_string());
        }
    }
    if !is_same_machine {
        eprintln!(
            "!!! the baseline is another machine's ({}, {} CPUs): only ratios to the limit are compared, and scenarios \
             without a limit are not",
            old.environment.cpu, old.environment.cpus
        );
    }
    comparison
}

fn absolute(old: &Row, new: &Row, margins: Margins) -> Vec<Pair> {
    let (old, new) = (&old.figures, &new.figures);
    let mut pairs = vec![
        Pair {
            name: "ops/s",
            old: old.rate,
            new: new.rate,
            worse: 1.0 - new.rate / old.rate,
            margin: margins.rate,
            show: per_second,
        },
        Pair {
            name: "p99",
            old: old.latency.p99_us,
            new: new.latency.p99_us,
            worse: new.latency.p99_us / old.latency.p99_us - 1.0,
            margin: margins.p99,
            show: time,
        },
    ];
    if let (Some(old), Some(new)) = (old.cpu_us, new.cpu_us) {
        pairs.push(Pair {
            name: "CPU/op",
            old,
            new,
            worse: new / old - 1.0,
            margin: margins.rate,
            show: time,
        });
    }
    pairs
}

fn relative(old: &Row, new: &Row, margins: Margins) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut add = |name, old: Option<f64>, new: Option<f64>, is_share, margin| {
        if let (Some(old), Some(new)) = (old, new) {
            pairs.push(Pair {
                name,
                old,
                new,
                worse: if is_share { 1.0 - new / old } else { new / old - 1.0 },
                margin,
                show: |ratio| format!("{ratio:.2}"),
            });
        }
    };
    add("ours/limit ops/s", old.rate_share, new.rate_share, true, margins.rate);
    add("limit/ours CPU", old.cpu_share, new.cpu_share, true, margins.rate);
    let tail = |row: &Row| {
        row.limit
            .as_ref()
            .map(|limit| row.figures.latency.p99_us / limit.latency.p99_us)
    };
    add("ours/limit p99", tail(old), tail(new), false, margins.p99);
    pairs
}
