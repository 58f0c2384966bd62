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
    /// For the audit log: what policies note, by policy and key.
    pub annotations: Vec<(String, String)>,
    /// For the audit log: refusals that are only noted, as JSON.
    pub failures: Vec<String>,
}

impl Remarks {
    /// What the audit log is told: what several bindings note under one key is one text.
    pub fn for_audit(self) -> Vec<(String, String)> {
        let mut told: Vec<(String, String)> = Vec::new();
        for (key, value) in self.annotations {
            match told.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) if known.split(", ").any(|it| it == value) => {}
                Some((_, known)) => {
                    known.push_str(", ");
                    known.push_str(&value);
                }
                None => told.push((key, value)),
            }
        }
        // Upstream tells the first.
        if let Some(failure) = self.failures.into_iter().next() {
            let key = "validation.policy.admission.k8s.io/validation_failure";
            told.push((key.into(), format!("[{failure}]")));
        }
        told
    }
}

/// What a policy says against a write.
struct Objection {
    /// Which of the policy's validations; 0 for others.
    index: usize,
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
    /// A refusal that is only noted.
    fn failure(&self, objection: &Objection) -> String {
        let (policy, index, _) = self.key();
        let text = |text: &str| Value::from(text).to_json();
        format!(
            "{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{},\"validationActions\":{}}}",
            text(&objection.message),
            text(&policy),
            text(self.binding_name(index)),
            objection.index,
            self.binding()["validationActions"].to_json()
        )
    }

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
            index: 0,
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
                remarks.failures.push(self.failure(&objection));
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
    for (index, validation) in rules.validations.iter().enumerate() {
        match validation.expression.holds(inputs, budget) {
            Ok(true) => {}
            Ok(false) => all.push(Objection {
                index,
                reason: validation.reason,
                message: validation.told(inputs, budget),
                is_fatal: false,
            }),
            Err(_) if ignores => {}
            Err(message) => all.push(Objection {
                index,
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
                index: 0,
                reason: INVALID,
                message,
                is_fatal: true,
            }),
        }
    }
    all
}
