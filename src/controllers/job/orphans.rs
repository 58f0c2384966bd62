//! Pods that nobody counts any more: their finalizers go, so that they can.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{JOBS, Jobs, POD_KEY, PODS, TRACKED};
use crate::api::status::Status;
use crate::controllers::claim::gone_is_fine;
use crate::controllers::failure::Failure;
use crate::controllers::metadata::{Metadata, key_of as key_of_value};
use crate::controllers::queue::Done;
use crate::store::{Damaged, Object, Range, Selection, View};
use crate::tree::Value;

/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;
/// Finalizers that are taken off at a time.
const PARALLEL_MAX: usize = 32;

/// The key of a Pod in the queue.
pub(super) fn key_of(pod: &Object) -> Arc<str> {
    format!("{POD_KEY}{}", pod.key()).into()
}

/// Whether the finalizer is named in a Pod's metadata. Read as text: most Pods have nothing of the sort.
pub(super) fn may_be_tracked(pod: &Object) -> Result<bool, Damaged> {
    Ok(std::str::from_utf8(pod.metadata()?).is_ok_and(|metadata| metadata.contains(TRACKED)))
}

/// Lets `with` see each Pod of a selection.
pub(super) fn each(
    view: &Arc<View>,
    range: Range,
    selection: &Selection,
    mut with: impl FnMut(&Object) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut listing = view.list(PODS, range, selection);
    while let Some(run) = listing.next(RUN_MAX)? {
        for object in run.objects() {
            with(&object)?;
        }
    }
    Ok(())
}

/// The keys, in the queue, of Pods of a selection that have the finalizer and no Job.
pub(super) fn among(view: &Arc<View>, range: Range, selection: &Selection) -> Result<Vec<Arc<str>>, Failure> {
    let mut keys = Vec::new();
    each(view, range, selection, |object| {
        if is_orphan(object, view)? {
            keys.push(key_of(object));
        }
        Ok(())
    })?;
    Ok(keys)
}

/// Whether a Pod has the finalizer, and nobody who would take it off.
pub(super) fn is_orphan(pod: &Object, view: &Arc<View>) -> Result<bool, Failure> {
    if !may_be_tracked(pod)? {
        return Ok(false);
    }
    let metadata = Metadata::of(pod)?;
    if !metadata.has_finalizer(TRACKED) {
        return Ok(false);
    }
    let Some(controller) = metadata.controller() else {
        return Ok(true);
    };
    if controller.kind != JOBS.kind || controller.api_version != "batch/v1" {
        return Ok(false);
    }
    let Some(key) = JOBS.controller_of(pod)? else {
        return Ok(false);
    };
    // A Job that is there sees to its Pods itself, also when it is over.
    Ok(match view.get(JOBS.storage, &key)? {
        Some(job) => job.sidecar()?.uid.as_str() != controller.uid,
        None => true,
    })
}

impl Jobs {
    /// Lets a Pod go that still has no Job.
    pub(super) async fn let_orphan_go(&self, key: &str) -> Result<Done, Failure> {
        let view = self.client.store().view();
        let Some(pod) = view.get(PODS, key)? else {
            return Ok(Done::Settled);
        };
        if is_orphan(&pod, &view)? {
            let pod = self.client.read(&self.pods, &pod)?;
            self.let_go(std::iter::once(&pod)).await?;
        }
        Ok(Done::Settled)
    }

    /// Takes the finalizer off Pods. One that is gone is no failure, and one whose owners are others by now is left to them: it may have been
    /// taken in since.
    pub(super) async fn let_go(&self, pods: impl Iterator<Item = &Value>) -> Result<(), Failure> {
        let mut leaving: JoinSet<Result<(), Status>> = JoinSet::new();
        let mut failed = None;
        let mut note = |left: Option<Result<Result<(), Status>, tokio::task::JoinError>>| match left {
            Some(Ok(Err(status))) => failed = Some(Failure::from(status)),
            Some(Err(error)) => failed = Some(Failure::from(error)),
            _ => {}
        };
        for pod in pods {
            if leaving.len() >= PARALLEL_MAX {
                note(leaving.join_next().await);
            }
            let (key, seen) = (key_of_value(pod), pod["metadata"].clone());
            let (client, resource) = (self.client.clone(), self.pods.clone());
            leaving.spawn(async move {
                let edit = |old: &Value| {
                    if ["uid", "ownerReferences"]
                        .iter()
                        .any(|field| old["metadata"][*field] != seen[*field])
                    {
                        return None;
                    }
                    let mut new = old.clone();
                    new["metadata"]["finalizers"]
                        .as_array_mut()?
                        .retain(|finalizer| *finalizer != TRACKED);
                    Some(new)
                };
                gone_is_fine(client.change(&resource, None, &key, edit).await)
            });
        }
        while !leaving.is_empty() {
            note(leaving.join_next().await);
        }
        failed.map_or(Ok(()), Err)
    }
}
