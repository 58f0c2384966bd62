//! What a request allocates. The counts are the same in every run, so a copy or a box more for each row is seen at once;
//! the limits are what it took when they were written, and a little more.

use allocation_counter::measure;
use flatkube::api::negotiate::{MetaVersion, Shape};
use flatkube::api::request::{RequestInfo, Verb};
use flatkube::store::Durability;

use crate::asking::{self, Asking, request};
use crate::opened::Opened;
use crate::stored::{self, pod_place, pods};

const PODS: usize = 1_000;
const EVENTS: u64 = 100;

fn filled(shelved: bool) -> Opened {
    let opened = Opened::empty(Durability::Os);
    opened.fill((0..PODS).map(|number| stored::put(pods(), &stored::pod(number, number % 10 == 0))));
    if shelved {
        opened.shelve();
    }
    opened
}

/// Allocations of one answer, asked for twice before it counts: files are mapped then, blocks checked.
fn allocations(opened: &Opened, info: &RequestInfo) -> u64 {
    let asking = Asking::of(&opened.store);
    let mut len = [0; 3];
    let counted =
        [0, 1, 2].map(|round| measure(|| len[round] = opened.runtime.block_on(asking.answer_len(info))).count_total);
    assert!(len[0] > 1_000 && len[0] == len[2], "no answers: {len:?}");
    counted[2]
}

#[test]
fn reads_allocate_no_more_than_they_did() {
    let list = |query, shape| request(Verb::List, pods(), query, shape);
    let (table, partial) = (Shape::Table(MetaVersion::V1), Shape::PartialList(MetaVersion::V1));
    let get = asking::get(pods(), pod_place(7));
    let cases = [
        // what, request, most allocations from the delta, most from the shelf
        ("get", get, 10, 10),
        ("page of 500", list("limit=500", Shape::Object), 600, 25),
        ("all 1,000", list("", Shape::Object), 1_100, 20),
        ("100 selected", list("labelSelector=pick%3Dyes", Shape::Object), 160, 50),
        ("Table of 500", list("limit=500", table), 1_600, 55),
        ("metadata of 500", list("limit=500", partial), 1_600, 55),
    ];
    let (delta, shelf) = (filled(false), filled(true));
    let mut found = Vec::new();
    for (what, info, delta_max, shelf_max) in &cases {
        for (place, opened, max) in [("delta", &delta, *delta_max), ("shelf", &shelf, *shelf_max)] {
            let count = allocations(opened, info);
            println!("{what} from the {place}: {count} allocations, limit {max}");
            if count > max {
                found.push(format!("{what} from the {place}: {count} allocations, limit {max}"));
            }
        }
    }
    assert!(found.is_empty(), "more than their limits:\n  {}", found.join("\n  "));
}

#[test]
fn a_watch_allocates_no_more_than_it_did() {
    let opened = filled(true);
    let before = opened.store.view().revision();
    let write = |number: usize| stored::put(pods(), &stored::pod(number, false));
    opened.fill((0..EVENTS as usize).map(write));
    let asking = Asking::of(&opened.store);
    let query = format!("resourceVersion={before}");
    let info = request(Verb::Watch, pods(), &query, Shape::Object);
    let told = || {
        let mut events = 0;
        let counted = measure(|| {
            opened.runtime.block_on(async {
                let mut watch = asking.watch(&info).await;
                while events < EVENTS {
                    let frame = asking::events(&mut watch).await;
                    events += frame.iter().filter(|byte| **byte == b'\n').count() as u64;
                }
            });
        });
        counted.count_total
    };
    told();
    let count = told();
    println!("{EVENTS} events: {count} allocations");
    assert!(count <= 160, "{EVENTS} events took {count} allocations, limit 160");
}
