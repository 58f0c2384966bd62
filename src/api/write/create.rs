//! POST to a collection.

use crate::tree::Value;
use bytes::Bytes;
use http::StatusCode;

use super::admission::Chain;
use super::commit::{self, Refused};
use super::manager::Manager;
use super::options::WriteOptions;
use super::{custom, namespaces, object, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::conversion;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources::custom::Passing;
use crate::resources::{self, Context, Resource};
use crate::schema::{self, Decoded, Expected, FieldValidation, Syntax};
use crate::store::{Change, Object, Precondition};

/// How often another generated name is tried when one is taken.
const NAMES_MAX: usize = 8;

/// Creates the object in `body`.
pub(super) async fn create(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut decoded = decode(info, syntax, body, options.validation)?;
    check_place(info, &mut decoded.value)?;
    object::dedup_owners(&mut decoded.value, false, &mut decoded.warnings);
    insert(api, info, options, &Manager::of(info), decoded.value, decoded.warnings).await
}

/// Reads an object of the kind that the path takes.
pub(super) fn decode(
    info: &RequestInfo,
    syntax: Syntax,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let decoded = decode_kind(info, syntax, body, validation)?;
    if let Some(recording) = &info.audit {
        recording.sent(&decoded.value);
    }
    Ok(decoded)
}

fn decode_kind(
    info: &RequestInfo,
    syntax: Syntax,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    if info.resource.custom.is_some() && info.subresource_name() != "scale" {
        return custom::decode(info, syntax, body, validation);
    }
    let (group, version, kind) = match &info.subresource {
        Some(sub) => (&*sub.group, &*sub.version, &*sub.kind),
        None => (&*info.resource.group, &*info.resource.version, &*info.resource.kind),
    };
    schema::decode(body, syntax, &Expected { group, version, kind }, validation)
        .map_err(|rejected| Status::bad_request(rejected.message))
}

/// The object must lie where the path says. What lies in no namespace loses the one that it names.
pub(super) fn check_place(info: &RequestInfo, value: &mut Value) -> Result<(), Status> {
    let namespace = object::meta(value, "namespace");
    if namespace.is_empty() {
        return Ok(());
    }
    let Some(asked) = info.namespace.as_deref().filter(|_| info.resource.namespaced) else {
        object::metadata_mut(value).remove("namespace");
        return Ok(());
    };
    if namespace != asked {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Lets an object of a custom resource pass whose definition is not being deleted, and holds that off while it passes.
///
/// # Errors
/// 403 when the definition is being deleted.
async fn passing<'a>(resource: &'a Resource, name: &str) -> Result<Option<Passing<'a>>, Status> {
    let Some(custom) = &resource.custom else {
        return Ok(None);
    };
    let passing = if custom.terminating {
        None
    } else {
        custom.gate.pass().await
    };
    passing.map(Some).ok_or_else(|| {
        let why = "create not allowed while custom resource definition is terminating";
        Status::forbidden(&resource.group, &resource.plural, name, why)
    })
}

/// Creates `value`, which is in the request's version.
pub(super) async fn insert(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    manager: &Manager,
    value: Value,
    mut warnings: Vec<String>,
) -> Result<Response, Status> {
    let resource = &info.resource;
    let shape = resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
    let view = api.reader.store.view();
    namespaces::admit(&view, info, object::admission_name(&value))?;
    drop(passing(resource, object::meta(&value, "name")).await?);
    let converted = resource
        .custom
        .as_ref()
        .is_some_and(|custom| custom.conversion.is_some() && custom.stored.is_some());
    let mut value = if converted {
        custom::check(resource, None, &value, None)?;
        let mut value = value;
        manager.note_shown(api, None, &mut value).await;
        conversion::one(api, shape, value).await?
    } else {
        let mut value = resources::to_stored(resource, value);
        resources::custom::store(resource, &mut value);
        value
    };
    let user = &*info.user;
    let set_requester =
        |value: &mut Value| resources::set_requester(shape, value, &user.name, &user.uid, &user.groups, &user.extra);
    set_requester(&mut value);
    let has_prefix = !object::meta(&value, "generateName").is_empty();
    let generated = object::meta(&value, "name").is_empty() && has_prefix;
    let names_revision = object::meta(&value, "resourceVersion")
        .parse()
        .is_ok_and(|revision: u64| revision > 0);
    let mut attempts = if generated { NAMES_MAX } else { 1 };
    let mut next = Some(value);
    loop {
        attempts -= 1;
        let mut object = match &next {
            Some(value) if attempts > 0 => value.clone(),
            _ => next.take().unwrap_or_default(),
        };
        let context = Context {
            now_s: object::now_s(),
            namespace: info.namespace.as_deref(),
            name: info.name.as_deref(),
            asked: (!converted).then_some(resource),
        };
        let asked = object::meta(&object, "name").to_owned();
        let refused = |object: &Value, refusal| commit::refused(resource, object::meta(object, "name"), refusal);
        resources::begin_create(shape, &mut object, &context).map_err(|refusal| refused(&object, refusal))?;
        if !manager.notes_shown() {
            manager.note(None, &mut object);
        }
        let mut told = Vec::new();
        let chain = Chain::of_create(api, info, &asked, options.dry_run);
        if chain.mutate(&mut object, None, &mut told).await? {
            set_requester(&mut object);
            resources::begin_create(shape, &mut object, &context).map_err(|refusal| refused(&object, refusal))?;
        }
        let finished = resources::finish_create(shape, &mut object, &context);
        told.extend(finished.map_err(|refusal| refused(&object, refusal))?);
        let name = object::meta(&object, "name").to_owned();
        if names_revision && !options.dry_run {
            return Err(Status::plain(
                500,
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let judged = Chain { name: &name, ..chain };
        let charged = judged.validate(Some(&object), None, &mut told).await?;
        api.services
            .allocate(shape, &mut object, None, options.dry_run)
            .map_err(|refusal| commit::refused(resource, &name, refusal))?;
        let key = resource.key(info.namespace.as_deref(), &name);
        let taken = |present: Option<&Object>| {
            let mut status = if has_prefix {
                Status::generate_name_conflict(&resource.group, &resource.plural, &name)
            } else {
                Status::already_exists(&resource.group, &resource.plural, &name)
            };
            if present
                .is_some_and(|present| object::of_stored(present, shape).is_ok_and(|now| object::is_deleting(&now)))
            {
                status.message.insert_str(0, "object is being deleted: ");
            }
            status
        };
        if options.dry_run {
            match view.get(&shape.storage, &key).map_err(Status::internal)? {
                None => {}
                Some(_) if attempts > 0 => continue,
                Some(present) => return Err(taken(Some(&present))),
            }
            warnings.extend(told);
            return reply::tree(info, StatusCode::CREATED, object, &warnings);
        }
        let prepared = commit::encode(shape, &object)?;
        // Held no longer than it takes to write: webhooks may have taken their time.
        let passing = passing(resource, &name)
            .await
            .inspect_err(|_| api.services.release(shape, &object, None))?;
        let committed = commit::commit(api, shape, &key, Precondition::Absent, Change::Put(prepared)).await;
        drop(passing);
        match committed {
            Ok(written) => {
                warnings.extend(told);
                return reply::stored(info, StatusCode::CREATED, &written.object, &warnings);
            }
            Err(refused) => {
                charged.refund(api).await;
                api.services.release(shape, &object, None);
                match refused {
                    Refused::Conflict(_) if attempts > 0 => {}
                    Refused::Conflict(present) => return Err(taken(present.as_ref())),
                    Refused::Status(status) => return Err(status),
                }
            }
        }
    }
}
