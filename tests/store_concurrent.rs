//! Readers, followers and writers at once, while shelving and retention run all the time at tiny thresholds.

mod store_toy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{EventKind, HistoryError, Options, Precondition, Store};
use store_toy::model::read;
use store_toy::{Toy, delete, options, put};

const WRITERS: usize = 4;
const ROUNDS: usize = 400;

fn busy() -> Options {
    Options {
        background: true,
        shelve_quiet: Duration::from_millis(4),
        idle_marker: Duration::from_micros(100),
        ..options()
    }
}

/// Each writer has keys of its own, so it knows what they hold.
async fn write(store: Arc<Store>, writer: usize) {
    for round in 0..ROUNDS {
        let key = format!("ns-{}/w{writer}-{}", round % 3, round % 23);
        let resource = ["pods", "nodes"][usize::from(round % 7 == 0)];
        if round % 11 == 10 {
            // It may be gone already.
            let _ = store
                .write(delete(resource, &key, "deleted", Precondition::Exists))
                .await;
        } else {
            let value = format!("{round}-{}", "x".repeat(round % 50 * 20));
            store
                .write(put(resource, &key, &value, Precondition::Any))
                .await
                .unwrap();
        }
    }
}

/// The last write of each resource.
const LAST: &str = "z/last";

/// Rebuilds the state of a resource from its events, up to the last write.
async fn follow(store: Arc<Store>, resource: &'static str) -> BTreeMap<String, u64> {
    let view = store.view();
    let mut state: BTreeMap<String, u64> = read(&view, resource)
        .into_iter()
        .map(|(key, (revision, _))| (key, revision))
        .collect();
    let mut follower = store.follow(resource, None, view.revision()).unwrap();
    let mut last = view.revision();
    while !state.contains_key(LAST) {
        while let Some(event) = follower.next().unwrap() {
            assert!(event.revision > last, "events go up");
            last = event.revision;
            let key = event.object.key().to_owned();
            assert_eq!(event.object.revision(), event.revision);
            let before = match event.kind {
                EventKind::Deleted => state.remove(&key),
                _ => state.insert(key, event.revision),
            };
            let previous = event.previous.map(|object| object.revision());
            assert_eq!(previous, before, "nothing was missed");
        }
        if !state.contains_key(LAST) {
            follower.changed().await;
        }
    }
    state
}

#[test]
fn nobody_sees_anything_but_whole_states_in_order() {
    let disk = SimDisk::new();
    let store = Store::open(Arc::new(disk.clone()), busy(), Arc::new(Toy)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_all()
        .build()
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));

    let lister = std::thread::spawn({
        let (store, done) = (store.clone(), done.clone());
        move || {
            let mut remembered = Vec::new();
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let view = store.view();
                assert!(view.revision() >= last, "views go forward");
                last = view.revision();
                let state = read(&view, "pods");
                assert!(state.values().all(|(revision, _)| *revision <= last));
                assert_eq!(state, read(&view, "pods"), "a view never changes");
                remembered.push((last, state));
                let (revision, state) = &remembered[remembered.len() / 2];
                let past = store.view_at("pods", *revision).unwrap();
                assert_eq!(&read(&past, "pods"), state, "the past at {revision}");
            }
            remembered.len()
        }
    });
    let followers: Vec<_> = ["pods", "nodes"]
        .map(|resource| runtime.spawn(follow(store.clone(), resource)))
        .into();
    runtime.block_on(async {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(store.clone(), writer)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        for resource in ["pods", "nodes"] {
            let write = put(resource, LAST, "", Precondition::Absent);
            store.write(write).await.unwrap();
        }
    });
    done.store(true, Ordering::SeqCst);
    assert!(lister.join().unwrap() > 3);
    let view = store.view();
    for (resource, follower) in ["pods", "nodes"].into_iter().zip(followers) {
        let state = runtime.block_on(follower).unwrap();
        let listed: BTreeMap<String, u64> = read(&view, resource)
            .into_iter()
            .map(|(key, (revision, _))| (key, revision))
            .collect();
        assert_eq!(state, listed);
    }
    let stats = store.stats();
    assert!(stats.shelvings > 5, "{stats:?}");
    store.close();
    let reopened = Store::open(Arc::new(disk.after_crash(&mut || false)), busy(), Arc::new(Toy)).unwrap();
    for resource in ["pods", "nodes"] {
        assert_eq!(read(&reopened.view(), resource), read(&view, resource));
    }
}

#[test]
fn a_follower_that_retention_overtook_is_told_so_and_a_quiet_resource_is_not() {
    let disk = SimDisk::new();
    let options = Options {
        history_bytes: 48 << 10,
        history_bytes_min: 0,
        history_age: Duration::from_hours(1),
        background: false,
        ..busy()
    };
    let store = Store::open(Arc::new(disk), options, Arc::new(Toy)).unwrap();
    let start = store.view().revision();
    let mut slow = store.follow("pods", None, start).unwrap();
    let mut quiet = store.follow("secrets", None, start).unwrap();
    store_toy::runtime().block_on(async {
        for round in 0..400 {
            store
                .write(put(
                    "pods",
                    &format!("a/{}", round % 10),
                    &"x".repeat(400),
                    Precondition::Any,
                ))
                .await
                .unwrap();
            store.maintain(false);
        }
    });
    assert!(
        store.stats().log_bytes <= (48 << 10) + 2 * (16 << 10),
        "the log is bounded: {:?}",
        store.stats()
    );
    let HistoryError::TooOld { floor, current } = slow.next().unwrap_err() else {
        panic!("it is too old")
    };
    assert!(floor > start && current == store.view().revision());
    assert_eq!(store.stats().followers_too_old, 1);
    assert!(quiet.next().unwrap().is_none());
    assert_eq!(quiet.position(), current);
    assert!(store.follow("pods", None, floor).unwrap().next().unwrap().is_some());
}

/// With more than one segment the shelving thread looks every half a minute for old ones; it used to sleep through small
/// writes until then.
#[test]
fn a_small_write_is_shelved_soon_although_there_are_segments_to_retire() {
    let store = Store::open(Arc::new(SimDisk::new()), busy(), Arc::new(Toy)).unwrap();
    let runtime = store_toy::runtime();
    let write = |round: usize, bytes: usize| {
        let put = put("pods", &format!("a/{round}"), &"x".repeat(bytes), Precondition::Any);
        runtime.block_on(store.write(put)).unwrap();
    };
    let all_shelved = |limit: Duration| {
        let begun = Instant::now();
        while store
            .stats()
            .resources
            .iter()
            .any(|resource| resource.delta_entries > 0)
        {
            assert!(begun.elapsed() < limit, "still in the delta: {:?}", store.stats());
            std::thread::yield_now();
        }
    };
    for round in 0..100 {
        write(round, 400);
    }
    all_shelved(Duration::from_mins(2));
    assert!(store.stats().segments > 1, "{:?}", store.stats());
    for round in 100..110 {
        write(round, 1);
        all_shelved(Duration::from_secs(20));
    }
}
