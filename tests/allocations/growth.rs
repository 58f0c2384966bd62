//! No heap grows with the number of shelved objects: counted, not guessed, at 10,000 and at 100,000 objects.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use flatkube::store::disk::RealDisk;
use flatkube::store::{Durability, Options, Precondition, Range, Requirement, Selection, Store};

use crate::store_toy::{Toy, put};

const FEW: usize = 10_000;
const MANY: usize = 100_000;
/// Objects with the rare label, whatever the number of all.
const RARE: usize = 100;

fn open(folder: &Path) -> Arc<Store> {
    let options = Options {
        durability: Durability::Os,
        background: false,
        // Little history: what is kept of the log (an index of its newest segment) is not what is counted here.
        segment_bytes_first: 256 << 10,
        segment_bytes: 256 << 10,
        history_age: Duration::ZERO,
        history_bytes_min: 0,
        history_bytes: 1 << 20,
        ..Options::default()
    };
    let disk = RealDisk::create(folder).expect("a folder");
    Store::open(Arc::new(disk), options, Arc::new(Toy)).expect("it opens")
}

/// Writes `objects` objects, shelves them all, and closes.
fn fill(folder: &Path, objects: usize) {
    let store = open(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut writes = tokio::task::JoinSet::new();
        for number in 0..objects {
            // The toy's label is the value: one in so many is `rare`.
            let value = if number % (objects / RARE) == 0 {
                "rare"
            } else {
                "common"
            };
            let write = put(
                "things",
                &format!("namespace/object-{number:06}"),
                value,
                Precondition::Absent,
            );
            let store = Arc::clone(&store);
            writes.spawn(async move { store.write(write).await.map(drop) });
            if writes.len() >= 1_000 {
                writes
                    .join_next()
                    .await
                    .expect("there are some")
                    .expect("it ran")
                    .expect("written");
            }
        }
        while let Some(done) = writes.join_next().await {
            done.expect("it ran").expect("written");
        }
    });
    store.maintain(true);
    store.close();
}

/// What is allocated (and, in `*_current`, kept) by opening the store; by a walk over all; over the rare ones; by a get.
fn count(folder: &Path, objects: usize) -> [AllocationInfo; 4] {
    let mut store = None;
    let opened = measure(|| store = Some(open(folder)));
    let store = store.expect("opened");
    let view = store.view();
    assert_eq!(view.count("things", None), objects as u64);
    let walk = |selection: &Selection| {
        let mut found = 0;
        let counted = measure(|| {
            let mut listing = view.list("things", Range::default(), selection);
            while let Some(run) = listing.next(500).expect("sound") {
                found += run.len();
            }
        });
        (counted, found)
    };
    // Once before it counts: files are opened, blocks are checked at first touch.
    walk(&Selection::default());
    let (all, found) = walk(&Selection::default());
    assert_eq!(found, objects);
    let rare = Requirement::LabelIn {
        name: "value".into(),
        values: vec!["rare".into()],
    };
    let (rare, found) = walk(&Selection {
        requirements: vec![rare],
    });
    assert_eq!(found, RARE);
    let key = format!("namespace/object-{:06}", objects / 2);
    let get = measure(|| {
        let object = view.get("things", &key).expect("sound");
        assert!(object.is_some_and(|object| object.is_shelved()));
    });
    store.close();
    [opened, all, rare, get]
}

#[test]
fn what_is_kept_does_not_grow_with_the_number_of_shelved_objects() {
    let [few, many] = [FEW, MANY].map(|objects| {
        let folder = tempfile::tempdir().expect("a folder");
        fill(folder.path(), objects);
        count(folder.path(), objects)
    });
    let [opened, all, rare, get] = [0, 1, 2, 3].map(|index| (few[index], many[index]));

    println!("opened {opened:?}\nall {all:?}\nrare {rare:?}\nget {get:?}");
    // Ten times the objects: a few more shelf parts, but nothing for an object.
    let grown = opened.1.bytes_current - opened.0.bytes_current;
    assert!(grown < 16 << 10, "opened with {grown} bytes more: {opened:?}");
    // A walk allocates for its runs at most, never for an object.
    let runs = (MANY / 500) as u64;
    assert!(all.1.count_total <= 2 * runs, "a walk over all: {all:?}");
    assert!(all.1.bytes_max < 64 << 10, "a walk over all keeps too much: {all:?}");
    // A selection costs what it finds.
    assert!(
        rare.1.count_total <= rare.0.count_total + 50,
        "a selection of {RARE}: {rare:?}"
    );
    assert!(
        rare.1.bytes_max <= rare.0.bytes_max + 4_096,
        "a selection of {RARE}: {rare:?}"
    );
    assert_eq!(get.0.count_total, get.1.count_total, "a get");
}
