//! Policies judge what is written.

use std::sync::Arc;

use super::object;
use crate::admission::Attributes;
use crate::api::Api;
use crate::api::status::{Cause, Status};
use crate::auth::User;
use crate::resources::Resource;
use crate::store::View;
use crate::tree::Value;

/// A write as policies are told of it.
pub(super) struct Judged<'a> {
    pub resource: &'a Resource,
    pub subresource: &'a str,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    pub user: &'a User,
    pub dry_run: bool,
}

/// Lets policies judge an object as it would be stored, `old` being what is there. What comes back are warnings. Costs one look
/// into the view where there are none.
///
/// # Errors
/// What a policy refuses with.
pub(super) fn judge(
    api: &Api,
    view: &Arc<View>,
    judged: &Judged<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<String>, Status> {
    if api.policies.is_idle(view) {
        return Ok(Vec::new());
    }
    let shown =
        |value: Option<&Value>| value.map_or(Value::Null, |value| object::in_version(judged.resource, value.clone()));
    let attributes = Attributes {
        resource: judged.resource,
        subresource: judged.subresource,
        operation: match (new, old) {
            (Some(_), None) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
            (None, _) => "DELETE",
        },
        namespace: judged.namespace,
        name: judged.name,
        user: (&judged.user.name, &judged.user.uid, &judged.user.groups),
        dry_run: judged.dry_run,
        object: &shown(new),
        old: &shown(old),
    };
    api.policies
        .judge(view, &attributes)
        .map_err(Status::damaged)?
        .map_err(|denied| {
            let resource = judged.resource;
            let mut status = Status::forbidden(&resource.group, &resource.plural, judged.name, &denied.message);
            status.code = denied.code;
            status.reason = denied.reason;
            if let Some(details) = &mut status.details {
                details.causes.push(Cause {
                    message: denied.message,
                    ..Cause::default()
                });
            }
            status
        })
}
