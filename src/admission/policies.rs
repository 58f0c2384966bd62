//! Admission policies of both kinds: which there are, what each is about, and with which parameters it is run. What they say
//! stands in `judging` and `mutations`.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::expressions::{Conditions, items, request, text};
use super::matching::{matches, selects};
use super::{Attributes, Denied, judging, mutations};
use crate::cel::authorizer::{Authorizer, Question};
use crate::cel::run::{Budget, Input, Variables};
use crate::cel::{Environment, Program};
use crate::resources::{Resource, ResourceRef};
use crate::store::{Damaged, Range, Selection, View};
use crate::tree::Value;

/// Most that the expressions of a policy may cost for one write; kube-apiserver's number.
const COST_MAX: u64 = 10_000_000;

/// A kind of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `ValidatingAdmissionPolicy`
    Validating,
    /// `MutatingAdmissionPolicy`
    Mutating,
}

impl Family {
    fn policies(self) -> &'static str {
        match self {
            Family::Validating => "validatingadmissionpolicies.admissionregistration.k8s.io",
            Family::Mutating => "mutatingadmissionpolicies.admissionregistration.k8s.io",
        }
    }

    fn bindings(self) -> &'static str {
        match self {
            Family::Validating => "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            Family::Mutating => "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        }
    }

    /// How refusals name a policy.
    fn word(self) -> &'static str {
        match self {
            Family::Validating => "ValidatingAdmissionPolicy",
            Family::Mutating => "policy",
        }
    }

    /// Whether nobody has something to say: no policy is bound to anything.
    pub fn is_idle(self, view: &View) -> bool {
        view.count(self.bindings(), None) == 0
    }
}

/// The policies of one kind, compiled; made anew when the store's have changed. A policy takes a few times the bytes of its expressions.
#[derive(Debug)]
pub struct Policies {
    family: Family,
    compiled: ArcSwap<Compiled>,
}

#[derive(Debug, Default)]
struct Compiled {
    /// Keys and revisions of what was compiled.
    of: Vec<(String, u64)>,
    policies: Vec<Arc<Policy>>,
}

/// A policy that is bound to something.
#[derive(Debug)]
pub(super) struct Policy {
    family: Family,
    pub(super) name: String,
    spec: Value,
    conditions: Conditions,
    variables: Vec<(String, Option<Program>)>,
    pub(super) rules: Rules,
    /// Names and specs.
    bindings: Vec<(String, Value)>,
}

#[derive(Debug)]
pub(super) enum Rules {
    Validations(judging::Rules),
    Mutations(Vec<mutations::Mutation>),
}

/// A policy that is to be run for a request: under one of its bindings, with one parameter.
#[derive(Debug, Clone)]
pub struct Invocation<'a> {
    pub(super) policy: Arc<Policy>,
    binding: usize,
    /// `null` for none.
    param: Value,
    /// Why it cannot be run.
    wrong: Option<String>,
    /// The version in which it sees the request.
    pub resource: &'a Resource,
}

/// Finds a kind that policies have parameters of, by its `apiVersion` and name.
pub(super) type Kinds<'k> = &'k dyn Fn(&str, &str) -> Option<ResourceRef>;

impl Policies {
    /// Those of a kind.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            compiled: ArcSwap::default(),
        }
    }

    /// Whether nobody has something to say.
    pub fn is_idle(&self, view: &View) -> bool {
        self.family.is_idle(view)
    }

    /// What is to be run for a request, in the order of the names of policies and bindings. Costs one look at the names of all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn invocations<'a>(
        &self,
        view: &Arc<View>,
        attributes: &Attributes<'a>,
        kinds: Kinds<'_>,
    ) -> Result<Vec<Invocation<'a>>, Damaged> {
        let mut all = Vec::new();
        for policy in &self.compiled(view)?.policies {
            let Some(resource) = matches(&policy.spec["matchConstraints"], attributes) else {
                continue;
            };
            for (binding, (_, spec)) in policy.bindings.iter().enumerate() {
                let about = &spec["matchResources"];
                if !about.is_null() && matches(about, attributes).is_none() {
                    continue;
                }
                let of = |param, wrong| Invocation {
                    policy: policy.clone(),
                    binding,
                    param,
                    wrong,
                    resource,
                };
                match policy.params(view, spec, attributes, kinds)? {
                    Ok(params) => all.extend(params.into_iter().map(|param| of(param, None))),
                    Err(wrong) => all.push(of(Value::Null, Some(format!("failed to configure binding: {wrong}")))),
                }
            }
        }
        Ok(all)
    }

    /// The policies as they are in the view.
    fn compiled(&self, view: &Arc<View>) -> Result<Arc<Compiled>, Damaged> {
        let mut of = Vec::new();
        for storage in [self.family.policies(), self.family.bindings()] {
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
        each(view, self.family.bindings(), None, |object| {
            bindings.push((object.key().to_owned(), parsed(object.json()?)));
            Ok(())
        })?;
        let mut policies = Vec::new();
        each(view, self.family.policies(), None, |object| {
            let name = object.key().to_owned();
            let bound = |(binding, value): &(String, Value)| {
                (value["spec"]["policyName"] == *name).then(|| (binding.clone(), value["spec"].clone()))
            };
            let own: Vec<(String, Value)> = bindings.iter().filter_map(bound).collect();
            if !own.is_empty() {
                let policy = Policy::compile(self.family, name, &parsed(object.json()?)["spec"], own);
                policies.push(Arc::new(policy));
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
    fn compile(family: Family, name: String, spec: &Value, bindings: Vec<(String, Value)>) -> Policy {
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
        Policy {
            family,
            rules: match family {
                Family::Validating => Rules::Validations(judging::Rules::compile(spec, &environment)),
                Family::Mutating => Rules::Mutations(mutations::compile(spec, environment)),
            },
            name,
            spec: spec.clone(),
            conditions,
            variables,
            bindings,
        }
    }

    /// Whether mistakes in it do not matter.
    pub(super) fn ignores_mistakes(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    /// The parameters to run the policy with, `null` for a policy without; or why there are none.
    fn params(
        &self,
        view: &Arc<View>,
        binding: &Value,
        attributes: &Attributes<'_>,
        kinds: Kinds<'_>,
    ) -> Result<Result<Vec<Value>, String>, Damaged> {
        let (kind, reference) = (&self.spec["paramKind"], &binding["paramRef"]);
        if kind.is_null() || reference.is_null() {
            return Ok(Ok(vec![Value::Null]));
        }
        let found = kinds(text(kind, "apiVersion"), text(kind, "kind"));
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

impl Invocation<'_> {
    /// The name of the policy and of the binding, and the parameter's namespace and name: no two have the same.
    pub fn key(&self) -> (String, usize, String) {
        let named = |field: &str| text(&self.param["metadata"], field);
        let param = format!("{}/{}", named("namespace"), named("name"));
        (self.policy.name.clone(), self.binding, param)
    }

    /// Whether it is run again when others changed the object after it.
    pub fn is_run_again(&self) -> bool {
        self.policy.spec["reinvocationPolicy"] == "IfNeeded"
    }

    /// The name of one of the policy's bindings.
    pub(super) fn binding_name(&self, binding: usize) -> &str {
        &self.policy.bindings[binding].0
    }

    pub(super) fn binding(&self) -> &Value {
        &self.policy.bindings[self.binding].1
    }

    /// How refusals and warnings name it.
    pub(super) fn named(&self) -> String {
        let binding = &self.policy.bindings[self.binding].0;
        format!(
            "{} '{}' with binding '{binding}'",
            self.policy.family.word(),
            self.policy.name
        )
    }

    /// What a mistake in the policy is to the request; `None` when mistakes do not matter.
    pub fn failed(&self, message: &str) -> Option<Denied> {
        (!self.policy.ignores_mistakes()).then(|| Denied {
            reason: "Invalid",
            code: 422,
            message: format!("{} denied request: {message}", self.named()),
        })
    }

    /// Runs the policy's expressions over the request, which is in the version that the policy sees; `None` when its conditions say
    /// that it is not about it.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub(super) fn run<T>(
        &self,
        attributes: &Attributes<'_>,
        authorizer: &dyn Authorizer,
        run: impl for<'r> FnOnce(&'r Policy, &[Input<'r>], &mut Budget) -> T,
    ) -> Result<Option<T>, String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let policy = &*self.policy;
        let request = Value::Object(request(attributes));
        let question = question(attributes);
        let variables = policy.variables.iter();
        let variables = Variables::new(variables.map(|(name, program)| (name.as_str(), program.as_ref())));
        let mut inputs = vec![
            Input::Value(attributes.object),
            Input::Value(attributes.old),
            Input::Value(&request),
            Input::Value(attributes.namespace),
            Input::Authorizer(authorizer),
            Input::ResourceCheck(authorizer, &question),
            Input::Variables(&variables),
        ];
        if !policy.spec["paramKind"].is_null() {
            inputs.push(Input::Value(&self.param));
        }
        let mut budget = Budget::of(COST_MAX);
        if !policy.conditions.hold(&inputs, &mut budget)? {
            return Ok(None);
        }
        variables.make(&inputs, &mut budget);
        Ok(Some(run(policy, &inputs, &mut budget)))
    }
}

/// What `authorizer.requestResource` asks about.
pub(super) fn question(attributes: &Attributes<'_>) -> Question {
    let request = &attributes.request;
    Question {
        group: request.resource.group.to_string(),
        resource: request.resource.plural.to_string(),
        subresource: request.subresource.to_owned(),
        namespace: request.namespace.unwrap_or("").to_owned(),
        name: request.name.to_owned(),
        ..Question::default()
    }
}
