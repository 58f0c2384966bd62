//! Simulates stores on disks that fail, and judges what they answer.
//!
//! ```text
//! cargo run --release --example simulate -- --seconds 600            # from a random seed on
//! cargo run --release --example simulate -- --seed 42 --seeds 1 -v   # one seed, and what happens in it
//! cargo run --release --example simulate --features planted -- --plant publish-before-sync
//! ```
//!
//! A seed that breaks an invariant ends the run with exit code 1 and the line that repeats it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

mod chance;
mod client;
mod judge;
mod model;
mod plant;
mod world;

use plant::Plant;
use world::Counts;

#[derive(Parser)]
#[command(about = "Simulates stores on disks that fail", long_about = None)]
struct Arguments {
    /// The first seed; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds at most
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    seeds: u64,
    /// How long at most
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Steps of each seed
    #[arg(long, default_value_t = 150)]
    steps: usize,
    /// Plant this bug; the simulation must find it
    #[arg(long, value_enum)]
    plant: Option<Plant>,
    /// Say what happens
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let begun = Instant::now();
    let mut counts = Counts::default();
    let mut seeds = 0;
    let progress = indicatif::ProgressBar::new_spinner();
    while seeds < arguments.seeds && begun.elapsed() < Duration::from_secs(arguments.seconds) {
        let seed = first + seeds;
        let run = || world::simulate(seed, arguments.steps, arguments.plant, arguments.verbose);
        let Ok(of_seed) = std::panic::catch_unwind(run) else {
            progress.abandon();
            eprintln!(
                "seed {seed} broke an invariant, number {} of this run; repeat it with",
                seeds + 1
            );
            let plant = arguments
                .plant
                .map_or(String::new(), |plant| format!(" --plant {plant}"));
            let features = if plant.is_empty() { "" } else { " --features planted" };
            eprintln!(
                "cargo run --release --example simulate{features} -- --seed {seed} --seeds 1 --steps {}{plant} -v",
                arguments.steps
            );
            return ExitCode::FAILURE;
        };
        counts.add(&of_seed);
        seeds += 1;
        progress.set_message(format!("{seeds} seeds"));
        progress.tick();
    }
    progress.finish_and_clear();
    println!("seeds {first} to {} hold: {counts:?}", first + seeds.saturating_sub(1));
    ExitCode::SUCCESS
}
