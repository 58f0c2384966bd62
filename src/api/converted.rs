//! The named exceptions of reading without parsing: objects that are not sent as they are stored.
//!
//! Two kinds are served in two shapes (Events, HorizontalPodAutoscalers), and a sidecar whose columns are of an older
//! layout is made again until the store has rewritten it. Each use is counted.

use super::body::BodyError;
use crate::resources::{self, Resource, ResourceRef, custom};

/// How stored JSON becomes that of a version with another shape.
#[derive(Debug, Clone)]
pub(super) struct Conversion {
    resource: ResourceRef,
}

/// The conversion for `resource`, `None` when its objects are stored in its own shape.
pub(super) fn conversion(resource: &ResourceRef) -> Option<Conversion> {
    resources::has_other_shape(resource).then(|| Conversion {
        resource: resource.clone(),
    })
}

/// Converts one object. The result begins with `{`, without `kind` and `apiVersion`.
pub(super) fn convert(conversion: &Conversion, stored: &[u8]) -> Result<Vec<u8>, BodyError> {
    metrics::counter!("flatkube_converted_reads_total", "reason" => "shape").increment(1);
    let other = |error: serde_json::Error| BodyError::Other(error.to_string());
    let stored = serde_json::from_slice(stored).map_err(other)?;
    serde_json::to_vec(&resources::from_stored(&conversion.resource, stored)).map_err(other)
}

/// A custom object as it is shown in the version of `resource`, when that is not how it is stored: its schema, or that of the stored
/// version, would have pruned or filled in what is there. The result has its head.
pub(super) fn by_schema(resource: &Resource, stored: &[u8]) -> Result<Vec<u8>, BodyError> {
    metrics::counter!("flatkube_converted_reads_total", "reason" => "schema").increment(1);
    let mut object = serde_json::from_slice(stored).map_err(|error| BodyError::Other(error.to_string()))?;
    if let Some(stored) = resource.stored_shape() {
        custom::refresh(stored, &mut object);
    }
    custom::show(resource, &mut object);
    let mut json = Vec::with_capacity(stored.len());
    object.write(&mut json);
    Ok(json)
}

/// The sidecar of an object whose own one has an older column layout.
pub(super) fn renewed_sidecar(resource: &Resource, stored: &[u8]) -> Result<Vec<u8>, BodyError> {
    metrics::counter!("flatkube_converted_reads_total", "reason" => "layout").increment(1);
    resources::archive_as(Some(resource), stored).map_err(|error| BodyError::Other(error.to_string()))
}
