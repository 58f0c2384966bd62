//! `flatkube store import`: objects from a file, or from a live cluster, into a running server through its API.
//!
//! What is read goes to unnamed files on disk first, by when it may be written: namespaces, definitions of custom resources, what others
//! need, everything else, and last what would hinder writes (quotas, webhooks, policies). So memory holds the UIDs of all
//! objects, old and new, and of the objects themselves only those that are under way (while a live cluster is read, a page of them
//! and the names of one resource's).
//!
//! An object waits for its owners, beyond its own turn if need be: their new UIDs take the place of the old ones in its
//! `ownerReferences`. Namespaces and definitions cannot wait, since others need them: they get their owners in the end.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Lines, Seek, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use indicatif::{HumanCount, ProgressBar};
use serde_json::{Value, json};

use super::documents;
use super::live::{self, Choice, Served};
use crate::cli::client::{Client, JSON, MERGE_PATCH, RequestError};
use crate::cli::progress::Quiet;
use crate::cli::{Exit, Failure, kubeconfig};

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Writes objects into a running server (any Kubernetes API server) through its API: from a file or standard input, \
        as JSON lines (what export writes), JSON or YAML documents, or Lists, compressed with gzip or not; or, with \
        --from-kubeconfig, straight from a live cluster.\n\n\
        Namespaces and definitions of custom resources come first, owners before what they own, quotas, webhooks and policies \
        last. The server gives out new UIDs, revisions and creation times; references to owners follow the new UIDs, and a \
        reference to an owner that is not imported is left out. Status goes through the status subresource, also to an \
        object that is there already and differs in nothing else. Left out is what \
        each server has of its own (the Service kubernetes, kube-root-ca.crt, local APIServices), and objects that are being \
        deleted. To keep UIDs, revisions and history, use backup and restore.",
    after_long_help = "\
Examples:
      flatkube store export ./old-data | flatkube store import --kubeconfig ./data/admin.kubeconfig
      flatkube store import manifests.yaml --dry-run

  A live cluster, as it is, into a flatkube server:
      flatkube store import --from-kubeconfig ~/.kube/config --from-context production --skip-existing

Exit codes: 0 when every object is there as it was given (or was left as --skip-existing says), 1 when some are not: each is
named, the others are there. A run that was broken off can be started again."
)]
pub(in crate::cli) struct Import {
    /// The file to read; - for standard input
    #[arg(default_value = "-", conflicts_with = "from_kubeconfig")]
    file: PathBuf,

    /// Read a live cluster instead: the one that this kubeconfig names
    #[arg(long, value_name = "FILE")]
    from_kubeconfig: Option<PathBuf>,

    /// The context in it, if not the current one
    #[arg(long, value_name = "NAME", requires = "from_kubeconfig")]
    from_context: Option<String>,

    /// Only this resource of the live cluster (such as pods or deployments.apps)
    #[arg(long, requires = "from_kubeconfig")]
    resource: Option<String>,

    /// Only this namespace of the live cluster
    #[arg(long, requires = "from_kubeconfig")]
    namespace: Option<String>,

    /// Events and leases of the live cluster, too
    #[arg(long, requires = "from_kubeconfig")]
    all: bool,

    /// Leave objects as they are that are there already and differ
    #[arg(long, conflicts_with = "overwrite")]
    skip_existing: bool,

    /// Replace objects that are there already and differ
    #[arg(long)]
    overwrite: bool,

    /// Carry managedFields along, so that server-side apply knows who owns which field
    #[arg(long)]
    keep_managed_fields: bool,

    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,

    /// How many requests are under way at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    writers: u32,

    /// The kubeconfig of the server to write to
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value_os_t = kubeconfig::default_path())]
    kubeconfig: PathBuf,

    /// The context in it, if not the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    quiet: Quiet,
}

/// When what is written: the first kinds before the second, those that are not named between the third and the fourth.
const FIRST: [&str; 1] = ["Namespace"];
const SECOND: [&str; 1] = ["CustomResourceDefinition"];
const THIRD: [&str; 14] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "IngressClass",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PriorityClass",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "Secret",
    "ServiceAccount",
    "StorageClass",
];
const LAST: [&str; 8] = [
    "APIService",
    "LimitRange",
    "MutatingAdmissionPolicy",
    "MutatingWebhookConfiguration",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];
const RANKS: usize = 5;
/// The rank of definitions of custom resources. Up to here nothing waits for an owner of a later rank.
const DEFINITIONS: usize = 1;

/// Fields of metadata that the server gives out.
const GIVEN_OUT: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
/// Kinds whose status is the server's own business.
const OWN_STATUS: [&str; 3] = ["APIService", "CustomResourceDefinition", "Namespace"];

/// Failures that are written out; the others are counted.
const TOLD_MAX: u64 = 50;
/// Looks for resources whose definitions were just written, and the pause between two.
const LOOKS_MAX: u32 = 50;
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Tries to replace an object that others write, too.
const REPLACE_TRIES_MAX: u32 = 5;

pub(super) fn run(arguments: &Import) -> Result<(), Failure> {
    let target = Client::new(&kubeconfig::read_context(
        &arguments.kubeconfig,
        arguments.context.as_deref(),
    )?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("cannot start the runtime: {error}")))?;
    let mut spool = Spool::new()?;
    let bar = arguments.quiet.objects(None, "read");
    if let Some(from) = &arguments.from_kubeconfig {
        let source = Client::new(&kubeconfig::read_context(from, arguments.from_context.as_deref())?)?;
        let choice = Choice {
            resource: arguments.resource.clone(),
            namespace: arguments.namespace.clone(),
            all: arguments.all,
        };
        runtime.block_on(live::read(&source, &choice, &bar, &mut |object| spool.put(&object)))?;
    } else {
        let mut take = |object: Value| {
            bar.inc(1);
            spool.put(&object)
        };
        if super::backup::is_standard(&arguments.file) {
            documents::read(io::stdin(), &arguments.file, &mut take)?;
        } else {
            let file = File::open(&arguments.file);
            let file = file.map_err(|error| Failure::io("open", &arguments.file, &error))?;
            documents::read(file, &arguments.file, &mut take)?;
        }
    }
    bar.finish_and_clear();
    runtime.block_on(write_all(target, spool, arguments))
}

fn spool_failed(error: &io::Error) -> Failure {
    Failure::io("keep objects in", &std::env::temp_dir(), error)
}

/// Objects on disk, by when they may be written.
struct Spool {
    ranks: Vec<BufWriter<File>>,
    count: u64,
    /// UIDs of everything that is imported, and those that the server gave out instead.
    uids: HashMap<String, Option<String>>,
}

impl Spool {
    fn new() -> Result<Spool, Failure> {
        let ranks = (0..RANKS).map(|_| new_pile()).collect::<Result<_, _>>()?;
        Ok(Spool {
            ranks,
            count: 0,
            uids: HashMap::new(),
        })
    }

    fn put(&mut self, object: &Value) -> Result<(), Failure> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let rank = [&FIRST[..], &SECOND, &THIRD]
            .iter()
            .position(|kinds| kinds.contains(&kind));
        let rank = rank.unwrap_or(if LAST.contains(&kind) { RANKS - 1 } else { RANKS - 2 });
        if let Some(uid) = object["metadata"]["uid"].as_str() {
            self.uids.insert(uid.to_owned(), None);
        }
        self.count += 1;
        lay(&mut self.ranks[rank], object)
    }
}

fn new_pile() -> Result<BufWriter<File>, Failure> {
    tempfile::tempfile()
        .map(BufWriter::new)
        .map_err(|error| spool_failed(&error))
}

fn lay(pile: &mut BufWriter<File>, object: &Value) -> Result<(), Failure> {
    writeln!(pile, "{object}").map_err(|error| spool_failed(&error))
}

fn unpile(pile: BufWriter<File>) -> Result<Lines<BufReader<File>>, Failure> {
    let mut file = pile.into_inner().map_err(|error| spool_failed(error.error()))?;
    file.rewind().map_err(|error| spool_failed(&error))?;
    Ok(BufReader::new(file).lines())
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Created,
    Overwritten,
    /// It was there, as it was given, but for its status perhaps.
    Same,
    /// It was there, and is left as it was.
    Skipped,
    /// It is the server's own, or was being deleted.
    LeftOut,
    Failed,
}

/// What the writers share.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Work {
    client: Client,
    served: HashMap<(String, String), Served>,
    skip_existing: bool,
    overwrite: bool,
    keep_managed_fields: bool,
    dry_run: bool,
    uids: Mutex<HashMap<String, Option<String>>>,
    outcomes: Mutex<BTreeMap<(String, Outcome), u64>>,
    references_left_out: AtomicU64,
    failures: AtomicU64,
    conflicts: AtomicU64,
    bar: ProgressBar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write_all(client: Client, spool: Spool, arguments: &Import) -> Result<(), Failure> {
    let bar = arguments
        .quiet
        .objects(Some(spool.count), if arguments.dry_run { "look" } else { "import" });
    let mut work = Arc::new(Work {
        served: resources(&client).await?,
        client,
        skip_existing: arguments.skip_existing,
        overwrite: arguments.overwrite,
        keep_managed_fields: arguments.keep_managed_fields,
        dry_run: arguments.dry_run,
        uids: Mutex::new(spool.uids),
        outcomes: Mutex::default(),
        references_left_out: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
        bar,
    });
    let (mut left, mut without_owners) = (new_pile()?, new_pile()?);
    for (rank, pile) in spool.ranks.into_iter().enumerate() {
        // First those whose turn has passed: they may be what others of this rank need.
        append(&mut left, pile)?;
        let mut waiting_before = u64::MAX;
        let mut definitions = Vec::new();
        loop {
            let (waiting, count, defined) = write_pile(&work, left, arguments.writers, false).await?;
            definitions.extend(defined);
            left = waiting;
            if count == 0 || count == waiting_before {
                break;
            }
            waiting_before = count;
        }
        // In the end only those are left that own each other.
        if rank <= DEFINITIONS || rank == RANKS - 1 {
            let (waiting, _, defined) = write_pile(&work, left, arguments.writers, true).await?;
            definitions.extend(defined);
            append(&mut without_owners, waiting)?;
            left = new_pile()?;
        }
        if !definitions.is_empty() && !work.dry_run {
            let served = wait_for(&work.client, &definitions).await?;
            Arc::get_mut(&mut work).expect("every task has ended").served = served;
        }
    }
    if !work.dry_run {
        for line in unpile(without_owners)? {
            let line = line.map_err(|error| spool_failed(&error))?;
            work.give_owners(parse(&line)?).await;
        }
    }
    work.bar.finish_and_clear();
    report(&work)
}

/// Writes what is in a pile: what waits for its owners, how much that is, and which kinds were defined. With `ignore_owners` it is
/// written all the same, and what came to be there without its owners is what waits.
async fn write_pile(
    work: &Arc<Work>,
    pile: BufWriter<File>,
    writers: u32,
    ignore_owners: bool,
) -> Result<(BufWriter<File>, u64, Vec<(String, String)>), Failure> {
    let lines = Arc::new(Mutex::new(unpile(pile)?));
    let waiting = Arc::new(Mutex::new((new_pile()?, 0, Vec::new())));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..writers {
        let (work, lines, waiting) = (work.clone(), lines.clone(), waiting.clone());
        tasks.spawn(async move {
            while let Some(line) = next(&lines)? {
                let object = parse(&line)?;
                let waits = work.waits(&object);
                if !waits || ignore_owners {
                    lock(&waiting).2.extend(kinds_of_definition(&object));
                    let outcome = work.handle(object).await;
                    if !waits || matches!(outcome, Outcome::Skipped | Outcome::LeftOut | Outcome::Failed) {
                        continue;
                    }
                }
                let mut waiting = lock(&waiting);
                waiting.1 += 1;
                writeln!(waiting.0, "{line}").map_err(|error| spool_failed(&error))?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Failure::new(Exit::Failure, error.to_string()))??;
    }
    let waiting = Arc::into_inner(waiting).expect("every task has ended");
    Ok(waiting.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn parse(line: &str) -> Result<Value, Failure> {
    serde_json::from_str(line)
        .map_err(|error| Failure::new(Exit::Failure, format!("a temporary file is damaged: {error}")))
}

/// Lays one pile onto another.
fn append(pile: &mut BufWriter<File>, other: BufWriter<File>) -> Result<(), Failure> {
    let mut file = other.into_inner().map_err(|error| spool_failed(error.error()))?;
    file.rewind().map_err(|error| spool_failed(&error))?;
    io::copy(&mut file, pile)
        .map(drop)
        .map_err(|error| spool_failed(&error))
}

fn next(lines: &Mutex<Lines<BufReader<File>>>) -> Result<Option<String>, Failure> {
    lock(lines).next().transpose().map_err(|error| spool_failed(&error))
}

/// What the server serves, by apiVersion and kind.
async fn resources(client: &Client) -> Result<HashMap<(String, String), Served>, Failure> {
    let served = live::discover(client, true).await?;
    let writable = served.into_iter().filter(|served| served.can("create"));
    Ok(writable
        .map(|served| ((served.api_version.clone(), served.kind.clone()), served))
        .collect())
}

/// apiVersion and kind of what a definition defines.
fn kinds_of_definition(object: &Value) -> Vec<(String, String)> {
    if object["kind"] != "CustomResourceDefinition" {
        return Vec::new();
    }
    let spec = &object["spec"];
    let (group, kind) = (spec["group"].as_str(), spec["names"]["kind"].as_str());
    let (Some(group), Some(kind)) = (group, kind) else {
        return Vec::new();
    };
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] != false);
    let names = served.filter_map(|version| version["name"].as_str());
    names.map(|name| (format!("{group}/{name}"), kind.to_owned())).collect()
}

/// Waits until the server serves what was defined; what it still does not serve then fails by itself.
async fn wait_for(client: &Client, defined: &[(String, String)]) -> Result<HashMap<(String, String), Served>, Failure> {
    for _ in 0..LOOKS_MAX {
        let served = resources(client).await?;
        if defined.iter().all(|kind| served.contains_key(kind)) {
            return Ok(served);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    resources(client).await
}

/// UIDs of an object's owners.
fn owners_of(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter_map(|owner| owner["uid"].as_str())
}

/// What each server makes for itself.
fn is_own(object: &Value) -> bool {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let is_kubernetes = text("namespace") == "default"
        && (text("name") == "kubernetes" || object["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes");
    match object["kind"].as_str().unwrap_or_default() {
        "Service" | "Endpoints" | "EndpointSlice" => is_kubernetes,
        "ConfigMap" => {
            text("name") == "kube-root-ca.crt"
                || (text("namespace"), text("name")) == ("kube-system", "extension-apiserver-authentication")
        }
        "APIService" => object["spec"]["service"].is_null(),
        _ => false,
    }
}

impl Work {
    /// Whether an owner is to be imported and is not there yet.
    fn waits(&self, object: &Value) -> bool {
        let uids = lock(&self.uids);
        owners_of(object).any(|uid| matches!(uids.get(uid), Some(None)))
    }

    async fn handle(&self, object: Value) -> Outcome {
        let old_uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = match (
            object["metadata"]["namespace"].as_str(),
            text(&object["metadata"]["name"]),
        ) {
            (Some(namespace), name) => format!("{namespace}/{name}"),
            (None, name) => name,
        };
        let served = self.served.get(&(api_version.clone(), kind.clone()));
        let resource = served.map_or_else(|| format!("{kind}.{api_version}"), Served::storage_name);
        let outcome = match served {
            _ if is_own(&object) || !object["metadata"]["deletionTimestamp"].is_null() => Ok(Outcome::LeftOut),
            None => Err(format!("the server does not serve {api_version} {kind}")),
            Some(served) => self.put(served, object).await,
        };
        let outcome = outcome.unwrap_or_else(|message| {
            self.fails(&format!("{resource} {name}: {message}"));
            Outcome::Failed
        });
        // What is not there is waited for in vain.
        if let Some(uid) = old_uid {
            let mut uids = lock(&self.uids);
            if uids.get(&uid) == Some(&None) {
                uids.remove(&uid);
            }
        }
        *lock(&self.outcomes).entry((resource, outcome)).or_default() += 1;
        self.bar.inc(1);
        outcome
    }

    fn fails(&self, message: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) < TOLD_MAX {
            self.bar.suspend(|| eprintln!("{message}"));
        }
    }

    /// Gives an object that could not wait the owners that have come since.
    async fn give_owners(&self, mut object: Value) {
        let key = (
            object["apiVersion"].as_str().unwrap_or_default().to_owned(),
            object["kind"].as_str().unwrap_or_default().to_owned(),
        );
        let Some(served) = self.served.get(&key) else { return };
        let left_out = self.strip(&mut object);
        self.references_left_out.fetch_add(left_out, Ordering::Relaxed);
        let metadata = &object["metadata"];
        let owners: Vec<&str> = owners_of(&object).collect();
        if owners.is_empty() {
            return;
        }
        let name = metadata["name"].as_str().unwrap_or_default();
        let path = served.object_path(metadata["namespace"].as_str(), name);
        let patched = async {
            let found: Value = self.client.get_patiently(&path).await?;
            // Owners that others gave it stay.
            let known: Vec<&str> = owners_of(&found).collect();
            if known.len() < owners.len() && known.iter().all(|uid| owners.contains(uid)) {
                let patch = json!({ "metadata": { "ownerReferences": metadata["ownerReferences"] } });
                self.send(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
            }
            Ok::<(), RequestError>(())
        };
        if let Err(error) = patched.await {
            let resource = served.storage_name();
            self.fails(&format!("{resource} {name}: it is there without its owners: {error}"));
        }
    }

    /// Brings an object to the server. `Err`: why it is not there.
    async fn put(&self, served: &Served, mut object: Value) -> Result<Outcome, String> {
        let old_uid = object["metadata"]["uid"].as_str().map(str::to_owned);
        let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
        let is_given_owners_later = self.waits(&object);
        let left_out = self.strip(&mut object);
        if !is_given_owners_later {
            self.references_left_out.fetch_add(left_out, Ordering::Relaxed);
        }
        let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
        let collection = served.path(namespace.as_deref());
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err("it has no name".into());
        }
        let path = served.object_path(namespace.as_deref(), name);
        let found = if self.dry_run {
            match self.client.get_patiently::<Value>(&path).await {
                Ok(found) => Some(found),
                Err(error) if error.is(StatusCode::NOT_FOUND) => None,
                Err(error) => return Err(error.to_string()),
            }
        } else {
            match self.send(Method::POST, &collection, JSON, &object).await {
                Ok(created) => {
                    self.now_is(old_uid.as_deref(), &created);
                    self.set_status(served, &path, status).await?;
                    return Ok(Outcome::Created);
                }
                Err(error) if error.already_exists() => {
                    let found = self.client.get_patiently::<Value>(&path).await;
                    Some(found.map_err(|error| error.to_string())?)
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        let Some(found) = found else {
            self.now_is(old_uid.as_deref(), &json!({ "metadata": { "uid": "" } }));
            return Ok(Outcome::Created);
        };
        self.now_is(old_uid.as_deref(), &found);
        if Self::is_same(&found, &object) {
            // Its status is set by a second request. The run that made the object may have been broken off between the two, or the
            // answer to the first was lost.
            let is_whole = status.as_ref().is_none_or(|status| holds(&found["status"], status));
            if !is_whole && !self.dry_run {
                self.set_status(served, &path, status).await?;
            }
            return Ok(Outcome::Same);
        }
        // A namespace is there or not; what it says beside its name is the new cluster's.
        if self.skip_existing || served.kind == "Namespace" && !self.overwrite {
            return Ok(Outcome::Skipped);
        }
        if !self.overwrite {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            return Err("it is there already, and differs".into());
        }
        if self.dry_run {
            return Ok(Outcome::Overwritten);
        }
        self.replace(&path, &mut object, found).await?;
        self.set_status(served, &path, status).await?;
        Ok(Outcome::Overwritten)
    }

    async fn replace(&self, path: &str, object: &mut Value, mut found: Value) -> Result<(), String> {
        for _ in 0..REPLACE_TRIES_MAX {
            object["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].take();
            match self.send(Method::PUT, path, JSON, object).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(StatusCode::CONFLICT) => {
                    let again = self.client.get_patiently::<Value>(path).await;
                    found = again.map_err(|error| error.to_string())?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("others change it all the time".into())
    }

    async fn set_status(&self, served: &Served, path: &str, status: Option<Value>) -> Result<(), String> {
        let status = status.filter(|status| status.as_object().is_some_and(|fields| !fields.is_empty()));
        let Some(status) = status else { return Ok(()) };
        if !served.has_status || OWN_STATUS.contains(&&*served.kind) {
            return Ok(());
        }
        let patch = json!({ "status": status });
        let sent = self
            .send(Method::PATCH, &format!("{path}/status"), MERGE_PATCH, &patch)
            .await;
        sent.map(drop)
            .map_err(|error| format!("it is there without its status: {error}"))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, RequestError> {
        let body = Bytes::from(body.to_string());
        let answer = self.client.send_patiently(method, path, content_type, body).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Notes the UID that an object has now.
    fn now_is(&self, old_uid: Option<&str>, object: &Value) {
        if let (Some(old), Some(new)) = (old_uid, object["metadata"]["uid"].as_str()) {
            lock(&self.uids).insert(old.to_owned(), Some(new.to_owned()));
        }
    }

    /// Takes away what the server gives out, and lets references to owners follow their new UIDs. How many owners are not imported.
    fn strip(&self, object: &mut Value) -> u64 {
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return 0;
        };
        for field in GIVEN_OUT {
            metadata.remove(field);
        }
        if !self.keep_managed_fields {
            metadata.remove("managedFields");
        }
        let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else {
            return 0;
        };
        let uids = lock(&self.uids);
        let mut left_out = 0;
        owners.retain_mut(|owner| match owner["uid"].as_str().and_then(|uid| uids.get(uid)) {
            Some(Some(new)) => {
                owner["uid"] = new.clone().into();
                true
            }
            Some(None) => false,
            None => {
                left_out += 1;
                false
            }
        });
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        }
        left_out
    }

    /// Whether what is there says all that was given.
    fn is_same(found: &Value, given: &Value) -> bool {
        let mut found = found.clone();
        let mut given = given.clone();
        for object in [&mut found, &mut given] {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                for field in GIVEN_OUT {
                    metadata.remove(field);
                }
                metadata.remove("managedFields");
            }
            object.as_object_mut().map(|fields| fields.remove("status"));
        }
        holds(&found, &given)
    }
}

/// Whether `found` has everything that `given` says; it may say more, as defaults do.
fn holds(found: &Value, given: &Value) -> bool {
    match (found, given) {
        (Value::Object(found), Value::Object(given)) => given.iter().all(|(name, given)| {
            let none = Value::Null;
            holds(found.get(name).unwrap_or(&none), given)
        }),
        (Value::Array(found), Value::Array(given)) => {
            found.len() == given.len() && found.iter().zip(given).all(|(found, given)| holds(found, given))
        }
        _ => found == given,
    }
}

fn report(work: &Work) -> Result<(), Failure> {
    use std::fmt::Write as _;
    const COLUMNS: [(Outcome, &str); 6] = [
        (Outcome::Created, "CREATED"),
        (Outcome::Overwritten, "REPLACED"),
        (Outcome::Same, "THERE"),
        (Outcome::Skipped, "SKIPPED"),
        (Outcome::LeftOut, "LEFT OUT"),
        (Outcome::Failed, "FAILED"),
    ];
    let outcomes = lock(&work.outcomes);
    let mut rows: BTreeMap<&str, [u64; 6]> = BTreeMap::new();
    for ((resource, outcome), count) in &*outcomes {
        let at = COLUMNS.iter().position(|(column, _)| column == outcome).unwrap_or(0);
        rows.entry(resource).or_default()[at] += count;
    }
    let mut table = format!("{:50}", "RESOURCE");
    for (_, column) in COLUMNS {
        let _ = write!(table, "{column:>10}");
    }
    table.push('\n');
    let mut sums = [0; 6];
    for (resource, counts) in &rows {
        let _ = write!(table, "{resource:50}");
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
            let _ = write!(table, "{count:>10}");
        }
        table.push('\n');
    }
    let _ = write!(
        table,
        "{:50}",
        if work.dry_run {
            "in all (nothing was done)"
        } else {
            "in all"
        }
    );
    for sum in sums {
        let _ = write!(table, "{sum:>10}");
    }
    table.push('\n');
    super::print(table.as_bytes())?;
    let left_out = work.references_left_out.load(Ordering::Relaxed);
    if left_out > 0 && !work.dry_run {
        eprintln!(
            "{} references to owners that are not here were left out",
            HumanCount(left_out)
        );
    }
    let failures = work.failures.load(Ordering::Relaxed);
    if failures == 0 {
        return Ok(());
    }
    let failure = Failure::new(
        Exit::Failure,
        format!("{} objects are not as they were given", HumanCount(failures)),
    );
    if work.conflicts.load(Ordering::Relaxed) > 0 {
        return Err(failure.advise("leave those that are there with --skip-existing, or replace them with --overwrite"));
    }
    Err(failure.advise("mend what is said above and run the same command again: what is there is not written twice"))
}
