//! How many instructions the core reads and writes take, counted by `valgrind --tool=callgrind` and held against
//! `bench/instruction-limits.tsv`. Counts do not depend on what else a machine does, so a change of one per cent is seen.
//!
//! ```text
//! cargo bench --profile ci --bench instructions                     # compare; fails above a limit
//! cargo bench --profile ci --bench instructions -- --save           # the counts of now become the limits
//! cargo bench --profile ci --bench instructions -- get --repeat 5   # scenarios whose name contains "get", five times
//! callgrind_annotate target/instructions/get_shelf.out              # where the instructions of a scenario went
//! ```
//!
//! This process makes stores with objects, at full speed, and runs itself under valgrind once for each scenario. Counted is
//! what [`region::counted`] runs, on its thread; or, where other threads work too, the whole process, of which the counts at
//! two numbers of rounds are subtracted, so that only rounds remain.
//!
//! Limits hold for the profile `ci`, with which they were saved. They are counts of code that is less optimized than a
//! release: what they guard is that no step is added, not how long one takes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[path = "../micro/asking.rs"]
mod asking;
mod counting;
mod fixtures;
mod limits;
#[path = "../micro/opened.rs"]
#[allow(dead_code, reason = "the micro benchmarks use more of it")]
mod opened;
#[path = "../micro/protobuf.rs"]
mod protobuf;
mod reads;
mod region;
mod requests;
#[path = "../micro/stored.rs"]
#[allow(dead_code, reason = "the micro benchmarks use more of it")]
mod stored;
mod writes;

use fixtures::{Data, Fixtures};

#[derive(Parser)]
#[command(about = "Counts instructions and compares them with limits", long_about = None)]
struct Arguments {
    /// Only scenarios whose name contains this
    scenario: Option<String>,
    /// Write the counts to the file of limits
    #[arg(long)]
    save: bool,
    /// Count each scenario this many times and tell the spread
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Name the scenarios and end
    #[arg(long)]
    list: bool,
    /// What runs under valgrind: one scenario
    #[arg(long, hide = true, requires = "data")]
    run: Option<String>,
    #[arg(long, hide = true)]
    data: Option<PathBuf>,
    /// What cargo passes
    #[arg(long, hide = true)]
    bench: bool,
}

/// Something that is counted.
struct Scenario {
    name: &'static str,
    /// How often it is done while counting. More makes a small count steadier.
    rounds: u64,
    data: Data,
    /// Does it so many times, on data of its own.
    run: fn(&Fixtures, u64),
}

fn scenarios() -> Vec<Scenario> {
    [reads::scenarios(), writes::scenarios(), requests::scenarios()]
        .into_iter()
        .flatten()
        .collect()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut scenarios = scenarios();
    if let (Some(name), Some(data)) = (&arguments.run, &arguments.data) {
        let scenario = scenarios.iter().find(|scenario| scenario.name == name);
        let scenario = scenario.expect("a scenario of that name");
        (scenario.run)(&Fixtures::at(data), scenario.rounds);
        return ExitCode::SUCCESS;
    }
    let only = arguments.scenario.as_deref().unwrap_or("");
    scenarios.retain(|scenario| scenario.name.contains(only));
    if arguments.list {
        for scenario in &scenarios {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    let data = tempfile::Builder::new()
        .prefix("instructions-")
        .tempdir_in(opened::base())
        .expect("a directory");
    let fixtures = Fixtures::make(data.path(), scenarios.iter().map(|scenario| scenario.data));
    let limits = limits::Limits::read();
    let mut table = limits::Table::new(&limits, only.is_empty());
    let counts = counting::count_all(&scenarios, &fixtures, arguments.repeat.max(1));
    for (scenario, counts) in scenarios.iter().zip(&counts) {
        table.row(scenario.name, counts);
    }
    if arguments.save {
        table.save(limits);
        return ExitCode::SUCCESS;
    }
    table.verdict()
}
