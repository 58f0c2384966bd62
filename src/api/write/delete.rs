//! DELETE of one object: preconditions, grace, finalizers, and what its dependents are to expect.

use crate::tree::Value;
use http::StatusCode;

use super::admission::Chain;
use super::commit::{self, Refused};
use super::delete_options::DeleteOptions;
use super::target::Target;
use super::{object, reply, rules};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::conversion;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources::{self, Deletion, Resource};
use crate::store::{Change, Object, Precondition};

/// How often a deletion is tried again because another writer was faster.
const ATTEMPTS_MAX: usize = 64;

/// What a deletion left.
pub(super) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Final),
    /// It stays for now, for its grace period or its finalizers.
    Stays(Final),
}

/// A state to answer with.
pub(super) enum Final {
    Stored(Object),
    /// Of a dry run. In the stored shape.
    Tree(Value),
}

/// Deletes the object that the path names.
pub(super) async fn delete(api: &Api, info: &RequestInfo, options: &DeleteOptions) -> Result<Response, Status> {
    let resource = &info.resource;
    let name = info.name.as_deref().unwrap_or("");
    match remove(api, &Target::of(info), options).await? {
        Deleted::Gone(state) if !rules::answers_with_object(resource) => {
            let uid = match &state {
                Final::Stored(object) => object::uid_of(object)?,
                Final::Tree(value) => object::meta(value, "uid").to_owned(),
            };
            let mut response = Status::deleted(&resource.group, &resource.plural, name, &uid).into_response();
            *response.status_mut() = StatusCode::OK;
            Ok(response)
        }
        // Upstream answers 202 only to those who still use the old option.
        Deleted::Stays(state) if options.orphan == Some(false) => answer(info, StatusCode::ACCEPTED, state),
        Deleted::Gone(state) | Deleted::Stays(state) => answer(info, StatusCode::OK, state),
    }
}

fn answer(info: &RequestInfo, code: StatusCode, state: Final) -> Result<Response, Status> {
    match state {
        Final::Stored(object) => reply::stored(info, code, &object, &[]),
        Final::Tree(value) => reply::tree(info, code, value, &[]),
    }
}

/// Deletes one object.
pub(super) async fn remove(api: &Api, target: &Target, options: &DeleteOptions) -> Result<Deleted, Status> {
    let resource = &target.resource;
    let (name, key) = (target.name.as_str(), &target.key());
    let shape = resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
    let mut base = api
        .reader
        .store
        .view()
        .get(&shape.storage, key)
        .map_err(Status::internal)?;
    for _ in 0..ATTEMPTS_MAX {
        let current = base.ok_or_else(|| target.not_found())?;
        let mut old = object::of_stored(&current, shape)?;
        if resources::custom::is_of_another_version(shape, &old) {
            old = conversion::one(api, shape, old).await?;
        }
        check_preconditions(resource, name, &old, options)?;
        if let Some(chain) = Chain::of_delete(api, target, options) {
            chain.remove(&old, &mut Vec::new()).await?;
        }
        let deletion = resources::prepare_delete(shape, &old, &options.request(), &target.context())
            .map_err(|refusal| commit::refused(resource, name, refusal))?;
        if options.dry_run {
            return Ok(match deletion {
                Deletion::Remove(value) => Deleted::Gone(Final::Tree(value)),
                Deletion::Mark(value) => Deleted::Stays(Final::Tree(value)),
                Deletion::Pending => Deleted::Stays(Final::Tree(old)),
            });
        }
        let at = Precondition::Revision(current.revision());
        let done = match deletion {
            Deletion::Pending => return Ok(Deleted::Stays(Final::Stored(current))),
            Deletion::Mark(value) => {
                let prepared = commit::encode(shape, &value)?;
                let written = commit::commit(api, shape, key, at, Change::Put(prepared)).await;
                written.map(|written| Deleted::Stays(Final::Stored(written.object)))
            }
            // Watchers see a Pod's grace period end before they see it go.
            Deletion::Remove(value) if shape.storage == "pods" && value != old => {
                let prepared = commit::encode(shape, &value)?;
                match commit::commit(api, shape, key, at, Change::Put(prepared.clone())).await {
                    Err(refused) => Err(refused),
                    Ok(marked) => {
                        let at = Precondition::Revision(marked.revision);
                        match commit::commit(api, shape, key, at, Change::Delete(prepared)).await {
                            Ok(written) => Ok(Deleted::Gone(Final::Stored(written.object))),
                            // Whoever was faster has deleted it (the kubelet, say): that is what was asked for.
                            Err(Refused::Conflict(None)) => Ok(Deleted::Gone(Final::Stored(marked.object))),
                            Err(refused) => Err(refused),
                        }
                    }
                }
            }
            Deletion::Remove(value) => {
                let prepared = commit::encode(shape, &value)?;
                let written = commit::commit(api, shape, key, at, Change::Delete(prepared)).await;
                written.map(|written| Deleted::Gone(Final::Stored(written.object)))
            }
        };
        match done {
            Ok(deleted) => {
                if matches!(deleted, Deleted::Gone(_)) {
                    api.services.release(shape, &old, None);
                }
                return Ok(deleted);
            }
            Err(Refused::Conflict(now)) => base = now,
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(target.modified())
}

/// Deletes an object as it is, and only as it is.
pub(super) async fn expire(api: &Api, resource: &Resource, object: &Object) -> Result<(), Status> {
    let shape = resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
    let prepared = commit::encode(shape, &object::of_stored(object, shape)?)?;
    let at = Precondition::Revision(object.revision());
    match commit::commit(api, shape, object.key(), at, Change::Delete(prepared)).await {
        Ok(_) | Err(Refused::Conflict(_)) => Ok(()),
        Err(Refused::Status(status)) => Err(status),
    }
}

/// The object must be the one that the options name, at the revision that they name.
///
/// # Errors
/// 409.
pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let uid = object::meta(old, "uid");
    if resource.storage == "namespaces" {
        for (field, asked, present) in [
            ("UID", &options.uid, uid),
            (
                "ResourceVersion",
                &options.revision,
                object::meta(old, "resourceVersion"),
            ),
        ] {
            if let Some(asked) = asked.as_deref().filter(|asked| *asked != present) {
                let why =
                    format!("Precondition failed: {field} in precondition: {asked}, {field} in object meta: {present}");
                return Err(Status::conflict(&resource.group, &resource.plural, name, &why));
            }
        }
    }
    // Upstream names the kind in these two messages.
    let conflict = |why: String| Status::conflict(&resource.group, &resource.kind, name, &why);
    if let Some(asked) = options.uid.as_deref().filter(|asked| *asked != uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        )));
    }
    let revision = object::meta(old, "resourceVersion");
    if let Some(asked) = options.revision.as_deref().filter(|asked| *asked != revision) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        )));
    }
    Ok(())
}
