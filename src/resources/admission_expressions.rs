//! The expressions (CEL) of webhooks and policies: whether they compile, and to what.

use super::FieldError;
use super::validate::At;
use crate::cel::{Environment, Program};

/// What an expression must give.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Anything,
    Bool,
    Text,
    /// A text, or `null` for nothing.
    TextOrNull,
    /// A configuration to apply.
    Object,
    /// A JSON patch.
    Patch,
}

/// Compiles an expression and tells what is wrong with it. Empty ones are somebody else's.
pub(super) fn check(
    expression: &At<'_>,
    environment: &Environment,
    gives: Gives,
    errors: &mut Vec<FieldError>,
) -> Option<Program> {
    let text = expression.text();
    if text.trim().is_empty() {
        return None;
    }
    let program = match Program::compile(text, environment) {
        Ok(program) => program,
        Err(wrong) => {
            errors.push(expression.invalid(format_args!("compilation failed: {wrong}")));
            return None;
        }
    };
    let given = program.gives();
    let wanted = match gives {
        Gives::Bool if !program.gives_bool() => "bool",
        Gives::Text if !program.gives_text() => "string",
        Gives::TextOrNull if !program.gives_text() && !program.gives_null() => "one of [string null_type]",
        Gives::Object if given != "Object" && given != "dyn" => "Object",
        Gives::Patch if given != "list(JSONPatch)" && given != "dyn" && given != "list(dyn)" => "list(JSONPatch)",
        _ => return Some(program),
    };
    errors.push(expression.invalid(format_args!("must evaluate to {wanted}")));
    None
}

/// What the expressions of a policy may speak of: the request, its parameters, and its variables, which are checked on the way.
pub(super) fn of_policy(spec: &At<'_>, errors: &mut Vec<FieldError>) -> Environment {
    let mut environment = Environment::of_admission(spec.get("paramKind").present());
    for variable in spec.get("variables").items() {
        let program = check(&variable.get("expression"), &environment, Gives::Anything, errors);
        environment = environment.with_composed(variable.get("name").text(), program.as_ref());
    }
    environment
}
