//! Questions about what may be done, answered by the authorizer that every request is asked of.

use std::sync::Arc;

use crate::api::Api;
use crate::api::request::RequestInfo;
use crate::api::status::Status;
use crate::auth::User;
use crate::auth::authorization::{Asked, Attributes, Rule, Verdict, What};
use crate::tree::{Value, json};

/// The status of a review of access; of the asker's own where the spec names nobody.
pub(super) fn access(api: &Api, info: &RequestInfo, review: &Value) -> Value {
    let spec = &review["spec"];
    let user = if info.resource.kind == "SelfSubjectAccessReview" {
        info.user.clone()
    } else {
        Arc::new(subject(spec))
    };
    let asked = &spec["resourceAttributes"];
    let fields = selector(&asked["fieldSelector"]);
    let what = if asked.is_object() {
        What::Resource(Asked {
            group: text(asked, "group"),
            resource: text(asked, "resource"),
            subresource: text(asked, "subresource"),
            namespace: text(asked, "namespace"),
            name: text(asked, "name"),
            fields: &fields,
        })
    } else {
        What::Path(text(&spec["nonResourceAttributes"], "path"))
    };
    let verb = if asked.is_object() {
        text(asked, "verb")
    } else {
        text(&spec["nonResourceAttributes"], "verb")
    };
    let decision = api.authorizer.decide(
        &api.reader.store.view(),
        &Attributes {
            user: &user,
            verb,
            what,
        },
    );
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.verdict == Verdict::Deny {
        status["denied"] = true.into();
    }
    let reason = decision.reason();
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// The status of a review of rules: everything that the asker may do in a namespace.
///
/// # Errors
/// 500 when roles or bindings cannot be read.
pub(super) fn rules(api: &Api, info: &RequestInfo, review: &Value) -> Result<Value, Status> {
    let namespace = text(&review["spec"], "namespace");
    let found = api.authorizer.rules_of(&api.reader.store.view(), &info.user, namespace);
    let (rules, unresolved) = found.map_err(Status::damaged)?;
    let (on_paths, on_resources): (Vec<Rule>, Vec<Rule>) = rules.into_iter().partition(|rule| !rule.urls.is_empty());
    let told = |rules: Vec<Rule>| serde_json::to_value(rules).map(Value::from).map_err(Status::internal);
    let mut status = json!({
        "resourceRules": told(on_resources)?,
        "nonResourceRules": told(on_paths)?,
        "incomplete": !unresolved.is_empty(),
    });
    if !unresolved.is_empty() {
        status["evaluationError"] = unresolved.join(", ").into();
    }
    Ok(status)
}

/// A field selector as text. Requirements that equality cannot say are left out: they only narrow what is asked for.
fn selector(told: &Value) -> String {
    let raw = text(told, "rawSelector");
    if !raw.is_empty() {
        // What is escaped may look like a term of its own.
        return if raw.contains('\\') {
            String::new()
        } else {
            raw.to_owned()
        };
    }
    let items = told["requirements"].as_array().map_or(&[][..], |list| list.as_slice());
    let equal = items.iter().filter_map(|requirement| {
        let values = requirement["values"].as_array()?;
        match (text(requirement, "operator"), values.as_slice()) {
            ("In", [one]) => {
                let value = one.as_str().filter(|value| !value.contains([',', '\\']))?;
                Some(format!("{}={value}", text(requirement, "key")))
            }
            _ => None,
        }
    });
    equal.collect::<Vec<_>>().join(",")
}

/// Whom a review asks about.
fn subject(spec: &Value) -> User {
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().map_or(&[][..], |list| list.as_slice());
        items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let extra = spec["extra"].as_object().into_iter().flat_map(|extra| extra.iter());
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra
            .map(|(key, values)| (key.to_string().to_ascii_lowercase(), texts(values)))
            .collect(),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}
