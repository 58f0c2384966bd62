//! ValidatingAdmissionPolicies.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::expressions::{Conditions, Expression, items, request, text};
use super::matching::{matches, selects};
use super::{Attributes, Denied};
use crate::cel::run::{Budget, Input, Output, Variables};
use crate::cel::{Environment, Program};
use crate::resources;
use crate::store::{Damaged, Range, Selection, View};
use crate::tree::Value;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
/// Most that the expressions of a policy may cost for one write; kube-apiserver's number.
const COST_MAX: u64 = 10_000_000;

/// The policies of a store, compiled; made anew when the store's have changed.
#[derive(Debug, Default)]
pub struct Policies {
    compiled: ArcSwap<Compiled>,
}

#[derive(Debug, Default)]
struct Compiled {
    /// Keys and revisions of what was compiled.
    of: Vec<(String, u64)>,
    policies: Vec<Policy>,
}

#[derive(Debug)]
struct Policy {
    name: String,
    spec: Value,
    conditions: Conditions,
    variables: Vec<(String, Option<Program>)>,
    validations: Vec<Validation>,
    /// Names and specs.
    bindings: Vec<(String, Value)>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_program: Option<Program>,
    reason: (&'static str, u16),
}

/// What a policy says against a write.
struct Objection {
    reason: (&'static str, u16),
    message: String,
}

impl Policies {
    /// Whether nothing can object: no policy is bound to anything.
    pub fn is_idle(&self, view: &View) -> bool {
        view.count(BINDINGS, None) == 0
    }

    /// Lets all policies judge a write. What comes back are warnings.
    ///
    /// Costs one look at the names of policies and bindings, and a run of those that are about the write; expressions are bounded.
    ///
    /// # Errors
    /// The first refusal; or, as the inner result, why the store could not be read.
    pub fn judge(&self, view: &Arc<View>, attributes: &Attributes<'_>) -> Result<Result<Vec<String>, Denied>, Damaged> {
        let mut warnings = Vec::new();
        if self.is_idle(view) {
            return Ok(Ok(warnings));
        }
        let compiled = self.compiled(view)?;
        let namespace = attributes.namespace;
        let request = Value::Object(request(attributes));
        for policy in &compiled.policies {
            if matches(&policy.spec["matchConstraints"], attributes).is_none() {
                continue;
            }
            for (binding, spec) in &policy.bindings {
                let about = &spec["matchResources"];
                if !about.is_null() && matches(about, attributes).is_none() {
                    continue;
                }
                for objection in policy.objections(view, spec, attributes, &request, namespace)? {
                    let is = |action: &str| {
                        let actions = spec["validationActions"].as_array();
                        actions.is_some_and(|actions| actions.iter().any(|it| it == action))
                    };
                    let by = format!("ValidatingAdmissionPolicy '{}' with binding '{binding}'", policy.name);
                    if is("Deny") {
                        return Ok(Err(Denied {
                            reason: objection.reason.0,
                            code: objection.reason.1,
                            message: format!("{by} denied request: {}", objection.message),
                        }));
                    }
                    if is("Warn") {
                        warnings.push(format!("Validation failed for {by}: {}", objection.message));
                    }
                }
            }
        }
        Ok(Ok(warnings))
    }

    /// The policies as they are in the view.
    fn compiled(&self, view: &Arc<View>) -> Result<Arc<Compiled>, Damaged> {
        let mut of = Vec::new();
        for storage in [POLICIES, BINDINGS] {
            each(view, storage, None, |object| {
                of.push((object.key().to_owned(), object.revision()));
                Ok(())
            })?;
        }
        let known = self.compiled.load_full();
        if known.of == of {
            return Ok(known);
        }
        let mut bindings: Vec<(String, Value)> = Vec::new();
        each(view, BINDINGS, None, |object| {
            bindings.push((object.key().to_owned(), parsed(object.json()?)));
            Ok(())
        })?;
        let mut policies = Vec::new();
        each(view, POLICIES, None, |object| {
            let name = object.key().to_owned();
            let bound = |(binding, value): &(String, Value)| {
                (value["spec"]["policyName"] == *name).then(|| (binding.clone(), value["spec"].clone()))
            };
            let own: Vec<(String, Value)> = bindings.iter().filter_map(bound).collect();
            if !own.is_empty() {
                policies.push(Policy::compile(name, &parsed(object.json()?)["spec"], own));
            }
            Ok(())
        })?;
        let compiled = Arc::new(Compiled { of, policies });
        self.compiled.store(compiled.clone());
        Ok(compiled)
    }
}

fn each(
    view: &Arc<View>,
    storage: &str,
    namespace: Option<&str>,
    mut see: impl FnMut(&crate::store::Object) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let range = Range {
        namespace: namespace.map(str::to_owned),
        after: None,
    };
    let mut listing = view.list(storage, range, &Selection::all());
    while let Some(run) = listing.next(64)? {
        for object in run.objects() {
            see(&object)?;
        }
    }
    Ok(())
}

/// What is stored is JSON; `null` for what is not.
fn parsed(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_default()
}

fn read(view: &Arc<View>, storage: &str, key: &str) -> Result<Value, Damaged> {
    match view.get(storage, key)? {
        Some(object) => Ok(parsed(object.json()?)),
        None => Ok(Value::Null),
    }
}

impl Policy {
    fn compile(name: String, spec: &Value, bindings: Vec<(String, Value)>) -> Policy {
        let params = !spec["paramKind"].is_null();
        let asked = Environment::of_admission(params);
        let conditions = Conditions::compile(&spec["matchConditions"], &asked);
        let mut environment = asked;
        let mut variables = Vec::new();
        for variable in items(&spec["variables"]) {
            let program = Program::compile(text(variable, "expression"), &environment).ok();
            environment = environment.with_composed(text(variable, "name"), program.as_ref());
            variables.push((text(variable, "name").to_owned(), program));
        }
        let validations = items(&spec["validations"])
            .iter()
            .map(|validation| Validation {
                expression: Expression::compile(text(validation, "expression"), &environment),
                message: text(validation, "message").trim().to_owned(),
                message_program: Program::compile(text(validation, "messageExpression"), &environment).ok(),
                reason: match text(validation, "reason") {
                    "Unauthorized" => ("Unauthorized", 401),
                    "Forbidden" => ("Forbidden", 403),
                    "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
                    _ => INVALID,
                },
            })
            .collect();
        Policy {
            name,
            spec: spec.clone(),
            conditions,
            variables,
            validations,
            bindings,
        }
    }

    /// What the policy says against a write under one of its bindings.
    fn objections(
        &self,
        view: &Arc<View>,
        binding: &Value,
        attributes: &Attributes<'_>,
        request: &Value,
        namespace: &Value,
    ) -> Result<Vec<Objection>, Damaged> {
        let params = match self.params(view, binding, attributes)? {
            Ok(params) => params,
            Err(wrong) => return Ok(self.failed(format!("failed to configure binding: {wrong}"))),
        };
        let mut all = Vec::new();
        for param in &params {
            let variables = Variables::new(
                self.variables
                    .iter()
                    .map(|(name, program)| (name.as_str(), program.as_ref())),
            );
            let mut inputs = vec![
                Input::Value(attributes.object),
                Input::Value(attributes.old),
                Input::Value(request),
                Input::Value(namespace),
                Input::Null,
                Input::Null,
                Input::Variables(&variables),
            ];
            if !self.spec["paramKind"].is_null() {
                inputs.push(Input::Value(param));
            }
            let mut budget = Budget::of(COST_MAX);
            match self.conditions.hold(&inputs, &mut budget) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(wrong) => {
                    all.extend(self.failed(wrong));
                    continue;
                }
            }
            variables.make(&inputs, &mut budget);
            for validation in &self.validations {
                match validation.expression.holds(&inputs, &mut budget) {
                    Ok(true) => {}
                    Ok(false) => all.push(Objection {
                        reason: validation.reason,
                        message: validation.told(&inputs, &mut budget),
                    }),
                    Err(wrong) => all.extend(self.failed(wrong)),
                }
            }
        }
        Ok(all)
    }

    /// What a mistake in the policy is to the write.
    fn failed(&self, message: String) -> Vec<Objection> {
        if self.spec["failurePolicy"] == "Ignore" {
            return Vec::new();
        }
        vec![Objection {
            reason: INVALID,
            message,
        }]
    }

    /// The parameters to run the policy with, `null` for a policy without; or why there are none.
    fn params(
        &self,
        view: &Arc<View>,
        binding: &Value,
        attributes: &Attributes<'_>,
    ) -> Result<Result<Vec<Value>, String>, Damaged> {
        let (kind, reference) = (&self.spec["paramKind"], &binding["paramRef"]);
        if kind.is_null() || reference.is_null() {
            return Ok(Ok(vec![Value::Null]));
        }
        let found = resources::all()
            .iter()
            .find(|it| *it.kind == *text(kind, "kind") && it.api_version() == text(kind, "apiVersion"));
        let Some(resource) = found else {
            return Ok(Err(format!(
                "failed to find resource referenced by paramKind: '{}, Kind={}'",
                text(kind, "apiVersion"),
                text(kind, "kind")
            )));
        };
        let namespace = match text(reference, "namespace") {
            "" => attributes.request.namespace,
            name => Some(name),
        };
        let namespace = namespace.filter(|_| resource.namespaced);
        if resource.namespaced && namespace.is_none() {
            return Ok(Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into(),
            ));
        }
        let mut params = Vec::new();
        match text(reference, "name") {
            "" => each(view, &resource.storage, namespace, |object| {
                let value = parsed(object.json()?);
                if selects(&reference["selector"], &value["metadata"]["labels"]) {
                    params.push(value);
                }
                Ok(())
            })?,
            name => {
                let value = read(view, &resource.storage, &resource.key(namespace, name))?;
                params.extend((!value.is_null()).then_some(value));
            }
        }
        if params.is_empty() && text(reference, "parameterNotFoundAction") == "Deny" {
            let wrong = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Ok(Err(wrong.into()));
        }
        Ok(Ok(params))
    }
}

const INVALID: (&str, u16) = ("Invalid", 422);

impl Validation {
    /// The message: of the expression that makes one, as it is written, or the expression that does not hold.
    fn told<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> String {
        if let Some(program) = &self.message_program
            && let Ok(Output::Text(text)) = program.run(inputs, budget)
        {
            let text = text.trim();
            if !text.is_empty() && !text.contains('\n') {
                return text.to_owned();
            }
        }
        if self.message.is_empty() {
            format!("failed expression: {}", self.expression.text)
        } else {
            self.message.clone()
        }
    }
}
