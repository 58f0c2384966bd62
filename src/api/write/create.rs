//! POST to a collection.

use crate::tree::Value;
use bytes::Bytes;
use http::StatusCode;

use super::commit::{self, Refused};
use super::manager::Manager;
use super::options::WriteOptions;
use super::{classes, namespaces, object, pods, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources::{self, Context};
use crate::schema::{self, Decoded, Expected, FieldValidation, Syntax};
use crate::store::{Change, Precondition};

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
    let decoded = decode(info, syntax, body, options.validation)?;
    check_place(info, &decoded.value)?;
    insert(api, info, options, &Manager::of(info), decoded.value, decoded.warnings).await
}

/// Reads an object of the kind that the path takes.
pub(super) fn decode(
    info: &RequestInfo,
    syntax: Syntax,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, Status> {
    let (group, version, kind) = match &info.subresource {
        Some(sub) => (&*sub.group, &*sub.version, &*sub.kind),
        None => (&*info.resource.group, &*info.resource.version, &*info.resource.kind),
    };
    schema::decode(body, syntax, &Expected { group, version, kind }, validation)
        .map_err(|rejected| Status::bad_request(rejected.message))
}

/// The object must lie where the path says.
pub(super) fn check_place(info: &RequestInfo, value: &Value) -> Result<(), Status> {
    let namespace = object::meta(value, "namespace");
    if !namespace.is_empty() && Some(namespace) != info.namespace.as_deref() {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
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
    namespaces::admit(&view, info, object::meta(&value, "name"))?;
    let mut value = resources::to_stored(resource, value);
    classes::check_only_default(&view, shape, &value)?;
    let fills = if shape.storage == "pods" {
        pods::admit(&view, info, &value)?
    } else {
        classes::admit(&view, shape, &value)?
    };
    resources::set_requester(shape, &mut value, &info.user.name, &info.user.uid, &info.user.groups);
    let generated = object::meta(&value, "name").is_empty() && !object::meta(&value, "generateName").is_empty();
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
            asked: Some(resource),
        };
        let told = resources::prepare_create_with(shape, &mut object, &context, |object| {
            manager.note(None, object);
            pods::fill(object, &fills);
        })
        .map_err(|refusal| commit::refused(resource, object::meta(&object, "name"), refusal))?;
        let name = object::meta(&object, "name").to_owned();
        api.services
            .allocate(shape, &mut object, None, options.dry_run)
            .map_err(|refusal| commit::refused(resource, &name, refusal))?;
        let key = resource.key(info.namespace.as_deref(), &name);
        let taken = || {
            if generated {
                Status::generate_name_conflict(&resource.group, &resource.plural, &name)
            } else {
                Status::already_exists(&resource.group, &resource.plural, &name)
            }
        };
        if options.dry_run {
            if view.get(&shape.storage, &key).map_err(Status::internal)?.is_some() {
                return Err(taken());
            }
            warnings.extend(told);
            return reply::tree(info, StatusCode::CREATED, object, &warnings);
        }
        let prepared = commit::encode(shape, &object)?;
        match commit::commit(api, shape, &key, Precondition::Absent, Change::Put(prepared)).await {
            Ok(written) => {
                warnings.extend(told);
                return reply::stored(info, StatusCode::CREATED, &written.object, &warnings);
            }
            Err(refused) => {
                api.services.release(shape, &object, None);
                match refused {
                    Refused::Conflict(_) if attempts > 0 => {}
                    Refused::Conflict(_) => return Err(taken()),
                    Refused::Status(status) => return Err(status),
                }
            }
        }
    }
}
