//! Reads by number of objects: what the store gives, and what the API makes of it.

use std::sync::Arc;

use criterion::{Criterion, Throughput};
use flatkube::api::negotiate::{MetaVersion, Shape};
use flatkube::api::request::{RequestInfo, Verb};
use flatkube::store::{Range, Requirement, Run, Selection, View};

use crate::asking::{self, request};
use crate::staged::{Stage, Stores};
use crate::stored::{pod_place, pods};

pub(crate) fn bench(criterion: &mut Criterion, stores: &Stores) {
    for size in stores.sizes() {
        for stage in Stage::ALL {
            store(criterion, stores, size, stage);
            api(criterion, stores, size, stage);
        }
    }
}

/// Reads up to `limit` objects; their number and the length of their JSON.
fn read(view: &Arc<View>, range: Range, selection: &Selection, limit: usize) -> (usize, usize) {
    let mut listing = view.list("pods", range, selection);
    let (mut count, mut bytes) = (0, 0);
    while count < limit
        && let Some(run) = listing.next(limit - count).expect("intact bytes")
    {
        count += run.len();
        bytes += match run {
            Run::Shelved(run) => run.json().expect("intact bytes").len(),
            Run::One(object) => object.json().expect("intact bytes").len(),
        };
    }
    (count, bytes)
}

pub(crate) fn label(name: &str, value: &str) -> Requirement {
    Requirement::LabelIn {
        name: name.into(),
        values: vec![value.into()],
    }
}

fn keys(size: usize) -> Vec<String> {
    let keys = (0..size.min(1_000)).map(|index| {
        let (namespace, name) = pod_place(index * 7_919 % size);
        format!("{namespace}/{name}")
    });
    keys.collect()
}

fn store(criterion: &mut Criterion, stores: &Stores, size: usize, stage: Stage) {
    let mut group = crate::group(criterion, &format!("store, {} of {size}", stage.word()));
    let view = || stores.at(size, stage).opened.store.view();
    let all = Selection::all();
    group.throughput(Throughput::Elements(1));
    group.bench_function("get", |bencher| {
        let (view, keys) = (view(), keys(size));
        let mut keys = keys.iter().cycle();
        bencher.iter(|| {
            let key = keys.next().expect("endless");
            let object = view.get("pods", key).expect("intact bytes").expect("an object");
            object.json().expect("intact bytes").len()
        });
    });
    let mut limits = vec![("list 1,000", 1_000)];
    if size > 1_000 {
        limits.push(("list all", usize::MAX));
    }
    for (name, limit) in limits {
        group.throughput(Throughput::Elements(limit.min(size) as u64));
        group.bench_function(name, |bencher| {
            let view = view();
            bencher.iter(|| assert_eq!(read(&view, Range::default(), &all, limit).0, limit.min(size)));
        });
    }
    let picked = Selection {
        requirements: vec![label("pick", "yes")],
    };
    let three = Selection {
        requirements: vec![
            label("app.kubernetes.io/managed-by", "flatkube-seed"),
            label("pick", "yes"),
            Requirement::FieldIs {
                name: "status.phase".into(),
                value: "Running".into(),
            },
        ],
    };
    group.throughput(Throughput::Elements(crate::staged::picks(size) as u64));
    for (name, selection) in [("select", &picked), ("select by three", &three)] {
        group.bench_function(name, |bencher| {
            let view = view();
            assert!(read(&view, Range::default(), selection, usize::MAX).0 > 1);
            bencher.iter(|| read(&view, Range::default(), selection, usize::MAX));
        });
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("select in one namespace", |bencher| {
        let view = view();
        let range = Range {
            namespace: Some(pod_place(0).0),
            after: None,
        };
        bencher.iter(|| read(&view, range.clone(), &picked, usize::MAX));
    });
    group.bench_function("remaining", |bencher| {
        let (view, keys) = (view(), keys(size));
        let behind = Range {
            namespace: None,
            after: keys.get(size.min(1_000) / 2).cloned(),
        };
        let listing = view.list("pods", behind, &all);
        bencher.iter(|| listing.remaining());
    });
    group.finish();
}

fn api(criterion: &mut Criterion, stores: &Stores, size: usize, stage: Stage) {
    let mut group = crate::group(criterion, &format!("API, {} of {size}", stage.word()));
    let (table, partial) = (Shape::Table(MetaVersion::V1), Shape::PartialList(MetaVersion::V1));
    let list = |query, shape| request(Verb::List, pods(), query, shape);
    let rows = size.min(500) as u64;
    let cases: [(&str, RequestInfo, u64); 5] = [
        ("get", asking::get(pods(), pod_place(size / 2)), 1),
        ("list, limit=500", list("limit=500", Shape::Object), rows),
        ("Table, limit=500", list("limit=500", table), rows),
        ("metadata list, limit=500", list("limit=500", partial), rows),
        (
            "select",
            list("labelSelector=pick%3Dyes", Shape::Object),
            crate::staged::picks(size) as u64,
        ),
    ];
    for (name, info, elements) in cases {
        group.throughput(Throughput::Elements(elements));
        group.bench_function(name, |bencher| {
            let staged = stores.at(size, stage);
            let runtime = &staged.opened.runtime;
            let len = runtime.block_on(staged.asking.answer_len(&info));
            assert!(len > 1_000, "{name}: {len} bytes are no answer");
            bencher.iter(|| runtime.block_on(staged.asking.answer_len(&info)));
        });
    }
    group.finish();
}
