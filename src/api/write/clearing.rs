//! Clears namespaces that are being deleted: removes their content - Pods first, for what they use must not go before
//! them -, tells in the conditions what is left, and in the end removes the finalizer, so that they go.
//!
//! Level-triggered: what is done follows from what is stored now, so a restart or a missed event changes nothing. One
//! namespace at a time, a bounded number of deletions at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::delete;
use super::delete_options::DeleteOptions;
use super::manager::Manager;
use super::object;
use super::remains::Remains;
use super::target::{Asker, Target};
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::auth::User;
use crate::resources::{self, Propagation, ResourceRef};
use crate::store::{Follower, Object, Range, Run, Selection};
use crate::tree::Value;

/// Deletions under way at a time.
const PARALLEL_MAX: usize = 32;
/// Objects read from a listing at once.
const RUN_MAX: usize = 256;
/// When to look again at a namespace whose content has not gone (finalizers, Pods on nodes).
const AGAIN: Duration = Duration::from_secs(5);
/// The finalizer that this routine stands for.
const FINALIZER: &str = "kubernetes";
/// As whom it writes: upstream this is a controller.
const MANAGER: &str = "kube-controller-manager";
/// Objects of one kind whose finalizers are counted in a round.
const COUNTED_MAX: usize = 1000;

/// Clears namespaces until the server stops.
pub(in crate::api) async fn run(api: Arc<Api>) {
    let stopping = api.reader.stopping.clone();
    // Namespaces that are gone, and when to look once more for what was being created while they went.
    let mut departed: Vec<(Instant, String)> = Vec::new();
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
            tokio::select! {
                () = stopping.stopped() => return,
                () = tokio::time::sleep(AGAIN) => continue,
            }
        };
        drop(view);
        while !stopping.is_stopping() {
            for name in pending.clone() {
                match clear(&api, &name).await {
                    Ok(true) => {
                        departed.push((Instant::now() + AGAIN, name.clone()));
                        pending.remove(&name);
                    }
                    Ok(false) => {}
                    Err(error) => tracing::warn!(namespace = name, %error, "namespace cannot be cleared"),
                }
            }
            sweep(&api, &mut departed).await;
            let again = async {
                if pending.is_empty() && departed.is_empty() {
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

/// Removes what was created in namespaces while they went.
async fn sweep(api: &Arc<Api>, departed: &mut Vec<(Instant, String)>) {
    let now = Instant::now();
    let (due, later) = std::mem::take(departed).into_iter().partition(|(at, _)| *at <= now);
    *departed = later;
    let due: Vec<(Instant, String)> = due;
    for (_, namespace) in due {
        let view = api.reader.store.view();
        if matches!(view.get("namespaces", &namespace), Ok(None))
            && let Err(error) = clear_content(api, &namespace).await
        {
            tracing::warn!(namespace, %error, "what was left of a namespace cannot be cleared");
        }
    }
}

/// Deletes what is in the namespace; `true` once nothing is left and the namespace itself could go.
async fn clear(api: &Arc<Api>, namespace: &str) -> Result<bool, Status> {
    let remains = clear_content(api, namespace).await?;
    let told = change(api, namespace, "status", |value| remains.tell(value)).await?;
    if !remains.is_empty() {
        return Ok(!told);
    }
    change(api, namespace, "finalize", |value| {
        if let Some(finalizers) = value["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
    })
    .await?;
    Ok(true)
}

/// Changes the namespace; `false` when there is none.
async fn change(
    api: &Arc<Api>,
    namespace: &str,
    subresource: &'static str,
    edit: impl Fn(&mut Value),
) -> Result<bool, Status> {
    let resource = resources::find("", "v1", "namespaces").ok_or_else(Status::method_not_allowed)?;
    let target = Target {
        resource: resource.into(),
        subresource: Some(subresource),
        namespace: None,
        name: namespace.to_owned(),
        manager: Some(Manager::named(MANAGER, resource.into(), subresource)),
        own: false,
        asker: None,
    };
    let edit = |old: &Value| {
        // One that was made anew meanwhile is none of this routine's business.
        if !object::is_deleting(old) {
            return Err(target.not_found());
        }
        let mut value = old.clone();
        edit(&mut value);
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    match update::change(api, &target, false, edit).await {
        Ok(_) => Ok(true),
        Err(status) if status.code == 404 => Ok(false),
        Err(status) => Err(status),
    }
}

/// Deletes the objects of all kinds; tells what is left.
async fn clear_content(api: &Arc<Api>, namespace: &str) -> Result<Remains, Status> {
    let mut remains = Remains::default();
    let pods = resources::find("", "v1", "pods").ok_or_else(Status::method_not_allowed)?;
    clear_kind(api, &pods.into(), namespace, &mut remains).await?;
    if !remains.is_empty() {
        return Ok(remains);
    }
    for resource in resources::all() {
        // Each kind once, in the shape that it is stored in.
        let stored = !resource.storage.is_empty() && !resources::has_other_shape(resource);
        if stored && resource.namespaced {
            clear_kind(api, &resource.into(), namespace, &mut remains).await?;
        }
    }
    let custom = Arc::clone(&api.custom.served());
    for resource in custom.all_stored().filter(|resource| resource.namespaced) {
        clear_kind(api, resource, namespace, &mut remains).await?;
    }
    Ok(remains)
}

/// Deletes the objects of one kind; notes what stays for now.
async fn clear_kind(
    api: &Arc<Api>,
    resource: &ResourceRef,
    namespace: &str,
    remains: &mut Remains,
) -> Result<(), Status> {
    if api.reader.store.view().count(&resource.storage, Some(namespace)) == 0 {
        return Ok(());
    }
    let list = || {
        let range = Range {
            namespace: Some(namespace.to_owned()),
            after: None,
        };
        let view = api.reader.store.view();
        view.list(&resource.storage, range, &Selection::all())
    };
    let mut listing = list();
    // What the kind would do by itself - Jobs leave their Pods behind - is not asked for: all of it goes.
    let options = Arc::new(DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    });
    // Admission is asked of each, as of the collections that upstream's controller deletes.
    let asker = Asker {
        collection: true,
        ..Asker::own(Arc::new(User::service_account(
            "kube-system",
            "namespace-controller",
            "",
        )))
    };
    let mut running = JoinSet::new();
    while let Some(run) = listing.next(RUN_MAX).map_err(Status::internal)? {
        for object in objects(&run) {
            if running.len() >= PARALLEL_MAX {
                ended(running.join_next().await, remains);
            }
            let (api, options) = (api.clone(), options.clone());
            let target = Target {
                asker: Some(asker.clone()),
                ..Target::at(resource, object.key())
            };
            running.spawn(async move { delete::remove(&api, &target, &options).await.map(|_| ()) });
        }
    }
    while !running.is_empty() {
        ended(running.join_next().await, remains);
    }
    let left = api.reader.store.view().count(&resource.storage, Some(namespace));
    if left == 0 {
        return Ok(());
    }
    remains.note_objects(resource, left);
    let mut counted = 0;
    let mut rest = list();
    while let Some(run) = rest.next(RUN_MAX).map_err(Status::internal)? {
        for object in objects(&run) {
            let json = object.json().map_err(Status::damaged)?;
            let marks: Marks = serde_json::from_slice(json).map_err(Status::internal)?;
            for finalizer in marks.metadata.finalizers {
                remains.note_finalizer(&finalizer);
            }
        }
        counted += RUN_MAX;
        if counted >= COUNTED_MAX {
            break;
        }
    }
    Ok(())
}

/// What of an object is looked at.
#[derive(Deserialize)]
struct Marks {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    finalizers: Vec<String>,
}

fn ended(result: Option<Result<Result<(), Status>, tokio::task::JoinError>>, remains: &mut Remains) {
    match result {
        None | Some(Ok(Ok(()))) => {}
        Some(Ok(Err(status))) if status.code == 404 => {}
        Some(Ok(Err(status))) => remains.note_failure(status.message),
        Some(Err(error)) => remains.note_failure(error.to_string()),
    }
}
