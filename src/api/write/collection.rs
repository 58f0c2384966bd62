//! DELETE of a collection: what a list with the same options shows is deleted, object by object.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::delete;
use super::delete_options::DeleteOptions;
use super::target::{Asker, Target};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::conversion;
use crate::api::fairness::{Entrant, InTurn};
use crate::api::read;
use crate::api::request::{RequestInfo, Verb};
use crate::api::status::Status;

/// Deletions of one request that are under way at a time: they share the log's syncs.
const PARALLEL_MAX: usize = 32;

/// Deletes what the query selects; answers with the list of it, as it was before.
pub(super) async fn delete_all(
    api: &Arc<Api>,
    info: &RequestInfo,
    options: &DeleteOptions,
) -> Result<Response, Status> {
    let mut listed = info.clone();
    listed.verb = Verb::List;
    let chosen = conversion::choose(info, &mut listed)?;
    let (response, mut keys) = read::list_with_keys(&api.reader, &listed).await?;
    if let Some(chosen) = chosen {
        keys = chosen.of(api, &info.resource, keys).await?;
    }
    let options = Arc::new(options.clone());
    let mut running = JoinSet::new();
    for key in keys {
        if running.len() >= PARALLEL_MAX {
            finished(running.join_next().await)?;
        }
        let (api, options) = (api.clone(), options.clone());
        let target = Target {
            asker: Some(Asker::of(info)),
            ..Target::at(&info.resource, &key)
        };
        let fairness = api.fairness.clone();
        let deletion = async move { delete::remove(&api, &target, &options).await.map(|_| ()) };
        running.spawn(InTurn::new(&fairness, Entrant::of(info), deletion));
    }
    while !running.is_empty() {
        finished(running.join_next().await)?;
    }
    Ok(response)
}

/// What one deletion came to. An object that somebody else deleted meanwhile is what was asked for.
fn finished(ended: Option<Result<Result<(), Status>, tokio::task::JoinError>>) -> Result<(), Status> {
    match ended {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(status))) if status.code == 404 => Ok(()),
        Some(Ok(Err(status))) => Err(status),
        Some(Err(error)) => Err(Status::internal(error)),
    }
}
