//! `flatkube seed`: many realistic objects, created through the API as any client would.
//!
//! The objects are a function of their number alone ([`objects`]), so a second run makes the same ones: what is there
//! already is asked for first and left out, which makes a run that was broken off resumable.
//!
//! A Pod costs two requests: kube-apiserver drops `status` when a Pod is created (and so do we), so the status goes to
//! the `status` subresource afterwards, as a kubelet sends it. `--status false` leaves that out.

mod objects;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{ArgAction, ValueEnum};
use hyper::Method;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::client::{Client, JSON, MERGE_PATCH, RequestError};
use super::{Exit, Failure, kubeconfig};
use objects::Seeded;

/// Arguments of `flatkube seed`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Creates N realistic objects through the API of a running server (any Kubernetes API server): Pods \
        of about 3 KiB on 5,000 nodes, or ConfigMaps of about 1.4 KiB, the same ones each time. What exists already is \
        left as it is, so a run that was broken off can be started again.",
    after_long_help = "\
Examples:
  100,000 Pods in 20 namespaces, with the kubeconfig that `flatkube server --data-dir ./data` wrote:
      flatkube seed --objects 100000 --kubeconfig ./data/admin.kubeconfig

  1,000 ConfigMaps in one namespace:
      flatkube seed --kind configmaps --objects 1000 --namespaces 1

  Pods as they are right after creation, in half the requests:
      flatkube seed --objects 10000 --status false

Find them again:
      kubectl get pods -A -l app.kubernetes.io/managed-by=flatkube-seed"
)]
pub(super) struct Arguments {
    /// How many objects there should be
    #[arg(long, value_name = "N")]
    objects: u64,

    /// What to create
    #[arg(long, value_enum, default_value_t = Kind::Pods)]
    kind: Kind,

    /// Over how many namespaces they are spread (they are created where missing)
    #[arg(long, value_name = "M", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    namespaces: u32,

    /// How many requests are under way at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    writers: u32,

    /// Give Pods the status of a running Pod, by a second request each
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    status: bool,

    /// The kubeconfig of the server
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value_os_t = kubeconfig::default_path())]
    kubeconfig: PathBuf,
}

/// What can be seeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Pods,
    Configmaps,
}

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Kind::Pods => "pods",
            Kind::Configmaps => "configmaps",
        }
    }
}

/// Tries of one request before the run gives up.
const TRIES_MAX: u32 = 6;
/// Objects asked for in one page when looking for what exists.
const PAGE_OBJECTS: u32 = 1_000;

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let client = Client::new(&kubeconfig::read(&arguments.kubeconfig)?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
    runtime.block_on(seed(client, arguments))
}

/// What the writers share.
struct Work {
    client: Client,
    kind: Kind,
    namespaces: u32,
    status: bool,
    objects: u64,
    existing: HashSet<String>,
    without_status: HashSet<String>,
    /// Number of the next object to look at.
    next: AtomicU64,
    stop: AtomicBool,
    requests: AtomicU64,
    bytes: AtomicU64,
    created: AtomicU64,
    skipped: AtomicU64,
    bar: ProgressBar,
}

async fn seed(client: Client, arguments: Arguments) -> Result<(), Failure> {
    let started = Instant::now();
    let status = arguments.status && arguments.kind == Kind::Pods;
    for number in 0..arguments.namespaces {
        let namespace = objects::namespace(number);
        let name = namespace["metadata"]["name"].as_str().unwrap_or("");
        // Pods need an account; it would come by itself, but later.
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        let account = r#"{"metadata":{"name":"default"}}"#.to_owned();
        for (path, body) in [("/api/v1/namespaces", namespace.to_string()), (&*accounts, account)] {
            match client.send(Method::POST, path, JSON, Bytes::from(body)).await {
                Ok(_) => {}
                Err(error) if error.already_exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let existing = names(&client, arguments.kind, "").await?;
    let without_status = if status && !existing.is_empty() {
        names(&client, arguments.kind, "&fieldSelector=status.phase%3DPending").await?
    } else {
        HashSet::new()
    };

    let bar = ProgressBar::new(arguments.objects).with_style(
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len}  {per_sec}  {eta} left")
            .expect("the template is a constant"),
    );
    bar.set_message(arguments.kind.plural());
    let work = Arc::new(Work {
        client,
        kind: arguments.kind,
        namespaces: arguments.namespaces,
        status,
        objects: arguments.objects,
        existing,
        without_status,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        requests: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        created: AtomicU64::new(0),
        skipped: AtomicU64::new(0),
        bar,
    });

    let writing = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..arguments.writers {
        writers.spawn(write(Arc::clone(&work)));
    }
    let mut failure = None;
    let mut interrupted = false;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            ended = writers.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => { failure.get_or_insert(Failure::from(error)); }
                Some(Err(error)) => { failure.get_or_insert(Failure::new(Exit::Failure, error.to_string())); }
            },
            _ = &mut interrupt, if !interrupted => {
                interrupted = true;
                work.stop.store(true, Ordering::Relaxed);
            }
        }
    }
    work.bar.finish_and_clear();
    report(&work, writing.elapsed(), started.elapsed());
    match failure {
        Some(failure) => Err(failure.advise("what was created stays; run the same command again to go on")),
        None if interrupted => {
            Err(Failure::new(Exit::Failure, "interrupted").advise("run the same command again to go on"))
        }
        None => Ok(()),
    }
}

fn report(work: &Work, writing: Duration, whole: Duration) {
    let requests = work.requests.load(Ordering::Relaxed);
    let created = work.created.load(Ordering::Relaxed);
    let seconds = writing.as_secs_f64().max(1e-3);
    println!(
        "{} of {} {} created in {:.1} s ({:.0} a second), {} were there; {} writes ({:.0} a second), {} sent; {} in all",
        HumanCount(created),
        HumanCount(work.objects),
        work.kind.plural(),
        writing.as_secs_f64(),
        created as f64 / seconds,
        HumanCount(work.skipped.load(Ordering::Relaxed)),
        HumanCount(requests),
        requests as f64 / seconds,
        HumanBytes(work.bytes.load(Ordering::Relaxed)),
        HumanDuration(whole),
    );
}

/// One writer: takes the next number until there is none.
async fn write(work: Arc<Work>) -> Result<(), RequestError> {
    while !work.stop.load(Ordering::Relaxed) {
        let number = work.next.fetch_add(1, Ordering::Relaxed);
        if number >= work.objects {
            break;
        }
        let object = match work.kind {
            Kind::Pods => objects::pod(number, work.namespaces),
            Kind::Configmaps => objects::config_map(number, work.namespaces),
        };
        let outcome = put(&work, object).await;
        if outcome.is_err() {
            work.stop.store(true, Ordering::Relaxed);
        }
        outcome?;
        work.bar.inc(1);
    }
    Ok(())
}

async fn put(work: &Work, object: Seeded) -> Result<(), RequestError> {
    let key = format!("{}/{}", object.namespace, object.name);
    let exists = work.existing.contains(&key);
    let path = format!("/api/v1/namespaces/{}/{}", object.namespace, work.kind.plural());
    let mut created = false;
    if !exists {
        created = match send(work, Method::POST, &path, JSON, object.body).await {
            Ok(()) => true,
            // Another run is at it, or a broken connection hid the answer to our own first try.
            Err(error) if error.already_exists() => false,
            Err(error) => return Err(error),
        };
    }
    if work.status && (!exists || work.without_status.contains(&key)) {
        let path = format!("{path}/{}/status", object.name);
        send(work, Method::PATCH, &path, MERGE_PATCH, object.status).await?;
    }
    let counter = if created { &work.created } else { &work.skipped };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sends one write, again after a pause when the server is busy or the connection broke.
async fn send(
    work: &Work,
    method: Method,
    path: &str,
    content_type: &'static str,
    body: Bytes,
) -> Result<(), RequestError> {
    let mut pause = Duration::from_millis(100);
    for attempt in 1.. {
        work.requests.fetch_add(1, Ordering::Relaxed);
        work.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        match work.client.send(method.clone(), path, content_type, body.clone()).await {
            Ok(_) => break,
            Err(error) if error.is_transient() && attempt < TRIES_MAX && !work.stop.load(Ordering::Relaxed) => {
                tokio::time::sleep(error.retry_after().unwrap_or(pause)).await;
                pause *= 2;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `namespace/name` of the objects that earlier runs created, as far as `selector` (more query, from `&` on) matches.
async fn names(client: &Client, kind: Kind, selector: &str) -> Result<HashSet<String>, RequestError> {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMeta,
        #[serde(default)]
        items: Vec<Item>,
    }
    #[derive(Default, Deserialize)]
    struct ListMeta {
        #[serde(default, rename = "continue")]
        next: String,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: ItemMeta,
    }
    #[derive(Deserialize)]
    struct ItemMeta {
        namespace: String,
        name: String,
    }

    let mut names = HashSet::new();
    let mut next = String::new();
    loop {
        let path = format!(
            "/api/v1/{}?limit={PAGE_OBJECTS}&labelSelector={}%3D{}{selector}&continue={next}",
            kind.plural(),
            utf8_percent_encode(objects::MANAGED_BY_LABEL, NON_ALPHANUMERIC),
            objects::MANAGED_BY,
        );
        let page: List = client.get(&path).await?;
        names.extend(
            page.items
                .into_iter()
                .map(|item| format!("{}/{}", item.metadata.namespace, item.metadata.name)),
        );
        if page.metadata.next.is_empty() {
            return Ok(names);
        }
        next = page
            .metadata
            .next
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D");
    }
}
