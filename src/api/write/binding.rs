//! Binding a Pod to a node: `pods/binding` and the older `bindings`.

use crate::tree::{Value, json};
use bytes::Bytes;

use super::options::WriteOptions;
use super::target::Target;
use super::update::{self, Edited};
use super::{create, object, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::resources;
use crate::schema::Syntax;

/// Assigns the Pod to the node that the Binding in `body` names.
pub(super) async fn bind(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let decoded = create::decode(info, syntax, body, options.validation)?;
    create::check_place(info, &decoded.value)?;
    let binding = decoded.value;
    let name = info
        .name
        .clone()
        .unwrap_or_else(|| object::meta(&binding, "name").to_owned());
    let node = binding["target"]["name"].as_str().unwrap_or("");
    let kind = binding["target"]["kind"].as_str().unwrap_or("");
    if !matches!(kind, "" | "Node") {
        return Err(Status::plain(
            500,
            format!(
                "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
                object::quoted(kind)
            ),
        ));
    }
    if node.is_empty() {
        return Err(Status::plain(500, "target.name: Required value"));
    }
    let uid = object::meta(&binding, "uid");
    let revision = update::revision_of(&binding)?;
    let refused = |why: String| Status::conflict("", "pods/binding", &name, &why);
    let edit = |old: &Value| {
        if !uid.is_empty() && uid != object::meta(old, "uid") {
            return Err(refused(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object::meta(old, "uid")
            )));
        }
        if object::is_deleting(old) {
            return Err(refused(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            )));
        }
        if let Some(present) = old["spec"]["nodeName"].as_str().filter(|present| !present.is_empty()) {
            return Err(refused(format!(
                "pod {name} is already assigned to node {}",
                object::quoted(present)
            )));
        }
        if old["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return Err(refused(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        let mut value = old.clone();
        value["spec"]["nodeName"] = node.into();
        for part in ["annotations", "labels"] {
            for (key, text) in binding["metadata"][part].as_object().into_iter().flatten() {
                value["metadata"][part][key.as_str()] = text.clone();
            }
        }
        set_scheduled(&mut value);
        Ok(Edited {
            value,
            revision,
            warnings: Vec::new(),
        })
    };
    let pods = resources::find("", "v1", "pods").ok_or_else(Status::method_not_allowed)?;
    let target = Target {
        resource: pods.into(),
        subresource: Some("binding"),
        namespace: info.namespace.clone(),
        name: name.clone(),
        manager: None,
        own: true,
    };
    update::change(api, &target, options.dry_run, edit).await?;
    Ok(reply::created())
}

/// Notes in the Pod's conditions that it is scheduled.
fn set_scheduled(pod: &mut Value) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": object::time(object::now_s()),
    });
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else {
        pod["status"]["conditions"] = json!([condition]);
        return;
    };
    conditions.retain(|present| present["type"] != "PodScheduled");
    conditions.push(condition);
}
