//! Maps whose values are made when an expression asks for them: the `variables` of a policy.

use std::cell::OnceCell;

use super::machine::{self, Used};
use super::program::Program;
use super::value::{Failure, Outcome, Str, Val};

/// Named expressions over the same variables, each run once at most.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    entries: Vec<Entry<'a>>,
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
        }
    }

    /// Makes the entry at a place, within what it may cost, and tells what it used. They are made in order: each may speak of
    /// those before it.
    pub(super) fn make(&self, at: usize, variables: &[Val<'a>], cost_max: u64, work_max: u64) -> Used {
        let mut used = Used::default();
        let Some(entry) = self.entries.get(at) else { return used };
        entry.value.get_or_init(|| match entry.program {
            None => Err(Failure::told(format!(
                "composited variable \"{}\" fails to compile",
                entry.name
            ))),
            Some(program) => {
                let (outcome, spent) = machine::run(program, variables, cost_max, work_max);
                used = spent;
                outcome
            }
        });
        used
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
