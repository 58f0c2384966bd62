//! `pods/eviction`: deletion of a Pod as far as its disruption budgets allow.

use crate::tree::Value;
use bytes::Bytes;

use super::delete;
use super::options::{DeleteOptions, WriteOptions};
use super::target::Target;
use super::update::{self, Edited};
use super::{create, object, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::resources;
use crate::schema::Syntax;
use crate::store::{Range, Run, Selection};

/// Most names that a budget remembers as being disrupted.
const DISRUPTED_MAX: usize = 2000;

/// Evicts the Pod that the path names.
pub(super) async fn evict(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let decoded = create::decode(info, syntax, &in_present_version(syntax, body), options.validation)?;
    let name = info.name.as_deref().unwrap_or("");
    if object::meta(&decoded.value, "name") != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let asked = &decoded.value["deleteOptions"];
    let dry_run = options.dry_run || asked["dryRun"].as_array().is_some_and(|values| !values.is_empty());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let deletion = DeleteOptions {
        dry_run,
        grace_seconds: asked["gracePeriodSeconds"].as_i64(),
        uid: text(&asked["preconditions"]["uid"]),
        revision: text(&asked["preconditions"]["resourceVersion"]),
        ..DeleteOptions::default()
    };
    let target = Target {
        subresource: None,
        ..Target::of(info)
    };
    let found = api
        .reader
        .store
        .view()
        .get("pods", &info.key())
        .map_err(Status::internal)?;
    let pod = found.ok_or_else(|| Status::not_found("", "pods", name))?;
    let pod = object::of_stored(&pod, &info.resource)?;
    let counts = !object::is_deleting(&pod)
        && !matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        );
    if counts {
        let budgets = budgets_of(api, info, &pod)?;
        match budgets.as_slice() {
            [] => {}
            [budget] => take(api, info, name, budget, dry_run).await?,
            _ => {
                return Err(Status::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
        if !dry_run {
            note(api, info).await?;
        }
    }
    delete::remove(api, &target, &deletion).await?;
    Ok(reply::created())
}

/// Evictions of `policy/v1beta1` are still taken, as upstream does: the two versions do not differ.
fn in_present_version(syntax: Syntax, body: &Bytes) -> Bytes {
    if syntax == Syntax::Json
        && let Ok(mut value) = serde_json::from_slice::<Value>(body)
        && value["apiVersion"] == "policy/v1beta1"
    {
        value["apiVersion"] = "policy/v1".into();
        return Bytes::from(value.to_string());
    }
    body.clone()
}

/// Names of the budgets whose selector takes the Pod in.
fn budgets_of(api: &Api, info: &RequestInfo, pod: &Value) -> Result<Vec<String>, Status> {
    let Some(shape) = resources::find("policy", "v1", "poddisruptionbudgets") else {
        return Ok(Vec::new());
    };
    let view = api.reader.store.view();
    let range = Range {
        namespace: info.namespace.clone(),
        after: None,
    };
    let mut listing = view.list(&shape.storage, range, &Selection::all());
    let mut names = Vec::new();
    while let Some(run) = listing.next(64).map_err(Status::internal)? {
        let objects: Vec<_> = match run {
            Run::One(object) => vec![object],
            Run::Shelved(run) => run.objects().collect(),
        };
        for stored in objects {
            let budget = object::of_stored(&stored, shape)?;
            if selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]) {
                names.push(stored.name().to_owned());
            }
        }
    }
    Ok(names)
}

/// Whether a LabelSelector takes these labels in; an empty one takes all, none takes nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else {
        return false;
    };
    let equal = |labels_wanted: &Value| {
        labels_wanted
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| labels.get(key) == Some(value))
    };
    let holds = |expression: &Value| {
        let label = labels.get(expression["key"].as_str().unwrap_or(""));
        let among = expression["values"]
            .as_array()
            .is_some_and(|values| label.is_some_and(|l| values.contains(l)));
        match expression["operator"].as_str() {
            Some("In") => among,
            Some("NotIn") => !among,
            Some("Exists") => label.is_some(),
            Some("DoesNotExist") => label.is_none(),
            _ => false,
        }
    };
    selector.get("matchLabels").is_none_or(equal)
        && selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .all(holds)
}

/// Takes one disruption from a budget.
async fn take(api: &Api, info: &RequestInfo, pod: &str, budget: &str, dry_run: bool) -> Result<(), Status> {
    let resource = resources::find("policy", "v1", "poddisruptionbudgets").ok_or_else(Status::method_not_allowed)?;
    let target = Target {
        resource: resource.into(),
        subresource: Some("status"),
        namespace: info.namespace.clone(),
        name: budget.to_owned(),
        manager: None,
        own: false,
    };
    let edit = |old: &Value| {
        let status = &old["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let refuse = |message: String| {
            let mut refused =
                Status::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0);
            if let Some(details) = &mut refused.details {
                details.causes.push(Cause {
                    reason: "DisruptionBudget".into(),
                    message,
                    field: String::new(),
                });
            }
            Err(refused)
        };
        if number("observedGeneration") < generation {
            let mut refused = refuse(format!(
                "The disruption budget {budget} is still being processed by the server."
            ));
            if let Err(Status {
                details: Some(details), ..
            }) = &mut refused
            {
                details.retry_after_seconds = 10;
            }
            return refused;
        }
        let disrupted = status["disruptedPods"].as_object().map_or(0, crate::tree::Map::len);
        if number("disruptionsAllowed") <= 0 || disrupted >= DISRUPTED_MAX {
            return refuse(format!(
                "The disruption budget {budget} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy"),
            ));
        }
        let mut value = old.clone();
        value["status"]["disruptionsAllowed"] = (number("disruptionsAllowed") - 1).into();
        value["status"]["disruptedPods"][pod] = object::time(object::now_s()).into();
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    update::change(api, &target, dry_run, edit).await.map(|_| ())
}

/// Notes in the Pod's conditions why it goes.
async fn note(api: &Api, info: &RequestInfo) -> Result<(), Status> {
    let target = Target {
        subresource: Some("status"),
        ..Target::of(info)
    };
    let edit = |old: &Value| {
        let condition = crate::tree::json!({
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": object::time(object::now_s()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        let mut value = old.clone();
        if !value["status"].is_object() {
            value["status"] = crate::tree::json!({});
        }
        match value["status"]["conditions"].as_array_mut() {
            Some(conditions) => {
                conditions.retain(|present| present["type"] != "DisruptionTarget");
                conditions.push(condition);
            }
            None => value["status"]["conditions"] = crate::tree::json!([condition]),
        }
        Ok(Edited {
            value,
            revision: None,
            warnings: Vec::new(),
        })
    };
    update::change(api, &target, false, edit).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use crate::tree::json;

    use super::*;

    #[test]
    fn an_empty_selector_takes_all_and_none_takes_nothing() {
        let labels = json!({"app": "a"});
        assert!(selects(&json!({}), &labels));
        assert!(!selects(&Value::Null, &labels));
        assert!(selects(&json!({"matchLabels": {"app": "a"}}), &labels));
        assert!(!selects(
            &json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
            &labels
        ));
    }
}
