//! PUT and PATCH: reading, changing and writing back until nobody was faster.

use std::borrow::Cow;
use std::num::IntErrorKind;

use crate::tree::Value;
use bytes::Bytes;
use http::StatusCode;

use super::admission::Chain;
use super::commit::{self, Refused};
use super::manager::Manager;
use super::options::WriteOptions;
use super::preconditions::{check_uid, check_versioned};
use super::quotas::Charged;
use super::target::Target;
use super::{create, custom, object, reply};
use crate::api::Api;
use crate::api::authorize::may_create;
use crate::api::body::Response;
use crate::api::conversion;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::patch::{self, PatchError, PatchKind};
use crate::resources;
use crate::schema::{Schema, Syntax};
use crate::store::{Change, Object, Precondition};

/// How often a change is tried again because another writer was faster.
const ATTEMPTS_MAX: usize = 64;

/// What a client made of an object.
pub(super) struct Edited {
    /// The object as the client wants it, in the request's version.
    pub value: Value,
    /// The revision it must still have; `None` takes whatever is there.
    pub revision: Option<u64>,
    pub warnings: Vec<String>,
}

/// An object after a change.
pub(super) enum Changed {
    /// As it is stored now.
    Stored(Object),
    /// As it would be (dry run), or as it was when its deletion was completed. In the stored shape.
    Tree(Value),
}

/// PUT of an object or of its `status` and the like.
pub(super) async fn put(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut decoded = create::decode(info, syntax, body, options.validation)?;
    create::check_place(info, &mut decoded.value)?;
    check_name(info, &decoded.value)?;
    object::dedup_owners(&mut decoded.value, false, &mut decoded.warnings);
    let wanted = revision_of(&decoded.value)?;
    let target = Target::of(info);
    let uid = object::meta(&decoded.value, "uid").to_owned();
    let creates = info.subresource.is_none() && info.resource.strategy.creates_on_update;
    if creates {
        let view = api.reader.store.view();
        if view
            .get(&info.resource.storage, &info.key())
            .map_err(Status::internal)?
            .is_none()
        {
            check_uid(&target, None, &uid)?;
            let mut value = decoded.value;
            object::metadata_mut(&mut value).remove("resourceVersion");
            may_create(api, info)?;
            return create::insert(api, info, options, &Manager::of(info), value, decoded.warnings).await;
        }
    }
    let edit = |old: &Value| {
        check_uid(&target, Some(old), &uid)?;
        check_versioned(&target, wanted)?;
        Ok(Edited {
            value: decoded.value.clone(),
            revision: wanted,
            warnings: Vec::new(),
        })
    };
    let (changed, mut warnings) = change(api, &target, options.dry_run, edit).await?;
    warnings.splice(0..0, decoded.warnings.iter().cloned());
    answer(info, changed, &warnings)
}

/// PATCH of an object or of its `status` and the like.
pub(super) async fn patch(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    kind: PatchKind,
    body: &Bytes,
) -> Result<Response, Status> {
    let resource = &info.resource;
    let schema = Schema::of(&resource.group, &resource.version, &resource.kind);
    let target = Target::of(info);
    let edit = |old: &Value| {
        let mut patched = match schema {
            _ if resource.custom.is_some() => custom::patched(info, kind, old, body, options.validation)?,
            Some(schema) => patch::apply(kind, old, body, schema, options.validation).map_err(patch_refused)?,
            None => return Err(Status::method_not_allowed()),
        };
        create::check_place(info, &mut patched.value)?;
        check_name(info, &patched.value)?;
        object::dedup_owners(&mut patched.value, true, &mut patched.warnings);
        let asked = revision_of(&patched.value)?;
        check_versioned(&target, asked)?;
        let present = revision_of(old)?;
        // A patch that does not touch the revision takes whatever is there.
        let revision = if asked == present { None } else { asked };
        Ok(Edited {
            value: patched.value,
            revision,
            warnings: patched.warnings,
        })
    };
    let (changed, warnings) = change(api, &target, options.dry_run, edit).await?;
    answer(info, changed, &warnings)
}

pub(super) fn answer(info: &RequestInfo, changed: Changed, warnings: &[String]) -> Result<Response, Status> {
    match changed {
        Changed::Stored(object) => reply::stored(info, StatusCode::OK, &object, warnings),
        Changed::Tree(value) => reply::tree(info, StatusCode::OK, value, warnings),
    }
}

/// What a refused patch is to a client.
pub(super) fn patch_refused(error: PatchError) -> Status {
    match error {
        PatchError::BadRequest(text) => Status::bad_request(text),
        PatchError::TooLarge(text) => Status::too_large(format!("Request entity too large: {text}")),
        PatchError::NotApplicable(_) => {
            let mut status = Status::invalid("", "", "", Vec::new());
            status.message = "the server rejected our request due to an error in our request".into();
            status
        }
        PatchError::InvalidResult { object, detail } => {
            let cause = Cause {
                reason: "FieldValueInvalid".into(),
                message: format!("Invalid value: {object}: {detail}"),
                field: "patch".into(),
            };
            Status::invalid("", "", "", vec![cause])
        }
        PatchError::Internal(text) => Status::plain(500, text),
    }
}

/// The name in the body must be that of the path.
pub(super) fn check_name(info: &RequestInfo, value: &Value) -> Result<(), Status> {
    let named = info.name.as_deref().unwrap_or("");
    match object::meta(value, "name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({named} based on URL) was undeterminable: name must be provided"
        ))),
        name if name != named => Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({named})"
        ))),
        _ => Ok(()),
    }
}

/// The revision that an object's `resourceVersion` names; `None` for none and for 0.
pub(super) fn revision_of(value: &Value) -> Result<Option<u64>, Status> {
    match object::meta(value, "resourceVersion") {
        "" => Ok(None),
        text => match text.parse::<u64>() {
            Ok(revision) => Ok((revision > 0).then_some(revision)),
            Err(error) => {
                let why = match error.kind() {
                    IntErrorKind::PosOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                let text = object::quoted(text);
                Err(Status::plain(500, format!("strconv.ParseUint: parsing {text}: {why}")))
            }
        },
    }
}

/// Changes the object that the path names: reads it, lets `edit` change it, prepares and writes it, and begins anew when
/// another writer was faster, unless the client named the revision. Completes a deletion whose last finalizer went.
pub(super) async fn change(
    api: &Api,
    target: &Target,
    dry_run: bool,
    edit: impl Fn(&Value) -> Result<Edited, Status>,
) -> Result<(Changed, Vec<String>), Status> {
    let resource = &target.resource;
    let shape = resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
    let key = target.key();
    let chain = Chain::of_update(api, target, dry_run);
    let mut base = api
        .reader
        .store
        .view()
        .get(&shape.storage, &key)
        .map_err(Status::internal)?;
    for _ in 0..ATTEMPTS_MAX {
        let current = base.ok_or_else(|| target.not_found())?;
        let mut old = object::of_stored(&current, shape)?;
        if resources::custom::is_of_another_version(shape, &old) {
            old = conversion::one(api, shape, old).await?;
        }
        let converted = resource
            .custom
            .as_ref()
            .is_some_and(|custom| custom.conversion.is_some() && custom.stored.is_some());
        let other = resource.custom.as_ref().is_some_and(|custom| custom.stored.is_some());
        let shown = if converted {
            Cow::Owned(conversion::one(api, resource, old.clone()).await?)
        } else if other || resources::has_other_shape(resource) {
            Cow::Owned(object::in_version(resource, old.clone()))
        } else {
            Cow::Borrowed(&old)
        };
        let Edited {
            value,
            revision,
            mut warnings,
        } = edit(&shown)?;
        if revision.is_some_and(|revision| revision != current.revision()) {
            return Err(target.modified());
        }
        let mut new = if converted {
            custom::check(resource, Some(&shown), &value, target.subresource)?;
            let mut value = value;
            if let Some(manager) = target.manager.as_ref().filter(|_| !target.own) {
                manager.note_shown(api, Some(&shown), &mut value).await;
            }
            conversion::one(api, shape, value).await?
        } else {
            let mut new = resources::to_stored(resource, value);
            resources::custom::store(resource, &mut new);
            new
        };
        if !target.own {
            let (mut context, sub) = (target.context(), target.subresource);
            if converted {
                context.asked = None;
            }
            let begin = |new: &mut Value| {
                resources::begin_update(shape, sub, &old, new, &context)
                    .map_err(|refusal| commit::refused(resource, &target.name, refusal))
            };
            let mut begun = begin(&mut new)?;
            if let Some(manager) = target.manager.as_ref().filter(|manager| !manager.notes_shown()) {
                manager.note(Some(&old), &mut new);
            }
            if let Some(chain) = chain
                && chain.mutate(&mut new, Some(&old), &mut warnings).await?
            {
                begun = begin(&mut new)?;
            }
            let told = resources::finish_update(&begun, shape, sub, &old, &mut new, &context)
                .map_err(|refusal| commit::refused(resource, &target.name, refusal))?;
            warnings.extend(told);
        }
        let charged = match chain {
            Some(chain) => chain.validate(Some(&new), Some(&old), &mut warnings).await?,
            None => Charged::default(),
        };
        api.services
            .allocate(shape, &mut new, Some(&old), dry_run)
            .map_err(|refusal| commit::refused(resource, &target.name, refusal))?;
        let revision_text = current.revision().to_string();
        if dry_run {
            object::metadata_mut(&mut new).insert("resourceVersion", revision_text.into());
            return Ok((Changed::Tree(new), warnings));
        }
        let removes = object::is_deleting(&old) && resources::is_gone(shape, &new);
        // A deletion's event shows the object as it was before this change, as etcd's does.
        let prepared = commit::encode(shape, if removes { &old } else { &new })?;
        if !removes && commit::is_same(&prepared, &current)? {
            return Ok((Changed::Stored(current), warnings));
        }
        let write = if removes {
            Change::Delete(prepared)
        } else {
            Change::Put(prepared)
        };
        match commit::commit(api, shape, &key, Precondition::Revision(current.revision()), write).await {
            Ok(written) if removes => {
                api.services.release(shape, &old, None);
                object::metadata_mut(&mut new).insert("resourceVersion", written.revision.to_string().into());
                return Ok((Changed::Tree(new), warnings));
            }
            Ok(written) => {
                api.services.release(shape, &old, Some(&new));
                return Ok((Changed::Stored(written.object), warnings));
            }
            Err(refused) => {
                charged.refund(api).await;
                api.services.release(shape, &new, Some(&old));
                match refused {
                    Refused::Conflict(_) if revision.is_some() => return Err(target.modified()),
                    Refused::Conflict(now) => base = now,
                    Refused::Status(status) => return Err(status),
                }
            }
        }
    }
    Err(target.modified())
}
