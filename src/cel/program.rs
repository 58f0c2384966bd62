//! Expressions ready to run.

use std::collections::HashMap;

use regex::Regex;

use super::ast::{Id, Kind, Literal};
use super::check::{Checked, Link, check};
use super::cost;
use super::environment::Environment;
use super::functions::{self, Native, times};
use super::parser::parse;
use super::shape::Shape;
use super::source::{CompileError, Findings};
use super::types::Type;
use crate::re2;

/// An expression: parsed, its types checked, its functions found, its patterns compiled.
#[derive(Debug)]
pub struct Program {
    pub(super) checked: Checked,
    /// By node: what a call runs.
    pub(super) natives: Vec<Option<Native>>,
    /// Patterns that stand in the expression.
    pub(super) patterns: HashMap<Box<str>, Regex>,
    /// Which variables of the environment are spoken of, by number.
    uses: Vec<bool>,
}

impl Program {
    /// Makes an expression ready. The error has kube-apiserver's text, without the `compilation failed: ` that it puts before.
    ///
    /// Costs time and memory in proportion to the expression, which has at most 100,000 code points.
    pub fn compile(source: &str, environment: &Environment) -> Result<Program, CompileError> {
        let checked = check(parse(source)?, environment, source)?;
        let mut program = Program {
            natives: Vec::with_capacity(checked.ast.nodes.len()),
            patterns: HashMap::new(),
            uses: vec![false; environment.count()],
            checked,
        };
        let mut findings = Findings::default();
        for id in 0..program.checked.ast.nodes.len() as Id {
            let native = program.link(id, &mut findings);
            program.natives.push(native);
        }
        if findings.is_empty() {
            Ok(program)
        } else {
            Err(findings.into_error(source))
        }
    }

    /// Finds what a node runs, and looks at its literals.
    fn link(&mut self, id: Id, findings: &mut Findings) -> Option<Native> {
        let (name, member) = match &self.checked.links[id as usize] {
            Link::Variable(number) => {
                self.uses[*number] = true;
                return None;
            }
            Link::Call { name, member, .. } => (name, *member),
            _ => return None,
        };
        let native = functions::find(name, member);
        let Kind::Call { args, .. } = &self.checked.ast.node(id).kind else {
            return native;
        };
        let place = usize::from(&**name == "matches" && !member);
        let literal = args.get(place).map(|arg| self.checked.ast.node(*arg));
        let Some((at, Kind::Literal(Literal::String(text)))) = literal.map(|node| (node.at, &node.kind)) else {
            return native;
        };
        match &**name {
            "matches" | "find" | "findAll" => match re2::compile(text) {
                Ok(compiled) => {
                    self.patterns.insert(text.as_str().into(), compiled);
                }
                Err(_) => findings.add(at, format!("invalid {name} argument")),
            },
            "duration" if times::parse_duration(text).is_none() => findings.add(at, "invalid duration argument"),
            "timestamp" if times::rfc_3339(text).is_none() => findings.add(at, "invalid timestamp argument"),
            _ => {}
        }
        native
    }

    /// Whether the expression speaks of a variable of its environment.
    pub fn uses(&self, environment: &Environment, variable: &str) -> bool {
        environment
            .find(variable)
            .is_some_and(|(number, _)| self.uses.get(number) == Some(&true))
    }

    /// The type of the result.
    pub(super) fn result(&self) -> &Type {
        &self.checked.types[self.checked.ast.root as usize]
    }

    /// Whether the result is a boolean, or may be one.
    pub fn gives_bool(&self) -> bool {
        matches!(self.result(), Type::Bool | Type::Dyn)
    }

    /// The most that one run may be estimated to cost, of an expression that selects devices.
    pub fn device_cost_max(&self) -> u64 {
        cost::estimate(&self.checked, &Shape::of_device()).max
    }

    /// The name of the type of the result.
    pub fn gives(&self) -> String {
        self.result().to_string()
    }

    /// Whether the result is a text, or may be one.
    pub fn gives_text(&self) -> bool {
        matches!(self.result(), Type::String | Type::Dyn)
    }

    /// Whether the result is `null`.
    pub fn gives_null(&self) -> bool {
        matches!(self.result(), Type::Null)
    }
}
