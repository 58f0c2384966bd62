//! With the controllers, the scheduler and simulated nodes in the server's process: from a Deployment to Pods that run, and
//! what all of them cost those who write something else.

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
use crate::load::Load;
use crate::scenario::{Batch, Key, Round, Running, Scenario, Sets, State};
use crate::stage::Stage;
use crate::watches::Watcher;
use crate::writes::{NAMESPACES, create_config_map, fresh_numbers};
use flatkube::store::Durability;

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Pods of a run that only shows that it works.
const FEW: usize = 5;

/// Nodes beside a server that others write to.
const NODES: usize = 10;
/// Connections that write, and what they write in a round.
const WRITERS: usize = 32;
const CREATES: usize = 5_000;

/// A Deployment of a size that people make, and a burst; creates beside controllers.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = deployments();
    all.push(Scenario {
        key: Key::plain("create_beside_controllers", State::Empty, 0),
        about: "one ConfigMap a request while all controllers follow the log; .off: on a server without them",
        clients: WRITERS,
        sets: Sets {
            quick: true,
            ..Sets::default()
        },
        open: Box::new(BesideControllers::open),
    });
    all
}

fn deployments() -> Vec<Scenario> {
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

struct BesideControllers {
    runtime: Rc<tokio::runtime::Runtime>,
    on: (Served, Load),
    off: (Served, Load),
    creates: usize,
}

impl BesideControllers {
    fn open(stage: &mut Stage) -> Result<Box<dyn Running>, Failure> {
        let runtime = stage.runtime.clone();
        let connected = |served: Served| {
            served.make_namespaces(NAMESPACES);
            let load = runtime.block_on(Load::connect(&served.target, Transport::Plain, WRITERS))?;
            Ok((served, load))
        };
        Ok(Box::new(Self {
            on: connected(Served::start_cluster(Durability::Fsync, NODES))?,
            off: connected(Served::start(Durability::Fsync, true))?,
            creates: if stage.effort.half_round.is_zero() {
                WRITERS
            } else {
                CREATES
            },
            runtime,
        }))
    }

    fn creates(&mut self, is_on: bool) -> Result<Batch, Failure> {
        let questions: Vec<_> = fresh_numbers(self.creates).map(create_config_map).collect();
        let (_, load) = if is_on { &mut self.on } else { &mut self.off };
        self.runtime
            .block_on(load.run(self.creates, None, |n| questions[n].clone()))
    }

    /// How many revisions the controller that is furthest behind has not looked at.
    fn lag_revisions(&mut self) -> Result<u64, Failure> {
        let text = self
            .runtime
            .block_on(self.on.1.first().read(&Question::get("/metrics")))?;
        let text = String::from_utf8_lossy(&text);
        let lags = text
            .lines()
            .filter(|line| line.starts_with("flatkube_controller_lag_revisions"));
        let counts = lags.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.fold(0.0, f64::max) as u64)
    }
}

impl Running for BesideControllers {
    fn ours(&mut self) -> Result<Round, Failure> {
        let off = self.creates(false)?;
        let whole = self.creates(true)?;
        let lag = self.lag_revisions()?;
        eprintln!(
            "  after {} creates the last controller was {lag} revisions behind",
            self.creates
        );
        Ok(Round {
            parts: vec![("off", off)],
            ..Round::from(whole)
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
