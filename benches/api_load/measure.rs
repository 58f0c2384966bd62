//! Runs and rounds. In a round the server and the limit take turns, so that whatever else the machine does meets both
//! alike; of a run's rounds the median counts; of the runs the median of each figure by itself.

use crate::failure::Failure;
use crate::report::{Figures, Histogram, Latency, Row};
use crate::scenario::{Batch, Running, Scenario};
use crate::stage::Effort;

/// Measures a scenario that is open. The first row is the scenario's, parts follow.
pub(crate) fn measure(scenario: &Scenario, running: &mut dyn Running, effort: Effort) -> Result<Vec<Row>, Failure> {
    let rounds = if scenario.sets.lone_round { 1 } else { effort.rounds };
    if effort.warm {
        running.ours()?;
        running.limit()?;
    }
    let mut runs = Vec::new();
    let mut syncs = Vec::new();
    let mut private_bytes = Vec::new();
    let mut is_mixed = false;
    let mut parts: Vec<(&'static str, Vec<Vec<Batch>>)> = Vec::new();
    for run in 0..effort.runs {
        let mut ours = Vec::new();
        let mut limit = Vec::new();
        for round in 0..rounds {
            // Who goes first changes, so that neither always runs in the other's caches.
            for turn in 0..2 {
                if (round + run + turn) % 2 == 0 {
                    limit.extend(running.limit()?);
                } else {
                    let round = running.ours()?;
                    syncs.extend(round.syncs);
                    is_mixed |= round.is_mixed;
                    private_bytes.extend(round.private_bytes);
                    for (name, batch) in round.parts {
                        let at = parts.iter().position(|(part, _)| *part == name).unwrap_or_else(|| {
                            parts.push((name, Vec::new()));
                            parts.len() - 1
                        });
                        let runs_of_part = &mut parts[at].1;
                        runs_of_part.resize_with(run + 1, Vec::new);
                        runs_of_part[run].push(batch);
                    }
                    ours.push(round.whole);
                }
            }
        }
        runs.push(Run { ours, limit });
    }
    let mut row = whole(scenario, &runs);
    row.fdatasync = (!syncs.is_empty()).then(|| Latency::of(syncs.into_iter()));
    row.private_bytes = (!private_bytes.is_empty()).then(|| median(private_bytes.into_iter()));
    if is_mixed {
        leave_out_cpu(&mut row);
    }
    let mut rows = vec![row];
    for (name, runs) in parts {
        let runs: Vec<_> = runs
            .into_iter()
            .map(|ours| Run {
                ours,
                limit: Vec::new(),
            })
            .collect();
        let mut row = whole(scenario, &runs);
        row.key = scenario.key.part(name);
        leave_out_cpu(&mut row);
        rows.push(row);
    }
    Ok(rows)
}

fn leave_out_cpu(row: &mut Row) {
    row.figures.cpu_us = None;
    row.figures.allocations = None;
    row.figures.allocated_bytes = None;
}

/// Rounds, each against the server and, where there is one, the limit.
struct Run {
    ours: Vec<Batch>,
    limit: Vec<Batch>,
}

fn whole(scenario: &Scenario, runs: &[Run]) -> Row {
    let batches = || runs.iter().flat_map(|run| &run.ours);
    let has_limit = runs.iter().all(|run| !run.limit.is_empty());
    let paired = |share: fn(&Batch, &Batch) -> f64| {
        has_limit.then(|| {
            median(
                runs.iter()
                    .map(|run| median(run.ours.iter().zip(&run.limit).map(|(ours, limit)| share(ours, limit)))),
            )
        })
    };
    Row {
        key: scenario.key.clone(),
        clients: scenario.clients,
        requests: batches().map(|batch| batch.took.len()).sum(),
        bytes: median(batches().map(Batch::bytes_each)) as u64,
        figures: figures(runs.iter().map(|run| run.ours.as_slice())),
        histogram: Histogram::of(batches().flat_map(|batch| batch.took.iter().copied())),
        limit: has_limit.then(|| figures(runs.iter().map(|run| run.limit.as_slice()))),
        cpu_share: paired(|ours, limit| limit.cpu_us() / ours.cpu_us()),
        rate_share: paired(|ours, limit| ours.rate() / limit.rate()),
        fdatasync: None,
        private_bytes: None,
    }
}

/// The median over runs of each figure by itself.
fn figures<'a>(runs: impl Iterator<Item = &'a [Batch]>) -> Figures {
    let runs: Vec<Figures> = runs.map(of_run).collect();
    let middle = |figure: fn(&Figures) -> Option<f64>| median(runs.iter().filter_map(figure));
    Figures {
        rate: middle(|run| Some(run.rate)),
        latency: Latency {
            p50_us: middle(|run| Some(run.latency.p50_us)),
            p90_us: middle(|run| Some(run.latency.p90_us)),
            p99_us: middle(|run| Some(run.latency.p99_us)),
        },
        cpu_us: Some(middle(|run| run.cpu_us)),
        allocations: Some(middle(|run| run.allocations)),
        allocated_bytes: Some(middle(|run| run.allocated_bytes)),
    }
}

fn of_run(batches: &[Batch]) -> Figures {
    Figures {
        rate: median(batches.iter().map(Batch::rate)),
        latency: Latency::of(batches.iter().flat_map(|batch| batch.took.iter().copied())),
        cpu_us: Some(median(batches.iter().map(Batch::cpu_us))),
        allocations: Some(median(batches.iter().map(Batch::allocations))),
        allocated_bytes: Some(median(batches.iter().map(Batch::allocated_bytes))),
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => figures[len / 2],
        len => f64::midpoint(figures[len / 2 - 1], figures[len / 2]),
    }
}
