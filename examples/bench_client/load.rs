//! Many clients at once.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::LocalSet;

use super::connection::{Connection, Question, Server};
use super::failure::Failure;
use super::mix::{Kind, Mix};

/// Rows of a page, as kubectl asks for them.
const PAGE_ROWS: usize = 500;
/// Pods whose names are learnt before the load; gets go to these.
const NAMES_MAX: usize = 2_000;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Clients, each on a connection of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Requests of all clients together
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// Kinds of requests and their shares
    #[arg(long, default_value = "get=9,table=3,selector=2,create=2,patch=2,delete=2")]
    mix: Mix,
}

/// What all clients know.
struct Plan {
    mix: Mix,
    requests: usize,
    clients: usize,
    /// Paths of Pods that exist.
    pods: Vec<String>,
    /// Makes names of this run's objects its own.
    run: u32,
}

/// One answered request.
struct Done {
    kind: Kind,
    bytes: usize,
    time: Duration,
}

/// Sends the load and gives its figures: per kind the number, bytes of bodies, and times in microseconds.
pub(crate) async fn run(server: &Server, arguments: &Arguments) -> Result<Value, Failure> {
    let mut connection = Connection::open(server).await?;
    let pods = pods(&mut connection).await?;
    check(&mut connection, &pods).await?;
    let plan = Rc::new(Plan {
        mix: arguments.mix.clone(),
        requests: arguments.requests,
        clients: usize::from(arguments.clients),
        pods,
        run: std::process::id(),
    });
    let clients = LocalSet::new();
    let mut tasks = Vec::new();
    for number in 0..plan.clients {
        let connection = Connection::open(server).await?;
        tasks.push(clients.spawn_local(client(Rc::clone(&plan), connection, number)));
    }
    let begun = Instant::now();
    clients.await;
    let elapsed = begun.elapsed();
    let mut done = Vec::new();
    for task in tasks {
        done.extend(task.await.map_err(|error| Failure::new(error.to_string()))??);
    }
    Ok(json!({
        "clients": plan.clients,
        "requests": done.len(),
        "seconds": elapsed.as_secs_f64(),
        "kinds": Kind::ALL.map(|kind| figures(kind, &done)).into_iter().flatten().collect::<Vec<_>>(),
    }))
}

fn figures(kind: Kind, done: &[Done]) -> Option<Value> {
    let mut times: Vec<u64> = done
        .iter()
        .filter(|one| one.kind == kind)
        .map(|one| one.time.as_micros() as u64)
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let bytes: usize = done.iter().filter(|one| one.kind == kind).map(|one| one.bytes).sum();
    (!times.is_empty()).then(|| {
        json!({
            "kind": kind.name(),
            "requests": times.len(),
            "bytes": bytes,
            "p50_us": at(0.5),
            "p90_us": at(0.9),
            "p99_us": at(0.99),
            "max_us": at(1.0),
            // A hundredth each: enough to draw the distribution.
            "percentiles_us": (0..=100).map(|percent| at(f64::from(percent) / 100.0)).collect::<Vec<_>>(),
        })
    })
}

#[derive(Deserialize)]
struct List {
    #[serde(default, alias = "rows")]
    items: Vec<Item>,
}

/// An item of a list, or the row of a Table.
#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

async fn list(connection: &mut Connection, question: &Question) -> Result<Vec<Item>, Failure> {
    let body = connection.ask(question).await?;
    let list: List =
        serde_json::from_slice(&body).map_err(|error| Failure::new(format!("GET {}: {error}", question.path)))?;
    Ok(list.items)
}

/// Paths of some Pods out of every namespace, always the same ones.
async fn pods(connection: &mut Connection) -> Result<Vec<String>, Failure> {
    let namespaces = list(connection, &Question::get("/api/v1/namespaces")).await?;
    let each = NAMES_MAX.div_ceil(namespaces.len().max(1));
    let mut paths = Vec::new();
    for namespace in namespaces {
        let path = format!("/api/v1/namespaces/{}/pods?limit={each}", namespace.metadata.name);
        paths.extend(
            list(connection, &Question::get(path))
                .await?
                .into_iter()
                .map(|Item { metadata }| format!("/api/v1/namespaces/{}/pods/{}", metadata.namespace, metadata.name)),
        );
    }
    if paths.is_empty() {
        return Err(Failure::new("the server has no Pods: fill it with `flatkube seed`"));
    }
    Ok(paths)
}

/// Every read of the load is asked once and looked at, before anything is timed.
async fn check(connection: &mut Connection, pods: &[String]) -> Result<(), Failure> {
    for (kind, least) in [(Kind::Table, PAGE_ROWS.min(pods.len())), (Kind::Selector, 0)] {
        let question = read(kind, pods, 0);
        let found = list(connection, &question).await?.len();
        if found < least || found > pods.len().max(PAGE_ROWS) {
            return Err(Failure::new(format!(
                "GET {}: {found} items or rows, expected {least}",
                question.path
            )));
        }
    }
    let pod: Item = serde_json::from_slice(&connection.ask(&read(Kind::Get, pods, 0)).await?)?;
    if !pods[0].ends_with(&format!("/{}", pod.metadata.name)) {
        return Err(Failure::new(format!("GET {}: {}", pods[0], pod.metadata.name)));
    }
    Ok(())
}

fn read(kind: Kind, pods: &[String], number: usize) -> Question {
    match kind {
        Kind::Table => Question::get(format!("/api/v1/pods?limit={PAGE_ROWS}")).table(),
        Kind::Selector => Question::get(format!("/api/v1/pods?labelSelector=cohort%3D{:03}", number % 1_000)),
        _ => Question::get(pods[number % pods.len()].clone()),
    }
}

async fn client(plan: Rc<Plan>, mut connection: Connection, client: usize) -> Result<Vec<Done>, Failure> {
    let mut created = VecDeque::new();
    let mut done = Vec::new();
    for request in 0.. {
        let number = request * plan.clients + client;
        if number >= plan.requests {
            break;
        }
        let mut kind = plan.mix.kind(client, request);
        let question = match kind {
            Kind::Get | Kind::Table | Kind::Selector => read(kind, &plan.pods, number),
            Kind::Create | Kind::Patch | Kind::Delete => {
                let oldest = match kind {
                    Kind::Patch => created.front().cloned(),
                    Kind::Delete => created.pop_front(),
                    _ => None,
                };
                match oldest {
                    Some(path) if kind == Kind::Patch => Question::write(
                        Method::PATCH,
                        path,
                        "application/merge-patch+json",
                        format!(r#"{{"data":{{"beat":"{number:08}"}}}}"#),
                    ),
                    Some(path) => Question::write(Method::DELETE, path, "", ""),
                    None => {
                        kind = Kind::Create;
                        let name = format!("load-{}-{number:08}", plan.run);
                        created.push_back(format!("{CONFIG_MAPS}/{name}"));
                        Question::write(Method::POST, CONFIG_MAPS, "application/json", config_map(&name))
                    }
                }
            }
        };
        let begun = Instant::now();
        let bytes = connection.ask(&question).await?.len();
        done.push(Done {
            kind,
            bytes,
            time: begun.elapsed(),
        });
        if bytes == 0 {
            return Err(Failure::new(format!("{}: an empty answer", question.path)));
        }
    }
    // The store is left as large as it was.
    for path in created {
        connection.ask(&Question::write(Method::DELETE, path, "", "")).await?;
    }
    Ok(done)
}

/// About 1.4 KiB, as `flatkube seed` makes them.
fn config_map(name: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "app.kubernetes.io/managed-by": "bench-client" } },
        "data": { "application.properties": "listen.address = 0.0.0.0:8080\n".repeat(40) },
    })
    .to_string()
}
