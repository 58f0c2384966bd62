//! Custom resources as their definitions come, change and go: which names they get, what of them is served, and the end of their
//! objects when a definition is deleted.
//!
//! One task follows the definitions in the store. It is the only one that publishes what is served. What it does follows from what
//! is stored, so that a restart begins with the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::finalizing;
use super::manager::Manager;
use super::object;
use super::target::Target;
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::custom::{self, Definition, Known, Life, Served};
use crate::resources::{self, ResourceRef};
use crate::store::{Event, EventKind, Follower, Object, Range, Selection, View};
use crate::tree::Value;

/// Their name in the store.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Statuses that are being written at a time.
const WRITES_MAX: usize = 32;
/// Events taken in before what came of them is published.
const BATCH_MAX: usize = 64;
/// Time until sidecars of an older layout are looked for again.
const RENEWAL_PAUSE_MIN: Duration = Duration::from_millis(20);
const RENEWAL_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Resources whose sidecars are made again at a time.
const RENEWALS_MAX: usize = 2;
/// Sidecars looked at at once.
const SIDECARS_MAX: usize = 1024;
/// When to try again what could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// The definitions that there are.
pub(in crate::api) struct Definitions {
    entries: BTreeMap<String, Entry>,
    follower: Follower,
    /// Definitions whose status has to be judged.
    unjudged: BTreeSet<String>,
    /// Those that could not be judged, or whose status could not be written: tried again after [`AGAIN`].
    failed: BTreeSet<String>,
    /// Definitions whose objects' sidecars may be of an older layout.
    unsettled: BTreeSet<String>,
    /// Who may make sidecars again.
    renewing: Arc<Semaphore>,
}

/// What sidecars hold: its number, and the names of selectable fields.
type Layout = (u32, BTreeSet<String>);

struct Entry {
    uid: String,
    /// The names that it has.
    names: Known,
    /// Whether it asks for a name that another one has.
    conflicted: bool,
    /// What it was compiled from: generation, and the status as far as it counts.
    compiled_from: Value,
    compiled: Option<Definition>,
    /// What all sidecars of its objects hold: its number and selectable fields. `None`: nobody has looked.
    settled: Option<Layout>,
    life: Life,
    /// Digest of the schema of the version that is stored.
    schema: Vec<u8>,
    /// Whether it waits for its objects to go.
    waits: bool,
    /// Whether its objects are being deleted.
    ending: bool,
    /// What makes its objects' sidecars again; it ends with the entry, or when the layout is overtaken.
    renewal: Option<Ends>,
}

/// A task that ends when nobody wants it any more.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Definitions {
    /// Reads what is stored and serves it.
    ///
    /// # Errors
    /// When a definition cannot be read.
    pub(in crate::api) fn open(api: &Api) -> Result<Self, Status> {
        let view = api.reader.store.view();
        let follower = api
            .reader
            .store
            .follow(DEFINITIONS, None, view.revision())
            .map_err(Status::internal)?;
        let mut definitions = Self {
            entries: BTreeMap::new(),
            follower,
            unjudged: BTreeSet::new(),
            failed: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            renewing: Arc::new(Semaphore::new(RENEWALS_MAX)),
        };
        let range = Range {
            namespace: None,
            after: None,
        };
        let mut listing = view.list(DEFINITIONS, range, &Selection::all());
        while let Some(run) = listing.next(64).map_err(Status::internal)? {
            for object in run.objects() {
                definitions.take(&view, &object)?;
            }
        }
        definitions.publish(api);
        Ok(definitions)
    }

    /// Follows the definitions until the server stops.
    pub(in crate::api) async fn run(mut self, api: Arc<Api>) {
        let stopping = api.reader.stopping.clone();
        let mut writes = JoinSet::new();
        let mut endings = JoinSet::new();
        let mut renewals = JoinSet::new();
        // When what failed is tried again; other events do not put it off.
        let mut due = None;
        while !stopping.is_stopping() {
            self.judge(&api, &mut writes).await;
            self.begin_endings(&api, &mut endings);
            self.begin_renewals(&api, &mut renewals);
            if self.failed.is_empty() {
                due = None;
            } else if due.is_none() {
                due = Some(Instant::now() + AGAIN);
            }
            let again = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stopping.stopped() => return,
                () = self.follower.changed() => {}
                Some(ended) = endings.join_next() => self.end(ended.ok()),
                Some(written) = writes.join_next() => self.failed.extend(written.ok().flatten()),
                Some(Ok((name, settled))) = renewals.join_next() => self.settle(&api, &name, settled),
                () = again => {
                    self.unjudged.append(&mut self.failed);
                    due = None;
                }
            }
            if let Err(error) = self.follow(&api) {
                tracing::warn!(%error, "definitions of custom resources are read anew");
                match Self::open(&api) {
                    Ok(anew) => self = anew,
                    Err(error) => {
                        tracing::error!(%error, "definitions of custom resources cannot be read");
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            }
        }
    }

    /// Takes in what was written, and serves it.
    fn follow(&mut self, api: &Api) -> Result<(), Status> {
        loop {
            let mut taken = 0;
            let view = api.reader.store.view();
            while let Some(event) = self.follower.next().map_err(Status::internal)? {
                self.note(&view, &event)?;
                taken += 1;
                if taken == BATCH_MAX {
                    break;
                }
            }
            if taken == 0 {
                return Ok(());
            }
            self.publish(api);
        }
    }

    fn note(&mut self, view: &Arc<View>, event: &Event) -> Result<(), Status> {
        if event.kind != EventKind::Deleted {
            return self.take(view, &event.object);
        }
        let name = event.object.name();
        self.unjudged.remove(name);
        self.failed.remove(name);
        if let Some(gone) = self.entries.remove(name) {
            gone.life.overtaken.store(true, Ordering::Relaxed);
            self.rejudge(&gone.names.group);
        }
        Ok(())
    }

    /// Definitions of the group that wait for a name are looked at again.
    fn rejudge(&mut self, group: &str) {
        let waiting = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.conflicted && entry.names.group == group);
        self.unjudged.extend(waiting.map(|(name, _)| name.clone()));
    }

    /// Takes in a definition as it is stored.
    fn take(&mut self, view: &Arc<View>, stored: &Object) -> Result<(), Status> {
        let definition = read(stored)?;
        let name = stored.name().to_owned();
        let uid = object::meta(&definition, "uid").to_owned();
        let before = self.entries.remove(&name);
        let names = Known::of(&definition);
        let waits = custom::is_ending(&definition);
        let from = crate::tree::json!({
            "generation": definition["metadata"]["generation"].clone(),
            "names": definition["status"]["acceptedNames"].clone(),
            "stored": definition["status"]["storedVersions"].clone(),
            "established": custom::is_true(&definition, "Established"),
            "terminating": custom::is_true(&definition, "Terminating") || waits,
        });
        let mut life = before.as_ref().map_or_else(Life::default, |before| before.life.clone());
        if let Some(before) = &before
            && (before.uid != uid || before.compiled_from["generation"] != from["generation"])
        {
            life.overtaken.store(true, Ordering::Relaxed);
            life.overtaken = Arc::default();
            if before.uid != uid {
                life = Life::default();
            }
        }
        let before = before.filter(|entry| entry.uid == uid);
        let freed = before.as_ref().is_some_and(|before| before.names != names);
        let entry = match before {
            Some(before) if before.compiled_from == from => Entry { names, waits, ..before },
            before => {
                let mut settled = before.as_ref().and_then(|before| before.settled.clone());
                let schema = stored_schema(&definition);
                let same = match &before {
                    Some(before) => before.schema == schema,
                    None => definition["metadata"]["generation"] == 1,
                };
                if !same && view.count(&name, None) > 0 {
                    life.settled_after.store(stored.revision(), Ordering::Relaxed);
                }
                let maker = Maker {
                    view,
                    name: &name,
                    life: &life,
                };
                let compiled = maker.compile(&definition, &mut settled);
                let late = life.settled_after.load(Ordering::Relaxed) > 0;
                if late || compiled.as_ref().and_then(Definition::layout) != settled {
                    self.unsettled.insert(name.clone());
                }
                Entry {
                    schema,
                    compiled,
                    settled,
                    uid,
                    conflicted: false,
                    compiled_from: from,
                    ending: before.as_ref().is_some_and(|before| before.ending),
                    waits,
                    names,
                    life,
                    renewal: before.and_then(|before| before.renewal),
                }
            }
        };
        let group = entry.names.group.clone();
        self.entries.insert(name.clone(), entry);
        self.unjudged.insert(name);
        if freed {
            self.rejudge(&group);
        }
        Ok(())
    }

    /// Begins to make sidecars again that may be of an older layout. What was begun for a layout before ends.
    fn begin_renewals(&mut self, api: &Arc<Api>, renewals: &mut JoinSet<(String, Layout)>) {
        for name in std::mem::take(&mut self.unsettled) {
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            entry.renewal = None;
            let Some(compiled) = &entry.compiled else { continue };
            let (Some(layout), Some(resource)) = (compiled.layout(), compiled.stored().cloned()) else {
                continue;
            };
            let (api, settled_after, renewing) = (api.clone(), entry.life.settled_after.clone(), self.renewing.clone());
            let task = renewals.spawn(async move {
                renew(&api, &resource, layout.0, &settled_after, &renewing).await;
                (name, layout)
            });
            entry.renewal = Some(Ends(task));
        }
    }

    /// All sidecars hold what the definition asks for: its fields can be selected by from now on.
    fn settle(&mut self, api: &Api, name: &str, settled: Layout) {
        let view = api.reader.store.view();
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if entry.compiled.as_ref().and_then(Definition::layout).as_ref() != Some(&settled) {
            // It changed meanwhile, and is seen to.
            return;
        }
        entry.settled = Some(settled);
        let Ok(Some(found)) = view.get(DEFINITIONS, name) else {
            return;
        };
        let Ok(definition) = read(&found) else { return };
        let maker = Maker {
            view: &view,
            name,
            life: &entry.life,
        };
        if let Some(compiled) = maker.compile(&definition, &mut entry.settled) {
            entry.compiled = Some(compiled);
            self.publish(api);
        }
    }

    fn publish(&self, api: &Api) {
        let compiled = self.entries.values().filter_map(|entry| entry.compiled.as_ref());
        api.custom.publish(Served::of(compiled));
    }

    /// Writes the status of those that it was not judged of yet. A definition that changes meanwhile comes again; what fails is
    /// kept in `failed`.
    async fn judge(&mut self, api: &Arc<Api>, writes: &mut JoinSet<Option<String>>) {
        let view = api.reader.store.view();
        for name in std::mem::take(&mut self.unjudged) {
            let found = match view.get(DEFINITIONS, &name) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(definition = name, %error, "a definition cannot be read");
                    self.failed.insert(name);
                    continue;
                }
            };
            let definition = match read(&found) {
                Ok(definition) => definition,
                Err(error) => {
                    tracing::warn!(definition = name, %error, "a definition cannot be read");
                    self.failed.insert(name);
                    continue;
                }
            };
            if object::is_deleting(&definition) {
                continue;
            }
            let Some(entry) = self.entries.get(&name) else { continue };
            let others: Vec<&Known> = self
                .entries
                .iter()
                .filter(|(other, of)| **other != name && of.names.group == entry.names.group)
                .map(|(_, other)| &other.names)
                .collect();
            let status = custom::judge(&definition, &others, object::now_s());
            let judged = match &status {
                None => definition,
                Some(status) => {
                    let mut judged = definition;
                    judged["status"] = status.clone();
                    judged
                }
            };
            if let Some(entry) = self.entries.get_mut(&name) {
                // Names are given in the order in which they are asked for, whatever the writes below come to.
                entry.names = Known::of(&judged);
                entry.conflicted = !custom::is_true(&judged, "NamesAccepted");
            }
            let Some(status) = status else { continue };
            if writes.len() >= WRITES_MAX {
                let written = writes.join_next().await;
                self.failed.extend(written.and_then(Result::ok).flatten());
            }
            let (api, revision) = (api.clone(), found.revision());
            writes.spawn(async move {
                let error = write_status(&api, &name, revision, &status).await.err()?;
                tracing::warn!(definition = name, %error, "the status of a definition cannot be written");
                Some(name)
            });
        }
    }

    /// Begins to delete the objects of definitions that are being deleted.
    fn begin_endings(&mut self, api: &Arc<Api>, endings: &mut JoinSet<String>) {
        for (name, entry) in self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.waits && !entry.ending)
        {
            entry.ending = true;
            let resource = entry.compiled.as_ref().and_then(|compiled| compiled.stored().cloned());
            let (api, name, gate) = (api.clone(), name.clone(), entry.life.gate.clone());
            endings.spawn(async move {
                finalizing::finish(&api, &name, resource, &gate).await;
                name
            });
        }
    }

    fn end(&mut self, name: Option<String>) {
        if let Some(entry) = name.and_then(|name| self.entries.get_mut(&name)) {
            entry.ending = false;
        }
    }
}

/// Makes a definition of what is stored.
struct Maker<'a> {
    view: &'a Arc<View>,
    name: &'a str,
    life: &'a Life,
}

impl Maker<'_> {
    /// Compiles a definition. Fields that not all sidecars of its objects have cannot be selected by yet; `settled` becomes what it
    /// asks for where there is nothing to make again.
    fn compile(&self, definition: &Value, settled: &mut Option<Layout>) -> Option<Definition> {
        let compile = |hidden: &BTreeSet<String>| custom::compile(definition, self.life, hidden);
        let compiled = compile(&BTreeSet::new())?;
        let layout = compiled.layout()?;
        if settled.as_ref() == Some(&layout) {
            return Some(compiled);
        }
        let empty = self.view.count(self.name, None) == 0;
        if empty || settled.is_none() && is_settled(self.view, self.name, layout.0) {
            *settled = Some(layout);
            return Some(compiled);
        }
        let known = settled.take().map(|(_, fields)| fields).unwrap_or_default();
        let hidden: BTreeSet<String> = layout.1.difference(&known).cloned().collect();
        // What was there before is still there while the rest is made.
        *settled = Some((0, known));
        compile(&hidden)
    }
}

/// A digest of the schema of the version that is stored.
fn stored_schema(definition: &Value) -> Vec<u8> {
    let mut versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.find(|version| version["storage"] == true);
    let text = stored.map(|version| version["schema"].to_json()).unwrap_or_default();
    ring::digest::digest(&ring::digest::SHA256, text.as_bytes())
        .as_ref()
        .to_vec()
}

/// Makes sidecars of other layouts again until there are none.
async fn renew(
    api: &Arc<Api>,
    resource: &ResourceRef,
    layout: u32,
    settled_after: &Arc<AtomicU64>,
    renewing: &Semaphore,
) {
    let mut pause = RENEWAL_PAUSE_MIN;
    loop {
        // Held while there is work and not while waiting. It is never closed.
        let Ok(permit) = renewing.acquire().await else { return };
        refresh(api, resource, settled_after).await;
        if let Err(error) = api.reader.store.renew(&resource.storage).await {
            tracing::warn!(resource = &*resource.storage, %error, "sidecars of an older layout cannot be made again");
        }
        let (view, storage) = (api.reader.store.view(), resource.storage.clone());
        let looked = tokio::task::spawn_blocking(move || is_settled(&view, &storage, layout)).await;
        if looked.is_ok_and(|settled| settled) || api.reader.stopping.is_stopping() {
            return;
        }
        drop(permit);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RENEWAL_PAUSE_MAX);
    }
}

/// Looks whether objects that were written under another schema are what the one of today would have made of them. If all are, they
/// are shown as they are stored from now on.
async fn refresh(api: &Arc<Api>, resource: &ResourceRef, settled_after: &Arc<AtomicU64>) {
    let after = settled_after.load(Ordering::Relaxed);
    if after == 0 {
        return;
    }
    let (view, resource) = (api.reader.store.view(), resource.clone());
    let same = tokio::task::spawn_blocking(move || {
        let range = Range {
            namespace: None,
            after: None,
        };
        let mut listing = view.list(&resource.storage, range, &Selection::all());
        loop {
            match listing.next(SIDECARS_MAX) {
                Ok(Some(run)) => {
                    let same = |object: Object| {
                        object.revision() > after || object.json().is_ok_and(|json| is_fresh(&resource, json))
                    };
                    if !run.objects().all(same) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    });
    if same.await.unwrap_or(false) {
        // A change that came meanwhile has raised it.
        let _ = settled_after.compare_exchange(after, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn is_fresh(resource: &ResourceRef, json: &[u8]) -> bool {
    let Ok(object) = serde_json::from_slice::<Value>(json) else {
        return false;
    };
    let mut refreshed = object.clone();
    custom::refresh(resource, &mut refreshed);
    refreshed == object
}

/// Whether all sidecars of a resource are of that layout. Reads each.
fn is_settled(view: &Arc<View>, resource: &str, layout: u32) -> bool {
    let range = Range {
        namespace: None,
        after: None,
    };
    let mut listing = view.list(resource, range, &Selection::all()).reading_sidecars();
    loop {
        match listing.next(SIDECARS_MAX) {
            Ok(Some(run)) => {
                let current = |object: Object| {
                    object
                        .sidecar()
                        .is_ok_and(|sidecar| sidecar.layout.to_native() == layout)
                };
                if !run.objects().all(current) {
                    return false;
                }
            }
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// A stored definition.
fn read(stored: &Object) -> Result<Value, Status> {
    serde_json::from_slice(stored.json().map_err(Status::damaged)?).map_err(Status::internal)
}

/// The resource of definitions.
pub(super) fn resource() -> Result<ResourceRef, Status> {
    let found = resources::stored(DEFINITIONS);
    Ok(found.ok_or_else(Status::method_not_allowed)?.into())
}

/// Writes a status under the condition that the definition is the one that was judged.
async fn write_status(api: &Api, name: &str, revision: u64, status: &Value) -> Result<(), Status> {
    let resource = resource()?;
    let target = Target {
        subresource: Some("status"),
        manager: Some(Manager::named("kube-apiserver", resource.clone(), "status")),
        ..Target::at(&resource, name)
    };
    let edit = |old: &Value| {
        let mut value = old.clone();
        value["status"] = status.clone();
        Ok(Edited {
            value,
            revision: Some(revision),
            warnings: Vec::new(),
        })
    };
    match update::change(api, &target, false, edit).await {
        // Whoever was faster is seen by the follower.
        Err(status) if !matches!(status.code, 404 | 409) => Err(status),
        _ => Ok(()),
    }
}
