//! One object is looked at, and what has to be done is done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::follow::GATHERED;
use super::relations::{Dependents, FOREGROUND, Finalizers as _, ORPHAN, Standing, standing};
use super::{Collector, Place, Waiting, lock};
use crate::api::Delete;
use crate::api::status::Status;
use crate::controllers::failure::Failure;
use crate::controllers::kinds::stored;
use crate::controllers::metadata::{Metadata, is_deleting};
use crate::controllers::queue::Done;
use crate::resources::{Propagation, ResourceRef};
use crate::tree::Value;

/// Dependents that are worked on side by side.
const PARALLEL: usize = 16;
/// Dependents that are asked for at once; more follow when these have gone.
const DEPENDENTS_MAX: usize = 512;
/// Looking through many dependents again and again takes no more than about a tenth of a core.
const GATHERED_PER_DEPENDENT: Duration = Duration::from_micros(20);
/// Ancestors that are looked at for a circle; a family with more is taken for one, so that nothing waits for ever.
const ANCESTORS_MAX: usize = 1_000;
/// An object that waits for its dependents is looked at this often, whatever the log tells.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl Collector {
    /// Looks at one object: lets its dependents go if its deletion asks for that, deletes it if its owners are gone.
    /// `gone`: the UID of an owner that is known to be gone, so that its kind, which may have gone, too, does not matter.
    pub(super) async fn look(&self, place: &Place, gone: Option<&str>) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(resource) = stored(&self.client, &place.storage) else {
            return Ok(Done::Settled);
        };
        let Some(object) = view.get(&place.storage, &place.key)? else {
            return Ok(Done::Settled);
        };
        let metadata = Metadata::of(&object)?;
        if metadata.orphans_dependents() {
            return self.orphan(&resource, place, &metadata.uid).await;
        }
        if metadata.waits_for_dependents() {
            return self.wait(&resource, place, &metadata.uid).await;
        }
        if metadata.is_deleting() {
            return Ok(Done::Settled);
        }
        let (mut present, mut waiting, mut useless) = (false, false, Vec::new());
        for owner in &metadata.owner_references {
            let standing = match gone {
                Some(gone) if gone == owner.uid => Standing::Absent,
                _ => standing(&self.client, &view, &place.key, owner)?,
            };
            match standing {
                Standing::Present => present = true,
                Standing::Waiting(_) => {
                    waiting = true;
                    useless.push(owner.uid.as_str());
                }
                Standing::Absent => useless.push(owner.uid.as_str()),
                Standing::Impossible => return Ok(Done::Settled),
            }
        }
        if useless.is_empty() {
            return Ok(Done::Settled);
        }
        if present {
            return self.disown(&resource, place, &metadata.uid, &useless).await;
        }
        let mut propagation = metadata.propagation();
        // Owners that it got since are not overlooked.
        let mut revision = Some(object.revision());
        if waiting && self.all_dependents(&metadata.uid).next()?.is_some() {
            propagation = Propagation::Foreground;
            if self.waits_in_a_circle(&place.key, &metadata)? {
                self.unblock(&resource, place, &metadata.uid).await?;
                revision = None;
            }
        }
        let delete = Delete {
            uid: Some(metadata.uid),
            revision,
            propagation: Some(propagation),
            grace_s: None,
        };
        let done = settled(self.client.delete(&resource, &place.key, &delete).await)?;
        // Owners that it no longer keeps from going are looked at.
        let waiting = lock(&self.waiting);
        let owners = metadata.owner_references.iter();
        owners
            .filter_map(|owner| waiting.get(owner.uid.as_str()))
            .for_each(|owner| self.bring_back(owner));
        Ok(done)
    }

    /// Looks at everything that depended on an object that is gone.
    pub(super) async fn collect_dependents(self: &Arc<Self>, uid: &str) -> Result<Done, Failure> {
        // First, so that what names it from now on is looked at.
        lock(&self.present).remove(uid);
        let mut dependents = self.known_dependents(uid);
        let mut looks: JoinSet<Result<Done, Failure>> = JoinSet::new();
        let mut done = Done::Settled;
        loop {
            let next = dependents.next()?;
            while let Some(look) = if next.is_some() && looks.len() < PARALLEL {
                None
            } else {
                looks.join_next().await
            } {
                match look? {
                    Ok(Done::Settled) => {}
                    Ok(Done::Again | Done::After(_)) => done = Done::Again,
                    Err(failure) => {
                        tracing::debug!(%failure, "a dependent stays for now");
                        done = Done::Again;
                    }
                }
            }
            let Some((storage, object)) = next else {
                return Ok(done);
            };
            let (collector, place, gone) = (self.clone(), Place::of(&storage, &object), uid.to_owned());
            looks.spawn(async move { collector.look(&place, Some(&gone)).await });
        }
    }

    /// Lets dependents go on without their owner, then the owner go: only when every one of them is free, for what still named it would be
    /// deleted after it.
    async fn orphan(&self, resource: &ResourceRef, place: &Place, uid: &str) -> Result<Done, Failure> {
        let mut dependents = self.all_dependents(uid);
        let mut are_free = true;
        while let Some((storage, object)) = dependents.next()? {
            let Some(resource) = stored(&self.client, &storage) else {
                are_free = false;
                continue;
            };
            let own_uid = object.sidecar()?.uid.as_str().to_owned();
            let dependent = Place::of(&storage, &object);
            are_free &= self.disown(&resource, &dependent, &own_uid, &[uid]).await? == Done::Settled;
        }
        if !are_free {
            return Ok(Done::Again);
        }
        self.finish(resource, place, uid, ORPHAN).await
    }

    /// Lets an object go whose dependents have gone; else sees to it that they do.
    async fn wait(&self, resource: &ResourceRef, place: &Place, uid: &str) -> Result<Done, Failure> {
        // First, so that a dependent that goes from now on brings this object back.
        let known = |gathered| Waiting {
            place: place.clone(),
            gathered,
        };
        lock(&self.waiting).entry(uid.into()).or_insert_with(|| known(GATHERED));
        let (mut blocked, mut asked, mut looked_at) = (false, 0, 0_u32);
        let mut dependents = self.all_dependents(uid);
        while asked < DEPENDENTS_MAX
            && let Some((storage, object)) = dependents.next()?
        {
            looked_at += 1;
            if !Metadata::of(&object)?.blocks(uid) {
                continue;
            }
            blocked = true;
            if !is_deleting(&object)? {
                asked += 1;
                self.queue.add(super::Work::Object(Place::of(&storage, &object)));
            }
        }
        if blocked {
            let gathered = GATHERED.max(GATHERED_PER_DEPENDENT * looked_at);
            lock(&self.waiting).insert(uid.into(), known(gathered));
            return Ok(Done::After(if asked == DEPENDENTS_MAX { gathered } else { LOOK_AGAIN }));
        }
        let done = self.finish(resource, place, uid, FOREGROUND).await?;
        lock(&self.waiting).remove(uid);
        Ok(done)
    }

    /// Whether a dependent of this object waits for the object to go, and the object, through its owners, for that dependent: all of
    /// them would wait for each other. Costs a look at each dependent, and, if one waits, at each ancestor that does.
    fn waits_in_a_circle(&self, key: &str, metadata: &Metadata) -> Result<bool, Failure> {
        let mut waiting = HashSet::new();
        let mut dependents = self.all_dependents(&metadata.uid);
        while let Some((_, object)) = dependents.next()? {
            if is_deleting(&object)? && Metadata::of(&object)?.waits_for_dependents() {
                waiting.insert(object.sidecar()?.uid.as_str().to_owned());
            }
        }
        if waiting.is_empty() {
            return Ok(false);
        }
        let view = self.client.store().view();
        let mut seen = HashSet::new();
        let mut owners = metadata.owner_references.clone();
        while let Some(owner) = owners.pop() {
            if waiting.contains(&owner.uid) || seen.len() == ANCESTORS_MAX {
                return Ok(true);
            }
            if seen.insert(owner.uid.clone())
                && let Standing::Waiting(found) = standing(&self.client, &view, key, &owner)?
            {
                owners.extend(found.owner_references);
            }
        }
        Ok(false)
    }

    /// Who depends on the object with this UID, in the resources that are known to have dependents. What is not known yet is looked at
    /// when it becomes known.
    fn known_dependents(&self, uid: &str) -> Dependents {
        Dependents::new(self.client.store().view(), lock(&self.owned).clone(), uid)
    }

    /// Who depends on the object with this UID, anywhere.
    fn all_dependents(&self, uid: &str) -> Dependents {
        let view = self.client.store().view();
        let storages = view.resources().map(Arc::from).collect();
        Dependents::new(view, storages, uid)
    }

    /// Takes a finalizer off, which may have been the last thing that kept the object.
    async fn finish(&self, resource: &ResourceRef, place: &Place, uid: &str, finalizer: &str) -> Result<Done, Failure> {
        let edit = |old: &Value| {
            let mut new = of_uid(old, uid)?;
            let finalizers = new["metadata"]["finalizers"].as_array_mut()?;
            finalizers.retain(|other| other != finalizer);
            Some(new)
        };
        settled(self.client.change(resource, None, &place.key, edit).await)
    }

    /// Takes these UIDs out of the owners of an object.
    async fn disown(&self, resource: &ResourceRef, place: &Place, uid: &str, owners: &[&str]) -> Result<Done, Failure> {
        let edit = |old: &Value| {
            let mut new = of_uid(old, uid)?;
            let metadata = new["metadata"].as_object_mut()?;
            let left = metadata.get_mut("ownerReferences")?.as_array_mut()?;
            left.retain(|owner| !owner["uid"].as_str().is_some_and(|uid| owners.contains(&uid)));
            if left.is_empty() {
                metadata.remove("ownerReferences");
            }
            Some(new)
        };
        settled(self.client.change(resource, None, &place.key, edit).await)
    }

    /// Lets the owners of an object go before it.
    async fn unblock(&self, resource: &ResourceRef, place: &Place, uid: &str) -> Result<Done, Failure> {
        let edit = |old: &Value| {
            let mut new = of_uid(old, uid)?;
            let count = new["metadata"]["ownerReferences"].as_array()?.len();
            for index in 0..count {
                let owner = &mut new["metadata"]["ownerReferences"][index];
                if owner["blockOwnerDeletion"] == true {
                    owner["blockOwnerDeletion"] = false.into();
                }
            }
            Some(new)
        };
        settled(self.client.change(resource, None, &place.key, edit).await)
    }
}

/// A copy to change, if it is still the object that was meant.
fn of_uid(object: &Value, uid: &str) -> Option<Value> {
    (object["metadata"]["uid"] == uid).then(|| object.clone())
}

/// An object that has gone needs nothing more; one that has changed needs another look.
fn settled(result: Result<(), Status>) -> Result<Done, Failure> {
    match result {
        Ok(()) => Ok(Done::Settled),
        Err(status) if status.code == 404 => Ok(Done::Settled),
        Err(status) if status.code == 409 => Ok(Done::Again),
        Err(status) => Err(Failure::Refused(status)),
    }
}
