//! Maps whose values are made when an expression asks for them: the `variables` of a policy.

use std::cell::{Cell, OnceCell};

use super::machine::{self, COST_MAX, WORK_MAX};
use super::program::Program;
use super::value::{Failure, Outcome, Str, Val};

/// Named expressions over the same variables, each run once at most.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    entries: Vec<Entry<'a>>,
    /// What the runs cost that no one has charged yet.
    cost: Cell<u64>,
}

#[derive(Debug)]
struct Entry<'a> {
    name: &'a str,
    program: Option<&'a Program>,
    value: OnceCell<Outcome<'a>>,
}

impl<'a> Lazy<'a> {
    pub(super) fn new(entries: impl IntoIterator<Item = (&'a str, Option<&'a Program>)>) -> Lazy<'a> {
        Lazy {
            entries: entries
                .into_iter()
                .map(|(name, program)| Entry {
                    name,
                    program,
                    value: OnceCell::new(),
                })
                .collect(),
            cost: Cell::new(0),
        }
    }

    /// Makes the entries up to and with `at`, in order: each may speak of those before it.
    pub(super) fn make(&self, at: usize, variables: &[Val<'a>]) {
        let Some(entry) = self.entries.get(at) else { return };
        entry.value.get_or_init(|| match entry.program {
            None => Err(Failure::told(format!(
                "composited variable \"{}\" fails to compile",
                entry.name
            ))),
            Some(program) => {
                let (outcome, used) = machine::run(program, variables, COST_MAX, WORK_MAX);
                self.cost.set(self.cost.get().saturating_add(used.cost));
                outcome
            }
        });
    }

    /// What was spent since this was asked last.
    pub(super) fn take_cost(&self) -> u64 {
        self.cost.take()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, name: &str) -> Option<Outcome<'a>> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)?
            .value
            .get()
            .cloned()
    }

    pub(super) fn names(&self) -> Vec<Val<'a>> {
        self.entries
            .iter()
            .map(|entry| Val::String(Str::Lent(entry.name)))
            .collect()
    }
}
