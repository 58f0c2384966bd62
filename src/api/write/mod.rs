//! Write verbs: from a request to a change in the store and its answer.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `payload`, `options`, `delete_options` | what is asked for |
//! | `create`, `update`, `apply`, `delete`, `collection` | the verbs |
//! | `scale`, `binding`, `eviction`, `token`, `reviews` | paths whose body is not the object itself |
//! | `namespaces`, `pods`, `classes`, `rules` | what single resources have of their own |
//! | `admission`, `hooks`, `policies`, `rounds` | who is asked before anything changes, and in which order |
//! | `custom` | objects of custom resources |
//! | `preconditions` | which object, at which revision, a write demands |
//! | `clearing`, `remains`, `own_status`, `definitions`, `finalizing` | what the server does by itself |
//! | `client` | writes of the program's own parts |
//! | `commit` | handing over to the store |
//! | `reply` | the answer |

mod access_reviews;
mod admission;
mod apply;
mod binding;
mod classes;
mod clearing;
mod client;
mod collection;
mod commit;
mod create;
mod custom;
mod definitions;
mod delete;
mod delete_options;
mod escalation;
mod eviction;
mod finalizing;
mod hooks;
mod manager;
mod namespaces;
mod object;
mod options;
mod own_status;
mod payload;
mod pods;
mod policies;
mod preconditions;
mod quotas;
mod remains;
mod reply;
mod reviews;
mod rounds;
mod rules;
mod scale;
mod services;
mod target;
mod token;
mod update;

use std::sync::Arc;

use hyper::body::Incoming;

use super::body::Response;
use super::request::{RequestInfo, Verb};
use super::status::Status;
use super::{Api, read};
use crate::schema::Syntax;
use delete_options::DeleteOptions;
use options::WriteOptions;
use payload::PatchType;

pub(super) use super::read::quoted;
pub(super) use admission::connect;
pub(super) use classes::{all, revisions};
pub(super) use clearing::run as clear_namespaces;
pub use client::{Client, Delete};
pub(super) use definitions::Definitions;
pub(super) use own_status::{add_api_service, remove_own, run as keep_own_statuses, set_condition};
pub(super) use quotas::Quotas;
pub use quotas::Stillness;
pub(super) use reply::details;
pub(super) use scale::get as get_scale;
pub(super) use services::Services;

/// Answers a request that changes something.
pub(super) async fn answer(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    match info.verb {
        Verb::Create => create(api, info, body).await,
        Verb::Update => update(api, info, body).await,
        Verb::Patch => patch(api, info, body).await,
        Verb::Delete | Verb::DeleteCollection => delete(api, info, body).await,
        Verb::Get | Verb::List | Verb::Watch => Err(Status::method_not_allowed()),
    }
}

fn sub(info: &RequestInfo) -> &'static str {
    info.subresource_name()
}

async fn create(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    if let "exec" | "attach" | "portforward" | "proxy" = sub(info) {
        return Err(Status::method_not_allowed());
    }
    let (body, _permit) = payload::read(api, info, body).await?;
    let (syntax, body) = payload::object(&info.headers, body)?;
    let options = WriteOptions::read(&info.query, "CreateOptions", false)?;
    match (&*info.resource.plural, sub(info)) {
        ("bindings", "") | ("pods", "binding") => binding::bind(api, info, &options, syntax, &body).await,
        ("serviceaccounts", "token") => token::request(api, info, &options, syntax, &body).await,
        ("pods", "eviction") => eviction::evict(api, info, &options, syntax, &body).await,
        _ if info.resource.is_review() => reviews::answer(api, info, &options, syntax, &body).await,
        (_, "") => create::create(api, info, &options, syntax, &body).await,
        _ => Err(not_yet(info)),
    }
}

async fn update(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    let (body, _permit) = payload::read(api, info, body).await?;
    let (syntax, body) = payload::object(&info.headers, body)?;
    let options = WriteOptions::read(&info.query, "UpdateOptions", false)?;
    match sub(info) {
        "scale" => scale::put(api, info, &options, syntax, &body).await,
        _ => update::put(api, info, &options, syntax, &body).await,
    }
}

async fn patch(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    let kind = payload::patch_type(&info.headers)?;
    let (body, _permit) = payload::read(api, info, body).await?;
    if let Some(recording) = &info.audit {
        recording.sent_raw(&body);
    }
    let options = WriteOptions::read(&info.query, "PatchOptions", kind == PatchType::Apply)?;
    match (kind, sub(info)) {
        (PatchType::Apply, _) => apply::apply(api, info, &options, &body).await,
        (PatchType::Plain(kind), "scale") => scale::patch(api, info, &options, kind, &body).await,
        (PatchType::Plain(kind), _) => update::patch(api, info, &options, kind, &body).await,
    }
}

async fn delete(api: &Arc<Api>, info: &RequestInfo, body: Incoming) -> Result<Response, Status> {
    if info.subresource.is_some() {
        return Err(Status::method_not_allowed());
    }
    if info.verb == Verb::DeleteCollection {
        read::check_options(info)?;
    }
    let (bytes, _permit) = payload::read(api, info, body).await?;
    let (syntax, bytes) = if bytes.is_empty() {
        (Syntax::Json, bytes)
    } else {
        payload::object(&info.headers, bytes)?
    };
    let options = DeleteOptions::read(info, &bytes, syntax)?;
    if let Some(recording) = info.audit.as_ref().filter(|_| !bytes.is_empty()) {
        recording.sent_raw(options.to_value().to_json().as_bytes());
    }
    if info.verb == Verb::DeleteCollection {
        collection::delete_all(api, info, &options).await
    } else {
        delete::delete(api, info, &options).await
    }
}

/// A subresource that this server does not have yet.
fn not_yet(info: &RequestInfo) -> Status {
    Status::not_implemented(&format!("{}/{}", info.resource.qualified(), sub(info)))
}
