//! Who gives an object an owner lets it be deleted, and may hold up the owner's end: both need the right to. (Upstream's admission
//! plugin OwnerReferencesPermissionEnforcement.)

use super::{Refused, Request, forbidden, items, text};
use crate::cel::authorizer::{Authorizer, Question};
use crate::resources;
use crate::tree::Value;

/// Judges changes of an object's owners. Of owners of custom resources nothing is asked.
///
/// # Errors
/// 403.
pub(super) fn check(
    rights: &dyn Authorizer,
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Refused> {
    let none = Value::Null;
    let owners = &object["metadata"]["ownerReferences"];
    let before = old.map_or(&none, |old| &old["metadata"]["ownerReferences"]);
    if owners == before || request.subresource == "status" {
        return Ok(());
    }
    let may = |question: Question| rights.check(&question).is_ok_and(|(allowed, _)| allowed);
    let namespace = request.namespace.unwrap_or("");
    let deletion = Question {
        group: request.resource.group.to_string(),
        resource: request.resource.plural.to_string(),
        subresource: request.subresource.to_owned(),
        namespace: namespace.to_owned(),
        // A new object has no name that could be allowed.
        name: old.map_or("", |_| request.name).to_owned(),
        verb: "delete".to_owned(),
        ..Question::default()
    };
    if !may(deletion) {
        return Err(forbidden(
            "cannot set an ownerRef on a resource you can't delete: , <nil>",
        ));
    }
    let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
    let known = |owner: &&Value| items(before).any(|old| old["uid"] == owner["uid"] && blocks(&old));
    for owner in items(owners).filter(blocks).filter(|owner| !known(owner)) {
        let (group, version) = text(&owner["apiVersion"])
            .split_once('/')
            .unwrap_or(("", text(&owner["apiVersion"])));
        let is_kind = |resource: &&resources::Resource| {
            resource.group == group && resource.version == version && owner["kind"] == *resource.kind
        };
        let Some(resource) = resources::all().iter().find(is_kind) else {
            continue;
        };
        let finalizers = Question {
            group: group.to_owned(),
            resource: resource.plural.to_string(),
            subresource: "finalizers".to_owned(),
            namespace: if resource.namespaced { namespace } else { "" }.to_owned(),
            name: text(&owner["name"]).to_owned(),
            verb: "update".to_owned(),
            ..Question::default()
        };
        if !may(finalizers) {
            return Err(forbidden(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
            ));
        }
    }
    Ok(())
}
