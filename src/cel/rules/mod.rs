//! The rules of custom resources: `x-kubernetes-validations`.
//!
//! Rules: KEP 2876 and <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

mod compiled;
mod definition;
mod field_path;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::Arc;

use super::machine::{self, COST_MAX, WORK_MAX};
use super::shape::Shape;
use super::value::{Failure, Val, take_converted};
use crate::tree::{Map, Value};
use compiled::{Node, OldItems, Rule};
pub use definition::{check_form, check_rules};

/// Most that all rules of an object may cost together; kube-apiserver's number.
const OBJECT_COST_MAX: i64 = 10_000_000;
/// Most work of all rules of an object, in bytes looked at.
const OBJECT_WORK_MAX: u64 = 1_000_000_000;
/// Longest message that an expression makes, in bytes.
const MESSAGE_LEN_MAX: usize = 5 * 1024;

/// Most that is told of an object, and as much again of what is tolerated.
const BROKEN_MAX: usize = 1_000;
/// Most bytes of text in either.
const BROKEN_LEN_MAX: usize = 8 * 1024 * 1024;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A rule that an object or a definition breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Path of the field, e.g. `spec.list[0].name`; empty for the object as a whole.
    pub path: String,
    /// What sort of mistake it is told as.
    pub reason: Reason,
    /// The value as it is shown; left out of objects and lists, and of what is forbidden or missing.
    pub shown: Option<String>,
    /// What is wrong.
    pub detail: String,
}

/// Sorts of mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Malformed or out of range.
    Invalid,
    /// Not allowed.
    Forbidden,
    /// Missing.
    Required,
    /// Appears twice.
    Duplicate,
    /// Not one of the allowed values.
    NotSupported,
    /// Could not be judged.
    Internal,
}

/// What the rules say of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong with it: the first thousand findings.
    pub broken: Vec<Broken>,
    /// What was wrong with it before already, in parts that did not change.
    pub tolerated: Vec<Broken>,
}

/// The rules of a schema, ready to run.
#[derive(Debug)]
pub struct Rules(Node);

impl Rules {
    /// Finds the rules of a version's `openAPIV3Schema` and makes them ready. `None` if there are none, which is found out without
    /// much ado. Rules that cannot be made ready are told with every object, as kube-apiserver does.
    pub fn compile(schema: &Value) -> Option<Rules> {
        if !compiled::has_rules(schema) {
            return None;
        }
        let shape = Shape::of_schema(schema, true);
        compiled::node(schema, shape, 0).map(Rules)
    }

    /// Runs the rules over an object as it is to be, `old` being what it is now.
    ///
    /// Bounded: rules that would go on for longer than about a second are cut off and told.
    pub fn validate(&self, old: Option<&Value>, new: &Value) -> Verdict {
        let mut walk = Walk {
            verdict: Verdict::default(),
            cost_left: OBJECT_COST_MAX,
            work_left: OBJECT_WORK_MAX,
            path: String::new(),
            told_len: 0,
            tolerated_len: 0,
        };
        let kept = Kept {
            current: Some((old, new)),
            parent: None,
        };
        walk.node(&self.0, new, old, kept);
        walk.verdict
    }
}

/// What a part of an object was before, to tell what did not change.
#[derive(Clone, Copy)]
struct Kept<'a> {
    /// Before and now; `None` where nothing of before belongs to what is now.
    current: Option<(Option<&'a Value>, &'a Value)>,
    /// The same of the nearest part around it that has one.
    parent: Option<(Option<&'a Value>, &'a Value)>,
}

impl<'a> Kept<'a> {
    fn unchanged(&self) -> bool {
        self.current
            .or(self.parent)
            .is_some_and(|(old, new)| old.is_some_and(|old| old.shares(new) || old == new))
    }

    fn key(&self, name: &str) -> Kept<'a> {
        let Some((old, new)) = self.current else { return *self };
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Kept {
                current: None,
                parent: None,
            };
        }
        let both = old.and_then(|old| old.get(name)).zip(new.get(name));
        Kept {
            current: both.map(|(old, new)| (Some(old), new)),
            parent: self.current,
        }
    }

    /// `old_items` are those of the list as it was, if it has keys.
    fn item(&self, node: &Node, at: usize, old_items: Option<&OldItems<'a>>) -> Kept<'a> {
        let Some((old, new)) = self.current else { return *self };
        let lists = old.and_then(Value::as_array).zip(new.as_array());
        let both = lists.and_then(|(old, new)| {
            let item = new.get(at)?;
            let before = match node.list_type.as_deref() {
                Some("map") => old_items?.of_new(item),
                Some(_) => None,
                None => old.get(at),
            }?;
            Some((Some(before), item))
        });
        Kept {
            current: both,
            parent: self.current,
        }
    }
}

/// A walk over an object. Ends early when the budget is used up.
struct Walk {
    verdict: Verdict,
    cost_left: i64,
    work_left: u64,
    path: String,
    /// Bytes of text in what is told.
    told_len: usize,
    tolerated_len: usize,
}

/// Keeps a finding if there is room for it. The first one always has room: what is wrong stays wrong.
fn keep(all: &mut Vec<Broken>, len: &mut usize, broken: Broken) {
    if all.len() < BROKEN_MAX && *len < BROKEN_LEN_MAX {
        *len += broken.path.len() + broken.shown.as_ref().map_or(0, String::len) + broken.detail.len();
        all.push(broken);
    }
}

impl Walk {
    fn tell(&mut self, value: &Value, detail: String) {
        let broken = Broken {
            path: self.path.clone(),
            reason: Reason::Invalid,
            shown: shown(value),
            detail,
        };
        keep(&mut self.verdict.broken, &mut self.told_len, broken);
    }

    fn over(&self) -> bool {
        self.cost_left < 0
    }

    fn node(&mut self, node: &Node, new: &Value, old: Option<&Value>, kept: Kept<'_>) {
        if new.is_null() || self.over() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, new, old, kept);
        for part in &node.all_of {
            if self.over() {
                return;
            }
            let kept = Kept {
                current: None,
                parent: kept.parent,
            };
            self.node(part, new, old, kept);
        }
        match new {
            Value::Array(items) => {
                if let Some(below) = &node.items {
                    self.items(node, below, items, old, kept);
                }
            }
            Value::Object(map) => self.fields(node, map, old, kept),
            _ => {}
        }
    }

    fn items<'a>(&mut self, node: &'a Node, below: &Node, items: &[Value], old: Option<&'a Value>, kept: Kept<'a>) {
        let before = OldItems::of(node, old);
        let kept_before = OldItems::of(node, kept.current.and_then(|(old, _)| old));
        let len = self.path.len();
        for (at, item) in items.iter().enumerate() {
            if self.over() {
                return;
            }
            // Only items of lists with keys can be told apart.
            let own = before.as_ref().and_then(|before| before.of_new(item));
            let _ = write!(self.path, "[{at}]");
            self.node(below, item, own, kept.item(node, at, kept_before.as_ref()));
            self.path.truncate(len);
        }
    }

    fn fields(&mut self, node: &Node, map: &Map, old: Option<&Value>, kept: Kept<'_>) {
        let len = self.path.len();
        let before = |name: &str| old.filter(|_| node.map_correlates).and_then(|old| old.get(name));
        if let Some(below) = &node.values {
            for (name, value) in map {
                if self.over() {
                    return;
                }
                let _ = write!(self.path, "[{name}]");
                self.node(below, value, before(name), kept.key(name));
                self.path.truncate(len);
            }
        }
        for (name, below) in &node.fields {
            if self.over() {
                return;
            }
            let Some(value) = map.get(name) else { continue };
            if len > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.node(below, value, before(name), kept.key(name));
            self.path.truncate(len);
        }
    }

    /// Runs the rules of one node.
    fn rules(&mut self, node: &Node, new: &Value, old: Option<&Value>, kept: Kept<'_>) {
        if node.rules.is_empty() {
            return;
        }
        if self.cost_left <= 0 {
            self.tell(new, OUT_OF_BUDGET.into());
            self.cost_left = -1;
            return;
        }
        let Some(shape) = &node.shape else {
            self.tell(
                new,
                "rule compiler initialization error: rule declared on schema that does not support validation rules"
                    .into(),
            );
            return;
        };
        for rule in &node.rules {
            self.rule(rule, shape, new, old, kept);
            if self.over() {
                return;
            }
        }
    }

    fn rule(&mut self, rule: &Rule, shape: &Arc<Shape>, new: &Value, old: Option<&Value>, kept: Kept<'_>) {
        let program = match &rule.program {
            Ok(program) => program,
            Err(wrong) => {
                self.tell(new, format!("rule compile error: {wrong}"));
                return;
            }
        };
        // A rule about what changes is run when there is something to compare, or when it says that it copes without.
        if rule.uses_old && old.is_none() && !rule.old_is_optional {
            return;
        }
        let variables = variables(rule, shape, new, old);
        self.work_left = self.work_left.saturating_sub(take_converted());
        let variables = match variables {
            Ok(variables) => variables,
            Err(failure) => {
                let told = told(&failure);
                self.tell(new, format!("{told} evaluating rule: {}", rule.shown()));
                return;
            }
        };
        let (outcome, used) = machine::run(program, &variables, COST_MAX, WORK_MAX.min(self.work_left));
        self.work_left = self.work_left.saturating_sub(used.work);
        if !self.pay(used.cost) {
            self.tell(new, OUT_OF_BUDGET.into());
            return;
        }
        match outcome {
            Ok(Val::Bool(true)) => return,
            Ok(Val::Bool(false)) => {}
            Ok(found) => {
                let text = format!(
                    "unexpected result of type {} evaluating rule: {}",
                    found.type_name(),
                    rule.shown()
                );
                self.tell(new, text);
                return;
            }
            Err(Failure::TooDear) => {
                self.cost_left = -1;
                let text = format!(
                    "'{TOO_DEAR}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    rule.shown()
                );
                self.tell(new, text);
                return;
            }
            Err(Failure::Told(what)) if what.starts_with("no such overload") => {
                let text = format!(
                    "'{what}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                    rule.shown()
                );
                self.tell(new, text);
                return;
            }
            Err(Failure::Told(what)) => {
                self.tell(new, format!("{what} evaluating rule: {}", rule.shown()));
                return;
            }
        }
        let (reason, detail) = match self.message(rule, &variables) {
            Ok(message) => (rule.reason, message.unwrap_or_else(|| rule.default_message())),
            Err(over) => (Reason::Invalid, over),
        };
        let broken = Broken {
            path: format!("{}{}", self.path, joined(&self.path, &rule.path)),
            reason,
            // What is forbidden or missing is told without a value.
            shown: shown(new).filter(|_| !matches!(reason, Reason::Forbidden | Reason::Required)),
            detail,
        };
        if !rule.uses_old && kept.unchanged() {
            keep(&mut self.verdict.tolerated, &mut self.tolerated_len, broken);
        } else {
            keep(&mut self.verdict.broken, &mut self.told_len, broken);
        }
    }

    /// Takes from the budget; whether there was enough.
    fn pay(&mut self, cost: u64) -> bool {
        let cost = i64::try_from(cost).unwrap_or(i64::MAX);
        if cost > self.cost_left {
            self.cost_left = -1;
            return false;
        }
        self.cost_left -= cost;
        true
    }

    /// The message that a rule's expression makes, if it makes one. The error ends the walk.
    fn message<'a>(&mut self, rule: &'a Rule, variables: &[Val<'a>]) -> Result<Option<String>, String> {
        let Some(program) = &rule.message_program else {
            return Ok(None);
        };
        let (outcome, used) = machine::run(program, variables, COST_MAX, WORK_MAX.min(self.work_left));
        self.work_left = self.work_left.saturating_sub(used.work);
        if !self.pay(used.cost) {
            return Err(
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules will \
                 be run"
                    .into(),
            );
        }
        match outcome {
            Err(Failure::TooDear) => {
                self.cost_left = -1;
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                    rule.message_expression
                ))
            }
            Ok(Val::String(text)) => {
                let text = text.trim();
                let fine = !text.is_empty() && text.len() <= MESSAGE_LEN_MAX && !text.contains('\n');
                Ok(fine.then(|| text.to_owned()))
            }
            _ => Ok(None),
        }
    }
}

const TOO_DEAR: &str = "operation cancelled: actual cost limit exceeded";

fn told(failure: &Failure) -> &str {
    match failure {
        Failure::Told(what) => what,
        Failure::TooDear => TOO_DEAR,
    }
}

/// `self` and `oldSelf`.
fn variables<'a>(
    rule: &Rule,
    shape: &'a Arc<Shape>,
    new: &'a Value,
    old: Option<&'a Value>,
) -> Result<Vec<Val<'a>>, Failure> {
    let new = Val::of_tree(new, Some(shape))?;
    if !rule.uses_old {
        return Ok(vec![new]);
    }
    let old = old.map(|old| Val::of_tree(old, Some(shape))).transpose()?;
    Ok(match (rule.old_is_optional, old) {
        (true, Some(old)) => vec![new, Val::some(old)],
        (true, None) => vec![new, Val::Optional(None)],
        (false, Some(old)) => vec![new, old],
        (false, None) => vec![new],
    })
}

/// A path below another.
fn joined(above: &str, below: &str) -> String {
    if above.is_empty() {
        below.strip_prefix('.').unwrap_or(below).to_owned()
    } else {
        below.to_owned()
    }
}

/// A scalar as JSON; nothing of lists and objects.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Array(_) | Value::Object(_) | Value::Raw(_) => None,
        scalar => Some(scalar.to_json()),
    }
}
