//! Running expressions over objects of which no schema is known: policies and match conditions.

use super::authorizer::{Authorization, Authorizer, Question};
use super::lazy::Lazy;
use super::machine::{self, COST_MAX, WORK_MAX};
use super::program::Program;
use super::value::{Failure, Map, Val};
use crate::tree::Value;

/// What may still be spent.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    cost: u64,
    work: u64,
}

impl Budget {
    /// A budget of so many of kube-apiserver's units, and of work in proportion.
    pub fn of(cost: u64) -> Budget {
        Budget {
            cost,
            work: cost.saturating_mul(100).max(WORK_MAX),
        }
    }

    /// The values of variables, and what a run may cost.
    pub(super) fn start<'a>(&self, inputs: &[Input<'a>]) -> (Vec<Val<'a>>, u64, u64) {
        let values = inputs.iter().map(|input| value(*input)).collect();
        (values, COST_MAX, WORK_MAX.min(self.work))
    }

    pub(super) fn spend(&mut self, cost: u64, work: u64) -> bool {
        let enough = cost <= self.cost;
        self.cost = self.cost.saturating_sub(cost);
        self.work = self.work.saturating_sub(work);
        enough
    }
}

/// The value of a variable.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// `null`
    Null,
    /// A value of an object.
    Value(&'a Value),
    /// What asks the authorizer.
    Authorizer(&'a dyn Authorizer),
    /// What asks the authorizer about the resource of the request.
    ResourceCheck(&'a dyn Authorizer, &'a Question),
    /// Variables of a policy.
    Variables(&'a Variables<'a>),
}

/// What an expression gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// `null`
    Null,
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// Something else; the name of its type.
    Other(&'static str),
}

/// Why a run gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A mistake: `no such key: a`.
    #[error("{0}")]
    Told(String),
    /// The run cost too much.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooDear,
    /// All runs together cost too much.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
}

/// Named expressions that others may speak of as `variables.name`; each is run once, when it is asked for at the latest.
#[derive(Debug)]
pub struct Variables<'a> {
    lazy: Lazy<'a>,
}

impl<'a> Variables<'a> {
    /// The expressions in their order: each may speak of those before it. Those that did not compile are `None`.
    pub fn new(entries: impl IntoIterator<Item = (&'a str, Option<&'a Program>)>) -> Variables<'a> {
        Variables {
            lazy: Lazy::new(entries),
        }
    }

    /// Runs them all, with inputs as [`Program::run`] takes them. When the budget is used up, the rest are too dear.
    pub fn make(&self, inputs: &[Input<'a>], budget: &mut Budget) {
        let values: Vec<Val<'a>> = inputs.iter().map(|input| value(*input)).collect();
        for at in 0..self.lazy.len() {
            let (cost_max, work_max) = (COST_MAX.min(budget.cost), WORK_MAX.min(budget.work));
            let used = self.lazy.make(at, &values, cost_max, work_max);
            budget.spend(used.cost, used.work);
        }
    }
}

fn value(input: Input<'_>) -> Val<'_> {
    match input {
        Input::Null => Val::Null,
        Input::Value(value) => Val::of_tree(value, None).unwrap_or(Val::Null),
        Input::Authorizer(authorizer) => Authorization::value(authorizer, Question::default(), false),
        Input::ResourceCheck(authorizer, question) => Authorization::value(authorizer, question.clone(), true),
        Input::Variables(variables) => Val::Map(Map::Lazy(&variables.lazy)),
    }
}

impl Program {
    /// Runs the expression. `inputs` are the values of its environment's variables, in their order.
    ///
    /// Bounded by the budget, and by 1,000,000 units for one run.
    pub fn run<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<Output, RunError> {
        let (values, cost_max, work_max) = budget.start(inputs);
        let (outcome, used) = machine::run(self, &values, cost_max, work_max);
        if !budget.spend(used.cost, used.work) {
            return Err(RunError::OutOfBudget);
        }
        match outcome {
            Ok(Val::Null) => Ok(Output::Null),
            Ok(Val::Bool(value)) => Ok(Output::Bool(value)),
            Ok(Val::String(text)) => Ok(Output::Text(text.to_string())),
            Ok(other) => Ok(Output::Other(other.type_name())),
            Err(Failure::TooDear) => Err(RunError::TooDear),
            Err(Failure::Told(what)) => Err(RunError::Told(what.into())),
        }
    }
}
