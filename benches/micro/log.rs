//! The log: records made and read, and replayed when a store is opened.

use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use flatkube::store::Durability;
use flatkube_format::frame::{self, Kind, NewRecord, Previous, Seed};

use crate::opened::{self, Opened};
use crate::stored::{self, pods};

pub(crate) fn bench(criterion: &mut Criterion, quick: bool) {
    records(criterion);
    commits(criterion);
    replay(criterion, if quick { &[100] } else { &[1_000, 10_000] });
}

fn records(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "log record");
    let prepared = stored::prepared(pods(), &stored::pod(0, false));
    let record = NewRecord {
        kind: Kind::Create,
        revision: 1_234_567,
        resource: "pods",
        key: "storefront-00/some-name-of-a-pod",
        json: prepared.halves().expect("a place for the revision"),
        sidecar: &prepared.sidecar,
        shape: 0,
        previous: Previous::None,
        synced: 0,
    };
    let seed = Seed { store: 7, segment: 1 };
    let mut buffer = Vec::new();
    frame::encode(&record, &seed, 42, &mut buffer);
    group.throughput(Throughput::Bytes(buffer.len() as u64));
    group.bench_function("encode", |bencher| {
        let mut out = Vec::new();
        bencher.iter(|| {
            out.clear();
            frame::encode(&record, &seed, 42, &mut out)
        });
    });
    group.bench_function("read", |bencher| {
        bencher.iter(|| frame::read(&buffer, 0, &seed).map(|record| record.revision));
    });
    group.finish();
}

/// Writes from the queue to the answer, on one thread: precondition, record, append without a sync, publication.
fn commits(criterion: &mut Criterion) {
    let mut group = crate::group(criterion, "commit");
    // What is created stays: not for long.
    group.sample_size(10);
    group.measurement_time(Duration::from_millis(500));
    let prepared = stored::prepared(pods(), &stored::pod(0, false));
    for together in [1, 64] {
        group.throughput(Throughput::Elements(together as u64));
        group.bench_function(format!("{together} created"), |bencher| {
            let directory = tempfile::tempdir_in(opened::base()).expect("a directory");
            let (store, runtime) = (opened::open_by_hand(directory.path()), opened::runtime());
            let mut number = 0;
            bencher.iter_batched(
                || {
                    let writes = (0..together).map(|_| {
                        number += 1;
                        stored::create(pods(), format!("namespace/pod-{number:08}"), &prepared)
                    });
                    writes.collect::<Vec<_>>()
                },
                |writes| opened::commit(&runtime, &store, writes),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Opening a store none of whose objects are shelved.
fn replay(criterion: &mut Criterion, sizes: &[usize]) {
    let mut group = crate::group(criterion, "replay");
    for size in sizes {
        group.throughput(Throughput::Elements(*size as u64));
        group.bench_function(format!("{size} records"), |bencher| {
            let filled = Opened::empty(Durability::Os);
            filled.fill((0..*size).map(|number| stored::put(pods(), &stored::pod(number, false))));
            filled.store.close();
            let Opened { directory, .. } = filled;
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let begun = Instant::now();
                        let store = opened::open(directory.path(), Durability::Os);
                        let elapsed = begun.elapsed();
                        assert_eq!(store.view().count("pods", None), *size as u64);
                        store.close();
                        elapsed
                    })
                    .sum::<Duration>()
            });
        });
    }
    group.finish();
}
