//! Types of all parts of an expression, and which function each call means; kube-apiserver's messages for what does not fit.

use std::sync::Arc;

use super::ast::{Ast, Entry, Fold, FoldKind, Id, Kind, Literal};
use super::declarations::{Declarations, OPAQUE};
use super::environment::Environment;
use super::source::{CompileError, Findings};
use super::types::Type;
use super::unify::{Unifier, most_general};

/// What a name or a call means.
#[derive(Debug, Clone)]
pub(super) enum Link {
    None,
    /// A variable of the environment, by its number.
    Variable(usize),
    /// A variable of a macro.
    Local,
    /// The name of a type.
    TypeName(Type),
    /// A function, and which of its overloads it can be.
    Call {
        name: Arc<str>,
        member: bool,
        overloads: Vec<u32>,
    },
}

/// An expression whose types are known.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) ast: Ast,
    /// By node.
    pub(super) types: Vec<Type>,
    /// By node.
    pub(super) links: Vec<Link>,
}

/// Finds the types of an expression.
pub(super) fn check(ast: Ast, environment: &Environment, source: &str) -> Result<Checked, CompileError> {
    let mut checker = Checker {
        types: vec![Type::Error; ast.nodes.len()],
        links: vec![Link::None; ast.nodes.len()],
        ast: &ast,
        environment,
        locals: Vec::new(),
        unifier: Unifier::new(ast.nodes.len()),
        findings: Findings::default(),
    };
    checker.check(ast.root);
    if checker.unifier.exhausted() {
        checker.findings = Findings::default();
        checker.findings.add_whole("expression has types that are too complex");
    }
    if !checker.findings.is_empty() {
        return Err(checker.findings.into_error(source));
    }
    let types = std::mem::take(&mut checker.types);
    let types = types.iter().map(|it| checker.unifier.known(it, true)).collect();
    let links = checker.links;
    Ok(Checked { ast, types, links })
}

struct Checker<'a> {
    ast: &'a Ast,
    environment: &'a Environment,
    types: Vec<Type>,
    links: Vec<Link>,
    locals: Vec<(Arc<str>, Type)>,
    unifier: Unifier,
    findings: Findings,
}

impl Checker<'_> {
    fn tell(&mut self, at: u32, what: String) {
        self.findings.add(at, what);
    }

    /// The type of a node, which is kept.
    fn check(&mut self, id: Id) -> Type {
        let node = self.ast.node(id);
        let at = node.at;
        let found = match &node.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => self.ident(id, name),
            Kind::Select {
                operand,
                field,
                test,
                optional,
            } => self.select(id, *operand, field, *test, *optional),
            Kind::Call { function, target, args } => self.call(id, function, *target, args),
            Kind::And(one, other) => self.logic(at, "_&&_", *one, *other),
            Kind::Or(one, other) => self.logic(at, "_||_", *one, *other),
            Kind::Conditional(condition, one, other) => {
                let args = [*condition, *one, *other].map(|id| self.check(id));
                self.conditional(at, &args[0], &args[1], &args[2])
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Object { name, fields } => self.object(at, name, fields),
            Kind::Fold(fold) => self.fold(at, fold),
            Kind::Bind { name, value, body } => {
                let value = self.check(*value);
                self.within(&[(name.clone(), value)], *body)
            }
            Kind::OptionalMap {
                target,
                name,
                body,
                flat,
            } => self.optional_map(at, *target, name, *body, *flat),
            Kind::SortBy { target, name, key } => self.sort_by(at, *target, name, *key),
        };
        self.types[id as usize] = found.clone();
        found
    }

    /// The type of a node under variables of a macro.
    fn within(&mut self, names: &[(Arc<str>, Type)], id: Id) -> Type {
        let depth = self.locals.len();
        self.locals.extend_from_slice(names);
        let found = self.check(id);
        self.locals.truncate(depth);
        found
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        if let Some((link, found)) = self.lookup(name) {
            self.links[id as usize] = link;
            return found;
        }
        self.undeclared(self.ast.node(id).at, name);
        Type::Error
    }

    fn undeclared(&mut self, at: u32, name: &str) {
        self.tell(at, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn lookup(&self, name: &str) -> Option<(Link, Type)> {
        if let Some((_, found)) = self.locals.iter().rev().find(|(local, _)| **local == *name) {
            return Some((Link::Local, found.clone()));
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((number, found)) = self.environment.find(name) {
            return Some((Link::Variable(number), found.clone()));
        }
        let named = type_named(name)?;
        Some((Link::TypeName(named.clone()), Type::Type(Arc::new(named))))
    }

    /// `a.b.c` of names as one name.
    fn dotted(&self, id: Id, below: usize) -> Option<String> {
        match &self.ast.node(id).kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select {
                operand,
                field,
                test: false,
                optional: false,
            } if below > 0 => Some(format!("{}.{field}", self.dotted(*operand, below - 1)?)),
            _ => None,
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool, optional: bool) -> Type {
        // Names of types and variables have few dots.
        if let Some(name) = self.dotted(id, 4)
            && !self.locals.iter().any(|(local, _)| name.starts_with(&**local))
            && let Some((link @ (Link::TypeName(_) | Link::Variable(_)), found)) = self.lookup(&name)
        {
            self.links[id as usize] = link;
            return found;
        }
        let at = self.ast.node(id).at;
        let target = self.check(operand);
        let target = self.unifier.known(&target, false);
        let (target, wrapped) = match target {
            Type::Optional(value) => ((*value).clone(), true),
            other => (other, false),
        };
        let found = match &target {
            Type::Dyn | Type::Error | Type::Made(_) => Type::Dyn,
            Type::Open(_) => {
                self.unifier.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Map(pair) => pair.1.clone(),
            Type::Object(..) | Type::Record(_) => field_of(&target, field).unwrap_or_else(|| {
                self.tell(at, format!("undefined field '{field}'"));
                Type::Error
            }),
            other => {
                self.tell(at, format!("type '{other}' does not support field selection"));
                Type::Error
            }
        };
        match (test, wrapped || optional) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        }
    }

    fn call(&mut self, id: Id, function: &Arc<str>, target: Option<Id>, args: &[Id]) -> Type {
        let at = self.ast.node(id).at;
        let mut types: Vec<Type> = args.iter().map(|arg| self.check(*arg)).collect();
        let Some(target) = target else {
            let name = function.strip_prefix('.').map_or_else(|| function.clone(), Arc::from);
            if Declarations::all().of(&name).is_empty() {
                self.undeclared(at, function);
                return Type::Error;
            }
            return self.resolve(id, name, false, &types);
        };
        // What looks like a value can be the first part of a function's name.
        if let Some(prefix) = self.dotted(target, 2) {
            let name = format!("{prefix}.{function}");
            if !Declarations::all().of(&name).is_empty() {
                return self.resolve(id, name.into(), false, &types);
            }
        }
        types.insert(0, self.check(target));
        if Declarations::all().of(function).is_empty() {
            self.undeclared(at, function);
            return Type::Error;
        }
        self.resolve(id, function.clone(), true, &types)
    }

    /// Which overloads a call can mean, and the type of its result.
    fn resolve(&mut self, id: Id, name: Arc<str>, member: bool, args: &[Type]) -> Type {
        let all = Declarations::all();
        let args: Vec<Type> = args.iter().map(|arg| self.unifier.known(arg, false)).collect();
        let mut overloads = Vec::new();
        let mut result: Option<Type> = None;
        for number in all.of(&name) {
            let overload = &all.overloads[*number as usize];
            if overload.member != member || overload.args.len() != args.len() {
                continue;
            }
            let first = self.unifier.opens(overload.open);
            let mut fresh = |number: u32| Type::Open(first + number);
            let wanted: Vec<Type> = overload.args.iter().map(|arg| arg.map_open(&mut fresh)).collect();
            let gives = overload.result.map_open(&mut fresh);
            let pairs: Vec<(&Type, &Type)> = wanted.iter().zip(&args).collect();
            if !self.unifier.all_fit(&pairs) {
                continue;
            }
            overloads.push(*number);
            let gives = self.unifier.known(&gives, false);
            result = Some(match result {
                None => gives,
                Some(before) if before == gives => before,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            self.no_overload(self.ast.node(id).at, &name, member, &args);
            return Type::Error;
        };
        self.links[id as usize] = Link::Call {
            name,
            member,
            overloads,
        };
        result
    }

    fn no_overload(&mut self, at: u32, name: &str, member: bool, args: &[Type]) {
        let shown: Vec<String> = args
            .iter()
            .map(|arg| self.unifier.known(arg, true).to_string())
            .collect();
        let signature = match (member, shown.split_first()) {
            (true, Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.tell(
            at,
            format!("found no matching overload for '{name}' applied to '{signature}'"),
        );
    }

    fn logic(&mut self, at: u32, name: &str, one: Id, other: Id) -> Type {
        let args = [one, other].map(|id| self.check(id));
        self.both_bool(at, name, &args)
    }

    fn both_bool(&mut self, at: u32, name: &str, args: &[Type; 2]) -> Type {
        if self
            .unifier
            .all_fit(&[(&Type::Bool, &args[0]), (&Type::Bool, &args[1])])
        {
            return Type::Bool;
        }
        self.no_overload(at, name, false, args);
        Type::Error
    }

    fn conditional(&mut self, at: u32, condition: &Type, one: &Type, other: &Type) -> Type {
        let result = self.unifier.open();
        let pairs = [(&Type::Bool, condition), (&result, one), (&result, other)];
        if self.unifier.all_fit(&pairs) {
            return self.unifier.known(&result, false);
        }
        self.no_overload(at, "_?_:_", false, &[condition.clone(), one.clone(), other.clone()]);
        Type::Error
    }

    /// The type of an item; what it holds, if it is only put in when there is something.
    fn item(&mut self, id: Id, optional: bool) -> Type {
        let found = self.check(id);
        if !optional {
            return found;
        }
        let value = self.unifier.open();
        let wanted = Type::optional(value.clone());
        if self.unifier.fits(&wanted, &found) {
            return self.unifier.known(&value, false);
        }
        self.mismatch(id, &Type::optional(found.clone()), &found);
        Type::Error
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let (expected, found) = (self.unifier.known(expected, true), self.unifier.known(found, true));
        let what = format!("expected type '{expected}' but found '{found}'");
        self.tell(self.ast.node(id).at, what);
    }

    /// The type of what is of one type and of another.
    fn joined(&mut self, id: Id, before: Option<Type>, found: Type) -> Type {
        let Some(before) = before else { return found };
        if self.unifier.fits(&before, &found) {
            return most_general(&before, &found);
        }
        self.mismatch(id, &before, &found);
        Type::Error
    }

    fn list(&mut self, items: &[(Id, bool)]) -> Type {
        let mut joined = None;
        for (id, optional) in items {
            let found = self.item(*id, *optional);
            joined = Some(self.joined(*id, joined, found));
        }
        Type::list(joined.unwrap_or_else(|| self.unifier.open()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let found = self.check(entry.key);
            keys = Some(self.joined(entry.key, keys, found));
            let found = self.item(entry.value, entry.optional);
            values = Some(self.joined(entry.value, values, found));
        }
        let keys = keys.unwrap_or_else(|| self.unifier.open());
        Type::map(keys, values.unwrap_or_else(|| self.unifier.open()))
    }

    fn object(&mut self, at: u32, name: &Arc<str>, fields: &[(Arc<str>, Entry)]) -> Type {
        for (_, entry) in fields {
            self.item(entry.value, entry.optional);
        }
        if self.environment.makes(name) {
            return Type::Made(name.clone());
        }
        self.undeclared(at, name);
        Type::Error
    }

    fn fold(&mut self, at: u32, fold: &Fold) -> Type {
        let range = self.check(fold.range);
        let range = self.unifier.known(&range, false);
        let (place, item, single) = match &range {
            Type::List(items) => (Type::Int, (**items).clone(), (**items).clone()),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone(), pair.0.clone()),
            Type::Dyn | Type::Error | Type::Open(_) => {
                self.unifier.fits(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn, Type::Dyn)
            }
            other => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.tell(self.ast.node(fold.range).at, what);
                (Type::Error, Type::Error, Type::Error)
            }
        };
        let names = match &fold.names {
            (one, None) => vec![(one.clone(), single.clone())],
            (one, Some(other)) => vec![(one.clone(), place.clone()), (other.clone(), item)],
        };
        let filter = fold.filter.map(|filter| self.within(&names, filter));
        let body = self.within(&names, fold.body);
        let result = match fold.what {
            FoldKind::All => return self.both_bool(at, "_&&_", &[Type::Bool, body]),
            FoldKind::Exists => return self.both_bool(at, "_||_", &[Type::Bool, body]),
            FoldKind::ExistsOne => {
                self.conditional(at, &body, &Type::Int, &Type::Int);
                return Type::Bool;
            }
            FoldKind::Filter => {
                let list = Type::list(single);
                return self.conditional(at, &body, &list, &list);
            }
            FoldKind::Map => Type::list(body),
            FoldKind::TransformMap => Type::map(place, body),
            FoldKind::TransformMapEntry => {
                let wanted = Type::map(self.unifier.open(), self.unifier.open());
                if !self.unifier.fits(&wanted, &body) {
                    self.no_overload(at, "cel.@mapInsert", false, &[wanted.clone(), body]);
                }
                self.unifier.known(&wanted, false)
            }
        };
        match filter {
            Some(filter) => self.conditional(at, &filter, &result, &result),
            None => result,
        }
    }

    fn optional_map(&mut self, at: u32, target: Id, name: &Arc<str>, body: Id, flat: bool) -> Type {
        let target = self.check(target);
        let value = self.unifier.open();
        let wanted = Type::optional(value.clone());
        if !self.unifier.fits(&wanted, &target) {
            self.no_overload(at, "hasValue", true, &[target]);
            return Type::Error;
        }
        let value = self.unifier.known(&value, false);
        let body = self.within(&[(name.clone(), value)], body);
        if !flat {
            return Type::optional(body);
        }
        let none = Type::optional(self.unifier.open());
        self.conditional(at, &Type::Bool, &body, &none)
    }

    fn sort_by(&mut self, at: u32, target: Id, name: &Arc<str>, key: Id) -> Type {
        let list = self.check(target);
        let items = self.unifier.open();
        let wanted = Type::list(items.clone());
        if !self.unifier.fits(&wanted, &list) {
            let what = format!("found no matching overload for 'sortBy' applied to '{list}.(dyn)'");
            self.tell(at, what);
            return Type::Error;
        }
        let items = self.unifier.known(&items, false);
        let key = self.within(&[(name.clone(), items)], key);
        let key = self.unifier.known(&key, false);
        let comparable = matches!(
            key,
            Type::Int
                | Type::Uint
                | Type::Double
                | Type::Bool
                | Type::Duration
                | Type::Timestamp
                | Type::String
                | Type::Bytes
        );
        if !comparable && !key.is_dyn() && !matches!(key, Type::Open(_)) {
            self.no_overload(at, "@sortByAssociatedKeys", true, &[list, Type::list(key)]);
            return Type::Error;
        }
        list
    }
}

/// The type of a field of an object.
fn field_of(object: &Type, field: &str) -> Option<Type> {
    match object {
        Type::Object(shape, name) => {
            let found = shape.field(field)?;
            Some(Type::of_shape(&found.shape, &format!("{name}.{field}")))
        }
        Type::Record(record) => {
            let found = record.fields.iter().find(|(name, _)| **name == *field)?;
            Some(found.1.clone())
        }
        _ => None,
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// The type of that name.
fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "optional_type" => Type::optional(Type::Dyn),
        "type" => Type::Type(Arc::new(Type::Dyn)),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        _ => OPAQUE
            .iter()
            .find(|(_, long)| *long == name)
            .map(|(_, long)| Type::Opaque(long))?,
    })
}
