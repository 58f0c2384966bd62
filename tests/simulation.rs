//! A bounded number of simulated lives of a store. `examples/simulate` runs them by the thousand, prints the line that
//! repeats a failure, and shows with planted bugs that it finds them.

#[path = "../examples/simulate/chance.rs"]
mod chance;
#[path = "../examples/simulate/client.rs"]
mod client;
#[path = "../examples/simulate/judge.rs"]
mod judge;
#[path = "../examples/simulate/model.rs"]
mod model;
#[path = "../examples/simulate/plant.rs"]
mod plant;
#[path = "../examples/simulate/world.rs"]
mod world;

use plant::Plant;
#[cfg(not(feature = "planted"))]
use world::Counts;
use world::simulate;

const STEPS: usize = 150;

// Planted bugs are those of the whole process: with the feature, only the test that plants them runs.
#[cfg(not(feature = "planted"))]
#[test]
fn every_life_keeps_the_invariants() {
    let mut counts = Counts::default();
    for seed in 0..60 {
        eprintln!("repeat with: cargo run --release --example simulate -- --seed {seed} --seeds 1 --steps {STEPS} -v");
        counts.add(&simulate(seed, STEPS, None, false));
    }
    // What is meant to happen does.
    assert!(
        counts.writes > 5_000
            && counts.power_losses > 50
            && counts.kills > 50
            && counts.failures > 20
            && counts.refused_for_space > 20
            && counts.rot_found > 20
            && counts.relists > 20,
        "{counts:?}"
    );
}

#[cfg(not(feature = "planted"))]
#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    for plant in [
        Plant::UnsyncedLog,
        Plant::UnsyncedShelf,
        Plant::UnsyncedManifest,
        Plant::ForgottenDirectorySync,
    ] {
        let found = (0..60).any(|seed| {
            let life = std::panic::AssertUnwindSafe(|| simulate(seed, STEPS, Some(plant), false));
            std::panic::catch_unwind(life).is_err()
        });
        assert!(found, "{plant}");
    }
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_of_the_store_are_found() {
    use clap::ValueEnum as _;
    for plant in Plant::value_variants() {
        let found = (0..200).any(|seed| {
            let life = std::panic::AssertUnwindSafe(|| simulate(seed, STEPS, Some(*plant), false));
            std::panic::catch_unwind(life).is_err()
        });
        assert!(found, "{plant}");
    }
}
