//! Built-in plugins: what the server itself fills in, refuses and counts.
//!
//! Objects are in the shape that they are stored in; of subresources whose body is another object (a Binding, an Eviction, the
//! options of a CONNECT) they are that body.

use std::sync::Arc;

use super::{Refused, Request};
use crate::store::View;
use crate::tree::Value;

/// What plugins fill in of a new or changed object, or of the body of a subresource; `old` is what is stored. Nobody manages the
/// fields that they set. Called again when a policy or a webhook changed the object.
///
/// # Errors
/// What they refuse before anything else is asked.
pub fn mutate(
    _view: &Arc<View>,
    _request: &Request<'_>,
    _object: &mut Value,
    _old: Option<&Value>,
    _warnings: &mut Vec<String>,
) -> Result<(), Refused> {
    Ok(())
}

/// What plugins say of a write as it would be made: no `object` for a deletion, no `old` for a creation.
///
/// # Errors
/// What they refuse.
pub fn validate(
    _view: &Arc<View>,
    _request: &Request<'_>,
    _object: Option<&Value>,
    _old: Option<&Value>,
    _warnings: &mut Vec<String>,
) -> Result<(), Refused> {
    Ok(())
}

/// What a write takes of quotas: asked last, when everything else has agreed.
///
/// # Errors
/// 403 when there is not enough left.
pub fn charge(
    _view: &Arc<View>,
    _request: &Request<'_>,
    _object: Option<&Value>,
    _old: Option<&Value>,
) -> Result<(), Refused> {
    Ok(())
}
