//! What single steps cost: the store's and the API's reads and writes without connections, and the parts that they are made
//! of. Objects are those of `flatkube seed`.
//!
//! ```text
//! cargo bench --bench micro                 # everything, up to 100,000 objects; some minutes
//! cargo bench --bench micro -- select       # what a filter of criterion matches
//! cargo bench --bench micro -- --test       # each body once, small stores: do they still work?
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `reads` | gets, lists, selectors, Tables by number of objects; in the delta, on shelves, and with a quarter rewritten |
//! | `writes` | creates and updates by number of objects; one write told to 100 watchers |
//! | `log` | records written and read, replay at a start |
//! | `shelves` | shelf parts made, opened, checked; a resource shelved |
//! | `sidecars` | made, accessed; requirements evaluated; rows rendered |
//! | `schemas` | custom objects pruned, filled and validated |
//! | `expressions` | rules of custom resources compiled and run |
//! | `patches`, `codec` | patches; bodies to objects to what is stored |
//!
//! `stored`, `protobuf` (the objects), `opened`, `staged` (stores) and `asking` (requests) are what they measure with.

use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::WallTime;

mod asking;
mod codec;
mod expressions;
mod log;
mod opened;
mod patches;
mod protobuf;
mod reads;
mod schemas;
mod shelves;
mod sidecars;
mod staged;
mod stored;
mod writes;

use staged::Stores;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let quick = std::env::args().any(|argument| argument == "--test");
    let stores = Stores::of(if quick {
        &[100, 1_000]
    } else {
        &[100, 1_000, 10_000, 100_000]
    });
    codec::bench(&mut criterion);
    patches::bench(&mut criterion);
    schemas::bench(&mut criterion);
    expressions::bench(&mut criterion);
    sidecars::bench(&mut criterion);
    shelves::bench(&mut criterion, quick);
    log::bench(&mut criterion, quick);
    reads::bench(&mut criterion, &stores);
    // Last, because they make the stores grow.
    writes::bench(&mut criterion, &stores);
    criterion.final_summary();
}

type Group<'a> = criterion::BenchmarkGroup<'a, WallTime>;

/// A group of benchmarks that take about a second and a half each.
fn group<'a>(criterion: &'a mut Criterion, name: &str) -> Group<'a> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));
    group
}
