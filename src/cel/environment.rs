//! What an expression may speak of.

use std::sync::Arc;

use super::program::Program;
use super::shape::Shape;
use super::types::{Record, Type};
use crate::tree::Value;

const VARIABLES: &str = "variables";

/// The variables of an expression; the functions are the same everywhere.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: Vec<(Box<str>, Type)>,
    /// Whether expressions make objects (`Object{…}`), as mutating policies do.
    makes_objects: bool,
}

impl Environment {
    /// No variables.
    pub fn new() -> Environment {
        Environment::default()
    }

    /// With a variable of which nothing is known before the expression runs. Variables are numbered in the order they are added.
    pub fn with(mut self, name: &str) -> Environment {
        self.variables.push((name.into(), Type::Dyn));
        self
    }

    /// What expressions about a request may speak of, in this order: `object`, `oldObject`, `request`, `namespaceObject`,
    /// `authorizer`, `authorizer.requestResource`, `variables`; and `params` if there are some.
    pub fn of_admission(params: bool) -> Environment {
        let environment = Environment::new()
            .with("object")
            .with("oldObject")
            .with_type("request", request())
            .with_type("namespaceObject", namespace())
            .with_type("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"))
            .with_type(
                "authorizer.requestResource",
                Type::Opaque("kubernetes.authorization.ResourceCheck"),
            )
            .with_type(VARIABLES, record("kubernetes.variables", []));
        if params {
            environment.with("params")
        } else {
            environment
        }
    }

    /// Like [`Environment::of_admission`], with the types of objects and parameters: their schemas, as a definition of custom resources
    /// has them, and what messages call the types.
    pub fn of_admission_typed(object: (&Value, &str), params: Option<(&Value, &str)>, has_params: bool) -> Environment {
        let mut environment = Self::of_admission(has_params);
        for (variable, of) in &mut environment.variables {
            let described = match &**variable {
                "object" | "oldObject" => Some(object),
                "params" => params,
                _ => None,
            };
            if let Some((schema, name)) = described
                && let Some(shape) = Shape::of_schema(schema, true)
            {
                *of = Type::of_shape(&shape, name);
            }
        }
        environment
    }

    /// What expressions that select devices may speak of: `device`.
    pub fn of_device() -> Environment {
        let twofold = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        let device = [
            ("driver", Type::String),
            ("attributes", twofold(Type::Dyn)),
            ("capacity", twofold(Type::Opaque("kubernetes.Quantity"))),
            ("allowMultipleAllocations", Type::Bool),
        ];
        Environment::new().with_type("device", record("kubernetes.DRADevice", device))
    }

    /// With one more of the `variables` that later expressions may speak of: what this expression gives, if it compiled.
    pub fn with_composed(mut self, name: &str, expression: Option<&Program>) -> Environment {
        let gives = expression.map_or(Type::Dyn, |program| program.result().clone());
        let variables = self.variables.iter_mut().find(|(variable, _)| **variable == *VARIABLES);
        if let Some((_, Type::Record(record))) = variables {
            Arc::make_mut(record).fields.push((name.into(), gives));
        }
        self
    }

    /// With expressions that may make objects of the names `Object`, `Object.spec`, … and `JSONPatch`.
    pub fn with_objects(mut self) -> Environment {
        self.makes_objects = true;
        self
    }

    pub(super) fn with_type(mut self, name: &str, of: Type) -> Environment {
        self.variables.push((name.into(), of));
        self
    }

    /// With a variable that has the shape of a schema; messages call the type of the whole `selfType`.
    pub(super) fn with_shape(self, name: &str, shape: &Arc<Shape>, optional: bool) -> Environment {
        let of = Type::of_shape(shape, "selfType");
        self.with_type(name, if optional { Type::optional(of) } else { of })
    }

    /// The number and type of a variable.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Type)> {
        let number = self.variables.iter().position(|(variable, _)| **variable == *name)?;
        Some((number, &self.variables[number].1))
    }

    /// How many variables there are.
    pub(super) fn count(&self) -> usize {
        self.variables.len()
    }

    pub(super) fn makes(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or("");
        self.makes_objects && (first == "Object" || name == "JSONPatch")
    }
}

fn record<const N: usize>(name: &'static str, fields: [(&str, Type); N]) -> Type {
    Type::Record(Arc::new(Record {
        name,
        fields: fields.into_iter().map(|(field, of)| (field.into(), of)).collect(),
    }))
}

/// What `request` is: an `AdmissionRequest` (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#request>).
fn request() -> Type {
    let text = || Type::String;
    let kind = || {
        let fields = [("group", text()), ("version", text()), ("kind", text())];
        record("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = [("group", text()), ("version", text()), ("resource", text())];
        record("kubernetes.GroupVersionResource", fields)
    };
    record(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user_info()),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

/// A user.
pub(super) fn user_info() -> Type {
    let user = [
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", Type::list(Type::String)),
        ("extra", Type::map(Type::String, Type::list(Type::String))),
    ];
    record("kubernetes.UserInfo", user)
}

/// What `namespaceObject` is.
fn namespace() -> Type {
    let text = || Type::String;
    let metadata = [
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", Type::map(text(), text())),
        ("annotations", Type::map(text(), text())),
        ("UID", text()),
        // Times of objects are texts when they come from JSON.
        ("creationTimestamp", Type::Dyn),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Dyn),
        ("generation", Type::Int),
        ("resourceVersion", text()),
        ("finalizers", Type::list(text())),
    ];
    record(
        "kubernetes.Namespace",
        [
            ("metadata", record("kubernetes.NamespaceMetadata", metadata)),
            (
                "spec",
                record("kubernetes.NamespaceSpec", [("finalizers", Type::list(text()))]),
            ),
            ("status", record("kubernetes.NamespaceStatus", [("phase", text())])),
        ],
    )
}
