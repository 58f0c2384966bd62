//! Subresources that lead to a node or a backend: `log`, `exec`, `attach`, `portforward`, `proxy`.
//!
//! Nothing is forwarded yet. What can be said without asking a node is said as upstream says it: a Pod that is not there,
//! not on a node, or has no such container.

use std::fmt::Write as _;

use http::StatusCode;
use serde::Deserialize;

use super::Api;
use super::body::{Body, Response};
use super::request::RequestInfo;
use super::status::{Cause, Status};

/// What of a Pod these paths ask for.
#[derive(Deserialize, Default)]
struct Pod {
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    #[serde(default)]
    ephemeral_containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
}

/// Answers a request for one of these subresources.
pub(super) fn answer(api: &Api, info: &RequestInfo) -> Result<Response, Status> {
    let resource = &info.resource;
    let name = info.name.as_deref().unwrap_or("");
    let found = api
        .reader
        .store
        .view()
        .get(&resource.storage, &info.key())
        .map_err(Status::internal)?;
    let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
    let not_yet = || {
        let sub = info.subresource_name();
        Status::not_implemented(&format!("{}/{sub}", resource.qualified()))
    };
    if resource.plural != "pods" {
        return Err(not_yet());
    }
    let pod: Pod = serde_json::from_slice(found.json().map_err(Status::internal)?).map_err(Status::internal)?;
    match info.subresource_name() {
        "log" => log(info, name, &pod).ok_or_else(not_yet)?,
        "proxy" if pod.spec.node_name.is_empty() => Err(Status::bad_request("address not allowed")),
        "exec" | "attach" | "portforward" if pod.spec.node_name.is_empty() => {
            Err(Status::bad_request(format!("pod {name} does not have a host assigned")))
        }
        _ => Err(not_yet()),
    }
}

/// `None` when a node would have to be asked.
fn log(info: &RequestInfo, name: &str, pod: &Pod) -> Option<Result<Response, Status>> {
    if let Err(status) = check_log_options(info, name) {
        return Some(Err(status));
    }
    let container = info.query.get("container").unwrap_or_default();
    let spec = &pod.spec;
    if container.is_empty() && spec.containers.len() != 1 {
        let names = |list: &[Container]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(" ");
        let mut text = format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names(&spec.containers)
        );
        if !spec.init_containers.is_empty() {
            let _ = write!(
                text,
                " or one of the init containers: [{}]",
                names(&spec.init_containers)
            );
        }
        return Some(Err(Status::bad_request(text)));
    }
    let mut all = spec
        .containers
        .iter()
        .chain(&spec.init_containers)
        .chain(&spec.ephemeral_containers);
    if !container.is_empty() && !all.any(|present| present.name == container) {
        return Some(Err(Status::bad_request(format!(
            "container {container} is not valid for pod {name}"
        ))));
    }
    if !spec.node_name.is_empty() {
        return None;
    }
    // A Pod that is not on a node has no log yet.
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Some(Ok(response))
}

fn check_log_options(info: &RequestInfo, name: &str) -> Result<(), Status> {
    let mut causes = Vec::new();
    for (field, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        let Some(text) = info.query.get(field).filter(|text| !text.is_empty()) else {
            continue;
        };
        let number: i64 = text
            .parse()
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))?;
        if number < least {
            let rule = if least == 0 {
                "must be greater than or equal to 0"
            } else {
                "must be greater than 0"
            };
            causes.push(Cause {
                reason: "FieldValueInvalid".into(),
                message: format!("Invalid value: {number}: {rule}"),
                field: field.into(),
            });
        }
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid("", "PodLogOptions", name, causes))
    }
}
