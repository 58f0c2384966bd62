//! Expressions of policies and webhooks: compiled once, told about in kube-apiserver's words.

use super::{Attributes, Caller};
use crate::cel::run::{Budget, Input, Output};
use crate::cel::{Environment, Program};
use crate::tree::{Map, Value, json};

/// An expression, or why it is none.
#[derive(Debug)]
pub(super) struct Expression {
    pub text: String,
    pub program: Result<Program, String>,
}

impl Expression {
    pub(super) fn compile(text: &str, environment: &Environment) -> Expression {
        Expression {
            text: text.trim().to_owned(),
            program: Program::compile(text, environment).map_err(|wrong| format!("compilation failed: {wrong}")),
        }
    }

    /// What the expression gives.
    pub(super) fn run<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<Output, String> {
        let program = self
            .program
            .as_ref()
            .map_err(|wrong| format!("compilation error: {wrong}"))?;
        program.run(inputs, budget).map_err(|error| self.wrong(error))
    }

    /// What the expression gives, as JSON.
    pub(super) fn tree<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<Value, String> {
        let program = self
            .program
            .as_ref()
            .map_err(|wrong| format!("compilation error: {wrong}"))?;
        program.run_to_tree(inputs, budget).map_err(|error| self.wrong(error))
    }

    /// Whether the expression holds.
    pub(super) fn holds<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<bool, String> {
        match self.run(inputs, budget)? {
            Output::Bool(value) => Ok(value),
            _ => Err(self.wrong("must evaluate to bool")),
        }
    }

    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("expression '{}' resulted in error: {what}", self.text)
    }
}

/// Match conditions. One that does not hold decides, whatever is wrong with others.
#[derive(Debug, Default)]
pub(super) struct Conditions(Vec<Expression>);

impl Conditions {
    pub(super) fn compile(conditions: &Value, environment: &Environment) -> Self {
        let all = conditions.as_array().into_iter().flatten();
        Self(
            all.map(|condition| Expression::compile(text(condition, "expression"), environment))
                .collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all hold; or what is wrong with them.
    pub(super) fn hold<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<bool, String> {
        let mut wrong = Vec::new();
        for condition in &self.0 {
            match condition.holds(inputs, budget) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => wrong.push(error),
            }
        }
        match wrong.len() {
            0 => Ok(true),
            1 => Err(wrong.remove(0)),
            _ => Err(format!("[{}]", wrong.join(", "))),
        }
    }
}

pub(super) fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], |list| list.as_slice())
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

/// The request as expressions and webhooks see it, without its objects: an `AdmissionRequest`.
pub(super) fn request(attributes: &Attributes<'_>) -> Map {
    let request = &attributes.request;
    let Caller {
        name,
        uid,
        groups,
        extra,
    } = request.user;
    let kind = |resource| kind_of(resource, request.subresource, request.operation);
    let named = |resource: &crate::resources::Resource| json!({"group": &*resource.group, "version": &*resource.version, "resource": &*resource.plural});
    // A namespace lies in itself.
    let namespace = match request.namespace {
        Some(namespace) => namespace,
        None if super::matching::is_namespace(request.resource) => request.name,
        None => "",
    };
    let fields: [(&'static str, Value); 12] = [
        ("kind", kind(attributes.resource)),
        ("resource", named(attributes.resource)),
        ("subResource", request.subresource.into()),
        ("requestKind", kind(request.resource)),
        ("requestResource", named(request.resource)),
        ("requestSubResource", request.subresource.into()),
        ("name", request.name.into()),
        ("namespace", namespace.into()),
        ("operation", request.operation.as_str().into()),
        (
            "userInfo",
            json!({"username": name, "uid": uid, "groups": groups, "extra": extra}),
        ),
        ("dryRun", request.dry_run.into()),
        ("options", attributes.options.clone()),
    ];
    fields.into_iter().collect()
}

/// The kind of what is sent.
fn kind_of(resource: &crate::resources::Resource, subresource: &str, operation: super::Operation) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    if operation == super::Operation::Connect {
        return kind("", "v1", super::connection_kind(&resource.plural, subresource));
    }
    match resource.subresource(subresource) {
        Some(sub) => kind(&sub.group, &sub.version, &sub.kind),
        None => kind(&resource.group, &resource.version, &resource.kind),
    }
}
