//! What the tests of this folder share: a server of the built binary, and a GitOps loop in the style of Argo CD.

pub mod gitops;
pub mod server;

use std::time::Duration;

/// Everything that is waited for happens within this, or never.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// `future`'s result, which comes within [`PATIENCE`].
///
/// # Panics
/// When it does not, saying what was waited for.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"))
}
