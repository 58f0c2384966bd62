//! Threads of the store let go on one step at a time, in thousands of orders that chance chooses: writers, the committer,
//! followers, readers, shelving, retention, the filling of spare segments, the close.
//!
//! It is the store's own code, compiled a second time with shuttle's locks, atomics and threads in place of those of
//! `src/sync.rs`, on the simulated disk, each of whose operations is a step, too. All steps happen one after the other: what
//! a processor may reorder is not tried here.
//!
//! `cargo test --test interleavings -- NAME` runs the stories whose names contain it; `FLATKUBE_INTERLEAVINGS=100000` runs
//! more orders of each, `FLATKUBE_SEED=7` others. With `--features planted` each planted bug must be found.

extern crate self as flatkube;

#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the stories use a part of the store, and its own tests are not in this"
)]
#[path = "../../src/store/mod.rs"]
pub mod store;
#[path = "../store_toy/mod.rs"]
mod store_toy;
mod stories;
mod sync;

use std::process::ExitCode;
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// A story and the property that it holds the store to, as a sentence.
type Story = (&'static str, fn());

const STORIES: [Story; 6] = [
    (
        "a_follower_sees_every_acknowledged_write_once_and_is_never_left_asleep",
        stories::followers,
    ),
    (
        "what_a_reader_sees_survives_a_power_loss_at_that_moment",
        stories::durable,
    ),
    ("views_and_followers_outlive_shelving_and_retention", stories::turnover),
    ("history_is_read_without_a_gap_or_is_said_to_be_gone", stories::retire),
    (
        "a_close_answers_every_writer_and_what_it_said_is_on_disk",
        stories::close,
    ),
    ("of_two_writers_with_one_precondition_one_wins", stories::conditions),
];

/// Orders of each story, if nothing else is said: some seconds in all.
const ORDERS: usize = 300;
/// Bytes of a thread's stack: a debug build needs some.
const STACK: usize = 1 << 20;

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Runs a story in `orders` orders. Half of them prefer one thread to the other for long stretches.
fn run(story: fn(), seed: u64, orders: usize, persistence: FailurePersistence) {
    let mut config = Config::new();
    config.failure_persistence = persistence;
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    config.silence_warnings = true;
    let random = RandomScheduler::new_from_seed(seed, orders.div_ceil(2));
    Runner::new(random, config.clone()).run(story);
    Runner::new(PctScheduler::new_from_seed(seed, 3, orders / 2), config).run(story);
}

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let (orders, seed) = (
        setting("FLATKUBE_INTERLEAVINGS", ORDERS),
        setting("FLATKUBE_SEED", 1) as u64,
    );
    for (name, story) in STORIES {
        if filter.as_deref().is_none_or(|filter| name.contains(filter)) {
            let started = Instant::now();
            run(story, seed, orders, FailurePersistence::Print);
            println!(
                "story {name} ... ok ({orders} orders, {:.1} s)",
                started.elapsed().as_secs_f32()
            );
        }
    }
    #[cfg(feature = "planted")]
    if filter.is_none() {
        return planted::all_are_found(seed);
    }
    ExitCode::SUCCESS
}

#[cfg(feature = "planted")]
mod planted {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::ExitCode;
    use std::time::Instant;

    use shuttle::FailurePersistence;

    use crate::store::planted::{Planted, plant};
    use crate::{run, stories};

    const PLANTS: [(Planted, fn()); 6] = [
        (Planted::RingBeforePublish, stories::followers),
        (Planted::SleepUnchecked, stories::followers),
        (Planted::PublishBeforeSync, stories::durable),
        (Planted::RetireInTwoSteps, stories::retire),
        (Planted::RetireEarly, stories::turnover),
        (Planted::CloseUnheard, stories::close),
    ];

    /// Plants one bug after the other. Does not go back to a store without: this is the end.
    pub(crate) fn all_are_found(seed: u64) -> ExitCode {
        // What a story says when it fails is what is wanted here.
        std::panic::set_hook(Box::new(|_| {}));
        let mut missed = 0;
        for (planted, story) in PLANTS {
            plant(planted);
            let started = Instant::now();
            let found = catch_unwind(AssertUnwindSafe(|| run(story, seed, 20_000, FailurePersistence::None))).is_err();
            let seconds = started.elapsed().as_secs_f32();
            println!(
                "planted {planted:?} ... {} ({seconds:.1} s)",
                if found { "found" } else { "MISSED" }
            );
            missed += u8::from(!found);
        }
        ExitCode::from(missed)
    }
}
