//! Which revision a read shows (`resourceVersion`, `resourceVersionMatch`).

use std::sync::Arc;
use std::time::Duration;

use super::Reader;
use super::options;
use crate::api::status::Status;
use crate::store::{HistoryError, View};

/// How long a read waits for a revision that is a little ahead (as upstream's watch cache does).
const AHEAD_MAX: Duration = Duration::from_secs(3);
/// `Retry-After` of the answer when it did not come.
const RETRY_AFTER_S: u32 = 1;

/// Reads the `resourceVersion` of a list.
///
/// # Errors
/// 400 unless it is empty or decimal.
pub(super) fn version_of_list(text: &str) -> Result<Option<u64>, Status> {
    options::resource_version(text).map_err(|error| Status::bad_request(format!("invalid resource version: {error}")))
}

/// Reads the `resourceVersion` of a get or a watch.
///
/// # Errors
/// 500 without a reason, as upstream answers there.
pub(super) fn version(text: &str) -> Result<Option<u64>, Status> {
    options::resource_version(text).map_err(|error| Status {
        reason: "",
        details: None,
        message: error,
        ..Status::internal("")
    })
}

/// The newest state, which is at least as new as `revision`.
///
/// # Errors
/// 504 when `revision` is not reached in time.
pub(super) async fn not_older_than(reader: &Reader, revision: Option<u64>) -> Result<Arc<View>, Status> {
    let view = reader.store.view();
    let Some(revision) = revision.filter(|revision| *revision > view.revision()) else {
        return Ok(view);
    };
    let reached = Box::pin(tokio::time::timeout(AHEAD_MAX, reader.store.reached(revision)))
        .await
        .is_ok();
    let view = reader.store.view();
    if reached || view.revision() >= revision {
        Ok(view)
    } else {
        Err(Status::too_large_resource_version(
            revision,
            view.revision(),
            RETRY_AFTER_S,
        ))
    }
}

/// Why a past state cannot be shown.
#[derive(Debug)]
pub(super) enum PastError {
    /// It is below the retained history.
    TooOld,
    /// Anything else.
    Status(Status),
}

/// The state of `resource` at that very revision.
pub(super) async fn exactly(reader: &Reader, resource: &str, revision: u64) -> Result<Arc<View>, PastError> {
    not_older_than(reader, Some(revision))
        .await
        .map_err(PastError::Status)?;
    match reader.store.view_at(resource, revision) {
        Ok(view) => Ok(view),
        Err(HistoryError::TooOld { .. }) => Err(PastError::TooOld),
        Err(error) => Err(PastError::Status(history(&error))),
    }
}

/// A Status for what goes wrong with history besides age.
pub(super) fn history(error: &HistoryError) -> Status {
    Status::internal(error)
}
