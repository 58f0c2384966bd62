//! Gets, lists, Tables and watches, through the API's read path.

use std::sync::Arc;

use flatkube::api::negotiate::{MetaVersion, Shape};
use flatkube::api::request::{RequestInfo, Verb};
use flatkube::store::Store;

use crate::Scenario;
use crate::asking::{self, Asking, request};
use crate::fixtures::{Data, Fixtures, LOGGED, SHELVED};
use crate::opened;
use crate::region::counted;
use crate::stored::{self, pod_place, pods};

/// Events that a watch is told at once.
const EVENTS: usize = 100;

pub(crate) fn scenarios() -> Vec<Scenario> {
    let scenario = |name, data, rounds, run| Scenario {
        name,
        rounds,
        data,
        run,
    };
    let (delta, shelf) = (Data::Delta, Data::Shelf);
    vec![
        scenario("get_delta", delta, 1_000, |fixtures, rounds| {
            get(&fixtures.delta(), LOGGED, rounds);
        }),
        scenario("get_shelf", shelf, 1_000, |fixtures, rounds| {
            get(&fixtures.shelf(), SHELVED, rounds);
        }),
        scenario("list_1000_delta", delta, 10, |fixtures, rounds| {
            list(&fixtures.delta(), "", Shape::Object, rounds);
        }),
        scenario("list_1000_shelf", shelf, 50, |fixtures, rounds| {
            list(&fixtures.shelf(), "limit=1000", Shape::Object, rounds);
        }),
        scenario("list_all_10000_shelf", shelf, 5, |fixtures, rounds| {
            list(&fixtures.shelf(), "", Shape::Object, rounds);
        }),
        scenario("select_100_of_1000_delta", delta, 20, |fixtures, rounds| {
            list(&fixtures.delta(), "labelSelector=pick%3Dyes", Shape::Object, rounds);
        }),
        scenario("select_100_of_10000_shelf", shelf, 20, |fixtures, rounds| {
            list(&fixtures.shelf(), "labelSelector=pick%3Dyes", Shape::Object, rounds);
        }),
        scenario("select_not_1000_of_10000_shelf", shelf, 5, |fixtures, rounds| {
            let query = "labelSelector=pick%21%3Dyes&limit=1000";
            list(&fixtures.shelf(), query, Shape::Object, rounds);
        }),
        scenario("table_500_delta", delta, 5, |fixtures, rounds| {
            list(&fixtures.delta(), "limit=500", Shape::Table(MetaVersion::V1), rounds);
        }),
        scenario("table_500_shelf", shelf, 5, |fixtures, rounds| {
            list(&fixtures.shelf(), "limit=500", Shape::Table(MetaVersion::V1), rounds);
        }),
        scenario("metadata_500_shelf", shelf, 5, |fixtures, rounds| {
            list(
                &fixtures.shelf(),
                "limit=500",
                Shape::PartialList(MetaVersion::V1),
                rounds,
            );
        }),
        scenario("watch_100_events", delta, 20, watch),
        scenario("watch_100_events_selected", delta, 20, watch_selected),
    ]
}

fn get(store: &Arc<Store>, count: usize, rounds: u64) {
    let (asking, runtime) = (Asking::of(store), opened::runtime());
    let infos: Vec<RequestInfo> = (0..100)
        .map(|index| asking::get(pods(), pod_place(index * 7_919 % count)))
        .collect();
    // All objects are met before it counts.
    for info in &infos {
        assert!(runtime.block_on(asking.answer_len(info)) > 3_000, "this is no Pod");
    }
    let mut infos = infos.iter().cycle();
    counted(rounds, || {
        let info = infos.next().expect("endless");
        runtime.block_on(asking.answer_len(info));
    });
}

fn list(store: &Arc<Store>, query: &str, shape: Shape, rounds: u64) {
    let (asking, runtime) = (Asking::of(store), opened::runtime());
    let info = request(Verb::List, pods(), query, shape);
    assert!(
        runtime.block_on(asking.answer_len(&info)) > 100_000,
        "this is no list of Pods"
    );
    counted(rounds, || {
        runtime.block_on(asking.answer_len(&info));
    });
}

/// A watch that is told what was written, in one go.
fn watch(fixtures: &Fixtures, rounds: u64) {
    watched(fixtures, "", rounds);
}

fn watch_selected(fixtures: &Fixtures, rounds: u64) {
    watched(fixtures, "&labelSelector=team", rounds);
}

fn watched(fixtures: &Fixtures, selector: &str, rounds: u64) {
    let store = fixtures.delta();
    let (asking, runtime) = (Asking::of(&store), opened::runtime());
    let before = store.view().revision();
    opened::fill(
        &runtime,
        &store,
        (0..EVENTS).map(|number| stored::put(pods(), &stored::pod(number, false))),
    );
    let query = format!("resourceVersion={before}{selector}");
    let info = request(Verb::Watch, pods(), &query, Shape::Object);
    let mut len = 0;
    runtime.block_on(async {
        let (mut watch, mut events) = (asking.watch(&info).await, 0);
        while events < EVENTS {
            let frame = asking::events(&mut watch).await;
            events += frame.iter().filter(|byte| **byte == b'\n').count();
            len += frame.len();
        }
        assert_eq!(events, EVENTS);
    });
    counted(rounds, || {
        runtime.block_on(async {
            let (mut watch, mut told) = (asking.watch(&info).await, 0);
            while told < len {
                told += asking::events(&mut watch).await.len();
            }
        });
    });
}
