//! The authorizer that policies may ask. Expressions can speak of it; who answers is given from above.

use std::rc::Rc;

use super::functions::{Price, Row};
use super::value::{Failure, Outcome, Val};

/// Says whether the user of a request may do something.
pub trait Authorizer: Sync {
    /// The answer, with a reason that may be empty; or why there is none.
    fn check(&self, question: &Question) -> Result<(bool, String), String>;
}

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Another than the request's user: namespace and name of a service account.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource.
    pub path: Option<String>,
    /// The resource's group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// Its subresource, or `""`.
    pub subresource: String,
    /// The namespace, or `""` for all.
    pub namespace: String,
    /// The object's name, or `""` for all.
    pub name: String,
    /// What a list is narrowed to by fields, or `""`.
    pub field_selector: String,
    /// What a list is narrowed to by labels, or `""`.
    pub label_selector: String,
    /// What is to be done.
    pub verb: String,
}

/// A question that is being put together, or its answer.
#[derive(Clone)]
pub(super) struct Authorization<'a> {
    authorizer: &'a dyn Authorizer,
    question: Question,
    stage: Stage,
}

#[derive(Debug, Clone)]
enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision(Result<(bool, String), String>),
}

impl std::fmt::Debug for Authorization<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorization")
            .field("question", &self.question)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl<'a> Authorization<'a> {
    /// What the variable `authorizer` is.
    pub(super) fn value(authorizer: &'a dyn Authorizer, question: Question, resource: bool) -> Val<'a> {
        let stage = if resource { Stage::Resource } else { Stage::Authorizer };
        Val::Authorization(Rc::new(Authorization {
            authorizer,
            question,
            stage,
        }))
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    fn with(&self, stage: Stage, change: impl FnOnce(&mut Question)) -> Val<'a> {
        let mut question = self.question.clone();
        change(&mut question);
        Val::Authorization(Rc::new(Authorization {
            authorizer: self.authorizer,
            question,
            stage,
        }))
    }
}

/// What one check costs: two to a run.
const CHECK_COST: u64 = 350_000;

pub(super) const ROWS: &[Row] = &[
    ("path", true, Price::One, |_, args| match args {
        [Val::Authorization(it), Val::String(path)] if matches!(it.stage, Stage::Authorizer) => {
            if path.trim().is_empty() {
                return Some(Err(Failure::told("path must not be empty")));
            }
            Some(Ok(
                it.with(Stage::Path, |question| question.path = Some(path.to_string()))
            ))
        }
        _ => None,
    }),
    ("group", true, Price::One, |_, args| match args {
        [Val::Authorization(it), Val::String(group)] if matches!(it.stage, Stage::Authorizer) => {
            Some(Ok(it.with(Stage::Group, |question| question.group = group.to_string())))
        }
        _ => None,
    }),
    ("serviceAccount", true, Price::One, |_, args| match args {
        [Val::Authorization(it), Val::String(namespace), Val::String(name)]
            if matches!(it.stage, Stage::Authorizer) =>
        {
            Some(Ok(it.with(Stage::Authorizer, |question| {
                question.service_account = Some((namespace.to_string(), name.to_string()));
            })))
        }
        _ => None,
    }),
    ("resource", true, Price::One, |_, args| match args {
        [Val::Authorization(it), Val::String(resource)] if matches!(it.stage, Stage::Group) => {
            if resource.trim().is_empty() {
                return Some(Err(Failure::told("resource must not be empty")));
            }
            Some(Ok(it.with(Stage::Resource, |question| {
                question.resource = resource.to_string();
            })))
        }
        _ => None,
    }),
    ("subresource", true, Price::One, |_, args| {
        narrowed(args, |question, text| question.subresource = text)
    }),
    ("namespace", true, Price::One, |_, args| {
        narrowed(args, |question, text| question.namespace = text)
    }),
    ("name", true, Price::One, |_, args| {
        narrowed(args, |question, text| question.name = text)
    }),
    ("fieldSelector", true, Price::One, |_, args| {
        narrowed(args, |question, text| question.field_selector = text)
    }),
    ("labelSelector", true, Price::One, |_, args| {
        narrowed(args, |question, text| question.label_selector = text)
    }),
    ("check", true, Price::Own, |machine, args| match args {
        [Val::Authorization(it), Val::String(verb)] if matches!(it.stage, Stage::Path | Stage::Resource) => {
            if let Err(failure) = machine.charge(CHECK_COST) {
                return Some(Err(failure));
            }
            let mut question = it.question.clone();
            question.verb = verb.to_string();
            let decision = it.authorizer.check(&question);
            Some(Ok(it.with(Stage::Decision(decision), |_| {})))
        }
        _ => None,
    }),
    ("allowed", true, Price::One, |_, args| {
        decided(args, |decision| Val::Bool(matches!(decision, Ok((true, _)))))
    }),
    ("reason", true, Price::One, |_, args| {
        decided(args, |decision| {
            Val::text(decision.as_ref().map_or("", |(_, reason)| reason))
        })
    }),
    ("errored", true, Price::One, |_, args| {
        decided(args, |decision| Val::Bool(decision.is_err()))
    }),
    ("error", true, Price::One, |_, args| {
        decided(args, |decision| {
            Val::text(decision.as_ref().err().map_or("", String::as_str))
        })
    }),
];

fn narrowed<'a>(args: &[Val<'a>], change: fn(&mut Question, String)) -> Option<Outcome<'a>> {
    match args {
        [Val::Authorization(it), Val::String(text)] if matches!(it.stage, Stage::Resource) => Some(Ok(
            it.with(Stage::Resource, |question| change(question, text.to_string()))
        )),
        _ => None,
    }
}

fn decided<'a>(args: &[Val<'a>], of: impl Fn(&Result<(bool, String), String>) -> Val<'a>) -> Option<Outcome<'a>> {
    match args {
        [Val::Authorization(it)] => match &it.stage {
            Stage::Decision(decision) => Some(Ok(of(decision))),
            _ => None,
        },
        _ => None,
    }
}
