//! What all controllers share: they read the log, however far behind they are, and tell how far that is.

use std::sync::Arc;
use std::sync::mpsc::channel;

use flatkube::controllers::Controllers;
use flatkube::resources;
use flatkube::store::{Change, Precondition, Write};
use flatkube::tree::Value as Tree;
use serde_json::json;

use crate::{Answer, Cluster};

/// Writes that a controller misses.
const MISSED: usize = 200_000;
/// Writes that are under way together.
const TOGETHER: usize = 500;

/// Writes a ConfigMap that no controller is about, again and again.
async fn write_much(cluster: &Cluster, count: usize) {
    let store = cluster.server.store().clone();
    let resource = resources::find("", "v1", "configmaps").unwrap();
    let object: Tree =
        serde_json::from_value(json!({"metadata": {"name": "busy", "namespace": "default", "uid": "u"}})).unwrap();
    let prepared = resources::encode(resource, &object).unwrap();
    for _ in 0..count / TOGETHER {
        let writes: Vec<_> = (0..TOGETHER)
            .map(|_| {
                let (store, prepared) = (store.clone(), prepared.clone());
                tokio::spawn(async move {
                    let write = Write {
                        resource: Arc::from("configmaps"),
                        key: "default/busy".to_owned(),
                        precondition: Precondition::Any,
                        uid: None,
                        change: Change::Put(prepared),
                    };
                    store.write(write).await.unwrap();
                })
            })
            .collect();
        for write in writes {
            write.await.unwrap();
        }
    }
}

fn figure(answer: &Answer, line: &str) -> f64 {
    let text = answer.body.as_str().unwrap();
    let found = text.lines().find_map(|row| row.strip_prefix(line));
    found.map_or(f64::NAN, |value| value.trim().parse().unwrap())
}

#[test]
fn a_controller_that_was_stalled_for_200_000_writes_catches_up_by_reading_the_log() {
    let main = tokio::runtime::Runtime::new().unwrap();
    let stalled = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cluster = main.block_on(Cluster::without_controllers());
    let authority = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let controllers = {
        let _inside = stalled.enter();
        Controllers::start(&cluster.server)
    };
    let there = |answer: &Answer| answer.code == 200;
    main.block_on(cluster.until(authority, there));
    main.block_on(cluster.until(account, there));
    // The one thread that all controllers have is held.
    let ((go_on, held), (is_held, told)) = (channel::<()>(), channel());
    stalled.spawn(async move {
        is_held.send(()).unwrap();
        let _ = held.recv();
    });
    told.recv().unwrap();
    main.block_on(async {
        write_much(&cluster, MISSED / 2).await;
        cluster.admin.delete(authority).await;
        cluster.admin.delete(account).await;
        write_much(&cluster, MISSED / 2).await;
        assert_eq!(cluster.admin.get(authority).await.code, 404);
        go_on.send(()).unwrap();
        cluster.until(authority, there).await;
        cluster.until(account, there).await;
        let figures = cluster.admin.get("/metrics").await;
        assert!(figure(&figures, "flatkube_followers_too_old ") < 0.5);
    });
    main.block_on(cluster.server.stop());
    stalled.block_on(controllers.ended());
}

#[tokio::test]
async fn figures_of_controllers_have_the_names_that_people_know() {
    let cluster = Cluster::start().await;
    cluster
        .until("/api/v1/namespaces/default/serviceaccounts/default", |answer| {
            answer.code == 200
        })
        .await;
    let text = cluster.admin.get("/metrics").await;
    let text = text.body.as_str().unwrap();
    // The recorder that is asked is the first one of the process, which may be another test's server.
    if text.contains("workqueue_") {
        for name in [
            "workqueue_adds_total",
            "workqueue_depth",
            "workqueue_work_duration_seconds_bucket",
            "flatkube_controller_lag_revisions",
        ] {
            assert!(text.contains(name), "{name}");
        }
    }
}
