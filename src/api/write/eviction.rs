//! `pods/eviction`: deletion of a Pod as far as its disruption budgets allow.

use bytes::Bytes;

use super::admission::Chain;
use super::delete;
use super::delete_options::{DeleteOptions, IGNORES_READ_ERRORS};
use super::manager::Manager;
use super::options::WriteOptions;
use super::target::Target;
use super::update::{self, Changed, Edited};
use super::{classes, create, namespaces, object, pods, reply};
use crate::api::Api;
use crate::api::body::Response;
use crate::api::request::RequestInfo;
use crate::api::status::{Cause, Status};
use crate::resources::{self, condition};
use crate::schema::Syntax;
use crate::tree::{Map, Value};

/// Most names that a budget remembers as being disrupted.
const DISRUPTED_MAX: usize = 2000;

/// How often an eviction is begun anew because the Pod changed meanwhile.
const ATTEMPTS_MAX: usize = 20;

const BUDGETS: &str = "poddisruptionbudgets.policy";

/// Evicts the Pod that the path names.
pub(super) async fn evict(
    api: &Api,
    info: &RequestInfo,
    options: &WriteOptions,
    syntax: Syntax,
    body: &Bytes,
) -> Result<Response, Status> {
    let mut decoded = create::decode(info, syntax, &in_present_version(syntax, body), options.validation)?;
    create::check_place(info, &mut decoded.value)?;
    let name = info.name.as_deref().unwrap_or("");
    namespaces::admit(&api.reader.store.view(), info, name)?;
    if object::meta(&decoded.value, "name") != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let chain = Chain::of_create(api, info, name, options.dry_run);
    chain.admit(&mut decoded.value, &mut decoded.warnings).await?;
    let deletion = asked(name, options, &decoded.value["deleteOptions"])?;
    evict_pod(api, info, &deletion).await?;
    Ok(reply::with_warnings(reply::created(), &decoded.warnings))
}

/// The deletion that an Eviction asks for.
fn asked(name: &str, options: &WriteOptions, asked: &Value) -> Result<DeleteOptions, Status> {
    if asked[IGNORES_READ_ERRORS] == true {
        let cause = Cause {
            reason: "FieldValueInvalid".into(),
            message: "Invalid value: true: can not be set for pod eviction, try after removing the option".into(),
            field: format!("deleteOptions.{IGNORES_READ_ERRORS}"),
        };
        return Err(Status::invalid("policy", "Eviction", name, vec![cause]));
    }
    let dry_run: Vec<&str> = asked["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if options.dry_run && !dry_run.is_empty() && dry_run != ["All"] {
        let text = format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            dry_run.join(" ")
        );
        return Err(Status::plain(500, text));
    }
    let mut deletion = DeleteOptions::of_value(asked)?;
    deletion.dry_run |= options.dry_run;
    Ok(deletion)
}

async fn evict_pod(api: &Api, info: &RequestInfo, asked: &DeleteOptions) -> Result<(), Status> {
    let name = info.name.as_deref().unwrap_or("");
    for attempt in 1.. {
        let found = api
            .reader
            .store
            .view()
            .get("pods", &info.key())
            .map_err(Status::internal)?;
        let stored = found.ok_or_else(|| Status::not_found("", "pods", name))?;
        let pod = object::of_stored(&stored, &info.resource)?;
        let phase = pod["status"]["phase"].as_str();
        let mut deletion = asked.clone();
        if object::is_deleting(&pod) || matches!(phase, Some("Succeeded" | "Failed")) {
            // It disrupts nothing any more.
        } else if phase == Some("Pending") {
            // Nor does this one, unless it begins to run meanwhile.
            deletion.revision.get_or_insert_with(|| stored.revision().to_string());
        } else {
            return evict_guarded(api, info, asked, &pod).await;
        }
        match delete_with_note(api, info, deletion).await {
            // Whoever names the revision is told that it is another one.
            Err(status) if status.code == 409 && asked.revision.is_none() && attempt < ATTEMPTS_MAX => {}
            ended => return ended,
        }
    }
    Ok(())
}

/// Evicts a running Pod, which its budget guards if it has one.
async fn evict_guarded(api: &Api, info: &RequestInfo, asked: &DeleteOptions, pod: &Value) -> Result<(), Status> {
    let budgets = budgets_of(api, info, pod)?;
    let budget = match budgets.as_slice() {
        [] => return delete_with_note(api, info, asked.clone()).await,
        [budget] => budget,
        _ => {
            let text =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::plain(500, text));
        }
    };
    let name = object::meta(budget, "name").to_owned();
    if is_ready(pod) || !spares_unready(budget) {
        take(api, info, name, asked.dry_run).await?;
        return delete_with_note(api, info, asked.clone()).await;
    }
    // It must not have become ready meanwhile, for that is no disruption.
    let deletion = DeleteOptions {
        revision: Some(object::meta(pod, "resourceVersion").to_owned()),
        ..asked.clone()
    };
    match delete_with_note(api, info, deletion).await {
        Err(status) if status.code == 409 && asked.revision.is_none() => Err(in_process(&name)),
        ended => ended,
    }
}

/// Notes in the Pod's conditions why it goes, and deletes it.
async fn delete_with_note(api: &Api, info: &RequestInfo, mut deletion: DeleteOptions) -> Result<(), Status> {
    // It was the eviction that was asked for; the deletion is the server's.
    let pod = Target {
        subresource: None,
        asker: None,
        ..Target::of(info)
    };
    if !deletion.dry_run {
        let edit = |old: &Value| {
            delete::check_preconditions(&pod.resource, &pod.name, old, &deletion)?;
            let mut value = old.clone();
            let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
            pods::set_condition(&mut value, "DisruptionTarget", reason, message);
            Ok(Edited {
                value,
                revision: None,
                warnings: Vec::new(),
            })
        };
        // The server's own words in the status are nobody's fields.
        let status = Target {
            subresource: Some("status"),
            manager: None,
            ..pod.clone()
        };
        let (changed, _) = update::change(api, &status, false, edit).await?;
        if deletion.revision.is_some() {
            deletion.revision = Some(match changed {
                Changed::Stored(object) => object.revision().to_string(),
                // Its last finalizer was gone: so is the Pod.
                Changed::Tree(_) => return Ok(()),
            });
        }
    }
    delete::remove(api, &pod, &deletion).await.map(|_| ())
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

/// The budgets whose selector takes the Pod in.
fn budgets_of(api: &Api, info: &RequestInfo, pod: &Value) -> Result<Vec<Value>, Status> {
    let mut budgets = classes::all_in(&api.reader.store.view(), BUDGETS, info.namespace.as_deref())?;
    budgets.retain(|budget| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]));
    Ok(budgets)
}

/// Whether a budget's selector takes these labels in; an empty one takes all, none takes nothing, nor does one that is not valid.
fn selects(selector: &Value, labels: &Value) -> bool {
    selector.is_object() && resources::selects(selector, labels) == Some(true)
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
}

fn number(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or(0)
}

/// Whether a Pod that is not ready may go without taking a disruption from the budget.
fn spares_unready(budget: &Value) -> bool {
    let desired = number(budget, "desiredHealthy");
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || desired > 0 && number(budget, "currentHealthy") >= desired
}

/// Takes one disruption from a budget.
async fn take(api: &Api, info: &RequestInfo, budget: String, dry_run: bool) -> Result<(), Status> {
    let resource = resources::stored(BUDGETS).ok_or_else(Status::method_not_allowed)?;
    let pod = info.name.as_deref().unwrap_or("");
    let target = Target {
        resource: resource.into(),
        subresource: Some("status"),
        namespace: info.namespace.clone(),
        name: budget,
        manager: Some(Manager::named("kube-apiserver", resource.into(), "status")),
        own: false,
        asker: None,
    };
    let edit = |old: &Value| {
        Ok(Edited {
            value: taken(old, pod)?,
            revision: None,
            warnings: Vec::new(),
        })
    };
    update::change(api, &target, dry_run, edit).await.map(|_| ())
}

/// The budget with one disruption less, which is that of `pod`.
fn taken(budget: &Value, pod: &str) -> Result<Value, Status> {
    let name = object::meta(budget, "name");
    if number(budget, "observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(in_process(name));
    }
    let forbid = |why: &str, told: &str| {
        let mut status = Status::forbidden("policy", "poddisruptionbudget", name, why);
        add_cause(
            &mut status,
            format!("The disruption budget {name} does not allow evicting pods currently: {told}"),
        );
        status
    };
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(forbid(why, why));
    }
    if budget["status"]["disruptedPods"].as_object().map_or(0, Map::len) > DISRUPTED_MAX {
        return Err(forbid(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(exhausted(budget));
    }
    let mut value = budget.clone();
    value["status"]["disruptionsAllowed"] = (allowed - 1).into();
    value["status"]["disruptedPods"][pod] = object::time(object::now_s()).into();
    if allowed == 1 {
        set_insufficient(&mut value);
    }
    Ok(value)
}

/// 429: the budget's controller has not seen its present form.
fn in_process(budget: &str) -> Status {
    let mut status = Status::too_many_requests(VIOLATES, 10);
    add_cause(
        &mut status,
        format!("The disruption budget {budget} is still being processed by the server."),
    );
    status
}

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// 429: no disruption is left.
fn exhausted(budget: &Value) -> Status {
    let name = object::meta(budget, "name");
    let (desired, current) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("").to_owned();
    let why = condition(budget, "DisruptionAllowed")
        .filter(|condition| condition["status"] == "False")
        .map(|condition| (text(condition, "reason"), text(condition, "message")))
        .filter(|(_, message)| !message.is_empty());
    let denies = format!("The disruption budget {name} does not allow evicting pods currently");
    let mut status = Status::too_many_requests(VIOLATES, 0);
    let told = match why {
        // Numbers that could not be reckoned are not told.
        Some((reason, message)) if reason == "SyncFailed" => format!("{denies} because it failed sync: {message}"),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => format!("{denies} ({reason}): {message}"),
        None => denies,
    };
    add_cause(&mut status, told);
    status
}

fn add_cause(status: &mut Status, message: String) {
    if let Some(details) = &mut status.details {
        details.causes.push(Cause {
            reason: "DisruptionBudget".into(),
            message,
            field: String::new(),
        });
    }
}

/// Notes in the budget's conditions that no disruption is left.
fn set_insufficient(budget: &mut Value) {
    let observed = number(budget, "observedGeneration");
    let present = condition(budget, "DisruptionAllowed").filter(|condition| condition["status"] == "False");
    let since = present.map_or_else(
        || object::time(object::now_s()).into(),
        |condition| condition["lastTransitionTime"].clone(),
    );
    let mut noted = crate::tree::json!({
        "type": "DisruptionAllowed",
        "status": "False",
        "lastTransitionTime": since,
        "reason": "InsufficientPods",
        "message": "",
    });
    if observed != 0 {
        noted["observedGeneration"] = observed.into();
    }
    object::set_condition(budget, noted);
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
        assert!(!selects(
            &json!({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["a"]}]}),
            &labels
        ));
    }

    fn told(status: &Value) -> (u16, String, u32) {
        let budget = json!({"metadata": {"name": "b", "generation": 2}, "status": status});
        let status = taken(&budget, "p").unwrap_err();
        let details = status.details.unwrap();
        (
            status.code,
            details.causes[0].message.clone(),
            details.retry_after_seconds,
        )
    }

    #[test]
    fn a_budget_without_disruptions_says_why() {
        let failed = |reason: &str| json!([{"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no scale"}]);
        for (status, code, message, retry_s) in [
            (
                json!({"observedGeneration": 1}),
                429,
                "The disruption budget b is still being processed by the server.",
                10,
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2}),
                429,
                "The disruption budget b needs 2 healthy pods and has 1 currently",
                0,
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2,
                    "conditions": failed("SyncFailed")}),
                429,
                "The disruption budget b does not allow evicting pods currently because it failed sync: no scale",
                0,
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2,
                    "conditions": failed("InsufficientPods")}),
                429,
                "The disruption budget b does not allow evicting pods currently (InsufficientPods): no scale",
                0,
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 3, "desiredHealthy": 2}),
                429,
                "The disruption budget b does not allow evicting pods currently",
                0,
            ),
            (
                json!({"observedGeneration": 2, "disruptionsAllowed": -1}),
                403,
                "The disruption budget b does not allow evicting pods currently: pdb disruptions allowed is negative",
                0,
            ),
        ] {
            assert_eq!(told(&status), (code, message.to_owned(), retry_s), "{status}");
        }
    }

    #[test]
    fn the_last_disruption_is_noted_in_the_conditions() {
        let budget = json!({"metadata": {"name": "b", "generation": 1}, "status": {
            "observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": {"other": "1970-01-01T00:00:00Z"},
        }});
        let taken = taken(&budget, "p").unwrap();
        assert_eq!(number(&taken, "disruptionsAllowed"), 0);
        assert_eq!(taken["status"]["disruptedPods"].as_object().unwrap().len(), 2);
        let noted = condition(&taken, "DisruptionAllowed").unwrap();
        assert_eq!(
            (&noted["status"], &noted["reason"]),
            (&json!("False"), &json!("InsufficientPods"))
        );
    }

    #[test]
    fn pods_that_are_not_ready_go_freely_where_the_budget_is_met() {
        let budget = |policy: Option<&str>, current: i64, desired: i64| {
            let policy = policy.map_or(Value::Null, Value::from);
            json!({"spec": {"unhealthyPodEvictionPolicy": policy},
                "status": {"currentHealthy": current, "desiredHealthy": desired}})
        };
        assert!(spares_unready(&budget(None, 2, 2)));
        assert!(!spares_unready(&budget(None, 1, 2)));
        assert!(!spares_unready(&budget(None, 0, 0)));
        assert!(!spares_unready(&budget(Some("IfHealthyBudget"), 1, 2)));
        assert!(spares_unready(&budget(Some("AlwaysAllow"), 0, 2)));
    }
}
