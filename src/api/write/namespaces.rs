//! The life of namespaces: nothing is created in one that is missing or going away.

use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::store::View;

/// Refuses to create in a namespace that does not exist (404) or is being deleted (403).
/// (Upstream's NamespaceLifecycle admission.)
pub(super) fn admit(view: &View, info: &RequestInfo, name: &str) -> Result<(), Status> {
    let Some(namespace) = info.namespace.as_deref() else {
        return Ok(());
    };
    let Some(found) = view.get("namespaces", namespace).map_err(Status::internal)? else {
        return Err(Status::not_found("", "namespaces", namespace));
    };
    let sidecar = found.sidecar().map_err(Status::internal)?;
    if sidecar.field("status.phase") != Some("Terminating") {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&info.resource.group, &info.resource.plural, name, &why);
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    Err(status)
}
