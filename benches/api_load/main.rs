//! The API under load: complete servers in this process, on real directories, asked over real connections; and beside every
//! read, in the same run and by turns, the *limit*: a bare hyper server in this process that answers a constant body of
//! the same size over the same transport.
//!
//! `cargo bench --bench api_load -- --help` says what can be asked and what the figures mean.
//!
//! The client runs on the main thread, the servers on runtimes of their own. *CPU* and *allocations* are those of the
//! process without that thread, so the committer, the shelving thread and the kernel's work in their system calls are in
//! it and the client is not.
//!
//! | file | what it is |
//! | --- | --- |
//! | `arguments` | the command line |
//! | `scenario`, `stage`, `measure` | what can be measured, on what, and in which rounds |
//! | `reads`, `writes`, `watches`, … | the scenarios |
//! | `answer`, `failure` | what a right answer is, and what is told of a wrong one |
//! | `client`, `load`, `limit`, `dataset` | who asks, who answers |
//! | `cost`, `allocations` | what is counted |
//! | `report`, `environment`, `compare` | figures and baselines |
//! | `duel` | two builds by turns |

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

mod allocations;
mod answer;
mod arguments;
mod busy;
mod client;
mod cold;
mod compare;
mod cost;
mod dataset;
mod duel;
mod environment;
mod failure;
mod idle;
mod limit;
mod load;
mod measure;
mod mixed;
#[path = "../../src/cli/seed/objects.rs"]
#[allow(dead_code, unused_imports, reason = "the seed command and its tests use more of it")]
mod objects;
mod reads;
mod report;
mod scenario;
mod schedule;
mod stage;
mod watches;
mod writes;

use arguments::{Arguments, BASELINE};
use compare::Baseline;
use environment::Environment;
use scenario::Scenario;
use stage::Stage;

/// A request failed, an answer was wrong, or something became slower than its margin.
const WORSE: u8 = 1;
/// No baseline was saved.
const BUSY: u8 = 3;

/// What is not measured, and why: told by `--list`.
const LEFT_OUT: &str = "\
not measured:
  get, watch_*, and small lists with gzip
                             the server compresses lists from 128 KiB on, and no events";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.no_allocations {
        allocations::switch_off();
    }
    if arguments.serve {
        return idle::serve();
    }
    let objects = arguments.objects();
    let mut all = reads::scenarios(objects);
    all.extend(cold::scenarios(objects));
    all.extend(watches::scenarios());
    all.extend(idle::scenarios());
    all.extend(writes::scenarios(objects));
    all.extend(busy::scenarios(objects));
    all.extend(mixed::scenarios(objects));
    all.extend(schedule::scenarios());
    let wanted: Vec<_> = all.iter().map(|scenario| arguments.wants(scenario, &all)).collect();
    let scenarios: Vec<_> = all
        .into_iter()
        .zip(wanted)
        .filter_map(|(scenario, is_wanted)| is_wanted.then_some(scenario))
        .collect();
    if arguments.list {
        for scenario in &scenarios {
            println!("{:<62} {}", scenario.key.to_string(), scenario.about);
        }
        println!("\n{LEFT_OUT}");
        return ExitCode::SUCCESS;
    }
    if scenarios.is_empty() {
        eprintln!("no scenario has such a key; --list names them");
        return ExitCode::from(2);
    }
    let mut stage = Stage::new(arguments.effort(), objects);
    if arguments.paced {
        return duel::paced(&scenarios, &mut stage);
    }
    let environment = Environment::now(objects);
    warn_if_busy(&environment);
    if let Some(base) = &arguments.against {
        return duel::against(base, &scenarios, &arguments);
    }
    match run(&scenarios, &mut stage) {
        Ok(rows) => finish(&arguments, &Baseline { environment, rows }),
        Err(message) => {
            eprintln!("FAILED {message}");
            ExitCode::from(WORSE)
        }
    }
}

/// Measures all, telling each row as it is there.
fn run(scenarios: &[Scenario], stage: &mut Stage) -> Result<Vec<report::Row>, String> {
    let mut rows: Vec<report::Row> = Vec::new();
    println!("{}", report::HEAD);
    for (index, scenario) in scenarios.iter().enumerate() {
        eprintln!("[{}/{}] {}", index + 1, scenarios.len(), scenario.key);
        let failed = |failure| format!("{}: {failure}", scenario.key);
        let mut running = (scenario.open)(stage).map_err(failed)?;
        for row in measure::measure(scenario, running.as_mut(), stage.effort).map_err(failed)? {
            assert!(rows.iter().all(|other| other.key != row.key), "{} twice", row.key);
            println!("{}", row.markdown());
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Writes and compares what was measured.
fn finish(arguments: &Arguments, figures: &Baseline) -> ExitCode {
    for line in report::beside_quiet(&figures.rows) {
        println!("\n{line}");
    }
    println!("\n{}", figures.environment.line());
    let mut code = ExitCode::SUCCESS;
    let mut tell = |result: Result<(), String>| {
        if let Err(message) = result {
            eprintln!("{message}");
            code = ExitCode::from(WORSE);
        }
    };
    if let Some(path) = &arguments.json {
        tell(figures.write(path));
    }
    if let Some(path) = &arguments.compare {
        tell(Baseline::read(path).and_then(|old| compare_with(&old, figures, arguments)));
    }
    if arguments.save_baseline {
        if figures.environment.is_busy() {
            eprintln!(
                "the baseline was NOT saved: the load average was {} on {} CPUs when this began",
                figures.environment.load, figures.environment.cpus
            );
            return ExitCode::from(BUSY);
        }
        tell(figures.write(Path::new(BASELINE)));
        eprintln!("saved {BASELINE}");
    }
    code
}

fn compare_with(old: &Baseline, new: &Baseline, arguments: &Arguments) -> Result<(), String> {
    let comparison = compare::compare(old, new, arguments.margins());
    println!("\nold: {}\n\n{}", old.environment.line(), comparison.table);
    if comparison.compared == 0 {
        return Err("the baseline has none of these scenarios".to_owned());
    }
    if comparison.regressed.is_empty() {
        eprintln!("{} scenarios compared, none worse than its margin", comparison.compared);
        return Ok(());
    }
    Err(format!(
        "worse than the margin:\n  {}",
        comparison.regressed.join("\n  ")
    ))
}

/// Figures from a busy machine mislead; ratios less so, because server and limit take turns.
fn warn_if_busy(environment: &Environment) {
    if environment.is_busy() {
        eprintln!(
            "warning: load average {} on {} CPUs: only ratios mean something, and no baseline is saved",
            environment.load, environment.cpus
        );
    }
}
