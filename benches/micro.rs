//! What single reads of the store cost, without HTTP: objects of about 1.3 KB in a delta, on a shelf, and on a shelf of which
//! a quarter was rewritten since (the largest delta that shelving leaves).
//!
//! ```text
//! cargo bench --bench micro             # everything
//! cargo bench --bench micro -- select   # what a filter of criterion matches
//! ```

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use flatkube::store::disk::RealDisk;
use flatkube::store::{
    ArchiveError, Archiver, Change, Durability, Options, Precondition, Prepared, Range, Requirement, Run, Selection,
    Store, View, Write,
};
use flatkube_format::sidecar::{Pair, Sidecar};

const RESOURCE: &str = "things";
const NAMESPACES: usize = 50;
const SIZES: [usize; 2] = [1_000, 100_000];

struct NoArchiver;

impl Archiver for NoArchiver {
    fn layout(&self, _resource: &str) -> u32 {
        0
    }

    fn archive(&self, _resource: &str, key: &str, _json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        Err(ArchiveError(format!("{key}: nothing is archived anew here")))
    }
}

fn key(number: usize) -> String {
    format!("ns-{:02}/object-{number:06}", number % NAMESPACES)
}

/// Object `number` of `count`; a hundred of them have the label `pick`.
fn prepared(number: usize, count: usize) -> Prepared {
    let pair = |name: &str, value: String| Pair {
        name: name.into(),
        value,
    };
    let head = r#"{"metadata":{"resourceVersion":""#;
    let json = format!(r#"{head}"}},"data":"{}"}}"#, "x".repeat(1_200));
    let side = if number.is_multiple_of(2) { "front" } else { "back" };
    let sidecar = Sidecar {
        metadata_start: 12,
        splice: head.len() as u32,
        metadata_tail: 2,
        uid: format!("{number:08x}-0000-4000-8000-000000000000"),
        labels: vec![
            pair("app", "web".into()),
            pair("hash", format!("{:08x}", number.wrapping_mul(2_654_435_761) as u32)),
            // Not aligned with the namespaces: they lie apart on the shelf.
            pair(
                "pick",
                if (number / NAMESPACES * 7 + number).is_multiple_of(count / 100) {
                    "yes"
                } else {
                    "no"
                }
                .into(),
            ),
            pair("tier", side.into()),
            pair("version", "v1".into()),
        ],
        fields: vec![
            pair("spec.nodeName", format!("node-{}", number % 500)),
            pair("spec.restartPolicy", "Always".into()),
            pair("status.phase", "Running".into()),
        ],
        ..Sidecar::default()
    };
    Prepared {
        json: json.into_bytes(),
        splice: head.len() as u32,
        sidecar: sidecar.archive(),
    }
}

/// A store of `count` objects; `shelved` puts them on a shelf, `rewritten` of them are then written again.
fn store(count: usize, shelved: bool, rewritten: usize) -> (tempfile::TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::Os,
        background: false,
        ..Options::default()
    };
    let disk = Arc::new(RealDisk::create(directory.path()).unwrap());
    let store = Store::open(disk, options, Arc::new(NoArchiver)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let write = |range: std::ops::Range<usize>| {
        let numbers: Vec<usize> = range.map(|number| number * 7_919 % count).collect();
        for numbers in numbers.chunks(256) {
            let writes = numbers.iter().map(|&number| {
                let write = Write {
                    resource: RESOURCE.into(),
                    key: key(number),
                    precondition: Precondition::Any,
                    uid: None,
                    change: Change::Put(prepared(number, count)),
                };
                let store = Arc::clone(&store);
                async move { store.write(write).await.unwrap() }
            });
            runtime.block_on(async {
                let tasks: Vec<_> = writes.map(tokio::spawn).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        }
    };
    write(0..count);
    if shelved {
        store.maintain(true);
    }
    write(0..rewritten);
    (directory, store)
}

/// Reads up to `limit` objects; their number and the length of their JSON.
fn read(view: &Arc<View>, range: Range, selection: &Selection, limit: usize) -> (usize, usize) {
    let mut listing = view.list(RESOURCE, range, selection);
    let (mut count, mut bytes) = (0, 0);
    while count < limit
        && let Some(run) = listing.next(limit - count).unwrap()
    {
        count += run.len();
        bytes += match run {
            Run::Shelved(run) => run.json().unwrap().len(),
            Run::One(object) => object.json().unwrap().len(),
        };
    }
    (count, bytes)
}

fn reads(criterion: &mut Criterion) {
    for count in SIZES {
        for (state, shelved, rewritten) in [("delta", false, 0), ("shelf", true, 0), ("mixed", true, count / 4)] {
            let (_directory, store) = store(count, shelved, rewritten);
            let view = store.view();
            let mut group = criterion.benchmark_group(format!("{state} of {count}"));
            group.sample_size(20);
            group.warm_up_time(Duration::from_millis(500));
            group.measurement_time(Duration::from_secs(2));
            let mut number = 0;
            group.bench_function("get", |bencher| {
                bencher.iter(|| {
                    number = (number + 7_919) % count;
                    view.get(RESOURCE, &key(number)).unwrap().unwrap().json().unwrap().len()
                });
            });
            let all = Selection::all();
            group.bench_function("list 1,000", |bencher| {
                bencher.iter(|| assert_eq!(read(&view, Range::default(), &all, 1_000).0, 1_000));
            });
            if count > 1_000 {
                group.bench_function("list all", |bencher| {
                    bencher.iter(|| assert_eq!(read(&view, Range::default(), &all, usize::MAX).0, count));
                });
            }
            let label = |name: &str, value: &str| Requirement::LabelIn {
                name: name.into(),
                values: vec![value.into()],
            };
            let pick = Selection {
                requirements: vec![label("pick", "yes")],
            };
            let picked = read(&view, Range::default(), &pick, usize::MAX).0;
            assert!((80..=120).contains(&picked), "{picked} are picked");
            group.bench_function(format!("select {picked}"), |bencher| {
                bencher.iter(|| read(&view, Range::default(), &pick, usize::MAX));
            });
            let three = Selection {
                requirements: vec![
                    label("app", "web"),
                    label("pick", "yes"),
                    Requirement::FieldIs {
                        name: "status.phase".into(),
                        value: "Running".into(),
                    },
                ],
            };
            group.bench_function(format!("select {picked} by three"), |bencher| {
                bencher.iter(|| read(&view, Range::default(), &three, usize::MAX));
            });
            let namespace = Range {
                namespace: Some("ns-07".into()),
                after: None,
            };
            group.bench_function("select in one namespace", |bencher| {
                bencher.iter(|| read(&view, namespace.clone(), &pick, usize::MAX));
            });
            let behind = Range {
                namespace: None,
                after: Some(key(count / 2)),
            };
            group.bench_function("remaining", |bencher| {
                let listing = view.list(RESOURCE, behind.clone(), &all);
                bencher.iter(|| listing.remaining());
            });
            group.finish();
        }
    }
}

criterion_group!(benches, reads);
criterion_main!(benches);
