//! Handing a prepared object to the store, and what its refusals mean to a client.

use std::sync::Arc;

use crate::tree::Value;

use crate::api::Api;
use crate::api::status::{Cause, Status};
use crate::resources::{self, FieldError, Refusal, Resource};
use crate::store::{Change, Object, Precondition, Prepared, Write, WriteError, Written};

/// Why a write was not made.
#[derive(Debug)]
pub(super) enum Refused {
    /// The precondition does not hold; this is what is there instead. The writer decides whether to try again.
    Conflict(Option<Object>),
    /// Anything else.
    Status(Status),
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused::Status(status)
    }
}

/// Writes to the store. `shape` is the stored shape of the resource.
pub(super) async fn commit(
    api: &Api,
    shape: &Resource,
    key: &str,
    precondition: Precondition,
    change: Change,
) -> Result<Written, Refused> {
    let write = Write {
        resource: Arc::from(&*shape.storage),
        key: key.to_owned(),
        precondition,
        uid: None,
        change,
    };
    api.reader.store.write(write).await.map_err(|error| match error {
        WriteError::Conflict { current } => Refused::Conflict(current.map(|object| *object)),
        WriteError::TooLarge { bytes, max } => Refused::Status(Status::too_large(format!(
            "the object takes {bytes} bytes in the log, the limit is {max}"
        ))),
        WriteError::Key(key) => Refused::Status(Status::bad_request(format!("{key:?} cannot name an object"))),
        WriteError::NoSpace(what) => {
            let mut status = Status::internal(format!("{what}; reads go on meanwhile, deletions may"));
            status.reason = "InsufficientStorage";
            Refused::Status(status)
        }
        WriteError::Closed => Refused::Status(Status::service_unavailable("the server is stopping")),
        WriteError::Damaged(damaged) => Refused::Status(Status::damaged(damaged)),
        error @ (WriteError::Failed(_) | WriteError::Sealing(_)) => Refused::Status(Status::internal(error)),
    })
}

/// The object ready for the store.
pub(super) fn encode(shape: &Resource, object: &Value) -> Result<Prepared, Status> {
    resources::encode(shape, object).map_err(Status::internal)
}

/// Whether writing `prepared` would change nothing of `current` but its revision.
pub(super) fn is_same(prepared: &Prepared, current: &Object) -> Result<bool, Status> {
    let (before, after) = current.json_around_revision().map_err(Status::internal)?;
    let splice = prepared.splice as usize;
    Ok(prepared.json.get(..splice) == Some(before) && prepared.json.get(splice..) == Some(after))
}

/// Fields that break rules, as causes of a Status.
pub(super) fn causes(errors: Vec<FieldError>) -> Vec<Cause> {
    let cause = |error: FieldError| Cause {
        reason: error.reason.as_str().into(),
        message: error.message,
        field: error.field,
    };
    errors.into_iter().map(cause).collect()
}

/// Faults of one object that an answer tells of.
pub(super) const ERRORS_MAX: usize = 1000;

/// What a strategy's refusal is to a client.
pub(super) fn refused(resource: &Resource, name: &str, refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid(mut errors) => {
            // Whoever sends thousands of faults is not told of each.
            errors.truncate(ERRORS_MAX);
            // Rules are those of the stored shape: an Event of either group is refused as one of the core group.
            let shape = resource.stored_shape().unwrap_or(resource);
            Status::invalid(&shape.group, &shape.kind, name, causes(errors))
        }
        Refusal::BadRequest(text) => Status::bad_request(text),
        Refusal::Forbidden(text) => Status::forbidden(&resource.group, &resource.plural, name, &text),
        Refusal::Conflict(text) => Status::conflict(&resource.group, &resource.plural, name, &text),
    }
}
