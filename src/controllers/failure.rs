//! Why a look has to be repeated.

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
}
