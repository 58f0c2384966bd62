//! Claims grow only where their class allows it. (Upstream's admission plugin PersistentVolumeClaimResize.)

use super::{Refused, forbidden, read, text};
use crate::resources::quantity::Quantity;
use crate::store::View;
use crate::tree::Value;

const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";

/// The class that a claim names, in the new way or the old.
pub(super) fn class_of(claim: &Value) -> &str {
    match text(&claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"]) {
        "" => text(&claim["spec"]["storageClassName"]),
        class => class,
    }
}

fn size_of(claim: &Value) -> i128 {
    let size = Quantity::parse(text(&claim["spec"]["resources"]["requests"]["storage"]));
    size.map_or(0, Quantity::nanos)
}

/// Judges a claim that asks for more than before.
///
/// # Errors
/// 403.
pub(super) fn check_resize(view: &View, new: &Value, old: &Value) -> Result<(), Refused> {
    if size_of(new) <= size_of(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(new);
    let mut allowed = false;
    if !class.is_empty()
        && class == class_of(old)
        && let Some(found) = view.get(STORAGE_CLASSES, class)?
    {
        allowed = read(&found)?["allowVolumeExpansion"] == true;
    }
    if allowed {
        return Ok(());
    }
    Err(forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}
