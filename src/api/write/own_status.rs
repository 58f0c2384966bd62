//! Statuses that the API server itself gives: whether the priority level that a `FlowSchema` names is there; and how parts of it
//! that judge others write what they found.
//!
//! Level-triggered, as the clearing of namespaces is: all objects are judged anew whenever something they depend on changes.
//! There are a few dozens of them.

use std::sync::Arc;
use std::time::Duration;

use super::classes::all;
use super::commit::{self, Refused};
use super::manager::Manager;
use super::object;
use super::target::Target;
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::{self, ResourceRef};
use crate::store::{Change, Precondition, View};
use crate::tree::{Value, json};

const FLOW_SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
const PRIORITY_LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";

/// When to try again what could not be read or written.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the statuses up until the server stops.
pub(in crate::api) async fn run(api: Arc<Api>) {
    let stopping = api.reader.stopping.clone();
    while !stopping.is_stopping() {
        let view = api.reader.store.view();
        let follow = |resource| api.reader.store.follow(resource, None, view.revision());
        // What changes while the statuses are written is seen by the next round.
        let followers = (follow(FLOW_SCHEMAS), follow(PRIORITY_LEVELS));
        let judged = judge_flow_schemas(&api, &view).await;
        drop(view);
        let is_well = judged.is_ok();
        if let Err(error) = judged {
            tracing::warn!(%error, "the status of a flow schema cannot be written");
        }
        let again = async {
            if is_well {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        let (Ok(mut schemas), Ok(mut levels)) = followers else {
            tokio::select! {
                () = stopping.stopped() => return,
                () = tokio::time::sleep(AGAIN) => continue,
            }
        };
        tokio::select! {
            () = stopping.stopped() => return,
            () = again => {}
            () = schemas.changed() => {}
            () = levels.changed() => {}
        }
    }
}

async fn judge_flow_schemas(api: &Api, view: &Arc<View>) -> Result<(), Status> {
    for schema in all(view, FLOW_SCHEMAS)? {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"]
            .as_str()
            .unwrap_or("");
        let present = view.get(PRIORITY_LEVELS, level).map_err(Status::internal)?.is_some();
        let about = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {}",
            object::quoted(level)
        );
        let condition = if present {
            json!({"type": "Dangling", "status": "False", "reason": "Found", "message": format!("{about} and it exists")})
        } else {
            let message = format!("{about} but there is no such object");
            json!({"type": "Dangling", "status": "True", "reason": "NotFound", "message": message})
        };
        let manager = "api-priority-and-fairness-config-consumer-v1";
        set_condition(api, FLOW_SCHEMAS, manager, &schema, condition).await?;
    }
    Ok(())
}

/// Writes a condition in place of the one of its type, unless that says the same.
pub(in crate::api) async fn set_condition(
    api: &Api,
    storage: &str,
    manager: &str,
    judged: &Value,
    mut condition: Value,
) -> Result<(), Status> {
    let same = |other: &Value| {
        ["type", "status", "reason", "message"]
            .iter()
            .all(|field| other[*field] == condition[*field])
    };
    let conditions = judged["status"]["conditions"].as_array();
    if conditions.is_some_and(|conditions| conditions.iter().any(same)) {
        return Ok(());
    }
    condition["lastTransitionTime"] = object::time(object::now_s()).into();
    let resource = ResourceRef::from(resources::stored(storage).ok_or_else(Status::method_not_allowed)?);
    let target = Target {
        subresource: Some("status"),
        manager: Some(Manager::named(manager, resource.clone(), "status")),
        ..Target::at(&resource, object::meta(judged, "name"))
    };
    let edit = |old: &Value| {
        let mut value = old.clone();
        let mut conditions = value["status"]["conditions"]
            .as_array()
            .map_or(Vec::new(), |list| list.to_vec());
        conditions.retain(|other| other["type"] != condition["type"]);
        conditions.push(condition.clone());
        value["status"]["conditions"] = conditions.into();
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    match update::change(api, &target, false, edit).await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(()),
    }
}

/// Makes the `APIService` of a version of this server's own custom resources, unless there is one.
pub(in crate::api) async fn add_api_service(api: &Api, group: &str, version: &str) -> Result<(), Status> {
    let Some((resource, object)) = resources::own_api_service(object::now_s(), group, version) else {
        return Err(Status::internal("an APIService cannot be made"));
    };
    let key = object::meta(&object, "name").to_owned();
    let put = Change::Put(commit::encode(resource, &object)?);
    match commit::commit(api, resource, &key, Precondition::Absent, put).await {
        Ok(_) | Err(Refused::Conflict(_)) => Ok(()),
        Err(Refused::Status(status)) => Err(status),
    }
}

/// Removes an object of this server's own, as it is now.
pub(in crate::api) async fn remove_own(api: &Api, storage: &str, key: &str) -> Result<(), Status> {
    let resource: ResourceRef = resources::stored(storage)
        .ok_or_else(Status::method_not_allowed)?
        .into();
    let view = api.reader.store.view();
    let Some(present) = view.get(storage, key).map_err(Status::damaged)? else {
        return Ok(());
    };
    let last = object::of_stored(&present, &resource)?;
    let gone = Change::Delete(commit::encode(&resource, &last)?);
    let precondition = Precondition::Revision(present.revision());
    match commit::commit(api, &resource, key, precondition, gone).await {
        // Whoever changed it is seen by the next round.
        Ok(_) | Err(Refused::Conflict(_)) => Ok(()),
        Err(Refused::Status(status)) => Err(status),
    }
}
