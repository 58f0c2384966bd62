//! What an expression gave, as JSON.

use super::machine;
use super::program::Program;
use super::run::{Budget, Input, RunError};
use super::value::{Failure, Key, List, Map, Val};
use crate::tree;

/// Most values that a result may have.
const VALUES_MAX: usize = 100_000;
/// Most bytes of the texts in a result: as many as an object may have.
const BYTES_MAX: usize = 3 * 1024 * 1024;
/// How deep values may lie within one another.
const DEPTH_MAX: usize = 128;

impl Program {
    /// Runs the expression as [`Program::run`] does, and gives the result as JSON: maps, lists, texts, numbers.
    ///
    /// # Errors
    /// As for a run; and for results that JSON has no words for, or that are larger than an object may be.
    pub fn run_to_tree<'a>(&'a self, inputs: &[Input<'a>], budget: &mut Budget) -> Result<tree::Value, RunError> {
        let (values, cost_max, work_max) = budget.start(inputs);
        let (outcome, used) = machine::run(self, &values, cost_max, work_max);
        if !budget.spend(used.cost, used.work) {
            return Err(RunError::OutOfBudget);
        }
        let mut left = Left {
            values: VALUES_MAX,
            bytes: BYTES_MAX,
        };
        let made = outcome.and_then(|value| left.tree(&value, 0));
        made.map_err(|failure| match failure {
            Failure::TooDear => RunError::TooDear,
            Failure::Told(what) => RunError::Told(what.into()),
        })
    }
}

/// How much a result may still take.
struct Left {
    values: usize,
    bytes: usize,
}

impl Left {
    fn take(&mut self, bytes: usize) -> Result<(), Failure> {
        self.values = self.values.checked_sub(1).ok_or(Failure::TooDear)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Failure::TooDear)?;
        Ok(())
    }

    fn tree(&mut self, value: &Val<'_>, depth: usize) -> Result<tree::Value, Failure> {
        if depth > DEPTH_MAX {
            return Err(Failure::TooDear);
        }
        self.take(if let Val::String(text) = value { text.len() } else { 8 })?;
        Ok(match value {
            Val::Null => tree::Value::Null,
            Val::Bool(value) => (*value).into(),
            Val::Int(number) => (*number).into(),
            Val::Uint(number) => (*number).into(),
            Val::Double(number) => (*number).into(),
            Val::String(text) => (&**text).into(),
            Val::Optional(Some(value)) => self.tree(value, depth + 1)?,
            Val::List(list) => self.list(list, depth)?,
            Val::Map(map) => self.map(map, depth)?,
            other => return Err(Failure::told(format!("{} is no part of an object", other.type_name()))),
        })
    }

    fn list(&mut self, list: &List<'_>, depth: usize) -> Result<tree::Value, Failure> {
        let mut items = Vec::new();
        for item in list.iter() {
            items.push(self.tree(&item?, depth + 1)?);
        }
        Ok(items.into())
    }

    fn map(&mut self, map: &Map<'_>, depth: usize) -> Result<tree::Value, Failure> {
        let mut fields = tree::Map::new();
        for key in map.keys() {
            let Some(Key::String(name)) = Key::of(&key) else {
                return Err(Failure::told(format!("{} is no name of a field", key.shown())));
            };
            let Some(value) = map.get(&key) else { continue };
            let value = value?;
            // What is optional and absent is not there.
            if matches!(value, Val::Optional(None)) {
                continue;
            }
            self.take(name.len())?;
            let value = self.tree(&value, depth + 1)?;
            fields.insert(name.to_string(), value);
        }
        Ok(tree::Value::Object(fields))
    }
}
