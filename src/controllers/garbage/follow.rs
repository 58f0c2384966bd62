//! What wants a look: at the start what is there, from then on what the log tells.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::relations::{Standing, standing};
use super::{Collector, PRESENT_MAX, Place, Waiting, Work, lock};
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{Metadata, is_deleting};
use crate::resources::{self, DELETING};
use crate::store::{Event, EventKind, Object, Range, Requirement, Selection};

/// Definitions of custom resources: with them come and go resources to follow.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// When to look again for resources that are to be followed, and after what could not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// How many times in a row it is looked for new resources after a definition was written.
const SOON: u32 = 5;
/// Dependents that go one after the other bring the owner that waits for them back once in this time.
pub(super) const GATHERED: Duration = Duration::from_millis(20);
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 256;

/// Follows all resources, those that are defined later, too. Tells `begun` when all that there are were looked through.
pub(super) async fn all(collector: Arc<Collector>, begun: oneshot::Sender<()>) {
    let store = collector.client.store().clone();
    let mut followed: HashSet<String> = HashSet::new();
    let mut tasks = JoinSet::new();
    let mut begun = Some(begun);
    // A resource that is served since is followed from here on: nothing of it is older.
    let mut since = store.view().revision();
    let mut soon = 0;
    loop {
        let now = store.view().revision();
        let built_in = resources::all().iter().map(|resource| resource.storage.to_string());
        let mut storages: Vec<String> = built_in.filter(|storage| !storage.is_empty()).collect();
        // Of custom ones those, too, that are not served any more: what their objects owned is still there.
        storages.extend(store.view().resources().map(str::to_owned));
        // (Two built-in resources may be stored as one.)
        storages.retain(|storage| followed.insert(storage.clone()));
        for storage in storages {
            let name: Arc<str> = storage.as_str().into();
            while let Err(error) = collector.begin(&name) {
                tracing::warn!(resource = storage, %error, "garbage cannot be looked for");
                tokio::time::sleep(AGAIN).await;
            }
            tasks.spawn(one(collector.clone(), name, since));
            tokio::task::yield_now().await;
        }
        if let Some(begun) = begun.take() {
            let _ = begun.send(());
        }
        since = now;
        // A definition is served a moment after it was written.
        match store.follow(DEFINITIONS, None, now) {
            Ok(mut definitions) if soon == 0 => tokio::select! {
                () = definitions.changed() => soon = SOON,
                () = tokio::time::sleep(60 * AGAIN) => {}
            },
            _ => {
                soon = soon.saturating_sub(1);
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Follows one resource from a revision on.
async fn one(collector: Arc<Collector>, storage: Arc<str>, mut revision: u64) {
    let store = collector.client.store().clone();
    loop {
        if let Ok(mut follower) = store.follow(&storage, None, revision) {
            let mut taken = 0_usize;
            loop {
                match follower.next() {
                    Ok(Some(event)) => {
                        if let Err(error) = collector.note(&storage, &event) {
                            let key = event.object.key();
                            tracing::warn!(resource = %storage, key, %error, "garbage collection skips an event");
                        }
                    }
                    Ok(None) => follower.changed().await,
                    Err(_) => break,
                }
                taken += 1;
                if taken.is_multiple_of(RUN_MAX) {
                    // Others are let in between.
                    tokio::task::yield_now().await;
                }
            }
        }
        // Behind the retained history: owners may have gone unseen, whose dependents are anywhere.
        revision = store.view().revision();
        lock(&collector.present).clear();
        let owned = lock(&collector.owned).clone();
        for storage in owned.iter().chain([&storage]) {
            while let Err(error) = collector.begin(storage) {
                tracing::warn!(resource = %storage, %error, "garbage cannot be looked for");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

impl Collector {
    /// Asks for a look at all objects that are being deleted or may have lost an owner.
    fn begin(&self, storage: &Arc<str>) -> Result<(), Failure> {
        let view = self.client.store().view();
        let select = |requirement| Selection {
            requirements: vec![requirement],
        };
        let deleting = select(Requirement::FieldIs {
            name: DELETING.0.to_owned(),
            value: DELETING.1.to_owned(),
        });
        let mut listing = view.list(storage, Range::default(), &deleting);
        while let Some(run) = listing.next(RUN_MAX)? {
            for object in run.objects() {
                self.queue.add(Work::Object(Place::of(storage, &object)));
            }
        }
        let mut listing = view.list(storage, Range::default(), &select(Requirement::Owned));
        while let Some(run) = listing.next(RUN_MAX)? {
            self.has_owned(storage);
            for object in run.objects() {
                self.note_owners(storage, &object)?;
            }
        }
        Ok(())
    }

    fn note(&self, storage: &Arc<str>, event: &Event) -> Result<(), Failure> {
        let sidecar = event.object.sidecar()?;
        if !sidecar.owners.is_empty() {
            self.has_owned(storage);
        }
        if event.kind == EventKind::Deleted {
            let uid = sidecar.uid.as_str();
            lock(&self.waiting).remove(uid);
            self.queue.add(Work::Gone(uid.into()));
            let waiting = lock(&self.waiting);
            let owners = sidecar.owners.iter().filter_map(|owner| waiting.get(owner.as_str()));
            owners.for_each(|owner| self.bring_back(owner));
            return Ok(());
        }
        if is_deleting(&event.object)? {
            self.queue.add(Work::Object(Place::of(storage, &event.object)));
            return Ok(());
        }
        let before = event.previous.as_ref().map(Object::sidecar).transpose()?;
        // Owners that it had before were looked at then.
        let same = before.is_some_and(|before| {
            let (old, new) = (before.owners.iter(), sidecar.owners.iter());
            old.eq(new)
        });
        if same {
            return Ok(());
        }
        // What lost its last blocking reference may free an owner that waits.
        if let Some(before) = before {
            let waiting = lock(&self.waiting);
            let owners = before.owners.iter().filter_map(|owner| waiting.get(owner.as_str()));
            owners.for_each(|owner| self.bring_back(owner));
        }
        self.note_owners(storage, &event.object)
    }

    /// Asks for a look at an object one of whose owners is not there.
    fn note_owners(&self, storage: &Arc<str>, object: &Object) -> Result<(), Failure> {
        for owner in Metadata::of(object)?.owner_references {
            let digest = self
                .digests
                .hash_one((&owner.api_version, &owner.kind, &owner.name, object.namespace()));
            if lock(&self.present).get(owner.uid.as_str()) == Some(&digest) {
                continue;
            }
            let is_present = || {
                let view = self.client.store().view();
                standing(&self.client, &view, object.key(), &owner)
                    .is_ok_and(|found| matches!(found, Standing::Present))
            };
            if !is_present() {
                self.queue.add(Work::Object(Place::of(storage, object)));
                return Ok(());
            }
            {
                let mut present = lock(&self.present);
                if present.len() >= PRESENT_MAX {
                    present.clear();
                }
                present.insert(owner.uid.as_str().into(), digest);
            }
            // If it went meanwhile, its going may have been told before it was remembered.
            if !is_present() {
                lock(&self.present).remove(owner.uid.as_str());
            }
        }
        Ok(())
    }

    /// Has another look at an object that waits for its dependents, soon.
    pub(super) fn bring_back(&self, waiting: &Waiting) {
        self.queue
            .add_after(Work::Object(waiting.place.clone()), waiting.gathered);
    }

    /// Dependents are looked for in this resource from now on.
    fn has_owned(&self, storage: &Arc<str>) {
        let mut owned = lock(&self.owned);
        if !owned.contains(storage) {
            owned.push(storage.clone());
        }
    }
}
