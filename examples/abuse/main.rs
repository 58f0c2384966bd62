//! Clients that mean no good, one kind after the other, against a server process of its own each; beside them a modest
//! client that must not notice.
//!
//! ```text
//! abuse target/release/flatkube
//! abuse target/release/flatkube --only slow-readers,rapid-reset --json figures.json
//! abuse target/release/flatkube --quick
//! ```
//!
//! Each attack states what it does. Held against the server: its private memory grows by no more than the attack's bound, the
//! modest client never fails, and when the attack is over, memory, descriptors and files are as before. Latencies are
//! printed and not judged: attackers and the modest client share the machine with the server. Ends with 1 when something
//! did not hold. Needs Linux, and for whole runs some 12,000 descriptors.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

mod attacks;
mod canary;
#[path = "../bench_client/connection.rs"]
mod connection;
#[path = "../bench_client/failure.rs"]
mod failure;
mod frames;
mod process;
mod siege;

use canary::quantile;
use failure::Failure;
use siege::{Row, besiege};

#[derive(Parser)]
#[command(about = "Attacks a server in every way it should withstand, and measures", long_about = None)]
struct Arguments {
    /// The server's binary
    binary: PathBuf,

    /// Everything small, two seconds each
    #[arg(long)]
    quick: bool,

    /// These attacks alone
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,

    /// Writes all figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// How long the load of writes lasts, seconds
    #[arg(long, default_value_t = 600)]
    writes_seconds: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("abuse: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Failure> {
    raise_descriptor_limit();
    let mut rows = Vec::new();
    println!("{HEAD}");
    for (name, attack) in attacks::all(arguments.writes_seconds) {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| only == name) {
            let row = attack(&arguments.binary, arguments.quick)
                .map_err(|failure| Failure::new(format!("{name}: {failure}")))?;
            print(&row);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Err(Failure::new("no attack has that name"));
    }
    if let Some(path) = &arguments.json {
        siege::write_json(path, &rows, &arguments.binary, arguments.quick)?;
    }
    Ok(rows.iter().all(|row| row.faults.is_empty()))
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

const HEAD: &str = "| attack | at its height | s | private MiB before, height, after | KiB each | descriptors | canary get, quiet -> attacked: p50, p99 ms | create p50, p99 | event p50, p99 | max ms | rounds |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

fn print(row: &Row) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let times = |quiet: &[f64], attacked: &[f64]| {
        let pair = |sorted: &[f64]| format!("{:.2}, {:.2}", quantile(sorted, 0.5), quantile(sorted, 0.99));
        format!("{} -> {}", pair(quiet), pair(attacked))
    };
    let (quiet, attacked) = (&row.quiet, &row.attacked);
    let max = [&attacked.get, &attacked.create, &attacked.event]
        .map(|sorted| quantile(sorted, 1.0))
        .into_iter()
        .fold(0.0, f64::max);
    println!(
        "| {} | {} {} | {:.0} | {}, {}, {} | {:.1} | {}, {}, {} | {} | {} | {} | {max:.0} | {} |",
        row.name,
        row.count,
        row.unit,
        row.seconds,
        mib(row.before.private),
        mib(row.height.private),
        mib(row.after.private),
        row.growth() as f64 / 1024.0 / row.count.max(1) as f64,
        row.before.descriptors,
        row.height.descriptors,
        row.after.descriptors,
        times(&quiet.get, &attacked.get),
        times(&quiet.create, &attacked.create),
        times(&quiet.event, &attacked.event),
        attacked.get.len(),
    );
    println!("<!-- {} -->", row.text);
    for note in &row.notes {
        println!("<!--   {note} -->");
    }
    for fault in &row.faults {
        println!("!!! {}: {fault}", row.name);
    }
}

/// Runs one attack on a server of its own.
type Run = Box<dyn Fn(&Path, bool) -> Result<Row, Failure>>;

fn runner<A: siege::Attack + 'static>(attack: A) -> (&'static str, Run) {
    (
        A::NAME,
        Box::new(move |binary, is_quick| besiege(&attack, binary, is_quick)),
    )
}
