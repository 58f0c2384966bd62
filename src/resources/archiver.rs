//! The store's archiver: sidecars of the built-in kinds, made again from stored JSON.

use flatkube_format::shelf::RowFrame;

use super::encode::{archive, layout};
use crate::store::{ArchiveError, Archiver};

/// Makes sidecars again after an upgrade changed the columns of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct KindArchiver;

impl Archiver for KindArchiver {
    fn layout(&self, resource: &str) -> u32 {
        layout(resource)
    }

    fn archive(&self, resource: &str, _key: &str, json: &[u8]) -> Result<Vec<u8>, ArchiveError> {
        archive(resource, json).map_err(|error| ArchiveError(error.to_string()))
    }

    fn row_frame(&self, _resource: &str) -> Option<RowFrame> {
        Some(super::table::ROW_FRAME)
    }
}
