//! Reads: which there are, on which objects, and what a right answer looks like.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::client::{Question, Transport};
use crate::dataset::{self, Served};
use crate::limit::Limit;
use crate::measure::{self, Effort, Sides};
use crate::report::Row;
use flatkube::store::Durability;

/// Objects of the small stores.
const SMALL: usize = 1_000;
/// More objects of a kind than any server makes itself.
const BOOTSTRAPPED_MAX: usize = 10;
/// Objects that carry `pick=yes` in every store.
const PICKED: usize = 100;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// Which store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// 1,000 ConfigMaps.
    SmallShelved,
    /// The same, nothing of it shelved.
    SmallDelta,
    /// 1,000 Pods.
    PodsShelved,
    /// `--objects` Pods.
    LargeShelved,
    /// The same after a quarter of it was updated: no larger delta stays unshelved.
    LargeDelta,
}

const STORES: [On; 5] = [
    On::SmallShelved,
    On::SmallDelta,
    On::PodsShelved,
    On::LargeShelved,
    On::LargeDelta,
];

/// One question.
pub(crate) struct Scenario {
    pub(crate) name: String,
    on: On,
    clients: usize,
    question: Question,
    expected: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    Object,
    /// So many items or rows.
    Count(usize),
    /// So many, and those that a server makes itself.
    All(usize),
    Some,
}

/// All scenarios for a large store of `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let mut add = |name: String, on, clients, question: Question, expected| {
        scenarios.push(Scenario {
            name,
            on,
            clients,
            question,
            expected,
        });
    };
    let thousands = objects / 1_000;
    for (on, state) in [(On::SmallShelved, "shelved"), (On::SmallDelta, "delta")] {
        add(
            format!("get, {state}"),
            on,
            32,
            Question::get("/api/v1/namespaces/ns-0/configmaps/object-000000"),
            Expected::Object,
        );
        let list = || Question::get("/api/v1/configmaps");
        add(format!("list_all 1k, {state}"), on, 4, list(), Expected::All(SMALL));
        add(
            format!("list_selector 100 of 1k, {state}"),
            on,
            4,
            Question::get("/api/v1/configmaps?labelSelector=pick%3Dyes"),
            Expected::Count(PICKED),
        );
        add(
            format!("list_table 1k, {state}"),
            on,
            4,
            list().accept(TABLE),
            Expected::All(SMALL),
        );
        add(
            format!("list_metadata 1k, {state}"),
            on,
            4,
            list().accept(PARTIAL),
            Expected::All(SMALL),
        );
    }
    let selector = || Question::get("/api/v1/pods?labelSelector=pick%3Dyes");
    add(
        "pods_selector 100 of 1k, shelved".into(),
        On::PodsShelved,
        4,
        selector(),
        Expected::Count(PICKED),
    );
    add(
        "pods_table 1k, shelved".into(),
        On::PodsShelved,
        4,
        Question::get("/api/v1/pods").accept(TABLE),
        Expected::All(SMALL),
    );
    for (on, state) in [(On::LargeShelved, "shelved"), (On::LargeDelta, "delta full")] {
        add(
            format!("pods_get of {thousands}k, {state}"),
            on,
            32,
            Question::get(pod_path(0)),
            Expected::Object,
        );
        add(
            format!("pods_selector 100 of {thousands}k, {state}"),
            on,
            4,
            selector(),
            Expected::Count(PICKED),
        );
        let node = dataset::pod(0, false).1["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        add(
            format!("pods_field_selector node of {thousands}k, {state}"),
            on,
            4,
            Question::get(format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")),
            Expected::Some,
        );
        let namespace = dataset::pod(0, false).1["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        add(
            format!("pods_namespace 1/20 of {thousands}k, {state}"),
            on,
            1,
            Question::get(format!("/api/v1/namespaces/{namespace}/pods")),
            Expected::Some,
        );
        add(
            format!("pods_table_page 500 of {thousands}k, {state}"),
            on,
            4,
            Question::get("/api/v1/pods?limit=500").accept(TABLE),
            Expected::Count(500),
        );
        add(
            format!("pods_page 500 of {thousands}k, {state}"),
            on,
            4,
            Question::get("/api/v1/pods?limit=500"),
            Expected::Count(500),
        );
        add(
            format!("pods_table_full {thousands}k, {state}"),
            on,
            1,
            Question::get("/api/v1/pods").accept(TABLE),
            Expected::All(objects),
        );
        add(
            format!("pods_full {thousands}k, {state}"),
            on,
            1,
            Question::get("/api/v1/pods"),
            Expected::All(objects),
        );
    }
    scenarios
}

fn pod_path(n: usize) -> String {
    let object = dataset::pod(n, false).1;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"))
}

/// Runs scenarios, store by store; a store lives only while it is asked.
pub(crate) fn run(
    runtime: &tokio::runtime::Runtime,
    scenarios: &[Scenario],
    transports: &[Transport],
    objects: usize,
    effort: Effort,
    tell: &mut dyn FnMut(Row),
) {
    let mut large: Option<Served> = None;
    for on in STORES {
        let here: Vec<_> = scenarios.iter().filter(|scenario| scenario.on == on).collect();
        if here.is_empty() {
            continue;
        }
        let small;
        let served = match on {
            On::LargeShelved | On::LargeDelta => large.get_or_insert_with(|| large_store(objects)),
            _ => {
                small = small_store(on);
                &small
            }
        };
        if on == On::LargeDelta {
            grow_delta(served, objects);
        }
        let limit = Limit::start(&served.data_dir);
        // A store without shelves borrows the bytes of one that has some.
        let lender = (on == On::SmallDelta).then(|| small_store(On::SmallShelved));
        let lender = lender.as_ref().unwrap_or(served);
        let resource = match on {
            On::SmallShelved | On::SmallDelta => "configmaps",
            _ => "pods",
        };
        let mapped = |len| lender.mapped(resource, len);
        for scenario in here {
            for transport in transports {
                let sides = Sides {
                    server: &served.target,
                    limit: &limit,
                    transport: *transport,
                    effort,
                    mapped: &mapped,
                };
                tell(runtime.block_on(measure::read(
                    &scenario.name,
                    sides,
                    scenario.clients,
                    &scenario.question,
                    |body| scenario.expected.check(body),
                )));
            }
        }
    }
}

fn small_store(on: On) -> Served {
    let served = Served::start(Durability::Os, false);
    if on == On::PodsShelved {
        served.fill_pods(SMALL, PICKED);
    } else {
        served.fill_config_maps(SMALL, PICKED);
    }
    if on != On::SmallDelta {
        served.shelve();
    }
    served
}

fn large_store(objects: usize) -> Served {
    let served = Served::start(Durability::Os, false);
    served.fill_pods(objects, PICKED);
    served.shelve();
    served
}

/// Updates every fourth Pod, a little under what the default options let grow; all picked ones are among them.
fn grow_delta(served: &Served, objects: usize) {
    served.fill((0..objects).step_by(4).map(|n| {
        let (resource, mut object) = dataset::pod(n, n % (objects / PICKED) == 0);
        object["metadata"]["annotations"]["bench.example.com/updated"] = json!("yes");
        (resource, object)
    }));
}

impl Expected {
    fn check(self, body: &[u8]) {
        #[derive(Deserialize)]
        struct List {
            kind: String,
            #[serde(default)]
            items: Vec<IgnoredAny>,
            #[serde(default)]
            rows: Vec<IgnoredAny>,
        }
        let list: List = serde_json::from_slice(body).expect("JSON");
        let count = list.items.len() + list.rows.len();
        match self {
            Expected::Object => assert!(matches!(list.kind.as_str(), "ConfigMap" | "Pod"), "{}", list.kind),
            Expected::Count(expected) => assert_eq!(count, expected, "objects in the answer"),
            Expected::All(expected) => assert!(
                (expected..expected + BOOTSTRAPPED_MAX).contains(&count),
                "{count} objects in the answer"
            ),
            Expected::Some => assert!(count > 0, "objects in the answer"),
        }
    }
}
