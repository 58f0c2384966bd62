//! How an object is made ready for a write: what the server fills in, what a client may not change.

use serde_json::Value;

use super::{Refusal, Resource};

/// What a strategy may know of the request.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Now, unix seconds.
    pub now_s: i64,
    /// Namespace of the request's URL.
    pub namespace: Option<&'a str>,
    /// Name in the request's URL (`None` on create).
    pub name: Option<&'a str>,
}

/// Makes a new object ready: namespace and generated name, uid, creation time, generation, defaults, empty status;
/// then validates it. Warnings for the client come back.
///
/// `object` is in the stored shape of `resource` (see `Resource::stored_shape`).
pub fn prepare_create(
    resource: &'static Resource,
    object: &mut Value,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    let _ = (resource, object, context);
    Ok(Vec::new())
}

/// Makes a changed object ready: keeps what a client may not change (uid, creation time, status on the main resource,
/// all but status on `/status`), counts the generation, defaults; then validates the change. Warnings come back.
///
/// `old` is the stored object. Whether `resourceVersion` matches is the API's business.
pub fn prepare_update(
    resource: &'static Resource,
    subresource: Option<&str>,
    old: &Value,
    new: &mut Value,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    let _ = (resource, subresource, old, new, context);
    Ok(Vec::new())
}
