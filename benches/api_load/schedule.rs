//! From a Deployment to Pods that run: the controllers, the scheduler and simulated nodes in the server's process.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::client::{Client, Question, Transport};
use crate::cost::stopwatch;
use crate::dataset::Served;
use crate::failure::Failure;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::watches::Watcher;
use flatkube::store::Durability;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Pods of a run that only shows that it works.
const FEW: usize = 5;

/// A Deployment of a size that people make, and a burst.
pub(crate) fn scenarios() -> Vec<Scenario> {
    [
        (
            "schedule_deployment",
            "from a Deployment of 100 replicas on 100 nodes until each Pod is ready; .bound: until it has a node",
            100,
            100,
        ),
        (
            "schedule_burst",
            "from a Deployment of 5,000 replicas on 500 nodes until each Pod is ready; .bound: until it has a node",
            500,
            5_000,
        ),
    ]
    .into_iter()
    .map(|(name, about, nodes, replicas)| Scenario {
        key: Key::plain(name, State::Empty, replicas),
        about,
        clients: 1,
        sets: Sets {
            quick: replicas == 100,
            compare: false,
            lone_round: replicas > 100,
        },
        open: Box::new(move |stage| {
            let is_brief = stage.effort.half_round.is_zero();
            Ok(Box::new(Schedule {
                runtime: stage.runtime.clone(),
                served: Served::start_cluster(Durability::Fsync, if is_brief { FEW } else { nodes }),
                replicas: if is_brief { FEW } else { replicas },
                rounds: 0,
            }))
        }),
    })
    .collect()
}

struct Schedule {
    runtime: Rc<tokio::runtime::Runtime>,
    served: Served,
    replicas: usize,
    rounds: usize,
}

impl Running for Schedule {
    fn ours(&mut self) -> Result<Round, Failure> {
        self.rounds += 1;
        let name = format!("load-{}", self.rounds);
        let (target, replicas) = (&self.served.target, self.replicas);
        self.runtime.block_on(async {
            let mut client = Client::connect(target, Transport::Plain).await?;
            let mut watcher = Watcher::open(target, Transport::Plain, &format!("{PODS}?watch=true")).await?;
            let (mut bound, mut ready) = (HashMap::new(), HashMap::new());
            let mut bytes = 0;
            let stop = stopwatch();
            let begun = Instant::now();
            client.ask(&create(&name, replicas)).await?;
            while ready.len() < replicas {
                let event = watcher.next().await?;
                bytes += event.0.len() as u64;
                let Seen { object: pod, .. } = seen(&event.0)?;
                if pod.spec.node_name.is_some() {
                    bound
                        .entry(pod.metadata.name.clone())
                        .or_insert_with(|| begun.elapsed());
                }
                if pod.is_ready() {
                    ready.entry(pod.metadata.name).or_insert_with(|| begun.elapsed());
                }
            }
            let cost = stop();
            let path = format!("{DEPLOYMENTS}/{name}?propagationPolicy=Background");
            let delete = Question::write(Method::DELETE, path, "application/json", Bytes::new());
            client.ask(&delete).await?;
            let mut left = replicas;
            while left > 0 {
                left -= usize::from(seen(&watcher.next().await?.0)?.r#type == "DELETED");
            }
            let batch = |took: HashMap<String, _>| Batch {
                took: took.into_values().collect(),
                bytes,
                cost,
            };
            Ok(Round {
                parts: vec![("bound", batch(bound))],
                ..Round::from(batch(ready))
            })
        })
    }
}

fn create(name: &str, replicas: usize) -> Question {
    let body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "web",
                    "image": "registry.example.com/web:1",
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                }]},
            },
        },
    });
    Question::write(
        Method::POST,
        DEPLOYMENTS.to_owned(),
        "application/json",
        body.to_string().into(),
    )
}

/// What an event of a Pod tells here.
#[derive(Deserialize)]
struct Seen {
    r#type: String,
    object: Pod,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

impl Pod {
    fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.r#type == "Ready" && condition.status == "True")
    }
}

fn seen(event: &Bytes) -> Result<Seen, Failure> {
    serde_json::from_slice(event)
        .map_err(|error| Failure::content(PODS, format!("not the event of a Pod: {error}"), event))
}
