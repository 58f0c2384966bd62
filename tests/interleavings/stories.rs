//! The stories: what threads do, and what must hold whatever the order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use crate::store::disk::sim::SimDisk;
use crate::store::{
    EventKind, Follower, HistoryError, Options, Precondition, Range, Selection, Store, View, WriteError, Written,
};
use crate::store_toy::{self, Toy, put};

const TOYS: &str = "toys";

/// Objects by key: revision and JSON.
type Contents = BTreeMap<String, (u64, String)>;

/// What writers were told, by revision. A lock of the standard library: no other thread goes on while it is held.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<BTreeMap<u64, (String, String)>>>);

impl Acknowledged {
    fn note(&self, key: &str, written: &Written) {
        let json = written.object.json().expect("it was written a moment ago").to_vec();
        let json = String::from_utf8(json).expect("JSON is text");
        let before = self.0.lock().unwrap().insert(written.revision, (key.to_owned(), json));
        assert_eq!(before, None, "two writes have one revision");
    }

    /// The contents after the write of `revision`, once all writers were answered.
    fn contents(&self, revision: u64) -> Contents {
        let all = self.0.lock().unwrap();
        let until = all.range(..=revision);
        until
            .map(|(revision, (key, json))| (key.clone(), (*revision, json.clone())))
            .collect()
    }

    fn revisions(&self) -> Vec<u64> {
        self.0.lock().unwrap().keys().copied().collect()
    }
}

fn options() -> Options {
    Options {
        shelve_quiet: Duration::ZERO,
        on_fatal: Arc::new(|reason| panic!("the store failed: {reason}")),
        ..store_toy::options()
    }
}

fn open(disk: &SimDisk, options: Options) -> Arc<Store> {
    Store::open(Arc::new(disk.clone()), options, Arc::new(Toy)).expect("it opens")
}

/// A store on `disk` that does nothing by itself.
fn look_at(disk: &SimDisk) -> Arc<Store> {
    open(
        disk,
        Options {
            committer_thread: false,
            ..options()
        },
    )
}

fn contents(view: &Arc<View>) -> Contents {
    let mut found = Contents::new();
    let mut listing = view.list(TOYS, Range::default(), &Selection::default());
    while let Some(run) = listing.next(7).expect("what a view shows can be read") {
        for object in run.objects() {
            let json = object.json().expect("what a view shows can be read").to_vec();
            let json = String::from_utf8(json).expect("JSON is text");
            found.insert(object.key().to_owned(), (object.revision(), json));
        }
    }
    found
}

/// A write that must succeed, noted and readable at once.
fn write(store: &Arc<Store>, told: &Acknowledged, key: &str, value: &str) {
    let written = block_on(store.write(put(TOYS, key, value, Precondition::Any))).expect("it is written");
    assert!(
        store.view().revision() >= written.revision,
        "answered before it was published"
    );
    told.note(key, &written);
}

/// Takes events until it has those of `count` writes.
fn follow(store: &Store, follower: &mut Follower, seen: &mut Vec<u64>, count: usize) {
    while seen.len() < count {
        if let Some(event) = follower.next().expect("nothing is retired here") {
            assert_eq!(event.kind, EventKind::Created);
            assert!(seen.last().is_none_or(|last| *last < event.revision), "out of order");
            seen.push(event.revision);
        } else {
            let after = follower.position();
            block_on(follower.changed());
            assert!(
                store.view().revision() > after,
                "woken before there was anything to read"
            );
        }
    }
}

pub(crate) fn followers() {
    const WRITES: usize = 4;
    let (disk, told) = (SimDisk::new(), Acknowledged::default());
    let store = open(&disk, options());
    let empty = store.view().revision();
    let writers: Vec<_> = ["a", "b"]
        .map(|writer| {
            let (store, told) = (store.clone(), told.clone());
            thread::spawn(move || {
                for n in 0..WRITES / 2 {
                    write(&store, &told, &format!("{writer}/{n}"), "v");
                }
            })
        })
        .into();
    let watcher = {
        let store = store.clone();
        thread::spawn(move || {
            let mut follower = store.follow(TOYS, None, 0).expect("all is history");
            let mut seen = Vec::new();
            follow(&store, &mut follower, &mut seen, WRITES);
            seen
        })
    };
    // Comes when some of it is over, and reads what it missed.
    let late = {
        let store = store.clone();
        thread::spawn(move || {
            block_on(store.reached(empty + 2));
            let view = store.view();
            assert!(view.revision() >= empty + 2, "reached, and not there: {view:?}");
            let mut follower = store.follow(TOYS, None, view.revision() - 1).expect("all is history");
            let rest = WRITES - (view.revision() - 1 - empty) as usize;
            follow(&store, &mut follower, &mut Vec::new(), rest);
        })
    };
    for writer in writers {
        writer.join().expect("it ends");
    }
    assert_eq!(watcher.join().expect("it ends"), told.revisions());
    late.join().expect("it ends");
    store.close();
}

pub(crate) fn durable() {
    let (disk, told) = (SimDisk::new(), Acknowledged::default());
    let store = open(&disk, options());
    let writer = {
        let (store, told) = (store.clone(), told.clone());
        thread::spawn(move || (0..3).for_each(|n| write(&store, &told, "a/0", &format!("value {n}"))))
    };
    let reader = {
        let (store, disk) = (store.clone(), disk.clone());
        thread::spawn(move || {
            let look = || {
                let view = store.view();
                let survivor = look_at(&disk.after_crash(&mut || false));
                let after = survivor.view();
                assert!(
                    after.revision() >= view.revision(),
                    "{view:?} was seen, {after:?} survives"
                );
                (after.revision(), contents(&after))
            };
            [look(), look()]
        })
    };
    writer.join().expect("it ends");
    for (revision, survived) in reader.join().expect("it ends") {
        assert_eq!(survived, told.contents(revision));
    }
    store.close();
}

/// Segments of a few records, retired as soon as may be when the log has more than `kept` bytes.
fn tiny_segments(kept: u64) -> Options {
    Options {
        segment_bytes_first: 4 << 10,
        segment_bytes: 4 << 10,
        history_age: Duration::ZERO,
        history_bytes_min: kept,
        ..options()
    }
}

pub(crate) fn turnover() {
    const END: &str = "a/end";
    let (disk, told) = (SimDisk::new(), Acknowledged::default());
    let store = open(
        &disk,
        Options {
            background: true,
            ..tiny_segments(0)
        },
    );
    let segments = |disk: &SimDisk| -> Vec<String> {
        let names = disk.files().into_iter().map(|(name, _)| name);
        names.filter(|name| name.starts_with("segment-")).collect()
    };
    let first = segments(&disk);
    let writer = {
        let (store, told) = (store.clone(), told.clone());
        thread::spawn(move || {
            for n in 0..10 {
                let value = format!("{n}").repeat(700);
                write(&store, &told, &format!("a/{}", n % 3), &value);
            }
            write(&store, &told, END, "v");
        })
    };
    let reader = {
        let store = store.clone();
        thread::spawn(move || {
            let mut views = Vec::new();
            while views
                .last()
                .is_none_or(|(_, seen): &(_, Contents)| !seen.contains_key(END))
            {
                let after = views.last().map_or(0, |(view, _): &(Arc<View>, _)| view.revision());
                block_on(store.reached(after + 1));
                let view = store.view();
                let seen = contents(&view);
                views.push((view, seen));
            }
            views
        })
    };
    let watcher = {
        let store = store.clone();
        thread::spawn(move || list_and_watch(&store, END))
    };
    writer.join().expect("it ends");
    let views = reader.join().expect("it ends");
    let last = *told.revisions().last().expect("something was written");
    assert_eq!(watcher.join().expect("it ends"), told.contents(last));
    store.close();
    let left = segments(&disk);
    for (view, seen) in &views {
        assert_eq!(*seen, told.contents(view.revision()), "{view:?}");
        assert_eq!(contents(view), *seen, "{view:?} changed; {first:?} became {left:?}");
    }
}

/// The history of an earlier life goes while two read it.
pub(crate) fn retire() {
    let (disk, told) = (SimDisk::new(), Acknowledged::default());
    let store = open(&disk, tiny_segments(u64::MAX));
    for n in 0..8 {
        write(&store, &told, &format!("a/{}", n % 2), &format!("{n}").repeat(700));
    }
    store.maintain(true);
    store.close();
    drop(store);

    let store = open(&disk, tiny_segments(0));
    let followers = [(); 2].map(|()| {
        let (store, revisions) = (store.clone(), told.revisions());
        thread::spawn(move || {
            let Ok(mut follower) = store.follow(TOYS, None, 0) else {
                return;
            };
            for revision in revisions {
                match follower.next() {
                    Ok(Some(event)) => assert_eq!(event.revision, revision, "a gap in history"),
                    Ok(None) => panic!("nothing after {}", follower.position()),
                    Err(HistoryError::TooOld { .. }) => return,
                    Err(error) => panic!("a watch broke: {error}"),
                }
            }
        })
    });
    store.maintain(false);
    for follower in followers {
        follower.join().expect("it ends");
    }
    assert!(store.follow(TOYS, None, 0).is_err(), "nothing was retired");
    assert_eq!(contents(&store.view()), told.contents(u64::MAX));
    store.close();
}

/// What a client does: a list, then events, and a new list when history does not reach back far enough. Until `end` is
/// there.
fn list_and_watch(store: &Arc<Store>, end: &str) -> Contents {
    let mut known = Contents::new();
    let mut follower = store.follow(TOYS, None, 0).ok();
    while !known.contains_key(end) {
        let Some(watch) = &mut follower else {
            let view = store.view();
            known = contents(&view);
            follower = store.follow(TOYS, None, view.revision()).ok();
            continue;
        };
        match watch.next() {
            Ok(Some(event)) => {
                let key = event.object.key().to_owned();
                let json = String::from_utf8(event.object.json().expect("it is history").to_vec()).expect("text");
                let before = known.insert(key, (event.revision, json)).map(|(revision, _)| revision);
                let previous = event.previous.map(|object| object.revision());
                assert_eq!(previous, before, "the event of {} does not follow", event.revision);
            }
            Ok(None) => block_on(watch.changed()),
            Err(HistoryError::TooOld { floor, current }) => {
                assert!(watch.position() < floor && floor <= current, "too old for nothing");
                follower = None;
            }
            Err(error) => panic!("a watch broke: {error}"),
        }
    }
    known
}

pub(crate) fn close() {
    let (disk, told) = (SimDisk::new(), Acknowledged::default());
    let store = open(&disk, options());
    let writers: Vec<_> = ["a", "b", "c"]
        .map(|writer| {
            let (store, told) = (store.clone(), told.clone());
            thread::spawn(move || {
                for n in 0..2 {
                    let key = format!("{writer}/{n}");
                    match block_on(store.write(put(TOYS, &key, "v", Precondition::Absent))) {
                        Ok(written) => told.note(&key, &written),
                        Err(WriteError::Closed) => {}
                        Err(error) => panic!("refused: {error}"),
                    }
                }
            })
        })
        .into();
    store.close();
    for writer in writers {
        writer.join().expect("it ends");
    }
    drop(store);
    let next = look_at(&disk.after_crash(&mut || false));
    assert_eq!(contents(&next.view()), told.contents(u64::MAX));
}

pub(crate) fn conditions() {
    let disk = SimDisk::new();
    let store = open(&disk, options());
    let told = Acknowledged::default();
    write(&store, &told, "a/count", "0");
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    while !raised(&store) {}
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("it ends");
    }
    let count = contents(&store.view())["a/count"].1.clone();
    assert!(count.ends_with(r#""value":"4"}"#), "{count}");
    store.close();
}

/// Reads the count and writes one more, unless somebody else was faster.
fn raised(store: &Arc<Store>) -> bool {
    let object = store
        .view()
        .get(TOYS, "a/count")
        .expect("readable")
        .expect("it is there");
    let json = String::from_utf8(object.json().expect("readable").to_vec()).expect("text");
    let (_, value) = json.rsplit_once(":\"").expect("a value");
    let count: u32 = value.trim_end_matches("\"}").parse().expect("a number");
    let next = put(
        TOYS,
        "a/count",
        &(count + 1).to_string(),
        Precondition::Revision(object.revision()),
    );
    match block_on(store.write(next)) {
        Ok(_) => true,
        Err(WriteError::Conflict { current: Some(current) }) => {
            assert!(current.revision() > object.revision(), "a conflict with nothing newer");
            false
        }
        Err(error) => panic!("refused: {error}"),
    }
}
