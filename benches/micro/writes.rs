//! Writes by number of objects, and what one write costs that many watch. The log is written but not synced: what the disk
//! takes for a sync is none of ours (`api_load` has it).

use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput};
use flatkube::api::negotiate::Shape;
use flatkube::api::request::Verb;
use flatkube::store::{Durability, Precondition, Write};

use crate::asking::{self, Asking, request};
use crate::opened::Opened;
use crate::staged::{Stage, Stores};
use crate::stored::{self, config_maps, pod_place, pods};

/// Writes that wait for the committer together.
const TOGETHER: usize = 64;
/// Who is told of one write.
const WATCHERS: usize = 100;

pub(crate) fn bench(criterion: &mut Criterion, stores: &Stores) {
    for size in stores.sizes() {
        by_size(criterion, stores, size);
    }
    fanned_out(criterion);
}

fn by_size(criterion: &mut Criterion, stores: &Stores, size: usize) {
    let mut group = crate::group(criterion, &format!("writes to {size}"));
    // What is created stays: not for long.
    group.sample_size(10);
    group.measurement_time(Duration::from_millis(500));
    let prepared = stored::prepared(pods(), &stored::pod(0, false));
    let mut created = 0;
    let mut new_key = || {
        created += 1;
        format!("{}/created-{created:08}", pod_place(created * 25).0)
    };

    group.throughput(Throughput::Elements(1));
    group.bench_function("create alone", |bencher| {
        let opened = &stores.at(size, Stage::Mixed).opened;
        bencher.iter_batched(
            || stored::create(pods(), new_key(), &prepared),
            |write| opened.write(write),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("update alone", |bencher| {
        let opened = &stores.at(size, Stage::Mixed).opened;
        let mut number = 0;
        bencher.iter_batched(
            || {
                number = (number + 7_919) % size;
                let (namespace, name) = pod_place(number);
                Write {
                    precondition: Precondition::Exists,
                    ..stored::create(pods(), format!("{namespace}/{name}"), &prepared)
                }
            },
            |write| opened.write(write),
            BatchSize::SmallInput,
        );
    });
    group.throughput(Throughput::Elements(TOGETHER as u64));
    group.bench_function("create 64 at once", |bencher| {
        let opened = &stores.at(size, Stage::Mixed).opened;
        bencher.iter_batched(
            || {
                let writes = (0..TOGETHER).map(|_| stored::create(pods(), new_key(), &prepared));
                writes.collect::<Vec<_>>()
            },
            |writes| opened.fill(writes.into_iter()),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// One write, until each of its watchers has the event.
fn fanned_out(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "fan-out to 100");
    group.throughput(Throughput::Elements(WATCHERS as u64));
    let object = stored::config_map(0);

    group.bench_function("followers of the log", |bencher| {
        let opened = Opened::empty(Durability::Os);
        opened.write(stored::put(config_maps(), &object));
        let now = opened.store.view().revision();
        let follow = || opened.store.follow("configmaps", None, now).expect("a position");
        let mut followers: Vec<_> = (0..WATCHERS).map(|_| follow()).collect();
        bencher.iter_batched(
            || stored::put(config_maps(), &object),
            |write| {
                opened.write(write);
                for follower in &mut followers {
                    let event = follower.next().expect("history").expect("an event");
                    event.object.json().expect("intact bytes");
                }
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("watches of the API", |bencher| {
        let opened = Opened::empty(Durability::Os);
        opened.write(stored::put(config_maps(), &object));
        let asking = Asking::of(&opened.store);
        let now = format!("resourceVersion={}", opened.store.view().revision());
        let info = request(Verb::Watch, config_maps(), &now, Shape::Object);
        let mut watches: Vec<_> = (0..WATCHERS)
            .map(|_| opened.runtime.block_on(asking.watch(&info)))
            .collect();
        bencher.iter_batched(
            || stored::put(config_maps(), &object),
            |write| {
                opened.runtime.block_on(async {
                    opened.store.write(write).await.expect("a write");
                    for watch in &mut watches {
                        assert!(asking::events(watch).await.len() > 1_000);
                    }
                });
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
