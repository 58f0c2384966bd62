//! Statuses that the API server itself gives: whether the server behind an `APIService` is there, and whether the priority level
//! that a `FlowSchema` names is.
//!
//! Level-triggered, as the clearing of namespaces is: all objects of the two kinds are judged anew whenever something they
//! depend on changes. There are a few dozens of them.

use std::sync::Arc;
use std::time::Duration;

use super::classes::all;
use super::manager::Manager;
use super::object;
use super::target::Target;
use super::update::{self, Edited};
use crate::api::Api;
use crate::api::status::Status;
use crate::resources::{self, ResourceRef};
use crate::store::View;
use crate::tree::{Value, json};

const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";
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
        let followers = (
            follow(API_SERVICES),
            follow(FLOW_SCHEMAS),
            follow(PRIORITY_LEVELS),
            follow("services"),
        );
        let (remote, servers) = told(judge_api_services(&api, &view).await);
        let ((), schemas) = told(judge_flow_schemas(&api, &view).await);
        drop(view);
        let again = async {
            if servers && schemas {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        let (Ok(mut servers), Ok(mut schemas), Ok(mut levels), Ok(mut services)) = followers else {
            tokio::select! {
                () = stopping.stopped() => return,
                () = tokio::time::sleep(AGAIN) => continue,
            }
        };
        tokio::select! {
            () = stopping.stopped() => return,
            () = again => {}
            () = servers.changed() => {}
            () = schemas.changed() => {}
            () = levels.changed() => {}
            () = services.changed(), if remote => {}
        }
    }
}

/// What a round found, and whether all went well; what did not is in the log.
fn told<T: Default>(result: Result<T, Status>) -> (T, bool) {
    match result {
        Ok(found) => (found, true),
        Err(error) => {
            tracing::warn!(%error, "the status of an API service or a flow schema cannot be written");
            (T::default(), false)
        }
    }
}

/// Tells whether there are API services of other servers.
async fn judge_api_services(api: &Api, view: &Arc<View>) -> Result<bool, Status> {
    let mut remote = false;
    for server in all(view, API_SERVICES)? {
        let service = &server["spec"]["service"];
        if service.is_null() {
            continue;
        }
        remote = true;
        let text = |field: &str| service[field].as_str().unwrap_or("");
        let (namespace, name) = (text("namespace"), text("name"));
        let present = view
            .get("services", &format!("{namespace}/{name}"))
            .map_err(Status::internal)?;
        let (reason, message) = match present {
            None => (
                "ServiceNotFound",
                format!("service/{name} in \"{namespace}\" is not present"),
            ),
            Some(_) => (
                "FailedDiscoveryCheck",
                "requests are not forwarded to other API servers".to_owned(),
            ),
        };
        let condition = json!({"type": "Available", "status": "False", "reason": reason, "message": message});
        set_condition(api, API_SERVICES, "kube-apiserver", &server, condition).await?;
    }
    Ok(remote)
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
async fn set_condition(
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
