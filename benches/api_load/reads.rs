//! Reads: which there are, on which objects, and what a right answer looks like.

use bytes::Bytes;

use crate::answer::Expected;
use crate::client::{Encoding, Question, Transport};
use crate::dataset;
use crate::load::{Asked, Read, Until};
use crate::scenario::{Key, Scenario, Sets, State};
use crate::stage::{On, PICKED, SMALL};

pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// One question on one store; over both transports, and compressed where the answer is large enough to be.
struct Kind {
    name: String,
    about: &'static str,
    question: Question,
    expected: Expected,
    clients: usize,
    /// Answers below 128 KiB are never compressed.
    gzip: bool,
    until: Until,
    sets: Sets,
}

impl Kind {
    fn new(name: impl Into<String>, about: &'static str, question: Question, expected: Expected) -> Self {
        Self {
            name: name.into(),
            about,
            question,
            expected,
            clients: 32,
            gzip: true,
            until: Until::End,
            sets: Sets {
                quick: true,
                ..Sets::default()
            },
        }
    }

    fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    fn never_compressed(mut self) -> Self {
        self.gzip = false;
        self
    }

    fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    fn lone_round(mut self) -> Self {
        self.sets.lone_round = true;
        self
    }
}

/// All reads, for a large store of `objects` Pods.
pub(crate) fn scenarios(objects: usize) -> Vec<Scenario> {
    let mut all = Vec::new();
    for (on, state) in [(On::SmallShelved, State::Shelved), (On::SmallDelta, State::Delta)] {
        for kind in of_config_maps() {
            add(&mut all, &kind, on, state, SMALL);
        }
    }
    for kind in of_thousand_pods() {
        add(&mut all, &kind, On::PodsShelved, State::Shelved, SMALL);
    }
    for (on, state) in [(On::LargeShelved, State::Shelved), (On::LargeDelta, State::DeltaFull)] {
        for kind in of_many_pods(objects) {
            add(&mut all, &kind, on, state, objects);
        }
    }
    all
}

/// What `--set compare` leaves out of its matrix, because another row shows the same: deltas over TLS and compressed.
fn is_compared(key: &Key) -> bool {
    let is_usual = key.transport == Transport::Plain && key.encoding == Encoding::Identity;
    is_usual || key.state == State::Shelved && matches!(key.name.as_str(), "get" | "list_all" | "list_table")
}

fn add(all: &mut Vec<Scenario>, kind: &Kind, on: On, state: State, objects: usize) {
    for transport in [Transport::Plain, Transport::Tls] {
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            if encoding == Encoding::Gzip && !kind.gzip {
                continue;
            }
            let key = Key::plain(kind.name.clone(), state, objects).over(transport, encoding);
            let question = kind.question.clone().encoding(encoding);
            let (expected, clients, until) = (kind.expected.clone(), kind.clients, kind.until);
            all.push(Scenario {
                about: kind.about,
                clients,
                sets: Sets {
                    compare: objects == SMALL && on != On::PodsShelved && is_compared(&key),
                    ..kind.sets
                },
                open: Box::new(move |stage| {
                    let asked = Asked {
                        stock: stage.stock(on),
                        transport,
                        clients,
                        question: question.clone(),
                        until,
                    };
                    let check = |body: &Bytes| expected.check(&question.path, question.encoding, body);
                    let read = Read::open(stage, asked, check)?;
                    Ok(Box::new(read))
                }),
                key,
            });
        }
    }
}

fn of_config_maps() -> Vec<Kind> {
    let list = || Question::get("/api/v1/configmaps");
    let selector = || Question::get("/api/v1/configmaps?labelSelector=pick%3Dyes");
    vec![
        Kind::new(
            "get",
            "one ConfigMap of 1.4 KB",
            Question::get("/api/v1/namespaces/ns-0/configmaps/object-000000"),
            Expected::Object("object-000000".into()),
        )
        .never_compressed(),
        Kind::new("list_all", "1,000 ConfigMaps", list(), Expected::All(SMALL)),
        Kind::new(
            "list_selector",
            "100 of 1,000 ConfigMaps, by a label",
            selector(),
            Expected::Picked(PICKED),
        )
        .never_compressed(),
        Kind::new(
            "list_table",
            "1,000 ConfigMaps as kubectl get asks for them",
            list().accept(TABLE),
            Expected::All(SMALL),
        ),
        Kind::new(
            "list_metadata",
            "the metadata of 1,000 ConfigMaps",
            list().accept(PARTIAL),
            Expected::All(SMALL),
        ),
    ]
}

fn of_thousand_pods() -> Vec<Kind> {
    vec![
        Kind::new(
            "list_selector_100_of_1k",
            "100 of 1,000 Pods, by a label",
            Question::get("/api/v1/pods?labelSelector=pick%3Dyes"),
            Expected::Picked(PICKED),
        ),
        Kind::new(
            "list_table_pods",
            "1,000 Pods as kubectl get asks for them",
            Question::get("/api/v1/pods").accept(TABLE),
            Expected::All(SMALL),
        ),
    ]
}

/// The path of the Pod with the number `n`.
pub(crate) fn pod_path(n: usize) -> String {
    let seeded = crate::objects::pod(n as u64, crate::writes::NAMESPACES);
    format!("/api/v1/namespaces/{}/pods/{}", seeded.namespace, seeded.name)
}

fn of_many_pods(objects: usize) -> Vec<Kind> {
    let pod = dataset::pod(0, false).1;
    let text = |value: &flatkube::tree::Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
    let node = text(&pod["spec"]["nodeName"]);
    let list = || Question::get("/api/v1/pods");
    let of = |n: usize| {
        if objects.is_multiple_of(1_000) {
            format!("list_selector_{n}_of_{}k", objects / 1_000)
        } else {
            format!("list_selector_{n}_of_{objects}")
        }
    };
    vec![
        Kind::new(
            "get",
            "one Pod of 3.5 KB among many",
            Question::get(pod_path(0)),
            Expected::Object(name),
        )
        .never_compressed(),
        Kind::new(
            of(PICKED),
            "100 Pods of many, by a label",
            Question::get("/api/v1/pods?labelSelector=pick%3Dyes"),
            Expected::Picked(PICKED),
        ),
        Kind::new(
            "field_selector_node",
            "the Pods of one node, as its kubelet asks",
            Question::get(format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")),
            Expected::AtLeast(1),
        )
        .never_compressed(),
        Kind::new(
            "list_namespace",
            "a twentieth of the Pods: one namespace",
            Question::get(format!("/api/v1/namespaces/{namespace}/pods")),
            Expected::AtLeast(objects / 40),
        )
        .clients(4),
        Kind::new(
            "list_table_page",
            "the first 500 Pods as kubectl get asks for them",
            Question::get("/api/v1/pods?limit=500").accept(TABLE),
            Expected::Count(500),
        ),
        Kind::new(
            "list_page",
            "the first 500 Pods",
            Question::get("/api/v1/pods?limit=500"),
            Expected::Count(500),
        ),
        Kind::new(
            "table_first_byte",
            "until the first byte of the Table of all Pods",
            list().accept(TABLE),
            Expected::All(objects),
        )
        .clients(1)
        .until(Until::FirstByte)
        .lone_round(),
        Kind::new(
            "list_table_full",
            "all Pods as one Table",
            list().accept(TABLE),
            Expected::All(objects),
        )
        .clients(1)
        .lone_round(),
        Kind::new("list_full", "all Pods", list(), Expected::All(objects))
            .clients(1)
            .lone_round(),
    ]
}
