//! The `scale` subresource: replicas of a workload, in one form for all kinds that have them.

use crate::tree::{List, Value};
use bytes::Bytes;

use super::apply::Configuration;
use super::manager::Manager;
use super::options::WriteOptions;
use super::preconditions::check_uid;
use super::target::Target;
use super::update::{self, Changed, Edited};
use super::{commit, create, object, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::conversion;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::patch::apply::{self, to_parent, to_scale};
use crate::patch::managed::{OneVersion, Typed};
use crate::patch::{self, PatchKind};
use crate::resources::Refusal;
use crate::resources::scale::{apply_scale, scale_of};
use crate::schema::{Schema, Syntax};

/// GET of `scale`.
pub(in crate::api) async fn get(api: &Api, info: &RequestInfo) -> Result<Response, Status> {
    let resource = &info.resource;
    let found = api
        .reader
        .store
        .view()
        .get(&resource.storage, &info.key())
        .map_err(Status::internal)?;
    let name = info.name.as_deref().unwrap_or("");
    let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
    let shape = resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
    let parent = shown(api, info, object::of_stored(&found, shape)?).await?;
    if !scale_of(resource, &parent).1 {
        return Err(Status::internal(format_args!(
            "the spec replicas field {} does not exist",
            replicas_path(info)
        )));
    }
    reply::scale(info, &parent, &[])
}

/// The parent in the version of the request, whose paths lead to the fields of its Scale.
async fn shown(api: &Api, info: &RequestInfo, parent: Value) -> Result<Value, Status> {
    if conversion::is_needed(&info.resource) {
        return conversion::one(api, &info.resource, parent).await;
    }
    Ok(parent)
}

/// Where a custom resource has its replicas, as it is told.
fn replicas_path(info: &RequestInfo) -> String {
    let scale = info.resource.custom.as_ref().and_then(|custom| custom.scale.as_ref());
    object::quoted(&scale.map_or_else(String::new, |scale| format!(".{}", scale.spec.join("."))))
}

/// PUT of `scale`.
pub(super) async fn put(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut decoded = create::decode(info, syntax, body, options.validation)?;
    create::check_place(info, &mut decoded.value)?;
    update::check_name(info, &decoded.value)?;
    let wanted = update::revision_of(&decoded.value)?;
    let target = Target::of(info);
    let edit = |old: &Value| {
        check_uid(&target, Some(old), object::meta(&decoded.value, "uid"))?;
        scaled(&target, old, &decoded.value, wanted, Vec::new())
    };
    let (changed, mut warnings) = update::change(api, &target, options.dry_run, edit).await?;
    warnings.extend(decoded.warnings.iter().cloned());
    answer(api, info, changed, &warnings).await
}

/// PATCH of `scale`.
pub(super) async fn patch(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    kind: PatchKind,
    body: &Bytes,
) -> Result<Response, Status> {
    let schema = Schema::of("autoscaling", "v1", "Scale").ok_or_else(Status::method_not_allowed)?;
    let target = Target::of(info);
    let edit = |old: &Value| {
        let (shown, known) = scale_of(&info.resource, old);
        let mut patched =
            patch::apply(kind, &shown, body, schema, options.validation).map_err(update::patch_refused)?;
        create::check_place(info, &mut patched.value)?;
        update::check_name(info, &patched.value)?;
        if !known && patched.value["spec"]["replicas"].is_null() {
            let why = format!("the spec replicas field {} cannot be empty", replicas_path(info));
            return Err(Status::bad_request(why));
        }
        let asked = update::revision_of(&patched.value)?;
        let wanted = if asked == update::revision_of(old)? {
            None
        } else {
            asked
        };
        scaled(&target, old, &patched.value, wanted, patched.warnings)
    };
    let (changed, warnings) = update::change(api, &target, options.dry_run, edit).await?;
    answer(api, info, changed, &warnings).await
}

/// Server-side apply to `scale`: who manages the replicas of the object manages those of its Scale.
pub(super) async fn apply(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    configuration: Result<Configuration, Status>,
) -> Result<Response, Status> {
    let schema = Schema::of("autoscaling", "v1", "Scale").ok_or_else(Status::method_not_allowed)?;
    let target = Target {
        manager: Some(Manager::applying(info)),
        ..Target::of(info)
    };
    let own = info.resource.api_version();
    let custom = info.resource.custom.as_ref();
    let names: Vec<&str> = match custom.and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => scale.spec.iter().map(String::as_str).collect(),
        None => vec!["spec", "replicas"],
    };
    let path = |version: &str| {
        let known = custom.map_or(version == own, |custom| {
            custom.versions.iter().any(|other| other.api_version == version)
        });
        known.then_some(names.as_slice())
    };
    let edit = |old: &Value| {
        let configuration = configuration.clone()?;
        configuration.check_kind("autoscaling/v1", "Scale")?;
        let entries = old["metadata"]["managedFields"].as_array();
        let entries = entries.map(List::as_slice).unwrap_or_default();
        let (mut shown, _) = scale_of(&info.resource, old);
        shown["metadata"]["managedFields"] = to_scale(entries, path).into();
        let applied = Manager::applying(info).with_request("autoscaling/v1", |request| {
            let typed = Typed::from(schema);
            let force = info.query.flag("force");
            apply::apply(
                typed,
                &OneVersion(typed),
                Some(&shown),
                &configuration.value,
                request,
                force,
            )
        });
        let mut changed = configuration.finish(applied, Some(schema), Some(&shown))?;
        create::check_place(info, &mut changed)?;
        update::check_name(info, &changed)?;
        let asked = update::revision_of(&changed)?;
        let wanted = if asked == update::revision_of(old)? {
            None
        } else {
            asked
        };
        let mut edited = scaled(&target, old, &changed, wanted, configuration.warnings)?;
        let scaled = changed["metadata"]["managedFields"].as_array();
        let scaled = scaled.map(List::as_slice).unwrap_or_default();
        let entries = to_parent(entries, scaled, &info.resource.api_version(), path);
        object::metadata_mut(&mut edited.value).insert("managedFields", entries.into());
        Ok(edited)
    };
    let (changed, warnings) = update::change(api, &target, options.dry_run, edit).await?;
    answer(api, info, changed, &warnings).await
}

async fn answer(api: &Api, info: &RequestInfo, changed: Changed, warnings: &[String]) -> Result<Response, Status> {
    let parent = match changed {
        Changed::Stored(stored) => {
            let shape = info.resource.stored_shape().ok_or_else(Status::method_not_allowed)?;
            object::of_stored(&stored, shape)?
        }
        Changed::Tree(value) => value,
    };
    reply::scale(info, &shown(api, info, parent).await?, warnings)
}

/// The parent with the replicas that `scale` asks for.
fn scaled(
    target: &Target,
    parent: &Value,
    scale: &Value,
    revision: Option<u64>,
    warnings: Vec<String>,
) -> Result<Edited, Status> {
    let (resource, name) = (&target.resource, target.name.as_str());
    let value = apply_scale(resource, parent, scale).map_err(|refusal| match refusal {
        // The fields that break rules are those of the Scale.
        Refusal::Invalid(errors) => Status::invalid("autoscaling", "Scale", name, commit::causes(errors)),
        refusal => commit::refused(resource, name, refusal),
    })?;
    let (asked, present) = (object::meta(scale, "uid"), object::meta(parent, "uid"));
    if !asked.is_empty() && asked != present {
        let why = format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {present}");
        let scale = format!("{}/scale", resource.plural);
        return Err(Status::conflict(&resource.group, &scale, name, &why));
    }
    Ok(Edited {
        value,
        revision,
        warnings,
    })
}
