//! The API under load: a complete server in this process, on a real directory, asked over real connections; and beside every
//! read, in the same run and by turns, the *limit*: a bare hyper server in this process that answers a constant body of
//! the same size over the same transport.
//!
//! ```text
//! cargo bench --bench api_load                                  # everything, 10,000 objects in the large store
//! cargo bench --bench api_load -- --objects 100000
//! cargo bench --bench api_load -- --scenario get --transport plain
//! cargo bench --bench api_load -- --list
//! ```
//!
//! The client runs on the main thread, the servers on runtimes of their own. *CPU* is the CPU time of the process without
//! that thread, so the committer, the shelving thread and the kernel's work in their system calls are in it and the client
//! is not.

use std::path::PathBuf;

use clap::Parser;

mod client;
mod dataset;
mod limit;
mod measure;
#[path = "../../src/cli/seed/objects.rs"]
#[allow(dead_code, unused_imports, reason = "the seed command and its tests use more of it")]
mod objects;
mod reads;
mod report;
mod writes;

use client::Transport;
use measure::Effort;

#[derive(Parser)]
#[command(about = "Measures the API against a bare server", long_about = None)]
struct Arguments {
    /// Objects of the large store
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    objects: u32,
    /// Only scenarios whose name contains this
    #[arg(long)]
    scenario: Option<String>,
    /// Only this transport
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Rounds of each scenario
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Name the scenarios and end
    #[arg(long)]
    list: bool,
    /// What cargo passes
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let scenarios: Vec<_> = reads::scenarios(arguments.objects as usize)
        .into_iter()
        .filter(|scenario| wanted(&arguments, &scenario.name))
        .collect();
    let writes: Vec<_> = writes::NAMES
        .iter()
        .copied()
        .filter(|name| wanted(&arguments, name))
        .collect();
    if arguments.list {
        for name in scenarios.iter().map(|scenario| scenario.name.as_str()).chain(writes) {
            println!("{name}");
        }
        return;
    }
    warn_if_busy();
    let transports: Vec<_> = [Transport::Plain, Transport::Tls]
        .into_iter()
        .filter(|transport| arguments.transport.is_none_or(|wanted| wanted == *transport))
        .collect();
    let effort = Effort {
        rounds: arguments.rounds.max(1),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{}", report::HEAD);
    let mut rows = Vec::new();
    let mut tell = |row: report::Row| {
        println!("{}", row.markdown());
        rows.push(row);
    };
    reads::run(
        &runtime,
        &scenarios,
        &transports,
        arguments.objects as usize,
        effort,
        &mut tell,
    );
    for name in writes {
        for transport in &transports {
            tell(writes::run(&runtime, name, *transport, effort));
        }
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&rows).expect("figures");
        std::fs::write(path, text).expect("the file for the figures");
    }
}

fn wanted(arguments: &Arguments, name: &str) -> bool {
    arguments
        .scenario
        .as_ref()
        .is_none_or(|part| name.contains(part.as_str()))
}

/// Figures from a busy machine mislead; ratios less so, because server and limit take turns.
fn warn_if_busy() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if load > cpus as f64 / 2.0 {
        eprintln!("warning: load average {load} on {cpus} CPUs: only ratios mean something");
    }
}
