//! What ValidatingAdmissionPolicies say.

use super::expressions::{Expression, items, text};
use super::policies::{Invocation, Policy, Rules as OfPolicy};
use super::{Attributes, Denied};
use crate::cel::authorizer::Authorizer;
use crate::cel::run::{Budget, Input, Output};
use crate::cel::{Environment, Program};
use crate::tree::Value;

/// What a policy asks for.
#[derive(Debug)]
pub(super) struct Rules {
    validations: Vec<Validation>,
    /// Keys, and what makes their values.
    annotations: Vec<(String, Expression)>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_program: Option<Program>,
    reason: (&'static str, u16),
}

/// What policies have to say beside refusals.
#[derive(Debug, Default)]
pub struct Remarks {
    /// For the client.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: Vec<(String, String)>,
}

/// What a policy says against a write.
struct Objection {
    reason: (&'static str, u16),
    message: String,
    /// A mistake in what is noted for the audit log: it is always a refusal.
    is_fatal: bool,
}

const INVALID: (&str, u16) = ("Invalid", 422);

impl Rules {
    pub(super) fn compile(spec: &Value, environment: &Environment) -> Self {
        let validations = items(&spec["validations"]).iter().map(|validation| Validation {
            expression: Expression::compile(text(validation, "expression"), environment),
            message: text(validation, "message").trim().to_owned(),
            message_program: Program::compile(text(validation, "messageExpression"), environment).ok(),
            reason: match text(validation, "reason") {
                "Unauthorized" => ("Unauthorized", 401),
                "Forbidden" => ("Forbidden", 403),
                "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
                _ => INVALID,
            },
        });
        let annotations = items(&spec["auditAnnotations"]).iter().map(|annotation| {
            let value = Expression::compile(text(annotation, "valueExpression"), environment);
            (text(annotation, "key").to_owned(), value)
        });
        Self {
            validations: validations.collect(),
            annotations: annotations.collect(),
        }
    }
}

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

impl Invocation<'_> {
    /// Lets a validating policy judge the request, which is in the version that it sees; what it has to say beside is added.
    ///
    /// # Errors
    /// The first refusal.
    pub fn judge(
        &self,
        attributes: &Attributes<'_>,
        authorizer: &dyn Authorizer,
        remarks: &mut Remarks,
    ) -> Result<(), Denied> {
        let mut noted = Vec::new();
        let objections = self.run(attributes, authorizer, |policy, inputs, budget| {
            objections(policy, inputs, budget, &mut noted)
        });
        let mistake = |message| Objection {
            reason: INVALID,
            message,
            is_fatal: false,
        };
        let objections = match objections {
            Ok(objections) => objections.unwrap_or_default(),
            Err(wrong) => self.failed(&wrong).map(|_| mistake(wrong)).into_iter().collect(),
        };
        remarks.annotations.extend(noted);
        let is = |action: &str| {
            items(&self.binding()["validationActions"])
                .iter()
                .any(|it| it == action)
        };
        for objection in objections {
            let by = self.named();
            if objection.is_fatal || is("Deny") {
                return Err(Denied {
                    reason: objection.reason.0,
                    code: objection.reason.1,
                    message: format!("{by} denied request: {}", objection.message),
                });
            }
            if is("Warn") {
                remarks
                    .warnings
                    .push(format!("Validation failed for {by}: {}", objection.message));
            }
            if is("Audit") {
                let key = "validation.policy.admission.k8s.io/validation_failure".to_owned();
                remarks.annotations.push((key, format!("{by}: {}", objection.message)));
            }
        }
        Ok(())
    }
}

fn objections<'r>(
    policy: &'r Policy,
    inputs: &[Input<'r>],
    budget: &mut Budget,
    noted: &mut Vec<(String, String)>,
) -> Vec<Objection> {
    let mut all = Vec::new();
    let OfPolicy::Validations(rules) = &policy.rules else {
        return all;
    };
    let ignores = policy.ignores_mistakes();
    for validation in &rules.validations {
        match validation.expression.holds(inputs, budget) {
            Ok(true) => {}
            Ok(false) => all.push(Objection {
                reason: validation.reason,
                message: validation.told(inputs, budget),
                is_fatal: false,
            }),
            Err(_) if ignores => {}
            Err(message) => all.push(Objection {
                reason: INVALID,
                message,
                is_fatal: false,
            }),
        }
    }
    for (key, value) in &rules.annotations {
        match value.run(inputs, budget) {
            Ok(Output::Text(text)) if !text.trim().is_empty() => {
                noted.push((format!("{}/{key}", policy.name), text));
            }
            Ok(_) => {}
            Err(_) if ignores => {}
            Err(message) => all.push(Objection {
                reason: INVALID,
                message,
                is_fatal: true,
            }),
        }
    }
    all
}
