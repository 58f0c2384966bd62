//! Shelves that rot: what the log still holds is mended, the rest is told, and nothing else stops.

mod store_toy;

use std::sync::Arc;

use flatkube::store::disk::Disk as _;
use flatkube::store::disk::sim::SimDisk;
use flatkube::store::{Options, Precondition, Store, WriteError};
use store_toy::{Toy, list, options, put, runtime};

const COUNT: usize = 6;

fn open(disk: &SimDisk, options: &Options) -> Arc<Store> {
    Store::open(Arc::new(disk.clone()), options.clone(), Arc::new(Toy)).expect("only a shelf is damaged")
}

fn write(store: &Arc<Store>, key: &str, value: &str) {
    let write = store.write(put("pods", key, value, Precondition::Any));
    runtime().block_on(write).expect("it is written");
}

/// A closed store of shelved objects, in whose shelf a bit of the object `a/3` flipped.
fn rotten(options: &Options) -> SimDisk {
    let disk = SimDisk::new();
    let store = open(&disk, options);
    for number in 0..COUNT {
        write(&store, &format!("a/{number}"), &format!("value-of-{number}"));
    }
    store.maintain(true);
    if options.history_bytes == 0 {
        // Push the records out of history.
        while store.follow("pods", None, 2).is_ok() {
            let filler = store.write(put("nodes", "filler", &"x".repeat(3_000), Precondition::Any));
            runtime().block_on(filler).expect("it is written");
            store.maintain(true);
        }
    }
    store.close();
    for (name, len) in disk.files() {
        let mut bytes = vec![0; len as usize];
        let file = disk.open(&name).expect("it is there");
        file.read_at(&mut bytes, 0).expect("it is readable");
        let found = bytes.windows(10).position(|window| window == b"value-of-3");
        if let (true, Some(at)) = (name.starts_with("shelf-"), found) {
            disk.damage(&name, at as u64, 1);
            return disk;
        }
    }
    panic!("no shelf holds it");
}

fn value_of_3(store: &Arc<Store>) -> Option<String> {
    let object = store.view().get("pods", "a/3").expect("the index is whole")?;
    let json = object.json().ok()?;
    Some(String::from_utf8_lossy(json).into_owned())
}

#[test]
fn a_damaged_shelf_is_mended_from_the_log() {
    let disk = rotten(&options());
    let store = open(&disk, &options());
    assert_eq!(value_of_3(&store), None, "damage is an error, not an answer");
    let revision = store.view().revision();
    let mut follower = store.follow("pods", None, revision).expect("it is now");

    store.scrub();

    assert!(value_of_3(&store).is_some_and(|json| json.contains("value-of-3")));
    assert_eq!(list(&store.view(), "pods").len(), COUNT);
    let stats = store.stats();
    assert!(
        stats.mended_objects > 0 && stats.damaged.is_empty() && stats.scrubs == 1,
        "{stats:?}"
    );
    assert!(
        follower.next().expect("history is whole").is_none(),
        "mending is no event"
    );
    assert_eq!(store.view().revision(), revision);
    store.close();
    drop(store);
    assert!(value_of_3(&open(&disk, &options())).is_some(), "mended on disk, too");
}

#[test]
fn what_the_log_holds_no_more_is_told_and_nothing_else_stops() {
    let options = Options {
        history_bytes: 0,
        history_bytes_min: 0,
        history_age: std::time::Duration::ZERO,
        ..options()
    };
    let disk = rotten(&options);
    let store = open(&disk, &options);

    store.scrub();
    let stats = store.stats();
    assert_eq!(stats.damaged.len(), 1, "{stats:?}");
    let told = stats.damaged[0].to_string();
    assert!(told.contains("shelf-") && told.contains("pods a/"), "{told}");
    assert_eq!(value_of_3(&store), None);

    // What would need the lost bytes is refused; everything else goes on, and what cannot be shelved stays in the log.
    let over = store.write(put("pods", "a/3", "new", Precondition::Any));
    assert!(matches!(runtime().block_on(over), Err(WriteError::Damaged(_))));
    write(&store, "a/new", "1");
    let node = store.write(put("nodes", "n", "1", Precondition::Any));
    runtime().block_on(node).expect("it is written");
    store.maintain(true);
    let delta_of = |store: &Arc<Store>, name: &str| {
        let stats = store.stats();
        let resource = stats.resources.iter().find(|resource| resource.name == name);
        resource.expect("it is there").delta_entries
    };
    assert_eq!((delta_of(&store, "nodes"), delta_of(&store, "pods")), (0, 1));
    store.close();
    drop(store);
    let store = open(&disk, &options);
    assert_eq!(delta_of(&store, "pods"), 1);
    assert!(store.view().get("pods", "a/new").expect("it is whole").is_some());
}
