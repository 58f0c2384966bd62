//! Objects that every server has: written at start when they are missing.

use std::sync::Arc;

use super::server::StartError;
use crate::resources;
use crate::store::{Change, Precondition, Store, Write, WriteError};

/// Writes what is missing.
///
/// # Errors
/// When an object cannot be written.
pub(super) async fn run(store: &Arc<Store>) -> Result<(), StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Bootstrap(error.to_string());
    let mut writes = Vec::new();
    for (resource, object) in resources::bootstrap(jiff::Timestamp::now().as_second()) {
        let text = |field: &str| object["metadata"][field].as_str();
        let key = resource.key(text("namespace"), text("name").unwrap_or_default());
        if store
            .view()
            .get(resource.storage, &key)
            .map_err(|damaged| StartError::Store(damaged.into()))?
            .is_some()
        {
            continue;
        }
        let prepared = resources::encode(resource, &object).map_err(|error| failed(&error))?;
        let write = Write {
            resource: Arc::from(resource.storage),
            key,
            precondition: Precondition::Absent,
            uid: None,
            change: Change::Put(prepared),
        };
        let store = store.clone();
        // All at once: they share the log's first sync.
        writes.push(tokio::spawn(async move { store.write(write).await }));
    }
    for write in writes {
        match write.await.map_err(|error| failed(&error))? {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}
