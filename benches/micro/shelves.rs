//! Shelves: parts made, opened and checked in memory; a resource shelved on disk.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use flatkube::store::{Durability, Prepared};
use flatkube_format::shelf::{Shelf, ShelfBuilder};

use crate::opened::Opened;
use crate::stored::{self, pods};

pub(crate) fn bench(criterion: &mut Criterion, quick: bool) {
    parts(criterion, if quick { 50 } else { 1_000 });
    shelving(criterion, if quick { 200 } else { 10_000 });
}

fn part(objects: &[(String, Vec<u8>, Prepared)]) -> Vec<Vec<u8>> {
    let mut builder = ShelfBuilder::new(7, "pods", 1_234_567);
    for (key, json, prepared) in objects {
        builder
            .push(key, 1_234_567, 0, json, &prepared.sidecar)
            .expect("keys in order");
    }
    builder.finish()
}

fn parts(criterion: &mut Criterion, size: usize) {
    let mut group = crate::group(criterion, &format!("shelf part of {size}"));
    let mut objects: Vec<_> = (0..size)
        .map(|number| {
            let (namespace, name) = stored::pod_place(number);
            let prepared = stored::prepared(pods(), &stored::pod(number, false));
            let [before, after] = prepared.halves().expect("a place for the revision");
            let json = [before, b"1234567", after].concat();
            (format!("{namespace}/{name}"), json, prepared)
        })
        .collect();
    objects.sort_by(|a, b| a.0.cmp(&b.0));
    let bytes = part(&objects).concat();
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("write", |bencher| bencher.iter(|| part(&objects)));
    group.bench_function("check all", |bencher| {
        let shelf = Shelf::open(&bytes).expect("a shelf");
        bencher.iter(|| shelf.verify(&bytes).expect("intact bytes"));
    });
    group.throughput(Throughput::Elements(size as u64));
    group.bench_function("open", |bencher| {
        bencher.iter(|| Shelf::open(&bytes).expect("a shelf").count());
    });
    group.finish();
}

/// A tenth of the objects has changed; the parts that hold one are written anew. With the syncs that it needs.
fn shelving(criterion: &mut Criterion, size: usize) {
    let mut group = crate::group(criterion, &format!("shelving into {size}"));
    group.sample_size(10);
    let changed = size / 10;
    group.throughput(Throughput::Elements(changed as u64));
    group.bench_function(format!("{changed} changed"), |bencher| {
        let opened = Opened::empty(Durability::Os);
        let write = |number| stored::put(pods(), &stored::pod(number, false));
        opened.fill((0..size).map(write));
        opened.shelve();
        bencher.iter_custom(|rounds| {
            (0..rounds)
                .map(|_| {
                    opened.fill((0..changed).map(|number| write(number * 10)));
                    let begun = Instant::now();
                    opened.shelve();
                    begun.elapsed()
                })
                .sum::<Duration>()
        });
    });
    group.finish();
}
