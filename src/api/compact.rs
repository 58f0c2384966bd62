//! `POST /flatkube/v1/compact`: everything moves to shelves and history goes, while the server goes on.
//!
//! For members of `system:masters`: every watcher whose revision is discarded has to list again. `?keepSeconds=N` keeps what is not
//! older than that. The answer comes when it is done, and says how many bytes log and shelves had before and have now.

use std::time::Duration;

use http::StatusCode;

use super::Api;
use super::body::Response;
use super::request::Query;
use super::router::json;
use super::status::Status;
use crate::auth::User;
use crate::store::{ShelveError, Stats, Store};

/// The path.
pub(crate) const PATH: &str = "/flatkube/v1/compact";

const MASTERS: &str = "system:masters";

/// What was, and what is.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Compacted {
    /// The newest revision.
    pub(crate) revision: u64,
    pub(crate) before: Sizes,
    pub(crate) after: Sizes,
}

/// Bytes on disk.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sizes {
    /// Of all segments of the log, as they are allocated.
    pub(crate) log_bytes: u64,
    /// Of all shelf parts.
    pub(crate) shelf_bytes: u64,
}

impl Sizes {
    pub(crate) fn of(stats: &Stats) -> Sizes {
        Sizes {
            log_bytes: stats.log_bytes,
            shelf_bytes: stats.resources.iter().map(|resource| resource.shelf_bytes).sum(),
        }
    }
}

/// Compacts a store, and measures it before and after.
pub(crate) async fn compact(store: &Store, keep: Duration) -> Result<Compacted, ShelveError> {
    let before = Sizes::of(&store.stats());
    store.compact(keep).await?;
    let stats = store.stats();
    Ok(Compacted {
        revision: stats.revision,
        before,
        after: Sizes::of(&stats),
    })
}

/// Compacts the server's store.
pub(super) async fn answer(api: &Api, user: &User, query: &Query) -> Result<Response, Status> {
    if !user.groups.iter().any(|group| group == MASTERS) {
        let why = format!("User {:?} cannot post path {PATH:?}", user.name);
        return Err(Status::forbidden("", "", "", &why));
    }
    let keep = match query.get("keepSeconds") {
        None => Duration::ZERO,
        Some(text) => text
            .parse()
            .map(Duration::from_secs)
            .map_err(|_| Status::bad_request(format!("keepSeconds: {text:?} is not a number of seconds")))?,
    };
    let compacted = compact(&api.reader.store, keep).await;
    let compacted = compacted.map_err(|error| match error {
        ShelveError::NoSpace => Status::service_unavailable(error.to_string()),
        other => Status::internal(other),
    })?;
    let body = serde_json::to_vec(&compacted).map_err(Status::internal)?;
    Ok(json(StatusCode::OK, body))
}
