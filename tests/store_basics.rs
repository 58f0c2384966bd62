//! What a user of the store sees: writes, conflicts, followers, restarts.

mod store_toy;

use std::sync::Arc;

use flatkube::store::disk::sim::{Operation, SimDisk};
use flatkube::store::disk::{Disk, RealDisk};
use flatkube::store::{EventKind, HistoryError, OpenError, Options, Precondition, Range, Selection, Store, WriteError};
use store_toy::{Toy, delete, list, options, put, runtime};

fn open(disk: &SimDisk, options: &Options) -> Arc<Store> {
    Store::open(Arc::new(disk.clone()), options.clone(), Arc::new(Toy)).unwrap()
}

#[test]
fn what_was_written_is_read_listed_and_followed_before_and_after_a_restart() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    let runtime = runtime();
    let start = store.view().revision();
    let mut follower = store.follow("pods", Some("a"), start).unwrap();
    runtime.block_on(async {
        let one = store
            .write(put("pods", "a/one", "1", Precondition::Absent))
            .await
            .unwrap();
        assert_eq!(one.revision, start + 1);
        assert_eq!(one.object.key(), "a/one");
        let json = String::from_utf8(one.object.json().unwrap().to_vec()).unwrap();
        assert_eq!(
            json,
            format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"value":"1"}}"#, one.revision)
        );
        store.write(put("nodes", "n", "1", Precondition::Absent)).await.unwrap();
        store
            .write(put("pods", "b/one", "1", Precondition::Absent))
            .await
            .unwrap();
        store
            .write(put("pods", "a/one", "2", Precondition::Revision(one.revision)))
            .await
            .unwrap();
        store
            .write(delete("pods", "a/one", "3", Precondition::Exists))
            .await
            .unwrap();
        store
            .write(put("pods", "ab/one", "1", Precondition::Absent))
            .await
            .unwrap();
    });
    let check_events = |follower: &mut flatkube::store::Follower| {
        let mut seen = Vec::new();
        while let Some(event) = follower.next().unwrap() {
            assert_eq!(event.object.key(), "a/one");
            seen.push((
                event.kind,
                event.revision - start,
                event.previous.map(|object| object.revision() - start),
            ));
        }
        let expected = [
            (EventKind::Created, 1, None),
            (EventKind::Updated, 4, Some(1)),
            (EventKind::Deleted, 5, Some(4)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(follower.position(), start + 6);
    };
    check_events(&mut follower);
    assert_eq!(
        list(&store.view(), "pods"),
        [("ab/one".to_owned(), start + 6), ("b/one".to_owned(), start + 3)]
    );
    drop((follower, store));

    for disk in [disk.clone(), disk.after_crash(&mut || false)] {
        let store = open(&disk, &options());
        assert_eq!(store.view().revision(), start + 6);
        assert_eq!(
            list(&store.view(), "pods"),
            [("ab/one".to_owned(), start + 6), ("b/one".to_owned(), start + 3)]
        );
        assert_eq!(list(&store.view(), "nodes").len(), 1);
        check_events(&mut store.follow("pods", Some("a"), start).unwrap());
        let past = store.view_at("pods", start + 2).unwrap();
        assert_eq!(list(&past, "pods"), [("a/one".to_owned(), start + 1)]);
        let error = store.follow("pods", None, start + 7).unwrap_err();
        assert_eq!(error, HistoryError::Future { current: start + 6 });
    }
}

#[test]
fn a_precondition_is_checked_against_writes_of_the_same_batch() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    runtime().block_on(async {
        // All are queued before the committer answers any of them, mostly.
        for round in 0..20 {
            let key = format!("a/{round}");
            let writes = (0..8).map(|_| store.write(put("pods", &key, "1", Precondition::Absent)));
            let results = futures_join(writes).await;
            let won: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
            assert_eq!(won.len(), 1);
            for result in &results {
                if let Err(error) = result {
                    let WriteError::Conflict { current: Some(current) } = error else {
                        panic!("{error}")
                    };
                    assert_eq!(current.revision(), won[0].revision);
                }
            }
        }
        let missing = store
            .write(delete("pods", "a/none", "1", Precondition::Any))
            .await
            .unwrap_err();
        assert!(matches!(missing, WriteError::Conflict { current: None }), "{missing}");
        let mut other_uid = put("pods", "a/0", "2", Precondition::Any);
        other_uid.uid = Some("other".into());
        assert!(matches!(
            store.write(other_uid).await,
            Err(WriteError::Conflict { current: Some(_) })
        ));
        let mut same_uid = put("pods", "a/0", "2", Precondition::Any);
        same_uid.uid = Some("uid-of-a/0".into());
        store.write(same_uid).await.unwrap();
    });
}

async fn futures_join<T: Send + 'static>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    // Polls all of them in turn: they share one task.
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, result) in &mut futures {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    futures.into_iter().filter_map(|(_, result)| result).collect()
}

#[test]
fn history_reaches_across_segments_and_restarts() {
    let disk = SimDisk::new();
    let options = options();
    let mut start = 0;
    for life in 0..3 {
        let store = open(&disk, &options);
        if life == 0 {
            start = store.view().revision();
        }
        runtime().block_on(async {
            for index in 0..200 {
                let key = format!("ns-{}/pod-{}", index % 3, index % 50);
                store
                    .write(put("pods", &key, &"x".repeat(100), Precondition::Any))
                    .await
                    .unwrap();
            }
        });
        assert!(store.stats().segments > 3, "{:?}", store.stats());
        let mut follower = store.follow("pods", None, start).unwrap();
        let mut expected = start;
        while let Some(event) = follower.next().unwrap() {
            expected += 1;
            assert_eq!((event.revision, event.object.revision()), (expected, expected));
        }
        assert_eq!(expected, start + 200 * (life + 1));
        let mut follower = store.follow("pods", Some("ns-1"), start + 100).unwrap();
        let mut count = 0;
        while let Some(event) = follower.next().unwrap() {
            assert_eq!(event.object.namespace(), Some("ns-1"));
            count += 1;
        }
        let all = 67 * (life + 1);
        assert!(count >= all - 34 && count < all, "{count} of {all}");
    }
}

#[tokio::test]
async fn a_follower_is_woken_by_a_write_of_its_resource() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    let mut follower = store.follow("pods", None, store.view().revision()).unwrap();
    for round in 0..50 {
        assert!(follower.next().unwrap().is_none());
        let writer = store.clone();
        let write = tokio::spawn(async move {
            writer
                .write(put("nodes", &format!("n{round}"), "1", Precondition::Any))
                .await
                .unwrap();
            writer
                .write(put("pods", "a/b", "1", Precondition::Any))
                .await
                .unwrap()
                .revision
        });
        follower.changed().await;
        let revision = follower.next().unwrap().expect("it was woken").revision;
        assert_eq!(revision, write.await.unwrap());
        store.reached(revision).await;
    }
}

#[test]
fn a_directory_in_use_is_refused_and_free_after_close() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::create(directory.path().join("store")).unwrap());
    let store = Store::open(disk.clone(), options(), Arc::new(Toy)).unwrap();
    let error = Store::open(disk.clone(), options(), Arc::new(Toy)).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.close();
    let error = runtime()
        .block_on(store.write(put("pods", "a/b", "1", Precondition::Any)))
        .unwrap_err();
    assert!(matches!(error, WriteError::Closed), "{error}");
    Store::open(disk, options(), Arc::new(Toy)).unwrap();
}

#[test]
fn a_failed_sync_is_never_followed_by_an_acknowledgement() {
    let disk = SimDisk::new();
    let fatal = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = fatal.clone();
    let mut options = options();
    options.on_fatal = Arc::new(move |reason| told.lock().unwrap().push(reason.to_owned()));
    let store = open(&disk, &options);
    runtime().block_on(async {
        store.write(put("pods", "a/b", "1", Precondition::Any)).await.unwrap();
        disk.fail(Operation::SyncData, 1);
        let error = store
            .write(put("pods", "a/c", "1", Precondition::Any))
            .await
            .unwrap_err();
        assert!(matches!(error, WriteError::Failed(_)), "{error}");
        let error = store
            .write(put("pods", "a/d", "1", Precondition::Any))
            .await
            .unwrap_err();
        assert!(matches!(error, WriteError::Failed(_)), "{error}");
    });
    assert_eq!(
        list(&store.view(), "pods").len(),
        1,
        "what was not acknowledged is not visible"
    );
    assert!(fatal.lock().unwrap()[0].contains("sync"));
}

#[test]
fn without_space_writes_are_refused_reads_go_on_and_deletes_pass() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    disk.limit_bytes(disk.used_bytes() + 20_000);
    runtime().block_on(async {
        let mut written = Vec::new();
        let error = loop {
            let key = format!("a/{}", written.len());
            match store
                .write(put("pods", &key, &"x".repeat(500), Precondition::Absent))
                .await
            {
                Ok(_) => written.push(key),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, WriteError::NoSpace(_)), "{error}");
        assert_eq!(list(&store.view(), "pods").len(), written.len());
        for key in &written[..5] {
            store
                .write(delete("pods", key, "gone", Precondition::Exists))
                .await
                .unwrap();
        }
        let error = store
            .write(put("pods", "a/more", &"x".repeat(500), Precondition::Absent))
            .await
            .unwrap_err();
        assert!(matches!(error, WriteError::NoSpace(_)), "{error}");
        disk.limit_bytes(u64::MAX);
        store
            .write(put("pods", "a/more", &"x".repeat(500), Precondition::Absent))
            .await
            .unwrap();
        assert_eq!(list(&store.view(), "pods").len(), written.len() - 5 + 1);
    });
    let count = list(&store.view(), "pods").len();
    store.close();
    assert_eq!(
        list(&open(&disk.after_crash(&mut || false), &options()).view(), "pods").len(),
        count
    );
}

/// Once with the log's spare segment, whose space helps, and once when deletes have used it up.
#[test]
fn a_store_that_ended_on_a_full_disk_opens_there_and_is_read() {
    for is_starved in [false, true] {
        let disk = SimDisk::new();
        let store = open(&disk, &options());
        disk.limit_bytes(disk.used_bytes() + 20_000);
        let written = runtime().block_on(async {
            let mut written = 0;
            let put = |number: usize| put("pods", &format!("a/{number}"), &"x".repeat(500), Precondition::Absent);
            while store.write(put(written)).await.is_ok() {
                written += 1;
            }
            let mut deleted = 0;
            while is_starved && deleted + 1 < written {
                let delete = delete("pods", &format!("a/{deleted}"), "gone", Precondition::Exists);
                if store.write(delete).await.is_err() {
                    break;
                }
                deleted += 1;
            }
            written - deleted
        });
        let crashed = disk.after_crash(&mut || true);
        store.close();
        crashed.limit_bytes(crashed.used_bytes());
        let store = open(&crashed, &options());
        assert_eq!(list(&store.view(), "pods").len(), written);
        let more = put("pods", "a/more", &"x".repeat(50_000), Precondition::Absent);
        let error = runtime().block_on(store.write(more)).unwrap_err();
        assert!(matches!(error, WriteError::NoSpace(_)), "{error}");
    }
}

#[test]
fn damage_below_a_synced_position_is_refused_and_nothing_is_changed() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    runtime().block_on(async {
        for index in 0..4 {
            store
                .write(put("pods", &format!("a/{index}"), "1", Precondition::Any))
                .await
                .unwrap();
        }
    });
    store.close();
    let name = flatkube::store::files::segment(1);
    disk.damage(&name, 64 + 120, 4);
    let before = disk.steps();
    let error = Store::open(Arc::new(disk.clone()), options(), Arc::new(Toy)).unwrap_err();
    let OpenError::Damaged(damaged) = &error else {
        panic!("{error}")
    };
    assert!(damaged.file.contains(&name) && damaged.offset >= 64, "{damaged}");
    assert_eq!(disk.steps(), before, "nothing was changed");
    disk.damage(&name, 64 + 120, 4);
    assert_eq!(list(&open(&disk, &options()).view(), "pods").len(), 4);
}

#[test]
fn a_missing_manifest_does_not_pass_for_a_new_directory() {
    let disk = SimDisk::new();
    let store = open(&disk, &options());
    runtime()
        .block_on(store.write(put("pods", "a/b", "1", Precondition::Any)))
        .unwrap();
    drop(store);
    disk.remove("manifest").unwrap();
    let error = Store::open(Arc::new(disk), options(), Arc::new(Toy)).unwrap_err();
    assert!(matches!(error, OpenError::Damaged(_)), "{error}");
}

#[test]
fn without_syncs_an_unclean_end_makes_revisions_jump_and_restarts_history() {
    let disk = SimDisk::new();
    let mut options = options();
    options.durability = flatkube::store::Durability::Os;
    let store = open(&disk, &options);
    let revision = runtime().block_on(async {
        for index in 0..100 {
            store
                .write(put("pods", &format!("a/{index}"), &"x".repeat(200), Precondition::Any))
                .await
                .unwrap();
        }
        store.view().revision()
    });
    assert!(store.stats().segments > 2);
    for survives in [true, false] {
        let store = open(&disk.after_crash(&mut || survives), &options);
        let now = store.view().revision();
        assert!(
            now >= revision + (1 << 32) - 100 && now <= revision + (1 << 32),
            "{now}"
        );
        assert_eq!(
            store.view_at("pods", revision).unwrap_err(),
            HistoryError::TooOld {
                floor: now,
                current: now
            }
        );
        assert_eq!(
            store.follow("never-written", None, revision).unwrap_err(),
            HistoryError::TooOld {
                floor: now,
                current: now
            }
        );
        assert_eq!(list(&store.view(), "pods").len(), if survives { 100 } else { 0 });
        runtime()
            .block_on(store.write(put("pods", "b/c", "1", Precondition::Absent)))
            .unwrap();
    }
    store.close();
    let store = open(&disk, &options);
    assert_eq!(store.view().revision(), revision, "a clean end loses nothing");
    let selection = Selection::default();
    assert!(
        store
            .view()
            .list("pods", Range::default(), &selection)
            .next(10)
            .unwrap()
            .is_some()
    );
}
