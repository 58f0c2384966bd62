//! Binding a Pod to a node: `pods/binding` and the older `bindings`.

use crate::tree::Value;
use bytes::Bytes;

use super::admission::Chain;
use super::options::WriteOptions;
use super::preconditions::{check_revision, check_uid};
use super::target::Target;
use super::update::{self, Edited};
use super::{create, namespaces, object, pods, reply};
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
    let mut decoded = create::decode(info, syntax, body, options.validation)?;
    create::check_place(info, &mut decoded.value)?;
    place(api, info, options.dry_run, decoded.value, &mut decoded.warnings).await?;
    Ok(reply::with_warnings(reply::created(), &decoded.warnings))
}

/// Assigns the Pod to the node that `binding` names.
pub(super) async fn place(
    api: &Api,
    info: &RequestInfo,
    dry_run: bool,
    mut binding: Value,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    namespaces::admit(&api.reader.store.view(), info, object::admission_name(&binding))?;
    let name = object::meta(&binding, "name").to_owned();
    if info.name.as_ref().is_some_and(|asked| *asked != name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    // The older path names no Pod; the Binding does.
    let chain = Chain::of_create(api, info, &name, dry_run);
    chain.admit(&mut binding, warnings).await?;
    let node = binding["target"]["name"].as_str().unwrap_or("");
    check_target(binding["target"]["kind"].as_str().unwrap_or(""), node)?;
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let resource = resources::find("", "v1", "pods").ok_or_else(Status::method_not_allowed)?;
    let target = Target {
        resource: resource.into(),
        subresource: Some("binding"),
        namespace: info.namespace.clone(),
        name: name.clone(),
        manager: None,
        own: true,
        asker: None,
    };
    let refused = |why: String| Status::conflict("", "pods/binding", &name, &why);
    let edit = |old: &Value| {
        check_uid(&target, Some(old), object::meta(&binding, "uid"))?;
        check_revision(&target, old, object::meta(&binding, "resourceVersion"))?;
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
        pods::set_condition(&mut value, "PodScheduled", "", "");
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    update::change(api, &target, dry_run, edit).await.map(drop)
}

/// A Pod is bound to a node, which has a name.
fn check_target(kind: &str, name: &str) -> Result<(), Status> {
    let mut wrong = Vec::new();
    if !matches!(kind, "" | "Node") {
        wrong.push(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            object::quoted(kind)
        ));
    }
    if name.is_empty() {
        wrong.push("target.name: Required value".to_owned());
    }
    match wrong.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::plain(500, one.clone())),
        all => Err(Status::plain(500, format!("[{}]", all.join(", ")))),
    }
}
