//! Compaction on demand: everything on shelves, history gone as far as it is asked for, and nothing else changed.

mod store_toy;

use std::sync::Arc;
use std::time::Duration;

use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{HistoryError, Options, Precondition, Store};
use store_toy::{Toy, delete, list, options, put, runtime};

fn open(disk: &SimDisk, options: &Options) -> Arc<Store> {
    Store::open(Arc::new(disk.clone()), options.clone(), Arc::new(Toy)).expect("it opens")
}

fn fill(store: &Arc<Store>) {
    let runtime = runtime();
    for number in 0..60 {
        let value = "v".repeat(number * 5);
        let write = put("pods", &format!("a/{:02}", number % 40), &value, Precondition::Any);
        runtime.block_on(store.write(write)).expect("it is written");
    }
    let gone = delete("pods", "a/07", "", Precondition::Any);
    runtime.block_on(store.write(gone)).expect("it is deleted");
}

/// Compacts a store with threads or without, and looks at it before, after, and after a restart.
fn compacted(background: bool) {
    let options = Options {
        background,
        committer_thread: background,
        shelve_min_bytes: u64::MAX,
        shelve_quiet: Duration::from_hours(1),
        ..options()
    };
    let disk = SimDisk::new();
    // Without a thread, somebody has to commit: it is filled by a store that has one.
    let filler = open(
        &disk,
        &Options {
            background: false,
            committer_thread: true,
            ..options.clone()
        },
    );
    fill(&filler);
    filler.close();
    drop(filler);
    let store = open(&disk, &options);
    let (before, objects, revision) = (store.stats(), list(&store.view(), "pods"), store.view().revision());
    assert!(before.segments > 2, "{before:?}");
    let old_view = store.view();
    let mut reader = store.follow("pods", None, 5).expect("it is history");
    let mut current = store.follow("pods", None, revision).expect("it is now");

    runtime()
        .block_on(store.compact(Duration::ZERO))
        .expect("it is compacted");

    let after = store.stats();
    assert_eq!((after.segments, store.view().revision()), (1, revision));
    assert_eq!(after.log_bytes, u64::from(options.segment_bytes_first));
    assert!(
        after.resources.iter().all(|resource| resource.delta_entries == 0),
        "{after:?}"
    );
    assert_eq!(list(&store.view(), "pods"), objects);
    assert_eq!(list(&old_view, "pods"), objects, "a view never changes");
    assert!(matches!(store.view_at("pods", 5), Err(HistoryError::TooOld { .. })));
    assert!(
        matches!(reader.next(), Err(HistoryError::TooOld { .. })),
        "who is behind lists again"
    );
    assert!(current.next().expect("who is up to date goes on").is_none());

    store.close();
    drop((store, old_view, reader, current));
    let store = open(
        &disk,
        &Options {
            background: false,
            committer_thread: true,
            ..options
        },
    );
    assert_eq!(
        (list(&store.view(), "pods"), store.view().revision()),
        (objects, revision)
    );
    let write = put("pods", "a/new", "1", Precondition::Absent);
    let written = runtime().block_on(store.write(write)).expect("it goes on");
    assert_eq!(written.revision, revision + 1);
}

#[test]
fn compaction_lets_history_go_and_keeps_the_rest() {
    compacted(false);
}

#[test]
fn compaction_works_beside_the_threads_of_a_store() {
    compacted(true);
}

#[test]
fn history_that_is_to_be_kept_is_kept() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    fill(&store);
    let segments = store.stats().segments;
    runtime()
        .block_on(store.compact(Duration::from_hours(1)))
        .expect("it is compacted");
    assert_eq!(store.stats().segments, segments);
    assert!(store.view_at("pods", 5).is_ok());
    assert!(
        store
            .stats()
            .resources
            .iter()
            .all(|resource| resource.delta_entries == 0)
    );
}
