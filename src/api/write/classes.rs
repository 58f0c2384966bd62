//! Objects of which there are few, read all at once.

use std::sync::Arc;

use crate::api::status::Status;
use crate::store::{Range, Selection, View};
use crate::tree::Value;

/// All objects of a resource of which there are few.
pub(in crate::api) fn all(view: &Arc<View>, classes: &str) -> Result<Vec<Value>, Status> {
    all_in(view, classes, None)
}

/// All objects of a resource of which there are few, in one namespace or in all.
pub(super) fn all_in(view: &Arc<View>, classes: &str, namespace: Option<&str>) -> Result<Vec<Value>, Status> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(classes, range, &Selection::all());
    let mut all = Vec::new();
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        for object in run.objects() {
            all.push(read(&object)?);
        }
    }
    Ok(all)
}

/// Names and revisions of all objects of a resource of which there are few.
///
/// # Errors
/// 500 when they cannot be read.
pub(in crate::api) fn revisions(view: &Arc<View>, classes: &str) -> Result<Vec<(String, u64)>, Status> {
    let range = Range {
        namespace: None,
        after: None,
    };
    let mut listing = view.list(classes, range, &Selection::all());
    let mut all = Vec::new();
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        all.extend(run.objects().map(|object| (object.key().to_owned(), object.revision())));
    }
    Ok(all)
}

/// A stored class.
///
/// # Errors
/// 500 when it cannot be read.
pub(super) fn read(class: &crate::store::Object) -> Result<Value, Status> {
    serde_json::from_slice(class.json().map_err(Status::internal)?).map_err(Status::internal)
}
