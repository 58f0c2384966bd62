//! What an expression may speak of.

use std::sync::Arc;

use super::shape::Shape;
use super::types::Type;

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

    /// With a variable that asks the authorizer.
    pub fn with_authorizer(mut self, name: &str) -> Environment {
        let authorizer = Type::Opaque("kubernetes.authorization.Authorizer");
        self.variables.push((name.into(), authorizer));
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
