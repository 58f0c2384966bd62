//! The store's archiver: sidecars made again from stored JSON.

use std::borrow::Cow;
use std::sync::Arc;

use flatkube_format::is_sealed;
use flatkube_format::shelf::RowFrame;

use super::custom::Registry;
use super::encode::{archive, archive_as, layout};
use crate::store::{ArchiveError, Archiver};

/// Makes sidecars again after an upgrade changed the columns of a kind.
#[derive(Debug, Clone, Default)]
pub struct KindArchiver {
    /// The custom resources that the server serves; none of them for tools that work on files.
    pub custom: Arc<Registry>,
}

impl Archiver for KindArchiver {
    fn layout(&self, resource: &str) -> u32 {
        match self.custom.served().stored(resource) {
            Some(custom) => custom.layout(),
            None => layout(resource),
        }
    }

    fn archive(&self, resource: &str, _key: &str, json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        if is_sealed(json) {
            return Err(ArchiveError("it is encrypted".to_owned()));
        }
        match self.custom.served().stored(resource) {
            Some(custom) => archive_as(Some(custom), json),
            None => archive(resource, json),
        }
        .map_err(|error| ArchiveError(error.to_string()))
    }

    fn is_object(&self, key: &str, revision: u64, json: &[u8]) -> bool {
        let Ok(Named { metadata }) = serde_json::from_slice(json) else {
            return false;
        };
        let name = match key.split_once('/') {
            Some((namespace, name)) if metadata.namespace.as_deref() == Some(namespace) => name,
            None if metadata.namespace.is_none() => key,
            _ => return false,
        };
        metadata.name == name && metadata.resource_version == revision.to_string()
    }

    fn row_frame(&self, _resource: &str) -> Option<RowFrame> {
        Some(super::table::ROW_FRAME)
    }
}

/// What stored JSON says of its own place.
#[derive(serde::Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: NamedMetadata<'a>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}
