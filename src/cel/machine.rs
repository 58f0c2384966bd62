//! Runs expressions.
//!
//! Two budgets bound a run. Its *cost* is counted as kube-apiserver counts it, so that what is refused there is refused here. Its
//! *work* is what it really does, roughly in bytes looked at: functions whose cost says little of what they do (comparing large
//! objects, replacing in a text) cannot stall a write. Both are charged before the work is done.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use regex::Regex;

use super::ast::{Entry, Fold, FoldKind, Id, Kind, Literal};
use super::check::Link;
use super::functions::{Price, lists, operators};
use super::program::Program;
use super::value::{Failure, Key, List, Map, Outcome, Str, Val, take_converted};
use crate::re2;

/// Most that one run may cost; kube-apiserver's number.
pub(super) const COST_MAX: u64 = 1_000_000;
/// Most work of one run.
pub(super) const WORK_MAX: u64 = 200_000_000;
/// Work of looking at one value.
pub(super) const WORK_VALUE: u64 = 64;
/// What compiling a pattern that was made costs, beyond what kube-apiserver counts.
const PATTERN_COST: u64 = 5_000;

/// One run of a program.
pub(super) struct Machine<'a> {
    program: &'a Program,
    variables: Vec<Val<'a>>,
    locals: Vec<(Arc<str>, Val<'a>)>,
    cost: u64,
    cost_max: u64,
    work: u64,
    work_max: u64,
    /// Patterns that were made in this run.
    patterns: HashMap<Box<str>, Regex>,
}

/// What a run used up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) cost: u64,
    pub(super) work: u64,
}

/// Runs a program with values for the variables of its environment.
pub(super) fn run<'a>(
    program: &'a Program,
    variables: &[Val<'a>],
    cost_max: u64,
    work_max: u64,
) -> (Outcome<'a>, Used) {
    let mut machine = Machine {
        program,
        variables: variables.to_vec(),
        locals: Vec::new(),
        cost: 0,
        cost_max,
        work: 0,
        work_max,
        patterns: HashMap::new(),
    };
    take_converted();
    let outcome = machine.eval(program.checked.ast.root);
    // What the last step converted.
    let outcome = machine.work(0).and(outcome);
    let used = Used {
        cost: machine.cost,
        work: machine.work,
    };
    (outcome, used)
}

impl<'a> Machine<'a> {
    /// Charges cost, as kube-apiserver counts it.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        // Whatever costs something is also some work.
        self.work(WORK_VALUE)?;
        if self.cost > self.cost_max {
            return Err(Failure::TooDear);
        }
        Ok(())
    }

    /// Charges work, in bytes looked at, and what was converted since.
    pub(super) fn work(&mut self, bytes: u64) -> Result<(), Failure> {
        self.work = self.work.saturating_add(bytes).saturating_add(take_converted());
        if self.work > self.work_max {
            return Err(Failure::TooDear);
        }
        Ok(())
    }

    /// The key that a value is in a map. Texts are copied, which is work.
    fn key(&mut self, value: &Val<'_>) -> Result<Option<Key>, Failure> {
        if let Val::String(text) = value {
            self.work(text.len() as u64)?;
        }
        Ok(Key::of(value))
    }

    fn eval(&mut self, id: Id) -> Outcome<'a> {
        let program = self.program;
        match &program.checked.ast.node(id).kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => self.ident(id, name),
            Kind::Select {
                operand,
                field,
                test,
                optional,
            } => self.select(id, *operand, field, *test, *optional),
            Kind::Call { target, args, .. } => self.call(id, *target, args),
            Kind::And(one, other) => self.logic(*one, *other, false),
            Kind::Or(one, other) => self.logic(*one, *other, true),
            Kind::Conditional(condition, one, other) => match self.eval(*condition)? {
                Val::Bool(true) => self.eval(*one),
                Val::Bool(false) => self.eval(*other),
                found => Err(Failure::no_overload("_?_:_", &[found])),
            },
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Object { fields, .. } => self.object(fields),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind { name, value, body } => {
                self.charge(10)?;
                let value = self.eval(*value)?;
                self.within(name, value, *body)
            }
            Kind::OptionalMap {
                target,
                name,
                body,
                flat,
            } => self.optional_map(*target, name, *body, *flat),
            Kind::SortBy { target, name, key } => self.sort_by(*target, name, *key),
        }
    }

    fn within(&mut self, name: &Arc<str>, value: Val<'a>, body: Id) -> Outcome<'a> {
        self.locals.push((name.clone(), value));
        let outcome = self.eval(body);
        self.locals.pop();
        outcome
    }

    fn ident(&mut self, id: Id, name: &str) -> Outcome<'a> {
        self.charge(1)?;
        match &self.program.checked.links[id as usize] {
            Link::Local => {
                let found = self.locals.iter().rev().find(|(local, _)| **local == *name);
                found.map(|(_, value)| value.clone()).ok_or_else(|| no_attribute(name))
            }
            Link::Variable(number) => self.variables.get(*number).cloned().ok_or_else(|| no_attribute(name)),
            Link::TypeName(named) => Ok(Val::Type(Box::new(named.clone()))),
            _ => Err(no_attribute(name)),
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool, optional: bool) -> Outcome<'a> {
        match &self.program.checked.links[id as usize] {
            Link::TypeName(named) => {
                self.charge(1)?;
                return Ok(Val::Type(Box::new(named.clone())));
            }
            Link::Variable(number) => {
                self.charge(1)?;
                return self.variables.get(*number).cloned().ok_or_else(|| no_attribute(field));
            }
            _ => {}
        }
        let operand = self.eval(operand)?;
        if !test {
            self.charge(1)?;
        }
        let (operand, wrapped) = match operand {
            Val::Optional(None) => return Ok(if test { Val::Bool(false) } else { Val::Optional(None) }),
            Val::Optional(Some(value)) => ((*value).clone(), true),
            other => (other, false),
        };
        let Val::Map(map) = operand else {
            return Err(Failure::told("no such overload"));
        };
        self.work(map.len().min(64) as u64)?;
        let found = map.field(field);
        if test {
            return Ok(Val::Bool(found.is_some()));
        }
        match (found, optional || wrapped) {
            (Some(value), false) => value,
            (Some(value), true) => Ok(Val::some(value?)),
            (None, true) => Ok(Val::Optional(None)),
            (None, false) => Err(Failure::told(format!("no such key: {field}"))),
        }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &'a [Id]) -> Outcome<'a> {
        let program = self.program;
        let Link::Call { name, member, .. } = &program.checked.links[id as usize] else {
            return Err(Failure::told("no such overload"));
        };
        let Some(native) = &program.natives[id as usize] else {
            return Err(Failure::told(format!("no such overload: {name}")));
        };
        let mut values = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target.filter(|_| *member) {
            values.push(self.eval(target)?);
        }
        for arg in args {
            values.push(self.eval(*arg)?);
        }
        let price = self.price(native.price, &values)?;
        self.charge(price)?;
        (native.run)(self, &values).unwrap_or_else(|| Err(Failure::no_overload(name, &values)))
    }

    /// What a call costs, as kube-apiserver counts it.
    fn price(&mut self, price: Price, args: &[Val<'a>]) -> Result<u64, Failure> {
        let size = |machine: &mut Self, at: usize| machine.size(args.get(at));
        Ok(match price {
            Price::Own => 0,
            Price::One => 1,
            Price::Tenths(tenths) => (size(self, 0)? * tenths).div_ceil(10),
            Price::Converted => match args.first() {
                Some(Val::String(_) | Val::Bytes(_)) => size(self, 0)?.div_ceil(10),
                _ => 1,
            },
            Price::Product => size(self, 0)?.div_ceil(10).saturating_mul(size(self, 1)?.div_ceil(10)),
            Price::Pattern => (size(self, 0)? + 1)
                .div_ceil(10)
                .saturating_mul(size(self, 1)?.div_ceil(4)),
            Price::Within => match args.get(1) {
                Some(Val::List(list)) => list.len() as u64,
                _ => 1,
            },
            Price::Smaller => self.smaller(args)?.div_ceil(10),
            Price::Compared => match args.first() {
                Some(Val::String(_) | Val::Bytes(_)) => self.smaller(args)?.div_ceil(10),
                _ => 1,
            },
            Price::Added => match args.first() {
                Some(Val::String(_) | Val::Bytes(_)) => (size(self, 0)? + size(self, 1)?).div_ceil(10),
                _ => 1,
            },
            Price::Traversed => match args.first() {
                Some(value) => lists::traversal_cost(self, value)?,
                None => 1,
            },
            Price::Listed => size(self, 0)? + 10,
            Price::Pairs(times) => size(self, 0)?.saturating_mul(size(self, 1)?).saturating_mul(times) + 1,
            Price::Sorted => {
                let len = size(self, 0)?;
                (len.saturating_mul(len) / 2).saturating_add(len + 10)
            }
        })
    }

    /// The size of a value: characters, bytes, items or entries; 1 for what has none.
    pub(super) fn size(&mut self, value: Option<&Val<'a>>) -> Result<u64, Failure> {
        Ok(match value {
            Some(Val::String(text)) => {
                self.work(text.len() as u64 / 8)?;
                text.chars().count() as u64
            }
            Some(Val::Bytes(bytes)) => bytes.len() as u64,
            Some(Val::List(list)) => list.len() as u64,
            Some(Val::Map(map)) => map.len() as u64,
            _ => 1,
        })
    }

    /// The size of the smaller of two values.
    fn smaller(&mut self, args: &[Val<'a>]) -> Result<u64, Failure> {
        let (one, other) = (args.first(), args.get(1));
        if let (Some(Val::String(a)), Some(Val::String(b))) = (one, other) {
            // The longer one is not counted through: a character has at least a byte, and at most four.
            let (short, long) = if a.len() <= b.len() { (one, b) } else { (other, a) };
            return Ok(self.size(short)?.min(long.len() as u64));
        }
        Ok(self.size(one)?.min(self.size(other)?))
    }

    fn logic(&mut self, one: Id, other: Id, decides: bool) -> Outcome<'a> {
        let mut failed = None;
        for id in [one, other] {
            match self.eval(id) {
                Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Ok(found) => {
                    let name = if decides { "_||_" } else { "_&&_" };
                    failed.get_or_insert_with(|| Failure::no_overload(name, &[found]));
                }
                Err(Failure::TooDear) => return Err(Failure::TooDear),
                Err(told) => {
                    failed.get_or_insert(told);
                }
            }
        }
        failed.map_or(Ok(Val::Bool(!decides)), Err)
    }

    fn list(&mut self, items: &[(Id, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (id, optional) in items {
            match (self.eval(*id)?, optional) {
                (Val::Optional(Some(value)), true) => values.push((*value).clone()),
                (Val::Optional(None), true) => {}
                (found, true) => return Err(not_optional(&found)),
                (value, false) => values.push(value),
            }
        }
        self.charge(10)?;
        Ok(Val::list(values))
    }

    fn map(&mut self, entries: &[Entry]) -> Outcome<'a> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let key = self.eval(entry.key)?;
            let Some(key) = self.key(&key)? else {
                return Err(Failure::told(format!("unsupported key type: {}", key.type_name())));
            };
            let value = match (self.eval(entry.value)?, entry.optional) {
                (Val::Optional(Some(value)), true) => (*value).clone(),
                (Val::Optional(None), true) => continue,
                (found, true) => return Err(not_optional(&found)),
                (value, false) => value,
            };
            if map.insert(key, value).is_some() {
                return Err(Failure::told("Failed with repeated key"));
            }
        }
        self.charge(30)?;
        Ok(Val::Map(Map::Made(Rc::new(map))))
    }

    fn object(&mut self, fields: &[(Arc<str>, Entry)]) -> Outcome<'a> {
        let mut map = BTreeMap::new();
        for (name, entry) in fields {
            let value = match (self.eval(entry.value)?, entry.optional) {
                (Val::Optional(Some(value)), true) => (*value).clone(),
                (Val::Optional(None), true) => continue,
                (found, true) => return Err(not_optional(&found)),
                (value, false) => value,
            };
            map.insert(Key::String((&**name).into()), value);
        }
        self.charge(40)?;
        Ok(Val::Map(Map::Made(Rc::new(map))))
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.eval(fold.range)?;
        let mut folded = Folded::new(fold.what);
        self.charge(folded.start_cost())?;
        match range {
            Val::List(list) => {
                for (place, item) in list.iter().enumerate() {
                    let item = item?;
                    let pair = match fold.names.1 {
                        None => (item, None),
                        Some(_) => (Val::Int(place as i64), Some(item)),
                    };
                    if self.step(fold, pair, &mut folded)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                self.work(WORK_VALUE * map.len() as u64)?;
                for key in map.keys() {
                    let pair = if fold.names.1.is_some() {
                        let value = map.get(&key).unwrap_or(Ok(Val::Null))?;
                        (key, Some(value))
                    } else {
                        (key, None)
                    };
                    if self.step(fold, pair, &mut folded)? {
                        break;
                    }
                }
            }
            found => {
                return Err(Failure::told(format!(
                    "got '{}', expected iterable type",
                    found.type_name()
                )));
            }
        }
        self.charge(if fold.what == FoldKind::ExistsOne { 2 } else { 1 })?;
        folded.result()
    }

    /// One step of a fold; whether it is decided.
    fn step(
        &mut self,
        fold: &'a Fold,
        (first, second): (Val<'a>, Option<Val<'a>>),
        folded: &mut Folded<'a>,
    ) -> Result<bool, Failure> {
        let depth = self.locals.len();
        let (key, item) = (first.clone(), second.clone());
        self.locals.push((fold.names.0.clone(), first));
        if let (Some(name), Some(second)) = (&fold.names.1, second) {
            self.locals.push((name.clone(), second));
        }
        let outcome = self.step_within(fold, key, item, folded);
        self.locals.truncate(depth);
        outcome
    }

    fn step_within(
        &mut self,
        fold: &'a Fold,
        key: Val<'a>,
        item: Option<Val<'a>>,
        folded: &mut Folded<'a>,
    ) -> Result<bool, Failure> {
        self.charge(folded.step_cost())?;
        if let Some(filter) = fold.filter {
            match self.eval(filter)? {
                Val::Bool(true) => {}
                Val::Bool(false) => {
                    self.charge(1)?;
                    return Ok(false);
                }
                found => return Err(Failure::no_overload("_?_:_", &[found])),
            }
        }
        let body = self.eval(fold.body);
        match folded {
            Folded::Decided {
                decides,
                decided,
                failed,
            } => match body {
                Ok(Val::Bool(value)) if value == *decides => {
                    *decided = true;
                    return Ok(true);
                }
                Ok(Val::Bool(_)) => {}
                Ok(found) => {
                    failed.get_or_insert_with(|| Failure::no_overload("_&&_", &[found]));
                }
                Err(Failure::TooDear) => return Err(Failure::TooDear),
                Err(told) => {
                    failed.get_or_insert(told);
                }
            },
            Folded::Counted(count) => match body? {
                Val::Bool(true) => {
                    *count += 1;
                    self.charge(2)?;
                }
                Val::Bool(false) => self.charge(1)?,
                found => return Err(Failure::no_overload("_?_:_", &[found])),
            },
            Folded::Filtered(kept) => match body? {
                Val::Bool(true) => {
                    self.charge(13)?;
                    kept.push(item.unwrap_or(key));
                }
                Val::Bool(false) => self.charge(1)?,
                found => return Err(Failure::no_overload("_?_:_", &[found])),
            },
            Folded::Listed(made) => {
                made.push(body?);
                self.charge(12)?;
            }
            Folded::Mapped(made) => {
                let value = body?;
                let Some(key) = self.key(&key)? else {
                    return Err(Failure::told(format!("unsupported key type: {}", key.type_name())));
                };
                self.charge(3)?;
                made.insert(key, value);
            }
            Folded::Entered(made) => {
                let Val::Map(entry) = body? else {
                    return Err(Failure::told("no such overload"));
                };
                self.charge(2 + entry.len() as u64)?;
                for key in entry.keys() {
                    let Some(value) = entry.get(&key) else { continue };
                    let Some(kept) = self.key(&key)? else { continue };
                    if made.insert(kept, value?).is_some() {
                        let what = format!("insert failed: key {} already exists", key.shown());
                        return Err(Failure::told(what));
                    }
                }
            }
        }
        Ok(false)
    }

    fn optional_map(&mut self, target: Id, name: &Arc<str>, body: Id, flat: bool) -> Outcome<'a> {
        let target = self.eval(target)?;
        self.charge(2)?;
        match target {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(value)) => {
                self.charge(12)?;
                let made = self.within(name, (*value).clone(), body)?;
                Ok(if flat { made } else { Val::some(made) })
            }
            found => Err(Failure::no_overload("hasValue", &[found])),
        }
    }

    fn sort_by(&mut self, target: Id, name: &Arc<str>, key: Id) -> Outcome<'a> {
        let Val::List(list) = self.eval(target)? else {
            return Err(Failure::told("no such overload: sortBy"));
        };
        self.charge(21)?;
        let price = self.price(Price::Sorted, &[Val::List(list.clone())])?;
        self.charge(price)?;
        let mut keys = Vec::with_capacity(list.len());
        for item in list.iter() {
            self.charge(12)?;
            keys.push(self.within(name, item?, key)?);
        }
        let keys = List::Made {
            items: Rc::new(keys),
            shape: None,
        };
        lists::sorted_by(self, &list, &keys)
    }

    /// The compiled pattern of a text.
    pub(super) fn pattern(&mut self, text: &str) -> Result<Regex, Failure> {
        if let Some(known) = self.program.patterns.get(text).or_else(|| self.patterns.get(text)) {
            return Ok(known.clone());
        }
        self.charge(PATTERN_COST)?;
        let compiled = re2::compile(text).map_err(Failure::told)?;
        self.patterns.insert(text.into(), compiled.clone());
        Ok(compiled)
    }

    /// Whether two values are equal.
    pub(super) fn equal(&mut self, one: &Val<'a>, other: &Val<'a>) -> Result<bool, Failure> {
        operators::equal(self, one, other)
    }
}

fn no_attribute(name: &str) -> Failure {
    Failure::told(format!("no such attribute(s): {name}"))
}

fn not_optional(found: &Val<'_>) -> Failure {
    Failure::told(format!(
        "cannot initialize optional list element from non-optional value {}",
        found.shown()
    ))
}

fn constant(literal: &Literal) -> Val<'_> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(number) => Val::Int(*number),
        Literal::Uint(number) => Val::Uint(*number),
        Literal::Double(number) => Val::Double(*number),
        Literal::String(text) => Val::String(Str::Lent(text)),
        Literal::Bytes(bytes) => Val::Bytes(bytes.clone()),
    }
}

/// What a fold has come to.
enum Folded<'a> {
    Decided {
        decides: bool,
        decided: bool,
        failed: Option<Failure>,
    },
    Counted(u64),
    Filtered(Vec<Val<'a>>),
    Listed(Vec<Val<'a>>),
    Mapped(BTreeMap<Key, Val<'a>>),
    Entered(BTreeMap<Key, Val<'a>>),
}

impl<'a> Folded<'a> {
    fn new(what: FoldKind) -> Folded<'a> {
        let until = |decides| Folded::Decided {
            decides,
            decided: false,
            failed: None,
        };
        match what {
            FoldKind::All => until(false),
            FoldKind::Exists => until(true),
            FoldKind::ExistsOne => Folded::Counted(0),
            FoldKind::Filter => Folded::Filtered(Vec::new()),
            FoldKind::Map => Folded::Listed(Vec::new()),
            FoldKind::TransformMap => Folded::Mapped(BTreeMap::new()),
            FoldKind::TransformMapEntry => Folded::Entered(BTreeMap::new()),
        }
    }

    /// What making the first state costs.
    fn start_cost(&self) -> u64 {
        match self {
            Folded::Decided { .. } | Folded::Counted(_) => 0,
            Folded::Filtered(_) | Folded::Listed(_) => 10,
            Folded::Mapped(_) | Folded::Entered(_) => 30,
        }
    }

    /// What looking at the state costs in each step: kube-apiserver's macros are made of calls, too.
    fn step_cost(&self) -> u64 {
        match self {
            Folded::Decided { decides: false, .. } => 3,
            Folded::Decided { decides: true, .. } => 4,
            _ => 0,
        }
    }

    fn result(self) -> Outcome<'a> {
        match self {
            Folded::Decided {
                decides, decided: true, ..
            } => Ok(Val::Bool(decides)),
            Folded::Decided {
                failed: Some(failed), ..
            } => Err(failed),
            Folded::Decided { decides, .. } => Ok(Val::Bool(!decides)),
            Folded::Counted(count) => Ok(Val::Bool(count == 1)),
            Folded::Filtered(items) | Folded::Listed(items) => Ok(Val::list(items)),
            Folded::Mapped(map) | Folded::Entered(map) => Ok(Val::Map(Map::Made(Rc::new(map)))),
        }
    }
}
