//! What MutatingAdmissionPolicies change.

use super::Attributes;
use super::expressions::{Expression, items, text};
use super::policies::{Invocation, Rules};
use crate::cel::Environment;
use crate::cel::authorizer::Authorizer;
use crate::tree::Value;

/// A mutation of a policy.
#[derive(Debug)]
pub(super) struct Mutation {
    expression: Expression,
    is_patch: bool,
}

/// What is to become of the object.
#[derive(Debug)]
pub enum Change {
    /// This is merged into it, as an apply would.
    Configuration(Value),
    /// A JSON patch.
    Patch(Value),
}

pub(super) fn compile(spec: &Value, environment: Environment) -> Vec<Mutation> {
    let environment = environment.with_objects();
    let of = |mutation: &Value| {
        let is_patch = mutation["patchType"] == "JSONPatch";
        let field = if is_patch { "jsonPatch" } else { "applyConfiguration" };
        Mutation {
            expression: Expression::compile(text(&mutation[field], "expression"), &environment),
            is_patch,
        }
    };
    items(&spec["mutations"]).iter().map(of).collect()
}

impl Invocation<'_> {
    /// How many mutations the policy has.
    pub fn mutations(&self) -> usize {
        match &self.policy.rules {
            Rules::Mutations(all) => all.len(),
            Rules::Validations(_) => 0,
        }
    }

    /// What a mutation makes of the request, which is in the version that the policy sees; `None` when the policy is not about it.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn change(
        &self,
        at: usize,
        attributes: &Attributes<'_>,
        authorizer: &dyn Authorizer,
    ) -> Result<Option<Change>, String> {
        let given = self.run(attributes, authorizer, |policy, inputs, budget| {
            let Rules::Mutations(all) = &policy.rules else {
                return Ok(None);
            };
            let Some(mutation) = all.get(at) else {
                return Ok(None);
            };
            let given = mutation.expression.tree(inputs, budget)?;
            Ok(Some(if mutation.is_patch {
                Change::Patch(given)
            } else {
                Change::Configuration(given)
            }))
        })?;
        given.unwrap_or(Ok(None))
    }
}
