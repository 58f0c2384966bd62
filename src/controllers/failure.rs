//! Why a look has to be repeated.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::api::status::Status;
use crate::store::Damaged;

/// Why a look at a key did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Stored bytes are damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// Stored metadata is no metadata.
    #[error("metadata of {0} cannot be read: {1}")]
    Metadata(String, serde_json::Error),
    /// No such kind is served, now.
    #[error("no resource of kind {kind} in {api_version} is served")]
    UnknownKind {
        /// `apps/v1`
        api_version: String,
        /// `Deployment`
        kind: String,
    },
    /// A write was refused.
    #[error("{0}")]
    Refused(#[from] Status),
    /// A task ended unasked.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// It panicked, which is told on standard error.
    #[error("a look panicked")]
    Panicked,
}

/// Lets a look that panics be no more than one that failed: the worker goes on, and the key comes back.
pub(super) async fn guarded<T>(look: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut look = pin!(look);
    // What is left half done is not looked at again: each look reads everything anew.
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| look.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(_) => Poll::Ready(Err(Failure::Panicked)),
        },
    )
    .await
}

/// Whether a creation was refused because its namespace is going.
pub(super) fn is_terminating(status: &Status) -> bool {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}
