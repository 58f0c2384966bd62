//! Webhooks: whom they are about, what they are sent, and what their answers mean. Nothing here sends anything.
//!
//! Rules: <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.

use std::sync::Arc;

use base64::Engine as _;
use serde::Deserialize;

use super::expressions::{self, Conditions, items, text};
use super::policies::question;
use super::{Attributes, matching};
use crate::cel::Environment;
use crate::cel::authorizer::Authorizer;
use crate::cel::run::{Budget, Input};
use crate::resources::Resource;
use crate::store::View;
use crate::tree::{Value, json};

/// The resource that mutating webhooks are configured by.
pub const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
/// The resource that validating webhooks are configured by.
pub const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

/// Most that the conditions of a webhook may cost for one request; kube-apiserver's number.
const COST_MAX: u64 = 2_500_000;

/// A webhook, compiled.
#[derive(Debug)]
pub struct Webhook {
    /// Its own name: `pods.example.com`.
    pub name: String,
    /// Of its configuration and its place in it: no two have the same.
    pub place: (String, usize),
    /// What is configured.
    spec: Value,
    conditions: Conditions,
}

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// A URL.
    Url(String),
    /// A port of a Service, and a path there.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
        /// The port's number.
        port: i64,
        /// The path, which begins with `/` or is empty.
        path: String,
    },
}

/// A place that webhooks are called at, with the certificates that it is trusted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// Where.
    pub address: Address,
    /// PEM, base64; `None`: those of the system.
    pub bundle: Option<String>,
}

impl Client {
    /// Of a `WebhookClientConfig`.
    pub fn of(config: &Value) -> Self {
        let service = &config["service"];
        let address = if service.is_null() {
            Address::Url(text(config, "url").to_owned())
        } else {
            Address::Service {
                namespace: text(service, "namespace").to_owned(),
                name: text(service, "name").to_owned(),
                port: service["port"].as_i64().unwrap_or(443),
                path: text(service, "path").to_owned(),
            }
        };
        let bundle = config["caBundle"].as_str().filter(|bundle| !bundle.is_empty());
        Self {
            address,
            bundle: bundle.map(str::to_owned),
        }
    }
}

impl Webhook {
    /// The webhooks of a configuration.
    pub fn compile(configuration: &Value) -> Vec<Arc<Webhook>> {
        let name = text(&configuration["metadata"], "name");
        let environment = Environment::of_admission(false);
        let of = |(at, spec): (usize, &Value)| {
            Arc::new(Webhook {
                name: text(spec, "name").to_owned(),
                place: (name.to_owned(), at),
                conditions: Conditions::compile(&spec["matchConditions"], &environment),
                spec: spec.clone(),
            })
        };
        items(&configuration["webhooks"]).iter().enumerate().map(of).collect()
    }

    /// Where it is.
    pub fn client(&self) -> Client {
        Client::of(&self.spec["clientConfig"])
    }

    /// Whether a request goes on when it cannot be asked.
    pub fn fails_open(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    /// Seconds that it has.
    pub fn timeout_s(&self) -> u64 {
        self.spec["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30)
    }

    /// Whether it is asked again when others changed the object after it.
    pub fn is_asked_again(&self) -> bool {
        self.spec["reinvocationPolicy"] == "IfNeeded"
    }

    /// Whether it may be asked about what is only tried.
    pub fn takes_dry_runs(&self) -> bool {
        matches!(self.spec["sideEffects"].as_str(), Some("None" | "NoneOnDryRun"))
    }

    /// The version in which it sees the request; `None` when it is not about it, its conditions aside.
    pub fn version<'a>(&self, attributes: &Attributes<'a>) -> Option<&'a Resource> {
        matching::calls(&self.spec, attributes)
    }

    /// Whether its conditions hold, for the request in the version that it sees.
    ///
    /// # Errors
    /// What is wrong with them, if that forbids the request.
    pub fn applies(&self, attributes: &Attributes<'_>, authorizer: &dyn Authorizer) -> Result<bool, String> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let request = Value::Object(expressions::request(attributes));
        let question = question(attributes);
        let inputs = [
            Input::Value(attributes.object),
            Input::Value(attributes.old),
            Input::Value(&request),
            Input::Null,
            Input::Authorizer(authorizer),
            Input::ResourceCheck(authorizer, &question),
            Input::Null,
        ];
        match self.conditions.hold(&inputs, &mut Budget::of(COST_MAX)) {
            Err(_) if self.fails_open() => Ok(false),
            held => held,
        }
    }
}

/// Whether requests for this resource are never shown to webhooks and policies, because they could not be mended then.
pub fn is_exempt(resource: &Resource) -> bool {
    resource.group == "admissionregistration.k8s.io"
        && matches!(
            &*resource.plural,
            "validatingwebhookconfigurations"
                | "mutatingwebhookconfigurations"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        )
}

/// Whether there are no webhooks of that kind.
pub fn is_idle(view: &View, configurations: &str) -> bool {
    view.count(configurations, None) == 0
}

/// The review that is sent.
pub fn review(attributes: &Attributes<'_>, uid: &str) -> Vec<u8> {
    let mut request = expressions::request(attributes);
    request.insert("uid", uid.into());
    for field in ["subResource", "requestSubResource", "name", "namespace"] {
        if request.get(field).is_some_and(|text| text == "") {
            request.remove(field);
        }
    }
    request.insert("object", attributes.object.clone());
    request.insert("oldObject", attributes.old.clone());
    let review =
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": Value::Object(request)});
    review.to_string().into_bytes()
}

/// What a webhook says.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The refusal, if it is one: a Status.
    pub refusal: Option<Value>,
    /// A JSON patch.
    pub patch: Option<Vec<u8>>,
    /// For the client.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Answered {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    response: Option<Said>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    status: Option<Value>,
    patch: Option<String>,
    patch_type: Option<String>,
    audit_annotations: Option<std::collections::BTreeMap<String, String>>,
    warnings: Option<Vec<String>>,
}

/// Reads an answer to the review `uid`.
///
/// # Errors
/// What is wrong with it, as kube-apiserver tells it.
pub fn verdict(answer: &[u8], uid: &str, mutating: bool) -> Result<Verdict, String> {
    let answered: Answered = serde_json::from_slice(answer)
        .map_err(|error| format!("failed to call webhook: couldn't get version/kind; json parse error: {error}"))?;
    let invalid = |what: String| format!("received invalid webhook response: {what}");
    let said = answered
        .response
        .ok_or_else(|| invalid("webhook response was absent".into()))?;
    if said.uid != uid {
        return Err(invalid(format!("expected response.uid={uid:?}, got {:?}", said.uid)));
    }
    if answered.api_version != "admission.k8s.io/v1" || answered.kind != "AdmissionReview" {
        let found = format!("{}, Kind={}", answered.api_version, answered.kind);
        let what = format!("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {found}");
        return Err(invalid(what));
    }
    let patch = said.patch.filter(|patch| !patch.is_empty());
    let wrong = match (&patch, said.patch_type.as_deref(), mutating) {
        (Some(_), None, true) => "webhook returned response.patch but not response.patchType",
        (None, Some(_), true) => "webhook returned response.patchType but not response.patch",
        (Some(_), Some(""), true) => "webhook returned invalid response.patchType of \"\"",
        (Some(_), _, false) => "validating webhook may not return response.patch",
        (None, Some(_), false) => "validating webhook may not return response.patchType",
        _ => "",
    };
    if !wrong.is_empty() {
        return Err(invalid(wrong.into()));
    }
    if let Some(other) = said.patch_type.filter(|kind| kind != "JSONPatch") {
        return Err(format!("unsupported patch type {other:?}"));
    }
    let patch = match patch {
        None => None,
        Some(text) => Some(
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| format!("failed to call webhook: illegal base64 data: {error}"))?,
        ),
    };
    Ok(Verdict {
        refusal: (!said.allowed).then(|| said.status.unwrap_or(Value::Null)),
        patch: patch.filter(|_| said.allowed),
        warnings: said.warnings.unwrap_or_default(),
        annotations: said.audit_annotations.unwrap_or_default().into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(answer: &Value, mutating: bool) -> String {
        match verdict(answer.to_string().as_bytes(), "u", mutating) {
            Ok(verdict) => format!("{:?} {:?}", verdict.refusal.is_some(), verdict.patch.is_some()),
            Err(why) => why,
        }
    }

    #[test]
    fn an_answer_must_be_one_to_the_review() {
        let head = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        let invalid = "received invalid webhook response: ";
        for (answer, mutating, wanted) in [
            (json!({}), true, format!("{invalid}webhook response was absent")),
            (
                head(json!({"uid": "x", "allowed": true})),
                true,
                format!("{invalid}expected response.uid=\"u\", got \"x\""),
            ),
            (
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "u"}}),
                true,
                format!(
                    "{invalid}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got \
                     admission.k8s.io/v1beta1, Kind=AdmissionReview"
                ),
            ),
            (head(json!({"uid": "u", "allowed": true})), true, "false false".into()),
            (head(json!({"uid": "u", "allowed": false})), true, "true false".into()),
            (
                head(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
                true,
                "false true".into(),
            ),
            (
                head(json!({"uid": "u", "allowed": true, "patch": "W10="})),
                true,
                format!("{invalid}webhook returned response.patch but not response.patchType"),
            ),
            (
                head(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
                false,
                format!("{invalid}validating webhook may not return response.patch"),
            ),
            (
                head(json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "Full"})),
                true,
                "unsupported patch type \"Full\"".into(),
            ),
        ] {
            assert_eq!(told(&answer, mutating), wanted, "{answer}");
        }
    }
}
