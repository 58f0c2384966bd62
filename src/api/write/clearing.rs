//! Clears namespaces that are being deleted: removes their content, then their finalizer, so that they go.
//!
//! Level-triggered: what is done follows from what is stored now, so a restart or a missed event changes nothing. One
//! namespace at a time, a bounded number of deletions at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::tree::Value;
use tokio::task::JoinSet;

use super::delete;
use super::options::DeleteOptions;
use super::target::Target;
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::{self, ResourceRef};
use crate::store::{Follower, Object, Range, Run, Selection};

/// Deletions under way at a time.
const PARALLEL_MAX: usize = 32;
/// Objects read from a listing at once.
const RUN_MAX: usize = 256;
/// When to look again at a namespace whose content has not gone (finalizers, Pods on nodes).
const AGAIN: Duration = Duration::from_secs(5);
/// The finalizer that this routine stands for.
const FINALIZER: &str = "kubernetes";

/// Clears namespaces until the server stops.
pub(in crate::api) async fn run(api: Arc<Api>) {
    let stopping = api.reader.stopping.clone();
    while !stopping.is_stopping() {
        let view = api.reader.store.view();
        let mut pending = match terminating(&api) {
            Ok(names) => names,
            Err(error) => {
                tracing::warn!(%error, "namespaces cannot be listed");
                BTreeSet::new()
            }
        };
        let Ok(mut follower) = api.reader.store.follow("namespaces", None, view.revision()) else {
            continue;
        };
        drop(view);
        while !stopping.is_stopping() {
            for name in pending.clone() {
                match clear(&api, &name).await {
                    Ok(true) => {
                        pending.remove(&name);
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!(namespace = name, %error, "namespace cannot be cleared"),
                }
            }
            let again = async {
                if pending.is_empty() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(AGAIN).await;
            };
            tokio::select! {
                () = stopping.stopped() => return,
                () = follower.changed() => {}
                () = again => {}
            }
            // Behind the retained history: begin anew from what is stored.
            if note(&mut follower, &mut pending).is_err() {
                break;
            }
        }
    }
}

/// Takes the namespaces in that began to terminate.
fn note(follower: &mut Follower, pending: &mut BTreeSet<String>) -> Result<(), crate::store::HistoryError> {
    while let Some(event) = follower.next()? {
        if is_terminating(&event.object) {
            pending.insert(event.object.name().to_owned());
        } else {
            pending.remove(event.object.name());
        }
    }
    Ok(())
}

fn is_terminating(namespace: &Object) -> bool {
    namespace
        .sidecar()
        .is_ok_and(|sidecar| sidecar.field("status.phase") == Some("Terminating"))
}

fn terminating(api: &Api) -> Result<BTreeSet<String>, Status> {
    let mut names = BTreeSet::new();
    let range = Range {
        namespace: None,
        after: None,
    };
    let mut listing = api.reader.store.view().list("namespaces", range, &Selection::all());
    while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
        for object in objects(&run) {
            if is_terminating(&object) {
                names.insert(object.name().to_owned());
            }
        }
    }
    Ok(names)
}

fn objects(run: &Run) -> Vec<Object> {
    run.objects().collect()
}

/// Deletes what is in the namespace; `true` once nothing is left and the namespace itself could go.
async fn clear(api: &Arc<Api>, namespace: &str) -> Result<bool, Status> {
    let mut left = false;
    for resource in resources::all() {
        // Each kind once, in the shape that it is stored in.
        let stored = !resource.storage.is_empty() && !resources::has_other_shape(resource);
        if stored && resource.namespaced {
            left |= clear_kind(api, &resource.into(), namespace).await?;
        }
    }
    let custom = Arc::clone(&api.custom.served());
    for resource in custom.all_stored().filter(|resource| resource.namespaced) {
        left |= clear_kind(api, resource, namespace).await?;
    }
    if left {
        return Ok(false);
    }
    let target = Target {
        resource: resources::find("", "v1", "namespaces")
            .ok_or_else(Status::method_not_allowed)?
            .into(),
        subresource: Some("finalize"),
        namespace: None,
        name: namespace.to_owned(),
        manager: None,
        own: false,
    };
    let edit = |old: &Value| {
        let mut value = old.clone();
        if let Some(finalizers) = value["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    match update::change(api, &target, false, edit).await {
        Ok(_) => Ok(true),
        Err(status) if status.code == 404 => Ok(true),
        Err(status) => Err(status),
    }
}

/// Deletes the objects of one kind; `true` if some stay for now.
async fn clear_kind(api: &Arc<Api>, resource: &ResourceRef, namespace: &str) -> Result<bool, Status> {
    let range = || Range {
        namespace: Some(namespace.to_owned()),
        after: None,
    };
    let mut listing = api
        .reader
        .store
        .view()
        .list(&resource.storage, range(), &Selection::all());
    let options = Arc::new(DeleteOptions::default());
    let mut running = JoinSet::new();
    while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
        for object in objects(&run) {
            if running.len() >= PARALLEL_MAX {
                ended(running.join_next().await)?;
            }
            let (api, options) = (api.clone(), options.clone());
            let target = Target::at(resource, object.key());
            running.spawn(async move { delete::remove(&api, &target, &options).await.map(|_| ()) });
        }
    }
    while !running.is_empty() {
        ended(running.join_next().await)?;
    }
    let mut rest = api
        .reader
        .store
        .view()
        .list(&resource.storage, range(), &Selection::all());
    Ok(rest.next(1).map_err(Status::internal)?.is_some())
}

fn ended(result: Option<Result<Result<(), Status>, tokio::task::JoinError>>) -> Result<(), Status> {
    match result {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(status))) if status.code == 404 => Ok(()),
        Some(Ok(Err(status))) => Err(status),
        Some(Err(error)) => Err(Status::internal(error)),
    }
}
