//! The end of a definition: its objects are deleted first, then its finalizer goes, and with it the definition.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::definitions::{self, DEFINITIONS};
use super::delete;
use super::delete_options::DeleteOptions;
use super::object;
use super::target::Target;
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::ResourceRef;
use crate::resources::custom::{FINALIZER, Gate, set_condition};
use crate::store::{Range, Selection};
use crate::tree::Value;

/// Deletions under way at a time.
const PARALLEL_MAX: usize = 32;
/// Objects read from a listing at once.
const RUN_MAX: usize = 256;
/// When to look again at objects that have not gone.
const AGAIN: Duration = Duration::from_secs(5);

/// Deletes the objects of the definition, then lets it go. Ends early when the server stops.
pub(super) async fn finish(api: &Arc<Api>, name: &str, resource: Option<ResourceRef>, gate: &Gate) {
    gate.close().await;
    let stopping = api.reader.stopping.clone();
    let begun = (
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    let ended = ("False", "InstanceDeletionCompleted", "removed all instances");
    let mut told = false;
    while !stopping.is_stopping() {
        let revision = api.reader.store.view().revision();
        let follower = api.reader.store.follow(name, None, revision);
        let step = async {
            if !std::mem::replace(&mut told, true) {
                mark(api, name, begun, false).await?;
            }
            let empty = match &resource {
                None => true,
                Some(resource) => delete_all(api, resource).await?,
            };
            if empty {
                mark(api, name, ended, true).await?;
            }
            Ok::<bool, Status>(empty)
        };
        match step.await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::warn!(definition = name, %error, "the objects of a definition cannot be deleted"),
        }
        let changed = async {
            match follower {
                Ok(mut follower) => follower.changed().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopping.stopped() => return,
            () = changed => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Deletes all objects of the resource that are not being deleted yet; `true` when there are none any more.
async fn delete_all(api: &Arc<Api>, resource: &ResourceRef) -> Result<bool, Status> {
    let range = || Range {
        namespace: None,
        after: None,
    };
    let view = api.reader.store.view();
    let mut listing = view.list(&resource.storage, range(), &Selection::all());
    let options = Arc::new(DeleteOptions::default());
    let mut running = JoinSet::new();
    while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
        let keys: Vec<String> = run.objects().map(|object| object.key().to_owned()).collect();
        for key in keys {
            if running.len() >= PARALLEL_MAX {
                gone(running.join_next().await)?;
            }
            let (api, options, target) = (api.clone(), options.clone(), Target::at(resource, &key));
            running.spawn(async move { delete::remove(&api, &target, &options).await.map(|_| ()) });
        }
    }
    while !running.is_empty() {
        gone(running.join_next().await)?;
    }
    let mut rest = api
        .reader
        .store
        .view()
        .list(&resource.storage, range(), &Selection::all());
    Ok(rest.next(1).map_err(Status::internal)?.is_none())
}

fn gone(result: Option<Result<Result<(), Status>, tokio::task::JoinError>>) -> Result<(), Status> {
    match result {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(status))) if status.code == 404 => Ok(()),
        Some(Ok(Err(status))) => Err(status),
        Some(Err(error)) => Err(Status::internal(error)),
    }
}

/// Tells in the condition `Terminating` how far things are; at the end the finalizer goes with it.
async fn mark(api: &Api, name: &str, verdict: (&str, &str, &str), ends: bool) -> Result<(), Status> {
    let resource = definitions::resource()?;
    debug_assert_eq!(resource.storage, DEFINITIONS);
    let target = Target {
        own: true,
        ..Target::at(&resource, name)
    };
    let edit = |old: &Value| {
        let mut value = old.clone();
        set_condition(&mut value["status"], "Terminating", verdict, object::now_s());
        if ends && let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    match update::change(api, &target, false, edit).await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}
