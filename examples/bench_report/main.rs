//! Pictures of what was measured: one HTML page that needs no network.
//!
//! ```text
//! cargo bench --bench api_load -- --json target/api_load.json
//! bench/measure-baseline.sh --json target/memory.json
//! cargo run --release --example bench_report -- target/api_load.json target/memory.json
//! ```
//!
//! Several files of `api_load` with different `--objects` make the picture of cost against the number of objects.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

mod chart;
mod input;
mod load;
mod memory;
mod page;

use input::{Failure, Input};
use page::Page;

#[derive(Parser)]
#[command(about = "Draws the figures of api_load and measure-baseline.sh", long_about = None)]
struct Arguments {
    /// JSON of `api_load --json` and `measure-baseline.sh --json`
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// The page to write
    #[arg(long, default_value = "target/bench-report.html")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => {
            println!("{}", arguments.out.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("bench_report: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut environments = Vec::new();
    let mut rows = Vec::new();
    let mut memories = Vec::new();
    for path in &arguments.files {
        match Input::read(path)? {
            Input::Load(load) => {
                environments.push(load.environment.to_string());
                rows.extend(load.rows);
            }
            Input::Memory(memory) => {
                environments.push(format!("measure-baseline: {}", memory.environment));
                memories.push(memory);
            }
        }
    }
    let mut page = Page::new(&environments);
    load::sections(&mut page, &rows)?;
    for memory in &memories {
        memory::sections(&mut page, memory)?;
    }
    std::fs::write(&arguments.out, page.finish())
        .map_err(|error| Failure(format!("{}: {error}", arguments.out.display())))
}
