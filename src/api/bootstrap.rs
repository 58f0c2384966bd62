//! Objects that every server has: written at start when they are missing.

use std::sync::Arc;

use serde_json::Value;

use super::server::StartError;
use crate::resources::{self, Context, Resource};
use crate::store::{Change, Precondition, Store, Write, WriteError};

/// Kinds and objects as upstream's API server makes them on its own.
const OBJECTS: &str = include_str!("bootstrap.json");

/// Writes what is missing.
///
/// # Errors
/// When an object cannot be written.
pub(super) async fn run(store: &Arc<Store>) -> Result<(), StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Bootstrap(error.to_string());
    let objects: Vec<Value> = serde_json::from_str(OBJECTS).map_err(|error| failed(&error))?;
    for mut object in objects {
        let resource = resource_of(&object).ok_or_else(|| failed(&"a kind is not known"))?;
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name) = (text("namespace"), text("name").unwrap_or_default());
        let key = resource.key(namespace.as_deref(), &name);
        if store
            .view()
            .get(resource.storage, &key)
            .map_err(|error| failed(&error))?
            .is_some()
        {
            continue;
        }
        let context = Context {
            now_s: jiff::Timestamp::now().as_second(),
            namespace: namespace.as_deref(),
            name: None,
        };
        resources::prepare_create(resource, &mut object, &context)
            .map_err(|refusal| StartError::Bootstrap(format!("{key}: {refusal:?}")))?;
        let prepared = resources::encode(resource, &object).map_err(|error| failed(&error))?;
        let write = Write {
            resource: Arc::from(resource.storage),
            key,
            precondition: Precondition::Absent,
            uid: None,
            change: Change::Put(prepared),
        };
        match store.write(write).await {
            Ok(_) | Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

fn resource_of(object: &Value) -> Option<&'static Resource> {
    let kind = object["kind"].as_str()?;
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    resources::all()
        .iter()
        .find(|r| r.kind == kind && r.group == group && r.version == version)
}
